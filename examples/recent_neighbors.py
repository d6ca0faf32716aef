"""A temporal graph network on the last neighbours of nodes, with the rows of a sampler.

    python examples/recent_neighbors.py

A TGN (Rossi et al., 2020) learns which item a user takes next in a drawn stream: every user has two
favourites, and takes them in turns. Memory, attention and training are those of PyG's `tgn.py`;
`RecentNeighbors` stands in the place of its `LastNeighborLoader`.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator

from pyg_incremental.sampling import RecentNeighbors

USERS, ITEMS, CHANNELS = 30, 20, 32


class GraphAttention(nn.Module):
    """Attention over the last neighbours, which sees how long ago they were met."""

    def __init__(self, msg_dim: int, time_enc: nn.Module) -> None:
        super().__init__()
        self.time_enc = time_enc
        edge_dim = msg_dim + time_enc.out_channels
        self.conv = TransformerConv(CHANNELS, CHANNELS // 2, heads=2, edge_dim=edge_dim)

    def forward(
        self, x: Tensor, last_update: Tensor, edge_index: Tensor, t: Tensor, msg: Tensor
    ) -> Tensor:
        ago = self.time_enc((last_update[edge_index[0]] - t).to(x.dtype))
        return self.conv(x, edge_index, torch.cat([ago, msg], dim=-1))


class TGN(nn.Module):
    """Memory, last neighbours, attention and a score for a pair."""

    def __init__(self, nodes: int, msg_dim: int, size: int) -> None:
        super().__init__()
        message = IdentityMessage(msg_dim, CHANNELS, CHANNELS)
        self.memory = TGNMemory(nodes, msg_dim, CHANNELS, CHANNELS, message, LastAggregator())
        self.attention = GraphAttention(msg_dim, self.memory.time_enc)
        self.score = nn.Sequential(nn.Linear(2 * CHANNELS, CHANNELS), nn.ReLU(),
                                   nn.Linear(CHANNELS, 1))  # fmt: skip
        self.recent = RecentNeighbors(nodes, size)
        self.place = torch.empty(nodes, dtype=torch.int64)

    def forward(self, asked: Tensor, t: Tensor, msg: Tensor) -> Tensor:
        """Embeddings of some nodes, `[k, channels]`, from what happened before."""
        n_id, edge_index, e_id = self.recent(asked.unique())
        self.place[n_id] = torch.arange(n_id.numel())
        x, last_update = self.memory(n_id)
        z = self.attention(x, last_update, edge_index, t[e_id], msg[e_id])
        return z[self.place[asked]]

    def happened(self, src: Tensor, dst: Tensor, t: Tensor, msg: Tensor) -> None:
        """Interactions `[k]` are known from now on."""
        self.memory.update_state(src, dst, t, msg)
        self.recent.insert(src, dst)

    def forget(self) -> None:
        """Begin at time zero again."""
        self.memory.reset_state()
        self.recent.reset_state()


def stream(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Users take their two favourite items in turns: sources, targets, times and messages."""
    generator = torch.Generator().manual_seed(0)
    favourites = USERS + torch.randint(ITEMS, (USERS, 2), generator=generator)
    src = torch.randint(USERS, (count,), generator=generator)
    turn = torch.zeros(USERS, dtype=torch.int64)
    dst = torch.empty_like(src)
    for i, user in enumerate(src.tolist()):
        dst[i] = favourites[user, turn[user] % 2]
        turn[user] += 1
    return src, dst, torch.arange(count), torch.ones(count, 1)


def run(model: TGN, data: tuple[Tensor, ...], span: range, optimizer: object = None) -> float:
    """Go through a part of the stream; returns how often the item taken scores above another."""
    src, dst, t, msg = data
    right = 0
    for first in span:
        at = slice(first, first + span.step)
        other = torch.randint(USERS, USERS + ITEMS, dst[at].shape)
        z = model(torch.cat([src[at], dst[at], other]), t, msg).chunk(3)
        taken = model.score(torch.cat([z[0], z[1]], -1))
        missed = model.score(torch.cat([z[0], z[2]], -1))
        right += int((taken > missed).sum())
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.zero_grad()
            nn.functional.softplus(torch.cat([-taken, missed])).mean().backward()
        model.happened(src[at], dst[at], t[at], msg[at])
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.step()
            model.memory.detach()
    return right / (len(span) * span.step)


def main(argv: list[str] | None = None) -> int:
    """Train, then predict the rest of the stream."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--size", type=int, default=10, help="last neighbours of a node")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    data = stream(args.events)
    model = TGN(USERS + ITEMS, 1, args.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    cut = args.events * 4 // 5 // args.batch * args.batch
    for epoch in range(args.epochs):
        model.train()
        model.forget()
        share = run(model, data, range(0, cut, args.batch), optimizer)
        print(f"epoch {epoch}: {100 * share:.1f}% in order while training")
    model.eval()
    with torch.no_grad():
        last = range(cut, args.events - args.batch + 1, args.batch)
        share = run(model, data, last)
    print(f"predicted from {args.size} last neighbours: {100 * share:.1f}% in order")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

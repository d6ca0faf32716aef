"""Classify edges: transfers between accounts, some of which feed a collector of stolen money.

    python examples/edges.py            # some seconds; saves edges.png

Whether a transfer is suspicious depends on what its two accounts send and receive otherwise. So the
score of a transfer changes after it happened: as more of them reach the same collector, those of
yesterday turn out to be a part of it. A model scores every transfer from its amount and the rows
of both accounts; `apply_delta` brings a new transfer in, and names those whose score it changed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from plot import RED, plot_work, plt, tidy
from torch import Tensor, nn
from torch_geometric.nn import GINEConv

from pyg_incremental import to_incremental


class Scores(nn.Module):
    """A logit for every edge, from the rows of its two ends and its attributes."""

    def __init__(self, channels: int = 3, hidden: int = 16) -> None:
        super().__init__()
        self.lin = nn.Linear(channels, hidden)
        self.conv1 = GINEConv(nn.Linear(hidden, hidden), edge_dim=2)
        self.conv2 = GINEConv(nn.Linear(hidden, hidden), edge_dim=2)
        self.mlp = nn.Sequential(nn.Linear(2 * hidden + 2, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Logits `[num_edges]`."""
        h = self.lin(x).relu()
        h = self.conv1(h, edge_index, edge_attr).tanh()
        h = self.conv2(h, edge_index, edge_attr).tanh()
        src, dst = edge_index
        return self.mlp(torch.cat([h[src], h[dst], edge_attr], dim=-1)).squeeze(-1)


@dataclass(frozen=True)
class Transfers:
    """Transfers in the order in which they happen."""

    x: Tensor  # [accounts, 3]: age, and two numbers that say nothing
    edge_index: Tensor  # [2, transfers]
    edge_attr: Tensor  # [transfers, 2]: logarithm of the amount, hour of the day
    label: Tensor  # [transfers]: which ring it belongs to, -1 for none


def draw(accounts: int, transfers: int, rings: int, seed: int) -> Transfers:
    """Everyday transfers, many of them to shops, and rings that feed a collector."""
    generator = torch.Generator().manual_seed(seed)

    def integers(high: int, *size: int) -> Tensor:
        return torch.randint(high, size, generator=generator)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    x = torch.cat([torch.rand(accounts, 1, generator=generator), normal(accounts, 2)], dim=1)
    shops = integers(accounts, accounts // 30)
    to_shop = torch.rand(transfers, generator=generator) < 0.4
    target = shops[integers(len(shops), transfers)]
    target = torch.where(to_shop, target, integers(accounts, transfers))
    source, amount = integers(accounts, transfers), normal(transfers) + 3
    when = torch.rand(transfers, generator=generator)
    label = torch.full((transfers,), -1)
    parts = [(source, target, amount, when, label)]
    for ring in range(rings):
        many = int(integers(12, 1)) + 12
        start = 0.96 * ring / max(rings - 1, 1)  # the last ones run while the stream does
        collector = integers(accounts, 1).expand(many)
        sent = start + 0.04 * torch.rand(many, generator=generator)
        # Small amounts, all alike, and at times when shops get them, too.
        small = 2 + 0.1 * normal(many)
        parts.append((integers(accounts, many), collector, small, sent, torch.full((many,), ring)))
    source, target, amount, when, label = (torch.cat(p) for p in zip(*parts, strict=True))
    order = when.argsort()
    attr = torch.stack([amount, (24 * 30 * when) % 24 / 24], dim=1)
    return Transfers(x, torch.stack([source, target])[:, order], attr[order], label[order])


def train(model: Scores, graph: Transfers, until: int, epochs: int) -> float:
    """Train on the transfers before `until`; returns the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    edge_index, edge_attr = graph.edge_index[:, :until], graph.edge_attr[:until]
    wanted = (graph.label[:until] >= 0).float()
    weight = (wanted == 0).sum() / wanted.sum()
    for _ in range(epochs):
        optimizer.zero_grad()
        logits = model(graph.x, edge_index, edge_attr)
        loss = F.binary_cross_entropy_with_logits(logits, wanted, pos_weight=weight)
        loss.backward()
        optimizer.step()
    return loss.item()


@dataclass
class Record:
    """What the stream did."""

    score: list[Tensor] = field(default_factory=list)  # of the transfers of one ring so far
    rescored: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    full_ms: list[float] = field(default_factory=list)


def stream(model: Scores, graph: Transfers, until: int, ring: int) -> tuple[Record, float]:
    """Let the transfers from `until` on happen; returns what they did and how far rows are off."""
    inc, record = to_incremental(model), Record()
    inc(graph.x, graph.edge_index[:, :until], graph.edge_attr[:until])
    print(inc.explain())
    for at in range(until, graph.edge_index.size(1)):
        up = inc.apply_delta(
            edge_index_add=graph.edge_index[:, at : at + 1],
            edge_attr_add=graph.edge_attr[at : at + 1],
        )
        mine = (graph.label[: at + 1] == ring).nonzero().view(-1)
        record.score.append(inc.out[mine].sigmoid())
        record.rescored.append(len(up.changed))
        record.total.append(at + 1)
        record.update_ms.append(1e3 * up.stats.seconds)
        if at % 100 == 0:
            began = time.perf_counter()
            with torch.no_grad():
                model(graph.x, graph.edge_index[:, : at + 1], graph.edge_attr[: at + 1])
            record.full_ms.append(1e3 * (time.perf_counter() - began))
    return record, inc.verify()


def plot(record: Record, path: str) -> None:
    """How the scores of one ring rise, and how many transfers each update scores anew."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 6.2), sharex=True, height_ratios=[3, 2], layout="constrained"
    )
    members = len(record.score[-1])
    for i in range(members):
        known = [(at, float(s[i])) for at, s in enumerate(record.score) if len(s) > i]
        top.step(*zip(*known, strict=True), where="post", color=RED, alpha=0.6, linewidth=1.2)
        top.plot(*known[0], "o", color=RED, markersize=4)
    top.set_ylim(-0.03, 1.03)
    top.set_ylabel("score of a transfer")
    top.set_title(
        f"{members} transfers to one collector: a dot where each happens, a line for its score",
        loc="left",
    )
    tidy(top)
    plot_work(
        bottom, record.total, record.rescored, record.update_ms, record.full_ms,
        ("all transfers", "scored anew"),
    )  # fmt: skip
    bottom.set_xlabel("transfers that have arrived")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Train, stream and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accounts", type=int, default=5000)
    parser.add_argument("--transfers", type=int, default=20_000)
    parser.add_argument("--rings", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="edges.png", help="where to save the plot")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)  # for times that compare
    torch.manual_seed(args.seed)
    graph = draw(args.accounts, args.transfers, args.rings, args.seed)
    ring = args.rings - 1
    first = int((graph.label == ring).nonzero()[0])
    until = first - 60
    model = Scores()
    loss = train(model.train(), graph, until, args.epochs)
    print(f"trained on {until:,} transfers, loss {loss:.3f}")

    record, off = stream(model.eval(), graph, until, ring)
    print(
        f"{len(record.rescored)} transfers arrived; each gave {median(record.rescored):.0f} of "
        f"{record.total[-1]:,} transfers another score, in {median(record.update_ms):.3f} ms "
        f"(a full pass takes {median(record.full_ms):.1f} ms); off by {off:.1e}"
    )
    plot(record, args.plot)
    print(f"see {args.plot}")
    return 0 if off < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())

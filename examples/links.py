"""Predict links: whom a newcomer may come to know, link by link.

    python examples/links.py            # some seconds; saves links.png

People of many circles know each other, mostly within their circle. A model learns to tell whether a
pair of people knows each other, and then watches thousands of pairs that do not. Among them are
those of a newcomer, of whom nothing is known. `apply_delta` brings a new link in and scores those
of the watched pairs anew that it reaches, no others.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from plot import GREY, RED, plot_work, plt, tidy
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from pyg_incremental import to_incremental


class Links(nn.Module):
    """The logit of a pair is a product of the rows of both people."""

    def __init__(self, channels: int, hidden: int = 32) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(channels, hidden), SAGEConv(hidden, hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Logits `[num_pairs]` of the pairs in `edge_label_index`."""
        h = self.conv1(x, edge_index).relu()
        h = self.conv2(h, edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=-1)


@dataclass(frozen=True)
class People:
    """Who knows whom."""

    x: Tensor  # [people, channels]
    circle: Tensor  # [people]
    edge_index: Tensor  # [2, links], both directions
    coming: Tensor  # [2, links to come], one direction


def draw(people: int, circles: int, links: int, coming: int, seed: int) -> People:
    """Person 0 is the newcomer: no links yet, and features that say nothing."""
    generator = torch.Generator().manual_seed(seed)
    circle = torch.randint(circles, (people,), generator=generator)
    x = torch.randn(circles, 16, generator=generator)[circle]
    x = x + 1.5 * torch.randn(people, 16, generator=generator)
    x[0] = 0
    source = torch.randint(1, people, (2 * links,), generator=generator)
    order = circle.argsort()
    first = torch.searchsorted(circle[order], circle[source])
    count = circle.bincount(minlength=circles)[circle[source]]
    inside = order[first + (torch.rand(len(source), generator=generator) * count).long()]
    other = torch.randint(1, people, (len(source),), generator=generator)
    strange = torch.rand(len(source), generator=generator) < 0.1
    target = torch.where(strange, other, inside)
    pairs = torch.stack([source, target])[:, (source != target) & (target != 0)]
    old, new = pairs[:, :links], pairs[:, links : links + coming]
    peers = (circle == circle[0]).nonzero().view(-1)[1:]
    for i, at in enumerate(range(coming // 8, coming, coming // 8)):
        new[:, at] = torch.tensor([0, int(peers[i % len(peers)])])
    return People(x, circle, torch.cat([old, old.flip(0)], dim=1), new)


def pairs_to_watch(graph: People, many: int, generator: torch.Generator) -> Tensor:
    """Random pairs, and the newcomer with some people of its own circle and of others."""
    pairs = torch.randint(1, len(graph.x), (2, many), generator=generator)
    own = (graph.circle == graph.circle[0]).nonzero().view(-1)[-12:]
    others = torch.randint(1, len(graph.x), (12,), generator=generator)
    others = others[graph.circle[others] != graph.circle[0]]
    mine = torch.cat([own, others])
    return torch.cat([torch.stack([torch.zeros_like(mine), mine]), pairs], dim=1)


def train(model: Links, graph: People, epochs: int) -> float:
    """Tell a hidden quarter of the links from random pairs; returns the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        hidden = torch.rand(graph.edge_index.size(1)) < 0.25
        there = graph.edge_index[:, hidden]
        pairs = torch.cat([there, torch.randint(len(graph.x), there.shape)], dim=1)
        wanted = torch.cat([torch.ones(there.size(1)), torch.zeros(there.size(1))])
        optimizer.zero_grad()
        logits = model(graph.x, graph.edge_index[:, ~hidden], pairs)
        loss = F.binary_cross_entropy_with_logits(logits, wanted)
        loss.backward()
        optimizer.step()
    return loss.item()


@dataclass
class Record:
    """What the stream did."""

    score: list[Tensor] = field(default_factory=list)  # of the newcomer's pairs
    links: list[int] = field(default_factory=list)  # updates that brought the newcomer a link
    rescored: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    full_ms: list[float] = field(default_factory=list)


def stream(model: Links, graph: People, pairs: Tensor, mine: int) -> tuple[Record, float]:
    """Let links arrive one by one; returns what they did, and how far scores are off."""
    inc, record = to_incremental(model), Record()
    inc(graph.x, graph.edge_index, pairs)
    print(inc.explain())
    for at, link in enumerate(graph.coming.t()):
        up = inc.apply_delta(
            edge_index_add={"edge_index": torch.stack([link, link.flip(0)], dim=1)}
        )
        record.score.append(inc.out[:mine].sigmoid())
        record.rescored.append(len(up.changed))
        record.total.append(len(inc.out))
        record.update_ms.append(1e3 * up.stats.seconds)
        if 0 in link:
            record.links.append(at)
        if at % 50 == 0:
            began = time.perf_counter()
            with torch.no_grad():
                model(graph.x, graph.edge_index, pairs)
            record.full_ms.append(1e3 * (time.perf_counter() - began))
    return record, inc.verify()


def plot(record: Record, own: Tensor, path: str) -> None:
    """How the newcomer's pairs part, and how many pairs each link scores anew.

    Args:
        record: What the stream did.
        own: Which of the pairs are within the newcomer's circle.
        path: Where to save it.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(9, 6.2), sharex=True, height_ratios=[3, 2], layout="constrained"
    )
    scores = torch.stack(record.score)
    for inside, color, name in ((False, GREY, "people of other circles"), (True, RED, "its own")):
        chosen = scores[:, own == inside]
        lines = top.plot(chosen.numpy(), color=color, alpha=0.7, linewidth=1.2)
        lines[0].set_label(name)
    for at in record.links:
        top.axvline(at, color="black", linewidth=0.8, linestyle=":")
    top.set_ylabel("score of a pair")
    top.set_title("a newcomer and 24 others: dotted where it gets a link", loc="left")
    top.legend(loc="lower right", frameon=False)
    tidy(top)
    plot_work(
        bottom, record.total, record.rescored, record.update_ms, record.full_ms,
        ("all watched pairs", "scored anew"),
    )  # fmt: skip
    bottom.set_xlabel("links that have arrived")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Train, stream and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=4000)
    parser.add_argument("--links", type=int, default=12_000)
    parser.add_argument("--coming", type=int, default=400, help="links that arrive")
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs that are watched")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="links.png", help="where to save the plot")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)  # for times that compare
    torch.manual_seed(args.seed)
    graph = draw(args.people, args.people // 50, args.links, args.coming, args.seed)
    pairs = pairs_to_watch(graph, args.pairs, torch.Generator().manual_seed(args.seed))
    mine = pairs[:, : pairs.size(1) - args.pairs]
    model = Links(graph.x.size(1))
    print(f"trained, loss {train(model, graph, args.epochs):.3f}")

    record, off = stream(model.eval(), graph, pairs, mine.size(1))
    print(
        f"{len(record.rescored)} links arrived; each gave {median(record.rescored):.0f} of "
        f"{record.total[-1]:,} pairs another score, in {median(record.update_ms):.3f} ms "
        f"(a full pass takes {median(record.full_ms):.1f} ms); off by {off:.1e}"
    )
    plot(record, graph.circle[mine[1]] == graph.circle[0], args.plot)
    print(f"see {args.plot}")
    return 0 if off < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Classify nodes: images that are read anew as others arrive that look like them.

    python examples/nodes.py            # some seconds; saves nodes.png

Each of 1,797 handwritten digits is linked to those that look most alike. A GCN is trained on some;
then the others arrive, one by one. `apply_delta` brings one in and names the rows that changed, so
it is cheap to see which image of before is read as another digit from now on.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from datasets import GrowingGraph, digits
from plot import RED, plot_work, plt, tidy
from torch import Tensor
from torch_geometric.nn import GCN

from pyg_incremental import to_incremental


def train(model: GCN, graph: GrowingGraph, labelled: int, epochs: int) -> float:
    """Train on the first images of the graph; returns the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    x, start = graph.x[: graph.num_start], slice(0, labelled)
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, graph.edge_index)[start], graph.y[start])
        loss.backward()
        optimizer.step()
    model.eval()
    return loss.item()


@dataclass
class Record:
    """What the stream did."""

    flips: list[tuple[int, int, int]] = field(default_factory=list)  # update, image, digit before
    changed: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    full_ms: list[float] = field(default_factory=list)


def stream(model: GCN, graph: GrowingGraph) -> tuple[Record, Tensor, float]:
    """Let the images arrive; returns what they did, what is read, and how far rows are off."""
    inc, record = to_incremental(model), Record()
    read = inc(graph.x[: graph.num_start], graph.edge_index).argmax(dim=1)
    print(inc.explain())
    for node in range(graph.num_start, len(graph.x)):
        old = graph.neighbours[node - graph.num_start]
        up = inc.apply_delta(
            x_add=graph.x[node : node + 1],
            edge_index_add=torch.stack([old, torch.full_like(old, node)]),
            undirected=True,
            old=True,
        )
        flips = zip(*map(Tensor.tolist, up.flips), strict=True)  # id, digit before, digit now
        record.flips += [(len(record.total), i, was) for i, was, _ in flips if i != node]
        read = torch.cat([read, read.new_full((1,), -1)])
        read[up.flips.ids] = up.flips.new
        record.changed.append(len(up.changed))
        record.total.append(inc.num_nodes)
        record.update_ms.append(1e3 * up.stats.seconds)
        if node % 40 == 0:
            x, edge_index = inc.x, inc.graph.to_edge_index()
            began = time.perf_counter()
            with torch.no_grad():
                model(x, edge_index)
            record.full_ms.append(1e3 * (time.perf_counter() - began))
    return record, read, inc.verify()


def plot(record: Record, graph: GrowingGraph, read: Tensor, path: str) -> None:
    """The images in the plane, those that were read anew with a ring; and the work."""
    figure = plt.figure(figsize=(12, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[6, 7])
    axes = left.subplots()
    centred = graph.x - graph.x.mean(dim=0)
    plane = centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].t()
    axes.scatter(*plane.t(), c=read, cmap="tab10", s=9, alpha=0.6, linewidths=0)
    flipped = sorted({image for _, image, _ in record.flips})
    axes.scatter(*plane[flipped].t(), s=60, facecolors="none", edgecolors=RED, linewidths=1.2)
    for digit in range(10):
        axes.annotate(str(digit), plane[read == digit].median(dim=0).values, fontsize=16)
    axes.set_title(f"{len(flipped)} images were read anew (rings)", loc="left")
    axes.set_axis_off()

    top, bottom = right.subplots(2, 1, sharex=True)
    times = torch.tensor([at for at, _, _ in record.flips] or [0])
    top.step(range(len(record.total)), times.bincount(minlength=len(record.total)).cumsum(0),
             color=RED, where="post")  # fmt: skip
    top.set_title("images that are read as another digit than before", loc="left")
    tidy(top)
    plot_work(
        bottom, record.total, record.changed, record.update_ms, record.full_ms,
        ("all images", "rows that changed"),
    )  # fmt: skip
    bottom.set_xlabel("images that have arrived")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Train, stream and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arrivals", type=int, default=400)
    parser.add_argument("--labelled", type=int, default=200, help="images to train on")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="nodes.png", help="where to save the plot")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)  # for times that compare
    torch.manual_seed(args.seed)
    graph = digits(args.arrivals, seed=args.seed)
    model = GCN(graph.x.shape[1], 64, num_layers=2, out_channels=graph.num_classes)
    print(f"trained, loss {train(model, graph, args.labelled, args.epochs):.3f}")

    record, read, off = stream(model, graph)
    right = float((read == graph.y).float().mean())
    print(
        f"{len(record.changed)} images arrived; each changed {median(record.changed):.0f} of "
        f"{record.total[-1]:,} rows, in {median(record.update_ms):.3f} ms (a full pass takes "
        f"{median(record.full_ms):.1f} ms); {len(record.flips)} times an image was read anew; "
        f"{right:.2f} of all are read right; off by {off:.1e}"
    )
    plot(record, graph, read, args.plot)
    print(f"see {args.plot}")
    return 0 if off < 1e-4 else 1


if __name__ == "__main__":
    raise SystemExit(main())

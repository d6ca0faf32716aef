"""Train a GNN on a graph, wrap it, and keep its output exact while the graph changes.

    python examples/quickstart.py                    # 1,797 handwritten digits, no download
    python examples/quickstart.py --model gat
    python examples/quickstart.py --dataset Cora --root data

What happens in life is streamed one change at a time: a new image arrives with its edges, an edge
leaves, damaged pixels are corrected. Every change costs one `apply_delta`. At regular intervals the
output is held against a full pass of the original model on the current graph, which is timed too.

Before that a first scene shows what it is for: a drawn graph of ogbn-arxiv's size, where single
changes of each kind stand beside a pass over a k-hop subgraph and a full pass.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from datasets import NAMES, DataError, GrowingGraph, load
from large_graph import ARXIV, Comparison, compare
from plot import plot_scenes
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv
from tqdm import tqdm

from pyg_incremental import GraphDelta, IncrementalModel, to_incremental

TOLERANCE = 1e-4
CHECKS = 20  # how often in a stream the output is held against a full pass
LARGE = 5_000_000  # with more edges, train on a part of the graph and check only three times


class Net(nn.Module):
    """Two convolutions of one kind: an ordinary PyG model that knows nothing of updates."""

    def __init__(self, kind: str, in_channels: int, hidden: int, out_channels: int) -> None:
        """Build both layers of the named kind."""
        super().__init__()

        def conv(i: int, o: int) -> nn.Module:
            match kind:
                case "gcn":
                    return GCNConv(i, o)
                case "sage":
                    return SAGEConv(i, o)
                case "gin":
                    return GINConv(
                        nn.Sequential(nn.Linear(i, hidden), nn.ReLU(), nn.Linear(hidden, o))
                    )
                case "gat":
                    return GATConv(i, o, heads=4, concat=False)
                case _:
                    return GraphConv(i, o)

        self.conv1 = conv(in_channels, hidden)
        self.conv2 = conv(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Scores of every class for every node."""
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


@dataclass
class Record:
    """What the stream measured."""

    update_ms: list[float] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    full_at: list[int] = field(default_factory=list)
    full_ms: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)  # of the nodes that had arrived
    full_accuracy: list[float] = field(default_factory=list)  # the same, by full passes

    @property
    def max_abs_diff(self) -> float:
        """The largest difference; NaN if there was one (unlike what `max` would say)."""
        return torch.tensor(self.differences).max().item()


def train(model: Net, x: Tensor, y: Tensor, edge_index: Tensor, epochs: int) -> tuple[float, float]:
    """Train on four fifths of the nodes; returns the accuracy on them and on the rest."""
    if edge_index.shape[1] > LARGE:  # nodes are in random order, so the first ones are a sample
        sample = int(len(x) * (LARGE / edge_index.shape[1]) ** 0.5)
        x, y, edge_index = x[:sample], y[:sample], edge_index[:, (edge_index < sample).all(dim=0)]
    known = torch.arange(len(x)) % 5 != 0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3)
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[known], y[known]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x, edge_index).argmax(dim=1) == y).float()
    return float(right[known].mean()), float(right[~known].mean())


def damage(x: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features as they were first recorded: `count` rows have lost half of their values."""
    ids = torch.randperm(len(x), generator=generator)[:count]
    lost = torch.rand(count, x.shape[1], generator=generator) < 0.5
    recorded = x.clone()
    recorded[ids] = x[ids].masked_fill(lost, 0)
    return recorded, ids


def events(
    graph: GrowingGraph, corrected: Tensor, updates: int, generator: torch.Generator
) -> Iterator[GraphDelta]:
    """One delta per event, in random order: all arrivals, all corrections, else an edge leaves."""
    arrivals = len(graph.neighbours)
    kinds = torch.zeros(updates, dtype=torch.int64)
    kinds[:arrivals] = 1
    kinds[arrivals : arrivals + len(corrected)] = 2
    arriving, correcting = iter(range(graph.num_start, len(graph.x))), iter(corrected)
    upward = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]  # each edge once
    leaving = upward[:, torch.randperm(upward.shape[1], generator=generator)[:updates]]
    leaving_edges = iter(leaving.t().unsqueeze(-1))
    for kind in kinds[torch.randperm(updates, generator=generator)].tolist():
        if kind == 1:
            new = next(arriving)
            old = graph.neighbours[new - graph.num_start]
            edges = torch.stack([old, torch.full_like(old, new)])
            yield GraphDelta(x_add=graph.x[new : new + 1], edge_index_add=edges, undirected=True)
        elif kind == 2:
            node = next(correcting)
            yield GraphDelta(x_changes=(node.view(1), graph.x[node].view(1, -1)))
        else:
            yield GraphDelta(edge_index_del=next(leaving_edges), undirected=True)


def full_pass(model: Net, inc: IncrementalModel, times: int) -> tuple[float, Tensor]:
    """Milliseconds of a full pass of the plain PyG model, once it is warm, and its output."""
    x, edge_index = inc.x, inc.graph.to_edge_index()
    took = []
    with torch.no_grad():
        for _ in range(times + 1):
            began = time.perf_counter()
            out = model(x, edge_index)
            took.append(1e3 * (time.perf_counter() - began))
    return median(took[1:]), out


def stream(
    model: Net, inc: IncrementalModel, deltas: Iterator[GraphDelta], total: int, y: Tensor
) -> Record:
    """Apply every delta, and hold the output against a full pass at regular intervals."""
    record, start = Record(), inc.num_nodes

    def accuracy(out: Tensor) -> float:
        """How many of the nodes that have arrived are classified as their labels `y` say."""
        return (out[start:].argmax(dim=1) == y[start : len(out)]).float().mean().item()

    checks, times = (CHECKS, 3) if inc.num_edges <= LARGE else (3, 1)
    every = max(1, total // checks)
    for step, delta in enumerate(tqdm(deltas, total=total, desc="updates", unit=""), start=1):
        began = time.perf_counter()
        up = inc.apply_delta(delta)
        record.update_ms.append(1e3 * (time.perf_counter() - began))
        record.changed.append(len(up.changed))
        record.total.append(inc.num_nodes)
        record.accuracy.append(accuracy(inc.out))
        if step % every == 0 or step == total:
            record.full_at.append(step)
            took, out = full_pass(model, inc, times)
            record.full_ms.append(took)
            record.full_accuracy.append(accuracy(out))
            record.differences.append(inc.verify())
    return record


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=["gcn", "sage", "gin", "gat", "graph"], default="gcn")
    parser.add_argument(
        "--dataset",
        choices=NAMES,
        default="digits",
        help="Planetoid and OGB data are downloaded once; a full pass of PyG on ogbn-products "
        "takes some 40 GB of memory",
    )
    parser.add_argument("--root", default="data", help="folder of the downloaded data sets")
    parser.add_argument("--updates", type=int, help="how many changes to stream (default 800)")
    parser.add_argument("--hidden", type=int, default=64, help="channels between the layers")
    parser.add_argument("--epochs", type=int, help="training epochs (default 100)")
    parser.add_argument(
        "--quick", action="store_true", help="100 updates, 20 epochs, a small second graph"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--plot", default="quickstart.png", help="where the plot goes")
    args = parser.parse_args(argv)
    args.updates = args.updates or (100 if args.quick else 800)
    args.epochs = args.epochs or (20 if args.quick else 100)
    if args.updates < 4:
        parser.error(f"--updates is at least 4 (got {args.updates})")
    return args


def large_scene(args: argparse.Namespace) -> Comparison:
    """Single changes of a large graph, by a model of the same kind that was not trained."""
    _, _, channels, classes = ARXIV
    model = Net(args.model, channels, args.hidden, classes).eval()
    part, rounds = (0.05, 5) if args.quick else (1.0, 40)
    print(
        f"scene 1    a drawn graph of {'a part of ' if part < 1 else ''}ogbn-arxiv's size: each "
        "change beside a k-hop subgraph\n           and a full pass of plain PyG"
    )
    with torch.no_grad():
        hops = 3 if args.model == "gcn" else 2  # GCN reads the degrees of its neighbours, too
        large = compare(model, to_incremental(model, backend="compiled"), hops, part, rounds)
    print(
        f"{large.nodes:,} nodes, {large.edges:,} edges, {args.model}, {large.backend} kernels; "
        f"medians, threads: {args.threads}\n{large.table()}\n"
        f"difference {large.difference:.1e} at most, relative to the largest output"
    )
    return large


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns 0 if the output stayed exact."""
    began = time.perf_counter()
    args = parse(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    try:
        graph = load(args.dataset, arrivals=args.updates // 2, root=args.root, seed=args.seed)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        "kernels    compiled the first time, which takes half a minute, and loaded from then on\n",
        flush=True,
    )
    large = large_scene(args)
    print("\nscene 2    a model is trained and wrapped; its graph changes, and its output keeps up")
    start, edge_index = graph.num_start, graph.edge_index
    recorded, corrected = damage(graph.x[:start], min(args.updates // 4, start), generator)
    # on a small graph there may be less to change than was asked for
    updates = min(args.updates, len(graph.neighbours) + len(corrected) + edge_index.shape[1] // 2)
    print(
        f"data       {graph.name}: {start:,} nodes and {edge_index.shape[1]:,} edges at the start, "
        f"{len(graph.neighbours):,} nodes to come,\n"
        f"           {graph.x.shape[1]} features, {graph.num_classes} classes"
    )

    model = Net(args.model, graph.x.shape[1], args.hidden, graph.num_classes)
    inc = to_incremental(model, backend="compiled")
    seen, unseen = train(model, recorded, graph.y[:start], edge_index, args.epochs)
    print(
        f"training   {args.model}, 2 layers, {args.epochs} epochs: "
        f"accuracy {seen:.3f} on the labelled nodes, {unseen:.3f} on the others"
    )
    first = time.perf_counter()
    inc(recorded, edge_index)
    print(f"first pass {1e3 * (time.perf_counter() - first):.1f} ms, fills the store\n{inc!r}")

    deltas = events(graph, corrected, updates, generator)
    record = stream(model, inc, deltas, updates, graph.y)
    update, full = median(record.update_ms), median(record.full_ms)
    print(
        f"accuracy   {record.accuracy[-1]:.3f} on the {len(graph.neighbours):,} arrived nodes; "
        f"{record.full_accuracy[-1]:.3f} by a full pass\n"
        f"difference {record.max_abs_diff:.1e} at most to a full pass of the original model\n"
        f"changed    {median(record.changed):,.0f} of {inc.num_nodes:,} output rows "
        "per update (median)\n"
        f"update     {update:.3f} ms (median of {updates}, {inc.backend} kernels)\n"
        f"full pass  {full:.3f} ms (median of {len(record.full_ms)}, plain PyG, "
        f"threads: {args.threads})"
    )

    arrivals = [*zip(graph.x[start:], inc.out[start:].argmax(dim=1).tolist(), strict=True)]
    images = [(x.view(8, 8), label) for x, label in arrivals] if graph.name == "digits" else []
    plot_scenes(record, large, f"{args.model} on {graph.name}", images, args.plot)
    print(f"plot       {args.plot} ({time.perf_counter() - began:.0f} s in all)")
    off = torch.tensor([record.max_abs_diff, large.difference]).max().item()  # NaN if one is
    if not off <= TOLERANCE:
        print(f"demo FAILED: off by {off:.1e}, more than {TOLERANCE:.1e}")
        return 1
    print(f"demo ok: updates={updates} max_abs_diff={off:.1e} speedup={large.speedup:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

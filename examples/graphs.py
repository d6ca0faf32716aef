"""Classify graphs: molecules that are edited, bond by bond.

    python examples/graphs.py            # some seconds; saves graphs.png

Thousands of small graphs, drawn like molecules: chains with branches, atoms of four kinds, some
with rings. A GIN learns to tell from a graph what it would be worth, here by its rings of six atoms
and its oxygens. Then bonds come and go. The readout of a graph adds up the rows of its atoms, so
`apply_delta` touches the graphs that were edited, and names those whose value changed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from statistics import median

import torch
import torch.nn.functional as F
from plot import BLUE, GREY, RED, plot_work, plt, tidy
from torch import Tensor, nn
from torch_geometric.nn import MLP, GINConv, global_add_pool

from pyg_incremental import to_incremental

KINDS, RING = 4, 6


class Values(nn.Module):
    """A number for every graph: GIN layers, a sum over the atoms, and an MLP."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        sizes = [KINDS, hidden, hidden]
        self.convs = nn.ModuleList(
            GINConv(MLP([size, hidden, hidden], norm="batch_norm")) for size in sizes
        )
        self.mlp = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Values `[num_graphs]`."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(global_add_pool(x, batch) / 16).squeeze(-1)


@dataclass(frozen=True)
class Molecules:
    """Graphs, one behind the other."""

    x: Tensor  # [atoms, kinds], one-hot
    edge_index: Tensor  # [2, bonds], both directions
    batch: Tensor  # [atoms]
    value: Tensor  # [graphs]
    chains: list[list[int]]  # of each graph the atoms of a chain of six that is open


def draw(graphs: int, seed: int) -> Molecules:
    """Trees of 12 to 20 atoms; in half of them one or two chains are closed to rings."""
    generator = torch.Generator().manual_seed(seed)

    def integers(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    bonds, batch, value, chains = [], [], [], []
    kind = torch.randint(KINDS, (20 * graphs,), generator=generator)
    for graph in range(graphs):
        first, size = len(batch), 12 + integers(9)
        atoms = list(range(first, first + size))
        bonds += [(atoms[i], atoms[i + 1]) for i in range(11)]  # the main chain
        bonds += [(atom, atoms[integers(11)]) for atom in atoms[12:]]
        rings = integers(3)
        for ring in range(min(rings, 2)):
            start = ring * RING
            bonds.append((atoms[start], atoms[start + RING - 1]))
        batch += [graph] * size
        oxygens = int((kind[first : first + size] == 0).sum())
        value.append(2.0 * min(rings, 2) + 0.3 * oxygens)
        chains.append(atoms[:RING] if rings == 0 else [])
    x = F.one_hot(kind[: len(batch)], KINDS).float()
    index = torch.tensor(bonds).t()
    both = torch.cat([index, index.flip(0)], dim=1)
    return Molecules(x, both, torch.tensor(batch), torch.tensor(value), chains)


def train(model: Values, molecules: Molecules, epochs: int) -> float:
    """Fit the values; returns the mean absolute error."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(molecules.x, molecules.edge_index, molecules.batch)
        loss = F.smooth_l1_loss(out, molecules.value)
        loss.backward()
        optimizer.step()
        schedule.step()
    return float((out.detach() - molecules.value).abs().mean())


@dataclass
class Record:
    """What the edits did."""

    edited: list[tuple[float, float, float]] = field(default_factory=list)  # before, after, wanted
    touched: list[int] = field(default_factory=list)  # atoms
    total: list[int] = field(default_factory=list)
    update_ms: list[float] = field(default_factory=list)
    full_ms: list[float] = field(default_factory=list)


def stream(model: Values, molecules: Molecules, edits: int) -> tuple[Record, float]:
    """Close chains to rings one by one; returns what that did, and how far rows are off."""
    inc, record = to_incremental(model), Record()
    out = inc(molecules.x, molecules.edge_index, molecules.batch).clone()
    print(inc.explain())
    able = [graph for graph, chain in enumerate(molecules.chains) if chain]
    for edit, graph in enumerate(able[:edits]):
        chain = molecules.chains[graph]
        bond = torch.tensor([[chain[0]], [chain[-1]]])
        up = inc.apply_delta(edge_index_add=bond, undirected=True)
        assert up.changed.tolist() in ([], [graph])  # no other graph is touched
        wanted = float(molecules.value[graph]) + 2
        record.edited.append((float(out[graph]), float(inc.out[graph]), wanted))
        record.touched.append(max(step.rows for step in up.stats.steps))
        record.total.append(inc.num_nodes)
        record.update_ms.append(1e3 * up.stats.seconds)
        if edit % 20 == 0:
            began = time.perf_counter()
            with torch.no_grad():
                model(molecules.x, molecules.edge_index, molecules.batch)
            record.full_ms.append(1e3 * (time.perf_counter() - began))
    return record, inc.verify()


def plot(record: Record, path: str) -> None:
    """The value of each edited graph before and after, and the work."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    before, after, wanted = zip(*record.edited, strict=True)
    true_before = [value - 2 for value in wanted]
    left.plot([0, 6], [0, 6], color=GREY, linewidth=1)
    left.plot(true_before, before, "o", color=BLUE, markersize=4, alpha=0.5, label="before")
    left.plot(wanted, after, "o", color=RED, markersize=4, alpha=0.5, label="with one more ring")
    left.set_xlabel("value of the graph")
    left.set_ylabel("what the model says")
    left.set_title(f"{len(wanted)} graphs in which a chain was closed to a ring", loc="left")
    left.legend(frameon=False)
    tidy(left)
    plot_work(
        right, record.total, record.touched, record.update_ms, record.full_ms,
        ("all atoms", "touched"),
    )  # fmt: skip
    right.set_ylabel("rows of atoms")
    right.set_xlabel("bonds that have come")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> int:
    """Train, edit and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--edits", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", default="graphs.png", help="where to save the plot")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)  # for times that compare
    torch.manual_seed(args.seed)
    molecules = draw(args.graphs, args.seed)
    model = Values()
    error = train(model, molecules, args.epochs)
    print(f"trained on {args.graphs:,} graphs of {len(molecules.x):,} atoms, off by {error:.2f}")

    record, off = stream(model.eval(), molecules, args.edits)
    print(
        f"{len(record.touched)} bonds came; each touched {median(record.touched):.0f} of "
        f"{record.total[-1]:,} atoms, in {median(record.update_ms):.3f} ms (a full pass takes "
        f"{median(record.full_ms):.1f} ms); off by {off:.1e}"
    )
    plot(record, args.plot)
    print(f"see {args.plot}")
    return 0 if off < 1e-3 else 1


if __name__ == "__main__":
    raise SystemExit(main())

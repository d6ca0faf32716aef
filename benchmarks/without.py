"""What some mechanisms are worth: updates with and without each of them, in turns.

Two copies of a model take the same deltas, one of them without the mechanism; who is first changes
from turn to turn. `x time` is the median over the turns of its time over that of the other one:
above 1 the mechanism is worth something there. `x memory` is what it holds besides the model over
what the other one holds. `lines` are those of the files that would go with the mechanism.

* *short way*: plain deltas of few changes go around the longer way of all others;
* *lent memory*: a result takes the memory of an earlier one that nobody holds any more;
* *late results*: large ones are copied when somebody reads them; here nobody does;
* *stored rows*: what the fast store keeps and the minimal one computes again;
* *locality prover*: a conv of one's own, here without a program, is computed row by row once it is
  shown that a row depends on its in-neighbours only; without that it runs whole.

Threads have a benchmark of their own (`threads`). One thread.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.stream import Stream
from benchmarks.workload import Workload
from pyg_incremental import IncrementalModel, IncrementalWarning, to_incremental
from pyg_incremental.kernels import warm_up

PACKAGE = Path(__file__).parents[1] / "pyg_incremental"
WARM_UP = 12
"""Turns that are not counted: the first updates go step by step."""
NEVER = 1 << 62


class OwnConv(MessagePassing):
    """A conv that no program is known for: a median of all in-neighbours and the node itself."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr="median")
        self.lin = torch.nn.Linear(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Rows `[num_nodes, channels]`."""
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.lin(x) + self.propagate(edge_index, x=x)


@dataclass(frozen=True)
class Mechanism:
    """One of them.

    Attributes:
        files: What would go without it, in the package.
        patched: What is put in place of it while the copy without it runs, by name.
        batches: Changes in a delta.
        options: Of the copy without it.
        own: Whether it is for convs of one's own.
    """

    files: tuple[str, ...]
    patched: dict[str, Any]
    batches: tuple[int, ...]
    options: dict[str, Any]
    own: bool = False


MECHANISMS = {
    "short way": Mechanism(
        ("session/few.py", "fused/few.py"),
        {"session.few.FewChanges.apply": lambda *_: None}, (1, 10), {},
    ),
    "lent memory": Mechanism(("kernels/lent.py",), {"kernels.lent.KEPT": -1}, (1000, 10_000), {}),
    "late results": Mechanism(
        ("rows/late.py", "session/late_update.py"),
        {"session.outputs.MANY": NEVER}, (10_000,), {},
    ),
    "stored rows": Mechanism(("engine/storing.py",), {}, (1, 1000), {"store": "minimal"}),
    "locality prover": Mechanism(
        ("conv/locality.py", "conv/small_graphs.py"),
        {"conv.own.why_not_local": lambda *_: "nobody has looked"}, (1, 100), {}, own=True,
    ),
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: all of them, on the drawn graph of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--only", nargs="+", choices=[*MECHANISMS], default=[*MECHANISMS])
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--model", choices=[*MODELS], default="sage")
    add("--hidden", type=int, default=128)
    add("--most", type=int, default=10_000, help="larger deltas are left out")
    add("--turns", type=int, default=40)
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/without"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    warm_up("float32")
    size = graphs.SIZES["arxiv"].scaled(args.scale)
    work = graphs.draw(size, 2 * args.most, args.seed)
    rows = []
    for name in args.only:
        mechanism = MECHANISMS[name]
        if mechanism.own:
            model: torch.nn.Module = OwnConv(size.channels).eval()
        else:
            model = build(args.model, size.channels, args.hidden, size.classes, 2)
        rows += [{"without": name, **row} for row in _turns(mechanism, model, work, args)]
    report.print_table(rows)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "without.json",
        {"options": options, "machine": machine.describe(), "results": rows},
    )


def _turns(
    mechanism: Mechanism, model: torch.nn.Module, work: Workload, args: argparse.Namespace
) -> Iterator[report.Row]:
    """One row for each size of deltas."""
    lines = sum(len((PACKAGE / file).read_text().splitlines()) for file in mechanism.files)
    with_it = to_incremental(model)
    with_it(work.x, work.edge_index)
    with _without(mechanism):
        bare = to_incremental(model, **mechanism.options)
        bare(work.x, work.edge_index)
    memory = bare.memory_report().total / with_it.memory_report().total
    stream = Stream(work)
    for batch in (batch for batch in mechanism.batches if batch <= args.most):
        took: list[tuple[float, float]] = []
        for turn in range(args.turns + WARM_UP):
            delta = stream.take(batch)
            parts = delta.edge_index_add, delta.edge_index_del, delta.x_changes

            def one(inc: IncrementalModel, parts: Any = parts) -> float:
                began = time.perf_counter()
                inc.apply_delta(*parts)
                return time.perf_counter() - began

            took.append(_both(with_it, bare, one, mechanism, bare_first=turn % 2 == 1))
        counted = took[WARM_UP:]
        off = max(inc.verify() for inc in (with_it, bare)) / float(bare.out.abs().max())
        yield {
            "lines": lines, "batch": batch, "ms": 1e3 * median(a for a, _ in counted),
            "x time": median(b / a for a, b in counted), "x memory": memory,
            "relative_diff": off,
        }  # fmt: skip


def _both(
    with_it: IncrementalModel, bare: IncrementalModel, one: Callable[[IncrementalModel], float],
    mechanism: Mechanism, bare_first: bool,
) -> tuple[float, float]:  # fmt: skip
    """Seconds of both copies for one delta."""
    before = 0.0 if bare_first else one(with_it)
    with _without(mechanism):
        seconds = one(bare)
    return before or one(with_it), seconds


@contextlib.contextmanager
def _without(mechanism: Mechanism) -> Iterator[None]:
    """While the mechanism is not there."""
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)  # what runs on all rows says so
        for name, value in mechanism.patched.items():
            stack.enter_context(mock.patch(f"pyg_incremental.{name}", value))
        yield

"""What some mechanisms are worth: updates with and without each of them, in turns.

Two copies of a model take the same deltas, one of them without the mechanism; who is first changes
from turn to turn, and which copy that is as well, where it can: one lies better in memory than the
other. `x time` is the median over the turns of the time without it over the time with it: above 1
the mechanism is worth something there. `x memory` is what the copy without it holds, over what the
one with it holds. `lines` are those of the files and functions that would go with the mechanism.

* *compiled loop*: all steps of an update are one call of compiled code; without it each step is a
  call of Python, as where a model runs something of its own between two of them;
* *short way*: plain deltas of few changes go around the longer way of all others;
* *lent memory*: a result takes the memory of an earlier one that nobody holds any more; wide rows,
  every result is read, and held until the next one is there;
* *late results*: large ones are copied when somebody reads them; here nobody does, or everybody;
* *minimal store*: rows that maps compute are not stored; without it the fast store, the default;
* *locality prover*: a conv of one's own, here without a program, is computed row by row once it is
  shown that a row depends on its in-neighbours only; without that it runs whole;
* *sort support*: a sort of messages, which pads all rows alike, is computed row by row as well;
* *journal*: what stands where an update is about to write is copied first, so that it can be taken
  back; without that there is no way back from a failed update;
* *inverse*: a delta is undone by another one; without that by a pass over the graph of before.

Threads have a benchmark of their own (`threads`). One thread.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing, SAGEConv, SortAggregation
from torch_geometric.utils import add_self_loops

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.stream import Stream, all_nodes
from benchmarks.workload import Workload
from pyg_incremental import GraphDelta, IncrementalModel, IncrementalWarning, to_incremental
from pyg_incremental.kernels import warm_up
from pyg_incremental.rows import Cell

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


def sorting(channels: int) -> torch.nn.Module:
    """A conv over the two messages with the largest last channel."""
    return SAGEConv((2 * channels, channels), channels, SortAggregation(2)).eval()


@dataclass(frozen=True)
class Mechanism:
    """One of them.

    Attributes:
        parts: What would go without it, in the package: files, functions and classes (`file:name`).
        batches: Changes in a delta; 0 stands for new features of all nodes.
        patched: What is put in place of it while the copy without it runs, by name.
        options: Of the copy with it.
        model: Makes the model of the number of channels; the one that was asked for by default.
        scale: The part of the size of ogbn-arxiv.
        by_target: Whether edges are given sorted by target.
        reads: Whether results are read, in turn.
        swaps: Whether either copy can do without it, from turn to turn.
        turn: Takes a model, the workload, a delta and whether the mechanism is there, and returns
            the seconds of what counts; an update by default.
    """

    parts: tuple[str, ...]
    batches: tuple[int, ...]
    patched: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Callable[[int], torch.nn.Module] | None = None
    scale: float = 1.0
    by_target: bool = False
    reads: tuple[bool, ...] = (False,)
    swaps: bool = False
    turn: Callable[[IncrementalModel, Workload, GraphDelta, bool], float] | None = None


def back_again(inc: IncrementalModel, work: Workload, delta: GraphDelta, with_it: bool) -> float:
    """Seconds for the way back from a delta, which is in afterwards."""
    edges, x = inc.graph.to_edge_index(), inc.x.clone()
    began = time.perf_counter()
    back = delta.inverse(inc)
    read = time.perf_counter() - began
    inc.apply_delta(delta)
    began = time.perf_counter()
    if with_it:
        inc.apply_delta(back)
    else:
        inc(x, edges)
        read = 0.0
    took = time.perf_counter() - began
    inc.apply_delta(delta)
    return took + read


LISTED = Cell.listed


def but_not_of_inputs(cell: Cell, ids: Any) -> Any:
    """`Cell.listed`, which is asked for rows of results as well as for those to be overwritten."""
    return None if cell.value.name == "x" else LISTED(cell, ids)


OF_THE_LOOP = (
    "_compile", "_update_few", "update_at_once", "_update_in_two", "go_on_few", "_end_of", "_go_on",
)  # fmt: skip


def files(pattern: str) -> tuple[str, ...]:
    """The files of the package that a pattern names."""
    return tuple(sorted(p.relative_to(PACKAGE).as_posix() for p in PACKAGE.glob(pattern)))


UNDONE = ("session/inverse.py", "distributed/part/undo.py")
MECHANISMS = {
    "compiled loop": Mechanism(
        (*files("fused/**/*.py"), *files("kernels/compiled/machine*.py"),
         *(f"engine/loop.py:{name}" for name in OF_THE_LOOP)),
        (1, 100, 10_000), {"engine.loop.Engine._compile": lambda *_: None},
    ),
    "short way": Mechanism(
        ("session/at_once.py", "fused/run.py:takes_few", "fused/run.py:run_few"), (1, 10),
        {"session.at_once.FewChanges.apply": lambda *_: None}, swaps=True,
    ),
    "lent memory": Mechanism(
        ("kernels/lent.py",), (10_000, 0),
        {"kernels.lent.Lent._memory": lambda _, size: np.empty(size + size // 8, np.uint8)},
        model=lambda channels: build("sage", channels, 128, 256, 2), reads=(True,),
        swaps=True,
    ),
    "late results": Mechanism(
        ("rows/lazy_rows.py", "session/lazy_update.py"), (10_000, 0),
        {"session.outputs.MANY": NEVER}, reads=(False, True), swaps=True,
    ),
    "minimal store": Mechanism(
        ("ops/recomputed_sum.py", "ops/recompute.py", "engine/storing.py:_minimal",
         "engine/storing.py:_over_recomputed"),
        (1, 100), options={"store": "minimal"}, scale=0.1,
    ),
    "locality prover": Mechanism(
        ("trace/locality.py", "trace/small_graphs.py"), (1, 100),
        {"trace.own_forward.why_not_local": lambda *_: "nobody has looked"},
        model=lambda channels: OwnConv(channels).eval(), scale=0.01,
    ),
    "sort support": Mechanism(
        ("conv/sorting.py", "ops/padded.py", "trace/own_forward.py:on_padded_rows"), (1, 100),
        {"conv.reduction.is_sort": lambda _: False, "trace.own_forward.sorts": lambda _: False,
         "trace.own_forward.with_stand_ins": lambda module, _: module},
        model=sorting, scale=0.005, by_target=True,
    ),
    "journal": Mechanism(
        ("delta/journal.py:Journal", "delta/journal.py:PlainJournal", "session/interrupted.py"),
        (1, 1000, 10_000), {"rows.cell.Cell.listed": but_not_of_inputs}, swaps=True,
    ),
    "inverse": Mechanism(
        (*UNDONE, "delta/resolve/edges.py:_undoable", "delta/resolve/edges.py:undone"),
        (1, 100), scale=0.1, turn=back_again,
    ),
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: all of them, on drawn graphs of ogbn-arxiv's size or of a part of it."""
    add = parser.add_argument
    add("--only", nargs="+", choices=[*MECHANISMS], default=[*MECHANISMS])
    add("--scale", type=float, help="part of the size of ogbn-arxiv; of each its own by default")
    add("--model", choices=[*MODELS], default="sage")
    add("--hidden", type=int, default=128)
    add("--most", type=int, default=10_000, help="larger deltas are left out")
    add("--turns", type=int, default=24)
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/without"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    warm_up("float32")
    rows: list[report.Row] = []
    for name in args.only:
        mechanism = MECHANISMS[name]
        size = graphs.SIZES["arxiv"].scaled(args.scale or mechanism.scale)
        work = graphs.draw(size, 2 * args.most, args.seed)
        if mechanism.by_target:
            order = work.edge_index[1].argsort(stable=True)
            work = replace(work, edge_index=work.edge_index[:, order])
        if mechanism.model is None:
            model = build(args.model, size.channels, args.hidden, size.classes, 2)
        else:
            model = mechanism.model(size.channels)
        for row in _turns(mechanism, model, work, args):
            rows.append({"without": name, "nodes": size.nodes, **row})
            report.print_table(rows[-1:])
    print("\nall of them")
    report.print_table(rows)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "without.json",
        {"options": options, "machine": machine.describe(), "results": rows},
    )


def _turns(
    mechanism: Mechanism, model: torch.nn.Module, work: Workload, args: argparse.Namespace
) -> Iterator[report.Row]:
    """One row for each size of deltas, and for results that are read or not."""
    lines = sum(map(_lines_of, mechanism.parts))
    with_it = to_incremental(model, **mechanism.options)
    with_it(work.x, work.edge_index)
    with _without(mechanism):
        bare = to_incremental(model)
        bare(work.x, work.edge_index)
    memory = bare.memory_report().total / with_it.memory_report().total
    stream, results = Stream(work), dict[int, Any]()
    batches = (batch for batch in mechanism.batches if batch <= args.most)
    for batch, reads in ((batch, reads) for batch in batches for reads in mechanism.reads):

        def update(
            inc: IncrementalModel, work: Workload, delta: GraphDelta, with_it: bool,
            reads: bool = reads,
        ) -> float:  # fmt: skip
            """An update, of which the result is held until the next one is there."""
            parts = delta.edge_index_add, delta.edge_index_del, delta.x_changes
            began = time.perf_counter()
            up = inc.apply_delta(*parts)
            out = up.out if reads else None
            took = time.perf_counter() - began
            results[id(inc)] = up, out
            return took

        one, took = mechanism.turn or update, dict[int, list[tuple[float, float]]]()
        for turn in range(args.turns + WARM_UP):
            delta = stream.take(batch) if batch else all_nodes(work.x, turn)
            pair = dict[bool, float]()
            swapped = turn // 2 % 2 if mechanism.swaps else 0
            for is_bare in (True, False) if turn % 2 else (False, True):
                with _without(mechanism) if is_bare else contextlib.nullcontext():
                    inc = bare if is_bare != bool(swapped) else with_it
                    pair[is_bare] = one(inc, work, delta, not is_bare)
            if turn >= WARM_UP:
                took.setdefault(swapped, []).append((pair[False], pair[True]))
        off = max(inc.verify() for inc in (with_it, bare)) / float(bare.out.abs().max())
        yield {
            "lines": lines, "batch": batch or "all", "read": reads,
            "ms": 1e3 * median(a for turns in took.values() for a, _ in turns),
            "x time": geometric_mean(median(b / a for a, b in turns) for turns in took.values()),
            "x memory": memory, "relative_diff": off,
        }  # fmt: skip


def _lines_of(part: str) -> int:
    """Lines of a file, or of a function or class in it."""
    file, _, name = part.partition(":")
    code = (PACKAGE / file).read_text()
    if not name:
        return len(code.splitlines())
    (found,) = (n for n in ast.walk(ast.parse(code)) if getattr(n, "name", "") == name)
    assert isinstance(found, ast.FunctionDef | ast.ClassDef)
    return int(found.end_lineno or 0) - found.lineno + 1


@contextlib.contextmanager
def _without(mechanism: Mechanism) -> Iterator[None]:
    """While the mechanism is not there."""
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)  # what runs on all rows says so
        for name, value in mechanism.patched.items():
            stack.enter_context(mock.patch(f"pyg_incremental.{name}", value))
        yield

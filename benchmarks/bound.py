"""An update against what the memory of this machine allows.

Counted are the cache lines that an update has to touch, whatever program computes it:

* the rows of every value that is kept: those that are written, and those that a map reads;
* of the neighbour lists, those along which something changed, and a line that says where each is;
* of an edge that comes or goes, `LINES_OF_AN_EDGE`: its pair in the table, where both lists stand
  and their entries, and its ends.

A line counts once for an update, however many steps meet it. Then a bare compiled loop touches as
many random lines, in rows as wide as those of the update and in as much memory, in turns with the
updates; it has nothing else to do. `x lines` is the median, over the turns, of the time of an
update over that of its loop. Products count no lines: `x lines and products` adds what BLAS takes
for the rows of every map that has one, at once and in the cache.

An attention whose rows have new logits of their own is read again here over the in-edges of these
rows. Another program need not do that, so `lines` has none of it; `x lines and messages` has also
a loop over the messages that are read, each of them once.

One thread. The graph is the drawn one of ogbn-arxiv's size, the updates are those of `peers`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numba import njit

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.stream import Stream
from pyg_incremental import GraphDelta, IncrementalModel, to_incremental
from pyg_incremental.kernels import warm_up
from pyg_incremental.ops import Aggregator
from pyg_incremental.ops.softmax import SoftmaxState
from pyg_incremental.rows import Cell
from pyg_incremental.telemetry.work import UpdateStats

LINE = 64
LINES_OF_AN_EDGE = 8
"""A place of the table of pairs; of each list where it stands and both halves of an entry; and its
ends, which edges that come one after the other share."""
FIRST = 12
"""Turns that are not counted."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: five models, a minute for each."""
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--model", nargs="+", choices=[*MODELS], default=["gcn", "sage", "gin", "gat", "graphconv"])
    add("--batch", type=int, nargs="+", default=[1, 10, 100, 1000])
    add("--hidden", type=int, default=128)
    add("--turns", type=int, default=40)
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/bound"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    warm_up("float32")
    size = graphs.SIZES["arxiv"].scaled(args.scale)
    work = graphs.draw(size, max(60_000, 60 * max(args.batch)), args.seed)
    rows: list[report.Row] = []
    for name in args.model:
        inc = to_incremental(build(name, size.channels, args.hidden, size.classes, 2))
        inc(work.x, work.edge_index)
        stream = Stream(work)
        for batch in args.batch:
            taken = [stream.take(batch) for _ in range(FIRST + args.turns)]
            rows.append({"model": name, "batch": batch, **_turns(inc, taken, args.seed)})
    report.print_table(rows)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "bound.json",
        {"options": options, "machine": machine.describe(), "results": rows},
    )


def _turns(inc: IncrementalModel, deltas: list[GraphDelta], seed: int) -> report.Row:
    """Updates and bare loops in turns."""
    memory, found = _Memory(inc, seed), []
    for delta in deltas:
        parts = delta.edge_index_add, delta.edge_index_del, delta.x_changes
        began = time.perf_counter()
        update = inc.apply_delta(*parts)
        took = time.perf_counter() - began
        found.append((took, *memory.touch(update.stats)))
    took, lines, loop, products, messages = np.array(found[FIRST:]).T
    return {
        "p50_us": 1e6 * float(np.median(took)), "lines": round(float(lines.mean())),
        "ns a line": 1e9 * float(np.median(loop / lines)),
        "x lines": float(np.median(took / loop)),
        "x lines and products": float(np.median(took / (loop + products))),
        "x lines and messages": float(np.median(took / (loop + messages))),
        "products_us": 1e6 * float(np.median(products)),
        "relative_diff": inc.verify() / float(inc.out.abs().max()),
    }  # fmt: skip


class _Memory:
    """Memory like that of a model, and what an update of it has to touch there."""

    def __init__(self, inc: IncrementalModel, seed: int) -> None:
        engine = inc._require().engine
        self._engine, self._executors = engine, engine.node_executors
        self._draw = np.random.default_rng(seed)
        self._rows = {
            cell: np.ones((inc.num_nodes, _width(cell)), np.float32)
            for cell in engine.cells.values()
            if cell.stored and cell.nodes is not None
        }
        lists = -(-inc.num_edges * 16 // LINE)  # neighbours and slots of both directions
        self._lists = np.ones((lists, LINE // 4), np.float32)
        _touch(self._lists, np.zeros(1, np.int64))

    def touch(self, stats: UpdateStats) -> tuple[int, float, float, float]:
        """The lines of an update, and the seconds of bare loops and products.

        Those are of a loop over the lines, of the products, and of a loop over messages read again.
        """
        rows, edges, products = self._met(stats)
        lines, parts = 0, [(self._lists, edges)]
        for cell, count in rows.items():
            parts.append((self._rows[cell], count))
        again = [(self._rows[cell], count) for cell, count in self._read_again(stats)]
        plan, more = self._drawn(parts), self._drawn(again)
        began = time.perf_counter()
        for to, ids in plan:
            lines += _touch(to, ids)
        loop = time.perf_counter() - began
        for to, ids in more:
            _touch(to, ids)
        return lines, loop, products, time.perf_counter() - began - loop

    def _drawn(self, parts: list[tuple[Any, int]]) -> list[tuple[Any, Any]]:
        """As many rows of each memory as are said, drawn."""
        return [(to, self._draw.integers(len(to), size=count)) for to, count in parts]

    def _met(self, stats: UpdateStats) -> tuple[dict[Cell, int], int, float]:
        """Rows of every value, lines of lists and edges, and the seconds of bare products."""
        steps = {s.name: s for s in stats.steps}
        rows = dict.fromkeys(self._rows, 0)
        sent, pushed, products = 0, 0, 0.0
        for e in self._executors:
            step = steps.get(e.out.value.name)
            if step is None:
                continue
            read = list(getattr(e, "rowed", ()))
            for cell in (e.out, *read):
                if cell in rows:
                    rows[cell] = max(rows[cell], step.rows)
            if isinstance(e, Aggregator):
                senders = (steps.get(v.name) for v in e.step.inputs)
                sent = max([sent, *(s.changed for s in senders if s is not None)])
                pushed = max(pushed, step.edges)
            elif read and getattr(e.step, "costly", False):
                products += _product(step.rows, max(map(_width, read)), _width(e.out))
        changed = stats.edges_added + stats.edges_deleted
        return rows, sent + -(-pushed * 8 // LINE) + LINES_OF_AN_EDGE * changed, products

    def _read_again(self, stats: UpdateStats) -> Iterator[tuple[Cell, int]]:
        """Messages of attentions, and how many lead to rows with new logits of their own."""
        fast = self._engine.fast
        for e in self._executors:
            if not isinstance(e, SoftmaxState) or e.source not in self._rows:
                continue
            ids = None if fast is None else fast.tables.changed(e.target)[0]
            if ids is None and e.target.ids is not None:
                ids = e.target.ids.array
            if ids is None or len(ids) != stats[e.target.value.name].changed:
                continue
            inn = e.context.lists[1]
            ends = zip(inn.start[ids], inn.degree[ids], strict=True)
            at = np.concatenate([np.arange(first, first + count) for first, count in ends])
            yield e.source, len(np.unique(inn.neighbor[at]))


def _width(cell: Cell) -> int:
    return int(cell.tensor.shape[1:].numel()) if cell.rows is not None else 1


@njit(cache=True)
def _touch(rows: Any, ids: Any) -> int:
    """Read and write each line of some rows; returns how many there are."""
    lines = 0
    for i in range(ids.size):
        for f in range(0, rows.shape[1], 16):
            rows[ids[i], f] += 1
            lines += 1
    return lines


def _product(rows: int, inner: int, width: int) -> float:
    """Seconds of one product, the second time."""
    a, b = torch.ones(rows, inner), torch.ones(inner, width)
    out, took = torch.empty(rows, width), []
    for _ in range(2):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        took.append(time.perf_counter() - began)
    return median(took[1:])

"""Programs side by side: each of them takes the same deltas in turn, each at its own state.

A turn is a stretch of several deltas, in which a program finds in the caches what its own last
update has left there, as where it runs alone. (Turns of one delta favour programs that share code,
as the peers do that are written here: each finds that of the one before.)

Within one cell of the table (workload, model, batch size) a program takes part until it has used
its seconds; what it missed it makes up for, as one delta and off the clock, before the next cell.
The first updates of each program in each cell are not counted (of a slow one the very first). At
the end of each model the outputs of all programs are held against a full pass of the PyG model.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn

from benchmarks.models import build
from benchmarks.peers import OURS, PEERS, Peer, Skipped
from benchmarks.peers.changes import merged
from benchmarks.peers.edge_list import EdgeList
from benchmarks.peers.full_pass import FullPass, check_room
from benchmarks.report import Row
from benchmarks.stream import Stream, all_nodes
from benchmarks.workload import Workload
from pyg_incremental import GraphDelta

WARM_UP = 3  # updates that are not counted, of a program that is not slow
ENOUGH = 20  # so many are counted of it even if one of them was slow

Batch = int | str  # a number of updates, or ALL
ALL = "all"  # new features for every node


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: Per program and cell; the least number of updates may take longer.
        least: Counted updates per program and cell, at least.
        most: Counted updates per program and cell, at most.
        stretch: Deltas in a turn.
    """

    seconds: float
    least: int
    most: int
    stretch: int


@dataclass
class Contender:
    """One program, and what its updates took in the present cell."""

    name: str
    peer: Peer
    start_s: float
    took: list[float] = field(default_factory=list)
    work: list[tuple[int, int]] = field(default_factory=list)  # edges and rows, where counted
    missed: list[GraphDelta] = field(default_factory=list)
    is_done: bool = False
    is_warm: bool = False

    def take(self, delta: GraphDelta) -> None:
        """One update on the clock."""
        began = time.perf_counter()
        self.peer.apply(delta)
        self.took.append(time.perf_counter() - began)
        stats = getattr(self.peer, "stats", None)
        if stats is not None:
            self.work.append((stats.edges, stats.rows))

    def counted(self, effort: Effort) -> list[float]:
        """What the updates took, without the first ones."""
        return self.took[self.warm_up(effort) :]

    def warm_up(self, effort: Effort) -> int:
        """How many first updates are not counted."""
        return (0 if self.is_warm else 1) if self.is_slow(effort) else WARM_UP

    def is_slow(self, effort: Effort) -> bool:
        """Whether it cannot have many updates in its time; one slow update does not make it so."""
        return bool(self.took) and WARM_UP * float(np.median(self.took)) > effort.seconds / 2

    def has_done(self, effort: Effort) -> bool:
        """Whether it has had its updates or its time."""
        counted = self.counted(effort)
        spent = sum(counted)
        late = len(counted) >= effort.least and spent > effort.seconds
        if late and (len(counted) >= ENOUGH or self.is_slow(effort) or spent > 4 * effort.seconds):
            return True
        return len(counted) >= effort.most

    def catch_up(self, is_last: bool) -> None:
        """Be where the others are, and ready for the next cell if there is one."""
        if self.missed:
            # a program whose next output does not build on this one need not compute it
            absorb = self.peer.apply if is_last else getattr(self.peer, "absorb", self.peer.apply)
            absorb(merged(self.missed))
        self.took, self.work, self.missed, self.is_done = [], [], [], False
        self.is_warm = True


def start(
    model: nn.Module, work: Workload, peers: list[str], skipped: dict[str, str]
) -> list[Contender]:
    """The programs that can serve this model, after their first pass; why the others cannot."""
    ready = []
    for name in peers:
        try:
            peer = PEERS[name](model)
            began = time.perf_counter()
            peer.bootstrap(work.x, work.edge_index)
            ready.append(Contender(name, peer, time.perf_counter() - began))
        except Skipped as reason:
            skipped[name] = str(reason)
    return ready


def compare(
    work: Workload,
    model: nn.Module,
    contenders: list[Contender],
    batches: list[Batch],
    effort: Effort,
) -> Iterator[list[Row]]:
    """The rows of one batch size after the other; `off_by` stands in the last ones."""
    stream, truth = Stream(work), EdgeList(work.x, work.edge_index)
    batches = [b for b in batches if b == ALL or int(b) <= len(stream.kind)]
    for batch in batches:
        applied = _one_cell(stream, work.x, contenders, batch, effort)
        yield [_row(c, contenders, batch, effort) for c in contenders]
        truth.apply(merged(applied))
        for contender in contenders:
            contender.catch_up(is_last=batch is batches[-1])
    yield [
        {"program": c.name, "off_by": off_by}
        for c, off_by in zip(contenders, _differences(model, truth, contenders), strict=True)
    ]


def _one_cell(
    stream: Stream, x: Tensor, contenders: list[Contender], batch: Batch, effort: Effort
) -> list[GraphDelta]:
    """Give deltas of one size to all programs until each is done; returns the deltas."""
    applied: list[GraphDelta] = []
    turn = 0
    while not all(c.is_done for c in contenders):
        if batch == ALL:
            deltas = [all_nodes(x, turn)]
        else:
            deltas = [stream.take(int(batch)) for _ in range(effort.stretch)]
        applied += deltas
        first = turn % len(contenders)  # so that nobody always follows the same one
        for contender in contenders[first:] + contenders[:first]:
            for delta in deltas:
                if contender.is_done:
                    contender.missed.append(delta)
                    continue
                contender.take(delta)
                contender.is_done = contender.has_done(effort)
        turn += 1
    return applied


def _row(contender: Contender, all_: list[Contender], batch: Batch, effort: Effort) -> Row:
    took = np.array(contender.counted(effort))
    ours = next((c for c in all_ if c.name == OURS), None)
    size = None if batch == ALL else int(batch)
    row: Row = {
        "batch": batch,
        "program": contender.name,
        "updates": len(took),
        "p50_ms": 1e3 * float(np.median(took)),
        # a percentile of a handful of updates would say nothing
        "p99_ms": 1e3 * float(np.percentile(took, 99)) if len(took) >= 20 else None,
        "changes_per_s": None if size is None else size / float(took.mean()),
        "start_s": contender.start_s,
    }
    if ours is not None:
        its, our = _on_the_same(contender, ours, effort)
        edges, rows = np.mean(ours.work[ours.warm_up(effort) :], 0)
        row |= {
            "p50_ratio": float(np.median(its) / np.median(our)),
            "mean_ratio": float(its.mean() / our.mean()),
            "loses": bool(np.median(its) < np.median(our)),
            "edges": float(edges),
            "rows": float(rows),
            "ns_per_edge": 1e9 * float(took.mean() / edges) if edges else None,
        }
    return row


def _on_the_same(
    contender: Contender, ours: Contender, effort: Effort
) -> tuple[np.ndarray, np.ndarray]:
    """What the deltas took of which both have an update that counts for `contender`.

    A stream has dear stretches and cheap ones, and the slower program sees less of it in its time.
    """
    counted = slice(contender.warm_up(effort), min(len(contender.took), len(ours.took)))
    return np.array(contender.took[counted]), np.array(ours.took[counted])


def _differences(
    model: nn.Module, truth: EdgeList, contenders: list[Contender]
) -> list[float | None]:
    """Largest difference of each output to a full pass, relative to the largest value of it."""
    try:
        check_room(model, truth.x, truth.edge_index)
        right = FullPass(model, lambda edges: edges.edge_index)
        right.bootstrap(truth.x, truth.edge_index)
    except Skipped:
        return [None] * len(contenders)
    size = float(right.output().abs().max())
    return [float((c.peer.output() - right.output()).abs().max()) / size for c in contenders]


def model_for(name: str, layers: int, hidden: int, work: Workload) -> nn.Module:
    """A model of the compared kind that fits a workload."""
    return build(name, work.x.shape[1], hidden, work.classes, layers)

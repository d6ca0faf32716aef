"""The way back from updates that a compiled plan carries out alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from pyg_incremental.delta.resolve.plain import PlainDelta
from pyg_incremental.fused.kernels.noting import note, put_back
from pyg_incremental.fused.kernels.trying import (
    ADDED,
    DATA,
    GIVEN,
    GONE,
    IDS,
    NEW_ROWS,
    try_all,
)
from pyg_incremental.fused.parts import NEVER
from pyg_incremental.fused.run import FastPath
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.by_address import address_for
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.compiled.kinds import SPARE
from pyg_incremental.kernels.compiled.machine import GRAPH, update
from pyg_incremental.program.steps import Domain, hops_to
from pyg_incremental.rows import Cell, Rows

_MARKS = 3
"""Marks that noting takes."""
MOST, FEW = 4, 1024
"""One in so many nodes, and more than a few, are so much of a graph that the update is most likely
not for compiled code."""
ROOM = 16
"""Rows that a delta may change, for which there is room at first."""
AT_ONCE = 1024
"""Deltas that are tried in one call."""


class Tried(NamedTuple):
    """What many deltas would change, one by one.

    Attributes:
        told: Where the rows of each stand in the others, and how many, int64 `[num_deltas, 2]`; -1
            for one that was not tried.
        ids: The rows that would change, int64 `[rows]`, ascending for each delta.
        new: What they would be, `[rows, width]`.
        old: What they are, likewise.
        work: What each step would do, int64 `[num_deltas, steps, columns]`.
    """

    told: Ids
    ids: Ids
    new: Any
    old: Any
    work: Ids


class Undo:
    """Notes what updates of one plan may write to, and puts it back.

    Args:
        fast: The plan; it runs every step.
        both: Whether an update reaches along both directions of edges.

    Attributes:
        fast: The same.
    """

    def __init__(self, fast: FastPath, both: bool) -> None:
        self.fast, self._both = fast, both
        self._hops_to = hops = hops_to(e.step for e in fast.executors)
        self._hops = max(hops.values())
        self._marks, self._mark = np.zeros((2, 0), np.int64), 1
        self._log, self._kept = np.zeros((1024, 2), np.int64), np.zeros(1 << 16, np.uint8)
        self._located: tuple[int, ...] = ()
        self._of_nodes = self._of_edges = self._of_data = _table([])
        self._counts: tuple[Any, ...] = ()

    def note(self, delta: PlainDelta) -> bool:
        """Copy what a delta may write to, for which there is room in rows of nodes.

        Returns:
            Whether that was done; else it is much, or the delta is not valid.
        """
        graph, ready = self.fast.graph, self._ready(delta.added, delta.gone.shape[1])
        if ready is None:
            return False
        self._counts = graph.counts
        while True:
            reached = note(
                graph.places(), self._of_nodes, self._of_edges, delta.added, delta.gone, delta.ids,
                self._limit, *ready[:3], *self._how(1), self._log, self._kept,
            )  # fmt: skip
            if reached < 0 or not self._has_grown():
                return bool(reached >= 0)

    def put_back(self) -> None:
        """Write all of that to where it stood; may be done again if it was interrupted."""
        put_back(self._log, self._kept)
        self.fast.graph.counts = self._counts

    def try_all(self, deltas: Sequence[PlainDelta], out: Cell, known: int) -> Tried | None:
        """Try deltas that have as many new nodes each, for which there is room.

        Args:
            deltas: The deltas; they need not be valid.
            out: The only output, rows of nodes.
            known: How many nodes there are without new ones.

        Returns:
            What they would change; None if none of them is for this.
        """
        fast, tables = self.fast, self.fast.tables
        at, most = tables.at.get(out), max(deltas, key=lambda d: d.added.shape[1])
        ready = self._ready(most.added, max(d.gone.shape[1] for d in deltas))
        if at is None or ready is None or fast.computes_edge_values:
            return None
        listed, given, held = self._listed(deltas)
        wide, width = 0 if given < 0 else tables.width_of(given), int(tables.cells[at, m.WIDTH])
        told = np.zeros((len(deltas), 2), np.int64)
        work = np.zeros((len(deltas), *tables.stats.shape), np.int64)
        rooms: list[Any] = [np.zeros(ROOM * len(deltas), np.int64)]
        rooms += [np.zeros((len(rooms[0]), width), tables.space.dtype) for _ in range(2)]
        done = used = 0
        while done < len(deltas):
            last = min(done + AT_ONCE, len(deltas))
            epoch, scratch = tables.nodes.scratch.epoch, tables.nodes.scratch
            scratch.epoch += SPARE * (len(fast.executors) + 1) * (last - done)
            done, used = try_all(
                address_for(update, *self._like()), tables.plan, fast.graph.places(), at, wide,
                self._of_nodes, self._of_edges, self._of_data, listed[:last], done, used, *ready,
                fast.slots, epoch, self._limit, known, *self._how(last - done), self._log,
                self._kept, *rooms, told, work, *fast.kind, NEVER,
            )  # fmt: skip
            if done < last and not self._has_grown():
                rooms = [np.concatenate([rows, np.zeros_like(rows)]) for rows in rooms]
        del held
        ids, new, old = rooms
        return Tried(told, ids, new, old, work)

    def _listed(self, deltas: Sequence[PlainDelta]) -> tuple[Ids, int, list[Any]]:
        """A table of deltas, the step whose rows are given, and what its addresses lead to.

        What deltas hold is laid out behind one another: one array takes less time than many.
        """
        fast, names, held = self.fast, [*self.fast.graph.edge_data], list[Any]()
        table = np.zeros((len(deltas), DATA + len(names)), np.int64)

        def lay_out(column: int, arrays: list[Any]) -> None:
            together, sizes = np.concatenate(arrays, axis=None), [a.nbytes for a in arrays]
            table[:, column] = address_of(together) + np.cumsum(sizes) - sizes
            held.append(together)

        edges = (ADDED, [d.added for d in deltas]), (GONE, [d.gone for d in deltas])
        for column, arrays in (*edges, (IDS, [d.ids for d in deltas])):
            lay_out(column, arrays)
            table[:, column + 1] = [a.shape[-1] for a in arrays]
        steps = [-1 if d.rows is None else fast.inputs[d.name] for d in deltas]
        table[:, GIVEN], given = steps, max(steps)
        if given >= 0:
            none = np.zeros(0, fast.kind[0].dtype)
            lay_out(NEW_ROWS, [none if d.rows is None else fast.flat(d.rows) for d in deltas])
        for column, name in enumerate(names, DATA):
            none = fast.graph.edge_data[name][:0].numpy()
            lay_out(column, [d.data[name].numpy() if d.data else none for d in deltas])
        return table, given, held

    def _like(self) -> tuple[Any, ...]:
        """Arguments of `machine.update`, of the types that they have."""
        ids, edges, rows = np.zeros(0, np.int64), np.zeros((2, 0), np.int64), self.fast.kind[0]
        none = np.zeros((0, 1), rows.dtype)
        return (
            ids, ids, edges, edges, ids, 0, 0, 0, edges, 0, 0, -1, ids, none, *self.fast.kind, 0,
            GRAPH,
        )  # fmt: skip

    # What may be written to ----------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        """All ids of nodes are smaller."""
        return max(nodes.num_nodes for nodes in self.fast.kinds)

    def _ready(self, added: Ids, leaves: int) -> tuple[Any, int, int, int] | None:
        """What the graph has to say before it takes edges, with room for them; see `ready_for`."""
        fast, graph = self.fast, self.fast.graph
        ready = graph.ready_for(added.shape[1], leaves)
        if ready is None:
            graph.make_room(self._limit, added[0], added[1], leaves)
            ready = graph.ready_for(added.shape[1], leaves)
            fast.locate()
        self._locate()
        if self._marks.shape[1] < self._limit:
            self._marks = np.zeros((2, self._limit + self._limit // 2), np.int64)
        return ready

    def _how(self, times: int) -> tuple[int, bool, int, Ids, int]:
        """How `note` goes about it, so many times."""
        mark, total = self._mark, sum(nodes.num_nodes for nodes in self.fast.kinds)
        self._mark += _MARKS * times
        return self._hops, self._both, max(total // MOST, FEW), self._marks, mark

    def _has_grown(self) -> bool:
        """Whether there was too little room for what is copied; there is more now."""
        pieces, size = self._log[0].tolist()
        if pieces < len(self._log) and size <= len(self._kept):
            return False
        self._log = np.zeros((2 * max(pieces + 1, len(self._log)), 2), np.int64)
        self._kept = np.zeros(2 * max(size, len(self._kept)), np.uint8)
        return True

    def _locate(self) -> None:
        """Write down where all rows are, if they have moved."""
        fast, graph = self.fast, self.fast.graph
        places = fast.moves, graph.slot_capacity
        if self._located == places:
            return
        nodes: list[tuple[Rows, int]] = []
        for e in (e for e in fast.executors if e.out.domain is Domain.NODE):
            nodes += [(rows, self._hops_to[e.out.value]) for rows in e.all_rows()]
        cells = [e.out for e in fast.executors if e.out.domain is Domain.EDGE and e.out.stored]
        data = [(rows, 0) for rows in graph.edge_data.values()]
        self._of_nodes = _table((r.tensor, hops) for r, hops in nodes if r.rows is not None)
        self._of_edges = _table([*((cell.tensor, 0) for cell in cells), *data])
        self._of_data = _table(data)
        self._located = places


def _table(rows: Iterable[tuple[Tensor, int]]) -> Ids:
    """The addresses of some rows, as `kernels.noting` takes them; each memory once."""
    found: dict[int, tuple[int, int, int]] = {}
    for t, hops in rows:
        place = t.data_ptr()
        if t.numel():
            most = max(hops, found[place][2]) if place in found else hops
            found[place] = t.stride(0) * t.element_size(), len(t), most
    table = [(address, *about) for address, about in found.items()]
    return np.array(table, np.int64).reshape(-1, 4)

"""Rows on demand: deltas change the graph and the inputs, and mark; who asks has rows computed.

A query needs what is marked among the rows that it sees, and nothing else (NeutronRT, Section V-D:
the affected subgraph, cut with that of the query; RIPPLE, Section 2.2, infers on a request). A row
is marked at every step that may give it another value: marks go along out-edges, and stop at rows
that have one already, so that however many deltas wait, each row is marked once.

A marked row is computed by `pull`, from its in-edges as they are now. What was accumulated in it is
replaced, not patched: the terms that it held are of no use to it any more, and nothing OLD is
needed. So a row that has none is exactly what an update at once would have left there, and so is
what an unmarked row is made of.

Where little waits and nobody has asked yet, all that waits goes through the engine as one update:
its messages are few, and the rows that they reach may have very many in-edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.engine.loop import Engine
from pyg_incremental.engine.waiting import Waiting
from pyg_incremental.graph.edge_store import EdgeEvents, Edges
from pyg_incremental.kernels.threads import together
from pyg_incremental.ops.maps import PART, MapExecutor
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import NO_IDS, Cell, Ids
from pyg_incremental.typing import Array

FEW = 64
"""Edges and rows that wait are one update, when somebody asks, if there are no more than these:
they take less than to look for what is marked."""
UNSEEN = 1024
"""Edges and rows are marked together when so many have come."""
MARK = 1


@dataclass(eq=False)
class _Step:
    """An executor, what it reads where, and which of its rows are marked.

    Attributes:
        run: The executor.
        out: Its output.
        near: What it reads at the row itself, or as a whole.
        far: What it reads at the other ends of edges.
        reads_edges: Whether it is made of all edges together.
        marks: `MARK` at the rows that are marked, int64 `[capacity]`; of a step with such rows.
        waits: Whether all of it is marked, of any other step.
    """

    run: Any
    out: Cell
    near: list[Cell]
    far: list[Cell]
    reads_edges: bool
    marks: Array = None
    waits: bool = False

    @property
    def has_marks(self) -> bool:
        """Whether rows are marked one by one."""
        return not self.run.step.needs_all_rows and self.out.domain is Domain.NODE


class OnDemand:
    """Marks what deltas change, and computes what is asked for.

    Args:
        engine: Holds the rows. Whoever changes them has to settle before.

    Attributes:
        is_broken: Whether inputs may not be as the last delta has left them.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._backend = engine.backend
        self._given = [
            e for e in engine.node_executors if e.is_given or e.step.constant is not None
        ]
        self._steps = [self._step(e) for e in engine.node_executors if e not in self._given]
        self._by_cell = {s.out: s for s in self._steps}
        self._in_one = all(v.domain is not Domain.EDGE for v in engine.program.outputs) and not any(
            s.out.domain is Domain.EDGE for s in self._steps
        )
        self.is_broken = False
        self._begin()

    def _step(self, e: Any) -> _Step:
        cells = self.engine.cells
        read = [cells[v] for v in e.step.inputs]
        far = [cells[v] for v in e.step.gathered] if e.gathers else []
        # Who gathers over a loop reads a source at the row itself.
        near = [c for c in read if c not in far or c.nodes is e.out.nodes]
        whole = e.step.needs_all_rows
        reads_edges = whole and (e.gathers or any(c.domain is Domain.EDGE for c in (e.out, *read)))
        return _Step(e, e.out, near, far, reads_edges)

    def _begin(self) -> None:
        """Nothing waits."""
        self.waiting = Waiting({k: n.num_nodes for k, n in self.engine.nodes.items()})
        self._has_marks = False
        self._forget_unseen()

    def _forget_unseen(self) -> None:
        self._unseen = 0
        self._ends: dict[str, list[Edges]] = {}
        self._changed: dict[Cell, list[Array]] = {}
        self._first_new = {k: n.num_nodes for k, n in self.engine.nodes.items()}

    @property
    def waits(self) -> bool:
        """Whether something waits."""
        return self._has_marks or self.waiting.has_begun

    # Deltas --------------------------------------------------------------------------------------

    def mark(
        self,
        events: Mapping[str, EdgeEvents],
        new_nodes: Mapping[str, int],
        rows: Mapping[str, tuple[Tensor, Tensor]],
    ) -> None:
        """Take a delta that the graphs have taken.

        Inputs, and values that edges have of their own, follow at once.

        Args:
            events: What happened to the edges of each graph.
            new_nodes: How many nodes of each kind are new.
            rows: For each changed node input the distinct ids, int64 `[c]`, and their new rows,
                `[c, ...]`, new nodes included.
        """
        engine, waiting = self.engine, self.waiting
        engine.copy_late()
        for kind, nodes in engine.nodes.items():
            known = nodes.num_nodes
            nodes.begin(known + new_nodes.get(kind, 0), known, NO_IDS)
        has_edges = engine._begin(events, [])
        if new_nodes or has_edges:
            engine._grow()
            for edge_executor in engine.edge_executors:
                edge_executor.edges_changed()
        for name, given in rows.items():
            cell = engine.inputs[name].out
            waiting.note_rows(name, cell, given[0])
            engine.inputs[name].given = given
        for e in self._given:
            e.rows_changed()
            if e.out.ids is not None:
                self._changed.setdefault(e.out, []).append(e.out.ids.array)
                self._unseen += e.out.ids.count
            elif e.out.dirty:
                self._changed.setdefault(e.out, [])
        for graph, happened in events.items():
            waiting.note_edges(graph, happened)
            self._ends.setdefault(graph, []).extend(e for e in happened[:3] if len(e.slots))
        waiting.has_begun = True
        self._unseen += has_edges + sum(new_nodes.values())
        engine._clean()
        if not waiting.is_one or waiting.count > self._most_in_one or not self._in_one:
            waiting.let_go(engine.graphs)
        if self._unseen > UNSEEN:
            self._spread()

    @property
    def _most_in_one(self) -> int:
        """So much may wait for one update; making all rows afresh takes less than more of it."""
        return max(4 * UNSEEN, sum(g.num_edges for g in self.engine.graphs.values()) // 32)

    def _spread(self) -> None:
        """Mark what the deltas change that have not been seen yet."""
        if not self._unseen and not self._changed:
            return
        changed = self._changed
        self._has_marks = True
        for s in self._steps:
            if not s.has_marks:
                edges = s.reads_edges and (self._ends or self._has_new)
                if not s.waits and (edges or any(c in changed for c in (*s.near, *s.far))):
                    s.waits = True
                    changed[s.out] = [self._all_of(s.out)] if s.out.nodes is not None else []
                continue
            found = self._mark(s)
            if len(found):
                changed[s.out] = [found]
        self._forget_unseen()

    @property
    def _is_little(self) -> bool:
        """Whether nothing was marked yet, and one update of all that waits takes less."""
        return self.waiting.is_one and not self._has_marks and self._unseen <= FEW

    @property
    def _has_new(self) -> bool:
        return any(n.num_nodes > self._first_new[k] for k, n in self.engine.nodes.items())

    def _all_of(self, cell: Cell) -> Array:
        assert cell.nodes is not None
        return cell.nodes.all_nodes.array

    def _mark(self, s: _Step) -> Array:
        """Mark the rows of one step that what has changed reaches; which had no mark before."""
        kernels, nodes, changed = self._backend.kernels, s.out.nodes, self._changed
        assert nodes is not None
        marks, touched, count = self._marks_of(s), nodes.scratch.touched, 0
        first_new = self._first_new[s.out.value.kind]
        if nodes.num_nodes > first_new:
            new = self._backend.ids(torch.arange(first_new, nodes.num_nodes)).array
            count = kernels.unite(new, touched, count, marks, MARK)
        for cell in s.near:
            if cell.nodes is not None:
                for ids in changed.get(cell, ()):
                    count = kernels.unite(ids, touched, count, marks, MARK)
            elif cell in changed:
                count = kernels.unite(self._all_of(s.out), touched, count, marks, MARK)
        if s.run.gathers:
            for edges in self._ends.get(s.run.step.graph, ()):
                ends = self._backend.host(s.run.led_to(edges))
                count = kernels.unite(ends, touched, count, marks, MARK)
            out = s.run.lists[0]
            for cell in s.far:
                for ids in changed.get(cell, ()):
                    count, _ = kernels.reach(ids, out, s.run.drop, touched, count, marks, MARK)
        found: Array = nodes.scratch.taken(count).array
        return found

    def _marks_of(self, s: _Step) -> Array:
        """The marks of a step, with room for all nodes."""
        assert s.out.nodes is not None
        size = s.out.nodes.scratch.size
        if s.marks is None or len(s.marks) < size:
            marks = np.zeros(size, np.int64)
            if s.marks is not None:
                marks[: len(s.marks)] = np.asarray(s.marks)
            s.marks = self._backend.host(marks)
        return s.marks

    # Rows ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Compute all that waits."""
        if not self.waits:
            return
        if self.waiting.is_one:
            self._update()
        else:
            self._pull(None)
        for s in self._steps if self._has_marks else ():
            s.waits = False
            if s.marks is not None:
                s.marks[:] = 0
        self.waiting.let_go(self.engine.graphs)
        self._begin()

    def marked_outputs(self, most: int) -> dict[str, Tensor]:
        """Some of the rows of the outputs that are marked, by kind: at most so many, int64 `[k]`.

        There are none where little waits, which is one update.
        """
        found: dict[str, Tensor] = {}
        if self._is_little:
            return found
        self._spread()
        for value in self.engine.program.outputs:
            s = self._by_cell.get(self.engine.cells[value])
            if (
                s is not None
                and s.has_marks
                and s.out.stored
                and most > len(found.get(value.kind, ()))
            ):
                ids = self._marked(s, [], every=True).tensor[:most]
                more = torch.cat([found[value.kind], ids]) if value.kind in found else ids
                found[value.kind] = more.unique()[:most]
        return {kind: ids.cpu() for kind, ids in found.items() if len(ids)}

    def _update(self) -> None:
        """Let all that waits be one update of the engine."""
        engine = self.engine
        self.is_broken = True
        events, rows = self.waiting.taken_back(engine)
        new = {k: engine.nodes[k].num_nodes - n for k, n in self.waiting.num_nodes.items()}
        for kind, nodes in engine.nodes.items():
            known = self.waiting.num_nodes[kind]
            nodes.begin(known, known, NO_IDS)
        try:
            engine.update(events, {k: n for k, n in new.items() if n}, rows)
        except BaseException:
            self._doubt_all(rows)
            raise
        finally:
            self.is_broken = False

    def _doubt_all(self, rows: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """The update was interrupted: mark all, and let inputs be as they are now."""
        engine = self.engine
        for name, (ids, now) in rows.items():
            engine.inputs[name].given = None
            cell = engine.inputs[name].out
            cell.tensor[ids.to(cell.tensor.device)] = now
        self.waiting.let_go(engine.graphs)
        self._has_marks = True
        for s in self._steps:
            s.waits = not s.has_marks
            if s.has_marks:
                self._marks_of(s)[:] = MARK

    def read(self, asked: Mapping[str, Tensor]) -> None:
        """Compute what some rows of the outputs need, and keep it.

        Args:
            asked: The rows by kind of nodes, int64 `[k]`.
        """
        if not self.waits:
            return
        if self._is_little or self._are_all(asked):
            self.settle()
            return
        self._spread()
        if self._pull(asked):
            self.waiting.let_go(self.engine.graphs)

    def _are_all(self, asked: Mapping[str, Tensor]) -> bool:
        """Whether these are all rows of all outputs."""
        for value in self.engine.program.outputs:
            if value.domain is not Domain.NODE or value.kind not in asked:
                return False
            ids, count = asked[value.kind], self.engine.nodes[value.kind].num_nodes
            if len(ids) < count:
                return False
            there = torch.zeros(count, dtype=torch.bool, device=ids.device)
            there[ids] = True
            if not there.all():
                return False
        return True

    def _pull(self, asked: Mapping[str, Tensor] | None) -> bool:
        """Compute marked rows: all, or what some rows of the outputs see; whether there are any."""
        self._spread()
        engine = self.engine
        for nodes in engine.nodes.values():
            nodes.begin(nodes.num_nodes, nodes.num_nodes, NO_IDS)
        engine._begin({}, [])
        engine.copy_late()
        plan = [*self._needed(asked)][::-1]
        made: dict[Cell, tuple[Ids, Tensor]] = {}
        with torch.no_grad(), engine._alone:
            for s, ids in plan:
                if ids is None:
                    s.run.full()
                    s.waits = False
                    continue
                if s.run.gathers:
                    s.run.pull(ids)
                else:
                    with together(ids.count > PART):
                        self._map(s.run, ids, made)
                s.marks[ids.array] = 0
        return bool(plan)

    def _needed(self, asked: Mapping[str, Tensor] | None) -> Iterator[tuple[_Step, Ids | None]]:
        """Which rows of which steps have to be computed, from the last step on; None for all.

        Of a value that is not stored these are all that somebody reads, marked or not.
        """
        needed: dict[Cell, list[Array]] = {}
        if asked is not None:
            for value in self.engine.program.outputs:
                if value.domain is Domain.NODE and value.kind in asked:
                    ids = self._backend.ids(asked[value.kind]).array
                    needed.setdefault(self.engine.cells[value], []).append(ids)
        for s in reversed(self._steps):
            if not s.has_marks:
                if s.waits and (asked is None or s.out in needed):
                    yield s, None
                    for cell in (*s.near, *s.far):
                        every = [] if cell.nodes is None else [self._all_of(cell)]
                        needed.setdefault(cell, []).extend(every)
                continue
            ids = self._marked(s, needed.get(s.out, []), every=asked is None)
            if not ids.count:
                continue
            yield s, ids
            for cell in s.near:
                needed.setdefault(cell, []).extend([ids.array] if cell.nodes is not None else [])
            for cell in s.far:
                if cell in self._by_cell:
                    needed.setdefault(cell, []).append(self._sources(s, cell, ids))

    def _marked(self, s: _Step, needed: list[Array], every: bool) -> Ids:
        """Rows of a step that have to be computed, ascending."""
        marks, nodes, backend = self._marks_of(s), s.out.nodes, self._backend
        assert nodes is not None
        if every and s.out.stored:
            marked = backend.tensor(marks)[: nodes.num_nodes].nonzero().flatten()
            return nodes.all_nodes if len(marked) == nodes.num_nodes else backend.ids(marked)
        scratch, count = nodes.scratch, 0
        epoch = scratch.next()
        for ids in needed:
            if s.out.stored:
                ids = ids[marks[ids] == MARK]
            count = backend.kernels.unite(ids, scratch.touched, count, scratch.stamp, epoch)
        if count == nodes.num_nodes:
            return nodes.all_nodes
        return backend.ids_from(backend.sorted(scratch.taken(count).array))

    def _sources(self, s: _Step, source: Cell, ids: Ids) -> Array:
        """The rows of a source at the other ends of the in-edges of some rows."""
        assert source.nodes is not None
        scratch, backend = source.nodes.scratch, self._backend
        count, _ = backend.kernels.reach(
            ids.array, s.run.lists[1], s.run.drop, scratch.touched, 0, scratch.stamp, scratch.next()
        )
        found: Array = scratch.taken(count).array
        return found

    def _map(self, run: MapExecutor, ids: Ids, made: dict[Cell, tuple[Ids, Tensor]]) -> None:
        """Compute some rows of a row map, a part at a time."""
        out, parts = run.out, []
        for first in range(0, ids.count, PART):
            last = min(first + PART, ids.count)
            some = (
                ids if last - first == ids.count else self._backend.ids_from(ids.array[first:last])
            )
            new = run.fn(*(self._rows(cell, some, made) for cell in run.inputs))
            if out.stored:
                out.write(some, new)
            else:
                parts.append(new)
        if parts:
            made[out] = ids, parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, cell: Cell, ids: Ids, made: Mapping[Cell, tuple[Ids, Tensor]]) -> Any:
        """Rows of what a map reads."""
        if cell.domain is Domain.WHOLE:
            return cell.content
        if cell not in made:
            return cell.gather(ids)
        known, rows = made[cell]
        if known.count == ids.count:
            return rows
        at = torch.searchsorted(known.tensor, ids.tensor)
        return rows[at.to(rows.device)]

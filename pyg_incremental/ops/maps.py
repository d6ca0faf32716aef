"""How each kind of step runs: on all rows once, then where something changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from pyg_incremental.errors import RowCountError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.storage import write_rows
from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.kernels.threads import together
from pyg_incremental.ops.operator import At, Operator
from pyg_incremental.program.steps import Domain, RowMap, Step
from pyg_incremental.rows import Cell, Context, Ids
from pyg_incremental.telemetry.work import Work
from pyg_incremental.typing import Array

PART = 1 << 11
"""Rows of a map computed at a time, here, by threads and in blocks: what is in memory once more
stays small, and in the cache. With 512 to 4,096 it takes the same time."""


class InputExecutor(Operator):
    """Takes what the user hands in."""

    is_given: ClassVar[bool] = True
    kind_of_row: ClassVar[int] = m.INPUT

    def __init__(
        self, step: Step, out: Cell, context: Context, materialize: Callable[[], object] | None
    ) -> None:
        super().__init__(step, out, context)
        self._materialize = materialize
        self._first: Tensor | None = None
        self.given: tuple[Tensor, Tensor] | None = None

    def unknown(self, graph: DynamicGraph, dtype: torch.dtype, wide: torch.dtype) -> str:
        """The machine knows what is there."""
        is_missing = self.out.domain is Domain.NODE and self.out.rows is None
        return "it has no rows" if is_missing else ""

    @property
    def is_graph(self) -> bool:
        """Whether this input is the graph itself."""
        return self._materialize is not None

    def take(self, tensor: Tensor | None) -> None:
        """Hand in the tensor, `[num_rows, ...]`, for the next full pass."""
        self._first = tensor

    def full(self) -> None:
        """Store what was handed in."""
        out = self.out
        if out.domain is Domain.EDGE:
            out.hold(self.context.graph.edge_data[out.value.name])
        elif self._materialize is not None:
            out.content, out.dirty = None, True
        elif self._first is not None:
            if out.domain is Domain.NODE:
                out.put(self._first, self.context.capacity)
            else:
                out.content = self._first
        self._first = None

    def edges_changed(self) -> None:
        """The graph has written the new rows; see which of the changed edges really differ."""
        out, events = self.out, self.context.events
        data = self.context.graph.edge_data[out.value.name]
        if data is not out.rows:
            out.hold(data)
        if len(events.changed.slots):
            out.old_changed = events.overwritten.get(out.value.name)

    def rows_changed(self) -> None:
        """Write the new rows of the delta."""
        out, context = self.out, self.context
        if self._materialize is not None:
            out.dirty = context.num_nodes > context.first_new or context.num_events > 0
            if out.dirty:
                out.content = None
        if self.given is not None:
            ids, rows = context.backend.ids(self.given[0]), self.given[1]
            if ids.count == context.num_nodes and torch.equal(ids.tensor, context.all_nodes.tensor):
                ids = context.all_nodes  # whose rows need not be gathered
            if ids is context.all_nodes and ids.count > PART:
                changed = out.commit_parts(ids, partial(_part_of, rows), PART, context.first_new)
            else:
                changed = out.commit(ids, rows, context.first_new)
            context.stats.append((out.value.name, "input", ids.count, changed, 0, 0))
            self.given = None

    def object(self) -> object:
        """The graph, in the format in which it was handed in."""
        if self.out.content is None and self._materialize is not None:
            self.out.content = self._materialize()
        return self.out.content


class OnesExecutor(Operator):
    """One for every node."""

    kind_of_row: ClassVar[int] = m.ONES

    def unknown(self, graph: DynamicGraph, dtype: torch.dtype, wide: torch.dtype) -> str:
        """The machine knows it."""
        return ""

    def full(self) -> None:
        """Store a one for every node."""
        like = self.context.backend.like
        self.out.put(like.new_ones(self.context.num_nodes, 1), self.context.capacity)

    def rows_changed(self) -> None:
        """Give new nodes their one."""
        context, out = self.context, self.out
        if context.num_nodes > context.first_new and out.rows is not None:
            ids = context.backend.ids(torch.arange(context.first_new, context.num_nodes))
            out.commit(ids, out.rows.new_ones(ids.count, 1), context.first_new)


class MapExecutor(Operator):
    """Runs a row map: on all rows once, then where an input is dirty."""

    computes: ClassVar[bool] = True
    takes_values: ClassVar[bool] = True

    def __init__(
        self,
        step: Step,
        fn: Callable[..., Any],
        inputs: list[Cell],
        out: Cell,
        context: Context,
    ) -> None:
        super().__init__(step, out, context)
        self.inputs, self.fn = inputs, fn
        self.rowed = [c for c in inputs if c.domain is not Domain.WHOLE]

    @property
    def kernels(self) -> Sequence[str]:  # type: ignore[override]
        """Where it makes rows of edges, the kernels for that."""
        return ("edge_map",) if self.out.domain is Domain.EDGE else ()

    def lay_out(self, row: Array, numbers: Array, at: At, wide: bool) -> None:
        """As for all of them, int64 `[columns]` and floats `[2]`."""
        on_nodes = m.WIDE_MAP if wide else m.MAP
        row[m.KIND] = on_nodes if self.out.domain is Domain.NODE else m.EDGE_MAP

    def full(self) -> None:
        """Compute all rows."""
        out, context = self.out, self.context
        if out.domain is Domain.WHOLE:
            out.content = self.fn(*(c.content for c in self.inputs))
            return
        count = capacity = context.graph.slot_capacity if out.domain is Domain.EDGE else -1
        if out.domain is Domain.NODE:
            count, capacity = context.num_nodes, max(context.num_nodes, context.capacity)
        if out.stored:
            out.hold(self._joined(self._part, count, capacity))
        elif out.is_read_once:
            out.make_part = self._part
        else:
            out.rows = self._joined(self._part, count, count)

    def _joined(self, make: Callable[[int, int], Tensor], count: int, capacity: int) -> Tensor:
        """Rows made in parts, so that what else is needed meanwhile stays small."""
        first = make(0, min(PART, count))
        _refuse_other_count(self.out, len(first), min(PART, count))
        rows = self.context.backend.zeros(first, capacity, *first.shape[1:], unread=count)
        rows[: len(first)] = first
        for begin in range(PART, count, PART):
            end = min(begin + PART, count)
            rows[begin:end] = make(begin, end)
        return rows

    def _part(self, first: int, last: int) -> Tensor:
        """Rows from `first` to before `last`, computed."""
        part: Tensor = self.fn(
            *(c.content if c.domain is Domain.WHOLE else c.part(first, last) for c in self.inputs)
        )
        return part

    def edges_changed(self) -> None:
        """An edge value: compute the rows of added and changed edges."""
        out, events = self.out, self.context.events
        backend = self.context.backend
        changed = any(c.old_changed is not None or c.dirty for c in self.inputs)
        slots = backend.ids_from(events.added.slots).tensor
        if changed:
            again = backend.ids_from(events.changed.slots).tensor
            out.old_changed = out.read(again)
            slots = torch.cat([slots, again])
        if len(slots):
            self.compute_edges(slots, self.context.stats)

    def compute_edges(self, slots: Tensor, stats: Work) -> None:
        """An edge value: compute the rows of edges in some slots, int64 `[k]`."""
        args = [c.content if c.domain is Domain.WHOLE else c.read(slots) for c in self.inputs]
        write_rows(self.out.tensor, slots.numpy(), self.fn(*args))
        stats.append((self.out.value.name, "map", len(slots), len(slots), 0, 0))

    def rows_changed(self) -> None:
        """Compute the rows where an input changed."""
        context, out = self.context, self.out
        sets: list[Ids] = []
        shared: Ids | None = None
        everywhere = False
        for cell in self.inputs:
            ids = cell.ids
            if ids is not None:
                if ids not in sets:
                    sets.append(ids)
                if not cell.stored and cell.maker is None:
                    shared = ids
            everywhere |= cell.dirty
        if not sets and not everywhere and context.renew_ids is None:
            return
        if context.renew_ids is not None:
            sets.append(context.renew_ids)
        if out.domain is Domain.WHOLE:
            if everywhere:
                out.content, out.dirty = self.fn(*(c.content for c in self.inputs)), True
            return
        if everywhere:
            ids = context.all_nodes
        elif not sets:
            return
        else:
            # An input that is not stored was computed at all rows that are dirty here (see `plan`).
            ids = context.unite(sets) if shared is None else shared
        count = ids.count
        with together(count > PART):
            changed = self._run(ids, count)
        context.stats.append((out.value.name, "map", count, changed, 0, 0))

    def _run(self, ids: Ids, count: int) -> int:
        """Compute the rows `ids`; returns how many changed."""
        out, first_new = self.out, self.context.first_new
        if out.stored and count > PART:
            return out.commit_parts(ids, partial(self._new_rows, ids), PART, first_new)
        if out.stored:
            return out.commit(ids, self._new_rows(ids, 0, count), first_new)
        out.ids, new_rows = ids, partial(self._new_rows, ids)
        if count <= PART:
            out.fresh = new_rows(0, count)
        elif out.is_read_once:
            out.make_part = new_rows
        else:
            out.fresh = self._joined(new_rows, count, count)
        return count

    def _new_rows(self, ids: Ids, first: int, last: int) -> Tensor:
        """New rows of the `ids` from `first` to before `last`."""
        all_nodes, args = self.context.all_nodes, []
        some = ids if last - first == ids.count else None
        for cell in self.inputs:
            if cell.domain is Domain.WHOLE:
                args.append(cell.content)
            elif cell.ids is ids and cell.fresh is not None:
                args.append(cell.fresh if some is ids else cell.fresh[first:last])
            elif cell.ids is ids and cell.make_part is not None:
                args.append(cell.make_part(first, last))
            elif ids is all_nodes:
                args.append(cell.part(first, last))
            else:
                some = some or self.context.backend.ids_from(ids.array[first:last])
                args.append(cell.gather(some))
        new: Tensor = self.fn(*args)
        return new


class WholeExecutor(Operator):
    """Runs a step on all rows whenever an input changed."""

    takes_values: ClassVar[bool] = True

    def __init__(self, step: Step, inputs: list[Cell], out: Cell, context: Context) -> None:
        super().__init__(step, out, context)
        self.inputs = inputs
        self.graphs: dict[Cell, InputExecutor] = {}
        self.edges: dict[str, Context] = {}

    def take_graphs(self, graphs: Mapping[Cell, Any], over: Callable[[str], Context]) -> None:
        """Take the graphs that it reads, and the contexts of edges whose rows it reads."""
        self.graphs = {c: graphs[c] for c in self.inputs if c in graphs}
        kinds = (c.value.kind for c in self.inputs if c.domain is Domain.EDGE)
        self.edges = {kind: over(kind) for kind in kinds}

    def _compute(self) -> Any:
        args: list[Any] = []
        for cell in self.inputs:
            if cell.domain is Domain.NODE:
                # A copy: the step may write to it, or return a view.
                rows = cell.current()
                args.append(rows if self.step.pure else rows.clone())
            elif cell.domain is Domain.EDGE:
                slots = self.edges[cell.value.kind].graph.slots_for_model()
                args.append(cell.read(torch.from_numpy(slots)))
            elif cell in self.graphs:
                args.append(self.graphs[cell].object())
            else:
                args.append(cell.content)
        result = self.step.fn(*args)
        if self.out.domain is Domain.NODE:
            made = len(result) if isinstance(result, Tensor) and result.dim() else None
            _refuse_other_count(self.out, made, self.context.num_nodes)
        return result

    def full(self) -> None:
        """Run once, on all rows.

        Raises:
            RowCountError: If the result has not one row for each node.
        """
        result = self._compute()
        if self.out.domain is Domain.NODE:
            self.out.put(result, self.context.capacity)
        else:
            self.out.content = result

    def rows_changed(self) -> None:
        """Run on all rows again if an input changed."""
        context, out = self.context, self.out
        graph_changed = any(
            self.edges[c.value.kind].num_events for c in self.inputs if c.domain is Domain.EDGE
        )
        if not graph_changed and not any(c.dirty or c.ids is not None for c in self.inputs):
            return
        rows = context.num_nodes
        with together(rows > PART):
            result = self._compute()
        changed = rows
        if out.domain is Domain.NODE:
            old = out.tensor
            if result.dtype != old.dtype or result.shape[1:] != old.shape[1:]:
                out.put(result, context.capacity)  # such as distances to all nodes
                out.ids = context.all_nodes
            else:
                changed = out.commit(context.all_nodes, result, context.first_new)
        else:
            out.dirty = not _same(result, out.content)
            out.content, changed = result, rows if out.dirty else 0
        edges = sum(e.context.graph.num_edges for e in self.graphs.values())
        context.stats.append((out.value.name, self.step.kind, rows, changed, edges, 0))


def operator_of(step: Step, inputs: list[Cell], out: Cell, context: Context) -> Operator:
    """What runs a step that is neither handed in nor an aggregation.

    Raises:
        TypeError: If nothing does.
    """
    if step.brings_executor:  # such as an exchange of ranks
        own: Operator = step.executor(inputs, out, context)
        return own
    if step.row_fn is not None:
        return MapExecutor(step, step.row_fn, inputs, out, context)
    if step.reads_whole:
        return WholeExecutor(step, inputs, out, context)
    if step.constant is not None:
        return OnesExecutor(step, out, context)
    raise TypeError(f"nothing runs step '{step}'")


def _refuse_other_count(out: Cell, rows: int | None, wanted: int) -> None:
    """What has another number of rows than it stands for never reaches compiled code."""
    if rows != wanted:
        raise RowCountError(
            f"step '{out.value}' made {'no rows' if rows is None else f'{rows} rows'}, but there "
            f"are {wanted} nodes; the model has to run whole"
        )


def _part_of(rows: Tensor, first: int, last: int) -> Tensor:
    return rows[first:last]


def _same(a: Any, b: Any) -> bool:
    """Whether a value of domain `WHOLE` came out as it was."""
    if isinstance(a, (int, float, torch.Size)):
        return type(a) is type(b) and bool(a == b)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if a.shape != b.shape or a.dtype != b.dtype or a.layout is not torch.strided:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def merged(first: Step, then: Step) -> Step:
    """One map that runs `first` and hands its result to `then`."""
    inputs = list(first.inputs)
    places: list[int | None] = []
    for v in then.inputs:
        if v is first.output:
            places.append(None)
            continue
        if v not in inputs:
            inputs.append(v)
        places.append(inputs.index(v))
    inner, outer = first.row_fn, then.row_fn
    assert inner is not None
    assert outer is not None
    fn = _composed(inner, outer, len(first.inputs), places)
    return RowMap(then.output, tuple(inputs), fn, first.costly or then.costly)


def _composed(
    inner: Callable[..., Any], outer: Callable[..., Any], count: int, places: list[int | None]
) -> Callable[..., Any]:
    if places == [None]:
        return lambda *rows: outer(inner(*rows))
    if places == [None, *range(count, count + len(places) - 1)]:
        return lambda *rows: outer(inner(*rows[:count]), *rows[count:])

    def run(*rows: Any) -> Any:
        result = inner(*rows[:count])
        return outer(*[result if at is None else rows[at] for at in places])

    return run

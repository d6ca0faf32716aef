"""What a model returns, read off the stored rows: all of it, some rows, or what has changed."""

from collections.abc import Mapping
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.traced import Output
from pyg_incremental.delta.resolve.resolver import Resolver
from pyg_incremental.engine.loop import Engine
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.rows import NO_IDS, Cell, Ids
from pyg_incremental.rows.lazy_rows import MANY, LazyRows


class Outputs:
    """The outputs of a session, in the structure in which the model returns them.

    Args:
        plan: How the call is computed.
        engine: Holds the rows.
        graphs: The current graphs by the names of the arguments.
        resolver: Reads ids of nodes.

    Attributes:
        lent: Memory of rows that were handed out.
        only: The output, if it is one tensor with a row for each node.
    """

    def __init__(
        self,
        plan: CallPlan,
        engine: Engine,
        graphs: Mapping[str, DynamicGraph],
        resolver: Resolver,
    ) -> None:
        self.lent = Lent()
        self._values, structure = plan.program.outputs, plan.traced.structure
        self._places, self._form = pytree.tree_flatten(structure, _is_output)
        self._kinds = plan.roles.kinds
        self._engine = engine
        self._cells, self._graphs, self._resolver = engine.cells, graphs, resolver
        self._whole: dict[Value, Any] = {}
        first = self._values[0]
        is_only = isinstance(structure, Output) and first.domain is Domain.NODE
        self.only = self._cells[first] if is_only else None

    @property
    def kinds(self) -> Any:
        """The kind of nodes of each output."""
        return self._filled(lambda value: value.kind)

    @property
    def kinds_of_rows(self) -> set[str]:
        """The kinds of nodes of which there are rows."""
        return {v.kind for v in self._values if v.domain is Domain.NODE}

    def now(self, copy: bool) -> Any:
        """The current output, as live views or copies."""

        def rows(value: Value) -> Any:
            cell = self._cells[value]
            if value.domain is Domain.EDGE:
                return cell.read(torch.from_numpy(self._graphs[value.kind].slots_for_model()))
            found = cell.content if value.domain is Domain.WHOLE else cell.current()
            if value.domain is Domain.WHOLE:
                self._whole.setdefault(value, found)
            return found.clone() if copy and isinstance(found, Tensor) else found

        return self._filled(rows)

    def chosen(self, out: Any, rows: Mapping[str, Any]) -> Any:
        """The rows of an output that an index for their kind of nodes picks; all of other kinds."""

        def index(value: Value) -> Any:
            return rows.get(value.kind, ...) if value.domain is Domain.NODE else ...

        return pytree.tree_map(
            lambda t, i: t if i is ... or t is None else t[i], out, self._filled(index)
        )

    def at(self, ids: Mapping[str, Tensor]) -> Any:
        """Copies of some rows, `[k, ...]`, whose `ids` these are, int64 `[k]` by kind of nodes."""
        return self._filled(lambda value: self._cells[value].read(ids.get(value.kind, NO_IDS)))

    def look_again(self) -> None:
        """What has no rows may be another one, which is not for an update to report."""
        seen = {v: self._cells[v].content for v in self._values if v.domain is Domain.WHOLE}
        self._whole.update(seen)

    def ids(self, nodes: Any) -> dict[str, Tensor]:
        """The rows of nodes that are asked for, int64 `[k]` by kind, checked.

        Args:
            nodes: Ids of nodes, int64 `[k]`, or a dict by kind.

        Raises:
            InvalidDeltaError: If an id is out of range.
            UnsupportedModelError: If an output has no row for each node.
        """
        if any(v.domain is not Domain.NODE for v in self._values):
            raise UnsupportedModelError(
                "read: no output is known to have a row for each node, as of a readout or a model "
                "that runs as a full pass, so none can be chosen; take rows of read() or out"
            )
        kinds = {v.kind for v in self._values}
        if not isinstance(nodes, Mapping) and len(kinds) == 1:
            (kind,) = kinds  # ids of what the only output has rows for, as graphs
            nodes = nodes if kind in self._kinds else {kind: nodes}
        return {k: torch.from_numpy(at) for k, at in self._resolver.ids(nodes, "nodes").items()}

    # What has changed ----------------------------------------------------------------------------

    def changed(self) -> tuple[Any, Any, Any]:
        """Ids and new rows of what the last update changed.

        And the edges that these ids are, int64 `[2, k]`, where an output has a row for each edge:
        None in place of others, and None alone if there is no such output. Of a large output the
        rows may be `LazyRows`.
        """
        only = self.only
        if only is not None:
            ids = _sorted(only)
            if ids.count * only.width > MANY:
                return ids.tensor, self._late(only, ids), None
            return ids.tensor, only.gather(ids, self.lent), None
        found: dict[int, Tensor] = {}
        at: dict[int, Tensor] = {}
        ends: dict[int, Tensor] = {}
        seen: dict[Value, Any] = {}
        for i, value in enumerate(self._values):
            cell = self._cells[value]
            if value.domain is Domain.NODE:
                found[i] = at[i] = _sorted(cell).tensor
            elif value.domain is Domain.EDGE:
                found[i], at[i], ends[i] = self._changed_edges(value)
            else:
                found[i] = changed_rows(self._whole.get(value), cell.content)
                seen[value] = cell.content
        self._whole.update(seen)  # not before: a value may be returned twice

        def rows(place: Output) -> Any:
            value, i = self._values[place.index], place.index
            cell = self._cells[value]
            if value.domain is not Domain.WHOLE:
                return cell.read(at[i])
            content = cell.content
            is_rows = isinstance(content, Tensor) and content.dim()
            return content[found[i]] if is_rows else _own(content)

        edges = self._at_places(lambda place: ends.get(place.index)) if ends else None
        return self._at_places(lambda place: found[place.index]), self._at_places(rows), edges

    def _late(self, cell: Cell, ids: Ids) -> LazyRows:
        """A copy of many rows that is not made yet; `ids` are the caller's, to write to."""
        stored = cell.ids
        assert stored is not None
        if not np.array_equal(stored.array, ids.array):
            stored = cell.backend.ids_from(ids.array.copy())
        late = LazyRows(cell, stored, self.lent)
        self._engine.late = ref(late)
        return late

    def _changed_edges(self, value: Value) -> tuple[Tensor, Tensor, Tensor]:
        """Which edges have another row of an output: their rows there, slots, and both ends."""
        graph, ids = self._graphs[value.kind], self._cells[value].ids
        if ids is None:
            return NO_IDS.clone(), NO_IDS, NO_IDS.new_empty(2, 0)
        changed = ids.tensor.cpu().numpy()
        places, slots = graph.in_order_for_model(changed)
        ends = graph.ends_of(slots)
        return torch.from_numpy(places), torch.from_numpy(slots), torch.from_numpy(ends)

    def nothing(self) -> tuple[Any, Any]:
        """What an update that did nothing has changed; see `changed`."""

        def rows(value: Value) -> Any:
            cell = self._cells[value]
            if value.domain is not Domain.WHOLE:
                return cell.read(NO_IDS)
            content = cell.content
            return content[:0] if isinstance(content, Tensor) and content.dim() else _own(content)

        return self._filled(lambda _: NO_IDS.clone()), self._filled(rows)

    def compare_with(self, before: Any) -> None:
        """Let the next update say what differs from an earlier output, where the model runs whole.

        Else rows would not be named that the model itself rounds in another way.
        """
        places = filter(_is_output, self._places)
        rows = (t for t in pytree.tree_leaves(before) if isinstance(t, Tensor))
        for place, was in zip(places, rows, strict=True):
            value = self._values[place.index]
            if value.domain is Domain.WHOLE:
                self._whole[value] = was

    def _filled(self, fill: Any) -> Any:
        return self._at_places(lambda place: fill(self._values[place.index]))

    def _at_places(self, fill: Any) -> Any:
        """As `in_structure`, of the structure that the model returns, which is known."""
        leaves = [fill(leaf) if isinstance(leaf, Output) else leaf for leaf in self._places]
        return leaves[0] if self._form.is_leaf() else pytree.tree_unflatten(leaves, self._form)


def in_structure(structure: Any, fill: Any, *others: Any) -> Any:
    """A structure of outputs filled with what `fill` makes of each and of what stands in others."""
    if isinstance(structure, Output):
        return fill(structure, *others)
    return pytree.tree_map(
        lambda leaf, *rest: fill(leaf, *rest) if isinstance(leaf, Output) else leaf,
        structure,
        *others,
        is_leaf=_is_output,
    )


def _is_output(leaf: object) -> bool:
    return isinstance(leaf, Output)


def _own(content: Any) -> Any:
    """A value that is handed out, as a copy."""
    return content.clone() if isinstance(content, Tensor) else content


def _sorted(cell: Cell) -> Ids:
    """The changed rows of a value, ascending, in memory of their own: users get them."""
    if cell.ids is None:
        return cell.backend.ids(NO_IDS.clone())
    ids = cell.backend.sorted(cell.ids.array)
    return cell.backend.ids_from(ids.copy() if ids is cell.ids.array else ids)


def changed_rows(before: Any, after: Any) -> Tensor:
    """Rows of an output without a row per node that changed, and those that are new.

    All of them if the shape of a row did.
    """
    if not isinstance(after, Tensor) or not after.dim():
        return NO_IDS.clone()
    was_rows = isinstance(before, Tensor) and before.dim() > 0  # a squeezed row is none
    if not was_rows or before.shape[1:] != after.shape[1:]:
        return torch.arange(after.shape[0])
    common = min(before.shape[0], after.shape[0])
    old, new = before[:common], after[:common]
    same = (old == new) | ((old != old) & (new != new))
    differ = (~same.flatten(1).all(1) if same.dim() > 1 else ~same).nonzero().flatten().cpu()
    return torch.cat([differ, torch.arange(common, after.shape[0])])

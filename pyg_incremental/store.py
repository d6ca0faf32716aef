"""The stored rows of one model, and what one update does to them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.edge_store import EdgeEvents, Edges
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.kernels import compiled, reference
from pyg_incremental.kernels.address import zeros
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.threads import take
from pyg_incremental.program import Value
from pyg_incremental.typing import Array, BackendName
from pyg_incremental.update import Work

_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
_TORCH_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOATS = {torch.float32: np.float32, torch.float64: np.float64}
NO_IDS = torch.empty(0, dtype=torch.int64)
_NONE = np.empty(0, np.int64)
NO_EDGES = Edges(_NONE, _NONE, _NONE)
NO_EVENTS = EdgeEvents(NO_EDGES, NO_EDGES, NO_EDGES, {})
T = TypeVar("T", Adjacency, Edges)


def _sorted(ids: Tensor) -> Tensor:
    return ids.sort().values


class Ids:
    """Distinct row ids, int64 `[k]`: as the array that kernels take, and as a tensor."""

    __slots__ = ("_tensor", "array", "count")

    def __init__(self, array: Array, tensor: Tensor | None = None) -> None:
        self.array = array
        self._tensor = tensor
        self.count: int = array.shape[0]

    @property
    def tensor(self) -> Tensor:
        """The ids as a tensor; many sets are only ever united with others and never need one."""
        if self._tensor is None:
            self._tensor = torch.from_numpy(self.array)
        return self._tensor


class Backend:
    """One set of kernels and the arrays it takes: NumPy views on the CPU, or tensors on any device.

    Args:
        name: `'auto'` takes the compiled kernels for float32 and float64 on the CPU, else the
            reference.
        like: A tensor of the device and dtype that the rows will have.
    """

    def __init__(self, name: BackendName, like: Tensor) -> None:
        compilable = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
        if name == "compiled" and not compilable:
            raise UnsupportedModelError(
                "backend='compiled' needs float32 or float64 features on the CPU (got "
                f"{like.dtype} on '{like.device}'); use backend='auto' or 'reference'"
            )
        self.like = like.detach().new_empty(0)
        self.moves = 0  # how often rows were put elsewhere
        self.name = "compiled" if compilable and name != "reference" else "reference"
        self.is_compiled = self.name == "compiled"
        self.kernels: ModuleType = compiled if self.is_compiled else reference
        self.array: Callable[[Tensor], Array] = (
            torch.Tensor.numpy if self.is_compiled else lambda t: t
        )
        self.like_array: Callable[[Array], Array] = (
            np.empty_like if self.is_compiled else torch.empty_like
        )
        self.sorted: Callable[[Array], Array] = np.sort if self.is_compiled else _sorted
        self.bits = _BITS if self.is_compiled else _TORCH_BITS

    def ids(self, tensor: Tensor) -> Ids:
        """Ids from a tensor."""
        return Ids(self.array(tensor), tensor)

    def ids_from(self, array: Array) -> Ids:
        """Ids from a kernel's array, which they keep."""
        return Ids(array, None if self.is_compiled else array)

    def host(self, array: NDArray[Any]) -> Array:
        """A kernel's view of an array on the host."""
        return array if self.is_compiled else torch.from_numpy(array)

    def zeros(self, like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Zeros on the device of `like`, of its dtype if no other is given."""
        dtype = dtype or like.dtype
        if self.is_compiled and like.is_cpu and dtype in _FLOATS:
            return torch.from_numpy(zeros(_FLOATS[dtype], *shape))
        return like.new_zeros(shape, dtype=dtype)

    def room(self, size: int) -> Array:
        """Uninitialised room for ids."""
        return (
            np.empty(size, np.int64) if self.is_compiled else torch.empty(size, dtype=torch.int64)
        )


class Scratch:
    """Marks and room to collect distinct rows in; reused by every step."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.resize(0)

    def resize(self, rows: int) -> None:
        """Make room for ids below `rows`."""
        self.size = rows
        self.stamp = self._backend.host(np.zeros(rows, np.int64))
        self.touched = self._backend.room(rows)
        self.epoch = 0

    def next(self) -> int:
        """Forget all marks; returns the new epoch."""
        self.epoch += 1
        return self.epoch

    def taken(self, count: int) -> Ids:
        """The first `count` rows collected, as a set of their own."""
        rows = self.touched[:count]
        return self._backend.ids_from(rows.copy() if self._backend.is_compiled else rows.clone())


class NodeSet:
    """The nodes of one kind while an update runs.

    Attributes:
        scratch: Marks for their ids.
        num_nodes: Their number, those of the running delta included.
        first_new: Ids from here on were added by the running delta.
        renew_ids: The rows to be made afresh, or None.
        settle: Rows that every aggregation settles, whatever changed: new nodes, and rows to be
            made afresh.
    """

    def __init__(self, backend: Backend, num_nodes: int) -> None:
        self.backend = backend
        self.scratch = Scratch(backend)
        self.num_nodes = 0
        self._all_nodes = self._nobody = backend.ids(NO_IDS)
        self.begin(num_nodes, num_nodes, NO_IDS)

    def begin(self, num_nodes: int, first_new: int, renew: Tensor) -> None:
        """Start an update; `num_nodes` counts new nodes already."""
        backend = self.backend
        self.first_new = first_new
        if self.num_nodes != num_nodes:
            self.num_nodes = n = num_nodes
            if self.scratch.size < n:
                self.scratch.resize(3 * n // 2 if self.scratch.size else n)
        self.renew_ids = backend.ids(renew) if renew.shape[0] else None
        self.settle = self._nobody
        if num_nodes > first_new or renew.shape[0]:
            self.settle = backend.ids(torch.cat([renew, torch.arange(first_new, num_nodes)]))

    def begin_plain(self) -> None:
        """Start an update without new nodes."""
        if self.settle is not self._nobody or self.first_new != self.num_nodes:
            self.begin(self.num_nodes, self.num_nodes, NO_IDS)

    @property
    def all_nodes(self) -> Ids:
        """`arange(num_nodes)`."""
        if self._all_nodes.count != self.num_nodes:
            self._all_nodes = self.backend.ids(torch.arange(self.num_nodes))
        return self._all_nodes


class Rows:
    """A tensor with room to grow, `[capacity, ...]`, and the kernels' view of it.

    The view is `[capacity, channels]`.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.rows: Tensor | None = None
        self.array: Array = None

    @property
    def tensor(self) -> Tensor:
        """The rows, which have to be there."""
        if self.rows is None:
            raise RuntimeError(
                f"{self!r} is read at rows where it was not computed, but is not stored"
            )
        return self.rows

    def hold(self, rows: Tensor) -> None:
        """Store `rows` as they are."""
        self.backend.moves += 1
        self.rows = rows
        self.array = self.backend.array(rows.view(rows.shape[0], -1) if rows.dim() > 2 else rows)

    def put(self, rows: Tensor, capacity: int) -> None:
        """Store a copy of `rows`, `[n, ...]`, with room for `capacity`; the room is zero."""
        room = self.backend.zeros(rows, max(capacity, rows.shape[0]), *rows.shape[1:])
        room[: rows.shape[0]] = rows
        self.hold(room)

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` rows."""
        if self.rows is not None and self.rows.shape[0] < capacity:
            self.put(self.rows, capacity)


class Maker(Protocol):
    """Computes rows of a value that is not stored."""

    def now(self, ids: Ids) -> Tensor:
        """The current rows `ids`, `[k, ...]`."""
        ...

    def exactly(self, ids: Ids, before: bool) -> Tensor:
        """Rows `ids`, `[k, ...]`, bit by bit the same whenever they are computed.

        Those of now, or those from before the running update.
        """
        ...


class Cell(Rows):
    """The rows of one value: what is stored, and what the running update has done to it so far.

    Attributes:
        ids: Rows that changed in the running update, or None.
        fresh: The new rows of `ids`, `[k, ...]`, or None if they are only in the store.
        old: What stood in the rows `ids` before, as a kernel's array `[k, channels]`; only where an
            aggregation retracts it.
        old_changed: For an edge value, the OLD rows of the changed edges, or None if it did not
            change there.
        dirty: Whether a value of domain `WHOLE` changed.
        content: A value of domain `WHOLE`.
        nodes: The nodes whose rows these are, if they are node rows.
        maker: What computes the rows of a value that is never stored.
    """

    def __init__(self, value: Value, backend: Backend, nodes: NodeSet | None = None) -> None:
        super().__init__(backend)
        self.value = value
        self.nodes = nodes
        self.domain = value.domain
        self.stored = False
        self.keeps_old = False
        self.compares_values = False
        self.out_dtype: torch.dtype | None = None
        self.content: Any = None
        self.maker: Maker | None = None
        self._before: list[tuple[Ids, Tensor]] = []
        self._plain: Array = None
        self.reset()

    def __repr__(self) -> str:
        return f"value '{self.value}'"

    def reset(self) -> None:
        """Forget the running update."""
        self.ids: Ids | None = None
        self.fresh: Tensor | None = None
        self.old: Array = None
        self.old_changed: Tensor | None = None
        self.dirty = False
        if self._before:
            self._before = []

    @property
    def is_clean(self) -> bool:
        """Whether the running update has not touched this value."""
        clean = self.ids is None and not self.dirty and self.old_changed is None
        return clean and not self._before

    def hold(self, rows: Tensor) -> None:
        """Store `rows` as they are, and remember their dtype and shape for `commit`."""
        super().hold(rows)
        self._dtype, self._tail = rows.dtype, rows.shape[1:]
        self.array = self.backend.array(rows.view(rows.shape[0], self._tail.numel()))
        self._no_old = self.array[:0]
        plain = self.backend.is_compiled and self.out_dtype is None
        self._plain = rows.numpy() if plain else None
        self._bit_type = self.backend.bits[rows.element_size()]
        self.bits = self.array if self.compares_values else self.array.view(self._bit_type)

    def read(self, ids: Tensor) -> Tensor:
        """Current rows `ids`, `[k, ...]`.

        NumPy starts faster than torch, which matters for a few rows; and its memory is one of huge
        pages, which matters for many.
        """
        if self.maker is not None:
            return self.maker.now(self.backend.ids(ids))
        if self._plain is not None:
            return torch.from_numpy(self._plain.take(ids.numpy(), 0))
        rows = self.rows if self.rows is not None else self.tensor
        rows = rows.index_select(0, ids if self.backend.is_compiled else ids.to(rows.device))
        return rows if self.out_dtype is None else rows.to(self.out_dtype)

    def gather(self, ids: Ids) -> Tensor:
        """Like `read`, but by threads where there are many."""
        if self._plain is not None and self.maker is None:
            return torch.from_numpy(take(self._plain, ids.array))
        return self.read(ids.tensor) if self.maker is None else self.maker.now(ids)

    def remember(self, ids: Ids) -> None:
        """Take note of the rows `ids` before something writes to them."""
        self._before.append((ids, self.tensor[ids.tensor.to(self.tensor.device)]))

    def rows_before(self, ids: Ids) -> Tensor:
        """Stored rows `ids`, `[k, ...]`, as they stood before the running update."""
        rows = self.read(ids.tensor)
        noted = list(self._before)
        if self.ids is not None and self.old is not None:
            old = self.old[: self.ids.count]
            old = torch.from_numpy(old) if self.backend.is_compiled else old
            noted.append((self.ids, old.view(-1, *self._tail)))
        for of, old in reversed(noted):  # the first note is the oldest
            at, where = _common(np.asarray(ids.array), np.asarray(of.array))
            rows[at.to(rows.device)] = old[where.to(rows.device)].to(rows.dtype)
        return rows

    def current(self) -> Tensor:
        """The rows of all nodes."""
        return self.tensor if self.nodes is None else self.whole(self.nodes.num_nodes)

    def whole(self, count: int) -> Tensor:
        """The first `count` rows."""
        if self.maker is not None:
            return self.read(torch.arange(count))
        return self.part(0, count)

    def part(self, first: int, last: int) -> Tensor:
        """The rows from `first` to before `last`."""
        if self.maker is not None:
            return self.read(torch.arange(first, last))
        rows = self.tensor[first:last]
        return rows if self.out_dtype is None else rows.to(self.out_dtype)

    def commit(self, ids: Ids, new: Tensor, first_new: int) -> int:
        """Write new rows and keep as `ids` those that differ from what was stored.

        Returns their number.
        """
        count = ids.count
        changed, where = self.backend.room(count), self.backend.room(count)
        old = self._room_for_old(count)
        n = self._write(ids.array, new, old, first_new, changed, where)
        if n == count:
            self.ids, self.fresh = ids, new
        elif n:
            self.ids = self.backend.ids_from(changed[:n])
            rows = self.backend.ids_from(where[:n]).tensor
            self.fresh = new.index_select(0, rows.to(new.device))
        return n

    def commit_parts(
        self, ids: Ids, make: Callable[[int, int], Tensor], size: int, first_new: int
    ) -> int:
        """Like `commit`, for many rows; `make` computes those from some to before another.

        They are never in memory all at once.
        """
        changed, where = self.backend.room(ids.count), self.backend.room(size)
        old = self._room_for_old(ids.count)
        n = 0
        for first in range(0, ids.count, size):
            last = min(first + size, ids.count)
            n += self._write(
                ids.array[first:last], make(first, last), old[n:], first_new, changed[n:], where
            )
        if n:
            self.ids = ids if n == ids.count else self.backend.ids_from(changed[:n])
        return n

    def _room_for_old(self, count: int) -> Array:
        if not self.keeps_old:
            return self._no_old
        self.old = self.backend.like_array(self.array[:count])
        return self.old

    def _write(
        self, ids: Array, new: Tensor, old: Array, first_new: int, changed: Array, where: Array
    ) -> int:
        """Write `new` to the rows `ids`; see the kernel `commit`."""
        if new.dtype is not self._dtype or new.shape[1:] != self._tail:
            raise UnsupportedModelError(
                f"step '{self.value}' made rows of {new.dtype} {list(new.shape[1:])}, but of "
                f"{self._dtype} {list(self._tail)} in the first pass; the model behaves "
                "differently on fewer rows"
            )
        flat = new if new.dim() == 2 else new.reshape(len(new), self._tail.numel())
        compare = self.backend.array(flat.contiguous())
        if not self.compares_values:
            compare, old = compare.view(self._bit_type), old.view(self._bit_type)
        n: int = self.backend.kernels.commit(
            self.bits, ids, compare, old, first_new, changed, where
        )
        return n


class Context:
    """What the steps on one kind of nodes, and those over one graph into them, share.

    Attributes:
        graph: The edges that lead to these nodes; None where a step has to do with none.
        events: What the running delta did to the edges, as kernels take it.
        num_events: Number of edges among them.
        lists: Neighbour lists along out-edges and along in-edges.
        stats: The work done so far, by all steps of the model.
        others: What `NodeSet` says of the nodes, read anew with every update.
    """

    def __init__(self, nodes: NodeSet, graph: DynamicGraph | None, backend: Backend) -> None:
        self.nodes = nodes
        self._graph = graph
        self.backend = backend
        self.kernels = backend.kernels
        self.scratch = nodes.scratch
        self.begin(NO_EVENTS, [])

    def begin(self, events: EdgeEvents, stats: Work) -> None:
        """Start an update; the graph and the nodes have been changed already."""
        nodes, graph = self.nodes, self._graph
        self.stats = stats
        self.num_nodes, self.first_new = nodes.num_nodes, nodes.first_new
        self.renew_ids, self.settle = nodes.renew_ids, nodes.settle
        self.events = events
        self.num_events = 0
        if graph is None:
            return
        self.lists = (graph.out, graph.inn)
        self.num_events = (
            len(events.removed.slots) + len(events.added.slots) + len(events.changed.slots)
        )
        if not self.backend.is_compiled:
            self.lists = (_as_tensors(graph.out), _as_tensors(graph.inn))
            self.events = EdgeEvents(
                removed=_as_tensors(events.removed),
                added=_as_tensors(events.added),
                changed=_as_tensors(events.changed),
                overwritten=events.overwritten,
            )

    @property
    def graph(self) -> DynamicGraph:
        """The graph, which has to be there."""
        if self._graph is None:
            raise RuntimeError("a step over nodes alone asks for edges")
        return self._graph

    @property
    def all_nodes(self) -> Ids:
        """`arange(num_nodes)`."""
        return self.nodes.all_nodes

    @property
    def capacity(self) -> int:
        """How many rows node values have room for."""
        return self.scratch.size

    @property
    def renew(self) -> Tensor:
        """The rows to be made afresh, int64 `[k]`."""
        return NO_IDS if self.renew_ids is None else self.renew_ids.tensor

    def unite(self, sets: list[Ids]) -> Ids:
        """The distinct ids of some sets; one that stands alone or holds all nodes is returned."""
        if len(sets) == 1:
            return sets[0]
        if self.nodes.all_nodes in sets:
            return self.nodes.all_nodes
        scratch, unite = self.scratch, self.kernels.unite
        epoch, count = scratch.next(), 0
        for ids in sets:
            count = unite(ids.array, scratch.touched, count, scratch.stamp, epoch)
        return scratch.taken(count)


def _common(ids: NDArray[np.int64], of: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Places in `ids` of those that are in `of`, and their places there."""
    order = np.argsort(of)
    if not order.size:
        return NO_IDS, NO_IDS
    place = order[np.minimum(np.searchsorted(of, ids, sorter=order), order.size - 1)]
    at = np.flatnonzero(of[place] == ids)
    return torch.from_numpy(at), torch.from_numpy(place[at])


def _as_tensors(arrays: T) -> T:
    return type(arrays)(*map(torch.from_numpy, arrays))

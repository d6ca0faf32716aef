"""Edges that come and go in amortised constant time: slots, neighbour lists and a hash table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.graph.room import AddressRoom
from pyg_incremental.graph.storage import Storage, write_rows
from pyg_incremental.kernels import adjacency as kernel
from pyg_incremental.kernels import graph_at, pairs
from pyg_incremental.kernels.adjacency import Adjacency, Slots
from pyg_incremental.typing import MAX_EDGES, MAX_NODES, Array

Ids = NDArray[np.int64]
PART = 1 << 22
"""Slots looked at at a time, where all are: it bounds what is held beside them to 32 MB."""
SLACK = 2
"""Entries of every list that are free at first, so that few edges move one; 16 bytes for a node."""
ROOM = 1 << 22
"""Entries of a pool, 32 MB, that are too few to save memory on: it grows by as much as a half."""

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)


class Edges(NamedTuple):
    """Some edges: their slots and endpoints, int64 `[k]` each."""

    slots: Array
    src: Array
    dst: Array


class EdgeEvents(NamedTuple):
    """What one delta did to the edges.

    Removed slots keep their endpoints and data until `EdgeStore.release`, because a retraction
    needs the OLD data.
    """

    removed: Edges
    added: Edges
    changed: Edges
    overwritten: Mapping[str, Tensor]
    """The OLD data of the changed edges, by name, where it was given anew."""


class EdgeStore:
    """The edges of a graph, changed in steps as an update needs it.

    Args:
        edge_index: Sources and targets, int64 `[2, num_edges]`; a ValueError for 2^31 and more.
        num_nodes: Number of nodes, likewise.
        edge_data: Per-edge tensors `[num_edges, ...]` by name, such as `edge_weight`.
        storage: What makes the arrays that grow with the graph.

    Attributes:
        most_gone: Ages are counted anew before more than these many, and more than there are
            edges, belong to edges that left; None where it is only a matter of room.
        times_counted: How often that was done.

    Adding or deleting an edge costs amortised constant time: a list that is full moves to a quarter
    more room, and a pool that is full is packed into one a third larger. Nothing else grows with
    the graph.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        edge_data: dict[str, Tensor] | None = None,
        storage: Storage | None = None,
    ) -> None:
        if num_nodes > MAX_NODES or edge_index.shape[1] > MAX_EDGES:
            raise ValueError(
                f"a graph holds at most {MAX_NODES} nodes and as many edges "
                f"(got {num_nodes} nodes and {edge_index.shape[1]} edges); partition it"
            )
        edges = edge_index.detach().cpu().numpy()
        count: int = edges.shape[1]
        self.num_nodes = num_nodes
        self.num_edges = count
        self.storage = storage = storage or Storage()
        # Some room, so that the first update does not pay for growing.
        room = min(MAX_EDGES, count + count // 16 + 16)
        self.slots = Slots(*(storage.zeros(np.int32, room) for _ in Slots._fields))
        self.slots.in_at.fill(-1)
        for first in range(0, room, PART):
            part = self.slots.order[first : first + PART]
            part[:] = np.arange(first, first + part.size)
        src, dst = self.slots.src[:count], self.slots.dst[:count]
        src[:], dst[:] = edges
        self.next_order = count
        self.most_gone: int | None = None
        self.times_counted = 0
        self._end = count  # slots at and behind it were never used
        self._ages_ascend = True  # from slot to slot
        self._free: Ids = np.empty(0, np.int64)  # a stack, of which `_num_free` entries count
        self._num_free = 0
        self.out = self._group(src, dst, self.slots.out_at)
        self.inn = self._group(dst, src, self.slots.in_at)
        self._tops = np.full(2, count + SLACK * num_nodes, np.int64)
        self._placed: tuple[Any, ...] = (None,) * 4
        self._tabulate()
        self.edge_data = {
            name: storage.more_rows(t.detach(), room) for name, t in (edge_data or {}).items()
        }
        self._rooms: defaultdict[str, AddressRoom] = defaultdict(partial(AddressRoom, storage))

    def _group(
        self, key: NDArray[np.int32], other: NDArray[np.int32], at: NDArray[np.int32]
    ) -> Adjacency:
        n, count = self.num_nodes, key.size
        size = count + SLACK * n + min(count // 4, max(count // 16, ROOM // 4)) + 1024
        zeros = self.storage.zeros
        adj = Adjacency(
            start=zeros(np.int64, n),
            degree=zeros(np.int32, n),
            capacity=zeros(np.int32, n),
            neighbor=zeros(np.int32, size),
            edge=zeros(np.int32, size),
        )
        kernel.group(key, other, adj.degree, adj.start, adj.neighbor, adj.edge, at, SLACK)
        adj.capacity[:] = adj.degree + SLACK
        return adj

    def _tabulate(self) -> None:
        """Make the hash table."""
        self._table = self._new_table(self.num_edges)
        self._used = 0
        # Chains run from young to old, so slots are entered in the order in which their edges came.
        for some in self._in_order():
            self._used += pairs.enter(some, self._table, self.slots)

    def _new_table(self, edges: int) -> NDArray[np.int32]:
        """An empty table, at most half full once so many edges are in, and with some room more."""
        size = 1 << max(4, int(2 * (edges + edges // 16)).bit_length())
        table = self.storage.zeros(np.int32, size)
        table.fill(pairs.EMPTY)
        return table

    def _make_table_room(self, count: int) -> None:
        """Move what the table holds to a larger one, in which there is room for `count` more."""
        table = self._new_table(self.num_edges + count)
        used = pairs.move(self._table, table, self.slots)
        self._table, self._used = table, used

    # Reading ---------------------------------------------------------------------------------

    def slots_in_order(self) -> Ids:
        """The slots of the current edges, int64 `[num_edges]`, in order of insertion."""
        live = np.flatnonzero(self.slots.in_at[: self._end] >= 0)
        return live if self._ages_ascend else self.by_age(live)

    def by_age(self, slots: Ids) -> Ids:
        """Some slots, int64 `[k]`, that of the oldest edge first."""
        if self._ages_ascend:
            return np.sort(slots)
        return slots[np.argsort(self.slots.order[slots], kind="stable")]

    def _in_order(self) -> Iterator[Ids]:
        """The slots of the current edges, some at a time, in order of insertion."""
        if not self._ages_ascend:
            yield self.slots_in_order()
            return
        for first in range(0, self._end, PART):
            part = self.slots.in_at[first : min(first + PART, self._end)]
            yield np.flatnonzero(part >= 0) + first

    def find(self, src: Ids, dst: Ids) -> Ids:
        """The slot of the most recently added edge of each pair, int64 `[k]`; -1 for none."""
        found = np.empty(src.size, np.int64)
        pairs.find(src, dst, self._table, self.slots, found)
        return found

    def edges(self, slots: Ids) -> Edges:
        """Some slots, int64 `[k]`, with their endpoints."""
        if not slots.size:
            return Edges(slots, slots, slots)
        return Edges(
            slots, self.slots.src[slots].astype(np.int64), self.slots.dst[slots].astype(np.int64)
        )

    def places(self) -> NDArray[np.int64]:
        """Where the parts are in memory, for `kernels.graph_at`."""
        parts = (self.out, self.inn, self.slots, self._table)
        if not all(map(is_, parts, self._placed)):
            # In this order: an exception in between leaves them to be looked up again.
            self._places = graph_at.places_of(*parts, self._tops)
            self._placed = parts
        return self._places

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_placed": (None,) * 4}  # what is copied lies elsewhere

    @property
    def slot_capacity(self) -> int:
        """Number of edge slots, used or not: the length of every per-slot array."""
        return int(self.slots.src.size)

    # Changing in steps -----------------------------------------------------------------------

    def resolve_removal(self, src: Ids, dst: Ids, sources: Ids, targets: Ids) -> tuple[Ids, Ids]:
        """Find the slots that leave, without changing anything.

        Args:
            src: Sources of the edges to remove, int64 `[k]`; each pair removes one occurrence, the
                youngest first.
            dst: Their targets, int64 `[k]`.
            sources: Nodes of which every other edge that starts there leaves too, int64 `[s]`.
            targets: Nodes of which every other edge that leads there leaves too, int64 `[t]`.

        Returns:
            The slots of the pairs, int64 `[k]` (-1: no such edge), and those that leave with the
            nodes.
        """
        listed = np.empty(src.size, np.int64)
        with_nodes = sources.size or targets.size
        if not with_nodes and pairs.find_distinct(src, dst, self._table, self.slots, listed)[1]:
            return listed, _NONE
        out, inn = self.out, self.inn
        more = np.empty(int(out.degree[sources].sum() + inn.degree[targets].sum()), np.int64)
        count = graph_at.leaving(
            src, dst, sources, targets, out, inn, self._table, self.slots, listed, more
        )
        return listed, more[:count]

    def accept(self, added: Ids, gone: Ids, ids: Ids, num_nodes: int) -> Ids | None:
        """The slots of the edges `gone`, int64 `[m]`, if a delta is plain and valid; else None.

        That is: all of `added`, `[2, k]`, `gone`, `[2, m]`, and `ids`, `[c]`, lie in
        `[0, num_nodes)`, `ids` are distinct, and the edges are there. Nothing changes.
        """
        found = np.empty(gone.shape[1], np.int64)
        valid = graph_at.accept(self.places(), added, gone, ids, num_nodes, found)
        return found if valid else None

    def resolve_change(self, src: Ids, dst: Ids, removed: Ids) -> Ids:
        """The youngest slot of each (distinct) pair once `removed` is gone, -1 where none is left.

        Pairs and answer are int64 `[k]`, the slots `removed` `[m]`. Nothing changes.
        """
        if not removed.size:
            return self.find(src, dst)
        found = np.empty(src.size, np.int64)
        pairs.find_without(removed, src, dst, self._table, self.slots, found)
        return found

    def remove(self, slots: Ids) -> None:
        """Take edges out: slots, int64 `[m]`. Endpoints and data stay readable until `release`."""
        self._change(_NO_EDGES, slots, _NONE)
        self.num_edges -= slots.size

    def add(self, src: Ids, dst: Ids, data: dict[str, Tensor]) -> Ids:
        """Append edges with their data `[k, ...]`; returns their slots, int64 `[k]`."""
        count = src.size
        taken = self._take(count)
        if self.next_order + count > MAX_EDGES:
            self._count_anew()  # those of a graph of one's own, to which edges only come
        if 2 * (self._used + count) > self._table.size:
            self._make_table_room(count)
        for side, key in enumerate((src, dst)):
            self._make_room(side, key)
        self._change(np.stack([src, dst]), _NONE, taken)
        self.next_order += count
        self.num_edges += count
        self.write(taken, data)
        return taken

    def _change(self, ends: Ids, left: Ids, taken: Ids) -> None:
        """Take edges out of table and lists, and put edges, `[2, k]`, into both."""
        places = self.places()
        self._used += graph_at.change_pairs(places, ends, left, taken, self.next_order)
        for side in range(2):
            graph_at.change_list(places, side, ends, left, taken)

    def ready_for(self, added: int, removed: int) -> tuple[Ids, int, int, int] | None:
        """What `kernels.graph_at` has to know to take edges in; None if there is too little room.

        That is: a stack of free slots, how many it holds, the first slot that was never used, and
        the age of the next edge.
        """
        if (
            self._end + added - self._num_free > self.slots.src.size
            or 2 * (self._used + added) > self._table.size
            or self._ages_are_large(added)
        ):
            return None
        self._make_free_room(self._num_free + removed)
        return self._free, self._num_free, self._end, self.next_order

    def changed(self, added: int, removed: int, used: int) -> None:
        """Take notice of a change by `kernels.graph_at`, which used that many places of the table.

        Ages are not counted anew here, because somebody may hold one until the update is through.
        """
        reused = min(added, self._num_free)
        self._ages_ascend &= reused == 0
        self._num_free += removed - reused
        self._end += added - reused
        self.next_order += added
        self.num_edges += added - removed
        self._used += used

    def write(self, slots: Ids, data: Mapping[str, Tensor]) -> None:
        """Set data of some slots, int64 `[k]`: tensors `[k, ...]` by name."""
        for name, rows in data.items():
            write_rows(self.edge_data[name], slots, rows)

    def release(self, slots: Ids) -> None:
        """Let removed slots, int64 `[m]`, be used again; nobody may hold an age."""
        self.free(slots)
        self.count_anew_if_due()

    def free(self, slots: Ids) -> None:
        """Let removed slots, int64 `[m]`, be used again."""
        needed = self._num_free + slots.size
        self._make_free_room(needed)
        self._free[self._num_free : needed] = slots
        self._num_free = needed

    def _make_free_room(self, count: int) -> None:
        """See that so many free slots can be listed."""
        if count > self._free.size:
            self._free = self.storage.longer(self._free, max(16, 2 * count))

    def count_anew_if_due(self) -> None:
        """Number the ages of the edges from zero if they have become large."""
        if self._ages_are_large(0):
            self._count_anew()

    def append_nodes(self, count: int) -> None:
        """Append isolated nodes."""
        self.make_node_room(self.num_nodes + count)
        self.num_nodes += count

    def make_node_room(self, count: int) -> None:
        """See that both neighbour lists have room for `count` nodes, with slack if they grow."""
        if count > self.out.start.size:
            room = max(count, 3 * count // 2)
            out, inn = (self.storage.more_nodes(lists, room) for lists in (self.out, self.inn))
            self.out, self.inn = out, inn  # both, or none where there is no room

    def _ages_are_large(self, added: int) -> bool:
        """Whether it is time to count the ages anew; there is room for many more by then."""
        most = (MAX_EDGES - self.num_edges) // 2
        if self.most_gone is not None:
            most = min(most, max(self.most_gone, self.num_edges))
        return self.next_order + added - self.num_edges > most

    def _count_anew(self) -> None:
        """Number the ages of the current edges from zero."""
        live = self.slots_in_order()
        self.slots.order[live] = np.arange(live.size, dtype=np.int32)
        self.next_order = live.size
        self.times_counted += 1

    def _take(self, count: int) -> Ids:
        """Free slots, the most recently freed first, then fresh ones."""
        reused = min(count, self._num_free)
        self._ages_ascend &= reused == 0
        self._num_free -= reused
        taken: Ids = self._free[self._num_free : self._num_free + reused].copy()
        fresh = count - reused
        if not fresh:
            return taken
        if self._end + fresh > self.slot_capacity:
            self._grow_slots(self._end + fresh)
        taken = np.concatenate([taken, np.arange(self._end, self._end + fresh)])
        self._end += fresh
        return taken

    def _grow_slots(self, needed: int) -> None:
        room = min(MAX_EDGES, needed + max(16, needed // 4, min(needed // 2, ROOM)))
        in_at = self._rooms["in_at"].longer(self.slots.in_at, room)
        in_at[self.slots.in_at.size :] = -1
        self.slots = self.slots._replace(in_at=in_at)
        for name in ("dst", "out_at", "older", "order", "src"):  # no two are there twice
            longer = self._rooms[name].longer(getattr(self.slots, name), room)
            self.slots = self.slots._replace(**{name: longer})
        for name, t in self.edge_data.items():
            self.edge_data[name] = self._rooms[f"edge_data.{name}"].longer_rows(t, room)

    def _make_room(self, side: int, key: Ids) -> None:
        """Pack a pool without room for one more entry of each of `key` into one a third larger."""
        adj = self.inn if side else self.out
        if kernel.fits(key, adj, self._tops[side]):
            return
        live = int(np.maximum(adj.capacity, adj.degree)[: self.num_nodes].sum())
        room = min(2 * live, max(live // 3, ROOM))
        size = live + max(room, 4 * kernel.needed(key, adj)) + 1024
        neighbor, edge = (self.storage.zeros(np.int32, size) for _ in range(2))
        self._tops[side] = kernel.compact(adj, neighbor, edge, 2**30)
        setattr(self, "inn" if side else "out", adj._replace(neighbor=neighbor, edge=edge))

"""A directed multigraph whose edges come and go, as a user sees it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_order import EdgeOrder
from pyg_incremental.graph.edge_store import EdgeStore, Ids
from pyg_incremental.graph.storage import Storage
from pyg_incremental.kernels import adjacency as kernel

_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)
_NO_DATA: Mapping[str, Tensor] = {}
_COUNTS = (
    "num_nodes", "num_edges", "next_order", "_end", "_ages_ascend", "_num_free", "_used",
)  # fmt: skip

_SHOWN = (
    "num_nodes", "num_edges", "edge_data", "to_edge_index", "add_edges", "delete_edges",
    "change_edges", "add_nodes", "remove_nodes",
)  # fmt: skip
"""What is of use to users: editors complete these."""


class DynamicGraph(EdgeStore):
    """Edges with data, multiplicity and self-loops, and the neighbour lists of both directions.

    Args:
        edge_index: Sources and targets, int64 `[2, num_edges]`.
        num_nodes: Number of nodes, below 2^31.
        edge_data: Per-edge tensors `[num_edges, ...]` by name, such as `edge_weight` or
            `edge_attr`.
        by_target: Whether a model that reads all edges is given them sorted by target.
        storage: Where its arrays lie; in memory by default.

    Adding or deleting an edge costs amortised constant time: a list that is full moves to a quarter
    more room, and a pool that is full is packed into one a third larger. Nothing else grows with
    the graph.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        edge_data: dict[str, Tensor] | None = None,
        by_target: bool = False,
        storage: Storage | None = None,
    ) -> None:
        super().__init__(edge_index, num_nodes, edge_data, storage)
        self.by_target = by_target
        self._order: EdgeOrder | None = None
        self._owner = ""

    def __dir__(self) -> list[str]:  # the others are for the engine
        return [*_SHOWN, *(name for name in super().__dir__() if name.startswith("__"))]

    # Reading ---------------------------------------------------------------------------------

    def slots_for_model(self, some: Ids | None = None) -> Ids:
        """The slots, or some, int64 `[k]`, in the order in which a model is given the edges.

        That is the order of insertion, or by target if it insists.
        """
        slots = self.slots_in_order() if some is None else self.by_age(some)
        return slots[np.argsort(self.slots.dst[slots], kind="stable")] if self.by_target else slots

    def slots_in_use(self) -> Ids | slice:
        """The slots of the current edges, int64 `[num_edges]`: a slice if these are all."""
        if self.num_edges == self._end:
            return slice(self._end)
        return np.flatnonzero(self.slots.in_at[: self._end] >= 0)

    def in_order_for_model(self, slots: Ids) -> tuple[Ids, Ids]:
        """Places of some edges among all that a model is given, ascending, and their slots.

        Args:
            slots: Distinct slots that hold edges, int64 `[k]`.
        """
        if not slots.size:
            return _NONE.copy(), _NONE.copy()
        if not self.by_target:
            self._order = self._order or EdgeOrder(self)
            return self._order.places(slots)
        every = self.slots_for_model()
        place = np.empty(self.slot_capacity, np.int64)
        place[every] = np.arange(every.size)
        places = np.sort(place[slots])
        return places, every[places]

    def note_removed(self, slots: Ids) -> None:
        """Tell whoever counts edges which ones, int64 `[m]`, the running update has removed."""
        if self._order is not None:
            self._order.removed(slots)

    def to_edge_index(self) -> Tensor:
        """The current edges, int64 `[2, num_edges]`, in order of insertion."""
        slots = self.slots_in_order()
        return torch.from_numpy(self.ends_of(slots))

    def ends_of(self, slots: Ids) -> Ids:
        """Sources and targets of the edges in some slots, int64 `[2, k]`."""
        ends = np.empty((2, slots.size), np.int64)
        ends[0], ends[1] = self.slots.src[slots], self.slots.dst[slots]
        return ends

    # Changing a graph of one's own -----------------------------------------------------------

    def belongs_to(self, owner: str) -> None:
        """From here on it changes with the rows of a model, and the methods below refuse to."""
        self._owner = owner

    def _refuse_if_owned(self) -> None:
        if self._owner:
            raise InvalidDeltaError(
                f"this graph belongs to an incremental {self._owner}, whose rows would not follow; "
                "change it with apply_delta, or make one of your own: "
                "DynamicGraph(graph.to_edge_index(), graph.num_nodes)"
            )

    def add_edges(self, edge_index: Tensor, **edge_data: Tensor) -> None:
        """Append edges, int64 `[2, k]`, with a tensor `[k, ...]` for every name in `edge_data`.

        Like the other methods of this section it is for a graph of one's own: that of a model
        changes through `apply_delta`, which keeps the model's rows in step.

        Raises:
            InvalidDeltaError: If a node is not there, the names of the data differ, or the graph
                belongs to a model.
        """
        self._refuse_if_owned()
        src, dst = self._checked(edge_index)
        if edge_data.keys() != self.edge_data.keys():
            raise InvalidDeltaError(
                f"add_edges: expected edge data {sorted(self.edge_data)} (got {sorted(edge_data)})"
            )
        self.add(src, dst, edge_data)

    def delete_edges(self, edge_index: Tensor) -> None:
        """Delete the most recently added occurrence of each pair of `edge_index`, int64 `[2, k]`.

        Raises:
            InvalidDeltaError: If an edge is not there, or the graph belongs to a model. Nothing was
                deleted then.
        """
        self._refuse_if_owned()
        src, dst = self._checked(edge_index)
        self._leave(*self.resolve_removal(src, dst, _NONE, _NONE), src, dst)

    def change_edges(self, edge_index: Tensor, **edge_data: Tensor) -> None:
        """Give the most recently added occurrence of each pair of `edge_index` new data `[k, ...]`.

        The pairs are int64 `[2, k]`.

        Raises:
            InvalidDeltaError: If an edge is not there, or the graph belongs to a model. Nothing was
                changed then.
        """
        self._refuse_if_owned()
        src, dst = self._checked(edge_index)
        slots = self.find(src, dst)
        self._refuse_missing(slots, src, dst)
        self.write(slots, edge_data)

    def add_nodes(self, count: int) -> None:
        """Append isolated nodes.

        Raises:
            InvalidDeltaError: If the graph belongs to a model.
        """
        self._refuse_if_owned()
        self.append_nodes(count)

    def remove_nodes(self, nodes: Tensor) -> None:
        """Delete all edges of some nodes, int64 `[k]`; their ids stay, as isolated nodes.

        Raises:
            InvalidDeltaError: If the graph belongs to a model.
        """
        self._refuse_if_owned()
        ids = np.unique(nodes.numpy())
        self._leave(*self.resolve_removal(_NONE, _NONE, ids, ids), _NONE, _NONE)

    def _checked(self, edge_index: Tensor) -> tuple[Ids, Ids]:
        edges = edge_index.cpu().contiguous().to(torch.int64).numpy()
        at = kernel.out_of_range(edges.reshape(-1), self.num_nodes)
        if at >= 0:
            raise InvalidDeltaError(
                f"node {edges.reshape(-1)[at]} is not in [0, {self.num_nodes}); use add_nodes"
            )
        return edges[0], edges[1]

    @staticmethod
    def _refuse_missing(slots: Ids, src: Ids, dst: Ids) -> None:
        if slots.size and slots.min() < 0:
            at = int(np.argmin(slots))
            raise InvalidDeltaError(
                f"edge ({src[at]}, {dst[at]}) at position {at} is not in the graph"
            )

    def _leave(self, listed: Ids, more: Ids, src: Ids, dst: Ids) -> None:
        self._refuse_missing(listed, src, dst)
        slots = np.concatenate([listed, more])
        self.remove(slots)
        self.release(slots)

    def make_room(self, num_nodes: int, src: Ids, dst: Ids, removed: int) -> None:
        """See that a change needs no more room; what there is stays as it is.

        Args:
            num_nodes: Number of nodes then.
            src: Where edges that come start, int64 `[k]`.
            dst: Where they lead, int64 `[k]`.
            removed: How many edges leave.
        """
        self.make_node_room(num_nodes)
        end = self._end + src.size - min(src.size, self._num_free)
        if end > self.slot_capacity:
            self._grow_slots(end)
        if 2 * (self._used + src.size) > self._table.size:
            self._make_table_room(src.size)
        for side, key in enumerate((src, dst)):
            self._make_room(side, key)
        self._make_free_room(self._num_free + removed)

    @property
    def counts(self) -> tuple[Any, ...]:
        """What counts nodes, edges, slots and ages, to be set again where bytes are put back."""
        return tuple([getattr(self, name) for name in _COUNTS])

    @counts.setter
    def counts(self, counts: tuple[Any, ...]) -> None:
        for name, count in zip(_COUNTS, counts, strict=True):
            setattr(self, name, count)

    # Copies ----------------------------------------------------------------------------------

    def remade(
        self,
        num_nodes: int,
        removed: Ids = _NONE,
        order: int | None = None,
        added: Ids = _NO_EDGES,
        data: Mapping[str, Tensor] = _NO_DATA,
    ) -> "DynamicGraph":
        """A new graph: the edges from before `order` without `removed`, then `added` with `data`.

        Those are slots, int64 `[m]`, and edges, int64 `[2, k]`, with tensors `[k, ...]`. It only
        reads which slots hold edges, so it is right whatever an interrupt has left of the neighbour
        lists.
        """
        slots = self.slots_in_order()
        if order is not None:
            slots = slots[self.slots.order[slots] < order]
        slots = np.setdiff1d(slots, removed)
        slots = slots[np.argsort(self.slots.order[slots], kind="stable")]
        kept = self.ends_of(slots)
        at = torch.from_numpy(slots)
        rows = {
            k: torch.cat([t[at], data[k]]) if k in data else t[at]
            for k, t in self.edge_data.items()
        }
        edges = torch.from_numpy(np.concatenate([kept, added], axis=1))
        return DynamicGraph(edges, num_nodes, rows, self.by_target, self.storage)

    def before(
        self, num_nodes: int, order: int, removed: Ids, added: Ids = _NONE
    ) -> "DynamicGraph":
        """A new graph: that from before some changes, of which no slot is used again yet.

        Like `remade` it is right wherever these were interrupted.

        Args:
            num_nodes: Number of nodes at that time.
            order: The age of the first edge that they add.
            removed: The slots that leave, int64 `[m]`.
            added: The slots that come, where they are known, int64 `[k]`.
        """
        live = np.flatnonzero(self.slots.in_at[: self._end] >= 0)
        slots = np.union1d(live[self.slots.order[live] < order], removed)
        slots = np.setdiff1d(slots, added)
        slots = slots[np.argsort(self.slots.order[slots], kind="stable")]
        edges = self.ends_of(slots)
        data = {name: rows[torch.from_numpy(slots)] for name, rows in self.edge_data.items()}
        edge_index = torch.from_numpy(edges)
        return DynamicGraph(edge_index, num_nodes, data, self.by_target, self.storage)

    def state(self, for_model: bool = False) -> dict[str, Tensor]:
        """The current edges and their data, as plain tensors.

        They are in order of insertion, or as a model is given them.
        """
        slots = self.slots_for_model() if for_model else self.slots_in_order()
        at = torch.from_numpy(slots)
        return {
            "edge_index": torch.from_numpy(self.ends_of(slots)),
            **{k: t[at] for k, t in self.edge_data.items()},
        }

    def lists(self) -> dict[str, Tensor]:
        """Both neighbour lists in a form that does not depend on their layout.

        That is (node, neighbour, age) of every entry, sorted.
        """
        age = np.empty(self.slot_capacity, np.int64)
        slots = self.slots_in_order()
        age[slots] = np.arange(slots.size)
        found = {}
        for name, adj in (("out", self.out), ("in", self.inn)):
            degree = adj.degree[: self.num_nodes].astype(np.int64)
            node = np.repeat(np.arange(self.num_nodes), degree)
            at = (
                np.arange(node.size)
                - np.repeat(np.cumsum(degree) - degree, degree)
                + adj.start[node]
            )
            entries = np.stack([node, adj.neighbor[at], age[adj.edge[at]]])
            found[name] = torch.from_numpy(entries[:, np.lexsort(entries[::-1])])
        return found

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        parts += [f"{k}={list(t.shape[1:])}" for k, t in self.edge_data.items()]
        return f"{type(self).__name__}({', '.join(parts)})"

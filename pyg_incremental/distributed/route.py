"""A delta in global ids, checked and taken apart: who has to be told what.

Any rank may hand in a delta, or a part of one; the parts count as one delta, in the order of the
ranks. The checks are those of the single process (`pyg_incremental.resolve`), run against a
stand-in for the graph; whether an edge is there at all, only its owner can tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta import GraphDelta
from pyg_incremental.distributed.owners import Owners
from pyg_incremental.distributed.partition import place_new
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.resolve import Resolver
from pyg_incremental.roles import Roles

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)


@dataclass
class EdgeParcel:
    """What a rank is told of edges, in global ids.

    Attributes:
        deleted: Edges to delete, int64 `[2, m]`, and their places in the list that was given.
        added: Edges to add, int64 `[2, k]`, and their data by name.
        changed: Edges that get new data, int64 `[2, r]`, their places, and the data by name.
    """

    deleted: Ids
    deleted_at: Ids
    added: Ids
    added_data: dict[str, Tensor]
    changed: Ids
    changed_at: Ids
    changed_data: dict[str, Tensor]


@dataclass
class Parcel:
    """What one rank is told by another of a delta.

    Attributes:
        new_ids: New nodes that it owns.
        new_rows: Their rows of each node input.
        rows: For each node input ids of nodes that it owns and their new rows.
        removed: All nodes that are removed, whoever owns them.
        edges: What happens to its in-edges, and to its out-edges.
        listed: How many edges were listed to be deleted and changed, by the whole part.
    """

    new_ids: Ids
    new_rows: dict[str, Tensor]
    rows: dict[str, tuple[Ids, Tensor]]
    removed: Ids
    edges: dict[bool, EdgeParcel] = field(default_factory=dict)
    listed: tuple[int, int] = (0, 0)


@dataclass
class Checked:
    """A part of a delta that is fine as far as one can tell without the edges.

    Attributes:
        new_rows: Rows of new nodes by input.
        rows: Distinct ids and new rows by input.
        removed: Nodes that are removed.
        deleted: Edges to delete, int64 `[2, m]`.
        added: Edges to add, int64 `[2, k]`, both directions where that was asked for.
        added_data: Their data by name.
        changed: Distinct edges that get new data, int64 `[2, r]`.
        changed_data: The data by name.
    """

    new_rows: dict[str, Tensor]
    rows: dict[str, tuple[Ids, Tensor]]
    removed: Ids
    deleted: Ids
    added: Ids
    added_data: dict[str, Tensor]
    changed: Ids
    changed_data: dict[str, Tensor]


class _AnyGraph:
    """Stands for a graph in which every edge is there; notes which ones are asked for."""

    num_edges = 0

    def __init__(self, edge_data: Mapping[str, Tensor]) -> None:
        self.edge_data = dict(edge_data)
        self.deleted = self.changed = _NO_EDGES

    def accept(self, *_: object) -> None:
        """No delta is so plain that nobody has to look at it."""

    def resolve_removal(self, src: Ids, dst: Ids, *_: Ids) -> tuple[Ids, Ids]:
        """Places in the list in place of slots."""
        self.deleted = np.stack([src, dst])
        return np.arange(src.size), _NONE

    def resolve_change(self, src: Ids, dst: Ids, _: Ids) -> Ids:
        """Likewise."""
        self.changed = np.stack([src, dst])
        return np.arange(src.size)


class Router:
    """Checks parts of deltas and takes them apart.

    Args:
        roles: What the arguments of the call are: one graph on one kind of nodes.
        nodes: Node inputs without rows, `[0, ...]`.
        edges: Edge inputs without rows, `[0, ...]`.
        outward: Whether ranks hold out-edges as well.
    """

    def __init__(
        self, roles: Roles, nodes: Mapping[str, Tensor], edges: Mapping[str, Tensor], outward: bool
    ) -> None:
        self._roles = roles
        self._nodes = dict(nodes)
        self._edges = dict(edges)
        self._ways = (False, True) if outward else (False,)
        self._kind = roles.kinds[0]
        self._graph = roles.relations[0].graph

    def _resolver(self, num_nodes: int) -> tuple[Resolver, _AnyGraph]:
        graph = _AnyGraph(self._edges)
        graphs = {self._graph: cast(DynamicGraph, graph)}
        return Resolver(self._roles, graphs, {self._kind: num_nodes}, self._nodes), graph

    def new_rows(self, delta: GraphDelta, num_nodes: int) -> dict[str, Tensor]:
        """Rows of new nodes by input, checked."""
        if delta.x_add is None:
            return {}
        resolver, _ = self._resolver(num_nodes)
        resolved = resolver.resolve(GraphDelta(x_add=delta.x_add))
        return {name: rows for name, (_, rows) in resolved.rows.items()}

    def check(
        self, delta: GraphDelta, new_rows: dict[str, Tensor], num_nodes: int, total: int
    ) -> Checked:
        """Check all else.

        Args:
            delta: The part.
            new_rows: What `new_rows` has returned.
            num_nodes: Number of nodes before.
            total: Number of nodes with the new ones of all ranks.

        Raises:
            InvalidDeltaError: With what is wrong.
        """
        new = next((len(rows) for rows in new_rows.values()), 0)
        if new and num_nodes + new == total:
            self._resolver(num_nodes)[0].resolve(delta)  # speaks as the single process does
        resolver, graph = self._resolver(total)
        one = resolver.resolve(replace(delta, x_add=None, nodes_del=None, edge_changes=None))
        edges = one.edges.get(self._graph)
        two = resolver.resolve(
            GraphDelta(
                edge_changes=delta.edge_changes, undirected=delta.undirected, missing=delta.missing
            )
        ).edges.get(self._graph)
        removed = _NONE
        if delta.nodes_del is not None:
            removed = np.unique(resolver.ids(delta.nodes_del, "nodes_del")[self._kind])
        return Checked(
            new_rows,
            {name: (ids.numpy(), rows) for name, (ids, rows) in one.rows.items()},
            removed,
            graph.deleted,
            _NO_EDGES if edges is None else edges.added,
            {} if edges is None else edges.added_data,
            graph.changed,
            {} if two is None else two.changed_data,
        )

    def place(self, part: Checked, first: int, owners: Owners) -> NDArray[np.int16]:
        """The ranks of a part's new nodes, of which `first` is the first id."""
        count = next((len(rows) for rows in part.new_rows.values()), 0)
        known = _Known(owners)
        return place_new(first, count, part.added, known, owners.sizes)

    def parcels(
        self, part: Checked, first: int, owners: Owners, new: NDArray[np.int16]
    ) -> list[Parcel | None]:
        """What each rank is to be told.

        Args:
            part: The part.
            first: The id of its first new node.
            owners: Who owns the nodes that are there.
            new: The ranks of all new nodes, of all parts.
        """

        def rank_of(ids: Ids) -> NDArray[np.int16]:
            return owners.with_new(new, ids)

        count = next((len(rows) for rows in part.new_rows.values()), 0)
        new_ids = np.arange(first, first + count)
        new_to = rank_of(new_ids)
        rows_to = {name: rank_of(ids) for name, (ids, _) in part.rows.items()}
        ends = {out: 0 if out else 1 for out in self._ways}
        edges_to = {
            out: tuple(rank_of(e[end]) for e in (part.deleted, part.added, part.changed))
            for out, end in ends.items()
        }
        found: list[Parcel | None] = []
        for rank in range(owners.sizes.size):
            mine = np.flatnonzero(new_to == rank)
            parcel = Parcel(
                new_ids[mine],
                {name: rows[_at(mine)] for name, rows in part.new_rows.items()}
                if mine.size
                else {},
                {
                    name: (ids[to], rows[_at(to)])
                    for name, (ids, rows) in part.rows.items()
                    if (to := np.flatnonzero(rows_to[name] == rank)).size
                },
                part.removed,
                listed=(part.deleted.shape[1], part.changed.shape[1]),
            )
            for out, to_rank in edges_to.items():
                gone, come, other = (np.flatnonzero(to == rank) for to in to_rank)
                if gone.size or come.size or other.size:
                    parcel.edges[out] = EdgeParcel(
                        part.deleted[:, gone], gone,
                        part.added[:, come], {k: v[_at(come)] for k, v in part.added_data.items()},
                        part.changed[:, other], other,
                        {k: v[_at(other)] for k, v in part.changed_data.items()},
                    )  # fmt: skip
            says = mine.size or parcel.rows or parcel.removed.size or parcel.edges
            found.append(parcel if says else None)
        return found


class _Known:
    """The owners as the array that `place_new` looks into."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self.size = owners.num_nodes

    def __getitem__(self, ids: Ids) -> NDArray[np.int16]:
        return self._owners[ids]


def _at(places: Ids) -> Tensor:
    return torch.from_numpy(places)


@dataclass(frozen=True)
class Absent:
    """Edges that a delta names and that are not there.

    Attributes:
        field: The field of the delta.
        place: The place of the first of them in the list.
        pair: Its ends.
        count: How many.
        listed: How many edges were listed.
    """

    field: str
    place: int
    pair: tuple[int, int]
    count: int
    listed: int


def absent_error(found: list[Absent]) -> InvalidDeltaError:
    """What to say of edges that are not there, put together from all ranks."""
    order = ("edge_index_del", "edge_changes[0]")
    field = min((a.field for a in found), key=order.index)
    same = [a for a in found if a.field == field]
    first = min(same, key=lambda a: a.place)
    u, v = first.pair
    return InvalidDeltaError(
        f"{field}: edge ({u}, {v}) at position {first.place} is not in the graph (or is listed "
        f"more often than it occurs); {sum(a.count for a in same)} of {first.listed} are missing. "
        "Use missing='ignore' to skip them"
    )


def says_anything(delta: GraphDelta) -> bool:
    """Whether any field of a delta is given."""
    return any(
        getattr(delta, f.name) is not None
        for f in fields(delta)
        if f.name not in ("undirected", "missing")
    ) or delta.missing not in ("error", "ignore")

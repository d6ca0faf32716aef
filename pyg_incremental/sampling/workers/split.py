"""What events say to each sampling worker: read once, numbered, sent to who keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_edges, check_ids
from pyg_incremental.delta.read.edges import check_edges
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.sampling.edges import EdgeChanges, SampledEdges
from pyg_incremental.sampling.features import FeatureChanges, Features
from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of, node_fields, parts_of
from pyg_incremental.sampling.workers.messages import EdgePart, NodePart, SampleQuery, WorkerDelta
from pyg_incremental.sampling.workers.owners import SAMPLING, split
from pyg_incremental.sampling.workers.route import Route
from pyg_incremental.sources.event import Event, num_events

Ids = NDArray[np.int64]
_NO_EDGES = np.empty((2, 0), np.int64)


class Splitter:
    """Reads deltas as a `StreamingSampler` does, and gives edges the ids that it would give.

    Args:
        query: What is sampled.
        num_nodes: Number of nodes of each type; none by default.
        next_id: The id of the next record of each edge type.

    Attributes:
        num_nodes: Number of nodes after the deltas that were read.
        next_id: The id of the next record.
    """

    def __init__(
        self,
        query: SampleQuery,
        num_nodes: Mapping[NodeType, int] | None = None,
        next_id: Mapping[EdgeType, int] | None = None,
    ) -> None:
        # A graph without edges checks what is added as the graph of a worker would.
        none, strategies = torch.empty((2, 0), dtype=torch.int64), query.strategies()
        self._query, self._routes = query, query.routes
        self._edges = {
            route.records: SampledEdges(
                none, (0, 0), query.num_neighbors[kind], strategies[kind], query.data[kind],
                _label(route.records),
            )
            for kind, route in self._routes.items()
        }  # fmt: skip
        self._features = {kind: Features(x, 0) for kind, x in query.x.items()}
        self.num_nodes = {**dict.fromkeys(query.x, 0), **(num_nodes or {})}
        self.next_id = {**dict.fromkeys(self._edges, 0), **(next_id or {})}

    def start(
        self,
        edges: Mapping[EdgeType, Tensor],
        data: Mapping[EdgeType, dict[str, Tensor]],
        x: Mapping[NodeType, Tensor],
        parts: int,
    ) -> list[WorkerDelta]:
        """The edges and the features that are there at first.

        Args:
            edges: The edges by type, int64 `[2, num_edges]`.
            data: Their data by type and name, `[num_edges, ...]`.
            x: The features by type, `[num_nodes, num_features]`.
            parts: The number of workers.

        Raises:
            InvalidDeltaError: If they do not fit.
        """
        if None in x:
            first = GraphDelta(edge_index_add=edges[None], edge_data_add=data[None], x_add=x[None])
        else:
            first = GraphDelta(edge_index_add=edges, edge_data_add=data, x_add=x)
        return self.read(first, parts)

    def expire(self, before: float, parts: int) -> list[WorkerDelta]:
        """Edges with times below `before` leave.

        Raises:
            ValueError: If edges come without times.
        """
        for edges in self._edges.values():
            edges.before(before)
        return [part._replace(before=before) for part in self.read(GraphDelta(), parts)]

    def read_all(
        self, given: Sequence[Event], parts: int
    ) -> tuple[list[list[WorkerDelta]], int, list[InvalidDeltaError]]:
        """What deltas say to each worker, how many events that is, and why others are left out."""
        found: list[list[WorkerDelta]] = [[] for _ in range(parts)]
        events, refused = 0, []
        for event in given:
            delta = event.value
            if event.error is not None:
                refused.append(_refusal(delta, event.error))
                continue
            try:
                said = self.read(delta, parts)
            except MemoryError:  # says nothing of the delta
                raise
            except Exception as error:  # a record holds whatever somebody has written into it
                refused.append(_refusal(delta, error))
                continue
            events += num_events(delta)
            for own, part in zip(found, said, strict=True):
                own.append(part)
        return found, events, refused

    def read(self, delta: GraphDelta, parts: int) -> list[WorkerDelta]:
        """What a delta says to each of `parts` sampling workers.

        Raises:
            InvalidDeltaError: If it does not fit; nothing was numbered then.
        """
        delta = delta.alone().both_directions()
        said = parts_of(delta, list(self._edges), list(self.num_nodes), None not in self.num_nodes)
        total = {kind: count + said.new_nodes[kind] for kind, count in self.num_nodes.items()}
        for name, gone in said.removed.items():
            check_ids(gone, f"nodes_del{_label(name)}", total[name])
        changes = {
            kind: self._changes(kind, own, total, said.removed) for kind, own in said.edges.items()
        }
        rows = {
            kind: self._features[kind].read(node_fields(delta, kind), count)
            for kind, count in self.num_nodes.items()
        }
        edges = {
            kind: self._edge_parts(route, *changes[route.records], parts)
            for kind, route in self._routes.items()
        }
        nodes = {
            kind: self._node_parts(kind, own, said.removed[kind], total[kind], parts)
            for kind, own in rows.items()
        }
        self.num_nodes = total
        for kind, (own, _) in changes.items():
            self.next_id[kind] += own.next_id
        return [
            WorkerDelta(
                {kind: own[part] for kind, own in edges.items()},
                {kind: of[part] for kind, of in nodes.items()},
                delta.which == "oldest",
            )
            for part in range(parts)
        ]

    def _changes(
        self,
        kind: EdgeType,
        delta: GraphDelta,
        total: Mapping[NodeType, int],
        removed: Mapping[NodeType, Ids],
    ) -> tuple[EdgeChanges, Ids]:
        """What comes of one type, and the edges that leave, `[2, m]`."""
        source, target = ends_of(kind)
        gone = _NO_EDGES
        if delta.edge_index_del is not None:
            gone = as_edges(delta.edge_index_del, "edge_index_del")
            limits = self.num_nodes[source], self.num_nodes[target]
            check_edges(gone, f"edge_index_del{_label(kind)}", limits)
        added = GraphDelta(
            edge_index_add=delta.edge_index_add,
            edge_weight_add=delta.edge_weight_add,
            edge_data_add=delta.edge_data_add,
            edge_changes=delta.edge_changes,
        )
        ends = (total[source], total[target]), (removed[source], removed[target])
        return self._edges[kind].resolve(added, *ends), gone

    def _edge_parts(
        self, route: Route, changes: EdgeChanges, gone: Ids, parts: int
    ) -> list[EdgePart]:
        owners = self._query.owners_of(ends_of(route.kind)[1])
        first = self.next_id[route.records]
        added, ids, data = route.take(changes.added, first + changes.ids, changes.data)
        leaving = route.leaving(gone)
        come = split(added[1], parts, SAMPLING, owners)
        go = split(leaving[1], parts, SAMPLING, owners)
        return [
            EdgePart(
                added=added[:, at],
                ids=ids[at],
                data={k: values[torch.from_numpy(at)] for k, values in data.items()},
                gone=leaving[:, left],
            )
            for at, left in zip(come, go, strict=True)
        ]

    def _node_parts(
        self, kind: NodeType, changes: FeatureChanges, removed: Ids, total: int, parts: int
    ) -> list[NodePart]:
        rows = self._query.x[kind][:0] if changes.rows is None else changes.rows
        owned = split(changes.ids, parts, SAMPLING, self._query.owners_of(kind))
        return [
            NodePart(removed, changes.ids[at], rows[torch.from_numpy(at)], total) for at in owned
        ]


def _refusal(delta: object, error: Exception) -> InvalidDeltaError:
    """Why a delta is left out."""
    if isinstance(error, InvalidDeltaError):
        return error
    refusal = InvalidDeltaError(
        f"a record cannot be read ({type(error).__name__}: {error}); expected a GraphDelta of "
        f"tensors, arrays or lists (got {type(delta).__name__})"
    )
    refusal.__cause__ = error
    return refusal


def _label(kind: EdgeType | NodeType) -> str:
    """What messages put behind the name of a field."""
    return f"[{kind!r}]" if kind else ""

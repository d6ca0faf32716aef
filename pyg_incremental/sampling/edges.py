"""The edges of one type with the samples of their targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler import SamplerOutput

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import (
    added_data,
    as_edges,
    as_tensor,
    edge_change_parts,
    rows_like,
)
from pyg_incremental.delta.read.edges import check_edges
from pyg_incremental.delta.resolve.edges import refuse_too_many
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.parallel import find_removed
from pyg_incremental.sampling.kernels import expand as kernel
from pyg_incremental.sampling.query import HopEdges, node_of, query_of, with_queries
from pyg_incremental.sampling.read import TIME, check_values
from pyg_incremental.sampling.reservoirs import Reservoirs
from pyg_incremental.sampling.strategy import Strategy
from pyg_incremental.sampling.targets import EdgesByTarget

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)
_NO_EDGES = np.empty((2, 0), np.int64)
ID, KEY = "edge_id", "key"


class EdgeChanges(NamedTuple):
    """What a delta does to the edges of one type; it can be done.

    Attributes:
        gone: The slots that leave, int64 `[m]`.
        added: The edges that come, int64 `[2, k]`.
        data: Their data by name, `[k]`.
        keys: Their keys, int64 `[k]`.
        ids: Their ids, int64 `[k]`, ascending.
        next_id: The id after those of all edges that are listed.
    """

    gone: Ids
    added: Ids
    data: dict[str, Tensor]
    keys: Ids
    ids: Ids
    next_id: int


class SampledEdges:
    """The edges of one type and, for each of their targets, those that are sampled.

    Neighbour lists, pairs and slots are those of `DynamicGraph`. An edge keeps the id that it came
    with: edges given at first are numbered from zero, and those that come later follow.

    Args:
        edge_index: Sources and targets, int64 `[2, num_edges]`.
        num_nodes: How many nodes there are at the sources and at the targets.
        fanouts: How many in-edges of each node are sampled in each hop; -1 for all.
        strategy: Which ones.
        data: What the strategy reads and the times of the edges, by name, `[num_edges]` each.
        label: What messages put behind the name of a field, such as the edge type in brackets.
        ids: The ids of the edges, int64 `[num_edges]`, ascending; from zero on by default.

    Attributes:
        next_id: The id that the next edge gets.
        latest: The largest time of any edge so far; None without times.
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: tuple[int, int],
        fanouts: list[int],
        strategy: Strategy,
        data: Mapping[str, Tensor],
        label: str = "",
        ids: Ids | None = None,
    ) -> None:
        self._label, self._strategy, self._turn = label, strategy, 0
        self.fanouts, self._limits = fanouts, np.array(fanouts, np.int64)
        self._places: Ids | None = None  # until something changes
        self.num_nodes = num_nodes
        edges = self._listed(edge_index, "edge_index", num_nodes)
        count = edges.shape[1]
        for name, values in data.items():
            check_values(values, f"{name}{label}", count)
        ids = np.arange(count) if ids is None else ids
        keys = strategy.keys(ids, data.get(strategy.data), 0)
        own = {ID: torch.from_numpy(ids), KEY: torch.from_numpy(keys)}
        self.graph = EdgesByTarget(torch.from_numpy(edges), max(num_nodes), {**data, **own})
        self.next_id = int(ids[-1]) + 1 if count else 0
        self.latest = data[TIME].max().item() if TIME in data and count else None
        self.rows = Reservoirs(num_nodes[1], max(0, *fanouts))
        self.rows.fill(num_nodes[1], self.graph.inn, self.keys, self.ids)

    @property
    def ids(self) -> Ids:
        """The id of each edge by slot."""
        return self.graph.edge_data[ID].numpy()

    @property
    def keys(self) -> Ids:
        """The key of each edge by slot."""
        return self.graph.edge_data[KEY].numpy()

    @property
    def has_times(self) -> bool:
        """Whether edges come with times."""
        return TIME in self.graph.edge_data

    @property
    def _named(self) -> list[str]:
        """The data that edges come with."""
        return [name for name in self.graph.edge_data if name not in (ID, KEY)]

    # A delta -------------------------------------------------------------------------------------

    def resolve(
        self,
        delta: GraphDelta,
        total: tuple[int, int],
        removed: tuple[Ids, Ids],
        ids: Ids | None = None,
    ) -> EdgeChanges:
        """What a delta does to these edges; nothing changes.

        Args:
            delta: What is said of them, both directions written out.
            total: Number of nodes at both ends, new ones included.
            removed: Nodes at both ends, int64 `[d]`, of which all edges leave.
            ids: The ids of the added edges, if somebody else has numbered them, int64 `[k]`; they
                ascend and are larger than those of all edges before.

        Raises:
            InvalidDeltaError: If something is wrong with it.
        """
        self._refuse_changes(delta)
        deleted = self._listed(delta.edge_index_del, "edge_index_del", self.num_nodes)
        added = self._listed(delta.edge_index_add, "edge_index_add", total)
        refuse_too_many(self.graph, added.shape[1], max(total))
        data = self._added_data(delta, added.shape[1])
        old = [ids[ids < n] for ids, n in zip(removed, self.num_nodes, strict=True)]
        listed, more = _NONE, _NONE
        if deleted.size or old[0].size or old[1].size:
            gone, oldest = (old[0], old[1]), delta.which == "oldest"
            listed, more = find_removed(self.graph, deleted[0], deleted[1], gone, oldest)
        if listed.size and listed.min() < 0:
            if delta.missing == "error":
                at = int(np.argmin(listed))
                u, v = deleted[:, at].tolist()
                raise InvalidDeltaError(
                    f"edge_index_del{self._label}: edge ({u}, {v}) at position {at} is not in the "
                    "graph (or is listed more often than it occurs); use missing='ignore' to skip "
                    "those that are not"
                )
            listed = listed[listed >= 0]
        if ids is None:
            ids = np.arange(self.next_id, self.next_id + added.shape[1])
        next_id = int(ids[-1]) + 1 if ids.size else self.next_id
        if added.size and (removed[0].size or removed[1].size):
            stays = ~(np.isin(added[0], removed[0]) | np.isin(added[1], removed[1]))
            added = np.ascontiguousarray(added[:, stays])
            data = {name: values[torch.from_numpy(stays)] for name, values in data.items()}
            ids = ids[stays]
        keys = self._strategy.keys(ids, data.get(self._strategy.data), self._turn)
        return EdgeChanges(np.concatenate([listed, more]), added, data, keys, ids, next_id)

    def commit(self, changes: EdgeChanges, total: tuple[int, int]) -> Ids:
        """Do what was resolved; returns nodes whose samples may have changed, not distinct."""
        self._places = None
        if total != self.num_nodes:
            self.graph.append_nodes(max(total) - self.graph.num_nodes)
            self.rows.grow(total[1])
            self.num_nodes = total
        left = self.take_out(changes.gone)
        added, ids, self.next_id = changes.added, changes.ids, changes.next_id
        if not ids.size:
            return left
        own = {ID: torch.from_numpy(ids), KEY: torch.from_numpy(changes.keys)}
        slots = self.graph.add(added[0], added[1], {**changes.data, **own})
        if TIME in changes.data:
            newest = changes.data[TIME].max().item()
            self.latest = newest if self.latest is None else max(self.latest, newest)
        entered = self.rows.enter(added[1], added[0], slots, changes.keys, ids)
        came = added[1] if self._has_all else entered
        return np.concatenate([left, came]) if left.size else came

    def take_out(self, slots: Ids) -> Ids:
        """Let edges in slots, int64 `[k]`, go; returns nodes with a new sample, not distinct."""
        self._places = None
        if not slots.size:
            return _NONE
        targets = self.graph.slots.dst[slots].astype(np.int64)
        self.graph.remove(slots)
        left = self.rows.leave(targets, slots, self.keys[slots])
        self.rows.refill(targets, self.graph.inn, self.keys, self.ids)
        self.graph.release(slots)
        return targets if self._has_all else left

    def before(self, time: float) -> Ids:
        """The slots of the edges whose time is below `time`, by one look at all of them.

        Raises:
            ValueError: If the edges came without times, or `time` is no number.
        """
        if not self.has_times:
            raise ValueError(
                f"the edges{self._label} have no times to expire by; pass edge_time to the sampler"
            )
        limit = as_tensor(time, "before")
        check_values(limit.reshape(-1), "before", 1)
        slots = self.graph.slots_in_order()
        times = self.graph.edge_data[TIME].numpy()[slots]
        return slots[times < limit.item()]

    def sample_anew(self) -> None:
        """Draw all samples again."""
        self._places = None
        self._turn += 1
        slots = self.graph.slots_in_order()
        data = self.graph.edge_data.get(self._strategy.data)
        at = torch.from_numpy(slots)
        values = None if data is None else data[at]
        keys = self._strategy.keys(self.ids[slots], values, self._turn)
        self.graph.edge_data[KEY][at] = torch.from_numpy(keys)
        self.rows.fill(self.num_nodes[1], self.graph.inn, self.keys, self.ids)

    @property
    def _has_all(self) -> bool:
        """Whether some hop samples all in-edges of a node: each that comes or goes changes it."""
        return min(self.fanouts) < 0

    def places(self) -> Ids:
        """Where samples and in-edges are in memory, see `kernels.expand`; not to be kept."""
        if self._places is None:
            rows = self.rows
            self._places = kernel.places_of(rows.heads, rows.pool, self.graph.inn, self.ids)
        return self._places

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}  # what is copied lies elsewhere

    # A query -------------------------------------------------------------------------------------

    def hop(self, hop: int, frontier: Ids, offset: int, known: Ids) -> HopEdges:
        """The sampled in-edges of some nodes, int64 `[m]`; see `query.HopSource`."""
        rows, lists, fanout = self.rows, self.graph.inn, self.fanouts[hop]
        return HopEdges(
            *kernel.hop(frontier, offset, fanout, rows.heads, rows.pool, lists, self.ids, known)
        )

    def walk(self, seeds: Ids, disjoint: bool) -> SamplerOutput:
        """All hops from seeds, int64 `[k]`, on, if these are the only edges; see `query.expand`."""
        counts = np.empty((2, self._limits.size + 1), np.int64)
        asked = with_queries(seeds) if disjoint else seeds
        found, edges = kernel.walk(asked, self._limits, self.places(), counts)
        num_nodes, num_edges = counts.tolist()
        return SamplerOutput(
            node=torch.from_numpy(node_of(found) if disjoint else found),
            row=torch.from_numpy(edges[kernel.ROW]),
            col=torch.from_numpy(edges[kernel.COL]),
            edge=torch.from_numpy(edges[kernel.ID]),
            batch=torch.from_numpy(query_of(found)) if disjoint else None,
            num_sampled_nodes=num_nodes,
            num_sampled_edges=num_edges[1:],
        )

    # Reading -------------------------------------------------------------------------------------

    def _listed(self, value: Any, name: str, limits: tuple[int, int]) -> Ids:
        if value is None:
            return _NO_EDGES
        edges = as_edges(value, f"{name}{self._label}")
        check_edges(edges, f"{name}{self._label}", limits)
        return edges

    def _added_data(self, delta: GraphDelta, count: int) -> dict[str, Tensor]:
        """The data of added edges that are kept; other data are those of models."""
        given = dict(added_data(delta.edge_data_add))
        if delta.edge_weight_add is not None:
            given["edge_weight"] = delta.edge_weight_add
        found = {}
        for name in self._named:
            like = self.graph.edge_data[name]
            if name not in given:
                if count:
                    raise InvalidDeltaError(
                        f"edge_index_add{self._label}: {count} edges come without {name!r}, which "
                        f"this sampler was made with; pass edge_data_add={{{name!r}: [{count}]}}"
                    )
                found[name] = like[:0]
                continue
            values = rows_like(as_tensor(given[name], name).detach().cpu(), name, like)
            check_values(values, f"{name}_add{self._label}", count)
            found[name] = values
        return found

    def _refuse_changes(self, delta: GraphDelta) -> None:
        if delta.edge_changes is None:
            return
        _, given = edge_change_parts(delta.edge_changes)
        used = sorted(set(given) & set(self._named))
        if used:
            raise InvalidDeltaError(
                f"edge_changes{self._label}: {used} decide which edges are sampled, and an edge "
                "keeps its place among them; delete the edges and add them again"
            )

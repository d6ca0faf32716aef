"""Neighbour samples that follow the graph, as a sampler for PyG's loaders."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from pyg_incremental.delta.describe import GraphDelta, with_fields_of
from pyg_incremental.delta.given import as_tensor, check_ids, chosen_ids
from pyg_incremental.errors import StaleStateError
from pyg_incremental.sampling.edges import SampledEdges
from pyg_incremental.sampling.query import expand
from pyg_incremental.sampling.read import (
    EdgeType,
    NodeType,
    by_type,
    check_values,
    edge_data_of,
    ends_of,
    fanouts_of,
    nodes_of,
    parts_of,
    per_type,
)
from pyg_incremental.sampling.strategy import StrategyName, checked_seed, strategies_of

Ids = NDArray[np.int64]
_Watcher = tuple[
    weakref.WeakMethod[Callable[[GraphDelta], Any]],
    weakref.WeakMethod[Callable[["SampleUpdate", Any], None]],
]
Seeds = Any
"""Node ids, int64 `[k]`, a mask, bool `[num_nodes]`, or one of them by node type."""


@dataclass(frozen=True)
class SampleUpdate:
    """The result of one change of a sampler's graph.

    Attributes:
        version: How many changes there have been.
        edge_ids: The ids of the added edges that stay, int64 `[k]`; by edge type if there are
            several.
    """

    version: int
    edge_ids: Any
    _touched: dict[Any, Ids] = field(repr=False)

    @property
    def changed(self) -> Any:
        """The nodes whose samples changed, ascending, int64; by edge type if there are several."""
        found = {kind: torch.from_numpy(np.unique(ids)) for kind, ids in self._touched.items()}
        return found.get(None, found)

    def touched(self, edge_type: EdgeType = None) -> Ids:
        """The same of one edge type before it is sorted; a node may be there more than once."""
        return self._touched[edge_type]


class StreamingSampler(BaseSampler):
    """Samples of in-neighbours that events keep ready, so that a query is look-ups.

    After Helios (Sun et al., PPoPP 2025): the sampling of a model with several layers is taken
    apart into samples of one hop, one for each node, and every edge that comes or goes updates the
    sample of its target. The same query gives the same sample until the graph changes or
    `resample` is called.

    It is handed to PyG's loaders, `NodeLoader(..., node_sampler=sampler)` and `LinkLoader(...,
    link_sampler=sampler)`, and needs neither pyg-lib nor torch_sparse. What it gives is what
    `NeighborSampler` gives: nodes in the order in which they were found, edges from source to
    target grouped by hop, how many there are of both in each hop, and the ids of the edges. Edges
    that were there at first have the ids of their columns in `edge_index`; those that were added
    have the ids that follow, in order, and nobody else ever gets the id of an edge that left.

    Args:
        edge_index: The edges, int64 `[2, num_edges]`; by edge type for a heterogeneous graph.
        num_nodes: The number of nodes; by node type likewise.
        num_neighbors: How many in-edges of each node are sampled in each hop; -1 for all. By edge
            type if they differ.
        strategy: `'random'`: every subset of the in-edges is as likely as any other; `'topk'`:
            those with the largest times, of equal times the edge that was added later; `'weight'`:
            drawn by weight without replacement.
        edge_time: The times of the edges, `[num_edges]`; by edge type likewise. `'topk'` needs
            them, and so does `expire`.
        edge_weight: Their weights, positive, `[num_edges]`. `'weight'` needs them.
        disjoint: Whether every seed has a subgraph of its own.
        seed: What samples are drawn from.

    Attributes:
        version: How many changes there have been.

    Raises:
        ValueError: If an argument does not fit.
    """

    def __init__(
        self,
        edge_index: Any,
        num_nodes: Any,
        num_neighbors: Any = (25, 10),
        *,
        strategy: StrategyName = "random",
        edge_time: Any = None,
        edge_weight: Any = None,
        disjoint: bool = False,
        seed: int = 0,
    ) -> None:
        self.is_hetero = isinstance(edge_index, Mapping)
        graphs = per_type(edge_index)
        self._kinds: list[EdgeType] = list(graphs)
        if not graphs:
            raise ValueError("edge_index: expected edges (got none of any type)")
        self._fanouts, self.num_hops = fanouts_of(num_neighbors, self._kinds, self.is_hetero)
        self._nodes = nodes_of(num_nodes, self._kinds, self.is_hetero)
        self.strategy, self.disjoint, self.version = strategy, disjoint, 0
        drawn = strategies_of(strategy, checked_seed(seed), len(graphs))
        data = edge_data_of(graphs, edge_time, edge_weight, strategy)
        self._edges: dict[EdgeType, SampledEdges] = {}
        for (kind, edges), chosen in zip(graphs.items(), drawn, strict=True):
            label = f"[{kind!r}]" if kind else ""
            ends, fanouts = self._ends(kind, self._nodes), self._fanouts[kind]
            self._edges[kind] = SampledEdges(edges, ends, fanouts, chosen, data[kind], label)
        self._interrupted = False
        self._watchers: list[_Watcher] = []

    @property
    def num_nodes(self) -> Any:
        """The current number of nodes; by node type if there are several."""
        return dict(self._nodes) if self.is_hetero else self._nodes[None]

    @property
    def num_edges(self) -> Any:
        """The current number of edges; by edge type if there are several."""
        found = {kind: edges.graph.num_edges for kind, edges in self._edges.items()}
        return found if self.is_hetero else found[None]

    @property
    def num_neighbors(self) -> Any:
        """How many in-edges are sampled in each hop; by edge type if there are several."""
        return dict(self._fanouts) if self.is_hetero else list(self._fanouts[None])

    def edges_of(self, edge_type: EdgeType = None) -> SampledEdges:
        """The edges of one type with the samples of their targets."""
        return self._edges[edge_type]

    # Changing ------------------------------------------------------------------------------------

    @with_fields_of(GraphDelta)
    def apply_delta(self, *changes: Any, **fields: Any) -> SampleUpdate:
        """Let edges and nodes come and go.

        It takes a `GraphDelta` or its fields, those that an `IncrementalModel` takes. Features go
        to the caches and models of this sampler, which have to get them; of itself it reads only
        how many rows are new. Times and weights of added edges come as
        `edge_data_add={'time': [k]}` and `edge_weight_add`. An added edge of which an end is among
        `nodes_del` does not stay; nobody else gets its id.

        Raises:
            InvalidDeltaError: If the delta does not fit; nothing was changed then.
            StaleStateError: If an earlier change was interrupted.
        """
        self._refuse_interrupted()
        delta = GraphDelta(*changes, **fields).alone().both_directions()
        parts = parts_of(delta, self._kinds, list(self._nodes), self.is_hetero)
        total = {kind: count + parts.new_nodes[kind] for kind, count in self._nodes.items()}
        for name, gone in parts.removed.items():
            check_ids(gone, f"nodes_del[{name!r}]" if name else "nodes_del", total[name])
        found = {}
        for kind, edges in self._edges.items():
            ends = ends_of(kind)
            removed = parts.removed[ends[0]], parts.removed[ends[1]]
            found[kind] = edges.resolve(parts.edges[kind], self._ends(kind, total), removed)
        said = [(follow, read(delta)) for read, follow in self._watching()]
        touched: dict[EdgeType, Ids] = {}
        ids = {kind: torch.from_numpy(changes.ids) for kind, changes in found.items()}
        with self._change():
            for kind, edges in self._edges.items():
                touched[kind] = edges.commit(found[kind], self._ends(kind, total))
            self._nodes = total
            return self._changed(touched, ids if self.is_hetero else ids[None], said)

    def expire(self, before: float) -> SampleUpdate:
        """Delete all edges whose time is below `before` (a time-to-live for data).

        Raises:
            ValueError: If the edges came without times, or `before` is no number; nothing was
                changed then.
        """
        gone = {kind: edges.before(before) for kind, edges in self._edges.items()}
        none = {kind: torch.empty(0, dtype=torch.int64) for kind in gone}
        with self._change():
            touched = {kind: self._edges[kind].take_out(slots) for kind, slots in gone.items()}
            return self._changed(touched, none if self.is_hetero else none[None])

    def resample(self) -> SampleUpdate:
        """Draw all samples again; what `'topk'` samples stays."""
        touched = {kind: np.arange(edges.num_nodes[1]) for kind, edges in self._edges.items()}
        none = {kind: torch.empty(0, dtype=torch.int64) for kind in touched}
        with self._change():
            for edges in self._edges.values():
                edges.sample_anew()
            return self._changed(touched, none if self.is_hetero else none[None])

    def watch(
        self, read: Callable[[GraphDelta], Any], follow: Callable[[SampleUpdate, Any], None]
    ) -> None:
        """Call two methods with every change, for as long as their object is there.

        Args:
            read: What the object makes of a delta; it may raise, and nothing has changed then.
            follow: It gets that after the change; None where no delta has changed the samples.
        """
        self._watchers.append((weakref.WeakMethod(read), weakref.WeakMethod(follow)))

    def _watching(self) -> list[tuple[Callable[..., Any], Callable[..., None]]]:
        """The methods of those that are still there."""
        found = [(watcher, (watcher[0](), watcher[1]())) for watcher in self._watchers]
        self._watchers = [watcher for watcher, (read, _) in found if read is not None]
        return [(r, f) for _, (r, f) in found if r is not None and f is not None]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watchers": []}  # copies of those that watch ask anew

    @contextmanager
    def _change(self) -> Iterator[None]:
        """What is begun inside is either done, or nothing is answered any more."""
        self._refuse_interrupted()
        self._interrupted = True
        yield
        self._interrupted = False

    def _refuse_interrupted(self) -> None:
        if self._interrupted:
            raise StaleStateError(
                "a change of this sampler was interrupted, and its samples may fit no graph; make "
                "a new one from the edges"
            )

    def _changed(
        self, touched: dict[EdgeType, Ids], edge_ids: Any, said: list[Any] | None = None
    ) -> SampleUpdate:
        self.version += 1
        update = SampleUpdate(self.version, edge_ids, touched)
        for follow, what in said or [(follow, None) for _, follow in self._watching()]:
            follow(update, what)
        return update

    # Sampling ------------------------------------------------------------------------------------

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> Any:
        """The subgraph around some nodes, for `NodeLoader`.

        Raises:
            RuntimeError: In a worker of a loader.
            ValueError: If seeds do not exist, or their times lie in the past.
        """
        return node_sample(index, self.sample)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> Any:
        """The subgraph around the ends of some links, for `LinkLoader`.

        Raises:
            RuntimeError: In a worker of a loader.
            ValueError: If seeds do not exist, or their times lie in the past.
        """
        if index.time is not None and not self.disjoint:
            raise ValueError(
                "edge_label_time: links of different times need subgraphs of their own; make the "
                "sampler with disjoint=True"
            )
        return edge_sample(index, self.sample, self.num_nodes, self.disjoint, None, neg_sampling)

    def sample(self, seed: Seeds, seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """The subgraph around some nodes.

        Args:
            seed: Their ids, int64 `[k]`, or a mask, bool `[num_nodes]`; by node type in a
                heterogeneous graph.
            seed_time: The time of each, `[k]`, which may not lie before that of any edge; by node
                type likewise. It needs a sampler that was given `edge_time`.

        Raises:
            RuntimeError: In a worker of a loader.
            ValueError: If seeds do not exist, or their times lie in the past.
            StaleStateError: If a change was interrupted.
        """
        if get_worker_info() is not None:
            raise RuntimeError(
                "a StreamingSampler was asked in a worker of a loader: workers hold copies, which "
                "would not follow the graph; use num_workers=0 (sampling is look-ups)"
            )
        self._refuse_interrupted()
        # Whether something is a mapping takes long to find out.
        if self.is_hetero != (type(seed) is not Tensor and isinstance(seed, Mapping)):
            expected = "seeds by node type" if self.is_hetero else "a tensor of node ids"
            raise ValueError(f"seed: expected {expected} (got {type(seed).__name__})")
        given = seed if self.is_hetero else {None: seed}
        seeds = {kind: self._checked(ids, kind) for kind, ids in given.items()}
        if seed_time is not None:
            self._check_times(seed_time, seeds)
        if not self.is_hetero:
            return self._edges[None].walk(seeds[None], self.disjoint)
        return expand(seeds, self._nodes, self._edges, self.num_hops, self.disjoint).hetero_output()

    def _checked(self, ids: Any, kind: NodeType) -> Ids:
        if kind not in self._nodes:
            raise ValueError(f"seed: there are no nodes of type {kind!r} (got {list(self._nodes)})")
        return chosen_ids(ids, f"seed[{kind!r}]" if kind else "seed", self._nodes[kind])

    def _check_times(self, seed_time: Any, seeds: Mapping[NodeType, Ids]) -> None:
        """Samples are those of now; there are none for a seed that does not know all edges yet."""
        times = by_type(seed_time, "seed_time", seeds, "one time for each seed")
        known = [edges.latest for edges in self._edges.values() if edges.has_times]
        if not known:
            raise ValueError("seed_time: the edges have no times; pass edge_time to the sampler")
        latest = max((time for time in known if time is not None), default=None)
        for kind, given in times.items():
            own = as_tensor(given, "seed_time")
            check_values(own, f"seed_time[{kind!r}]" if kind else "seed_time", seeds[kind].size)
            if latest is not None and own.numel() and own.min() < latest:
                raise ValueError(
                    f"seed time {own.min()}: there are edges up to time {latest}, and the samples "
                    "are those of now; ask before later edges are added, or leave out the times"
                )

    def _ends(self, kind: EdgeType, nodes: Mapping[NodeType, int]) -> tuple[int, int]:
        source, target = ends_of(kind)
        return nodes[source], nodes[target]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_neighbors={self.num_neighbors}, strategy={self.strategy!r})"
        )

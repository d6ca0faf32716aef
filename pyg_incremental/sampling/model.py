"""Inference on samples that follow the graph."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from pyg_incremental.delta.describe import GraphDelta, with_fields_of
from pyg_incremental.delta.given import chosen_ids
from pyg_incremental.errors import StaleStateError
from pyg_incremental.sampling.cache import SampleCache
from pyg_incremental.sampling.features import FeatureChanges, Features
from pyg_incremental.sampling.sampler import SampleUpdate, StreamingSampler

_TRIMMING = {"num_sampled_nodes_per_hop", "num_sampled_edges_per_hop"}


class SampledModel:
    """A trained model that answers for some nodes from their samples.

    For models that were trained on samples, and for graphs too large to be exact on. With a fan-out
    of -1 in every hop it computes what the model computes on the whole graph, if no row needs to
    see farther than there are hops.

    Args:
        model: A model in eval mode, called as `model(x, edge_index)`. A model that takes
            `num_sampled_nodes_per_hop` (PyG's `GraphSAGE`, `GCN`, ...) is told them, so that no
            layer computes rows that nobody reads.
        sampler: Gives the samples: a `StreamingSampler` of a homogeneous graph, or a `SampleCache`.
        x: The features, `[num_nodes, num_features]`, which are copied; not given with a cache,
            which has its own.
        batch_size: How many seeds are computed at a time.

    Raises:
        ValueError: If the arguments do not go together.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: StreamingSampler | SampleCache,
        x: Tensor | None = None,
        *,
        batch_size: int = 1024,
    ) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size: expected at least one seed (got {batch_size!r})")
        self.model, self.sampler, self.batch_size = model, sampler, batch_size
        self._features: Features | None = None
        if isinstance(sampler, SampleCache):
            if x is not None:
                raise ValueError("x: a SampleCache has the features already; leave x out")
            graph = sampler.sampler
        else:
            graph = sampler
            if graph.is_hetero or x is None:
                raise ValueError(
                    "expected a StreamingSampler of a homogeneous graph with the features x, or a "
                    "SampleCache"
                )
            self._features = Features(x, graph.num_nodes)
        self._graph = graph
        self._watch()
        parameters = inspect.signature(model.forward).parameters
        layers = getattr(model, "num_layers", graph.num_hops)
        # Jumping knowledge needs the rows of all layers, which trimmed ones have not.
        is_one_path = not hasattr(model, "jk")
        self._trims = parameters.keys() >= _TRIMMING and layers == graph.num_hops and is_one_path

    def _watch(self) -> None:
        if self._features is not None:
            self._graph.watch(self._read, self._follow)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._watch()

    @property
    def num_nodes(self) -> int:
        """The current number of nodes."""
        return int(self._graph.num_nodes)

    @torch.no_grad()
    def __call__(self, seeds: Tensor) -> Tensor:
        """The output rows of some nodes: `[k, out_channels]`.

        They are given as ids, int64 `[k]`, or as a mask, bool `[num_nodes]`.

        Raises:
            ValueError: If a node does not exist.
            StaleStateError: If the model is in training mode.
        """
        if self.model.training:
            raise StaleStateError("the model is in training mode; call model.eval()")
        ids = torch.from_numpy(chosen_ids(seeds, "seeds", self.num_nodes))
        parts = [self._rows(part) for part in ids.split(self.batch_size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, seeds: Tensor) -> Tensor:
        batch = self._batch(seeds)
        more: dict[str, Any] = {}
        if self._trims:
            more["num_sampled_nodes_per_hop"] = batch.num_sampled_nodes
            more["num_sampled_edges_per_hop"] = batch.num_sampled_edges
        out: Tensor = self.model(batch.x, batch.edge_index, **more)
        return out[: seeds.numel()]

    def _batch(self, seeds: Tensor) -> Data:
        if isinstance(self.sampler, SampleCache):
            return self.sampler.query(seeds)
        assert self._features is not None
        found: Any = self.sampler.sample(seeds)
        return Data(
            x=self._features.rows(found.node.numpy()),
            edge_index=torch.stack([found.row, found.col]),
            num_sampled_nodes=found.num_sampled_nodes,
            num_sampled_edges=found.num_sampled_edges,
        )

    @with_fields_of(GraphDelta)
    def apply_delta(self, *changes: Any, **fields: Any) -> SampleUpdate:
        """Let edges, nodes and features change: the deltas of an `IncrementalModel`.

        Nothing is computed until somebody asks.

        Raises:
            InvalidDeltaError: If the delta does not fit; nothing was changed then.
        """
        return self._graph.apply_delta(*changes, **fields)

    def _read(self, delta: GraphDelta) -> FeatureChanges:
        assert self._features is not None
        return self._features.read(delta, self.num_nodes)

    def _follow(self, _update: SampleUpdate, said: FeatureChanges | None) -> None:
        if self._features is not None and said is not None:
            self._features.write(said)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__}, {self.sampler!r})"

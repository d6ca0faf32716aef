"""A serving worker: the complete samples of its seeds, in tables of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.sampling.kernels.rows import EDGE, PLACE
from pyg_incremental.sampling.query import Sample, expand
from pyg_incremental.sampling.read import EdgeType, NodeType, ends_of
from pyg_incremental.sampling.slot_map import overflows_of
from pyg_incremental.sampling.tables import FeatureTable, HopTables, SampleTable
from pyg_incremental.sampling.workers.messages import (
    Answer,
    EdgeAnswer,
    NodeAnswer,
    Publication,
    SampleQuery,
)

Ids = NDArray[np.int64]


class _Tables:
    """What a worker holds: tables of samples for each edge type and hop, and one of features."""

    def __init__(self, query: SampleQuery, directory: Path | None) -> None:
        fanouts = query.num_neighbors
        samples = len(fanouts) * query.num_hops
        self.disk, overflows = overflows_of(query.memory, directory, samples, len(query.x))
        left = iter(overflows)
        self.hops: dict[EdgeType, list[SampleTable]] = {
            kind: [SampleTable(0, k, next(left)) for k in own] for kind, own in fanouts.items()
        }
        self.features: dict[NodeType, FeatureTable] = {
            kind: FeatureTable(0, x, next(left)) for kind, x in query.x.items()
        }
        self.num_nodes = dict.fromkeys(query.x, 0)
        # A seed has the samples of all edge types that lead to nodes of its type.
        self._of_seeds = {ends_of(kind)[1]: tables[0] for kind, tables in self.hops.items()}

    @property
    def samples(self) -> list[SampleTable]:
        """All tables of samples."""
        return [table for tables in self.hops.values() for table in tables]

    @property
    def every(self) -> list[SampleTable | FeatureTable]:
        """All tables."""
        return [*self.samples, *self.features.values()]

    def take(self, said: Publication) -> None:
        """Take in what one sampling worker has published."""
        self.num_nodes = {k: max(n, said.nodes[k].total) for k, n in self.num_nodes.items()}
        for kind, hops in said.edges.items():
            for table, rows in zip(self.hops[kind], hops, strict=True):
                table.grow(self.num_nodes[ends_of(kind)[1]])
                table.drop(rows.gone)
                edges = np.zeros((rows.edges.shape[0], 3), np.int64)
                edges[:, [EDGE, PLACE]] = rows.edges
                table.put(rows.nodes, rows.held, edges)
        for name, said_of in said.nodes.items():
            features = self.features[name]
            features.grow(self.num_nodes[name])
            features.drop(said_of.gone)
            features.put(said_of.nodes, said_of.x)

    def has(self, seeds: Mapping[NodeType, Ids]) -> bool:
        """Whether the samples of all of some seeds are here."""
        for kind, ids in seeds.items():
            if ids.max(initial=-1) >= self.num_nodes[kind]:
                return False
            table: Any = self._of_seeds.get(kind, self.features[kind])
            if not table.store.has(ids).all():
                return False
        return True

    def sample(self, seeds: Mapping[NodeType, Ids], hops: int) -> Sample:
        """The complete sample of some seeds."""
        tables = {kind: HopTables(own) for kind, own in self.hops.items()}
        return expand(seeds, self.num_nodes, tables, hops, False)


class ServingWorker:
    """Answers for its seeds by look-ups alone, while another thread takes in what is published.

    Args:
        query: What is sampled.
        directory: The folder for what goes to disk beyond the query's `memory`.

    Attributes:
        round: The last round whose changes are all here; -1 before the first.
    """

    def __init__(self, query: SampleQuery, directory: Path | None = None) -> None:
        self._query, self._directory = query, directory
        self._tables = _Tables(query, directory)
        self._lock = Lock()
        self.round = -1

    def listen(self, rounds: Rounds, parts: int, number: int, fresh: bool) -> None:
        """Take part in a round.

        Args:
            rounds: The conversation.
            parts: Number of sampling workers.
            number: The number of the round.
            fresh: Whether everything is sent anew; until it is here, queries are answered from
                what was.
        """
        nothing = [None] * rounds.size
        for _ in range(self._query.num_hops):
            rounds.swap(nothing)
        said: Sequence[Publication] = rounds.swap(nothing)[:parts]
        if fresh:
            tables = _Tables(self._query, self._directory)
            for part in said:
                tables.take(part)
            with self._lock:
                self._tables, self.round = tables, number
            return
        with self._lock:
            for part in said:
                self._tables.take(part)
            self.round = number

    def answer(self, seeds: Mapping[NodeType, Ids]) -> Answer | None:
        """The sample of some seeds, int64 `[k]` by type; None if one is none of this worker's."""
        with self._lock:
            tables = self._tables
            if not tables.has(seeds):
                return None
            found = tables.sample(seeds, self._query.num_hops)
            nodes, edges = {}, {}
            for kind, own in found.nodes.items():
                ids = own.ids()
                x = tables.features[kind].rows(ids.numpy())
                nodes[kind] = NodeAnswer(ids, x, own.counts)
            for name, some in found.edges.items():
                row, col, edge = some.joined()
                edges[name] = EdgeAnswer(torch.stack([row, col]), edge, some.counts)
            return Answer(nodes, edges, self.round)

    @property
    def held(self) -> dict[str, int]:
        """How many samples and rows of features are here, and their bytes."""
        with self._lock:
            tables = self._tables
            return {
                "samples": sum(table.store.count for table in tables.samples),
                "features": sum(table.store.count for table in tables.features.values()),
                "row_bytes": sum(
                    table.store.count * table.store.row_bytes for table in tables.every
                ),
                "bytes": sum(table.num_bytes for table in tables.every),
                "bytes_on_disk": sum(table.store.bytes_on_disk for table in tables.every),
            }

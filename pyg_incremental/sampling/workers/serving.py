"""A serving worker: the complete samples of its seeds, in tables of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.sampling.kernels.rows import EDGE, PLACE
from pyg_incremental.sampling.places import shelves_of
from pyg_incremental.sampling.query import expand
from pyg_incremental.sampling.tables import FeatureTable, HopTables, SampleTable
from pyg_incremental.sampling.workers.messages import Answer, Publication, SampleQuery

Ids = NDArray[np.int64]


class _Tables:
    """What a worker holds: a table for each hop, and one of features."""

    def __init__(self, query: SampleQuery, directory: Path | None) -> None:
        fanouts = query.num_neighbors
        self.disk, shelves = shelves_of(query.memory, directory, len(fanouts))
        self.hops = [SampleTable(0, k, s) for k, s in zip(fanouts, shelves, strict=False)]
        self.features = FeatureTable(0, query.x, shelves[-1])
        self.num_nodes = 0

    @property
    def every(self) -> list[SampleTable | FeatureTable]:
        """All tables."""
        return [*self.hops, self.features]

    def take(self, said: Publication) -> None:
        """Take in what one sampling worker has published."""
        if said.num_nodes > self.num_nodes:
            self.num_nodes = said.num_nodes
            for table in self.every:
                table.grow(said.num_nodes)
        for table, rows in zip(self.hops, said.hops, strict=True):
            table.drop(rows.gone)
            edges = np.zeros((rows.edges.shape[0], 3), np.int64)
            edges[:, [EDGE, PLACE]] = rows.edges
            table.put(rows.nodes, rows.held, edges)
        self.features.drop(said.gone)
        self.features.put(said.nodes, said.x)


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
        for _ in self._query.num_neighbors:
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

    def answer(self, seeds: Ids) -> Answer | None:
        """The sample of some seeds, int64 `[k]`; None if one of them is none of this worker's."""
        with self._lock:
            tables = self._tables
            if (
                seeds.max(initial=-1) >= tables.num_nodes
                or not tables.hops[0].store.has(seeds).all()
            ):
                return None
            hops = HopTables(tables.hops)
            out = expand({None: seeds}, [None], {None: hops}, len(tables.hops), False).output()
            return Answer(
                node=out.node,
                edge_index=torch.stack([out.row, out.col]),
                edge=out.edge,
                x=tables.features.rows(out.node.numpy()),
                num_sampled_nodes=out.num_sampled_nodes,
                num_sampled_edges=out.num_sampled_edges,
                round=self.round,
            )

    @property
    def held(self) -> dict[str, int]:
        """How many samples and rows of features are here, and their bytes."""
        with self._lock:
            tables = self._tables
            return {
                "samples": sum(table.store.count for table in tables.hops),
                "features": tables.features.store.count,
                "row_bytes": sum(
                    table.store.count * table.store.row_bytes for table in tables.every
                ),
                "bytes": sum(table.num_bytes for table in tables.every),
                "bytes_on_disk": sum(table.store.bytes_on_disk for table in tables.every),
            }

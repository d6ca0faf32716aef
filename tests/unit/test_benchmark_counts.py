"""What is counted from a graph alone is what ranks send and what the engine touches."""

import numpy as np
import pytest
import torch

from benchmarks.graphs import Size, draw
from benchmarks.models import build
from benchmarks.ranks.count import Count
from benchmarks.stream import Stream
from pyg_incremental import to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.distributed.threads import all_well, run_ranks

pytestmark = pytest.mark.unmeasured

RANKS, LAYERS = 3, 2
SIZE = Size(80, 400, 6, 5, False, 1.5)


@pytest.fixture
def work(seed):
    return draw(SIZE, updates=90, seed=seed)


@pytest.fixture
def owner(seed):
    return np.random.default_rng(seed).integers(0, RANKS, SIZE.nodes).astype(np.int16)


def pairs(edges):
    return [] if edges is None else list(zip(*edges.tolist(), strict=True))


def walk(edges, delta):
    """Lists of edges after a delta, and between its deletions and its additions."""
    kept = list(edges)
    for edge in pairs(delta.edge_index_del):
        kept.remove(edge)
    return kept + pairs(delta.edge_index_add), kept


def test_counts_of_a_layer(work, owner):
    """Against sets of pairs."""
    count, stream = Count(work.edge_index, SIZE.nodes), Stream(work)
    edges = pairs(work.edge_index)
    for _ in range(4):
        delta = stream.take(12)
        edges, kept = walk(edges, delta)
        reached = count.apply(delta, LAYERS)
        added = pairs(delta.edge_index_add)
        moved = added + pairs(delta.edge_index_del)
        changed = set(reached.changed[0].tolist())
        assert changed == set(delta.x_changes[0].tolist())
        for layer in range(LAYERS):
            along = [(u, v) for u, v in edges if u in changed]
            after = changed | {v for _, v in along + moved}
            assert set(reached.changed[layer + 1].tolist()) == after

            pushed = count.pushed(reached, layer, owner, RANKS)
            held = {(u, owner[v]) for u, v in kept}
            rows = {(u, owner[v]) for u, v in along}
            rows |= {(u, owner[v]) for u, v in added} - held
            rows = {(u, rank) for u, rank in rows if owner[u] != rank}
            for rank in range(RANKS):
                assert pushed.rows[rank] == sum(owner[u] == rank for u in changed)
                assert pushed.edges[rank] == sum(owner[v] == rank for _, v in along + moved)
                assert pushed.sent[rank] == sum(owner[u] == rank for u, _ in rows)
                assert pushed.received[rank] == sum(r == rank for _, r in rows)

            mails = {(owner[u], v) for u, v in along + moved if owner[u] != owner[v]}
            assert count.mails(reached, layer, owner, RANKS) == len(mails)
            far = [(u, v) for u, v in edges if v in after and owner[u] != owner[v]]
            once = {(u, owner[v]) for u, v in far}
            assert count.pulls(reached, layer, owner, RANKS) == (len(once), len(far))
            changed = after


def test_ranks_send_what_is_counted(work, owner):
    model = build("sage", SIZE.channels, 16, SIZE.classes, LAYERS)

    def rank(comm):
        inc, stream = DistributedIncrementalModel(model, comm), Stream(work)
        inc(work.x, work.edge_index, partition_by=torch.from_numpy(owner))
        sent = []
        for _ in range(4):
            delta = stream.take(12)
            stats = inc.apply_delta(delta if comm.rank == 0 else None).stats
            sent.append([(e.rows_sent, e.rows_received) for e in stats.exchanges])
        return sent

    every = all_well(run_ranks(RANKS, rank))
    count, stream = Count(work.edge_index, SIZE.nodes), Stream(work)
    for turn in range(4):
        reached = count.apply(stream.take(12), LAYERS)
        for layer in range(LAYERS):
            pushed = count.pushed(reached, layer, owner, RANKS)
            moved = list(zip(pushed.sent, pushed.received, strict=True))
            assert moved == [every[rank][turn][layer] for rank in range(RANKS)]


def test_the_engine_touches_the_edges_that_are_counted(work):
    inc = to_incremental(build("sage", SIZE.channels, 16, SIZE.classes, LAYERS))
    inc(work.x, work.edge_index)
    count, stream = Count(work.edge_index, SIZE.nodes), Stream(work)
    for size in (1, 2, 3):
        delta = stream.take(size)
        stats = inc.apply_delta(delta).stats
        degrees = stats.edges_added + stats.edges_deleted  # the mean counts in-edges, too
        assert stats.edges == count.edges(count.apply(delta, LAYERS)) + degrees

"""What the benchmarks feed to the programs is valid, seeded, and as large as it says."""

import numpy as np
import pytest
import torch

from benchmarks import sources, temporal
from benchmarks.graphs import SIZES, Size, draw
from benchmarks.peers import Skipped
from benchmarks.stream import Stream, all_nodes
from benchmarks.workload import ADD, CHANGE, DELETE, Workload

pytestmark = pytest.mark.unmeasured

SMALL = Size(200, 1500, 3, 5, False, 1.5)
BOTH_WAYS = Size(200, 3000, 3, 5, True, 1.5)


def pairs(edges):
    return list(zip(*edges.tolist(), strict=True))


def apply(there, delta):
    """Check a delta against a set of edges, and let it act on them."""
    gone = [] if delta.edge_index_del is None else pairs(delta.edge_index_del)
    came = [] if delta.edge_index_add is None else pairs(delta.edge_index_add)
    assert len({*gone, *came}) == len(gone) + len(came)
    assert there.issuperset(gone)
    assert there.isdisjoint(came)
    there -= set(gone)
    there |= set(came)


@pytest.mark.parametrize("size", [SMALL, BOTH_WAYS])
def test_a_drawn_graph(size, seed):
    work = draw(size, updates=90, seed=seed)
    edges = pairs(work.edge_index)
    assert work.x.shape == (200, 3)
    assert work.kind.bincount().tolist() == [30, 30, 30]
    held = 30 * (1 + size.undirected)
    assert len(edges) == len(set(edges)) == size.edges - held
    assert all(u != v for u, v in edges)
    if size.undirected:
        assert {(v, u) for u, v in edges} == set(edges)
    again = draw(size, updates=90, seed=seed)
    assert torch.equal(again.edge_index, work.edge_index)
    assert torch.equal(again.x, work.x)


@pytest.mark.parametrize("size", [SMALL, BOTH_WAYS])
def test_a_stream_goes_back_and_forth(size, seed):
    work = draw(size, updates=90, seed=seed)
    stream, there = Stream(work), set(pairs(work.edge_index))
    start, full = set(there), []
    for at in range(40):
        apply(there, stream.take(9))
        if at % 20 == 9:
            full.append(set(there))
        if at % 20 == 19:
            assert there == start  # forwards and backwards
    assert full[0] == full[1] != start


def test_changes_of_features_differ_on_the_way_back():
    work = Workload(
        x=torch.zeros(4, 1), edge_index=torch.tensor([[0], [1]]),
        kind=torch.tensor([CHANGE, CHANGE, ADD, DELETE]), a=torch.tensor([2, 2, 3, 3]),
        b=torch.tensor([-1, -1, 0, 0]), rows=torch.tensor([[1.0], [2.0]]),
    )  # fmt: skip
    stream = Stream(work)
    forth, back = stream.take(4), stream.take(4)
    assert forth.x_changes[0].tolist() == back.x_changes[0].tolist() == [2]
    assert forth.x_changes[1].tolist() == [[2.0]]  # of a node named twice the last row
    assert back.x_changes[1].tolist() == [[-1.0]]
    assert forth.edge_index_add is forth.edge_index_del is None  # it came and went
    with pytest.raises(ValueError, match="5 were asked for"):
        stream.take(5)
    assert all_nodes(work.x, 0).x_changes[1].shape == (4, 1)


def test_published_sizes_can_be_scaled():
    small = SIZES["reddit"].scaled(0.01)
    assert (small.nodes, small.channels) == (2330, 602)
    assert small.edges == 2330 * 2330 // 16  # there are not as many pairs as the degree asks for
    assert SIZES["products"].scaled(0.01).edges == 1_237_183
    work = sources.load("arxiv", updates=30, scale=0.01, undirected=True)
    assert work.undirected
    assert work.edge_index.shape[1] == 2 * (11_662 - 10)


def test_self_loops_of_a_file_are_left_out(tmp_path):
    path = tmp_path / "w.npz"
    np.savez(
        path, num_nodes=3, in_channels=2, edge_index=[[0, 1, 1], [1, 1, 2]], x_seed=0,
        rows_seed=0, kind=[ADD, ADD, CHANGE, DELETE], a=[2, 0, 1, 0], b=[2, 2, -1, 1],
    )  # fmt: skip
    work = sources.load(str(path), updates=0)
    assert work.edge_index.tolist() == [[0, 1], [1, 2]]
    assert work.a.tolist() == [0, 1, 0]
    assert len(work.rows) == 1


def test_a_temporal_graph_is_replayed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYG_INCREMENTAL_DATA", str(tmp_path))
    with pytest.raises(Skipped, match="as_caida_stream"):
        sources.load("caida", updates=0)
    events = [[0, 1, 0, 2, 2, 0], [1, 2, 1, 3, 3, 1]]
    np.savez(tmp_path / "as_caida_stream.npz", edge_index=events, num_nodes=4,
             op=[1, 1, -1, 1, -1, 1])  # fmt: skip
    work = temporal.caida()
    assert work.edge_index.tolist() == [[1, 2], [2, 1]]
    assert [work.kind.tolist(), work.a.tolist()] == [[ADD, DELETE, ADD], [2, 2, 0]]
    assert pairs(Stream(work).take(3).edge_index_add) == [(0, 1), (1, 0)]

    loops = [[0, 1, 0, 2, 3], [1, 1, 1, 3, 2]]
    np.savez(tmp_path / "sx_mathoverflow.npz", edge_index=loops, num_nodes=4)
    work = temporal.mathoverflow()
    assert work.edge_index.tolist() == [[0], [1]]
    assert [work.a.tolist(), work.b.tolist()] == [[2, 3], [3, 2]]
    np.savez(tmp_path / "gnnet24_arxivai.npz", edge_index=loops, num_nodes=4)
    assert temporal.arxivai().a.tolist() == [2]  # both directions are one event


@pytest.mark.data
@pytest.mark.parametrize("name", temporal.TEMPORAL)
def test_the_real_streams_are_valid(name):
    try:
        work = sources.load(name, updates=0)
    except Skipped as reason:
        pytest.skip(str(reason))
    stream, there = Stream(work), set(pairs(work.edge_index))
    assert len(there) == work.edge_index.shape[1]
    for size in (1, 1, 1000, 1000, 5000):
        apply(there, stream.take(size))

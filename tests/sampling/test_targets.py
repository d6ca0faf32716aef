"""Edges by target hold what an edge store holds, whatever came and went, and copies are apart."""

import copy
import pickle

import numpy as np
import pytest
import torch

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.room import SMALL
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.arrays import GrowingStorage
from pyg_incremental.sampling.targets import EdgesByTarget

pytestmark = pytest.mark.kernels


def in_lists(graph):
    """The ages of the in-edges of every node; in which slots these are depends on the lists."""
    lists = graph.inn
    return [
        np.sort(graph.slots.order[lists.edge[lists.start[v] :][: lists.degree[v]]]).tolist()
        for v in range(graph.num_nodes)
    ]


def check(graph, same):
    assert torch.equal(graph.to_edge_index(), same.to_edge_index())
    assert torch.equal(graph.state()["data"], same.state()["data"])
    assert in_lists(graph) == in_lists(same)
    lists = graph.inn
    begin, size = lists.start[: graph.num_nodes], lists.capacity[: graph.num_nodes]
    order = np.argsort(begin[size > 0], kind="stable")  # no two lists share a place of the pool
    ends = (begin + size)[size > 0][order]
    assert (ends[:-1] <= begin[size > 0][order][1:]).all()
    assert ends.max(initial=0) <= lists.edge.size


@pytest.mark.parametrize("nodes_leave", [False, True])
def test_edges_by_target_are_those_of_any_store(seed, nodes_leave):
    rng = np.random.default_rng(seed)
    nodes, edges = 30, rng.integers(0, 30, (2, 50))
    data = {"data": torch.arange(50)}
    both = [kind(torch.from_numpy(edges), nodes, data) for kind in (EdgesByTarget, DynamicGraph)]
    moved, next_data = 0, 50
    for step in range(80):
        count = int(rng.integers(0, 60))
        src, dst = rng.integers(0, nodes, (2, count))
        dst[::2] = rng.integers(0, 3)  # some lists grow long, and shrink
        alive = both[1].to_edge_index().numpy()
        gone = alive[:, rng.permutation(alive.shape[1])[: rng.integers(0, 55)]]
        removed = rng.integers(0, nodes, int(nodes_leave and step % 9 == 5))
        before = both[0].inn.start.copy()
        for graph in both:
            listed, more = graph.resolve_removal(*gone, removed, removed)
            slots = np.concatenate([listed, more])
            graph.remove(slots)
            graph.release(slots)
            graph.add(src, dst, {"data": torch.arange(next_data, next_data + count)})
            if step % 20 == 10:
                graph.append_nodes(2)
        nodes, next_data = both[0].num_nodes, next_data + count
        moved += int((both[0].inn.start[: before.size] != before).sum())
        check(*both)
    assert moved > 20
    assert both[0].inn.edge.size < 20_000  # what lists leave is taken again


def test_what_is_asked_of_the_system_grows_where_it_is():
    storage = GrowingStorage()
    array = storage.zeros(np.int64, SMALL // 8)
    array[:] = 7
    longer = storage.longer(array, 3 * array.size)
    longer[0] = 8
    assert array[0] == 8
    assert (longer[1 : array.size] == 7).all()
    assert not longer[array.size :].any()
    copied = copy.deepcopy(storage).longer(longer, 4 * array.size)
    copied[0] = 9
    assert array[0] == 8


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_copies_are_apart(copied):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graph = DynamicGraph(edges, 5)
    sampler = StreamingSampler(edges, 5, [2, 2], seed=1)
    graph.add_edges(torch.tensor([[3], [4]]))
    sampler.apply_delta(edge_index_add=[[3], [4]])
    sampler.sample(torch.tensor([4]))
    other, own = copied(graph), copied(sampler)
    other.add_edges(torch.tensor([[4], [4]]))
    own.apply_delta(edge_index_add=[[0], [4]])
    assert other.to_edge_index().tolist() == [[0, 1, 2, 3, 4], [1, 2, 0, 4, 4]]
    assert graph.to_edge_index().tolist() == [[0, 1, 2, 3], [1, 2, 0, 4]]
    assert sampler.sample(torch.tensor([4])).num_sampled_edges[0] == 1
    assert own.sample(torch.tensor([4])).num_sampled_edges[0] == 2

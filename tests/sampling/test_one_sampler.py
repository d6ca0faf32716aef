"""Whoever changes the graph of a sampler, all that hold features of it have them."""

import numpy as np
import pytest
import torch
from torch import nn

from pyg_incremental import InvalidDeltaError
from pyg_incremental.sampling import SampleCache, SampledModel, StreamingSampler
from tests.sampling.test_streams import made, random_delta

CHANNELS = 4


class WithNeighbors(nn.Module):
    """A row and the sum of the rows that lead to it."""

    def forward(self, x, edge_index):
        return x.index_add(0, edge_index[1], x[edge_index[0]])


@pytest.mark.parametrize("who", ["cache", "other cache", "model", "sampler"])
def test_features_reach_all(who, seed):
    rng = np.random.default_rng(seed)
    sampler, naive = made("random", seed, rng, (3, 2))
    x = torch.randn(12, CHANNELS)
    cache, other = SampleCache(sampler, x), SampleCache(sampler, x, memory=0)
    model = SampledModel(WithNeighbors().eval(), sampler, x)
    by = {"cache": cache, "other cache": other, "model": model, "sampler": sampler}[who]
    for one in (cache, other):
        one.subscribe(torch.tensor([1, 5]))
    for turn in range(25):
        fields = random_delta(sampler, naive, "random", rng)
        if "x_add" in fields:
            fields["x_add"] = torch.randn(len(fields["x_add"]), CHANNELS)
            x = torch.cat([x, fields["x_add"]])
        fields["x_changes"] = (torch.tensor([turn % len(x)]), torch.randn(1, CHANNELS))
        x[turn % len(x)] = fields["x_changes"][1]
        x[fields["nodes_del"]] = 0
        by.apply_delta(**fields)
        seeds = torch.from_numpy(rng.permutation(len(x))[:3])
        out = sampler.sample(seeds)
        for one in (cache, other):
            assert torch.equal(one.query(seeds).x, x[out.node])
        whole = WithNeighbors()(x[out.node], torch.stack([out.row, out.col]))
        assert torch.equal(model(seeds), whole[:3])


def test_features_that_do_not_fit_all_change_nothing():
    sampler = StreamingSampler(torch.tensor([[0], [1]]), 2, [2])
    narrow, wide = SampleCache(sampler, torch.ones(2, 1)), SampleCache(sampler, torch.ones(2, 3))
    with pytest.raises(InvalidDeltaError, match="x_add"):
        narrow.apply_delta(edge_index_add=torch.tensor([[2], [1]]), x_add=torch.ones(1, 1))
    assert (sampler.num_nodes, sampler.num_edges, sampler.version) == (2, 1, 0)
    assert wide.query(torch.tensor([1])).n_id.tolist() == [1, 0]


@pytest.mark.parametrize("fanouts", [[-1], [1, -1], [0, -1]])
def test_all_edges_of_a_node_change_with_each(fanouts):
    sampler = StreamingSampler(torch.tensor([[0, 1], [2, 2]]), 4, fanouts, edge_time=[1.0, 2.0])
    for _ in range(4):
        update = sampler.apply_delta(
            edge_index_add=torch.tensor([[3], [2]]), edge_data_add={"time": [3.0]}
        )
        assert update.changed.tolist() == [2]
    assert sampler.apply_delta(edge_index_del=torch.tensor([[3], [2]])).changed.tolist() == [2]
    assert sampler.expire(2.0).changed.tolist() == [2]


@pytest.mark.parametrize(
    "first",
    [[1700000030.0, 1700000000.0], np.array([1700000030.0, 1700000000.0])],
    ids=["list", "array"],
)
def test_times_of_today_are_told_apart(first):
    edges = torch.tensor([[0, 1], [3, 3]])
    sampler = StreamingSampler(edges, 4, [1], strategy="topk", edge_time=first)
    assert sampler.sample(torch.tensor([3])).edge.tolist() == [0]
    at = torch.tensor([1.0, 2.0])  # float32, in which all that follows is one time
    sampler = StreamingSampler(edges, 4, [1], strategy="topk", edge_time=at)
    later = torch.tensor([1700000030.0, 1700000000.0], dtype=torch.float64)
    sampler.apply_delta(edge_index_add=edges, edge_data_add={"time": later})
    assert sampler.sample(torch.tensor([3])).edge.tolist() == [2]
    sampler.expire(1700000001.0)
    assert sampler.num_edges == 1


@pytest.mark.parametrize(("fanouts", "channels"), [([0, 2], 3), ([2, 2], 0)])
def test_rows_without_bytes_in_no_memory(fanouts, channels):
    edges = torch.tensor([[0, 1, 2], [3, 3, 1]])
    cache = SampleCache(StreamingSampler(edges, 4, fanouts), torch.ones(4, channels), memory=0)
    cache.subscribe(torch.arange(4))
    found = cache.query(torch.tensor([3]))
    assert found.x.shape == (found.n_id.numel(), channels)
    assert sorted(found.n_id.tolist()) == ([3] if fanouts[0] == 0 else [0, 1, 2, 3])


def test_nobody_gets_the_id_of_an_edge_that_leaves_at_once():
    sampler = StreamingSampler(torch.tensor([[0, 1], [3, 3]]), 4, [5])
    update = sampler.apply_delta(
        edge_index_add=torch.tensor([[0, 2, 1], [3, 3, 0]]), nodes_del=torch.tensor([1])
    )
    assert update.edge_ids.tolist() == [2, 3]
    assert sampler.sample(torch.tensor([3])).edge.sort().values.tolist() == [0, 2, 3]
    assert sampler.apply_delta(edge_index_add=torch.tensor([[0], [0]])).edge_ids.tolist() == [5]

"""A model on samples against the model itself."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_incremental import InvalidDeltaError, StaleStateError
from pyg_incremental.sampling import SampleCache, SampledModel, StreamingSampler
from tests.oracle import World

NODES = 30


def world_of(count=150):
    torch.manual_seed(0)
    edges = torch.randint(NODES, (count, 2))
    return World(torch.randn(NODES, 4, dtype=torch.float64), edges.tolist())


def deltas():
    """Edges, features and nodes, some of each."""
    generator = torch.Generator().manual_seed(1)
    for turn in range(8):
        nodes = NODES + turn
        yield {
            "x_add": torch.randn(1, 4, dtype=torch.float64, generator=generator),
            "edge_index_add": torch.randint(nodes + 1, (2, 9), generator=generator),
            "x_changes": (
                torch.tensor([turn, 3]),
                torch.randn(2, 4, dtype=torch.float64, generator=generator),
            ),
            "nodes_del": torch.tensor([3 * turn]),
        }


@pytest.mark.parametrize("kind", [GraphSAGE, GAT, GIN])
def test_all_neighbours_are_the_model_on_the_whole_graph(kind):
    world = world_of()
    model = kind(4, 8, num_layers=2, out_channels=3).eval().double()
    sampled = SampledModel(
        model, StreamingSampler(world.edge_index(), NODES, [-1, -1]), world.x, batch_size=7
    )
    for fields in deltas():
        update = sampled.apply_delta(**fields)
        world.apply(**fields)
        assert update.version == sampled.sampler.version
        full = model(world.x, world.edge_index())
        torch.testing.assert_close(sampled(torch.arange(world.num_nodes)), full)
        torch.testing.assert_close(sampled(torch.tensor([5])), full[5:6])
    assert sampled.num_nodes == world.num_nodes == NODES + 8


def test_from_samples_and_from_a_cache():
    """Both give the model's output on the very subgraph of the sample; nothing is trimmed wrong."""
    world = world_of(400)
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval().double()
    edges = world.edge_index()
    plain = SampledModel(model, StreamingSampler(edges, NODES, [4, 2], seed=3), world.x)
    cache = SampleCache(StreamingSampler(edges, NODES, [4, 2], seed=3), world.x)
    cached = SampledModel(model, cache)
    seeds = torch.tensor([4, 9, 4])
    for fields in [{}, *deltas()]:
        for sampled in (plain, cached):
            sampled.apply_delta(**fields)
        if fields:
            world.apply(**fields)
        out = plain.sampler.sample(seeds)
        expected = model(world.x[out.node], torch.stack([out.row, out.col]))[:3]
        torch.testing.assert_close(plain(seeds), expected)
        torch.testing.assert_close(cached(seeds), expected)
        assert not torch.equal(plain(seeds), model(world.x, world.edge_index())[seeds])
    assert cache.stats.misses == 2


def test_a_model_with_more_layers_than_hops_is_not_trimmed():
    world = world_of()
    model = GCN(4, 8, num_layers=3, out_channels=3).eval().double()
    sampler = StreamingSampler(world.edge_index(), NODES, [4, 2])
    out = sampler.sample(torch.tensor([1]))
    expected = model(world.x[out.node], torch.stack([out.row, out.col]))[:1]
    torch.testing.assert_close(SampledModel(model, sampler, world.x)(torch.tensor([1])), expected)


def test_what_does_not_fit_is_refused():
    world = world_of()
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval().double()
    sampler = StreamingSampler(world.edge_index(), NODES, [4, 2])
    with pytest.raises(ValueError, match="with the features x"):
        SampledModel(model, sampler)
    with pytest.raises(ValueError, match="leave x out"):
        SampledModel(model, SampleCache(sampler, world.x), world.x)
    sampled = SampledModel(model, sampler, world.x)
    before = sampled(torch.arange(NODES))
    for fields in ({"x_add": torch.zeros(1, 5)}, {"edge_index_add": torch.tensor([[0], [NODES]])}):
        with pytest.raises(InvalidDeltaError):
            sampled.apply_delta(x_changes=(torch.tensor([0]), world.x[1:2]), **fields)
    assert torch.equal(sampled(torch.arange(NODES)), before)
    assert sampled(torch.arange(0)).shape == (0, 3)
    assert "GraphSAGE" in repr(sampled)
    with pytest.raises(StaleStateError, match="eval"):
        SampledModel(model.train(), sampler, world.x)(torch.tensor([0]))

"""What does not fit is refused before anything is sampled; nothing given is passed over."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphSAGE

from pyg_incremental import InvalidDeltaError
from pyg_incremental.sampling import SampleCache, SampledModel, StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sources import QueueSource

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 3]])
TIMES = torch.arange(1.0, 7.0)
A, B = ("u", "buys", "i"), ("i", "bought", "u")
NAN = float("nan")


def plain(**arguments):
    return StreamingSampler(EDGES, 5, [2, 2], **arguments)


def hetero(**arguments):
    return StreamingSampler({A: EDGES, B: EDGES}, {"u": 5, "i": 5}, [2, 2], **arguments)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("edge_time", "random"), ("edge_time", "topk"), ("edge_weight", "weight")],
)
@pytest.mark.parametrize(
    ("make", "given", "match"),
    [
        (hetero, {A: TIMES, ("u", "buy", "i"): TIMES}, "expected keys among .*'buy'"),
        (hetero, {("u", "buy", "i"): TIMES}, "expected keys among .*'buy'"),
        (hetero, TIMES, "expected one number .* by type .got Tensor"),
        (plain, {"time": TIMES}, "expected one number for each edge .got a dict"),
        (plain, TIMES[:5], r"expected one number for each, \[6\]"),
        (plain, [*TIMES[:5].tolist(), NAN], "expected numbers .got NaN at position 5"),
        (plain, TIMES.to(torch.complex64), "expected real numbers"),
    ],
)
def test_data_of_edges_are_read_or_refused(make, given, match, name, strategy):
    """Also times that the strategy does not read: they keep seeds from seeing the future."""
    with pytest.raises(ValueError, match=f"{name}: {match}"):
        make(strategy=strategy, **{name: given})


def test_no_edge_comes_at_no_time():
    sampler = plain(edge_time=TIMES)
    edges = torch.tensor([[1], [0]])
    with pytest.raises(InvalidDeltaError, match="time_add: expected numbers"):
        sampler.apply_delta(edge_index_add=edges, edge_data_add={"time": [NAN]})
    for before in (NAN, None, "abc", [1.0, 2.0], 1j):
        with pytest.raises(ValueError, match="before"):
            sampler.expire(before)
    assert (sampler.version, sampler.num_edges) == (0, 6)
    assert sampler.expire(torch.tensor(3.0)).changed.tolist() == [1, 2]
    assert sampler.expire(np.float32(4.0)).changed.tolist() == [3]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([9.0], r"seed_time: expected one number for each, \[2\] .got shape \[1\]"),
        ([9.0, NAN], "seed_time: expected numbers .got NaN at position 1"),
        ([9.0, 0.0], "seed time 0.0: there are edges up to time 6.0"),
        ({"u": [9.0, 9.0]}, "seed_time: expected one time for each seed .got a dict"),
        (9.0, r"seed_time: expected one number for each, \[2\]"),
    ],
)
def test_times_of_seeds_are_those_of_the_seeds(given, match):
    seeds = torch.tensor([3, 4])
    with pytest.raises(ValueError, match=match):
        plain(edge_time=TIMES).sample(seeds, given)
    with pytest.raises(ValueError, match="seed_time"):
        hetero(edge_time={A: TIMES}).sample({"u": seeds}, {"i": [9.0, 9.0]})
    with pytest.raises(ValueError, match="the edges have no times"):
        plain().sample(seeds, [9.0, 9.0])
    mask = torch.tensor([False, False, False, True, True])
    assert plain(edge_time=TIMES).sample(mask, [9, 9]).node[:2].tolist() == [3, 4]
    out = hetero(edge_time={A: TIMES}).sample({"u": seeds}, {"u": np.array([6.0, 7.0])})
    assert out.node["u"][:2].tolist() == [3, 4]


@pytest.mark.parametrize("num_nodes", [None, -1, 2.5, True, {"u": 5}, torch.tensor([5, 5]), "5"])
def test_a_number_of_nodes_is_a_number(num_nodes):
    with pytest.raises(ValueError, match="num_nodes: expected a number of nodes"):
        StreamingSampler(EDGES, num_nodes, [2])


def test_numbers_of_nodes_by_type():
    for num_nodes in (10, None, {"u": 5}, {"u": 5, "i": -1}, {"u": 5, "i": None}):
        with pytest.raises(ValueError, match="num_nodes: expected a number of nodes for each of"):
            StreamingSampler({A: EDGES}, num_nodes, [2])
    with pytest.raises(ValueError, match="edge_index: expected edges"):
        StreamingSampler({}, {"u": 5}, [2])
    more = {"u": np.int32(5), "i": torch.tensor(5), "alone": 7}
    assert StreamingSampler({A: EDGES}, more, [2]).num_nodes == {"u": 5, "i": 5, "alone": 7}


@pytest.mark.parametrize("given", [2, None, [True], [2.5], [-2], [], "2", {A: [2]}, [[2]]])
def test_numbers_of_neighbors_are_numbers(given):
    with pytest.raises(ValueError, match="num_neighbors: expected one number for each hop"):
        StreamingSampler(EDGES, 5, given)


@pytest.mark.parametrize("given", [(2, 1), np.array([2, 1]), torch.tensor([2, 1])])
def test_numbers_of_neighbors_come_in_any_list(given):
    assert StreamingSampler(EDGES, 5, given).num_neighbors == [2, 1]


@pytest.mark.parametrize("weight", [0.0, -1.0, NAN, float("inf"), 1e-310, 1e300])
def test_weights_that_cannot_be_told_apart_are_refused(weight):
    weights = torch.full((6,), weight, dtype=torch.float64)
    with pytest.raises(InvalidDeltaError, match="edge_weight"):
        plain(strategy="weight", edge_weight=weights)


@pytest.mark.parametrize("scale", [1e-299, 1.0, 1e279])
def test_only_ratios_of_weights_count(scale):
    """Of four edges, one of three times the weight, 2,000 nodes draw one each."""
    count, nodes = 2000, torch.arange(2000)
    edges = torch.stack([torch.arange(4 * count), nodes.repeat_interleave(4)])
    weights = torch.tensor([1.0, 1.0, 1.0, 3.0], dtype=torch.float64).repeat(count) * scale
    sampler = StreamingSampler(edges, 4 * count, [1], strategy="weight", edge_weight=weights)
    drawn = torch.bincount(sampler.sample(nodes).edge % 4, minlength=4) / count
    torch.testing.assert_close(drawn, torch.tensor([1, 1, 1, 3.0]) / 6, atol=0.04, rtol=0)


@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("cached", [False, True])
def test_jumping_knowledge_reads_the_rows_of_all_layers(jk, cached):
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64)
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3, jk=jk).eval().double()
    sampled = SampledModel(model, SampleCache(plain(), x)) if cached else SampledModel(
        model, plain(), x.numpy()
    )  # fmt: skip
    torch.testing.assert_close(sampled(torch.arange(5)), model(x, EDGES))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
@pytest.mark.parametrize("cached", [False, True])
def test_a_copy_follows_its_own_graph(cached, again):
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64)
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval().double()
    made = SampledModel(model, SampleCache(plain(), x)) if cached else SampledModel(
        model, plain(), x
    )  # fmt: skip
    seeds = torch.arange(5)
    before = made(seeds)
    copied = again(made)
    alone = again(made.sampler)  # a sampler, or a cache, with somebody who watches
    rows, edges = torch.ones(1, 4, dtype=torch.float64), torch.tensor([[4], [2]])
    copied.apply_delta(x_changes=(torch.tensor([1]), rows), edge_index_add=edges)
    assert torch.equal(made(seeds), before)
    x[1] = 1
    torch.testing.assert_close(copied(seeds), model(x, torch.cat([EDGES, edges], 1)))
    alone.apply_delta(edge_index_add=edges)
    assert torch.equal(made(seeds), before)
    assert made.num_nodes == copied.num_nodes == 5


@pytest.mark.parametrize("batch_size", [0, -1, None, 2.0])
def test_a_batch_has_a_seed(batch_size):
    model = GraphSAGE(4, 8, num_layers=2).eval()
    with pytest.raises(ValueError, match="batch_size"):
        SampledModel(model, plain(), torch.ones(5, 4), batch_size=batch_size)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"edge_time": {"time": TIMES}}, "edge_time: expected one number for each edge"),
        ({"edge_time": [*TIMES[:5].tolist(), NAN]}, "edge_time: expected numbers .got NaN"),
        ({"edge_time": TIMES[:3]}, "edge_time: expected one number for each"),
        ({"owners": {"u": [0, 1]}}, "owners: expected the part of each node"),
        ({"num_neighbors": 2}, "num_neighbors: expected one number for each hop"),
    ],
)
def test_a_service_reads_as_a_sampler_does(wrong, match, tmp_path):
    arguments = {"num_neighbors": [2, 2], **wrong}
    with pytest.raises(ValueError, match=match):
        SampleService(QueueSource(), EDGES, np.ones((5, 4)), directory=tmp_path, **arguments)

"""Any stream of changes leaves the very samples that their definition gives."""

from itertools import chain

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta, InvalidDeltaError
from pyg_incremental.sampling import StreamingSampler
from tests.sampling.naive import NaiveSampler

pytestmark = pytest.mark.kernels
STRATEGIES = ("random", "topk", "weight")
DATA = {"random": None, "topk": "time", "weight": "edge_weight"}


def values_of(strategy, count, rng):
    if strategy == "topk":
        return rng.integers(0, 6, count)  # many ties
    return rng.random(count) + 0.1


def made(strategy, seed, rng, fanouts=(3, 2), nodes=12, count=40, **more):
    """A sampler and the naive one on the same edges, parallel ones and loops among them."""
    edges, values = rng.integers(0, nodes, (2, count)), values_of(strategy, count, rng)
    data = {
        "random": {},
        "topk": {"edge_time": torch.from_numpy(values)},
        "weight": {"edge_weight": torch.from_numpy(values)},
    }[strategy]
    sampler = StreamingSampler(
        torch.from_numpy(edges), nodes, list(fanouts), strategy=strategy, seed=seed, **data, **more
    )
    naive = NaiveSampler(strategy, seed)
    for (u, v), value in zip(edges.T.tolist(), values.tolist(), strict=True):
        naive.add(u, v, value)
    return sampler, naive


def random_delta(sampler, naive, strategy, rng):
    """A delta with everything in it; the naive sampler takes it at once."""
    fields, nodes = {}, sampler.num_nodes
    if rng.random() < 0.3:
        fields["x_add"] = torch.empty(int(rng.integers(1, 3)), 4)
        nodes += len(fields["x_add"])
    alive = [(e["src"], e["dst"]) for e in naive.edges]
    gone = [alive[i] for i in rng.permutation(len(alive))[: rng.integers(0, 8)]]
    fields["edge_index_del"] = torch.tensor(gone, dtype=torch.int64).view(-1, 2).t()
    removed = rng.integers(0, nodes, int(rng.random() < 0.2))
    fields["nodes_del"] = torch.from_numpy(removed)
    # Half of the edges have one target, so that a row overflows and is filled again.
    count = int(rng.integers(0, 12))
    added, values = rng.integers(0, nodes, (2, count)), values_of(strategy, count, rng)
    added[1, ::2] = 0
    fields["edge_index_add"] = torch.from_numpy(added)
    if DATA[strategy]:
        fields["edge_data_add"] = {DATA[strategy]: torch.from_numpy(values)}
    for pair in gone:
        naive.delete(*pair)
    for (u, v), value in zip(added.T.tolist(), values.tolist(), strict=True):
        naive.add(u, v, value)  # of those that leave at once nobody else gets the id
    for node in removed.tolist():
        naive.remove_node(node)
    return fields


def check(sampler, naive, fanouts, rng):
    rows = sampler.edges_of().rows
    width = max(*fanouts, 0)
    for node in range(sampler.num_nodes):
        assert rows.of(node).tolist() == naive.sample(node, width)
    assert rows.heads[:, 1].max() <= width + (width + 1) // 2
    seeds = rng.integers(0, sampler.num_nodes, 3)
    seeds = list(dict.fromkeys(seeds.tolist()))
    out = sampler.sample(torch.tensor(seeds))
    hops, edges = naive.subgraph(seeds, fanouts)
    assert out.num_sampled_nodes == [len(hop) for hop in hops]
    assert out.num_sampled_edges == [len(hop) for hop in edges]
    ends = out.node[out.row].tolist(), out.node[out.col].tolist()
    found = list(zip(*ends, out.edge.tolist(), strict=True))
    if min(fanouts) >= 0:
        assert out.node.tolist() == list(chain(*hops))
        assert found == list(chain(*edges))
    for parts, all_parts in ((out.node.tolist(), hops), (found, edges)):
        first = 0
        for part in all_parts:  # all neighbours come in any order
            assert sorted(parts[first : first + len(part)]) == sorted(part)
            first += len(part)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fanouts", [(3, 2), (2, -1), (-1, 4, 1)])
def test_any_stream(strategy, fanouts, seed):
    rng = np.random.default_rng(seed)
    sampler, naive = made(strategy, seed, rng, fanouts)
    check(sampler, naive, fanouts, rng)
    overflowed = False
    for _ in range(60):
        widest = -1 if min(fanouts) < 0 else max(fanouts)
        before = {v: naive.sample(v, widest) for v in range(sampler.num_nodes)}
        first = naive.next_id
        update = sampler.apply_delta(**random_delta(sampler, naive, strategy, rng))
        assert update.edge_ids.tolist() == [e["id"] for e in naive.edges if e["id"] >= first]
        check(sampler, naive, fanouts, rng)
        differ = [v for v in before if naive.sample(v, widest) != before[v]]
        assert set(differ) <= set(update.changed.tolist())
        overflowed |= len(naive.sample(0, -1)) > 8
    assert overflowed
    assert sampler.edges_of().rows.edges_read > 0
    assert sampler.version == 60


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_of_events_leaves_no_trace(strategy, seed):
    """One delta with all edges and one for each edge give the same samples."""
    rng = np.random.default_rng(seed)
    at_once, naive = made(strategy, seed, rng, nodes=6, count=30)
    data = {"random": {}, "topk": {"edge_time": torch.empty(0, dtype=torch.int64)},
            "weight": {"edge_weight": torch.empty(0, dtype=torch.float64)}}[strategy]  # fmt: skip
    none = torch.empty(2, 0, dtype=torch.int64)
    one_by_one = StreamingSampler(none, 6, [3, 2], strategy=strategy, seed=seed, **data)
    for edge in naive.edges:
        more = {"edge_data_add": {DATA[strategy]: [edge["value"]]}} if DATA[strategy] else {}
        one_by_one.apply_delta(edge_index_add=[[edge["src"]], [edge["dst"]]], **more)
    for node in range(6):
        assert one_by_one.edges_of().rows.of(node).tolist() == naive.sample(node, 3)
        assert at_once.edges_of().rows.of(node).tolist() == naive.sample(node, 3)


def test_resample_draws_again(seed):
    rng = np.random.default_rng(seed)
    for strategy in ("random", "weight"):
        sampler, naive = made(strategy, seed, rng, count=100)
        before = sampler.sample(torch.arange(12))
        again = sampler.sample(torch.arange(12))
        assert torch.equal(before.edge, again.edge)  # until the graph changes
        update = sampler.resample()
        naive.turn = 1
        assert update.changed.tolist() == list(range(12))
        check(sampler, naive, (3, 2), rng)
        assert not torch.equal(sampler.sample(torch.arange(12)).edge, before.edge)
        sampler.apply_delta(**random_delta(sampler, naive, strategy, rng))
        check(sampler, naive, (3, 2), rng)


def test_times_in_any_order_of_numbers():
    """Floats, negative ones and zeros of both signs; of equal ones the newer edge."""
    times = torch.tensor(
        [0.5, -0.0, 0.0, -3.5, float("inf"), -float("inf"), 1e-310, -3.5], dtype=torch.float64
    )
    edges = torch.stack([torch.arange(8), torch.zeros(8, dtype=torch.int64)])
    sampler = StreamingSampler(edges, 8, [8], strategy="topk", edge_time=times)
    assert sampler.edges_of().rows.of(0).tolist() == [4, 0, 6, 2, 1, 7, 3, 5]


def test_old_edges_expire(seed):
    rng = np.random.default_rng(seed)
    sampler, naive = made("topk", seed, rng, count=80)
    update = sampler.expire(before=3)
    naive.edges = [e for e in naive.edges if e["value"] >= 3]
    assert sampler.num_edges == len(naive.edges) < 80
    assert update.edge_ids.numel() == 0
    assert update.changed.numel() > 0
    check(sampler, naive, (3, 2), rng)
    with pytest.raises(ValueError, match="no times"):
        made("random", seed, rng)[0].expire(3)


def test_the_oldest_of_many_edges_of_one_pair_leave():
    """A window on a stream in which one pair comes again and again."""
    seen = torch.tensor([[1], [0]]).expand(2, 100)
    sampler = StreamingSampler(seen, 2, [-1])
    for left in (90, 80):
        sampler.apply_delta(edge_index_del=seen[:, :10], which="oldest")
        assert sorted(sampler.sample(torch.tensor([0])).edge) == list(range(100 - left, 100))


def test_rows_are_read_again_only_now_and_then():
    """Deleting the newest edge over and over, from a node with many: the worst that can be done."""
    many, width = 2_000, 10
    edges = torch.stack([torch.arange(many), torch.zeros(many, dtype=torch.int64)])
    sampler = StreamingSampler(edges, many, [width], strategy="topk", edge_time=torch.arange(many))
    rows = sampler.edges_of().rows
    at_first = rows.edges_read
    assert at_first == many
    for newest in range(many - 1, many - 61, -1):
        sampler.apply_delta(edge_index_del=edges[:, newest : newest + 1])
    assert rows.of(0).tolist() == list(range(many - 61, many - 71, -1))
    assert 0 < rows.edges_read - at_first <= 60 // (width // 2) * many
    for added in range(50):  # what arrives is never a reason to read the others
        sampler.apply_delta(
            edge_index_add=[[added], [0]], edge_data_add={"time": torch.tensor([many + added])}
        )
    assert rows.edges_read - at_first <= 60 // (width // 2) * many


def bytes_of(sampler):
    own = sampler.edges_of()
    state = [t.clone() for t in own.graph.state().values()]
    lists = own.graph.lists()
    return [*state, *lists.values(), torch.from_numpy(own.rows.heads.copy()), torch.tensor(
        [own.next_id, sampler.num_nodes, sampler.version]
    )]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"edge_index_add": [[0], [99]]}, "ids lie in"),
        ({"edge_index_del": [[0], [0]]}, "is not in the graph"),
        (
            {"edge_index_add": [[0], [1]], "x_add": torch.empty(1, 2), "nodes_del": [50]},
            "nodes_del",
        ),
        ({"edge_index_add": [[0], [1]]}, "come without 'edge_weight'"),
        ({"edge_index_add": [[0], [1]], "edge_weight_add": [0.0]}, "positive, finite"),
        ({"edge_index_add": [[0], [1]], "edge_weight_add": [float("nan")]}, "got NaN"),
        ({"edge_index_add": [[0], [1]], "edge_weight_add": [1.0, 2.0]}, "one number for each"),
        ({"edge_changes": ([[0], [1]], {"edge_weight": [2.0]})}, "delete the edges and add"),
    ],
)
def test_refused_deltas_change_nothing(fields, text):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    sampler = StreamingSampler(
        edges, 3, [2], strategy="weight", edge_weight=torch.tensor([1.0, 2.0, 3.0])
    )
    before = bytes_of(sampler)
    with pytest.raises(InvalidDeltaError, match=text):
        sampler.apply_delta(**fields)
    assert all(map(torch.equal, before, bytes_of(sampler)))
    sampler.apply_delta(edge_index_del=[[0], [0]], missing="ignore")
    assert sampler.num_edges == 3


def test_the_delta_of_a_model_does():
    """Features, attributes and changes of data that samples do not depend on are passed over."""
    sampler = StreamingSampler(torch.tensor([[0, 1], [1, 0]]), 2, [2])
    delta = GraphDelta(
        edge_index_add=torch.tensor([[0], [2]]),
        edge_weight_add=torch.ones(1),
        edge_attr_add=torch.ones(1, 3),
        edge_changes=(torch.tensor([[0], [1]]), {"edge_weight": torch.ones(1)}),
        x_changes=(torch.tensor([0]), torch.ones(1, 4)),
        x_add=torch.ones(1, 4),
        undirected=True,
    )
    update = sampler.apply_delta(delta)
    assert update.edge_ids.tolist() == [2, 3]
    assert update.changed.tolist() == [0, 2]
    assert (sampler.num_nodes, sampler.num_edges) == (3, 4)

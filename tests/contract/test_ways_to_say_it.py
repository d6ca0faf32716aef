"""What a delta is given as: the oldest or the newest of parallel edges, one row, any dtype."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from pyg_incremental.graph import parallel
from tests.closeness import assert_close
from tests.contract.test_join import Weighted
from tests.contract.test_what_changed import Classes, NodesAndEdges
from tests.oracle import full
from tests.strategies import fresh_rows, generator, index, make_world, node_rows
from tests.trust.small import edge, wrapped
from tests.zoo import CHANNELS, WEIGHT

# Parallel edges ##################################################################################

MODELS = {
    "weights": (Weighted, WEIGHT),
    "max": (lambda: Classes(lambda a, b: SAGEConv(a, b, aggr="max")), ()),
    "nodes and edges": (NodesAndEdges, ()),
}


def window(world, rng):
    """A delta on few pairs, most of which are there several times."""
    which = str(rng.choice(["oldest", "newest"]))
    gone = [world.pairs()[i] for i in rng.permutation(len(world.edges))[: rng.integers(6)]]
    come = [tuple(map(int, pair)) for pair in rng.integers(0, 4, (rng.integers(6), 2))]
    delta = {"edge_index_del": index(gone), "edge_index_add": index(come), "which": which}
    delta |= {f"{k}_add": v for k, v in fresh_rows(world, rng, len(come)).items()}
    after = world.copy()
    after.apply(**delta)
    if rng.random() < 0.3:
        delta["x_add"] = node_rows(rng, 1, CHANNELS, torch.float64)
    if after.edges and world.names:
        pairs = [after.pairs()[i] for i in rng.permutation(len(after.edges))[:3]]
        delta["edge_changes"] = (index(pairs), fresh_rows(world, rng, len(pairs)))
    if rng.random() < 0.2:
        delta["nodes_del"] = torch.tensor([int(rng.integers(4))])
    if rng.random() < 0.2:
        delta["edge_index_del"] = torch.cat([index(gone), index([(0, 3)] * 9)], 1)
        delta["missing"] = "ignore"
    return delta


def start(name, rng):
    make, data = MODELS[name]
    world = make_world(rng, nodes=5, edges=20, channels=CHANNELS, data=data)
    torch.manual_seed(0)
    model = make().double().eval()
    inc = to_incremental(model, compile_after=2)
    inc(**world.inputs())
    return world, model, inc


@pytest.mark.kernels
@pytest.mark.parametrize("long", [2, 64])
@pytest.mark.parametrize("name", MODELS)
def test_the_oldest_or_the_newest_of_a_pair(name, long, monkeypatch):
    monkeypatch.setattr(parallel, "LONG", long)
    rng = generator([long, len(name)])
    world, model, inc = start(name, rng)
    for _ in range(40):
        delta = window(world, rng)
        up = inc.preview(**delta)
        world.apply(**delta)
        done = inc.apply_delta(**delta)
        assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
        for data in world.names:
            assert torch.equal(inc.edge_data(data), world.edge_data(data))
        assert_close(inc.out, full(model, world))
        assert_close(up.out, done.out)
    assert inc.check() == []


@pytest.mark.parametrize("seed", range(3))
def test_the_inverse_brings_back_every_pair_in_its_order(seed):
    rng = generator(seed)
    undone = 0
    for _ in range(20):
        world, _, inc = start("weights", rng)
        delta = window(world, rng)
        back = inc.inverse(GraphDelta(**delta))
        before, rows = by_pair(inc), inc.x.clone()
        inc.apply_delta(**delta)
        undone += by_pair(inc) != before
        inc.apply_delta(back)
        assert by_pair(inc) == before
        assert torch.equal(inc.x[: len(rows)], rows)
    assert undone > 10


def by_pair(inc):
    """The weights of each pair, the oldest edge first."""
    found = {}
    rows = zip(inc.graph.to_edge_index().t().tolist(), inc.edge_data("edge_weight"), strict=True)
    for pair, weight in rows:
        found.setdefault(tuple(pair), []).append(weight.item())
    return found


def test_a_sliding_window_over_one_pair():
    """The first of many edges leaves again and again, found in the list of the smaller end."""
    inc = wrapped(nodes=10, edges=0)
    count = 300
    inc.apply_delta(edge_index_add=torch.tensor([[1] * count, [2] * count]))
    hub = torch.stack([torch.ones(50, dtype=torch.long), torch.arange(50) % 10])
    inc.apply_delta(edge_index_add=hub)
    graph = inc.graph
    slots = graph.slots_in_order()
    first = slots[(graph.slots.src[slots] == 1) & (graph.slots.dst[slots] == 2)][:100]
    gone, more = parallel.find_removed(
        graph, np.full(100, 1), np.full(100, 2), (slots[:0], slots[:0]), oldest=True
    )
    assert sorted(gone.tolist()) == sorted(first.tolist())
    assert more.size == 0
    inc.apply_delta(edge_index_del=torch.tensor([[1] * 100, [2] * 100]), which="oldest")
    assert inc.check() == []
    assert inc.num_edges == count + 50 - 100


def test_which_is_one_of_two():
    inc = wrapped()
    with pytest.raises(InvalidDeltaError, match="'newest' or 'oldest'"):
        inc.apply_delta(edge_index_del=inc.graph.to_edge_index()[:, :1], which="first")
    with pytest.raises(InvalidDeltaError, match=r"\(39, 39\) .* not in the graph"):
        inc.apply_delta(edge_index_del=edge(39, 39), which="oldest")
    assert inc.version == 0


# One row #########################################################################################


@pytest.mark.parametrize("form", [torch.tensor, np.array, list])
def test_one_id_with_one_row(form):
    inc = wrapped()
    row = form([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    inc.apply_delta(x_changes=(7, row))
    inc.apply_delta(x_changes=([8], row), x_add=row)
    for node in (7, 8, 40):
        assert inc.x[node].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert inc.verify() < 1e-5
    with pytest.raises(InvalidDeltaError, match=r"expected shape \[k, 6\]"):
        inc.apply_delta(x_changes=([7, 8], row))


def test_one_edge_with_one_weight():
    torch.manual_seed(0)
    inc = to_incremental(Weighted().eval())
    inc(torch.randn(5, CHANNELS), edge(0, 1), torch.ones(1))
    inc.apply_delta(edge_index_add=edge(2, 1), edge_weight_add=0.5)
    inc.apply_delta(edge_changes=(edge(0, 1), {"edge_weight": torch.tensor(0.25)}))
    assert inc.edge_data("edge_weight").tolist() == [0.25, 0.5]
    both = GraphDelta(edge_index_add=edge(3, 1), edge_weight_add=2.0)
    inc.apply_delta(both + both + GraphDelta(x_changes=(1, torch.ones(CHANNELS))))
    assert inc.edge_data("edge_weight").tolist() == [0.25, 0.5, 2.0, 2.0]


# Dtypes ##########################################################################################

ROWS = {
    "float64": torch.ones(1, 6, dtype=torch.float64) / 3,
    "float16": torch.ones(1, 6, dtype=torch.float16) / 3,
    "int64": torch.full((1, 6), 3),
    "bool": torch.ones(1, 6, dtype=torch.bool),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_another_dtype_are_rounded_wherever_they_come_from(name):
    for rows in (ROWS[name], ROWS[name].numpy(), ROWS[name].tolist()):
        inc = wrapped()
        inc.apply_delta(x_changes=([3], rows))
        assert inc.x.dtype == torch.float32
        assert torch.equal(inc.x[3], torch.as_tensor(rows).float()[0])
        assert inc.verify() < 1e-5


REFUSED = {
    "complex": (torch.ones(1, 6, dtype=torch.complex64), "lose more than digits"),
    "too large": (torch.full((1, 6), 1e300, dtype=torch.float64), "1e.300 does not fit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_dtype_cannot_hold_is_refused_wherever_it_comes_from(name):
    rows, why = REFUSED[name]
    inc = wrapped()
    digest = inc.state_digest()
    for given in (rows, rows.numpy(), rows.tolist()):
        with pytest.raises(InvalidDeltaError, match=why):
            inc.apply_delta(x_changes=([3], given))
    assert inc.state_digest() == digest
    rows = torch.full((1, 6), torch.inf, dtype=torch.float64)
    inc.apply_delta(x_changes=([3], rows))  # an infinity is one in any dtype
    assert inc.x[3].isinf().all()


def test_floats_are_no_types():
    class Typed(Classes):
        def __init__(self):
            super().__init__()
            self.kinds = torch.nn.Embedding(4, CHANNELS)

        def forward(self, kind, edge_index):
            return super().forward(self.kinds(kind), edge_index)

    torch.manual_seed(0)
    inc = to_incremental(Typed().eval())
    inc(torch.zeros(5, dtype=torch.long), edge(0, 1))
    for rows in ([2.0], np.array([2.0]), torch.tensor([2.0])):
        with pytest.raises(InvalidDeltaError, match="lose more than digits"):
            inc.apply_delta(x_changes=([1], rows))
    for rows in ([2], np.array([2], np.uint8), torch.tensor([2], dtype=torch.int32), 2):
        inc.apply_delta(x_changes=(1, rows))
        assert inc.x.tolist() == [0, 2, 0, 0, 0]
    inc.apply_delta(x_add=3)
    assert inc.x.tolist() == [0, 2, 0, 0, 0, 3]
    assert inc.verify() < 1e-6

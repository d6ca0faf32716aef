"""`d1 + d2` is what `d1` and then `d2` do, in one update; or it is refused."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from tests.closeness import assert_close
from tests.contract.test_what_changed import Classes
from tests.oracle import full
from tests.strategies import DELTAS, EVERY, generator, index, journey, make_world
from tests.trust.small import edge, wrapped
from tests.zoo import ATTR, CHANNELS, WEIGHT


class Weighted(Classes):
    def forward(self, x, edge_index, edge_weight):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class WeightedAndAttr(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(CHANNELS, 8), GATConv(8, 4, edge_dim=3)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        return self.last(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_attr)


MODELS = {
    "plain": (Classes, ()),
    "weights": (Weighted, WEIGHT),
    "two kinds of data": (WeightedAndAttr, (*WEIGHT, *ATTR)),
}


def tried(parts):
    """The deltas as one, or why not."""
    try:
        return sum(parts, GraphDelta()), ""
    except InvalidDeltaError as error:
        return None, str(error)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_joined_is_one_after_the_other(name, seed):
    make, data = MODELS[name]
    rng = generator([seed, len(name)])
    world = make_world(rng, channels=CHANNELS, data=data)
    torch.manual_seed(0)
    model = make().double().eval()
    inc = to_incremental(model, compile_after=3)
    inc(**world.inputs())
    kinds = journey(rng, finite=True, kinds=EVERY, rounds=2)
    joined = refused = 0
    while kinds:
        version, parts, total = inc.version, [], GraphDelta()
        count = int(rng.integers(2, 4))
        for _ in range(min(count, len(kinds))):
            delta = DELTAS[kinds.pop()](world, rng)
            world.apply(**delta)
            parts.append(GraphDelta(**delta))
        total, why = tried(parts)
        if total is None:
            assert "one after the other" in why
            refused += 1
            for part in parts:
                inc.apply_delta(part)
        else:
            joined += 1
            inc.apply_delta(total)
            assert inc.version == version + 1
        assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
        for rows in world.names:
            assert torch.equal(inc.edge_data(rows), world.edge_data(rows))
        assert torch.equal(inc.x, world.x)
        assert_close(inc.out, full(model, world))
    assert joined > 2 * refused
    assert joined > 15


@pytest.mark.parametrize("seed", range(40))
def test_small_deltas_on_few_pairs(seed):
    """The same pairs come, change and leave again and again, as tensors, arrays and lists."""
    rng = generator(seed)
    world = make_world(rng, nodes=3, edges=4, channels=CHANNELS, data=WEIGHT)
    torch.manual_seed(0)
    inc = to_incremental(Weighted().double().eval())
    inc(**world.inputs())
    parts = []
    for _ in range(3):
        gone = [world.pairs()[i] for i in rng.permutation(len(world.edges))[: rng.integers(3)]]
        come = [tuple(map(int, pair)) for pair in rng.integers(0, 3, (rng.integers(3), 2))]
        weight = torch.from_numpy(rng.random(len(come)))
        delta = {
            "edge_index_del": index(gone), "edge_index_add": index(come), "edge_weight_add": weight,
        }  # fmt: skip
        world.apply(**delta)
        if world.edges and rng.random() < 0.5:
            pairs = [world.pairs()[rng.integers(len(world.edges))]]
            changes = (index(pairs), {"edge_weight": torch.from_numpy(rng.random(1))})
            delta["edge_changes"] = changes
            world.apply(edge_changes=changes)
        if rng.random() < 0.3:
            delta["edge_weight_add"] = weight.numpy()
        parts.append(GraphDelta(**delta))
    total, why = tried(parts)
    if total is None:
        assert "another edge of this pair" in why
        return
    inc.apply_delta(total)
    assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
    assert torch.equal(inc.edge_data("edge_weight"), world.edge_data("edge_weight"))


def test_nothing_is_lost_and_nothing_is_said_twice():
    a = GraphDelta(edge_index_add=edge(1, 2), x_changes=([3], np.ones((1, 6))))
    b = GraphDelta(edge_index_del=edge(1, 2), x_changes=(torch.tensor([3]), torch.zeros(1, 6)))
    both = a + b
    assert both.edge_index_add is None
    assert both.edge_index_del is None
    inc = wrapped()
    inc.apply_delta(both)
    assert inc.x[3].abs().sum() == 0
    assert repr(GraphDelta() + GraphDelta()) == "GraphDelta()"
    assert (GraphDelta() + a).edge_index_add.tolist() == [[1], [2]]


def test_new_nodes_of_both():
    inc = wrapped(nodes=40)
    a = GraphDelta(x_add=torch.ones(2, 6), edge_index_add=edge(40, 41))
    b = GraphDelta(x_add=torch.zeros(1, 6), edge_index_add=edge(42, 41), nodes_del=[40])
    inc.apply_delta(a + b)
    assert inc.num_nodes == 43
    assert inc.x[40:].sum(1).tolist() == [0.0, 6.0, 0.0]
    assert inc.graph.to_edge_index()[:, -1].tolist() == [42, 41]
    assert inc.verify() < 1e-5


REFUSED = {
    "names an edge of node 1": (GraphDelta(nodes_del=[1]), GraphDelta(edge_index_add=edge(1, 2))),
    "name node 3": (GraphDelta(nodes_del=[3]), GraphDelta(x_changes=([3], torch.ones(1, 6)))),
    "another edge of this pair": (
        GraphDelta(edge_changes=(edge(1, 2), {"edge_weight": [2.0]})),
        GraphDelta(edge_index_add=edge(1, 2), edge_weight_add=[1.0]),
    ),
    "differ in 'missing'": (
        GraphDelta(edge_index_del=edge(1, 2), missing="ignore"),
        GraphDelta(edge_index_del=edge(1, 3)),
    ),
    "gives edges": (
        GraphDelta(edge_index_add=edge(1, 2), edge_weight_add=[1.0]),
        GraphDelta(edge_index_add=edge(1, 2)),
    ),
    "which is the oldest": (
        GraphDelta(edge_index_add=edge(1, 2)),
        GraphDelta(edge_index_del=edge(1, 2), which="oldest"),
    ),
    "a dict in one of them": (
        GraphDelta(x_changes=([3], torch.ones(1, 6))),
        GraphDelta(x_changes={"x": ([3], torch.ones(1, 6))}),
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_one_delta_cannot_say_is_refused(why):
    a, b = REFUSED[why]
    with pytest.raises(InvalidDeltaError, match=why):
        a + b
    with pytest.raises(TypeError):
        a + 1


def test_by_type_of_nodes_and_edges():
    torch.manual_seed(0)
    kinds = [("a", "to", "b"), ("b", "back", "a")]

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HeteroConv({k: SAGEConv((-1, -1), 4) for k in kinds})

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    x = {"a": torch.randn(6, 3).double(), "b": torch.randn(5, 2).double()}
    edges = {k: torch.from_numpy(np.random.default_rng(0).integers(0, 5, (2, 12))) for k in kinds}
    model = Two().eval().double()
    with torch.no_grad():
        model(x, edges)
    one, two = to_incremental(model), to_incremental(model)
    one(x, edges), two(x, edges)
    a = GraphDelta(
        edge_index_add={kinds[0]: edge(5, 4)},
        x_changes={"a": ([1], torch.ones(1, 3).double())},
        nodes_del={"b": [2]},
    )
    b = GraphDelta(
        edge_index_add={kinds[1]: edge(3, 2)},
        edge_index_del={kinds[0]: edge(5, 4)},
        x_add={"a": torch.ones(1, 3).double()},
        x_changes={"b": ([1], torch.ones(1, 2).double())},
    )
    one.apply_delta(a), one.apply_delta(b)
    two.apply_delta(a + b)
    assert two.version == 1
    for kind in "ab":
        assert_close(one.out[kind], two.out[kind])
    for key in kinds:
        assert torch.equal(one.graph[key].to_edge_index(), two.graph[key].to_edge_index())
    with pytest.raises(InvalidDeltaError, match="node 2"):
        a + GraphDelta(edge_index_add={kinds[1]: edge(2, 0)})
    a + GraphDelta(edge_index_add={kinds[1]: edge(0, 2)})  # node 2 of the other kind

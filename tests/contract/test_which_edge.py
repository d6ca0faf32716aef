"""Of several edges of one pair that one leaves whose data are said."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv, GraphConv, RGCNConv, SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from pyg_incremental.sampling import StreamingSampler
from tests.closeness import assert_close
from tests.contract.test_inputs import Frame
from tests.oracle import World, full
from tests.strategies import generator, index, node_rows

WIDTHS = {"edge_type": "type", "edge_weight": None, "edge_attr": 2}


class ByData(torch.nn.Module):
    """A model that reads all three kinds of edge data."""

    def __init__(self):
        super().__init__()
        self.a, self.b = RGCNConv(5, 4, 3), GATConv(4, 3, edge_dim=2)

    def forward(self, x, edge_index, edge_type, edge_weight, edge_attr):
        h = self.a(x, edge_index, edge_type).relu()
        return self.b(h, edge_index, edge_attr * edge_weight[:, None])


def alike(rng, count):
    """Data of few values, so that some edges have equal ones, both zeros and NaN among them."""
    weight = torch.tensor([0.0, -0.0, 0.5])[torch.from_numpy(rng.integers(0, 3, count))].double()
    attr = torch.from_numpy(rng.integers(0, 2, (count, 2))).double()
    return {
        "edge_type": torch.from_numpy(rng.integers(0, 3, count)),
        "edge_weight": weight,
        "edge_attr": attr,
    }


def side_by_side(rng):
    pairs = [(int(u), int(v)) for u, v in rng.integers(0, 4, (40, 2))]
    world = World(node_rows(rng, 5, 5, torch.float64), pairs, alike(rng, len(pairs)))
    torch.manual_seed(0)
    model = ByData().double().eval()
    inc = to_incremental(model)
    inc(**world.inputs())
    return world, model, inc


@pytest.mark.parametrize("undirected", [False, True])
def test_random_sequences(undirected, seed):
    rng = generator(seed)
    world, model, inc = side_by_side(rng)
    left = 0
    for _ in range(12):
        some = [world.edges[i] for i in rng.choice(len(world.edges), 5, replace=False)]
        names = rng.permutation(list(WIDTHS))[: rng.integers(1, 4)].tolist()
        come = [(int(u), int(v)) for u, v in rng.integers(0, 4, (4, 2))]
        data = alike(rng, len(come))
        delta = {
            "edge_index_del": index([e["pair"] for e in some]),
            "edge_data_del": {name: torch.stack([e[name] for e in some]) for name in names},
            "edge_index_add": index(come),
            "edge_weight_add": data.pop("edge_weight"),
            "edge_data_add": data,
            "which": ["oldest", "newest"][rng.integers(2)],
            "missing": "ignore" if undirected else "error",
            "undirected": undirected,
        }
        if rng.random() < 0.3:
            delta["nodes_del"] = torch.from_numpy(rng.integers(0, 4, 1))
        before = world.copy(), inc.out.clone()
        back = inc.inverse(GraphDelta(**delta))
        left += len(world.edges)
        world.apply(**delta)
        left -= len(world.edges) - len(come)
        inc.apply_delta(**delta)
        for name in world.names:
            assert torch.equal(inc.edge_data(name), world.edge_data(name))
        assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
        assert_close(inc.out, full(model, world))
        if rng.random() < 0.5:  # and back again, whichever of a pair had left
            inc.apply_delta(back)
            world = before[0]
            assert_close(inc.out, before[1])
            inc(**world.inputs())
    assert left > 30
    assert inc.check() == []


@pytest.mark.parametrize("kind", [0, 1])
def test_a_table_says_which(kind):
    torch.manual_seed(0)
    model, x = RGCNConv(5, 4, 3).double().eval(), torch.randn(6, 5).double()
    edges, kinds = torch.tensor([[0, 0, 0, 2], [1, 1, 1, 3]]), torch.tensor([0, 1, 2, 0])
    inc = to_incremental(model)
    inc(x, edges, kinds)
    inc.apply_delta(edge_index_del=Frame(src=[0], dst=[1], edge_type=np.array([kind])))
    stays = torch.arange(4) != kind
    assert inc.edge_data("edge_type").tolist() == kinds[stays].tolist()
    assert_close(inc.out, model(x, edges[:, stays], kinds[stays]).detach())


def test_nan_is_found_and_rounding_is_that_of_the_first_pass():
    inc = to_incremental(GATConv(5, 3, edge_dim=1).eval())
    inc(torch.randn(4, 5), index([(0, 1)] * 3), torch.tensor([[0.1], [torch.nan], [0.3]]))
    inc.apply_delta(edge_index_del=index([(0, 1)]), edge_data_del={"edge_attr": [[torch.nan]]})
    assert inc.edge_data("edge_attr").flatten().tolist() == pytest.approx([0.1, 0.3])
    tenth = torch.tensor([[0.1]], dtype=torch.float64)
    inc.apply_delta(edge_index_del=index([(0, 1)]), edge_data_del={"edge_attr": tenth})
    assert inc.edge_data("edge_attr").flatten().tolist() == pytest.approx([0.3])


def test_what_is_not_there_is_named():
    inc = to_incremental(RGCNConv(5, 4, 3).eval())
    inc(torch.randn(4, 5), index([(0, 1), (2, 3)]), torch.tensor([0, 1]))
    pairs = index([(2, 3), (0, 1)])
    with pytest.raises(InvalidDeltaError, match=r"edge \(0, 1\) with edge_type 2 at position 1"):
        inc.apply_delta(edge_index_del=pairs, edge_data_del={"edge_type": [1, 2]})
    assert inc.version == 0
    inc.apply_delta(edge_index_del=pairs, edge_data_del={"edge_type": [1, 2]}, missing="ignore")
    assert inc.graph.to_edge_index().tolist() == [[0], [1]]


def test_columns_that_tell_nothing_are_refused():
    inc = to_incremental(SAGEConv(5, 4).eval())
    inc(torch.randn(4, 5), index([(0, 1), (0, 1)]))
    table = Frame(src=[0], dst=[1], rating=[3])
    with pytest.raises(InvalidDeltaError, match=r"'rating'.*edge inputs: none.*'src', 'dst'"):
        inc.apply_delta(edge_index_del=table)
    with pytest.raises(InvalidDeltaError, match="no edge input 'rating'"):
        inc.apply_delta(edge_index_del=index([(0, 1)]), edge_data_del={"rating": [3]})
    with pytest.raises(InvalidDeltaError, match="'edge_type'"):
        inc.apply_delta(edge_index_del=index([(0, 1)]), edge_data_del=[3])
    told = {"edge_index_del": index([(0, 1)]), "edge_data_del": {"edge_type": [3]}}
    for made in (
        GraphDelta(edge_index_del=table).coalesce,
        GraphDelta(edge_index_del=table, undirected=True).both_directions,
        lambda: GraphDelta(edge_index_del={"r": table}) + GraphDelta(),
        lambda: GraphDelta(**told) + GraphDelta(edge_index_add=index([(0, 1)])),
    ):
        with pytest.raises(InvalidDeltaError):
            made()
    assert (GraphDelta(**told) + GraphDelta(x_add=torch.ones(1, 5))).edge_data_del == {
        "edge_type": [3]
    }


def test_a_sampler_refuses_it():
    sampler = StreamingSampler(index([(0, 1), (0, 1)]), 2, [2])
    for delta in (
        {"edge_index_del": Frame(src=[0], dst=[1], time=[3])},
        {"edge_index_del": index([(0, 1)]), "edge_data_del": {"time": [3]}},
    ):
        with pytest.raises(InvalidDeltaError, match="does not tell edges of one pair apart"):
            sampler.apply_delta(**delta)


def test_numbers_beside_the_call_tell_edges_apart(seed, tmp_path):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = GraphConv(3, 2).double().eval()
    x = torch.randn(4, 3).double()
    edges, weights = torch.randint(4, (2, 20)), torch.rand(20).double()
    ids = torch.from_numpy(rng.permutation(10**12 + np.arange(20)))
    inc = to_incremental(model)
    inc(x, edges, weights, edge_ids=ids)
    for turn in range(10):
        gone = torch.from_numpy(rng.permutation(edges.shape[1])[:3])
        new, number = torch.randint(4, (2, 2)), 10**13 + torch.tensor([2 * turn, 2 * turn + 1])
        more = torch.rand(2).double()
        inc.apply_delta(
            edge_index_del=edges[:, gone],
            edge_data_del={"edge_ids": ids[gone]},
            edge_index_add=new,
            edge_data_add={"edge_ids": number, "edge_weight": more},
        )
        stays = torch.ones(edges.shape[1], dtype=torch.bool)
        stays[gone] = False
        edges = torch.cat([edges[:, stays], new], 1)
        weights, ids = torch.cat([weights[stays], more]), torch.cat([ids[stays], number])
        assert_close(inc.out, model(x, edges, weights))
        assert inc.edge_data("edge_ids").tolist() == ids.tolist()
    with pytest.raises(InvalidDeltaError, match="edge_ids 7"):
        inc.apply_delta(edge_index_del=edges[:, :1], edge_data_del={"edge_ids": torch.tensor([7])})
    with pytest.raises(InvalidDeltaError, match="an id for each of the 1 edges"):
        inc.apply_delta(edge_index_add=edges[:, :1], edge_weight_add=weights[:1])
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    assert again.edge_data("edge_ids").tolist() == ids.tolist()

"""Inputs as people have them: `Data` objects for models that take tensors, and tables."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCN, GCNConv, HeteroConv, SAGEConv, Sequential, global_mean_pool

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from tests.closeness import assert_close
from tests.contract.test_join import Weighted
from tests.trust.small import edge
from tests.trust.test_results import Frame
from tests.zoo import CHANNELS


def graph(**more):
    torch.manual_seed(0)
    return Data(
        x=torch.randn(8, CHANNELS), edge_index=torch.randint(8, (2, 20)), y=torch.zeros(8), **more
    )


# Data objects ####################################################################################


def test_one_call_can_be_meant():
    data, model = graph(train_mask=torch.ones(8, dtype=torch.bool)), GCN(CHANNELS, 4, 2).eval()
    inc = to_incremental(model)
    with torch.no_grad():
        assert_close(inc(data), model(data.x, data.edge_index), 1e-5)
    inc.apply_delta(edge_index_add=edge(1, 2), x_add=torch.ones(CHANNELS))
    assert inc.num_nodes == 9
    assert inc.verify() < 1e-5


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_what_is_needed_is_taken_whatever_there_is_besides():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(CHANNELS, 4)

        def forward(self, x, edge_index, edge_weight, batch):
            return global_mean_pool(self.conv(x, edge_index, edge_weight), batch)

    model = Pooled().eval()
    data = Batch.from_data_list([graph(edge_weight=torch.rand(20)) for _ in range(3)])
    inc = to_incremental(model)
    with torch.no_grad():
        want = model(data.x, data.edge_index, data.edge_weight, data.batch)
    assert_close(inc(data), want, 1e-5)


def test_two_calls_can_be_meant():
    inc, data = to_incremental(GCN(CHANNELS, 4, 2).eval()), graph(edge_weight=torch.rand(20))
    with pytest.raises(InvalidDeltaError) as error:
        inc(data)
    calls = "inc(data.x, data.edge_index) or inc(data.x, data.edge_index, edge_weight=data.edge_w"
    assert calls in str(error.value)
    inc(data, edge_weight=data.edge_weight)  # it is said
    assert inc.edge_data("edge_weight").shape == (20,)
    inc(data, edge_weight=None)
    with pytest.raises(KeyError):
        inc.edge_data("edge_weight")


def test_something_is_not_there():
    with pytest.raises(InvalidDeltaError, match=r"no 'edge_weight'; .*, edge_weight="):
        to_incremental(Weighted().eval())(graph())
    inc = to_incremental(Weighted().eval())
    inc(graph(), edge_weight=torch.ones(20))
    with pytest.raises(InvalidDeltaError, match="given by name"):
        inc(graph(), torch.ones(20))


def test_a_sequential_model_and_a_matrix():
    data = graph()
    model = Sequential("x, edge_index", [(GCNConv(CHANNELS, 4), "x, edge_index -> x")]).eval()
    inc = to_incremental(model)
    with torch.no_grad():
        assert_close(inc(data), model(data.x, data.edge_index), 1e-5)
    ones = torch.ones(20)
    data.adj_t = torch.sparse_coo_tensor(data.edge_index.flip(0), ones, (8, 8)).to_sparse_csr()
    del data.edge_index
    model = GCN(CHANNELS, 4, 2).eval()
    inc = to_incremental(model)
    with torch.no_grad():
        assert_close(inc(data), model(data.x, data.adj_t), 1e-5)


class AnyMore(nn.Module):
    """A model that hands on what it is given by position."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index, *more, scale=1.0):
        return scale * self.conv(x, edge_index, *more)


@pytest.mark.parametrize("scale", [{}, {"scale": 2.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_that_takes_any_number_of_arguments(weighted, scale):
    """Those of its parameters that have a name come by position, too, if any come behind them."""
    data, model = graph(), AnyMore().eval()
    more = [torch.rand(20)] if weighted else []
    inc = to_incremental(model)
    inc(data.x, data.edge_index, *more, **scale)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_del=data.edge_index[:, :1])
    more = [inc.edge_data("more_0")] if weighted else []
    assert_close(inc.out, model(inc.x, inc.graph.to_edge_index(), *more, **scale))


def test_a_model_that_takes_the_object_gets_it():
    class OnData(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(CHANNELS, 4)

        def forward(self, data):
            return self.conv(data.x, data.edge_index)

    inc = to_incremental(OnData().eval())
    inc(graph(edge_weight=torch.rand(20)))
    inc.apply_delta(edge_index_add=edge(1, 2))
    assert inc.verify() < 1e-5


def test_several_kinds_of_nodes():
    key = ("a", "to", "b")

    class Hetero(nn.Module):
        def __init__(self, more=False):
            super().__init__()
            back = key[::-1]
            self.conv = HeteroConv({key: SAGEConv((3, 2), 4), back: SAGEConv((2, 3), 4)})

        def forward(self, x_dict, edge_index_dict, edge_attr_dict=None):
            return self.conv(x_dict, edge_index_dict)

    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(4, 3), torch.randn(5, 2)
    data[key].edge_index = torch.randint(4, (2, 9))
    data[key[::-1]].edge_index = torch.randint(4, (2, 9))
    model = Hetero().eval()
    inc = to_incremental(model)
    with torch.no_grad():
        assert_close(inc(data), model(data.x_dict, data.edge_index_dict), 1e-5)
    inc.apply_delta(edge_index_add={key: edge(1, 2)})
    assert inc.verify() < 1e-5
    data[key].edge_attr = torch.rand(9, 2)
    with pytest.raises(InvalidDeltaError, match=r"edge_index_dict, edge_attr_dict="):
        inc(data)


# Tables ##########################################################################################


def weighted():
    torch.manual_seed(0)
    inc = to_incremental(Weighted().eval())
    inc(torch.randn(6, CHANNELS), edge(0, 1), torch.ones(1))
    return inc


@pytest.mark.parametrize("names", [("src", "dst"), ("source", "target"), ("from", "to"), "uv"])
def test_columns_are_ends_and_data(names):
    inc = weighted()
    columns = {"time": [7, 8], names[1]: [3, 4], names[0]: [1, 2], "edge_weight": [0.5, 0.25]}
    inc.apply_delta(edge_index_add=Frame(**columns), undirected=True)
    assert inc.graph.to_edge_index().tolist() == [[0, 1, 2, 3, 4], [1, 3, 4, 1, 2]]
    assert inc.edge_data("edge_weight").tolist() == [1.0, 0.5, 0.25, 0.5, 0.25]
    inc.apply_delta(edge_changes=Frame(**columns | {"edge_weight": [2.0, 4.0]}))
    assert inc.edge_data("edge_weight").tolist() == [1.0, 2.0, 4.0, 0.5, 0.25]
    ends = {name: columns[name] for name in names}
    inc.apply_delta(edge_index_del=Frame(**ends))
    assert inc.edge_data("edge_weight").tolist() == [1.0, 0.5, 0.25]
    inc.apply_delta(edge_index_add=Frame(**columns), edge_weight_add=[8.0, 9.0])  # said by name
    assert inc.edge_data("edge_weight").tolist()[3:] == [8.0, 9.0]
    assert inc.verify() < 1e-5


def test_a_column_is_not_lost():
    inc = weighted()
    with pytest.raises(InvalidDeltaError, match="come without 'edge_weight'"):
        inc.apply_delta(edge_index_add=Frame(src=[1], dst=[2], weight=[0.5]))
    table = GraphDelta(edge_index_add=Frame(src=[1], dst=[2], edge_weight=[0.5]))
    for made in (lambda: table + GraphDelta(), lambda: GraphDelta() + table, table.coalesce):
        with pytest.raises(InvalidDeltaError, match="give data of edges by name"):
            made()
    both = GraphDelta(edge_index_add=Frame(src=[1], dst=[2]), edge_weight_add=np.array([0.5]))
    inc.apply_delta(both + both)
    assert inc.edge_data("edge_weight").tolist() == [1.0, 0.5, 0.5]


def test_a_data_frame():
    pandas = pytest.importorskip("pandas")
    inc = weighted()
    frame = pandas.DataFrame({"src": [1, 2], "dst": [3, 4], "edge_weight": [0.5, 0.25]})
    inc.apply_delta(edge_index_add=frame)
    assert inc.edge_data("edge_weight").tolist() == [1.0, 0.5, 0.25]
    rows = pandas.DataFrame(np.ones((2, CHANNELS)), index=[4, 5])
    inc.apply_delta(x_changes=(rows.index, rows), x_add=rows)
    assert inc.x[4:].sum() == 4 * CHANNELS
    assert inc.verify() < 1e-5

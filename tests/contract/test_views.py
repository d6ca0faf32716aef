"""Several objects on one set of nodes: views of them, or snapshots, as models add their rows."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GraphConv, SAGEConv, global_mean_pool

from pyg_incremental import InvalidDeltaError, to_incremental

NODES, CHANNELS = 9, 4


class TwoViews(nn.Module):
    """What two graphs say of the same nodes, added."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GraphConv(CHANNELS, 3), SAGEConv(CHANNELS, 3, aggr="max")

    def forward(self, known, bought):
        known_rows = self.first(known.x, known.edge_index, known.edge_weight)
        return known_rows + self.second(bought.x, bought.edge_index).relu()


class Snapshots(nn.Module):
    """A recurrent cell over a list of graphs."""

    def __init__(self):
        super().__init__()
        self.conv, self.cell = GATConv(CHANNELS, 5, edge_dim=2), nn.GRUCell(5, 5)

    def forward(self, graphs):
        h = None
        for graph in graphs:
            h = self.cell(self.conv(graph.x, graph.edge_index, graph.edge_attr), h)
        return h


class RowsOfBoth(nn.Module):
    """Rows of two objects, over the graph of the first."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 3)

    def forward(self, one, other):
        return self.conv(one.x + other.x, one.edge_index)


class Apart(nn.Module):
    """Two graphs that are compared as wholes: each has nodes of its own."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 3)

    def forward(self, one, other):
        rows = [global_mean_pool(self.conv(d.x, d.edge_index), None) for d in (one, other)]
        return (rows[0] * rows[1]).sum(-1)


def view(*, width=None, edges=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    data = Data(
        x=torch.randn(NODES, CHANNELS, **options),
        edge_index=torch.randint(NODES, (2, edges), generator=generator),
    )
    if width == 1:
        data.edge_weight = torch.rand(edges, **options)
    elif width:
        data.edge_attr = torch.randn(edges, width, **options)
    return data


def edited(data, *, add=(), weight=None, rows=None):
    """The view after edges came and nodes changed."""
    new, new_edges = data.clone(), torch.tensor(add, dtype=torch.long).view(-1, 2).t()
    new.edge_index = torch.cat([data.edge_index, new_edges], 1)
    for name in ("edge_weight", "edge_attr"):
        if name in data:
            new[name] = torch.cat([data[name], data[name][:0] if weight is None else weight])
    if rows is not None:
        new.x[rows[0]] = rows[1]
    return new


def built(kind, seed=0):
    torch.manual_seed(seed)
    return kind().double().eval()


def close(inc, want):
    torch.testing.assert_close(inc.out, want, rtol=1e-12, atol=1e-12)
    assert inc.verify().is_fine


def test_two_views_of_one_set_of_nodes():
    model, known, bought = built(TwoViews), view(width=1, seed=1), view(edges=14, seed=2)
    inc = to_incremental(model)
    inc(known, bought)
    assert inc.mode == "incremental", inc.explain()
    assert inc.num_nodes == NODES
    row, weight = torch.randn(1, CHANNELS).double(), torch.tensor([0.5]).double()
    add = torch.tensor([[2], [7]])
    inc.apply_delta(
        edge_index_add={"known/edge_index": add},
        edge_weight_add={"known/edge_index": weight},
        edge_index_del={"bought/edge_index": bought.edge_index[:, :1]},
        x_changes={"bought/x": (torch.tensor([4]), row)},
    )
    at = bought.edge_index.t().tolist()
    last = max(i for i, pair in enumerate(at) if pair == at[0])
    known = edited(known, add=[[2, 7]], weight=weight)
    bought = edited(bought, rows=(4, row))
    bought.edge_index = torch.cat(
        [bought.edge_index[:, :last], bought.edge_index[:, last + 1 :]], 1
    )
    close(inc, model(known, bought))
    come = {"known/x": torch.ones(1, CHANNELS).double(), "bought/x": row}
    inc.apply_delta(x_add=come, edge_index_add={"bought/edge_index": torch.tensor([[NODES], [0]])})
    known.x, bought.x = (torch.cat([d.x, come[f"{n}/x"]]) for n, d in
                         (("known", known), ("bought", bought)))  # fmt: skip
    bought = edited(bought, add=[[NODES, 0]])
    close(inc, model(known, bought))
    inc.apply_delta(nodes_del=[3])
    assert inc.num_nodes == NODES + 1  # its row is zero, and nothing leads there
    for data in (known, bought):
        keep = (data.edge_index != 3).all(0)
        data.x[3] = 0
        data.edge_index = data.edge_index[:, keep]
        if "edge_weight" in data:
            data.edge_weight = data.edge_weight[keep]
    close(inc, model(known, bought))


def test_a_list_of_snapshots():
    model, graphs = built(Snapshots), [view(width=2, edges=12 + i, seed=i) for i in range(3)]
    inc = to_incremental(model)
    inc(graphs)
    assert inc.mode == "incremental", inc.explain()
    attr = torch.randn(1, 2).double()
    name = "graphs[1]/edge_index"
    inc.apply_delta(edge_index_add={name: torch.tensor([[1], [6]])}, edge_attr_add={name: attr})
    graphs[1] = edited(graphs[1], add=[[1, 6]], weight=attr)
    close(inc, model(graphs))
    rows = torch.tensor([0, 5]), torch.randn(2, CHANNELS).double()
    inc.apply_delta(x_changes={"graphs[2]/x": rows})
    graphs[2] = edited(graphs[2], rows=rows)
    close(inc, model(graphs))


def test_rows_of_both():
    model, one, other = built(RowsOfBoth), view(seed=5), view(edges=11, seed=6)
    inc = to_incremental(model)
    inc(one, other)
    assert inc.mode == "incremental", inc.explain()
    rows = torch.tensor([2]), torch.randn(1, CHANNELS).double()
    inc.apply_delta(x_changes={"other/x": rows}, edge_index_add={"one/edge_index": [[2], [3]]})
    close(inc, model(edited(one, add=[[2, 3]]), edited(other, rows=rows)))


@pytest.mark.parametrize("nodes", [NODES, NODES + 3])
def test_graphs_that_are_compared_have_nodes_of_their_own(nodes):
    model, one, other = built(Apart), view(seed=3), view(edges=17, seed=4)
    other.x = torch.cat([other.x, torch.ones(nodes - NODES, CHANNELS).double()])
    inc = to_incremental(model)
    inc(one, other)
    assert inc.num_nodes_dict == {"one": NODES, "other": nodes}
    row = torch.randn(1, CHANNELS).double()
    inc.apply_delta(x_add={"one": row})
    one.x = torch.cat([one.x, row])
    close(inc, model(one, other))


def test_a_role_against_the_object_is_refused():
    inc = to_incremental(built(Apart), roles={"other/x": "node(one)"})
    with pytest.raises(InvalidDeltaError, match="'other/x' is said to be 'node\\(one\\)'"):
        inc(view(seed=3), view(edges=17, seed=4))

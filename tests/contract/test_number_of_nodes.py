"""Models that are told how many nodes there are: it follows the nodes, or there can be no more."""

import pytest
import torch
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import scatter

from pyg_incremental import InvalidDeltaError, to_incremental
from tests.closeness import assert_close


class OfEdges(nn.Module):
    """All there is to know is on the edges; nodes begin as ones."""

    def __init__(self):
        super().__init__()
        self.message, self.score = nn.Linear(3 + 6, 8), nn.Linear(16, 2)

    def forward(self, edge_index, edge_attr, num_nodes):
        h, (src, dst) = torch.ones(num_nodes, 3, dtype=edge_attr.dtype), edge_index
        sent = self.message(torch.cat([h[src], edge_attr], 1)).relu()
        h = scatter(sent, dst, 0, num_nodes, "mean")
        return self.score(torch.cat([h[src], h[dst]], 1))


class Told(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.conv, self.use = SAGEConv(3, 4), use

    def forward(self, x, edge_index, num_nodes):
        return self.use(self.conv(x, edge_index), edge_index, num_nodes)


USES = {
    "mean": lambda h, e, n: h.sum(0) / n,
    "scale": lambda h, e, n: h * (n / 10),
    "degree": lambda h, e, n: h + scatter(torch.ones_like(e[1]).to(h), e[1], 0, n)[:, None],
    "ones": lambda h, e, n: h + torch.ones(n, 1).to(h),
}


@pytest.mark.parametrize("sized", [False, True], ids=["tensor", "EdgeIndex"])
def test_edges_alone(seed, sized):
    torch.manual_seed(seed)
    model = OfEdges().double().eval()
    e, a = torch.randint(20, (2, 45)), torch.randn(45, 6).double()
    inc = to_incremental(model)
    inc(EdgeIndex(e, sparse_size=(20, 20)) if sized else e, a, 20)
    assert inc.mode == "incremental"
    for _ in range(5):
        new, row = torch.randint(20, (2, 1)), torch.randn(1, 6).double()
        at = int(torch.randint(e.shape[1], ()))
        alike = (e == e[:, at : at + 1]).all(0).nonzero().flatten()
        stays = torch.ones(e.shape[1], dtype=torch.bool)
        stays[alike.max()] = False
        inc.apply_delta(edge_index_add=new, edge_attr_add=row, edge_index_del=e[:, at : at + 1])
        e, a = torch.cat([e[:, stays], new], 1), torch.cat([a[stays], row])
        assert_close(inc.out, model(e, a, 20))
    with pytest.raises(InvalidDeltaError, match="called with num_nodes=20"):
        inc.apply_delta(edge_index_add=torch.tensor([[3], [20]]), edge_attr_add=a[:1])
    with pytest.raises(InvalidDeltaError, match="'num_nodes' is how many"):
        inc.apply_delta(values={"num_nodes": 21})


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_number_follows_the_nodes(seed, use, tmp_path):
    torch.manual_seed(seed)
    model = Told(use).double().eval()
    x, e = torch.randn(9, 3).double(), torch.randint(9, (2, 20))
    inc = to_incremental(model)
    assert_close(inc(x, e, 9), model(x, e, 9))
    for _ in range(3):
        row, edge = torch.randn(1, 3).double(), torch.tensor([[len(x)], [0]])
        inc.apply_delta(x_add=row, edge_index_add=edge)
        x, e = torch.cat([x, row]), torch.cat([e, edge], 1)
        assert_close(inc.out, model(x, e, len(x)))
        assert inc.verify().is_fine
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    again.apply_delta(x_add=x[:1])
    assert_close(again.out, model(torch.cat([x, x[:1]]), e, len(x) + 1))

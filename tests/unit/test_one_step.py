"""Models that run whole: what they return may be a tensor, or one tensor inside of something."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from pyg_incremental import IncrementalWarning, to_incremental

EDGE = ("v", "to", "v")


class Branches(nn.Module):
    """Cannot be traced, because it asks its features which way to go."""

    def __init__(self, kind, pack):
        super().__init__()
        self.conv, self.kind, self.pack = gnn.SAGEConv(3, 2), kind, pack

    def forward(self, x, edge_index):
        x, edge_index = (x["v"], edge_index[EDGE]) if self.kind else (x, edge_index)
        rows = self.conv(x, edge_index)
        return self.pack(rows if x.sum() > 0 else 2 * rows)


@pytest.mark.parametrize(
    "pack", [lambda h: h, lambda h: (h,), lambda h: {"v": h}, lambda h: [h, h.mean(0)]]
)
@pytest.mark.parametrize("kind", ["", "v"])
def test_outputs_of_a_full_pass(kind, pack):
    torch.manual_seed(0)
    model = Branches(kind, pack).eval()
    inc = to_incremental(model)
    x, edge_index = torch.randn(9, 3), torch.randint(9, (2, 20))
    new, edge = torch.ones(1, 3), torch.tensor([[9], [1]])
    with pytest.warns(IncrementalWarning):
        out = inc({"v": x}, {EDGE: edge_index}) if kind else inc(x, edge_index)
    assert type(out) is type(pack(x))
    if kind:
        inc.apply_delta(x_add={"v": new}, edge_index_add={EDGE: edge})
    else:
        inc.apply_delta(x_add=new, edge_index_add=edge)
    rows = model.conv(torch.cat([x, new]), torch.cat([edge_index, edge], 1)).detach()
    got = inc.out
    while not isinstance(got, torch.Tensor):
        got = got["v"] if isinstance(got, dict) else got[0]
    assert torch.allclose(got, rows if torch.cat([x, new]).sum() > 0 else 2 * rows, atol=1e-6)
    assert inc.verify() == 0

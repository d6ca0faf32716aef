"""What convs make of the graph alone is looked into once, and each has tensors of its own."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import APPNP, MessagePassing, SAGEConv, SSGConv, TAGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from pyg_incremental.trace import recorder
from tests.side_by_side import SideBySide
from tests.zoo import CHANNELS, WEIGHT, Case


class Normalised(MessagePassing):
    """Writes to what `gcn_norm` has made for it."""

    def __init__(self, scale):
        super().__init__(aggr="sum")
        self.lin, self.scale = nn.Linear(CHANNELS, CHANNELS), scale

    def forward(self, x, edge_index, edge_weight=None):
        edge_index, norm = gcn_norm(edge_index, edge_weight, x.size(0), dtype=x.dtype)
        norm.mul_(self.scale)
        return self.propagate(edge_index, x=self.lin(x), norm=norm)

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Looped(MessagePassing):
    """Self-loops left out and added, as attention convs do."""

    def __init__(self):
        super().__init__(aggr="max")
        self.lin = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x, edge_index):
        edge_index, _ = remove_self_loops(edge_index)
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        return self.propagate(edge_index, x=self.lin(x))


class Stack(nn.Module):
    """Three layers; options of what is repeated differ in the last one."""

    def __init__(self, make, last=None):
        super().__init__()
        self.convs = nn.ModuleList([make(1.0), make(2.0), (last or make)(3.0)])

    def forward(self, x, edge_index, edge_weight=None):
        weight = () if edge_weight is None else (edge_weight,)
        for conv in self.convs:
            x = conv(x, edge_index, *weight).tanh()
        return x


class Filled(Normalised):
    """Self-loops that count otherwise."""

    def forward(self, x, edge_index):
        edge_index, weight = add_remaining_self_loops(
            edge_index, torch.ones_like(edge_index[0], dtype=x.dtype), self.scale, x.size(0)
        )
        return self.propagate(edge_index, x=self.lin(x), norm=weight)


CASES = [
    (Case("norm", lambda: Stack(Normalised)), 2),
    (Case("norm-of-weights", lambda: Stack(Normalised, None), data=WEIGHT), 2),
    (Case("loops", lambda: Stack(lambda _: Looped())), 4),
    (Case("filled", lambda: Stack(Filled)), 0),
    (Case("norm-then-filled", lambda: Stack(Normalised, Filled)), 1),
]


@pytest.mark.parametrize(("case", "again"), CASES, ids=lambda c: str(c))
def test_convs_that_ask_for_the_same(case, again, seed, monkeypatch):
    """Equal to the model after every change; so many calls are answered by an earlier one."""
    answered = []
    once_more = recorder.Recorder._once_more

    def counted(self, real, node, given):
        answered.append(node)
        return once_more(self, real, node, given)

    monkeypatch.setattr(recorder.Recorder, "_once_more", counted)
    sides = SideBySide(case, seed=seed)
    assert sides.inc.mode == "incremental"
    per_call = 2 if "norm" in case.name else 1
    assert len(answered) == again * per_call
    sides.walk()


CONVS = {
    "tag": lambda scale: TAGConv(CHANNELS, CHANNELS),
    "appnp": lambda scale: APPNP(3, 0.1),
    "ssg": lambda scale: SSGConv(CHANNELS, CHANNELS, 0.1),
    "sage": lambda scale: SAGEConv(CHANNELS, CHANNELS),
}


@pytest.mark.parametrize("name", CONVS)
def test_a_second_model_of_a_class_asks_pytorch_for_no_shape(name, seed, monkeypatch):
    """What a tensor without values tells by itself is not asked for, and no layout twice."""
    asked, sizes = [], []
    run, begin = recorder.Recorder._run_without_values, recorder.Recorder.__init__

    def counted(self, call):
        asked.append(call.name)
        return run(self, call)

    def begun(self, of, *args):
        sizes.append(of)
        begin(self, of, *args)

    case = Case(name, lambda: Stack(CONVS[name]))
    SideBySide(case, seed=seed)
    monkeypatch.setattr(recorder.Recorder, "_run_without_values", counted)
    monkeypatch.setattr(recorder.Recorder, "__init__", begun)
    sides = SideBySide(case, seed=seed)
    assert {*asked} <= {"get shape"}  # of constants
    assert len(sizes) == 1
    assert len(sizes[0]._empty) <= 20
    sides.walk()

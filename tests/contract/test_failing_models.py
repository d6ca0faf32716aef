"""A delta on which the model itself fails raises what the model raises, and changes nothing."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv, HypergraphConv, MeanAggregation, SAGEConv

from pyg_incremental import InvalidDeltaError, to_incremental
from tests.closeness import assert_close
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS
from tests.zoo import CHANNELS, MIXED, WEIGHT, WHOLE, Case


class Fragile(nn.Module):
    """Fails when it is told to, once."""

    told = False

    def check(self, *_):
        if Fragile.told:
            Fragile.told = False
            raise RuntimeError("out of luck")


class InTheMiddle(Fragile):
    """A conv that is watched runs on all rows, between others that do not."""

    def __init__(self):
        super().__init__()
        self.first, self.last = GraphConv(CHANNELS, 6), GraphConv(6, 4)
        self.middle = GraphConv(6, 6)
        self.middle.register_forward_hook(self.check)

    def forward(self, x, edge_index, edge_weight):
        x = self.first(x, edge_index, edge_weight).relu()
        x = self.middle(x, edge_index, edge_weight).relu()
        return self.last(x, edge_index, edge_weight)


class Untraceable(Fragile):
    """The whole model is one step."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(CHANNELS, 4)

    def forward(self, x, edge_index, edge_weight):
        if edge_index.size(1) > 10**6:
            return x
        self.check()
        return self.conv(x, edge_index, edge_weight)


class FragileMean(MeanAggregation):
    """An aggregation of a user's."""

    def forward(self, x, *args, **kwargs):
        Fragile.check(self)
        return super().forward(x, *args, **kwargs)


class ByRows(Fragile):
    """Rows are computed again by code of a user's."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4, aggr=FragileMean())

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


CASES = [
    Case("in-the-middle", InTheMiddle, WEIGHT, mode=MIXED),
    Case("untraceable", Untraceable, WEIGHT, mode=WHOLE),
    Case("by-rows", ByRows, mode=("incremental", *WHOLE)),
]


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize(
    "kind", ["mixed", "change_edge_data", "new_nodes_with_edges", "remove_hub"]
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_was_changed(case, kind, seed):
    sides = SideBySide(case, seed=seed)
    assert sides.inc.mode in case.mode
    sides.walk(["mixed", "mixed", "delete_edges"])  # leaves slots and drift behind
    delta = DELTAS[kind](sides.world, sides.rng)
    if not delta:
        pytest.skip("this model has no edge data")
    before, version = sides.inc.out.clone(), sides.inc.version
    Fragile.told = True
    with pytest.raises(RuntimeError, match="out of luck") as raised:
        sides.inc.apply_delta(**delta)
    assert "Nothing was changed" in raised.value.__notes__[-1]
    assert sides.inc.version == version
    assert_close(sides.inc.out, before)
    sides.check_all()
    sides.out = sides.inc.out.clone()
    sides.step(delta, kind)
    sides.walk(["mixed", "refill", "mixed"])


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_a_model_that_fails_again_is_stale():
    sides = SideBySide(CASES[1])
    sides.inc.model.check = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError) as raised:
        sides.inc.apply_delta(edge_index_add=[[0], [1]], edge_weight_add=[1.0])
    assert not getattr(raised.value, "__notes__", [])
    assert sides.inc.stale == "an update was interrupted"
    del sides.inc.model.check
    sides.inc.refresh()
    assert sides.inc.verify() < 1e-9


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_hyperedges_that_came_go_again(seed):
    torch.manual_seed(seed)
    conv = HypergraphConv(CHANNELS, 4).double().eval()
    conv.register_forward_hook(lambda *_: Fragile().check())
    inc = to_incremental(conv)
    inc(torch.randn(4, CHANNELS).double(), torch.tensor([[0, 1, 2], [0, 0, 1]]))
    assert inc.mode == "mixed"
    digest, Fragile.told = inc.state_digest(), True
    with pytest.raises(RuntimeError, match="out of luck"):
        inc.apply_delta(edge_index_add=[[3], [7]], nodes_del=[0])
    assert inc.state_digest() == digest
    inc.apply_delta(edge_index_add=[[3], [7]], nodes_del=[0])
    assert inc.verify() < 1e-9


class OfTwoInputs(nn.Module):
    """An id that is looked up, and features."""

    def __init__(self):
        super().__init__()
        self.table, self.conv = nn.Embedding(5, 3), SAGEConv(5, 4)

    def forward(self, z, x, edge_index):
        return self.conv(torch.cat([self.table(z), x], 1), edge_index)


def two_inputs():
    inc = to_incremental(OfTwoInputs().eval())
    inc(torch.arange(4), torch.randn(4, 2), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    return inc


@pytest.mark.parametrize(
    ("delta", "named"),
    [
        ({"x_changes": {"z": ([1], torch.tensor([9]))}}, "x_changes['z'][1] has integers up to 9"),
        ({"x_add": {"z": torch.tensor([2, 5]), "x": torch.ones(2, 2)}},
         "x_add['z'] has integers up to 5"),
    ],
)  # fmt: skip
def test_ids_beyond_a_table_are_named(delta, named):
    inc = two_inputs()
    before = inc.out.clone()
    with pytest.raises(IndexError) as caught:
        inc.apply_delta(**delta)
    said = getattr(caught.value, "__notes__", [])  # since Python 3.11
    assert not said or any(note.startswith(named) for note in said)
    assert inc.stale is None
    assert torch.equal(inc.out, before)


@pytest.mark.parametrize(
    ("delta", "field"),
    [
        ({"x_changes": {"x": ([1], torch.ones(1, 7))}}, "x_changes['x'][1]"),
        ({"x_changes": {"x": ([1.5], torch.ones(1, 2))}}, "x_changes['x'][0]"),
        ({"x_changes": {"z": ([1], torch.ones(1))}}, "x_changes['z'][1]"),
        ({"x_add": {"z": torch.tensor([1]), "x": torch.ones(1, 3)}}, "x_add['x']"),
    ],
)
def test_what_does_not_fit_is_called_by_the_input(delta, field):
    with pytest.raises(InvalidDeltaError) as caught:
        two_inputs().apply_delta(**delta)
    assert str(caught.value).startswith(f"{field}: expected")

"""Dataclasses that a model returns: handed out as such, and current after every delta."""

import copy
import dataclasses
from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, SAGEConv

from pyg_incremental import UnsupportedModelError, load, to_incremental
from tests.oracle import full
from tests.strategies import DELTAS, generator, make_world

WALK = (
    "mixed", "change_features", "add_edges", "delete_edges", "new_nodes_with_edges", "mixed",
    "remove_nodes", "mixed",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """What the models here return."""

    logits: Tensor
    hidden: tuple[Tensor, ...]
    loss: object = None


@dataclasses.dataclass
class Entries(OrderedDict):
    """A dict that is a dataclass, too."""

    logits: Tensor

    def __post_init__(self):
        self["logits"] = self.logits


class Returns(nn.Module):
    """Two layers; `made` puts together what is returned."""

    def __init__(self, made=Result):
        super().__init__()
        self.first, self.second = SAGEConv(5, 8), GATConv(8, 3)
        self.made = made

    def forward(self, x, edge_index):
        hidden = self.first(x, edge_index).relu()
        return self.made(self.second(hidden, edge_index), (2 * x, hidden))


def started(**options):
    torch.manual_seed(0)
    model, rng = Returns().double().eval(), generator(7)
    world = make_world(rng, nodes=20, edges=50, dtype=torch.float64)
    inc = to_incremental(model, strict=True, **options)
    return inc, copy.deepcopy(model), world, rng, inc(**world.inputs())


def assert_same(ours, truth):
    assert type(ours) is Result
    assert ours.loss is truth.loss is None
    rows = zip((ours.logits, *ours.hidden), (truth.logits, *truth.hidden), strict=True)
    for mine, theirs in rows:
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_a_dataclass_is_current_after_every_delta(tmp_path):
    inc, twin, world, rng, out = started()
    assert inc.mode == "incremental"
    assert_same(out, full(twin, world))
    for name in WALK:
        delta = DELTAS[name](world, rng)
        before = inc.read().out
        world.apply(**delta)
        up = inc.apply_delta(**delta, old=True)
        truth = full(twin, world)
        assert_same(inc.out, truth)
        assert_same(inc.read().out, truth)
        assert set(up.changed) == set(up.out) == {"logits", "hidden"}
        assert torch.equal(up.out["logits"], inc.out.logits[up.changed["logits"]])
        known = up.changed["logits"] < len(before.logits)
        ids = up.changed["logits"][known]
        assert torch.equal(up.old["logits"][known], before.logits[ids])
    assert inc.verify() < 1e-12
    inc.save(tmp_path / "state")
    assert_same(load(tmp_path / "state", inc.model).out, full(twin, world))


def test_what_was_handed_out_stays_as_it_was():
    inc, *_, world, rng, out = started()
    kept = copy.deepcopy(out)
    inc.apply_delta(**DELTAS["change_features"](world, rng))
    assert_same(out, kept)
    assert not torch.equal(inc.out.logits, kept.logits)


def test_a_dict_that_is_a_dataclass_is_made_anew():
    torch.manual_seed(0)
    inc = to_incremental(Returns(lambda logits, hidden: Entries(logits)).eval(), strict=True)
    inc(torch.randn(6, 5), torch.tensor([[0, 1], [1, 2]]))
    up = inc.apply_delta(edge_index_add=[[3], [4]])
    assert type(inc.out) is Entries
    out = inc.out
    assert out["logits"] is out.logits
    assert torch.equal(out["logits"][up.changed["logits"]], up.out["logits"])
    assert inc.verify() < 1e-5


def test_a_field_of_more_than_tensors_is_refused():
    def with_a_number(logits, hidden):
        return Result(logits, hidden, loss=float(logits.detach().sum()))

    inc = to_incremental(Returns(with_a_number).eval())
    with pytest.raises(UnsupportedModelError, match="Result with 'loss', which holds more"):
        inc(torch.randn(6, 5), torch.tensor([[0, 1], [1, 2]]))

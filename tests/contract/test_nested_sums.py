"""Polynomials in a propagation are nested, and powers beside each other travel together."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn

from pyg_incremental.ops import Sum
from pyg_incremental.trace.closures import Columns
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import INCREMENTAL, WEIGHT, Case

CHANNELS = 6


class Polynomial(nn.Module):
    """`sum_k L_k A^k x`, with what stands in front of each power given by a letter.

    `l`: a layer, `b`: one with a bias, `n`: a number, `1`: nothing, `r`: a relu, `-`: not there.
    """

    def __init__(self, terms="llll", conv=gnn.LGConv, joined=False, **options):
        super().__init__()
        self.conv, self.terms, self.joined = conv(**options), terms, joined
        self.lins = nn.ModuleList(nn.Linear(CHANNELS, 4, bias=t == "b") for t in terms)

    def forward(self, x, edge_index, edge_weight=None):
        found = []
        for k, (term, lin) in enumerate(zip(self.terms, self.lins, strict=True)):
            x = self._hop(x, edge_index, edge_weight) if k else x
            if term in "lb":
                found.append(lin(x))
            elif term != "-":
                found.append(x.relu() if term == "r" else x * 0.3 if term == "n" else x)
        return torch.cat(found, -1) if self.joined else sum(found[1:], found[0])

    def _hop(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, *([] if edge_weight is None else [edge_weight]))


class TwoKinds(nn.Module):
    """Two propagations in turn: no polynomial in one."""

    def __init__(self):
        super().__init__()
        self.mean, self.norm, self.lin = gnn.SimpleConv("mean"), gnn.LGConv(), nn.Linear(6, 4)

    def forward(self, x, edge_index):
        one = self.mean(x, edge_index)
        return self.lin(x + one + self.norm(one, edge_index))


class ReadBeside(nn.Module):
    """A power that something else reads, too."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = gnn.LGConv(), nn.Linear(CHANNELS, 4)

    def forward(self, x, edge_index):
        one = self.conv(x, edge_index)
        return self.lin(x + one + self.conv(one, edge_index)), one.tanh()


def case(name, make, data=()):
    return Case(name, make, data, mode=INCREMENTAL, finite=True)


CASES = {
    c.name: c
    for c in [
        case("layers", Polynomial),
        case("numbers", lambda: Polynomial("nnn")),
        case("nothing", lambda: Polynomial("1111")),
        case("mixed", lambda: Polynomial("1nn1")),
        case("gaps", lambda: Polynomial("l-l-l")),
        case("no first", lambda: Polynomial("-lll")),
        case("biased", lambda: Polynomial("lbl")),
        case("relu between", lambda: Polynomial("nrn1")),
        case("mean", lambda: Polynomial("lll", gnn.SimpleConv, aggr="mean")),
        case("max", lambda: Polynomial("lll", gnn.SimpleConv, aggr="max")),
        case("with itself", lambda: Polynomial("lll", gnn.SimpleConv, aggr="sum",
                                               combine_root="sum")),
        case("weights", Polynomial, WEIGHT),
        case("joined", lambda: Polynomial("lll", joined=True)),
        case("joined, no first", lambda: Polynomial("-lll", joined=True)),
        case("joined, biased", lambda: Polynomial("llb", joined=True)),
        case("two kinds", TwoKinds),
        case("read beside", ReadBeside),
        case("TAG", lambda: gnn.TAGConv(CHANNELS, 4, K=3), WEIGHT),
        case("SSG", lambda: gnn.SSGConv(CHANNELS, 4, alpha=0.2, K=3)),
        case("MixHop", lambda: gnn.MixHopConv(CHANNELS, 3, powers=[0, 1, 3])),
    ]
}  # fmt: skip


def started(name, seed=0):
    case = CASES[name]
    world = make_world(generator([seed, 7]), nodes=11, edges=30, data=case.data)
    world.x = torch.randn(11, CHANNELS, dtype=torch.float64)
    return SideBySide(case, seed=seed, world=world)


@pytest.mark.parametrize("name", CASES)
def test_polynomials_stay_exact(name):
    run = started(name)
    assert run.inc.mode == "incremental", run.inc.explain()
    run.walk(kinds=8)
    run.walk(["self_loops", "self_loops_leave", "isolate_node", "mixed"])


def readers_of_sums(name):
    """How many steps read the rows of each propagation but the degree, and how wide these are."""
    inc = started(name).inc
    steps = inc.program.steps
    sums = [s for s in steps if isinstance(s, Sum) and not s.output.name.startswith("degree")]
    return [sum(t.inputs.count(s.output) for t in steps) for s in sums]


@pytest.mark.parametrize("name", ["layers", "numbers", "nothing", "mixed", "weights", "TAG", "SSG"])
def test_each_sum_is_read_once(name):
    assert set(readers_of_sums(name)) == {1}
    names = [s.output.name for s in started(name).inc.program.steps]
    assert any("_first" in n or "_sum_" in n for n in names)


@pytest.mark.parametrize("name", ["two kinds", "read beside", "max"])
def test_what_is_no_polynomial_stays(name):
    names = [s.output.name for s in started(name).inc.program.steps]
    assert not any("_sum_" in n for n in names)


def test_powers_beside_each_other_carry_what_is_left_of_them():
    inc = started("joined").inc
    sums = [s for s in inc.program.steps if isinstance(s, Sum) and "degree" not in s.output.name]
    makers = {s.output: s for s in inc.program.steps}
    columns = [s.fn for s in makers.values() if isinstance(getattr(s, "fn", None), Columns)]
    assert len(sums) == 2
    assert sorted((c.first, c.last) for c in columns if c.last) == [(0, 4)]

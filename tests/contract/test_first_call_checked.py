"""The first pass is held against the model on the graph of the user: probes cannot show all."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

from pyg_incremental import IncrementalWarning, UnsupportedModelError, to_incremental
from pyg_incremental.conv.registry import register
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.distributed.threads import run_ranks
from tests.followed import Followed
from tests.zoo import CHANNELS

PROBE, TRIED, LARGE = 40, 1000, 1100


class CentersLargeGraphs(MessagePassing):
    """Local on every graph on which that is tried, and on no larger one."""

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out - out.mean(0) if out.size(0) > TRIED else out


class Deceives(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(CHANNELS, 4), CentersLargeGraphs()

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index), edge_index)


class DoublesLargeGraphs(MessagePassing):
    """Has a program, which is that of small graphs."""

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out * 2 if out.size(0) > PROBE else out


@register(DoublesLargeGraphs)
def _sum(call):
    call.only("x")
    return call.reduce(call.node())


class Misread(Deceives):
    def __init__(self):
        super().__init__()
        self.second = DoublesLargeGraphs()


def a_call(seed):
    torch.manual_seed(seed)
    x = torch.randn(LARGE, CHANNELS, dtype=torch.float64)
    return Misread().double().eval(), (x, torch.randint(LARGE, (2, 3 * LARGE)))


def test_a_conv_that_is_local_on_probes_alone_runs_whole_and_says_why(seed):
    with pytest.warns(IncrementalWarning, match="differs from the model by .* on this graph, at"):
        run = Followed(Deceives, nodes=LARGE, seed=seed)
    assert run.inc.mode == "full pass"
    run.walk()


def test_it_is_followed_where_it_is_local(seed):
    run = Followed(Deceives, nodes=20, seed=seed)
    assert run.inc.mode == "incremental"
    run.walk()


def test_a_program_of_convs_is_checked_on_a_sample(seed):
    with pytest.warns(IncrementalWarning, match="differs from the model by .* on this graph"):
        run = Followed(Misread, nodes=LARGE, seed=seed)
    assert run.inc.mode == "full pass"


def test_without_the_check_nobody_looks(seed):
    model, arguments = a_call(seed)
    inc = to_incremental(model, check=False)
    inc(*arguments)
    assert inc.mode == "incremental"
    assert inc.verify() > 1e-3


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_refuse_together_what_differs(size, seed):
    model, arguments = a_call(seed)

    def work(comm, **options):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm, **options)
        return inc(*arguments).mode

    for error in run_ranks(size, work):
        assert isinstance(error, UnsupportedModelError), error
        assert "differs from the model by" in str(error)
    assert run_ranks(size, lambda comm: work(comm, check=False)) == ["incremental"] * size

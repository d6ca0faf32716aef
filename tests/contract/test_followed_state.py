"""What is kept from call to call, hooks, and methods that were overridden: all that runs counts."""

import copy
import warnings
from collections import Counter

import pytest
import torch
from torch import nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    SAGEConv,
    SGConv,
)

from pyg_incremental import IncrementalWarning, to_incremental
from pyg_incremental.layers import IncrementalGCNConv
from tests.closeness import assert_close
from tests.followed import Followed, bits, differences
from tests.oracle import full
from tests.strategies import DELTAS, generator, make_world
from tests.zoo import CHANNELS

quiet = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")

FAR = 300  # how much larger features become than all that the model was first called on


# What a model keeps ###############################################################################


class OwnCache(nn.Module):
    """Remembers the first edges that it sees."""

    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(CHANNELS, 6), GCNConv(6, 4)
        self.remembered = None

    def forward(self, x, edge_index):
        if self.remembered is None:
            self.remembered = edge_index
        return self.last(self.first(x, self.remembered).relu(), self.remembered)


class CachedWeights(nn.Module):
    """Remembers a number for each of the first edges that it sees."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.cache = {}

    def forward(self, x, edge_index):
        if "degree" not in self.cache:
            self.cache["degree"] = torch.bincount(edge_index[1], minlength=len(x))
        return self.conv(x, edge_index) / (1 + self.cache["degree"].view(-1, 1))


class Fitted(nn.Module):
    """Standardises by what it sees first."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.centre = None

    def forward(self, x, edge_index):
        if self.centre is None:
            self.centre = x.mean(0)
        return self.conv(x - self.centre, edge_index)


class FittedBuffer(nn.Module):
    """The same, in a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.register_buffer("centre", None)

    def forward(self, x, edge_index):
        if self.centre is None:
            self.centre = x.mean(0)
        return self.conv(x - self.centre, edge_index)


class BufferAssigned(nn.Module):
    """Leaves something behind that it does not read."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        self.seen = h.mean(0)
        return h


class BufferWritten(nn.Module):
    """Keeps a running mean in eval mode, too."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        self.seen.mul_(0.5).add_(h.mean(0))
        return h + self.seen


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.calls = Counter()

    def forward(self, x, edge_index):
        self.calls["forward"] += 1
        return self.conv(x, edge_index) * self.calls["forward"]


KEEP = {
    OwnCache: "remembered", CachedWeights: "cache", Fitted: "centre", FittedBuffer: "centre",
    BufferWritten: "seen", Counting: "calls",
}  # fmt: skip


@quiet
@pytest.mark.parametrize("make", [*KEEP, BufferAssigned])
def test_every_pass_is_the_first_one_of_the_model_as_it_was_handed_over(make, seed):
    Followed(make, seed=seed).walk()


@pytest.mark.parametrize("make", KEEP)
def test_what_is_kept_is_named(make, seed):
    with pytest.warns(IncrementalWarning, match=KEEP[make]):
        Followed(make, seed=seed)


class TwoCached(nn.Module):
    """Convs that keep the normalised edges of their first call."""

    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(CHANNELS, 6, cached=True), GCNConv(6, 4, cached=True)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


def cached_sgc():
    return SGConv(CHANNELS, 4, K=2, cached=True)


@quiet
@pytest.mark.parametrize("make", [TwoCached, cached_sgc])
def test_no_cache_of_a_conv_is_filled(make, seed):
    sides = Followed(make, seed=seed)
    sides.walk()
    model, twin = sides.inc.model, copy.deepcopy(sides.twin)
    with torch.no_grad():
        mine, theirs = model(**sides.world.inputs()), twin(**sides.world.inputs())
    assert bits(mine) == bits(theirs)


@quiet
def test_a_cache_that_was_filled_stays(seed):
    """The graph of the user's own first call is the user's."""
    model, world = TwoCached().double().eval(), make_world(generator(seed))
    with torch.no_grad():
        model(**world.inputs())
    twin = copy.deepcopy(model)
    sides = Followed(model, world=make_world(generator(seed + 1), nodes=20), seed=seed)
    sides.walk()
    assert differences(model, twin) == []


def test_a_cached_incremental_conv_under_gradients(seed):
    torch.manual_seed(seed)
    rng = generator(seed)
    conv = IncrementalGCNConv(CHANNELS, 4, cached=True).double().eval()
    twin = GCNConv(CHANNELS, 4).double().eval()
    twin.load_state_dict(conv.state_dict())
    for _ in range(3):  # each on another graph, with no `reset_parameters` in between
        world = make_world(rng, nodes=15)
        out = conv(**world.inputs())
        assert out.requires_grad
        assert_close(out.detach(), full(twin, world))
        for name in ("mixed", "add_edges", "mixed"):
            delta = DELTAS[name](world, rng)
            world.apply(**delta)
            conv.apply_delta(**delta)
            assert_close(conv.incremental.out, full(twin, world))
        assert_close(conv(**world.inputs()).detach(), full(twin, world))


# Hooks ############################################################################################


def clamped(module, args):
    """A pre-hook that matters once rows are large."""
    return (args[0].clamp(-50, 50), *args[1:])


def clamped_result(module, args, out):
    return out.clamp(-50, 50)


def before_the_map_of_gcn():
    conv = GCNConv(CHANNELS, 4)
    conv.lin.register_forward_pre_hook(clamped)
    return conv


def before_a_map_of_sage():
    conv = SAGEConv(CHANNELS, 4)
    conv.lin_l.register_forward_pre_hook(clamped)
    return conv


def before_the_map_of_gat():
    conv = GATConv(CHANNELS, 4, heads=2)
    conv.lin.register_forward_pre_hook(clamped)
    return conv


def after_the_aggregation_of_gcn():
    conv = GCNConv(CHANNELS, 4)
    conv.aggr_module.register_forward_hook(clamped_result)
    return conv


def before_the_aggregation_of_sage():
    conv = SAGEConv(CHANNELS, 4)
    conv.aggr_module.register_forward_pre_hook(clamped)
    return conv


def in_several_aggregations():
    conv = SAGEConv(CHANNELS, 4, aggr=["mean", "max"])
    conv.aggr_module.aggrs[0].register_forward_hook(clamped_result)
    return conv


HOOKED = [
    before_the_map_of_gcn, before_a_map_of_sage, before_the_map_of_gat,
    after_the_aggregation_of_gcn, before_the_aggregation_of_sage, in_several_aggregations,
]  # fmt: skip


@quiet
@pytest.mark.parametrize("make", HOOKED)
def test_hooks_inside_a_conv_count(make, seed):
    Followed(make, scale=FAR, seed=seed).walk()


@quiet
@pytest.mark.parametrize("kind", ["forward_pre_hook", "forward_hook"])
def test_hooks_on_all_modules_count(kind, seed):
    def before(module, args):
        return clamped(module, args) if isinstance(module, nn.Module) and wide(args) else None

    def after(module, args, out):
        return clamped_result(module, args, out) if wide(args) else None

    def wide(args):
        return bool(args) and args[0].dim() == 2 and args[0].dtype is torch.float64

    register = getattr(nn.modules.module, f"register_module_{kind}")
    handle = register(before if kind == "forward_pre_hook" else after)
    try:
        Followed(lambda_of(GCNConv), scale=FAR, seed=seed).walk()
    finally:
        handle.remove()


def lambda_of(kind):
    def made():
        return kind(CHANNELS, 4)

    made.__name__ = kind.__name__
    return made


# Methods of their own #############################################################################


class OwnPropagate(GCNConv):
    """Clamps what arrives."""

    def propagate(self, edge_index, size=None, **kwargs):
        x = kwargs.pop("x").clamp(-50, 50)
        return super().propagate(edge_index, size=size, x=x, **kwargs)


class OwnEdgeUpdater(GATConv):
    """Attends less to what is far."""

    def edge_updater(self, edge_index, size=None, **kwargs):
        source, target = (rows.clamp(-50, 50) for rows in kwargs.pop("alpha"))
        return super().edge_updater(edge_index, size=size, alpha=(source, target), **kwargs)


class OwnAggregation(nn.Module):
    """A conv whose parts get a method that their class does not have."""

    def __init__(self, part, method):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4) if part != "conv" else GCNConv(CHANNELS, 4)
        owner = self.conv if part == "conv" else getattr(self.conv, part)
        original = getattr(owner, method)

        def replaced(*args, **kwargs):
            return original(*args, **kwargs).clamp(-50, 50)

        setattr(owner, method, replaced)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@quiet
@pytest.mark.parametrize("kind", [OwnPropagate, OwnEdgeUpdater])
def test_overridden_methods_count(kind, seed):
    Followed(lambda_of(kind), scale=FAR, seed=seed).walk()


REPLACED = [("conv", "propagate"), ("lin_l", "forward"), ("aggr_module", "forward")]


@quiet
@pytest.mark.parametrize(("part", "method"), REPLACED)
def test_methods_of_one_instance_count(part, method, seed):
    torch.manual_seed(seed)
    model = OwnAggregation(part, method).double().eval()
    world, rng = make_world(generator(seed), nodes=40, edges=120), generator(seed)
    inc = to_incremental(model)
    assert_close(inc(**world.inputs()), full(model, world))
    for name in ("mixed", "change_features", "add_edges", "mixed"):
        delta = DELTAS[name](world, rng)
        for rows in (delta.get("x_add"), delta.get("x_changes", (None, None))[1]):
            if rows is not None:
                rows *= FAR
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(model, world))
        assert inc.verify() < 1e-9


class PlainSubclass(GCNConv):
    """Changes nothing that is computed."""

    def __init__(self, channels, out):
        super().__init__(channels, out)
        self.note = "mine"

    def __repr__(self):
        return f"PlainSubclass({self.note})"

    def about(self):
        return self.note


def test_a_subclass_that_leaves_the_computation_alone_stays_incremental(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sides = Followed(lambda_of(PlainSubclass), seed=seed)
    assert sides.inc.mode == "incremental"
    assert not any("forward" in str(step) for step in sides.inc.program.steps)
    sides.walk()

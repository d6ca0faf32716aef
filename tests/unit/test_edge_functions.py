"""Sums and softmaxes of edge functions: held against plain PyTorch, and for the work they do."""

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from torch_geometric.nn import MessagePassing

from pyg_incremental import register_conv
from pyg_incremental.ops import base
from pyg_incremental.ops.base import Aggregate
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, generator, index, journey
from tests.zoo import CHANNELS, WEIGHT, Case

pytestmark = pytest.mark.kernels
BACKENDS = ("compiled", "reference")
HEADS = 3
INF = float("inf")


# A conv that is an edge function, in plain PyTorch ################################################


def difference(x_j, x_i, e):
    return (x_j - x_i) * e[:, None]


def source_and_edge(x_j, e):
    return torch.relu(x_j + e[:, None])


def target_and_edge(x_i, e):
    return (x_i * e[:, None])[:, None, :]  # [k, 1, channels]: taken as flat rows


def edge_alone(e):
    return e


FUNCTIONS = {
    "ste": difference,
    "se": source_and_edge,
    "te": target_and_edge,
    "e": edge_alone,
}
"""Functions by what they read: rows of the source, of the target and of the edge."""


@dataclass(frozen=True)
class Options:
    reads: str = "ste"
    softmax: bool = False
    loops: str = "keep"
    loop: bool = False
    reverse: bool = False

    def __str__(self):
        named = [name for name in ("softmax", "loop", "reverse") if getattr(self, name)]
        return "-".join(["f", self.reads, self.loops, *named])

    def terms(self, *rows):
        """Logits `[k, heads]` and values `[k, heads, channels]`: heads differ in size."""
        message = FUNCTIONS[self.reads](*rows)
        message = message.reshape(len(message), message.shape[1:].numel())
        values = torch.stack([message, message * 2, message.cos()], 1)
        sizes = torch.tensor([1.0, 30.0, -0.2], dtype=message.dtype)
        return message[:, :1] * sizes, values


class Function(MessagePassing):
    """The sum, or softmax-weighted sum, of an edge function; `MessagePassing` in name only."""

    def __init__(self, options):
        super().__init__(aggr="sum")
        self.options = options

    def forward(self, x, edge_index, edge_weight):
        options, size = self.options, len(x)
        src, dst = edge_index.flip(0) if options.reverse else edge_index
        e = edge_weight
        if options.loops != "keep":
            kept = (src == dst) == (options.loops == "only")
            src, dst, e = src[kept], dst[kept], e[kept]
        if options.loop:
            own = torch.arange(size)
            src, dst, e = torch.cat([src, own]), torch.cat([dst, own]), torch.cat([e, x[:, 1]])
        rows = [{"s": x[src], "t": x[dst], "e": e}[end] for end in options.reads]
        if not options.softmax:
            messages = FUNCTIONS[options.reads](*rows)
            messages = messages.reshape(len(e), messages.shape[1:].numel())
            return torch.zeros(size, messages.shape[1], dtype=x.dtype).index_add(0, dst, messages)
        logits, values = options.terms(*rows)
        out = torch.zeros(size, HEADS, values.shape[2], dtype=x.dtype)
        for node in range(size):
            mine = dst == node
            if mine.any():
                alpha = torch.softmax(logits[mine], 0)
                out[node] = (alpha[:, :, None] * values[mine]).sum(0)
        return out.flatten(1)


@register_conv(Function)
def program(call):
    options = call.conv.options
    call.only("x", "edge_weight")
    x, e = call.node(), call.edge("edge_weight")
    call = replace(call, loops=options.loops, turned=options.reverse)
    parts = [
        (value,) if end in options.reads else ()
        for value, end in zip((x, x, e), "ste", strict=True)
    ]
    if not options.softmax:
        return call.reduce(call.message(FUNCTIONS[options.reads], *parts))
    loop = None
    if options.loop:
        loop = (call.map("loop", lambda x: x[:, 1], x),)
    return call.attend(options.terms, *parts, heads=HEADS, loop=loop)


OPTIONS = [
    Options(),
    Options("se"),
    Options("te"),
    Options("e"),
    Options(reverse=True),
    Options(loops="drop"),
    Options("se", loops="only"),
    Options("se", loops="drop", reverse=True),
    Options(softmax=True),
    Options("se", softmax=True),
    Options("te", softmax=True),
    Options("e", softmax=True),
    Options(softmax=True, loops="only"),
    Options(softmax=True, loops="drop", loop=True),
    Options("se", softmax=True, loops="drop", loop=True),
    Options("e", softmax=True, loop=True, reverse=True),
    Options(softmax=True, reverse=True, loops="drop"),
]


def case(options):
    return Case(str(options), lambda: Function(options), data=WEIGHT, formats=("coo",))


def step_of(inc):
    return next(s for s in inc.program.steps if isinstance(s, Aggregate))


# Exactness ########################################################################################


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_sequence_of_events(options, backend, seed):
    sides = SideBySide(case(options), seed=seed, backend=backend)
    assert step_of(sides.inc).kind == ("softmax" if options.softmax else "sum")
    sides.walk(journey(sides.rng, rounds=2))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_close_in_float32(options, seed):
    SideBySide(case(options), dtype=torch.float32, seed=seed + 1).walk()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [Options(), Options(softmax=True, loop=True)], ids=str)
def test_a_few_edges_at_a_time(options, backend, seed, monkeypatch):
    monkeypatch.setattr(base, "AT_ONCE", 5)
    SideBySide(case(options), seed=seed, backend=backend).walk()


def star(leaves, dtype=torch.float64):
    """Every leaf sends to node 0; a far pair of nodes has nothing to do with it."""
    rng = generator(leaves)
    x = torch.from_numpy(rng.standard_normal((leaves + 3, CHANNELS))).to(dtype)
    pairs = [(v, 0) for v in range(1, leaves + 1)] + [(leaves + 1, leaves + 2)]
    return World(x, pairs, {"edge_weight": torch.ones(leaves + 1, dtype=dtype)})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [float("nan"), INF, -INF])
@pytest.mark.parametrize("loop", [False, True], ids=["no-loop", "loop"])
def test_a_bad_logit_spoils_its_heads_until_it_leaves(bad, loop, backend):
    """The third head has the opposite sign, so that infinity is its smallest logit."""
    options = Options("se", softmax=True, loop=loop)
    sides = SideBySide(case(options), world=star(4), backend=backend)
    rows = torch.zeros(1, CHANNELS, dtype=torch.float64)
    rows[0, 0] = bad
    sides.step({"x_changes": (torch.tensor([2]), rows)}, "bad")
    sides.step(DELTAS["change_hub"](sides.world, sides.rng), "hub")
    sides.step({"edge_index_del": index([(1, 0), (3, 0), (4, 0)])}, "bad alone")
    sides.step({"edge_index_add": index([(3, 0)]), "edge_weight_add": torch.ones(1).double()})
    sides.step({"edge_index_del": index([(2, 0)])}, "gone")
    assert sides.inc.out[0].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_all_of_whose_logits_are_minus_infinity(backend):
    options = Options("e", softmax=True)
    sides = SideBySide(case(options), world=star(3), backend=backend)
    pairs, weights = index([(1, 0), (2, 0), (3, 0)]), torch.full((3,), -INF).double()
    sides.step({"edge_changes": (pairs, {"edge_weight": weights})})
    assert sides.inc.out[0].isnan().any()
    for at in range(3):
        weight = {"edge_weight": torch.tensor([-1000.0]).double()}
        sides.step({"edge_changes": (pairs[:, at : at + 1], weight)})
    assert sides.inc.out[0].isfinite().all()
    sides.step({"edge_index_del": pairs})
    assert not sides.inc.out[0].any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [Options(), Options(softmax=True)], ids=str)
def test_long_streams_stay_close_in_float32(options, backend):
    """Features that grow and shrink leave no trace of what they were."""
    sides = SideBySide(case(options), dtype=torch.float32, world=star(40, torch.float32),
                       backend=backend)  # fmt: skip
    rng = generator(1)
    for size in [8.0, 1e4, 1e-2] * (70 if backend == "compiled" else 10):
        leaf = int(rng.integers(1, 41))
        rows = torch.from_numpy(rng.standard_normal((1, CHANNELS)) * size).float()
        delta = {"x_changes": (torch.tensor([leaf]), rows)}
        sides.world.apply(**delta)
        sides.inc.apply_delta(**delta)
    twin = copy.deepcopy(sides.twin).double()
    world = sides.world.copy()
    world.x = world.x.double()
    exact = full(twin, world, lambda m, i: m(i["x"], i["edge_index"], i["edge_weight"].double()))
    assert_close(sides.inc.out / exact.abs().max().float(), (exact / exact.abs().max()).float())


# Work #############################################################################################


@pytest.mark.parametrize("options", [Options("se"), Options("se", softmax=True)], ids=str)
def test_a_source_is_pushed_and_rows_are_not_read_again(options):
    sides = SideBySide(case(options), world=star(50), backend="compiled")
    rows = sides.world.x[[7]] * 1.01
    update = sides.step({"x_changes": (torch.tensor([7]), rows)})
    (step,) = (s for s in update.stats.steps if s.kind in ("sum", "softmax"))
    assert (step.rows, step.edges, step.reread) == (1, 1, 0)


@pytest.mark.parametrize("softmax", [False, True])
def test_a_target_is_made_afresh_over_its_in_edges(softmax):
    options = Options("ste", softmax=softmax)
    sides = SideBySide(case(options), world=star(50), backend="compiled")
    update = sides.step({"x_changes": (torch.tensor([0]), sides.world.x[[1]])})
    (step,) = (s for s in update.stats.steps if s.kind in ("sum", "softmax"))
    assert (step.rows, step.edges, step.reread) == (1, 50, 1)

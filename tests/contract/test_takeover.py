"""Plain kernels serve until compiled ones are there, and it never shows which have served when."""

from inspect import signature

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from pyg_incremental import to_incremental
from pyg_incremental.kernels import adjacency, compiled, graph_at, pairs, takeover
from pyg_incremental.kernels.takeover import Maker, TakeOver, plain_kernels
from tests.side_by_side import SideBySide
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_models import MODEL_CASES

NAMES = (
    "gcn-plain", "gcn-weights", "gcn-max", "sage-mean", "sage-max", "gin-two-linears", "gat-heads",
    "gat-attr-mean", "gat-no-loops", "graph-weights", "graph-backward",
)  # fmt: skip
WHOLE = ("gcn-plain", "graph-weights", "sage-mean", "sage-max", "gin-two-linears", "gat-heads")
"""Whose plans the machine has."""
CASES = [case for case in CONV_CASES if case.name in NAMES]
OTHERS = [ATTENTION_CASES[0], EDGE_FUNCTION_CASES[0], MODEL_CASES[0]]


@pytest.fixture
def choose(monkeypatch):
    """Lets a function say, call by call, whether a plain kernel stands in."""
    asked = []
    choice = {"is_plain": lambda: True}

    def chooser(kernel, plain):
        def run(*args):
            asked.append(choice["is_plain"]())
            return plain(*args) if asked[-1] else kernel(*args)

        return run

    for kernel, plain in plain_kernels().items():
        name = getattr(kernel, "__name__", None) or kernel.py_func.__name__
        for module in (compiled, adjacency, pairs, graph_at):
            if getattr(module, name, None) is kernel:
                monkeypatch.setattr(module, name, chooser(kernel, plain))

    def by(is_plain):
        choice["is_plain"] = is_plain
        return asked

    return by


@pytest.fixture
def kernels(monkeypatch):
    """Another state of affairs: nobody has asked for kernels yet."""
    own = TakeOver()
    monkeypatch.setattr("pyg_incremental.model.KERNELS", own)
    monkeypatch.setattr("pyg_incremental.readings.KERNELS", own)
    monkeypatch.setattr("pyg_incremental.rows.backend.KERNELS", own)
    monkeypatch.setattr("pyg_incremental.session.start.KERNELS", own)
    monkeypatch.setattr(takeover, "_IS_OFF", False)
    monkeypatch.setattr(takeover.kept, "is_complete", lambda dtype, *kinds: False)
    monkeypatch.setattr(takeover, "Process", ByHand)
    yield own
    own._stand_back()


class ByHand(Maker):
    """Has made everything, or some of it, when a test says so."""

    done, failed_too, kinds = False, False, ()

    def poll(self):
        self.failed = self.failed_too
        if not self.failed:
            there = [a for a in self.asked if self.done or a[-1] in self.kinds]
            self.made += [(what, []) for what in there]
            self.asked = [a for a in self.asked if a not in there]

    def wait(self):
        self.done = True


@pytest.mark.parametrize("case", [*CASES, *OTHERS], ids=str)
def test_plain_kernels_alone(case, choose, seed):
    asked = choose(lambda: True)
    sides = SideBySide(case, seed=seed, compile_after=None)
    sides.walk(kinds=12)
    assert len(asked) > 100
    assert sides.inc.check() == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_kernel_at_any_time(case, choose, seed):
    """More than is needed: both sets take turns within an update, and nobody can tell."""
    rng = np.random.default_rng(seed)
    asked = choose(lambda: rng.random() < 0.5)
    sides = SideBySide(case, seed=seed + 1, compile_after=None)
    sides.walk()
    assert 0.4 < np.mean(asked) < 0.6
    assert sides.inc.check() == []


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_taking_over_between_two_updates(case, after, choose, kernels, seed, capsys):
    """The machine too goes on from what plain kernels have left."""
    choose(lambda: kernels.serves_plain)
    sides = SideBySide(case, seed=seed + 2, compile_after=1)
    inc, maker = sides.inc, kernels._maker
    for _ in range(after):
        sides.walk(["add_edges"])
        assert inc.backend == "reference"
        assert "(compiled kernels are being made)" in repr(inc)
        assert inc._session.engine.fast is None
    maker.done = True
    session = inc._session
    sides.walk()
    assert inc._session is session, "everything was computed anew"
    assert inc.backend == "compiled"
    assert "being made" not in repr(inc)
    if case.name in WHOLE:
        assert session.engine.fast is not None
    assert inc.check() == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "plain torch kernels serve" in said[0]
    assert "took over" in said[1]


def test_kernels_that_cannot_be_made(choose, kernels, seed, capsys):
    choose(lambda: kernels.serves_plain)
    sides = SideBySide(CASES[0], seed=seed, compile_after=1)
    maker = kernels._maker
    maker.done = maker.failed_too = True
    sides.walk()
    assert sides.inc.backend == "reference"
    assert not kernels.is_making, "it would be tried again with every update"
    assert "could not be made" in repr(sides.inc)


def test_who_asks_for_compiled_kernels_waits(kernels, monkeypatch, seed):
    """For those of the kinds that its model has."""
    monkeypatch.setattr(takeover.warm, "warm_up", lambda dtype, kinds: asked.update(kinds))
    asked = set()
    sides = SideBySide(CASES[0], seed=seed, backend="compiled", compile_after=1)
    assert sides.inc.backend == "compiled"
    assert asked == {"loop", "sum", "large_sum", "graph", "rows", "sums"}
    sides.walk()


def test_one_kind_after_the_other(kernels):
    """What asks while something is made is made next, and does not keep the first one waiting."""
    kernels.begin("float32", ["loop"])
    maker = kernels._maker
    kernels.begin("float32", ["sums", "sum", "loop"])
    kernels.begin("float64", ["loop"])
    assert kernels._maker is maker
    expected = [("float32", "loop"), ("float32", "sum"), ("float32", "sums"), ("float64", "loop")]
    assert maker.asked == expected
    maker.kinds = ("sum",)
    kernels.poll()
    assert kernels.is_ready("float32", ["sum"])
    assert not kernels.is_ready("float32", ["loop", "sum"])
    assert not kernels.is_ready("float64", ["loop"])
    maker.done = True
    kernels.poll()
    assert kernels.is_ready("float32", ["loop", "sum", "sums"])
    assert kernels.is_ready("float64", ["loop"])
    assert not kernels.is_making


def test_a_kind_that_is_only_known_later(kernels):
    """It has a maker of its own, if the first one has made all that it was asked for."""
    kernels.begin("float32", ["loop"])
    kernels._maker.done = True
    kernels.poll()
    assert not kernels.serves_plain
    kernels.begin("float32", ["loop", "softmax"])
    assert kernels._maker.asked == [("float32", "softmax")]
    assert kernels.is_ready("float32", ["loop"])
    assert not kernels.is_ready("float32", ["softmax"])


def test_a_kind_that_only_the_plan_of_small_updates_tells(choose, kernels):
    """Moments of float32 are summed in float64, as the tables of the plan say; it is kept."""
    choose(lambda: kernels.serves_plain)
    torch.manual_seed(0)
    inc = to_incremental(SAGEConv(4, 4, aggr="std").eval(), compile_after=1)
    edges = torch.randint(20, (2, 60))
    inc(torch.randn(20, 4), edges)
    engine, maker = inc._session.engine, kernels._maker
    maker.kinds = [kind for _, kind in maker.asked]
    inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]))
    planned = engine._planned
    assert planned is not None
    assert engine.fast is None
    assert {kind for _, kind in kernels._maker.asked} == {"wide_map", "wide_sum"}
    kernels._maker.done = True
    inc.apply_delta(edge_index_add=torch.tensor([[3], [4]]))
    assert engine.fast is planned
    assert inc.verify() < 1e-5


def test_small_updates_do_not_wait_for_the_kernels_of_large_ones(choose, kernels, seed, capsys):
    choose(lambda: kernels.serves_plain)
    sides = SideBySide(CASES[0], seed=seed, compile_after=1)
    kernels._maker.kinds = ("loop", "sum")
    sides.walk(["add_edges"])
    assert sides.inc.backend == "compiled"
    assert sides.inc._session.engine.fast is not None
    assert kernels.is_making
    assert "took over" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(adjacency.more_room, "py_func"), reason="nothing is compiled")
def test_types_that_nobody_thought_of(kernels, monkeypatch):
    """Those have no code on disk: they are asked for, and the plain kernel does it meanwhile."""
    monkeypatch.setattr(takeover.kept, "is_complete", lambda dtype, kind: True)
    kernels.begin("float32", ["loop", "graph"])
    kernel, plain = compiled.unite, plain_kernels()[compiled.unite]
    odd = np.zeros((3, 2), np.int8)[:, 0]
    assert kernels._code_for(kernel, plain, odd) is plain
    assert kernels.is_making
    (job,) = kernels._maker.asked
    assert job[:2] == ("pyg_incremental.kernels.compiled.rows", "unite")
    kernels._maker.done = True
    kernels.poll()
    assert kernels._code_for(kernel, plain, odd) is plain
    assert not kernels.is_making, "it has failed once, and would again"


def test_every_plain_kernel_takes_what_its_twin_takes():
    """By number and order; some compiled ones take bounds besides, for threads."""
    for kernel, plain in plain_kernels().items():
        own = getattr(kernel, "py_func", kernel)
        names = [p for p in signature(own).parameters if p not in ("low", "high")]
        taken = signature(getattr(plain, "args", [plain])[0]).parameters
        taken = [p for p in taken if p not in ("low", "high")]
        assert len(names) == len(taken), own.__name__


def test_a_dtype_without_kernels_asks_for_none(kernels):
    kernels.begin("float16", ["loop"])
    assert not kernels.is_making
    assert kernels.is_ready("float16", ["loop"])
    assert torch.get_default_dtype() == torch.float32

"""Who is given the rows of an evaluation before: the same model on the same call, and nobody else.

Each change is one that the shapes and the parameters of the model do not show.
"""

import functools
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GINConv

from pyg_incremental import IncrementalWarning, StateFileError, evaluate
from pyg_incremental.encoding.likeness import Digests
from pyg_incremental.session.options import differences, options_of
from tests.blocks.test_evaluate import CHANNELS, GraphSAGE, full, graph, model_of
from tests.blocks.test_files import killed_after, rows_computed
from tests.closeness import assert_close
from tests.processes import ROOT, run_script

FACTOR = 2.0
MODULE = types.ModuleType("somewhere_else")
MODULE.factor = 2.0


def scaled(x):
    return FACTOR * x


def squashed(x):
    return x.tanh()


def times(factor):
    return lambda x: factor * x


class Settings:
    """An object that a model holds."""

    offset = 0.5

    def __init__(self, factor):
        self.factor = factor


class Net(nn.Module):
    """Holds numbers in all the ways in which a model may."""

    width = 1.0

    def __init__(self):
        super().__init__()
        norm = {"norm": "layer_norm", "norm_kwargs": {"mode": "node"}}
        self.conv = GCN(CHANNELS, 8, num_layers=2, out_channels=3, **norm)
        self.factor, self.names = 1.5, ["a", "b"]
        self.shift, self.shifts = torch.ones(3).double(), [torch.ones(3).double()]
        self.by_name = {"shift": torch.ones(3).double()}
        self.array = np.ones(3)
        self.register_buffer("mean", torch.ones(3).double(), persistent=False)
        self.closed, self.part = times(1.25), functools.partial(torch.mul, other=0.75)
        self.settings = Settings(1.75)

    def forward(self, x, edge_index, scale=1.0, mode="a"):
        x = self.conv(x, edge_index)
        x = self.closed(self.part(scaled(x) * self.factor)) + self.shift - self.shifts[0]
        x = x * self.by_name["shift"] + self.mean + torch.from_numpy(self.array) * MODULE.factor
        x = x * self.settings.factor + self.settings.offset + self.width
        x = squashed(x) if self.names[0] == "a" else x
        return scale * x if mode == "a" else scale + x


def net():
    torch.manual_seed(0)
    return Net().double().eval()


def gat():
    torch.manual_seed(0)
    return model_of(GAT)


def gin():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(CHANNELS, 3))
    return GINConv(mlp, eps=0.25).double().eval()


def another(name, value):
    """Another value of an attribute, of a module somewhere in a model."""

    def change(model, patch):
        *path, last = name.split(".")
        owner = functools.reduce(getattr, path, model)
        patch.setattr(owner, last, value)

    return change


def within(name, at, value):
    """Another value in a list, dict or tensor that a model holds."""

    def change(model, patch):
        functools.reduce(getattr, name.split("."), model)[at] = value

    return change


def hooked(model, patch):
    model.register_forward_hook(lambda module, arguments, out: 3 * out)


CHANGES = {
    "slope": (gat, another("convs.0.negative_slope", 0.7)),
    "activation": (gat, another("act", nn.Tanh().eval())),
    "eps of a conv": (gin, within("eps", ..., 0.75)),
    "eps of a norm": (net, another("conv.norms.0.eps", 0.5)),
    "normalize": (net, another("conv.convs.1.normalize", False)),
    "factor": (net, another("factor", 2.5)),
    "class attribute": (net, lambda model, patch: patch.setattr(Net, "width", 3.0)),
    "plain tensor": (net, another("shift", torch.zeros(3).double())),
    "plain tensor in place": (net, within("shift", 0, 7.0)),
    "tensor in a list": (net, within("shifts", 0, torch.zeros(3).double())),
    "tensor in a dict": (net, within("by_name", "shift", torch.zeros(3).double())),
    "array": (net, within("array", 0, 5.0)),
    "buffer that is not saved": (net, within("mean", 0, 5.0)),
    "closure": (net, another("closed", times(3.0))),
    "partial": (net, another("part", functools.partial(torch.mul, other=3.0))),
    "object": (net, another("settings.factor", 3.0)),
    "class of an object": (net, lambda m, patch: patch.setattr(Settings, "offset", 3.0)),
    "word in a list": (net, within("names", 0, "z")),
    "global number": (net, lambda m, patch: patch.setitem(globals(), "FACTOR", 3.0)),
    "global function": (net, lambda m, patch: patch.setitem(globals(), "squashed", times(3.0))),
    "number of a module": (net, lambda model, patch: patch.setattr(MODULE, "factor", 3.0)),
    "hook": (gat, hooked),
    "default": (net, lambda m, patch: patch.setattr(Net.forward, "__defaults__", (3.0, "a"))),
}


def run(model, data, directory, **arguments):
    call = {"x": data.x, "edge_index": data.edge_index, **arguments}
    return evaluate(model, call, directory=directory, memory=60_000, progress=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A graph, and a folder for each model in which it was evaluated."""
    data, folder = graph(0), tmp_path_factory.mktemp("finished")
    for make in (gat, gin, net):
        run(make(), data, folder / make.__name__)
    return data, folder


@pytest.mark.parametrize("make", [gat, gin, net])
def test_another_model_alike_is_given_the_rows(make, finished, monkeypatch):
    data, folder = finished
    blocks, got = rows_computed(monkeypatch, lambda: run(make(), data, folder / make.__name__))[1:]
    assert not blocks
    assert_close(got, full(make(), data))


@pytest.mark.parametrize("how", CHANGES)
def test_a_model_that_was_changed_is_refused(how, finished, monkeypatch):
    make, change = CHANGES[how]
    data, folder = finished
    model = make()
    change(model, monkeypatch)
    with pytest.raises(StateFileError, match="holds another evaluation: "):
        run(model, data, folder / make.__name__)


@pytest.mark.parametrize("how", ["slope", "plain tensor"])
def test_so_it_is_in_the_middle(how, seed, tmp_path, monkeypatch):
    make, change = CHANGES[how]
    data = graph(seed)
    killed_after(3, monkeypatch, lambda: run(make(), data, tmp_path))
    model = make()
    with monkeypatch.context() as patch:
        change(model, patch)
        with pytest.raises(StateFileError, match="holds another evaluation: "):
            run(model, data, tmp_path)
    assert_close(run(make(), data, tmp_path), full(make(), data), 1e-9)


@pytest.mark.parametrize("arguments", [{"scale": 3.0}, {"mode": "b"}])
def test_another_argument_is_refused(arguments, finished):
    data, folder = finished
    with pytest.raises(StateFileError, match=f"argument '{next(iter(arguments))}'"):
        run(net(), data, folder / "net", **arguments)


def test_it_is_said_what_differs(finished):
    data, folder = finished
    model = gat()
    model.convs[1].negative_slope = 0.5
    with pytest.raises(StateFileError, match=r"convs\.1\.negative_slope was 0\.2, is 0\.5"):
        run(model, data, folder / "gat")


def test_what_cannot_be_compared_is_never_taken_for_the_same(seed, tmp_path):
    data, model, rows = graph(seed), net(), iter([1.0, 2.0])
    drawn = (row for row in rows)
    model.draw = lambda: next(drawn)
    with pytest.warns(IncrementalWarning, match="draw cannot be compared"):
        run(model, data, tmp_path)
    with (
        pytest.warns(IncrementalWarning, match="does not go on in this directory"),
        pytest.raises(StateFileError, match="draw cannot be compared"),
    ):
        run(model, data, tmp_path)


ELSEWHERE = """
import sys, torch
from tests.blocks.test_alike import gat, graph, net, run
torch.set_num_threads(1)
for name, make in (("gat", gat), ("net", net)):
    run(make(), graph(0), f"{sys.argv[1]}/{name}")
"""


@pytest.mark.more
def test_another_process_goes_on(tmp_path, monkeypatch):
    """Where objects lie there, and in which order sets are gone through, says nothing."""
    run_script(ELSEWHERE, ROOT, tmp_path, tmp_path)
    for name, make in (("gat", gat), ("net", net)):
        call = functools.partial(run, make(), graph(0), tmp_path / name)
        assert not rows_computed(monkeypatch, call)[1]


def test_sets_and_shared_parts():
    """Equal sets are alike in whatever order, and parts whether they are shared or not."""
    assert Digests().of({0, 8}) == Digests().of({8, 0})
    ones = torch.ones(3)
    assert Digests().of([ones, ones]) == Digests().of([ones, ones.clone()])
    assert Digests().of([1, [2]]) != Digests().of([1, 2])
    assert Digests().of([1, True]) != Digests().of([True, 1])
    assert Digests().of({"a": 1, "b": 2}) != Digests().of({"b": 2, "a": 1})
    own = [1]
    own.append(own)
    assert Digests().of(own)


def test_options_of_a_model_are_those_of_its_like():
    for make in (net, gat, gin, lambda: model_of(GraphSAGE)):
        assert differences(options_of(make()), options_of(make())) == []

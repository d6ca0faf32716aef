"""Bad input: each a named error that says what, where, got and expected, and changes nothing."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GCNConv, GraphConv
from torch_geometric.nn import Linear as PyGLinear

from pyg_incremental import (
    GraphDelta,
    IncrementalError,
    InvalidDeltaError,
    StaleStateError,
    UnsupportedModelError,
    load,
    to_incremental,
)
from tests.closeness import assert_close
from tests.oracle import World, full

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 1)]


def make(weight=False, attr=False, dtype=torch.float64, **options):
    """A wrapped 2-layer model on 5 nodes, its twin and the world."""
    torch.manual_seed(0)
    data = {}
    if weight:
        data["edge_weight"] = torch.rand(len(EDGES), dtype=dtype)
    if attr:
        data["edge_attr"] = torch.rand(len(EDGES), 3, dtype=dtype)
    model = GAT(4, 6, 2, 3, edge_dim=3) if attr else GCN(4, 6, 2, 3)
    model = model.to(dtype).eval()
    world = World(torch.randn(5, 4, dtype=dtype), EDGES, data)
    inc = to_incremental(model, **options)
    inputs = world.inputs()
    inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
    return inc, model, world


def pairs(*listed):
    return torch.tensor(listed).t()


X1 = torch.ones(1, 4, dtype=torch.float64)
ONE = torch.tensor([1])
ADD = pairs((0, 2))
NAN = float("nan")

# What is wrong, the keywords, and the words that the message must hold.
BAD = {
    "edge id too large": ({"edge_index_add": pairs((0, 5))}, ["5", "num_nodes|nodes"]),
    "edge id negative": ({"edge_index_add": pairs((0, -1))}, ["-1"]),
    "deleted id too large": ({"edge_index_del": pairs((7, 0))}, ["7"]),
    "deleted id negative": ({"edge_index_del": pairs((-2, 0))}, ["-2"]),
    "edge missing": ({"edge_index_del": pairs((4, 0))}, ["4", "0", "ignore"]),
    "edge there once, deleted twice": (
        {"edge_index_del": pairs((1, 2), (1, 2))},
        ["1", "2", "ignore"],
    ),
    "edge only in the same delta": (
        {"edge_index_add": pairs((4, 0)), "edge_index_del": pairs((4, 0))},
        ["4", "0"],
    ),
    "other direction missing": (
        {"edge_index_del": pairs((0, 1)), "undirected": True},
        ["1", "0"],
    ),
    "edge_index has three rows": ({"edge_index_add": torch.zeros(3, 2).long()}, ["3", "2"]),
    "edge_index has one dimension": (
        {"edge_index_add": torch.zeros(4).long()},
        ["edge_index_add"],
    ),
    "edge_index of floats": ({"edge_index_add": torch.zeros(2, 1)}, ["float32", "int64"]),
    "edge_index of bools": ({"edge_index_add": torch.zeros(2, 1).bool()}, ["bool", "int64"]),
    "edge_index is a word": ({"edge_index_add": "0 1"}, ["edge_index_add"]),
    "x id too large": ({"x_changes": (torch.tensor([5]), X1)}, ["5", "x_changes"]),
    "x id negative": ({"x_changes": (torch.tensor([-1]), X1)}, ["-1", "x_changes"]),
    "x id of floats": ({"x_changes": (torch.tensor([1.0]), X1)}, ["float32", "int64"]),
    "x rows too wide": ({"x_changes": (ONE, torch.ones(1, 5).double())}, ["5", "4"]),
    "x rows too few": ({"x_changes": (torch.tensor([0, 1]), X1)}, ["x_changes", "1", "2"]),
    "x rows too many": ({"x_changes": (ONE, torch.ones(2, 4).double())}, ["x_changes", "1", "2"]),
    "x rows of complex64": (
        {"x_changes": (ONE, torch.ones(1, 4, dtype=torch.complex64))},
        ["complex64", "float64"],
    ),
    "x rows complex": ({"x_changes": (ONE, X1.to(torch.complex128))}, ["complex", "float64"]),
    "x not a pair": ({"x_changes": X1}, ["x_changes"]),
    "x rows on another device": ({"x_changes": (ONE, X1.to("meta"))}, ["meta", "cpu"]),
    "edges on another device": ({"edge_index_add": ADD.to("meta")}, ["meta", "cpu"]),
    "x_add too wide": ({"x_add": torch.ones(2, 3).double()}, ["x_add", "3", "4"]),
    "x_add of complex64": (
        {"x_add": torch.ones(2, 4, dtype=torch.complex64)},
        ["complex64", "float64"],
    ),
    "x_add one row flat": ({"x_add": torch.ones(3).double()}, ["x_add"]),
    "edge to a node that is not added": (
        {"x_add": X1, "edge_index_add": pairs((0, 6))},
        ["6"],
    ),
    "nodes_del too large": ({"nodes_del": torch.tensor([5])}, ["5", "nodes_del"]),
    "nodes_del negative": ({"nodes_del": torch.tensor([-1])}, ["-1", "nodes_del"]),
    "nodes_del of floats": ({"nodes_del": torch.tensor([1.0])}, ["float32", "int64"]),
    "nodes_del with two dimensions": ({"nodes_del": torch.zeros(2, 2).long()}, ["nodes_del"]),
    "weight where the model has none": (
        {"edge_index_add": ADD, "edge_weight_add": torch.ones(1).double()},
        ["edge_weight"],
    ),
    "attr where the model has none": (
        {"edge_index_add": ADD, "edge_attr_add": torch.ones(1, 3).double()},
        ["edge_attr"],
    ),
    "changed data where the model has none": (
        {"edge_changes": (pairs((0, 1)), {"edge_weight": torch.ones(1).double()})},
        ["edge_weight"],
    ),
    "edges as a sparse tensor": ({"edge_index_add": ADD.to_sparse()}, ["layout", "dense"]),
    "sparse edges leave": ({"edge_index_del": ADD.to_sparse()}, ["layout", "dense"]),
    "ids as a sparse tensor": ({"x_changes": (ONE.to_sparse(), X1)}, ["layout", "dense"]),
    "rows as a sparse tensor": ({"x_changes": (ONE, X1.to_sparse())}, ["layout", "dense"]),
    "missing is a strange word": ({"missing": "skip"}, ["skip", "error", "ignore"]),
}

W = torch.ones(1).double()
TWO = torch.ones(2).double()
NARROW = torch.ones(1, dtype=torch.complex64)
META = W.to("meta")
BAD_WEIGHT = {
    "weight missing": ({"edge_index_add": ADD}, ["edge_weight_add"]),
    "weight too long": ({"edge_index_add": ADD, "edge_weight_add": TWO}, ["2", "1"]),
    "weight of complex64": (
        {"edge_index_add": ADD, "edge_weight_add": NARROW},
        ["complex64", "float64"],
    ),
    "weight with two columns": (
        {"edge_index_add": ADD, "edge_weight_add": torch.ones(1, 2).double()},
        ["edge_weight_add", "2"],
    ),
    "weight without edges": ({"edge_weight_add": W}, ["edge_weight_add"]),
    "weight on another device": ({"edge_index_add": ADD, "edge_weight_add": META}, ["meta"]),
    "change of a missing edge": (
        {"edge_changes": (pairs((4, 0)), {"edge_weight": W})},
        ["4", "0", "ignore"],
    ),
    "change of an unknown name": ({"edge_changes": (pairs((0, 1)), {"weight": W})}, ["weight"]),
    "change too long": (
        {"edge_changes": (pairs((0, 1)), {"edge_weight": torch.ones(2).double()})},
        ["2", "1"],
    ),
    "change of complex64": (
        {"edge_changes": (pairs((0, 1)), {"edge_weight": torch.ones(1) + 1j})},
        ["complex64"],
    ),
    "change not a pair": ({"edge_changes": {"edge_weight": W}}, ["edge_changes"]),
    "change of an edge that leaves": (
        {"edge_index_del": pairs((1, 2)), "edge_changes": (pairs((1, 2)), {"edge_weight": W})},
        ["1", "2"],
    ),
}  # fmt: skip

BAD_ATTR = {
    "attr missing": ({"edge_index_add": ADD}, ["edge_attr_add"]),
    "attr too wide": (
        {"edge_index_add": ADD, "edge_attr_add": torch.ones(1, 2).double()},
        ["edge_attr_add", "2", "3"],
    ),
    "attr change too wide": (
        {"edge_changes": (pairs((0, 1)), {"edge_attr": torch.ones(1, 4).double()})},
        ["4", "3"],
    ),
}


def refuse(inc, keywords, words, error=InvalidDeltaError):
    digest = inc.state_digest()
    version = inc.version
    with pytest.raises(error) as caught:
        inc.apply_delta(**keywords)
    message = str(caught.value)
    for word in words:
        assert any(part in message for part in word.split("|")), (word, message)
    assert len(message.split()) >= 6, f"a sentence, please: {message}"
    assert inc.state_digest() == digest
    assert inc.version == version
    assert inc.stale is None


@pytest.mark.parametrize(("keywords", "words"), BAD.values(), ids=BAD)
def test_bad_delta(keywords, words):
    inc, _, _ = make()
    refuse(inc, keywords, words)


@pytest.mark.parametrize(("keywords", "words"), BAD.values(), ids=BAD)
def test_bad_delta_where_updates_are_compiled(keywords, words):
    inc, model, world = make(compile_after=1, backend="compiled")
    inc.apply_delta(x_changes=(ONE, X1))
    refuse(inc, keywords, words)
    inc.apply_delta(ADD)
    world.apply(edge_index_add=ADD, x_changes=(ONE, X1))
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize(("keywords", "words"), BAD_WEIGHT.values(), ids=BAD_WEIGHT)
def test_bad_weights(keywords, words):
    inc, _, _ = make(weight=True)
    refuse(inc, keywords, words)


@pytest.mark.parametrize(("keywords", "words"), BAD_ATTR.values(), ids=BAD_ATTR)
def test_bad_attributes(keywords, words):
    inc, _, _ = make(attr=True)
    refuse(inc, keywords, words)


@pytest.mark.parametrize(("keywords", "words"), BAD.values(), ids=BAD)
def test_good_parts_of_a_bad_delta_are_not_applied(keywords, words):
    inc, model, world = make()
    good = {"x_changes": (ONE, X1), "nodes_del": ONE, "edge_index_del": pairs((1, 2))}
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(**{**good, **keywords})
    assert inc.state_digest() == digest
    assert_close(inc.out, full(model, world))


def test_a_refused_delta_object_changes_nothing():
    inc, _, _ = make()
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(GraphDelta(edge_index_del=pairs((4, 0))))
    assert inc.state_digest() == digest


def test_delta_object_and_keywords_together():
    inc, _, _ = make()
    digest = inc.state_digest()
    with pytest.raises((InvalidDeltaError, TypeError)):
        inc.apply_delta(GraphDelta(edge_index_add=ADD), x_changes=(ONE, X1))
    assert inc.state_digest() == digest


def test_errors_are_of_the_family():
    assert issubclass(InvalidDeltaError, (IncrementalError, ValueError))
    assert issubclass(InvalidDeltaError, IncrementalError)
    assert issubclass(InvalidDeltaError, ValueError)
    assert issubclass(UnsupportedModelError, IncrementalError)
    assert issubclass(UnsupportedModelError, TypeError)
    assert issubclass(StaleStateError, IncrementalError)
    assert issubclass(StaleStateError, RuntimeError)


# States in which no delta may come ################################################################


def test_before_the_first_pass():
    inc = to_incremental(GCN(4, 6, 2, 3).eval())
    with pytest.raises(StaleStateError, match="first"):
        inc.apply_delta(edge_index_add=ADD)


def test_model_in_training_mode():
    model = GCN(4, 6, 2, 3)
    world = World(torch.randn(5, 4), EDGES)
    with pytest.raises(StaleStateError, match=r"eval\(\)"):
        to_incremental(model)(**world.inputs())


def test_train_after_the_first_pass():
    inc, model, world = make()
    model.train()
    with pytest.raises(StaleStateError, match=r"eval\(\)"):
        inc.apply_delta(edge_index_add=ADD)
    model.eval()
    inc.refresh()
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


CHANGES = {
    "all by load_state_dict": lambda model: model.load_state_dict(
        {name: 2 * value for name, value in model.state_dict().items()}
    ),
    "an optimizer step": lambda model: optimizer_step(model),
    "a new Parameter object": lambda model: setattr(
        model.convs[1], "bias", torch.nn.Parameter(torch.ones(3).double())
    ),
}


def optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()


@pytest.mark.parametrize("change", list(CHANGES))
def test_parameters_changed(change):
    inc, model, world = make()
    CHANGES[change](model)
    assert inc.stale is not None
    with pytest.raises(StaleStateError, match=r"refresh\(\)"):
        inc.apply_delta(edge_index_add=ADD)
    inc.refresh()
    assert inc.stale is None
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


def test_parameter_changed_in_place_under_no_grad():
    inc, model, _ = make()
    with torch.no_grad():
        model.convs[0].lin.weight.mul_(2)
    with pytest.raises(StaleStateError, match=r"refresh\(\)"):
        inc.apply_delta(edge_index_add=ADD)


def test_buffer_changed():
    torch.manual_seed(0)
    model = GCN(4, 6, 2, 3, norm="batch").double().eval()
    world = World(torch.randn(5, 4).double(), EDGES)
    inc = to_incremental(model)
    inc(**world.inputs())
    model.norms[0].module.running_mean.add_(1)
    with pytest.raises(StaleStateError, match=r"refresh\(\)"):
        inc.apply_delta(edge_index_add=ADD)
    inc.refresh()
    assert_close(inc.out, full(model, world))


def test_dtype_of_the_model_changed():
    inc, model, _ = make()
    model.float()
    with pytest.raises(StaleStateError):
        inc.apply_delta(edge_index_add=ADD)


def test_a_new_dtype_needs_a_new_first_pass():
    """There are no features of that type, so refresh() cannot mend it and says what can."""
    inc, model, world = make(dtype=torch.float32)
    model.double()
    assert inc.stale is not None
    with pytest.raises(StaleStateError):
        inc.apply_delta(edge_index_add=ADD)
    with pytest.raises(StaleStateError, match=r"call.*float64"):
        inc.refresh()
    with pytest.raises(StaleStateError):
        _ = inc.out
    world.x = world.x.double()
    inc(**world.inputs())
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


def double_output(module, args, output):
    return 2 * output


def double_input(module, args):
    return (2 * args[0], *args[1:])


# What is done to the model, and whether its output changes.
PARTS = {
    "a conv replaced": lambda model: set_conv(model, GCNConv(6, 3)),
    "a conv replaced by another kind": lambda model: set_conv(model, GraphConv(6, 3)),
    "a part of a conv replaced": lambda model: setattr(
        model.convs[0], "lin", PyGLinear(4, 6, bias=False).double().eval()
    ),
    "a bias where there was none": lambda model: setattr(
        model.convs[0].lin, "bias", torch.nn.Parameter(torch.ones(6).double())
    ),
    "an activation replaced": lambda model: setattr(model, "act", torch.nn.Tanh().eval()),
    "a hook on a conv": lambda model: model.convs[0].register_forward_hook(double_output),
    "a hook inside a conv": lambda model: model.convs[1].lin.register_forward_hook(double_output),
    "a hook on an activation": lambda model: model.act.register_forward_hook(double_output),
    "a hook before a conv": lambda model: model.convs[1].register_forward_pre_hook(double_input),
}


def set_conv(model, conv):
    model.convs[1] = conv.double().eval()


def noticed(model, change):
    """A change of the model makes it stale, and counts after refresh()."""
    world = World(torch.randn(5, 4).double(), EDGES)
    inc = to_incremental(model)
    inc(**world.inputs())
    before = inc.out.clone()
    change(model)
    model.double().eval()  # what has come
    assert inc.stale is not None
    with pytest.raises(StaleStateError, match=r"refresh\(\)"):
        inc.apply_delta(edge_index_add=ADD)
    inc.refresh()
    assert inc.stale is None
    assert (inc.out != before).any()
    assert_close(inc.out, full(model, world))
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("change", PARTS.values(), ids=PARTS)
def test_parts_of_the_model_changed(change):
    torch.manual_seed(0)
    noticed(GCN(4, 6, 2, 3, act=torch.nn.ReLU()).double().eval(), change)


class Growing(torch.nn.Module):
    """A model of containers that a user adds to: all that they hold is used."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 6)
        self.head = torch.nn.Sequential(torch.nn.Linear(6, 6))
        self.more = torch.nn.ModuleList()
        self.named = torch.nn.ModuleDict({"a": torch.nn.Linear(6, 6), "b": torch.nn.Tanh()})
        self.factors = torch.nn.ParameterList([torch.rand(6)])
        self.register_buffer("shift", None)

    def forward(self, x, edge_index):
        x = self.head(self.conv(x, edge_index))
        for part in [*self.more, *self.named.values()]:
            x = part(x)
        for factor in self.factors:
            x = x * factor
        return x if self.shift is None else x + self.shift


def turned(named):
    first = next(iter(named))
    named[first] = named.pop(first)


GROWTH = {
    "a module appended": lambda model: model.head.append(torch.nn.Tanh()),
    "the first of a list": lambda model: model.more.append(torch.nn.Tanh()),
    "a named module": lambda model: model.named.update({"c": torch.nn.Tanh()}),
    "another order": lambda model: turned(model.named),
    "a module taken away": lambda model: model.named.pop("b"),
    "a parameter": lambda model: model.factors.append(torch.rand(6)),
    "a buffer where there was none": lambda model: setattr(model, "shift", torch.ones(6)),
}


@pytest.mark.parametrize("change", GROWTH.values(), ids=GROWTH)
def test_what_a_container_holds_changed(change):
    torch.manual_seed(0)
    noticed(Growing().double().eval(), change)


def test_a_part_that_comes_and_is_no_change():
    inc, model, world = make()
    model.more = torch.nn.Linear(2, 2)
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))
    set_conv(model, GCNConv(6, 3))
    assert "'1' was replaced" in inc.stale


def test_a_hook_removed():
    torch.manual_seed(0)
    model = GCN(4, 6, 2, 3).double().eval()
    handle = model.convs[0].register_forward_hook(double_output)
    world = World(torch.randn(5, 4).double(), EDGES)
    inc = to_incremental(model)
    inc(**world.inputs())
    handle.remove()
    with pytest.raises(StaleStateError, match=r"refresh\(\)"):
        inc.apply_delta(edge_index_add=ADD)
    inc.refresh()
    world.apply(edge_index_add=ADD)
    inc.apply_delta(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


def test_autocast_is_refused():
    """It would compute some steps in bfloat16, and not the same ones as the model alone."""
    inc, model, world = make(dtype=torch.float32)
    digest = inc.state_digest()
    inputs = world.inputs()
    with torch.autocast("cpu"):
        with pytest.raises(UnsupportedModelError, match="autocast"):
            inc.apply_delta(edge_index_add=ADD)
        with pytest.raises(UnsupportedModelError, match="autocast"):
            inc(inputs["x"], inputs["edge_index"])
        with pytest.raises(UnsupportedModelError, match="autocast"):
            to_incremental(model)(inputs["x"], inputs["edge_index"])
    assert inc.state_digest() == digest
    assert inc.stale is None
    with torch.autocast("cpu", enabled=False):
        inc.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("called", [True, False], ids=["called", "not called"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps], ids=["deepcopy", "pickle"])
def test_a_wrapper_is_not_copied(duplicate, called):
    inc = make()[0] if called else to_incremental(GCN(4, 6, 2, 3).eval())
    with pytest.raises(UnsupportedModelError, match=r"save.*load"):
        duplicate(inc)


def test_new_first_pass_replaces_everything():
    inc, model, _ = make()
    other = World(torch.randn(3, 4).double(), [(0, 1), (1, 2)])
    out = inc(**other.inputs())
    assert_close(out, full(model, other))
    assert inc.num_nodes == 3
    refuse(inc, {"edge_index_add": pairs((0, 4))}, ["4"])


# The first pass ###################################################################################


def test_data_object_without_what_forward_needs():
    inc = to_incremental(GCN(4, 6, 2, 3).eval())
    with pytest.raises(InvalidDeltaError, match="edge_index"):
        inc(Data(x=torch.randn(5, 4)))


def test_data_object_as_a_delta():
    inc, _, _ = make()
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError, match="Data"):
        inc.apply_delta(Data(x=torch.randn(5, 4), edge_index=torch.tensor(EDGES).t()))
    assert inc.state_digest() == digest


FIRST = {
    "id too large": {"edge_index": pairs((0, 9))},
    "id negative": {"edge_index": pairs((0, -1))},
    "edge_index of floats": {"edge_index": torch.zeros(2, 3)},
    "edge_index transposed": {"edge_index": torch.zeros(5, 2).long()},
    "weight too long": {"edge_weight": torch.ones(9).double()},
    "weight too short": {"edge_weight": torch.ones(2).double()},
}


@pytest.mark.parametrize("change", FIRST.values(), ids=FIRST)
def test_bad_first_pass(change):
    model = GCN(4, 6, 2, 3).double().eval()
    inputs = {"x": torch.randn(5, 4).double(), "edge_index": torch.tensor(EDGES).t(), **change}
    inc = to_incremental(model)
    with pytest.raises(InvalidDeltaError) as caught:
        inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
    assert len(str(caught.value).split()) >= 6


def test_bad_first_pass_keeps_the_one_before():
    inc, model, world = make()
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError):
        inc(world.x, pairs((0, 9)))
    assert inc.state_digest() == digest
    assert_close(inc.out, full(model, world))


def test_not_a_model():
    with pytest.raises((UnsupportedModelError, TypeError), match="Module"):
        to_incremental("GCN")


@pytest.mark.parametrize("options", [{"backend": "fast"}, {"accumulate_dtype": torch.int64},
                                     {"scrub_rows": -1}])  # fmt: skip
def test_bad_options(options):
    with pytest.raises((ValueError, TypeError)) as caught:
        to_incremental(GCN(4, 6, 2, 3).eval(), **options)
    assert str(next(iter(options))) in str(caught.value)


# What is accepted #################################################################################


def test_nan_is_allowed_and_propagates():
    inc, model, world = make()
    delta = {"x_changes": (ONE, torch.full((1, 4), NAN).double())}
    inc.apply_delta(**delta)
    world.apply(**delta)
    assert full(model, world).isnan().any()
    assert_close(inc.out, full(model, world))


@pytest.mark.kernels
def test_duplicate_ids_the_last_row_counts():
    inc, model, world = make()
    rows = torch.randn(3, 4).double()
    inc.apply_delta(x_changes=(torch.tensor([2, 3, 2]), rows))
    world.apply(x_changes=(torch.tensor([2, 3]), rows[[2, 1]]))
    assert torch.equal(inc.x, world.x)
    assert_close(inc.out, full(model, world))


LISTS = {
    "lists": lambda t: t.tolist(),
    "tuples": lambda t: tuple(map(tuple, t.tolist())) if t.dim() > 1 else tuple(t.tolist()),
    "numpy": lambda t: t.numpy(),
    "int32": lambda t: t.int() if t.dtype == torch.long else t,
    "numpy int32": lambda t: t.numpy().astype(np.int32) if t.dtype == torch.long else t.numpy(),
    "not contiguous": lambda t: t.repeat_interleave(2, dim=-1)[..., ::2],
}


@pytest.mark.parametrize("coalesce", [False, True], ids=["plain", "coalesced"])
@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
@pytest.mark.parametrize("how", LISTS.values(), ids=LISTS)
def test_lists_and_arrays_are_accepted(how, undirected, coalesce):
    inc, model, world = make(weight=True)
    back = {"edge_index_add": pairs((2, 1), (0, 3)), "edge_weight_add": torch.ones(2).double()}
    if undirected:
        inc.apply_delta(**back)
        world.apply(**back)
    delta = {
        "undirected": undirected,
        "edge_index_add": pairs((0, 2), (5, 1), (3, 3)),
        "edge_index_del": pairs((1, 2)),
        "x_changes": (torch.tensor([1, 2]), torch.randn(2, 4).double()),
        "edge_weight_add": torch.rand(3).double(),
        "edge_changes": (pairs((3, 0)), {"edge_weight": torch.rand(1).double()}),
        "x_add": torch.randn(1, 4).double(),
        "nodes_del": torch.tensor([4]),
    }
    world.apply(**delta)
    ids, rows = delta["x_changes"]
    index, values = delta["edge_changes"]
    given = {key: how(v) if torch.is_tensor(v) else v for key, v in delta.items()}
    given["x_changes"] = (how(ids), how(rows))
    given["edge_changes"] = (how(index), {"edge_weight": how(values["edge_weight"])})
    given = GraphDelta(**given)
    inc.apply_delta(given.coalesce() if coalesce else given)
    assert_close(inc.out, full(model, world))
    assert torch.equal(inc.graph.to_edge_index(), world.edge_index())


@pytest.mark.parametrize("make_array", [np.asarray, np.ndarray.tolist], ids=["array", "list"])
@pytest.mark.parametrize("coalesce", [False, True], ids=["plain", "coalesced"])
@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
def test_lists_and_arrays_take_the_dtype_of_the_model(undirected, coalesce, make_array):
    """Python knows no float32, and whole numbers without a point are integers."""
    inc, model, world = make(weight=True, dtype=torch.float32)
    number = make_array(np.array([2, 3, 4]))
    rows = make_array(np.array([[0.1, 2, 3, 4], [5, 6, 7, 8]]))
    given = GraphDelta(
        edge_index_add=[[0, 2, 3], [2, 4, 3]],
        edge_weight_add=number,
        edge_changes=([[3, 0, 3], [0, 2, 3]], {"edge_weight": number}),
        x_changes=([1, 1], rows),
        x_add=rows,
        undirected=undirected,
        missing="ignore",
    )
    inc.apply_delta(given.coalesce() if coalesce else given)
    weight = torch.tensor([2.0, 3.0, 4.0])
    world.apply(
        edge_index_add=pairs((0, 2), (2, 4), (3, 3)),
        edge_weight_add=weight,
        edge_changes=(pairs((3, 0), (0, 2), (3, 3)), {"edge_weight": weight}),
        x_changes=(torch.tensor([1, 1]), torch.as_tensor(rows).float()),
        x_add=torch.as_tensor(rows).float(),
        undirected=undirected,
        missing="ignore",
    )
    assert torch.equal(inc.x, world.x)
    assert torch.equal(inc.edge_data("edge_weight"), world.edge_data("edge_weight"))
    assert_close(inc.out, full(model, world))


def test_an_undirected_delta_of_lists_has_an_inverse():
    inc, _, _ = make(weight=True, dtype=torch.float32)
    before = inc.out.clone()
    delta = GraphDelta(
        edge_index_add=[[0], [4]],
        edge_weight_add=[2],
        edge_changes=([[3], [0]], {"edge_weight": [0.1]}),
        x_changes=([2], [[1, 2, 3, 4]]),
        undirected=True,
        missing="ignore",
    )
    inverse = delta.inverse(inc)
    inc.apply_delta(delta)
    assert (inc.out != before).any()
    inc.apply_delta(inverse)
    assert_close(inc.out, before)


def test_the_delta_is_not_kept_by_reference():
    inc, model, world = make()
    ids, rows = torch.tensor([1]), torch.randn(1, 4).double()
    inc.apply_delta(x_changes=(ids, rows))
    world.apply(x_changes=(ids, rows))
    rows.fill_(7)
    ids.fill_(3)
    inc.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


def test_the_first_inputs_are_not_kept_by_reference():
    torch.manual_seed(0)
    model = GCN(4, 6, 2, 3).double().eval()
    world = World(torch.randn(5, 4).double(), EDGES)
    inputs = world.inputs()
    inc = to_incremental(model)
    inc(**inputs)
    inputs["x"].fill_(9)
    inputs["edge_index"].fill_(0)
    inc.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))


def test_what_the_user_gets_is_a_copy():
    inc, model, world = make()
    inputs = world.inputs()
    out = inc(**inputs)
    out.fill_(9)
    assert_close(inc.out, full(model, world))
    update = inc.apply_delta(edge_index_add=ADD)
    update.out.fill_(9)
    world.apply(edge_index_add=ADD)
    assert_close(inc.out, full(model, world))
    assert not inc.out.requires_grad
    (out.requires_grad_() * 2).sum().backward()  # an inference tensor would refuse


# Files ############################################################################################


def test_file_of_another_model(tmp_path):
    inc, _, _ = make()
    inc.save(tmp_path / "state")
    with pytest.raises(IncrementalError):
        load(tmp_path / "state", GCN(4, 7, 2, 3).double().eval())
    with pytest.raises(IncrementalError):
        load(tmp_path / "state", GCNConv(4, 3).double().eval())


def test_file_of_other_parameters(tmp_path):
    inc, _model, _ = make()
    inc.save(tmp_path / "state")
    torch.manual_seed(1)
    other = GCN(4, 6, 2, 3).double().eval()
    with pytest.raises(IncrementalError):
        load(tmp_path / "state", other)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_file_cut_off(tmp_path, part):
    inc, model, _ = make(weight=True)
    path = tmp_path / "state"
    inc.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(IncrementalError):
        load(path, model)


def test_file_with_a_flipped_byte(tmp_path):
    """Damage anywhere is refused, or does no harm (a byte of padding)."""
    inc, model, _world = make(weight=True)
    path = tmp_path / "state"
    inc.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.choice(len(content), 60, replace=False):
        broken = bytearray(content)
        broken[at] ^= 0x55
        path.write_bytes(bytes(broken))
        try:
            again = load(path, model)
        except IncrementalError:
            continue
        assert_close(again.out, inc.out, tolerance=1e-14)
        assert torch.equal(again.graph.to_edge_index(), inc.graph.to_edge_index())


def test_file_that_is_a_pickle_is_not_executed(tmp_path):
    hit = tmp_path / "hit"

    class Evil:
        def __reduce__(self):
            return (hit.write_text, ("executed",))

    _, model, _ = make()
    path = tmp_path / "state"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(IncrementalError):
        load(path, model)
    torch.save({"x": Evil()}, path)
    with pytest.raises(IncrementalError):
        load(path, model)
    assert not hit.exists()


def test_file_missing(tmp_path):
    _, model, _ = make()
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing", model)
    with pytest.raises(StaleStateError):
        to_incremental(model).save(tmp_path / "state")


def test_save_and_load_go_on(tmp_path):
    inc, model, world = make(attr=True)
    delta = {"edge_index_add": ADD, "edge_attr_add": torch.ones(1, 3).double(), "x_add": X1}
    inc.apply_delta(**delta)
    world.apply(**delta)
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    assert again.version == inc.version
    assert_close(again.out, inc.out, tolerance=1e-14)
    delta = {"edge_index_del": pairs((0, 1)), "nodes_del": torch.tensor([2])}
    one, two = inc.apply_delta(**delta), again.apply_delta(**delta)
    world.apply(**delta)
    assert_close(again.out, inc.out, tolerance=1e-14)
    assert torch.equal(one.changed, two.changed)
    assert_close(again.out, full(model, world))

"""What few models do: ids out of range, complex rows, TorchScript, embeddings with a norm."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, RGCNConv

from pyg_incremental import UnsupportedModelError, evaluate, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.strategies import DELTAS, KINDS, generator, index, make_world
from tests.zoo import CHANNELS

quiet = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")

BACKENDS = ("compiled", "reference")


# Refusals #########################################################################################


class Embedded(nn.Module):
    """Ids instead of features."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, CHANNELS)
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        return self.conv(self.embedding(x.view(-1)), edge_index)


def same_after_a_refusal(model, inc, world, bad, error=(IndexError, RuntimeError), refresh=True):
    """A delta is refused; nothing was changed; the next one works."""
    version, out, edges = inc.version, inc.out.clone(), inc.graph.to_edge_index()
    with pytest.raises(error):
        inc.apply_delta(**bad)
    assert inc.stale is None
    assert inc.version == version
    assert torch.equal(inc.graph.to_edge_index(), edges)
    assert torch.equal(inc.x, world.x)
    assert_close(inc.out, out)
    if refresh:
        inc.refresh()
        assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("many", [False, True])
def test_an_id_that_an_embedding_does_not_have_is_refused(backend, many, seed):
    torch.manual_seed(seed)
    model, rng = Embedded().double().eval(), generator(seed)
    world = World(torch.randint(0, 7, (9, 1)), [(0, 1), (1, 2), (3, 2), (4, 4)])
    inc = to_incremental(model, backend=backend)
    inc(**world.inputs())
    assert inc.mode == "incremental"
    ids = [2, 4] if many else [4]
    bad = {"x_changes": (ids, torch.tensor([[3], [7]][-len(ids) :]))}
    for also in ({}, {"edge_index_add": index([(5, 6)])}, {"edge_index_del": index([(1, 2)])},
                 {"x_add": torch.tensor([[1]])}):  # fmt: skip
        same_after_a_refusal(model, inc, world, {**bad, **also})
        good = {"x_changes": ([2], torch.tensor([[int(rng.integers(7))]])), **also}
        world.apply(**good)
        inc.apply_delta(**good)
        assert_close(inc.out, full(model, world))


class LateIds(nn.Module):
    """Ids are read off the features behind all that compiled code takes."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)
        self.embedding = nn.Embedding(40, 4)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + self.embedding(x[:, 0].long())


def test_an_update_in_one_look_is_refused(seed):
    torch.manual_seed(seed)
    model, rng = LateIds().double().eval(), generator(seed)
    world = make_world(rng)
    world.x[:, 0] = torch.arange(len(world.x)) % 7
    inc = to_incremental(model, compile_after=1)
    inc(**world.inputs())
    assert inc.mode == "incremental"

    def row(number):
        return torch.cat([torch.tensor([[number]]), torch.randn(1, CHANNELS - 1)], 1).double()

    for step in range(4):
        for node in (step, step + 1):  # the second one finds compiled code
            changed = torch.tensor([node]), row(3.0)
            good = {"x_changes": changed, "edge_index_add": index([(step, 2)])}
            world.apply(**good)
            update = inc.apply_delta(**good)
            assert_close(inc.out, full(model, world))
        assert any(stat.way for stat in update.stats.steps)
        bad = {"x_changes": (torch.tensor([step + 2]), row(50.0))}
        if step % 2:
            gone = index(world.pairs()[step : step + 1])
            bad |= {"edge_index_del": gone, "edge_index_add": index([(step, 5)])}
        same_after_a_refusal(model, inc, world, bad, refresh=False)


@quiet
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, {"num_bases": 2}, {"aggr": "max"}])
@pytest.mark.parametrize("bad", [KINDS, -1])
def test_an_edge_type_that_there_is_not_is_refused(options, bad, backend, seed):
    torch.manual_seed(seed)
    model, rng = RGCNConv(CHANNELS, 4, KINDS, **options).double().eval(), generator(seed)
    world = make_world(rng, data=(("edge_type", "type"),))
    inc = to_incremental(model, backend=backend)
    inc(**world.inputs())
    kind = torch.tensor([bad])
    deltas = [
        {"edge_index_add": index([(0, 3)]), "edge_data_add": {"edge_type": kind}},
        {"edge_changes": (index(world.pairs()[:1]), {"edge_type": kind})},
    ]
    for delta in deltas:
        after = world.copy()
        after.apply(**delta)
        try:
            wanted = full(model, after)
        except (IndexError, RuntimeError):
            same_after_a_refusal(model, inc, world, delta, Exception)
        else:  # PyG leaves such edges out
            inc.apply_delta(**delta)
            world = after
            assert_close(inc.out, wanted)
        good = DELTAS["mixed"](world, rng)
        world.apply(**good)
        inc.apply_delta(**good)
        assert_close(inc.out, full(model, world))


# Unusual models ###################################################################################


class ComplexRows(nn.Module):
    """Rotates features in the complex plane."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        turned = torch.polar(x.abs() + 1, x)
        h = self.conv(torch.view_as_real(turned).sum(-1), edge_index)
        return torch.complex(h, h.tanh())


@quiet
@pytest.mark.parametrize("backend", BACKENDS)
def test_complex_rows(backend, seed):
    torch.manual_seed(seed)
    model, rng = ComplexRows().double().eval(), generator(seed)
    world = make_world(rng)
    inc = to_incremental(model, backend=backend)
    assert_equal_complex(inc(**world.inputs()), full(model, world))
    for name in ("mixed", "change_features", "new_nodes_with_edges", "mixed"):
        before, delta = inc.out.clone(), DELTAS[name](world, rng)
        world.apply(**delta)
        update = inc.apply_delta(**delta)
        assert_equal_complex(inc.out, full(model, world))
        differ = torch.ones(len(inc.out), dtype=torch.bool)
        differ[: len(before)] = (inc.out[: len(before)] != before).any(1)
        assert update.changed.tolist() == differ.nonzero().view(-1).tolist()
        assert inc.verify() < 1e-9


def assert_equal_complex(got, want):
    assert got.dtype == want.dtype
    if want.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    assert_close(got, want)


class Scriptable(nn.Module):
    """A model that TorchScript takes: a sum over neighbours, written by hand."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x).relu()
        return torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])


class ScriptedInside(Scriptable):
    """A model of which a part is scripted."""

    def __init__(self):
        super().__init__()
        self.lin = torch.jit.script(nn.Linear(CHANNELS, 4))
        self.conv = GCNConv(4, 4)

    def forward(self, x, edge_index):
        return self.conv(self.lin(x).relu(), edge_index)


@quiet
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("inside", [False, True])
def test_a_scripted_model(inside, seed):
    torch.manual_seed(seed)
    model, rng = (ScriptedInside() if inside else Scriptable()).double().eval(), generator(seed)
    model = model if inside else torch.jit.script(model)
    world = make_world(rng)
    inc = to_incremental(model)
    assert_close(inc(**world.inputs()), full(model, world))
    for name in ("mixed", "change_features", "add_edges", "mixed"):
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(model, world))
        assert inc.verify() < 1e-9
    with torch.no_grad():
        model.lin.weight.mul_(2)
    assert inc.stale
    inc.refresh()
    assert_close(inc.out, full(model, world))


def traced(model, inputs):
    return torch.jit.trace(model, inputs)


def frozen(model, _):
    return torch.jit.freeze(torch.jit.script(model))


def loaded(model, _):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    return torch.jit.load(file)


class Around(nn.Module):
    """A model of which a part is frozen."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        return self.inner(x, edge_index)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("made", [traced, frozen, loaded, lambda *given: Around(frozen(*given))])
def test_torchscript_of_which_nothing_is_left_is_refused(made):
    inputs = torch.randn(9, CHANNELS), torch.randint(9, (2, 30))
    model = made(Scriptable().eval(), inputs)
    for call in (
        lambda: to_incremental(model),
        lambda: evaluate(model, dict(zip(("x", "edge_index"), inputs, strict=True))),
        lambda: DistributedIncrementalModel(model),
    ):
        with pytest.raises(UnsupportedModelError, match=r"TorchScript.*pass the eager module"):
            call()


class MaxNorm(nn.Module):
    """An embedding that shortens its rows when they are looked up."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, CHANNELS, max_norm=0.5)
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        return self.conv(self.embedding(x.view(-1)), edge_index)


@quiet
def test_an_embedding_with_a_norm(seed):
    torch.manual_seed(seed)
    model = MaxNorm().double().eval()
    before = model.embedding.weight.detach().clone()
    world = World(torch.randint(0, 4, (9, 1)), [(0, 1), (1, 2), (3, 2), (4, 4)])
    inc = to_incremental(model)
    inc(**world.inputs())
    for delta in (
        {"x_changes": ([2, 3], torch.tensor([[6], [5]]))},
        {"edge_index_add": index([(2, 8), (3, 7)])},
        {"x_add": torch.tensor([[4]]), "edge_index_add": index([(9, 0)])},
    ):
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert inc.stale is None
        assert_close(inc.out, full(copy.deepcopy(model), world))
        assert inc.verify() < 1e-9
    assert torch.equal(model.embedding.weight, before)

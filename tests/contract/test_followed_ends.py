"""What goes into a model and what comes out of it: structure, order, refusals, far numbers."""

import copy
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from pyg_incremental import IncrementalWarning, to_incremental
from tests.closeness import assert_close
from tests.followed import Followed
from tests.oracle import World, full
from tests.strategies import DELTAS, generator, make_world
from tests.zoo import CHANNELS

quiet = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")

BACKENDS = ("compiled", "reference")


# One row per edge #################################################################################


class EdgeScores(nn.Module):
    """Scores every edge."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 6)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h[edge_index[0]] * h[edge_index[1]]).sum(-1)


class EdgeAndNodeRows(EdgeScores):
    """Rows of nodes, and what becomes of the edge rows."""

    def forward(self, x, edge_index, edge_weight):
        h = self.conv(x, edge_index, edge_weight)
        score = (h[edge_index[0]] * h[edge_index[1]]).sum(-1)
        return h, torch.sigmoid(score * edge_weight)


class FirstEdges(EdgeScores):
    """The order counts, though no row of the output is that of an edge."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h + h[edge_index[0, -5:]].mean(0)


SORTED = [(EdgeScores, ()), (EdgeAndNodeRows, (("edge_weight", None),)), (FirstEdges, ())]


@quiet
@pytest.mark.parametrize(("make", "data"), SORTED)
def test_edges_that_came_sorted_keep_their_order(make, data, seed):
    world = make_world(generator(seed), nodes=20, edges=50, data=data)
    world.edges.sort(key=lambda edge: edge["pair"][1])
    Followed(make, world=world, data=data, seed=seed).walk()


# Structure ########################################################################################


class Named(NamedTuple):
    """Two outputs by name."""

    rows: Tensor
    total: Tensor


class ReturnsNamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return Named(h, h.relu())


class ReturnsNamedInside(ReturnsNamed):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return {"both": Named(h, h.relu()), "one": [h.tanh()]}


@pytest.mark.parametrize("make", [ReturnsNamed, ReturnsNamedInside])
def test_a_named_tuple_is_returned(make, seed):
    torch.manual_seed(seed)
    model, rng = make().double().eval(), generator(seed)
    world = make_world(rng)
    inc = to_incremental(model)
    inc(**world.inputs())
    assert inc.mode == "incremental"
    for name in ("mixed", "change_features", "mixed"):
        before, delta = copy.deepcopy(inc.out), DELTAS[name](world, rng)
        world.apply(**delta)
        update = inc.apply_delta(**delta)
        wanted = full(model, world)
        assert_close(leaves(inc.out), leaves(wanted))
        for answer in (inc.out, update.out, update.changed):
            named = answer["both"] if isinstance(answer, dict) else answer
            assert type(named) is Named
        for old, new, ids, rows in zip(
            *map(leaves, (before, inc.out, update.changed, update.out)), strict=True
        ):
            differ = torch.ones(len(new), dtype=torch.bool)
            differ[: len(old)] = (new[: len(old)] != old).any(1)
            assert ids.tolist() == differ.nonzero().view(-1).tolist() != []
            assert torch.equal(rows, new[ids])


def leaves(output):
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if isinstance(output, dict) else output
    return [leaf for part in parts for leaf in leaves(part)]


class ReturnsNone(ReturnsNamed):
    """Returns nothing in the place of attention weights."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index), None


class ReturnsNoneInside(ReturnsNamed):
    def forward(self, x, edge_index):
        return {"rows": self.conv(x, edge_index), "others": [None, None]}


class ReturnsNoneWhole(ReturnsNamed):
    """The same in a model that runs full passes."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (x if h.sum() > 1e9 else h), None


@quiet
@pytest.mark.parametrize("make", [ReturnsNone, ReturnsNoneInside, ReturnsNoneWhole])
def test_none_stays_where_it_was(make, seed):
    torch.manual_seed(seed)
    model, rng = make().double().eval(), generator(seed)
    world = make_world(rng)
    inc = to_incremental(model)
    first = inc(**world.inputs())
    assert_same_places(first, full(model, world))
    for name in ("mixed", "change_features", "mixed"):
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        update = inc.apply_delta(**delta)
        assert_same_places(inc.out, full(model, world))
        assert type(update.changed) is type(update.out) is type(first)
        assert inc.verify() < 1e-9


def assert_same_places(got, want):
    assert type(got) is type(want)
    if isinstance(want, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(want, (tuple, list)):
        for g, w in zip(got, want, strict=True):
            assert_same_places(g, w)
    elif want is not None:
        assert_close(got, want)


# Zero #############################################################################################


class Positive(ReturnsNamed):
    """Rows of another dtype than any input: the check of the first call takes them, too."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) > 0


def test_rows_that_are_true_or_false_stay_incremental(seed):
    run = Followed(Positive, seed=seed)
    assert run.inc.mode == "incremental"
    run.walk()


class Squeezed(ReturnsNamed):
    """A scalar on a graph of one node, and rows on any other."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)[:, :1].squeeze()


@quiet
def test_an_output_that_becomes_rows_names_all_of_them(seed):
    one = World(torch.randn(1, CHANNELS, dtype=torch.float64), [(0, 0)], {})
    run = Followed(Squeezed, world=one, seed=seed)
    assert run.inc.out.dim() == 0
    up = run.inc.apply_delta(x_add=torch.randn(2, CHANNELS, dtype=torch.float64))
    assert up.changed.tolist() == [0, 1, 2]
    assert run.inc.out.shape == (3,)
    assert run.inc.verify() < 1e-12


class AsksForRows(ReturnsNamed):
    """A guard that no delta of these tests would trip; but one could."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h * 2 if len(h) > 3 else h


def test_a_branch_on_a_number_of_rows_is_named_in_plain_words(seed):
    with pytest.warns(IncrementalWarning, match=r"depends on a number of rows.*ends\.py:\d+"):
        Followed(AsksForRows, seed=seed)


class SignOfZero(nn.Module):
    """The same rows twice; zero may come with either sign."""

    def forward(self, x, edge_index):
        h = F.relu6(x) * torch.sign(x - 1)
        return h, h


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_zero_that_changes_its_sign_is_no_change(backend):
    inc = to_incremental(SignOfZero().double().eval(), backend=backend)
    inc(torch.tensor([[0.0], [2.0], [0.0]]).double(), torch.tensor([[1], [2]]))
    assert inc.mode == "incremental"
    update = inc.apply_delta(x_changes=([0, 2], torch.tensor([[-0.0], [3.0]]).double()))
    for ids in leaves(update.changed):
        assert ids.tolist() == [2]
    update = inc.apply_delta(x_changes=([0], torch.tensor([[0.0]]).double()))
    for ids in leaves(update.changed):
        assert ids.tolist() == []


# Far numbers ######################################################################################


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed_of_model", range(8))
def test_a_far_row_that_sees_only_itself_is_finite(seed_of_model, backend):
    """The weight of the only edge is 1, however large its logit is."""
    torch.manual_seed(seed_of_model)
    conv = GATConv(3, 4, heads=2).float().eval()
    x = torch.randn(6, 3)
    x[5] = torch.randn(3) * 1e12
    world = World(x, [(0, 1), (1, 2), (2, 3), (5, 0)])
    inc = to_incremental(conv, backend=backend)
    assert_close(inc(**world.inputs()), full(conv, world))
    for factor in (1.7e12, -3.1e12, 1.0, 2.3e12):
        delta = {"x_changes": ([4, 5], torch.randn(2, 3) * factor)}
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out[4:], full(conv, world)[4:], 1e-5)

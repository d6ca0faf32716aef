"""Sizes that a model asks for or makes rows of, and what holds only while they are large enough."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MaskLabel
from torch_geometric.utils import add_self_loops

from pyg_incremental import IncrementalWarning, UnsupportedModelError, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.closeness import assert_close
from tests.followed import Followed
from tests.strategies import DELTAS
from tests.zoo import CHANNELS

WIDTH = 4


class Sized(nn.Module):
    """A conv, and what a subclass does behind it."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = GCNConv(CHANNELS, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index):
        return self.behind(self.conv(x, edge_index), x, edge_index)


class OneColumn(Sized):
    def behind(self, h, x, edge_index):
        return h * self.lin(h).squeeze().sigmoid().unsqueeze(1)


class FirstState(Sized):
    """A state of zeros, as recurrent cells begin."""

    def behind(self, h, x, edge_index):
        state = torch.zeros(x.size(0), WIDTH, dtype=x.dtype)
        return torch.cat([h + state, x.new_full((len(x), 2), 0.5) * h[:, :2]], 1)


class AsManyAsNodes(Sized):
    """Rows of a number that grows with the graph are no constant rows."""

    def behind(self, h, x, edge_index):
        return h + torch.full((x.size(0), 1), x.size(0), dtype=x.dtype)


class Watched(Sized):
    """A hook that changes what a layer returns."""

    def __init__(self):
        super().__init__()
        self.lin.register_forward_hook(lambda module, given, out: out.clamp(-0.5, 0.5))

    def behind(self, h, x, edge_index):
        return self.lin(h)


class Distances(Sized):
    """Pairs scored with a row of parameters, as DistMult does."""

    def __init__(self):
        super().__init__()
        self.rel = nn.Parameter(torch.randn(3, WIDTH))

    def behind(self, h, x, edge_index):
        return (h[edge_index[0]] * self.rel[1] * h[edge_index[1]]).sum(-1)


class LoopsThatLeave(Sized):
    """Rows of edges and of self-loops, of which something is read that no node has a row of."""

    def behind(self, h, x, edge_index):
        row, col = add_self_loops(edge_index, num_nodes=x.size(0))[0]
        score = (h[row] * h[col]).sum(-1)
        return h * score.max(), score


class CellBesideAll(Sized):
    """A module of two arguments, of which only one has a row for each node that is known of."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(CHANNELS, WIDTH)

    def behind(self, h, x, edge_index):
        return self.cell(torch.cat([x[:5].relu(), x[5:].tanh()]), h)


class WithoutEdges(Sized):
    def behind(self, h, x, edge_index):
        if edge_index.numel() == 0:
            return h.new_zeros(len(x), WIDTH)
        return h.relu()


class Masked(Sized):
    """UniMP's labels as inputs."""

    def __init__(self):
        super().__init__()
        self.mask = MaskLabel(3, CHANNELS)

    def forward(self, x, edge_index):
        y = (x[:, 0] > 0).long()
        return self.conv(self.mask(x, y, x[:, 1] > 0), edge_index)


@pytest.mark.parametrize("options", [{}, {"backend": "reference"}], ids=str)
@pytest.mark.parametrize("make", [OneColumn, FirstState, Watched, Distances, WithoutEdges, Masked])
def test_what_sizes_say_is_followed(make, options, seed):
    run = Followed(make, seed=seed, **options)
    assert run.inc.mode == "incremental", run.inc
    run.walk()


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("make", [AsManyAsNodes, LoopsThatLeave, CellBesideAll])
def test_what_is_read_of_all_rows_is_right(make, seed):
    run = Followed(make, seed=seed)
    assert run.inc.mode == "mixed"
    for name in ("mixed", "change_features", "add_edges", "new_nodes_with_edges", "remove_nodes"):
        delta = DELTAS[name](run.world, run.rng)
        run.world.apply(**delta)
        run.inc.apply_delta(**delta)
        run.check_all()


def test_a_single_row_that_changes_stays_a_row(seed):
    run = Followed(OneColumn, seed=seed)
    new = torch.ones(1, CHANNELS, dtype=torch.float64)
    run.step({"x_add": new})
    run.step({"x_changes": (torch.tensor([len(run.world.x) - 1]), 3 * new)})
    run.check_all()


def test_a_graph_of_one_node_is_not_squeezed_as_one_of_more(seed):
    torch.manual_seed(seed)
    model = OneColumn().double().eval()
    x, edges = torch.randn(1, CHANNELS, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long)
    with pytest.raises(IndexError):  # PyTorch squeezes the only row away
        model(x, edges)
    with pytest.raises(IndexError):
        to_incremental(model)(x, edges)


def test_parameters_beside_gathered_rows_are_read_anew(seed):
    run = Followed(Distances, seed=seed)
    model = run.inc.model
    with torch.no_grad():
        model.rel.mul_(2)
    run.inc.refresh()
    inputs = run.world.inputs()
    assert_close(run.inc.out, model(inputs["x"], inputs["edge_index"]))


def test_when_the_last_edge_leaves_the_model_itself_answers(seed):
    torch.manual_seed(seed)
    model = WithoutEdges().double().eval()
    x = torch.randn(5, CHANNELS, dtype=torch.float64)
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    inc = to_incremental(model)
    inc(x, edges)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_del=edges[:, :1])
    assert inc.mode == "incremental"
    assert_close(inc.out, model(x, edges[:, 1:]))
    before = inc.out.clone()
    with pytest.warns(IncrementalWarning, match="'edge_index' has 0 edges left"):
        up = inc.apply_delta(edge_index_del=edges[:, 1:])
    assert_close(inc.out, torch.zeros(5, WIDTH).double())
    assert up.changed.tolist() == before.any(1).nonzero().view(-1).tolist()  # no row but these
    inc.apply_delta(edge_index_add=edges)
    assert_close(inc.out, model(x, edges))


def test_ranks_refuse_a_model_that_asks_for_edges(seed):
    inputs = Followed(WithoutEdges, seed=seed).world.inputs()
    model = WithoutEdges().double().eval()
    with pytest.raises(
        UnsupportedModelError, match="does something else on graphs with fewer than 2 edges"
    ):
        DistributedIncrementalModel(model)(inputs["x"], inputs["edge_index"])

"""A softmax over in-edges, read off `forward`, is one step; what only looks like it is not."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, MessagePassing, NNConv, TransformerConv
from torch_geometric.typing import Adj, OptTensor
from torch_geometric.utils import scatter, softmax

from pyg_incremental import to_incremental
from pyg_incremental.engine.storing import steps_and_stored
from tests.closeness import assert_close
from tests.followed import Followed
from tests.oracle import World, full
from tests.strategies import index
from tests.zoo import ATTR, CHANNELS

HEADS, WIDE = 2, 3


class Attention(nn.Module):
    """Keys and values at the sources, queries at the targets."""

    def __init__(self):
        super().__init__()
        self.key, self.query = (nn.Linear(CHANNELS, HEADS * WIDE) for _ in range(2))
        self.value = nn.Linear(CHANNELS, HEADS * WIDE)

    def forward(self, x, edge_index):
        src, dst = edge_index
        key, query, value = (
            layer(x).view(-1, HEADS, WIDE) for layer in (self.key, self.query, self.value)
        )
        logits = (key[src] * query[dst]).sum(-1)
        return self.added(logits, value[src], src, dst, x.size(0))


class OfPyG(Attention):
    def added(self, logits, values, src, dst, n):
        weights = softmax(logits, dst, num_nodes=n)
        return scatter(weights.unsqueeze(-1) * values, dst, 0, n, "sum").flatten(1)


class Written(Attention):
    """Without anything added to the sum, and the weights behind the values, each of them flat."""

    def added(self, logits, values, src, dst, n):
        top = scatter(logits, dst, 0, n, "max")
        parts = (logits - top[dst]).exp()
        weights = parts / scatter(parts, dst, 0, n, "sum").index_select(0, dst)
        messages = (values * weights.view(-1, HEADS, 1)).reshape(-1, HEADS * WIDE) / 2
        return scatter(messages, dst, 0, n, "sum")


class ReadTwice(OfPyG):
    """The weights go into another sum, too, by which they cannot be taken apart."""

    def added(self, logits, values, src, dst, n):
        weights = softmax(logits, dst, num_nodes=n)
        rows = scatter(weights.unsqueeze(-1) * values, dst, 0, n, "sum").flatten(1)
        return torch.cat([rows, scatter(weights.sqrt(), dst, 0, n, "sum")], 1)


class Squared(Attention):
    def added(self, logits, values, src, dst, n):
        weights = softmax(logits, dst, num_nodes=n).unsqueeze(-1)
        return scatter(weights * (weights * values), dst, 0, n, "sum").flatten(1)


class OfSources(Attention):
    """Each source shares out what it has; the sum is over the targets."""

    def added(self, logits, values, src, dst, n):
        weights = softmax(logits, src, num_nodes=n).unsqueeze(-1)
        return scatter(weights * values, dst, 0, n, "sum").flatten(1)


class AcrossHeads(Attention):
    """Columns of the values stand in another order than the heads."""

    def added(self, logits, values, src, dst, n):
        weights = softmax(logits, dst, num_nodes=n).unsqueeze(1)
        return scatter(weights * values.transpose(1, 2), dst, 0, n, "sum").flatten(1)


class Larger(Attention):
    """What is added to the sum is to be seen."""

    def added(self, logits, values, src, dst, n):
        parts = (logits - scatter(logits, dst, 0, n, "max")[dst]).exp()
        weights = parts / (scatter(parts, dst, 0, n, "sum") + 0.1)[dst]
        return scatter(weights.unsqueeze(-1) * values, dst, 0, n, "sum").flatten(1)


class Shifted(Attention):
    """The rows are shifted by the smallest logit, so that the others may be too large."""

    def added(self, logits, values, src, dst, n):
        parts = (logits - scatter(logits, dst, 0, n, "min")[dst]).exp()
        weights = parts / scatter(parts, dst, 0, n, "sum")[dst]
        return scatter(weights.unsqueeze(-1) * values, dst, 0, n, "sum").flatten(1)


ONE_STEP = [OfPyG, Written, ReadTwice]
NO_STEP = [Squared, OfSources, AcrossHeads, Larger, Shifted]


def kinds(program):
    return [step.kind for step in program.steps]


@pytest.mark.parametrize("make", ONE_STEP)
def test_a_softmax_is_one_step(make, seed):
    model = Followed(make(), seed=seed)
    found = kinds(model.inc.program)
    assert found.count("softmax") == 1
    # What is read beside the sum is made step by step.
    assert ("max" in found) == (make is ReadTwice)
    model.walk()


@pytest.mark.parametrize("make", NO_STEP)
def test_what_only_looks_like_one_is_exact_step_by_step(make, seed):
    model = Followed(make(), seed=seed)
    assert "softmax" not in kinds(model.inc.program)
    assert model.inc.mode == "incremental"
    model.walk()


class WithPointer(MessagePassing):
    """Over runs of sorted edges, where PyG has generated what hands these on."""

    def forward(self, x: Tensor, adj_t: Adj) -> Tensor:
        # propagate_type: (x: Tensor)
        return self.propagate(adj_t, x=x)

    def message(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: int) -> Tensor:
        return softmax(x_j[:, :1], index, ptr, size_i) * x_j[:, 1:]


class Collected(MessagePassing):
    """PyG generates nothing for a class with a `propagate` of its own."""

    forward, message = WithPointer.forward, WithPointer.message

    def propagate(self, edge_index, size=None, **kwargs):
        return super().propagate(edge_index, size, **kwargs)


class WithoutPointer(WithPointer):
    def message(self, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        return softmax(x_j[:, :1], index, num_nodes=size_i) * x_j[:, 1:]


@pytest.mark.parametrize("make", [WithPointer, Collected, WithoutPointer])
@pytest.mark.parametrize("fmt", ["coo", "csr"])
def test_a_row_of_nothing_but_minus_infinity_is_what_pyg_makes_of_it(make, fmt):
    """Over runs of sorted edges its weights are zero, and else NaN."""
    conv = make().double().eval()
    x = torch.tensor([[1.0, 2.0], [0.5, 1.0], [2.0, 3.0]]).double()
    data = {"edge_weight": torch.ones(2).double()} if fmt == "csr" else {}
    world = World(x, [(0, 2), (1, 2)], data, fmt=fmt)
    graph = world.inputs()["edge_index"]
    inc = to_incremental(conv)
    inc(world.x, graph)
    assert kinds(inc.program).count("softmax") == 1
    for first in (-torch.inf, 1.0):
        rows = torch.tensor([[first, 2.0], [first, 1.0]]).double()
        world.apply(x_changes=([0, 1], rows))
        inc.apply_delta(x_changes=([0, 1], rows))
        want = conv(world.x, graph)
        assert_close(inc.out, want)
        assert bool(want[2].isnan()) == (
            first == -torch.inf and not (make is WithPointer and fmt == "csr")
        )


def test_the_largest_edge_comes_and_goes(seed):
    """Logits far from each other, and rows that lose all of their edges."""
    conv = OfPyG().double().eval()
    x = torch.randn(6, CHANNELS, generator=torch.Generator().manual_seed(seed)).double()
    world = World(x, [(0, 1), (2, 1), (3, 4)])
    inc = to_incremental(conv)
    inc(**world.inputs())
    for delta in (
        {"x_changes": ([0], 300 * x[:1])},
        {"edge_index_del": index([(0, 1)])},
        {"x_changes": ([0], -300 * x[:1]), "edge_index_add": index([(0, 1), (0, 4), (5, 5)])},
        {"edge_index_del": index([(2, 1), (3, 4)])},
        {"edge_index_del": index([(0, 1), (0, 4), (5, 5)])},
        {"edge_index_add": index([(0, 1)])},
    ):
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(conv, world))


# What is stored ###################################################################################


def stored(model):
    """The node rows and the edge rows that are kept beside what is handed in."""
    program = Followed(model, data=ATTR).inc.program
    kept = {v for v in steps_and_stored(program)[1] if v not in program.inputs.values()}
    return [sorted(v.name for v in kept if v.domain.value == of) for of in ("node", "edge")]


def test_a_chain_of_maps_is_stored_where_it_ends():
    nn_of_it = nn.Sequential(nn.Linear(CHANNELS, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    conv = GINEConv(nn_of_it, edge_dim=3)
    nodes, edges = stored(conv)
    assert len(nodes) == 2, nodes  # the sum and what leaves
    assert len(edges) == 1, edges


def test_rows_of_edges_are_stored_once():
    """NNConv looks at what its network made as at matrices."""
    nodes, edges = stored(NNConv(CHANNELS, 4, nn.Linear(3, CHANNELS * 4)))
    assert len(nodes) == 3, nodes  # the sum, the root and what leaves
    assert len(edges) == 1, edges


def test_linear_layers_behind_which_rows_are_packed_are_not_stored():
    nodes, edges = stored(Attended())
    # What is sent, the query, the skip, the softmax, what leaves.
    assert (len(nodes), len(edges)) == (5, 0)


class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = TransformerConv(CHANNELS, 4, heads=2)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index)

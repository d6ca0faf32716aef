"""Message passing written by hand in `forward`, and outputs with a row for each edge or pair."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import degree, scatter, softmax

from pyg_incremental import (  # fmt: skip
    UnsupportedModelError,
    evaluate,
    load,
    to_incremental,
)
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.closeness import assert_close
from tests.followed import Followed
from tests.strategies import DELTAS, generator, journey, make_world
from tests.zoo import CHANNELS

WIDTH = 4


class ByHand(nn.Module):
    """A conv of PyG, and behind it what a subclass writes."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, WIDTH)
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.two = nn.Linear(2 * WIDTH, 3)

    def forward(self, x, edge_index):
        return self.behind(self.conv(x, edge_index), edge_index, x.size(0))


# Node rows ########################################################################################


class IndexAdd(ByHand):
    def behind(self, h, edge_index, n):
        src, dst = edge_index
        return torch.zeros(n, WIDTH, dtype=h.dtype).index_add(0, dst, self.lin(h)[src])


class ScatterAdd(ByHand):
    def behind(self, h, edge_index, n):
        message = h.index_select(0, edge_index[0]) * 2
        at = edge_index[1].unsqueeze(-1).expand(-1, WIDTH)
        return h + h.new_zeros(n, WIDTH).scatter_add_(0, at, message)


class ByKeywords(ByHand):
    def behind(self, h, edge_index, n):
        src, _ = edge_index.unbind(dim=0)
        dst = edge_index.select(dim=0, index=-1)
        messages = h.index_select(dim=0, index=src)
        return torch.zeros_like(h).index_add(dim=0, index=dst, source=messages)


class AgainstTheEdges(ByHand):
    """Messages from targets, added up at sources."""

    def behind(self, h, edge_index, n):
        return torch.zeros_like(h).index_add_(0, edge_index[0], F.relu(h)[edge_index[1]])


class TurnedAround(ByHand):
    def behind(self, h, edge_index, n):
        src, dst = edge_index.flip(0)
        return scatter(self.lin(h)[src], dst, 0, n, "sum")


class Mean(ByHand):
    def behind(self, h, edge_index, n):
        return scatter(h[edge_index[0]], edge_index[1], 0, n, "mean")


class Largest(ByHand):
    def behind(self, h, edge_index, n):
        src, dst = edge_index[0], edge_index[1]
        ends = torch.cat([h[src], h[dst] - h[src]], 1)
        return scatter(torch.tanh(self.two(ends)), dst, 0, n, "max")


class Smallest(ByHand):
    def behind(self, h, edge_index, n):
        return scatter(h[edge_index[0]], edge_index[1], 0, n, "min")


class Tutorial(ByHand):
    """The normalisation of PyG's tutorial of `GCNConv`, without its self-loops."""

    def behind(self, h, edge_index, n):
        src, dst = edge_index
        deg = degree(dst, n, dtype=h.dtype)
        inverse = (deg + 1).pow(-0.5)
        norm = inverse[src] * inverse[dst]
        return scatter(norm.view(-1, 1) * self.lin(h)[src], dst, 0, n, "sum")


class Attention(ByHand):
    def behind(self, h, edge_index, n):
        src, dst = edge_index
        logit = F.leaky_relu(self.two(torch.cat([h[src], h[dst]], 1)), 0.2)
        weight = softmax(logit, dst, num_nodes=n)
        heads = weight.unsqueeze(-1) * self.lin(h)[src].view(-1, 1, WIDTH)
        return scatter(heads, dst, 0, n, "sum").flatten(1)


class Counts(ByHand):
    """Degrees as numbers without a row, of both ends, whole and not."""

    def behind(self, h, edge_index, n):
        ones = torch.ones(edge_index.size(1), dtype=torch.long)
        out = torch.zeros(n, dtype=torch.long).scatter_add_(0, edge_index[0], ones)
        return h * degree(edge_index[1], n, dtype=h.dtype).view(-1, 1) + out.unsqueeze(1)


class Hops(ByHand):
    """Three hops with one matrix, each from the one before."""

    def behind(self, h, edge_index, n):
        src, dst = edge_index
        for _ in range(3):
            h = torch.tanh(self.lin(scatter(h[src], dst, 0, n, "sum")) / 4) + h
        return h


class Weighted(ByHand):
    """With edge data, of which a part is computed."""

    def forward(self, x, edge_index, edge_attr):
        h, (src, dst) = self.conv(x, edge_index), edge_index
        gate = torch.sigmoid(edge_attr.sum(1, keepdim=True) + h[dst])
        return scatter(gate * h[src], dst, 0, x.size(0), "sum")


ATTR = (("edge_attr", 3),)
ON_NODES = [
    IndexAdd, ScatterAdd, ByKeywords, AgainstTheEdges, TurnedAround, Mean, Largest, Smallest,
    Tutorial, Attention, Counts, Hops, Weighted,
]  # fmt: skip


def data_of(make):
    return ATTR if "edge_attr" in make.forward.__code__.co_varnames else ()


@pytest.mark.parametrize("options", [{}, {"backend": "reference"}, {"store": "minimal"}], ids=str)
@pytest.mark.parametrize("make", ON_NODES)
def test_node_rows(make, options, seed):
    data = data_of(make)
    world = make_world(generator(seed), nodes=20, edges=50, data=data)
    run = Followed(make, world=world, data=data, seed=seed, **options)
    assert run.inc.mode == "incremental", run.inc
    run.walk(journey(run.rng) if options else tuple(DELTAS))


class OfUnknownWidth(ByHand):
    """Added up are rows of which nothing is known but that they fit on the probe."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x, edge_index, edge_attr):
        messages = torch.inner(edge_attr, self.weight)
        return x.new_zeros(x.size(0), 3).index_add_(0, edge_index[1], messages)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_sizes_that_nothing_is_known_of_are_not_compared(seed):
    world = make_world(generator(seed), nodes=20, edges=50, data=ATTR)
    run = Followed(OfUnknownWidth, world=world, data=ATTR, seed=seed)
    assert run.inc.mode == "mixed"
    run.walk(("mixed", "change_edge_data", "new_nodes_with_edges"))


def test_a_plain_sum_by_hand_is_a_plain_sum(seed):
    """So that it has the same kernels and the same fast path as that of a conv."""
    run = Followed(IndexAdd, seed=seed)
    assert "index_add.sum = sum(l" in str(run.inc.program)


# Rows of edges and of pairs #######################################################################


class Classified(ByHand):
    """Edges by what stands at their ends and what they carry."""

    def forward(self, x, edge_index, edge_attr):
        h, (src, dst) = self.conv(x, edge_index), edge_index
        return F.relu(self.two(torch.cat([h[src], h[dst]], 1)) + edge_attr)


class Scored(ByHand):
    """One number for each edge, beside the node rows that it is made of."""

    def behind(self, h, edge_index, n):
        return h, (h[edge_index[0]] * h[edge_index[1]]).sum(-1)


class OfEdgesAlone(ByHand):
    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index), edge_attr.relu()


class Ranked(ByHand):
    """Edge rows that a step on all rows reads, and that also leave."""

    def behind(self, h, edge_index, n):
        score = (h[edge_index[0]] - h[edge_index[1]]).pow(2).sum(1)
        return score, score.sort().values


@pytest.mark.parametrize("options", [{}, {"backend": "reference"}, {"store": "minimal"}], ids=str)
@pytest.mark.parametrize("make", [Classified, Scored, OfEdgesAlone])
def test_edge_rows(make, options, seed):
    data = data_of(make)
    world = make_world(generator(seed), nodes=20, edges=50, data=data)
    run = Followed(make, world=world, data=data, seed=seed, **options)
    assert run.inc.mode == "incremental", run.inc
    run.walk(tuple(DELTAS))
    assert not run.inc.check()


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_what_reads_all_edge_rows_reads_current_ones(seed):
    run = Followed(Ranked, world=make_world(generator(seed), nodes=20, edges=50), seed=seed)
    assert run.inc.mode == "mixed"
    for name in ("change_features", "add_edges", "delete_edges", "mixed", "remove_nodes"):
        delta = DELTAS[name](run.world, run.rng)
        run.world.apply(**delta)
        run.inc.apply_delta(**delta)
        run.check_all()


class Pairs(ByHand):
    """A link predictor: pairs that are watched are no edges of the graph."""

    def forward(self, x, edge_index, edge_label_index):
        h = self.conv(x, edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1)


def test_pairs_come_and_go(seed):
    torch.manual_seed(seed)
    model = Pairs().double().eval()
    x = torch.randn(30, CHANNELS, dtype=torch.float64)
    edges, pairs = torch.randint(30, (2, 90)), torch.randint(30, (2, 25))
    inc = to_incremental(model)
    inc(x, edges, pairs)
    assert inc.mode == "incremental"
    new = torch.tensor([[3, 4], [7, 8]])
    up = inc.apply_delta(edge_index_add={"edge_label_index": new})
    pairs = torch.cat([pairs, new], 1)
    assert up.changed.tolist() == [25, 26]
    assert torch.equal(up.changed_edges, new)
    assert_close(inc.out, model(x, edges, pairs))
    up = inc.apply_delta(edge_index_del={"edge_label_index": pairs[:, :1]})
    last = (pairs == pairs[:, :1]).all(0).nonzero().max()  # the newest of equal pairs leaves
    pairs = torch.cat([pairs[:, :last], pairs[:, last + 1 :]], 1)
    assert up.changed.numel() == 0
    assert_close(inc.out, model(x, edges, pairs))
    edges = torch.cat([edges, new.flip(0)], 1)
    up = inc.apply_delta(edge_index_add={"edge_index": new.flip(0)})
    assert 0 < up.changed.numel() < pairs.size(1)
    assert_close(inc.out, model(x, edges, pairs))


def test_a_changed_node_scores_the_pairs_of_its_reach_and_no_others(seed):
    nodes, watched = 2000, 10_000
    torch.manual_seed(seed)
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    pairs = torch.randint(nodes, (2, watched))
    inc = to_incremental(Pairs().double().eval())
    inc(torch.randn(nodes, CHANNELS, dtype=torch.float64), path, pairs)
    up = inc.apply_delta(x_changes=([700], torch.ones(1, CHANNELS, dtype=torch.float64)))
    near = torch.isin(pairs, torch.tensor([700, 701])).any(0)  # one hop along the path
    assert up.changed.tolist() == near.nonzero().view(-1).tolist()
    (work,) = (s for s in up.stats.steps if s.kind == "edge map")
    assert work.rows == int(near.sum()) < 50


def test_edge_rows_are_saved_and_loaded(seed, tmp_path):
    world = make_world(generator(seed), nodes=20, edges=50)
    run = Followed(Scored, world=world, seed=seed)
    run.walk(("mixed", "change_features", "delete_edges"))
    run.inc.save(tmp_path / "state")
    again = load(tmp_path / "state", run.twin)
    for ours, theirs in zip(again.out, run.inc.out, strict=True):
        assert torch.equal(ours, theirs)


def test_ranks_refuse_edge_rows_and_take_sums_by_hand():
    world = make_world(generator(0), nodes=20, edges=50)
    inputs = world.inputs()
    with pytest.raises(UnsupportedModelError, match="a row for each edge"):
        DistributedIncrementalModel(Scored().double().eval())(inputs["x"], inputs["edge_index"])
    model = Attention().double().eval()
    inc = DistributedIncrementalModel(model)(inputs["x"], inputs["edge_index"])
    assert_close(inc.out, model(inputs["x"], inputs["edge_index"]))


def test_evaluate_takes_sums_and_edge_rows_by_hand(seed):
    inputs = make_world(generator(seed), nodes=20, edges=50).inputs()
    torch.manual_seed(seed)
    model = Tutorial().double().eval()
    assert_close(evaluate(model, inputs), model(**inputs))
    model = Scored().double().eval()
    assert_close(evaluate(model, inputs), model(**inputs))
    with pytest.raises(UnsupportedModelError, match="no row for each node"):
        evaluate(model, inputs, nodes=[3])


class TwoThatAreNotStored(ByHand):
    """Behind maps that the machine knows stands one that it does not, which reads both of them."""

    def behind(self, h, edge_index, n):
        both = h[:, :1].expand_as(h) + h
        return torch.addcdiv(both, h, both.abs() + 0.5)


@pytest.mark.parametrize("compile_after", [1, 3])
def test_rows_of_the_machine_that_are_not_stored_are_read_together(compile_after, seed):
    run = Followed(TwoThatAreNotStored, seed=seed, compile_after=compile_after)
    assert run.inc.mode == "incremental"
    run.walk()

"""Sort, median, quantiles, products and Set2Set: rows are computed again, and no others."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing, aggr

from pyg_incremental import UnsupportedModelError, load, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from pyg_incremental.ops import base, padded
from tests.distributed.threads import run_ranks
from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, EVERY, add, generator, journey, make_world, pick_nodes
from tests.zoo import CHANNELS, Case
from tests.zoo_reductions import REDUCTION_CASES, SORTED, OwnAtBothEnds, OwnWeighted

BY_COL = "edge_index_by_col"
GIVEN = [pytest.param(c, fmt, id=f"{c}-{fmt}") for c in REDUCTION_CASES for fmt in c.formats]


def is_by_rows(inc):
    kinds = {s.kind for s in inc.program.steps}
    return inc.mode == "incremental" and "rows" in kinds and kinds <= {"input", "map", "rows"}


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), GIVEN)
def test_every_reduction_is_recomputed_row_by_row(case, fmt, seed):
    sides = SideBySide(case, fmt, seed=seed)
    assert is_by_rows(sides.inc), sides.inc.program
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", REDUCTION_CASES, ids=str)
def test_float32(case, seed):
    sides = SideBySide(case, case.formats[-1], dtype=torch.float32, seed=seed + 1)
    assert is_by_rows(sides.inc)
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", REDUCTION_CASES[::3], ids=str)
def test_reference_kernels(case, seed):
    SideBySide(case, case.formats[-1], seed=seed + 2, backend="reference").walk()


@pytest.mark.parametrize("case", REDUCTION_CASES[::5], ids=str)
def test_a_few_rows_at_a_time(case, seed, monkeypatch):
    monkeypatch.setattr(base, "AT_ONCE", 5)
    monkeypatch.setattr(padded, "ROOM", 5)
    SideBySide(case, case.formats[-1], seed=seed + 3).walk()


def path(nodes, back=()):
    """Each node but the first has an in-edge from the one before it."""
    pairs = sorted([*((v, v + 1) for v in range(nodes - 1)), *back], key=lambda pair: pair[1])
    index = torch.tensor(pairs).t().contiguous()
    return EdgeIndex(index, sparse_size=(nodes, nodes), sort_order="col")


@pytest.mark.parametrize("make", [lambda a: gnn.SimpleConv(a), OwnWeighted])
@pytest.mark.parametrize("module", [aggr.SortAggregation(3), aggr.MedianAggregation()])
def test_no_other_rows_are_computed(make, module):
    inc = to_incremental(make(module).double().eval())
    inc(torch.randn(100, 3).double(), path(100, [(5, 0)]))
    step = next(s.output.name for s in inc.program.steps if s.kind == "rows")
    up = inc.apply_delta(x_changes=([50], torch.randn(1, 3).double()))
    assert up.changed.tolist() == [51]
    assert up.stats[step].rows <= 2  # a conv of one's own may read its own row, too
    up = inc.apply_delta(edge_index_add=torch.tensor([[3], [70]]))
    assert {*up.changed.tolist()} <= {70}  # the lower one of two is a median
    assert up.stats[step].rows == 1
    assert inc.verify() == 0


# Padding ##########################################################################################


class TwoSorts(MessagePassing):
    """Sorts its rows once as they are, and once with others in front."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) + self.propagate(edge_index, x=-x.relu())


SORTS = [
    gnn.SimpleConv,
    lambda a: OwnWeighted(a),
    lambda a: OwnAtBothEnds(a, a.k * CHANNELS),
    TwoSorts,
]


def with_ties(make, seed, dtype, fmt=BY_COL):
    """On a graph whose features are a few integers, with a hub of more than sixteen in-edges."""
    rng = generator(seed)
    plain = make_world(rng, nodes=24, edges=40, dtype=dtype)
    x = torch.from_numpy(rng.integers(-2, 3, plain.x.shape)).to(dtype)
    pairs = [*plain.pairs(), *((int(v), 3) for v in rng.integers(0, 24, 16))]
    data = {}
    if fmt == "csr":
        pairs = list(dict.fromkeys(pairs))
        data["edge_weight"] = torch.ones(len(pairs), dtype=dtype)
    case = Case("ties", make, formats=(fmt,), picky=True)
    return SideBySide(case, fmt, dtype, seed, World(x, pairs, data, fmt)), rng


@pytest.mark.parametrize(
    ("k", "dtype"),
    [
        (1, torch.float64),
        (4, torch.float32),
        pytest.param(4, torch.float64, marks=pytest.mark.more),
        pytest.param(1, torch.float32, marks=pytest.mark.more),
    ],
)
@pytest.mark.parametrize("make", SORTS)
def test_ties_and_what_is_not_finite_come_out_as_in_a_full_pass(make, k, dtype, seed):
    """The sort is not stable, and PyG's padding may be taken for messages: both see all rows."""
    adversarial(*with_ties(lambda: make(aggr.SortAggregation(k)), seed, dtype))


def test_the_entries_of_a_matrix_tie_in_another_order(seed):
    adversarial(
        *with_ties(lambda: gnn.SimpleConv(aggr.SortAggregation(3)), seed, torch.float64, "csr")
    )


def adversarial(sides, rng):
    assert is_by_rows(sides.inc)
    done = 0
    for name in journey(rng, kinds=EVERY):
        deltas = [(name, DELTAS[name])]
        if rng.random() < 0.4:
            deltas.append(("ties", few_integers))
        if rng.random() < 0.3:
            deltas.append(("hub", hub_grows))
        if rng.random() < 0.2:
            deltas.append(("huge", huge_comes))
        for what, delta in deltas:
            done += sides.step(delta(sides.world, rng), what) is not None
    assert done > 40


def few_integers(world, rng):
    ids = pick_nodes(world, rng, 4)
    rows = torch.from_numpy(rng.integers(-2, 3, (len(ids), CHANNELS))).to(world.x)
    return {"x_changes": (torch.tensor(ids), rows)}


def hub_grows(world, rng):
    return add(world, rng, [(int(v), 3) for v in rng.integers(0, world.num_nodes, 7)])


def huge_comes(world, rng):
    row = torch.full((1, CHANNELS), rng.choice([-3e16, 3e16])).to(world.x)
    return {"x_changes": (torch.tensor(pick_nodes(world, rng, 1)), row)}


def test_only_rows_that_tie_see_another_length():
    """Two rows tie; the hub's new in-edges change how long all rows are, and so their order."""
    x = torch.arange(80.0).view(40, 2)
    x[[5, 6, 7, 8], 1] = -1
    pairs = [*((v, 0) for v in range(10, 30)), (5, 1), (6, 1), (7, 2), (8, 2), (9, 3)]
    index = torch.tensor(pairs).t().contiguous()
    inc = to_incremental(gnn.SimpleConv(aggr.SortAggregation(2)).eval())
    inc(x, EdgeIndex(index, sparse_size=(40, 40), sort_order="col"))
    up = inc.apply_delta(edge_index_add=torch.tensor([[31, 32], [0, 0]]))
    assert up.stats["aggr_module.aggr"].rows == 3
    assert inc.verify() == 0
    up = inc.apply_delta(x_changes=([9], torch.tensor([[1.0, 2.0]])))
    assert up.stats["aggr_module.aggr"].rows == 1
    up = inc.apply_delta(x_changes=([9], torch.tensor([[torch.nan, 2.0]])))
    assert up.stats["aggr_module.aggr"].rows == 40  # now every row shows its padding, as in PyG
    assert inc.verify() == 0


def test_a_saved_state_knows_its_padding(tmp_path, seed):
    sides, rng = with_ties(lambda: TwoSorts(aggr.SortAggregation(2)), seed, torch.float64)
    sides.inc.save(tmp_path / "state.pt")
    again = load(tmp_path / "state.pt", sides.inc.model)
    for make in (few_integers, hub_grows, few_integers):
        delta = make(sides.world, rng)
        sides.step(delta)
        again.apply_delta(**delta)
        assert torch.equal(again.out, sides.inc.out)


def test_ranks_refuse_a_sort_whose_padding_they_cannot_see():
    model, x = gnn.SimpleConv(aggr.SortAggregation(2)).eval(), torch.randn(9, 2)

    def work(comm):
        return DistributedIncrementalModel(copy.deepcopy(model), comm)(x, path(9))

    for error in run_ranks(2, work):
        assert isinstance(error, UnsupportedModelError)
        assert "everywhere" in str(error)


class Unreachable(MessagePassing):
    """Sorts groups of rows that are not its nodes."""

    def forward(self, x, edge_index):
        half = edge_index // 2 * 2
        return x + self.aggr_module(x[half[0]], half[1], dim_size=x.size(0) + 1)[: x.size(0)]


def test_sorts_of_what_is_not_a_row_run_on_all_rows():
    index = path(30, [(5, 0)])
    inc = to_incremental(Unreachable(aggr.SortAggregation(1)).eval())
    inc(torch.randn(30, 2), index)
    assert inc.mode == "mixed"
    inc.apply_delta(edge_index_add=torch.tensor([[3], [7]]))
    assert inc.verify() == 0


class Watched(MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


def test_a_sort_that_somebody_watches_sees_all_rows():
    module = aggr.SortAggregation(2)
    module.register_forward_hook(lambda module, inputs, out: 2 * out)
    for conv in (gnn.SimpleConv(module), Watched(module)):
        inc = to_incremental(conv.eval())
        inc(torch.randn(9, 2), path(9, [(5, 0)]))
        assert inc.mode == "mixed"


def test_refreshed_parameters_are_seen():
    """Stand-ins share the parameters of the conv."""
    conv = OwnAtBothEnds(aggr.SortAggregation(2), 2 * CHANNELS).eval()
    inc = to_incremental(conv)
    inc(torch.randn(9, CHANNELS), path(9, [(5, 0)]))
    with torch.no_grad():
        conv.after.weight.mul_(2)
    conv.before = nn.Linear(2 * CHANNELS, CHANNELS).eval()
    inc.refresh()
    assert inc.verify() <= 1e-6
    inc.apply_delta(edge_index_add=torch.tensor([[3], [7]]))
    assert inc.verify() <= 1e-6


# Other modules ####################################################################################


@pytest.mark.parametrize(
    "make",
    [
        lambda: aggr.MLPAggregation(CHANNELS, OUT_OF_MLP, max_num_elements=9, num_layers=1),
        lambda: aggr.SetTransformerAggregation(CHANNELS),
    ],
)
def test_modules_that_want_sorted_edges_are_tried_on_sorted_edges(make, seed):
    case = Case("dense", lambda: Watched(make()), formats=SORTED, picky=True)
    sides = SideBySide(case, BY_COL, seed=seed)
    assert is_by_rows(sides.inc)
    sides.walk(["mixed", "add_edges", "change_features", "delete_edges", "isolate_node"])


OUT_OF_MLP = 3

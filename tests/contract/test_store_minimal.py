"""`store='minimal'`: the same exact answers from fewer stored rows."""

import copy

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SAGEConv

from pyg_incremental import IncrementalGCNConv, InvalidDeltaError, load, to_incremental
from pyg_incremental.kernels.compiled import choice
from pyg_incremental.ops import base, recomputed_sum
from pyg_incremental.ops import maps as executors
from pyg_incremental.rows import nodes
from tests.closeness import assert_close
from tests.hetero_side_by_side import HeteroSides
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, generator
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_deep_models import DEEP_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_hetero import GRAPH_CASES, HETERO_CASES, PAIR_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_models import MODEL_CASES

OTHERS = [*ATTENTION_CASES, *EDGE_FUNCTION_CASES, *DEEP_CASES, *EDGE_CASES]  # little is left out
CASES = [*CONV_CASES, *HOP_CASES[::2], *MODEL_CASES[::2], *OTHERS[::4]]
HETERO = [*PAIR_CASES, *GRAPH_CASES, *HETERO_CASES]
MINIMAL = {"store": "minimal"}
N, EDGES, CHANNELS = 150, 600, 8
SLOW = None
pytestmark = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_in_float64(case, seed):
    sides = SideBySide(case, case.formats[0], seed=seed + 4, **MINIMAL)
    assert sides.inc.mode in case.modes(case.formats[0]), sides.inc
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("options", [{"backend": "reference"}, {"accumulate_dtype": torch.float64}])
@pytest.mark.parametrize("case", CONV_CASES, ids=str)
def test_close_in_float32(case, options, seed):
    SideBySide(case, case.formats[0], torch.float32, seed + 5, **options, **MINIMAL).walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", HETERO, ids=str)
def test_several_kinds_of_nodes(case, seed):
    sides = HeteroSides(case, seed=seed + 6, **MINIMAL)
    assert sides.inc.mode in case.mode, sides.inc
    sides.walk()


@pytest.mark.parametrize("case", CONV_CASES[::4], ids=str)
def test_a_few_rows_and_edges_at_a_time(case, seed, monkeypatch):
    monkeypatch.setattr(recomputed_sum, "AT_ONCE", 5)
    monkeypatch.setattr(base, "AT_ONCE", 3)
    monkeypatch.setattr(executors, "PART", 4)
    SideBySide(case, seed=seed + 7, **MINIMAL).walk()


@pytest.mark.parametrize("case", CONV_CASES[::4], ids=str)
def test_all_rows_afresh_where_most_messages_changed(case, seed, monkeypatch):
    monkeypatch.setattr(nodes, "MANY", 0)
    monkeypatch.setattr(choice, "LEAST", 0)
    SideBySide(case, seed=seed + 8, **MINIMAL).walk()


# What is kept #####################################################################################


def wrapped(make=GraphSAGE, dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = make(CHANNELS, 16, 2, 4).to(dtype).eval()
    inc = to_incremental(model, strict=True, **{**MINIMAL, **options})
    inc(torch.randn(N, CHANNELS, dtype=dtype), torch.randint(N, (2, EDGES)))
    return inc


def rows_of(inc):
    return {p.name: p.bytes for p in inc.memory_report().parts if p.what == "rows"}


def test_rows_that_are_kept():
    """Input, output, sums of 16 and 4 channels, the ones and their sum."""
    assert sorted(rows_of(wrapped()).values()) == [N * 4, N * 4, *[N * 16] * 2, N * 32, N * 64]


@pytest.mark.parametrize(
    ("make", "numbers", "more"),
    [(GraphSAGE, 34, 37), (GCN, 34, 17), (GIN, 32, 20), (GAT, 62, 0)],
    ids=lambda m: getattr(m, "__name__", None),
)
def test_less_is_kept(make, numbers, more):
    """No message of a sum; of attention the messages, because what they weigh is an exponential.

    `more` is what is kept for each node else: messages, and rows of one's own.
    """
    minimal, fast = rows_of(wrapped(make)), rows_of(wrapped(make, store="fast"))
    if make is GAT:  # the others keep finished rows in the place of sums
        assert minimal.items() <= fast.items()
    assert sum(minimal.values()) == 4 * N * numbers
    assert sum(fast.values()) == 4 * N * (numbers + more)


def test_a_maximum_keeps_what_it_compares():
    model = SAGEConv(CHANNELS, 4, aggr="max", project=True).eval()
    inc = to_incremental(model, **MINIMAL)
    inc(torch.randn(N, CHANNELS), torch.randint(N, (2, EDGES)))
    assert "SAGEConv.relu" in rows_of(inc)
    assert "lin_r" not in rows_of(inc)


def test_work_is_reported():
    inc = wrapped()
    up = inc.apply_delta(x_changes=(torch.tensor([3]), torch.ones(1, CHANNELS)))
    maps = [s for s in up.stats.steps if s.kind == "map"]
    assert len({s.name for s in maps}) == len(maps)
    assert any(s.rows > s.changed for s in maps)
    assert {s.kind for s in up.stats.steps} <= {"input", "map", "sum"}


# What is computed again is what it was ############################################################


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("make", [GraphSAGE, GCN, GIN], ids=lambda m: m.__name__)
def test_old_rows_come_out_bit_by_bit(make, backend, seed):
    """The rows from before an update, computed after it, are those computed before it."""
    inc, rng = wrapped(make, backend=backend), generator(seed)
    engine = inc._session.engine
    cells = [cell for cell in engine.cells.values() if cell.maker is not None]
    every = engine.backend.ids(torch.arange(N))
    assert len(cells) > 1
    for _ in range(5):
        now = [cell.maker.exactly(every, before=False) for cell in cells]
        edges = inc.graph.to_edge_index()
        gone = torch.from_numpy(rng.choice(edges.shape[1], 6, replace=False))
        nodes = torch.from_numpy(rng.choice(N, 7, replace=False))
        inc.apply_delta(
            torch.from_numpy(rng.integers(0, N, (2, 6))),
            edges[:, gone],
            (nodes, torch.from_numpy(rng.standard_normal((7, CHANNELS))).float()),
        )
        for cell, before in zip(cells, now, strict=True):
            assert torch.equal(cell.maker.exactly(every, before=True), before), cell


def test_rows_do_not_depend_on_their_company(seed):
    inc, rng = wrapped(), generator(seed)
    engine = inc._session.engine
    for cell in [cell for cell in engine.cells.values() if cell.maker is not None]:
        every = cell.maker.exactly(engine.backend.ids(torch.arange(N)), before=False)
        for count in (0, 1, 7, 63, 64, 65, 149):
            ids = torch.from_numpy(rng.choice(N, count, replace=False))
            rows = cell.maker.exactly(engine.backend.ids(ids), before=False)
            assert torch.equal(rows, every[ids])


@pytest.mark.parametrize("accumulate", [None, torch.float64])
def test_long_streams_stay_close_in_float32(accumulate):
    """Were old messages not those that were added, a sum in float64 would show it."""
    leaves = 40
    torch.manual_seed(0)
    model = SAGEConv(CHANNELS, 3, aggr="sum").eval()
    inc = to_incremental(model, accumulate_dtype=accumulate, **MINIMAL)
    inc(torch.randn(leaves + 1, CHANNELS), torch.tensor([[*range(1, leaves + 1)], [0] * leaves]))
    rng = generator(1)
    for _ in range(600):
        count = int(rng.integers(1, 20))
        ids = torch.from_numpy(1 + rng.choice(leaves, count, replace=False))
        rows = torch.from_numpy(rng.standard_normal((count, CHANNELS))).float() * 8
        inc.apply_delta(x_changes=(ids, rows))
    now = inc.out.clone()
    inc.refresh()
    worst = (now - inc.out).abs().max() / inc.out.abs().max()
    assert worst <= (1e-7 if accumulate else 3e-5)


def test_another_number_of_threads():
    """Products may round otherwise then, so nothing is taken back."""
    inc = wrapped()
    delta = {"x_changes": (torch.tensor([3]), torch.ones(1, CHANNELS))}
    torch.set_num_threads(2)
    try:
        up = inc.apply_delta(**delta)
    finally:
        torch.set_num_threads(1)
    sums = [s for s in up.stats.steps if s.kind == "sum"]
    assert [s.reread for s in sums] == [N, N]
    assert inc.verify() < 1e-5


@pytest.mark.parametrize("value", [1e8, torch.nan, torch.inf])
def test_huge_values_leave_no_trace(value):
    inc = wrapped(GCN)
    row = inc.x[3:4].clone()
    inc.apply_delta(x_changes=(torch.tensor([3]), torch.full((1, CHANNELS), value)))
    inc.apply_delta(x_changes=(torch.tensor([3]), row))
    assert inc.verify() < 1e-5


# Ways of use ######################################################################################


def test_refresh_scrub_and_inverse():
    inc = wrapped(GIN, torch.float64, scrub_rows=7)
    before = inc.out.clone()
    delta = {"edge_index_add": torch.randint(N, (2, 9)), "x_add": torch.ones(2, CHANNELS).double()}
    inc.apply_delta(**delta)
    inc.refresh(torch.arange(0, N, 3))
    assert inc.verify() < 1e-9
    inc.apply_delta(nodes_del=torch.tensor([N, N + 1]), edge_index_del=delta["edge_index_add"])
    assert_close(inc.out[:N], before)
    inc.refresh()
    assert inc.verify() < 1e-9


@pytest.mark.parametrize("then", [{}, {"store": "fast"}])
@pytest.mark.parametrize("first", ["fast", "minimal"])
def test_save_and_load(first, then, tmp_path):
    inc = wrapped(GCN, torch.float64, store=first)
    inc.apply_delta(edge_index_add=torch.randint(N, (2, 9)))
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", inc.model, **then)
    assert (rows_of(again).keys() == rows_of(inc).keys()) == (then.get("store", first) == first)
    assert_close(again.out, inc.out)
    delta = {"x_changes": (torch.arange(5), torch.randn(5, CHANNELS).double())}
    assert_close(again.apply_delta(**delta).out, inc.apply_delta(**delta).out)
    assert again.verify() < 1e-9


def test_drop_in_conv():
    torch.manual_seed(0)
    conv = IncrementalGCNConv(CHANNELS, 4).double().eval().configure(store="minimal")
    x, edge_index = torch.randn(N, CHANNELS).double(), torch.randint(N, (2, EDGES))
    with torch.no_grad():
        conv(x, edge_index)
    conv.apply_delta(edge_index_add=torch.randint(N, (2, 9)))
    assert conv.incremental.verify() < 1e-9
    assert "GCNConv.hop_sent" not in rows_of(conv.incremental)


def test_a_refused_delta_changes_nothing():
    case = next(case for case in CONV_CASES if case.name == "sage-mean")
    sides = SideBySide(case, seed=1, **MINIMAL)
    state = sides.inc.state_digest()
    with pytest.raises(InvalidDeltaError):
        sides.inc.apply_delta(edge_index_del=torch.tensor([[0] * 99, [0] * 99]))
    assert sides.inc.state_digest() == state
    sides.step(DELTAS["mixed"](sides.world, sides.rng), "mixed")


def test_the_model_itself_is_the_measure(seed):
    """Deltas that dirty everything, one after the other."""
    torch.manual_seed(seed)
    model = GCN(CHANNELS, 16, 3, 4).double().eval()
    twin = copy.deepcopy(model)
    world = World(torch.randn(N, CHANNELS).double(), torch.randint(N, (EDGES, 2)).tolist())
    inc = to_incremental(model, **MINIMAL)
    inc(world.x.clone(), world.edge_index())
    for _ in range(3):
        delta = {"x_changes": (torch.arange(N), torch.randn(N, CHANNELS).double())}
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(twin, world))


def test_what_can_be_chosen():
    with pytest.raises(ValueError, match="store: expected 'fast' or 'minimal'"):
        to_incremental(GCN(3, 3, 2), store="least")

"""Numbers: rounding stays bounded, and what was huge or NaN leaves no trace when it is gone."""

import copy

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, Sequential

from pyg_incremental import to_incremental
from pyg_incremental.ops.sum import SumState
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES

pytestmark = pytest.mark.unmeasured

BACKENDS = ("compiled", "reference")
LINEAR = ("gcn-plain", "gcn-weights", "sage-mean", "sage-sum", "gin-two-linears", "graph-weights",
          "gat-heads", "graph-mean-weights")  # fmt: skip
CASES = [case for case in CONV_CASES if case.name in LINEAR]


def star(leaves, dtype, channels=CHANNELS, seed=0):
    """Every leaf sends to node 0, and one far pair of nodes has nothing to do with it."""
    torch.manual_seed(seed)
    nodes = leaves + 3
    pairs = [(v, 0) for v in range(1, leaves + 1)] + [(leaves + 1, leaves + 2)]
    return World(torch.randn(nodes, channels, dtype=dtype), pairs)


def wrap(model, world, **options):
    inc = to_incremental(model.to(world.x.dtype).eval(), **options)
    inputs = world.inputs()
    inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
    return inc


def change(inc, world, ids, rows):
    delta = {"x_changes": (torch.as_tensor(ids), rows)}
    world.apply(**delta)
    return inc.apply_delta(**delta)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [SAGEConv, GraphConv, GCNConv, GATConv], ids=lambda c: c.__name__)
@pytest.mark.parametrize("accumulate", [None, torch.float64], ids=["float32", "accumulated"])
def test_long_streams_stay_close_in_float32(make, accumulate, backend):
    """2,000 changes of the neighbours of one node; the fresh sum is the measure."""
    torch.manual_seed(0)
    world = star(60, torch.float32)
    model = make(CHANNELS, 3)
    inc = wrap(model, world, accumulate_dtype=accumulate, backend=backend)
    rng = generator(1)
    rounds = 2000 if backend == "compiled" else 300
    for _ in range(rounds):
        row = torch.from_numpy(rng.standard_normal((1, CHANNELS))).float() * 8
        change(inc, world, [int(rng.integers(1, 61))], row)
    exact = full(copy.deepcopy(model).double(), as_double(world)).float()
    worst = (inc.out - exact).abs().max() / exact.abs().max()
    bound = 1e-6 if accumulate and make is not GATConv else 1e-4
    assert worst <= bound, float(worst)


def as_double(world):
    other = world.copy()
    other.x = other.x.double()
    return other


@pytest.mark.parametrize("make", [SAGEConv, GraphConv], ids=lambda c: c.__name__)
def test_accumulating_in_float64_is_as_good_as_a_fresh_sum(make):
    torch.manual_seed(0)
    world = star(40, torch.float32)
    model = make(CHANNELS, 3)
    inc = wrap(model, world, accumulate_dtype=torch.float64)
    assert inc.out.dtype == torch.float32
    rng = generator(2)
    for size in (1e4, 1e-3, 1e3, 1.0, 1e-2):
        for _ in range(100):
            row = torch.from_numpy(rng.standard_normal((1, CHANNELS))).float() * size
            change(inc, world, [int(rng.integers(1, 41))], row)
    for v in range(1, 41):
        row = torch.from_numpy(rng.standard_normal((1, CHANNELS))).float()
        change(inc, world, [v], row)
    assert inc.verify() <= 3e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_refresh_leaves_the_values_of_a_first_pass(case, backend, seed):
    sides = SideBySide(case, seed=seed, dtype=torch.float32, backend=backend)
    sides.walk(["mixed", "change_features", "grow_hub", "change_hub", "delete_edges"])
    sides.inc.refresh()
    model, _ = case.build(seed, torch.float32)
    fresh = to_incremental(model, backend=backend)
    case.call(fresh, sides.world.inputs())
    assert_close(sides.inc.out, fresh.out, tolerance=1e-6)
    assert_close(sides.inc.out, sides.full(), tolerance=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_refresh_of_some_rows_mends_them(case, backend, seed):
    sides = SideBySide(case, seed=seed, dtype=torch.float32, backend=backend)
    sides.walk(["mixed", "change_features", "grow_hub", "change_hub", "delete_edges"])
    version = sides.inc.version
    sides.inc.refresh(torch.tensor([0, 3, 5]))
    sides.inc.refresh([1])
    sides.check_all()
    assert_close(sides.inc.out[[0, 1, 3, 5]], sides.full()[[0, 1, 3, 5]], tolerance=1e-5)
    sides.out = sides.inc.out.clone()
    assert sides.inc.version >= version
    sides.walk(["mixed"])


@pytest.mark.parametrize("scrub", [1, 4, 100])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_scrubbing_keeps_everything_exact(case, scrub, seed):
    """`changed` stays true to the values when rows are renewed on the side."""
    sides = SideBySide(case, seed=seed, scrub_rows=scrub)
    sides.walk()


def test_scrubbing_renews_every_row_in_turn():
    """Rows of a drifted float32 state are fresh again after num_nodes / k quiet deltas."""
    torch.manual_seed(0)
    world = star(50, torch.float32)
    model = GraphConv(CHANNELS, 3)
    inc = wrap(model, world, scrub_rows=8)
    rng = generator(3)
    for _ in range(500):
        row = torch.from_numpy(rng.standard_normal((1, CHANNELS))).float() * 100
        change(inc, world, [int(rng.integers(1, 51))], row)
    calm = torch.from_numpy(rng.standard_normal((50, CHANNELS))).float() * 1e-3
    change(inc, world, list(range(1, 51)), calm)
    for _ in range(2 * world.num_nodes // 8 + 2):
        change(inc, world, [51], torch.randn(1, CHANNELS))
    fresh = to_incremental(model)
    fresh(**world.inputs())
    assert_close(inc.out, fresh.out, tolerance=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["scrub", "refresh"])
def test_renewed_sums_are_read_from_their_edges(way, backend):
    """Whatever stands in the store of a sum is gone when its row is made afresh."""
    torch.manual_seed(0)
    x, edges = torch.randn(12, CHANNELS).double(), torch.randint(12, (2, 40))
    model = Sequential("x, e", [(GraphConv(CHANNELS, 3), "x, e -> x"), torch.nn.Tanh()])
    model = model.double().eval()
    options = {"scrub_rows": 5 if way == "scrub" else 0}
    inc = to_incremental(model, compile_after=None, backend=backend, **options)
    inc(x, edges)
    (total,) = (one for one in inc._session.engine.executors if isinstance(one, SumState))
    total.out.tensor[:12] += 1
    for _ in range(3):
        inc.apply_delta(x_changes=([3], x[3:4]))  # nothing changes, so nothing else is made afresh
    if way == "refresh":
        inc.refresh(torch.arange(12))
    assert inc.verify() < 1e-12


SPOILERS = {
    "1e30": 1e30,
    "-1e30": -1e30,
    "1e15": 1e15,
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_was_huge_leaves_no_trace(case, dtype, backend, seed):
    """One after the other, and once more where updates are compiled by then."""
    after = 2 * len(SPOILERS)
    sides = SideBySide(case, seed=seed, dtype=dtype, backend=backend, compile_after=after)
    world, inc = sides.world, sides.inc
    before = inc.out.clone()
    row = world.x[[1]].clone()
    for name, value in [*SPOILERS.items()] * 2:
        spoiled = row.clone()
        spoiled[0, 1] = value
        inc.apply_delta(x_changes=(torch.tensor([1]), spoiled))
        assert (inc.out[1] != before[1]).any(), name
        inc.apply_delta(x_changes=(torch.tensor([1]), row))
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        assert_close(inc.out, before, tolerance, what=f"after {name}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("share", [0.0, 0.5, 4.0], ids=["even", "uneven", "steep"])
@pytest.mark.parametrize("value", [1e8, -1e12, 1e18], ids=str)
def test_huge_values_under_calm_attention(value, share, backend):
    """The logits do not see the first channel: only the numerator is huge for a while."""
    torch.manual_seed(0)
    model = GATConv(CHANNELS, CHANNELS, add_self_loops=False)
    with torch.no_grad():
        model.lin.weight.copy_(torch.eye(CHANNELS))
        for attention in (model.att_src, model.att_dst):
            attention.mul_(share)[..., 0] = 0
    world = star(30, torch.float64)
    inc = wrap(model, world, backend=backend)
    before, row = inc.out.clone(), world.x[[3]].clone()
    spoiled = row.clone()
    spoiled[0, 0] = value
    change(inc, world, [3], spoiled)
    assert_close(inc.out, full(model, world), tolerance=1e-9)
    change(inc, world, [3], row)
    assert_close(inc.out, before, tolerance=1e-9)
    change(inc, world, [3], spoiled)
    delta = {"edge_index_del": torch.tensor([[3], [0]])}
    world.apply(**delta)
    inc.apply_delta(**delta)
    assert_close(inc.out, full(model, world), tolerance=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [1, 3])
def test_the_strongest_neighbour_leaves(heads, backend):
    """Nearly all of the mass goes with it; what stays must not be the residue."""
    torch.manual_seed(0)
    model = GATConv(CHANNELS, 3, heads=heads, add_self_loops=False)
    world = star(20, torch.float64)
    world.x[5] *= 40
    inc = wrap(model, world, backend=backend)
    for delta in (
        {"edge_index_del": torch.tensor([[5], [0]])},
        {"edge_index_add": torch.tensor([[5], [0]])},
        {"x_changes": (torch.tensor([5]), torch.ones(1, CHANNELS).double())},
        {"x_changes": (torch.tensor([5]), -80 * torch.ones(1, CHANNELS).double())},
        {"nodes_del": torch.tensor([5])},
    ):
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(model, world), tolerance=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", SPOILERS.values(), ids=SPOILERS)
def test_what_was_huge_leaves_with_its_edge(value, backend):
    """The spoiled source is cut off instead of being put right."""
    for make in (SAGEConv, GraphConv, GCNConv):
        torch.manual_seed(0)
        world = star(5, torch.float64)
        world.x[2, 0] = value
        model = make(CHANNELS, 3)
        inc = wrap(model, world, backend=backend)
        delta = {"edge_index_del": torch.tensor([[2], [0]])}
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out[0], full(model, world)[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("accumulate", [None, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_rows_without_neighbours_are_zero_to_the_bit(aggr, dtype, accumulate, backend):
    """After the last in-edge left, no residue of subtractions stays."""
    torch.manual_seed(0)
    world = star(9, dtype)
    world.x *= 1e5
    model = SAGEConv(CHANNELS, 3, aggr=aggr, root_weight=False, bias=False)
    inc = wrap(model, world, accumulate_dtype=accumulate, backend=backend)
    for v in range(1, 10):
        change(inc, world, [v], torch.randn(1, CHANNELS, dtype=dtype) / 3)
    order = torch.randperm(9) + 1
    for v in order.tolist():
        inc.apply_delta(edge_index_del=torch.tensor([[v], [0]]))
    assert torch.equal(inc.out[0], torch.zeros(3, dtype=dtype))
    inc.apply_delta(edge_index_add=torch.tensor([[1], [0]]))
    inc.apply_delta(nodes_del=torch.tensor([1]))
    assert torch.equal(inc.out[0], torch.zeros(3, dtype=dtype))


@pytest.mark.parametrize("backend", BACKENDS)
def test_isolated_gcn_node_without_loops_is_the_bias(backend):
    torch.manual_seed(0)
    world = star(6, torch.float32)
    model = GCNConv(CHANNELS, 3, add_self_loops=False)
    with torch.no_grad():
        model.bias.normal_()
    inc = wrap(model, world, backend=backend)
    inc.apply_delta(edge_index_del=torch.tensor([[1, 2, 3, 4, 5, 6], [0] * 6]))
    assert torch.equal(inc.out[0], model.bias.detach())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("aggr", ["mean", "sum"])
@pytest.mark.parametrize("how", ["edge", "features", "node"])
def test_what_leaves_one_channel_is_not_hidden_by_another(how, aggr, backend):
    """The second channel is small again, whatever the first one holds."""
    torch.manual_seed(0)
    model = SAGEConv(2, 8, aggr=aggr, bias=False, root_weight=False)
    with torch.no_grad():
        model.lin_l.weight[:, 0] = 0
    x = torch.tensor([[1e6, 0.1], [1e6, 0.2], [1e6, 0.12], [1e6, 1e6]])
    world = World(x, [(0, 2), (1, 2)])
    inc = wrap(model, world, backend=backend)
    before = inc.out.clone()
    come_and_go(inc, world, 3, 2, how)
    assert (inc.out - before).abs().max() <= 1e-7
    if how != "node":
        assert inc.verify() <= 1e-7


def come_and_go(inc, world, node, target, how):
    """A node that is an outlier sends to another node for a while."""
    edge = torch.tensor([[node], [target]])
    add, delete = {"edge_index_add": edge}, {"edge_index_del": edge}
    if how == "node":
        deltas = add, {"nodes_del": torch.tensor([node])}
    elif how == "edge":
        deltas = add, delete
    else:
        ids, calm = torch.tensor([node]), world.x[[target]].clone()
        deltas = add, {"x_changes": (ids, calm)}, delete
    for delta in deltas:
        world.apply(**delta)
        inc.apply_delta(**delta)


def identity_conv(make):
    """A conv that keeps the channels apart; attention looks at the last one only."""
    conv = make(3, 3, bias=False)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(3))
        for attention in (getattr(conv, "att_src", None), getattr(conv, "att_dst", None)):
            if attention is not None:
                attention[..., :2] = 0
    return conv


OUTLIER = 39  # the last of 40 nodes


def stamped_world():
    """Every node has a time stamp, a small value and a calm one; the last node is an outlier."""
    torch.manual_seed(0)
    stamp = 1.7e9 + 1e5 * torch.rand(OUTLIER + 1)
    x = torch.stack([stamp, 0.1 + 0.05 * torch.rand(40), torch.rand(40)], dim=1)
    x[OUTLIER, 1] = 1.7e9
    pairs = [(u, v) for u in range(OUTLIER) for v in (0, (u * 7 + 3) % OUTLIER)]
    return World(x, pairs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["edge", "features", "node"])
@pytest.mark.parametrize("make", [GCNConv, GATConv], ids=lambda c: c.__name__)
def test_time_stamps_hide_no_residue(make, how, backend):
    """A channel that is always huge says nothing about what the others may have lost."""
    torch.manual_seed(0)
    model = identity_conv(make)
    world = stamped_world()
    inc = wrap(model, world, backend=backend)
    for target in (0, 5):
        if how == "node" and target:
            break  # its features are zero by now
        come_and_go(inc, world, OUTLIER, target, how)
        if how == "features":
            change(inc, world, [OUTLIER], stamped_world().x[[OUTLIER]])
    exact = full(copy.deepcopy(model).double(), as_double(world)).float()
    kept = slice(0, OUTLIER)
    for channel in (0, 1, 2):
        got, wanted = inc.out[kept, channel], exact[kept, channel]
        assert (got - wanted).abs().max() <= 2e-6 * wanted.abs().max(), channel


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [GCNConv, GATConv], ids=lambda c: c.__name__)
def test_time_stamps_that_the_model_does_not_read(make, backend):
    torch.manual_seed(0)
    model = identity_conv(make)
    with torch.no_grad():
        model.lin.weight[:, 0] = 0
    world = stamped_world()
    inc = wrap(model, world, backend=backend)
    edge = torch.tensor([[OUTLIER], [5]])
    for delta in ({"edge_index_add": edge}, {"edge_index_del": edge}):
        world.apply(**delta)
        inc.apply_delta(**delta)
    exact = full(copy.deepcopy(model).double(), as_double(world)).float()
    assert (inc.out - exact)[:OUTLIER].abs().max() <= 2e-6


def test_verify_tells_what_is_wrong():
    world = make_world(generator(0))
    model = SAGEConv(CHANNELS, 3)
    inc = wrap(model, world)
    assert inc.verify() <= 1e-12
    assert inc.verify(5) <= 1e-12
    inc.out.numpy()[3] += 0.25  # behind PyTorch's back
    assert abs(inc.verify() - 0.25) < 1e-9
    assert abs(inc.verify(num_nodes=world.num_nodes) - 0.25) < 1e-9
    inc.refresh(torch.tensor([3]))
    assert inc.verify() <= 1e-12


def test_verify_counts_nan_where_a_number_should_be():
    world = make_world(generator(0))
    inc = wrap(SAGEConv(CHANNELS, 3), world)
    inc.out.numpy()[3] = float("nan")
    assert not inc.verify() <= 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_follows_or_is_refused_by_name(dtype):
    torch.manual_seed(0)
    world = star(6, dtype)
    model = GINConv(torch.nn.Linear(CHANNELS, 3)).to(dtype).eval()
    try:
        inc = wrap(model, world)
    except TypeError as error:
        assert str(dtype) in str(error)  # noqa: PT017
        return
    change(inc, world, [1], torch.ones(1, CHANNELS, dtype=dtype))
    assert_close(inc.out, full(model, world), tolerance=0.05)

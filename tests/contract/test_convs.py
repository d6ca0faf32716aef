"""Each of the five convs, with each option, on each format: every kind of delta is exact."""

import pytest
import torch

from tests.closeness import assert_close
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, EVERY, generator, make_world
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES, gat, gcn, gin, graph, sage, two_linears

# PyG says so whenever it is given a CSC adjacency.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

RUNS = [
    pytest.param(case, fmt, id=f"{case}-{fmt}")
    for case in CONV_CASES
    for fmt in case.formats
    if fmt != "sparse_tensor"
]
BACKENDS = ("compiled", "reference")
BY_NAME = {case.name: case for case in CONV_CASES}


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), RUNS)
def test_exact_in_float64(case, fmt, seed):
    after = case.compiled_from(fmt)
    sides = SideBySide(case, fmt, seed=seed, backend="compiled", compile_after=after)
    assert sides.inc.backend == "compiled"
    assert sides.inc.mode in case.modes(fmt)
    sides.walk(kinds=EVERY if fmt == case.formats[0] else None)
    assert sides.inc.verify() <= 1e-9 or not sides.full().isfinite().all()


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), [run for run in RUNS if run.values[1] in ("coo", "csr")])
def test_exact_on_reference_kernels(case, fmt, seed):
    sides = SideBySide(case, fmt, seed=seed + 1, backend="reference")
    assert sides.inc.backend == "reference"
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CONV_CASES, ids=str)
def test_close_in_float32(case, backend, seed):
    sides = SideBySide(case, case.formats[0], torch.float32, seed + 2, backend=backend)
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", CONV_CASES, ids=str)
def test_backends_name_the_same_rows(case, seed):
    fmt = case.formats[0]
    one = SideBySide(case, fmt, seed=seed + 3, backend="compiled")
    two = SideBySide(case, fmt, seed=seed + 3, backend="reference", world=one.world.copy())
    for name in ("mixed", "change_features", "remove_hub", "same_features", "add_edges"):
        delta = DELTAS[name](one.world, one.rng)
        if one.step(delta) is None:
            continue
        two.step(delta)
        assert_close(one.inc.out, two.inc.out, tolerance=1e-10)


REFUSED = [
    (gcn("t2s", flow="target_to_source"), "csr"),
    (gcn("csc"), "csc"),
    (sage("t2s", flow="target_to_source"), "csr"),
    (sage("std", aggr="std"), "csc"),
    (gat("csc"), "csc"),
    (graph("t2s", flow="target_to_source"), "csc"),
]


@pytest.mark.parametrize(("case", "fmt"), REFUSED, ids=str)
def test_what_pyg_refuses_is_refused_alike(case, fmt):
    """No answer may come where the original model gives none."""
    from pyg_incremental import to_incremental

    model, twin = case.build()
    world = make_world(generator(0), fmt=fmt, data=case.data_for(fmt))
    with pytest.raises(Exception) as wanted:  # noqa: PT011 (whatever PyG raises)
        full(twin, world)
    with pytest.raises(type(wanted.value)):
        to_incremental(model)(**world.inputs())


@pytest.mark.parametrize("backend", BACKENDS)
def test_fused_edge_index_in_target_to_source_follows_coo(backend):
    """PyG's fused path gives a wrong answer here: the wrapper gives the one of COO."""
    from pyg_incremental import to_incremental

    case = BY_NAME["graph-backward-weights"]
    model, twin = case.build()
    world = make_world(generator(0), fmt="edge_index_by_col", data=case.data)
    inc = to_incremental(model, backend=backend)
    inputs = world.inputs()
    inc(inputs["x"], inputs["edge_index"], inputs["edge_weight"])
    plain = world.copy()
    plain.fmt = "coo"
    assert_close(inc.out, full(twin, plain))
    assert (full(twin, world) - full(twin, plain)).abs().max() > 1e-3  # else PyG is mended


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fmt", ["coo", "csr"])
@pytest.mark.parametrize("sign", [1, -1])
def test_logits_that_are_all_minus_infinity(sign, fmt, backend, seed):
    """PyG makes such a head NaN, or weighs its values with zero, by the format of the graph."""
    case = BY_NAME["gat-no-loops"]
    sides = SideBySide(case, fmt, seed=seed, backend=backend)
    for node in range(sides.world.num_nodes):
        row = sides.world.x[node : node + 1].clone()
        spoilt = row.clone()
        spoilt[0, node % CHANNELS] = sign * torch.inf
        sides.step({"x_changes": (torch.tensor([node]), spoilt)})
        sides.step({"x_changes": (torch.tensor([node]), row)})


SMALL = [
    pytest.param(World(torch.randn(1, 5).double(), []), id="one-node"),
    pytest.param(World(torch.randn(4, 5).double(), []), id="no-edge"),
    pytest.param(World(torch.randn(2, 5).double(), [(0, 0)]), id="one-loop"),
    pytest.param(World(torch.randn(2, 5).double(), [(0, 1)] * 4), id="one-pair-4-times"),
    pytest.param(World(torch.zeros(0, 5).double(), []), id="no-node"),
]
PLAIN = [gcn("small"), sage("small"), sage("max", aggr="max"), gin("small", two_linears),
         gat("small", heads=2), graph("small")]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", SMALL)
@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_smallest_graphs(case, world, backend, seed):
    sides = SideBySide(case, seed=seed, world=world.copy(), backend=backend)
    if not world.num_nodes:
        sides.step({"x_add": torch.ones(2, 5).double()})
    sides.walk(["new_nodes_with_edges", "add_edges", "mixed", "all_edges_leave", "refill"])


@pytest.mark.parametrize("name", ["gcn-plain", "sage-mean", "gin-two-linears", "graph-plain"])
def test_lazy_channels(name):
    """A conv with in_channels = -1 gets its weights in the first pass."""
    from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv
    from torch_geometric.nn import Linear as LazyLinear

    from pyg_incremental import to_incremental

    make = {
        "gcn-plain": lambda: GCNConv(-1, 4),
        "sage-mean": lambda: SAGEConv(-1, 4),
        "gin-two-linears": lambda: GINConv(LazyLinear(-1, 4)),
        "graph-plain": lambda: GraphConv(-1, 4),
    }[name]
    model = make().double().eval()
    world = make_world(generator(0))
    inc = to_incremental(model)
    inc(**world.inputs())
    delta = DELTAS["mixed"](world, generator(1))
    world.apply(**delta)
    inc.apply_delta(**delta)
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_parameters_are_read_live_after_refresh(case, seed):
    sides = SideBySide(case, seed=seed)
    for module in (sides.inc.model, sides.twin):
        with torch.no_grad():
            for i, parameter in enumerate(module.parameters()):
                parameter.mul_(1 + 0.1 * i).add_(0.01)
    sides.inc.refresh()
    sides.out = sides.inc.out.clone()
    sides.check_all()
    sides.walk(["mixed", "change_features"])

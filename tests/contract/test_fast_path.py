"""Updates in one call of compiled code: the same exact answers, and the same reported work."""

import pytest
import torch
from torch.nn.functional import linear, softplus
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_incremental import to_incremental
from pyg_incremental.fused import parts, tables
from pyg_incremental.fused.registers import Space
from pyg_incremental.fused.row_ops import translate
from pyg_incremental.kernels.compiled.row_ops import BLOCK, ONE_THREAD, run_rows
from tests.side_by_side import SideBySide
from tests.strategies import generator, index
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_models import MODEL_CASES

CASES = [*CONV_CASES, *HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *MODEL_CASES]
RUNS = [
    *(pytest.param(case, torch.float64, id=f"{case}-f64") for case in CASES),
    *(pytest.param(case, torch.float32, id=f"{case}-f32") for case in CONV_CASES),
]
WHOLE = ("gcn-plain", "graph-weights", "sage-mean", "sage-max", "gin-two-linears", "gat-heads")


def fast_of(inc):
    """The fast path of an incremental model, if it has one."""
    return inc._session.engine._fast


@pytest.mark.matrix
@pytest.mark.unmeasured
@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_every_kind_of_delta(case, dtype, seed):
    SideBySide(case, case.formats[0], dtype, seed + 3, compile_after=1).walk()


@pytest.mark.kernels
@pytest.mark.parametrize("name", WHOLE)
def test_whole_plans_are_compiled(name, seed):
    case = next(case for case in CONV_CASES if case.name == name)
    sides = SideBySide(case, seed=seed, compile_after=1, backend="compiled")
    sides.walk()
    fast = fast_of(sides.inc)
    assert fast.tables.known == len(sides.inc._session.engine.node_executors), fast.tables.why


@pytest.mark.kernels
@pytest.mark.parametrize("most", [3, 9, 60])
@pytest.mark.parametrize("name", WHOLE)
def test_executors_go_on_where_there_is_no_room(name, most, seed, monkeypatch):
    """Whichever step the machine stops at, and whatever rows it leaves behind."""
    monkeypatch.setattr(tables, "MOST", most)
    case = next(case for case in CONV_CASES if case.name == name)
    SideBySide(case, seed=seed, compile_after=1, backend="compiled").walk()


# The same work ####################################################################################

N, CHANNELS = 300, 16
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 16, 2, 5),
    "sage": lambda: GraphSAGE(CHANNELS, 16, 2, 5),
    "sage-max": lambda: GraphSAGE(CHANNELS, 16, 2, 5, aggr="max"),
    "gin": lambda: GIN(CHANNELS, 16, 2, 5, norm="batch_norm"),
    "gat": lambda: GAT(CHANNELS, 16, 2, 5, heads=4),
}


def pair(name, rng):
    """The same model twice on the same graph, with a fast path and without."""
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
    both = [to_incremental(model, compile_after=after) for after in (1, None)]
    for inc in both:
        inc(x, edges)
    return both


@pytest.mark.parametrize(("changes", "at_a_time"), [(1, 40), (5, 40), (106, 40), (106, 2048)])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_work(name, changes, at_a_time, seed, monkeypatch):
    """Rows, edges and channels are counted alike."""
    monkeypatch.setattr(parts, "ROWS", at_a_time)
    rng = generator(seed)
    fast, slow = pair(name, rng)
    for _ in range(6):
        at = torch.from_numpy(rng.permutation(fast.num_edges)[:changes])
        delta = {
            "edge_index_add": torch.from_numpy(rng.integers(0, N, (2, changes))),
            "edge_index_del": fast.graph.to_edge_index()[:, at],
            "x_changes": (
                torch.from_numpy(rng.permutation(N)[:changes]),
                torch.from_numpy(rng.standard_normal((changes, CHANNELS))),
            ),
        }
        one, other = fast.apply_delta(**delta), slow.apply_delta(**delta)
        assert [s[:6] for s in one.stats.steps] == [s[:6] for s in other.stats.steps]
        assert torch.equal(one.changed, other.changed)
        assert torch.allclose(one.out, other.out, rtol=0, atol=1e-12)
        assert fast.verify() < 1e-12
    assert fast_of(fast) is not None
    assert fast_of(slow) is None


def test_new_parameters_are_used_after_refresh(seed):
    rng = generator(seed)
    inc, _ = pair("sage", rng)
    for _ in range(3):
        inc.apply_delta(index([(0, 1)]))
    with torch.no_grad():
        for p in inc.model.parameters():
            p.mul_(0.5)
    inc.refresh()
    for _ in range(3):
        inc.apply_delta(index([(1, 2)]))
        assert inc.verify() < 1e-12
    assert fast_of(inc) is not None


def test_a_step_that_is_unknown_is_left_to_its_executor(seed):
    """The machine runs what comes before it."""

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GraphSAGE(CHANNELS, 8, 1), GraphSAGE(8, 8, 1)

        def forward(self, x, edge_index):
            return self.second(softplus(self.first(x, edge_index)), edge_index)

    rng = generator(seed)
    inc = to_incremental(Odd().double().eval(), compile_after=1)
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    inc(x, torch.from_numpy(rng.integers(0, N, (2, 4 * N))))
    for _ in range(5):
        inc.apply_delta(torch.from_numpy(rng.integers(0, N, (2, 3))))
        assert inc.verify() < 1e-12
    fast = fast_of(inc)
    assert 0 < fast.tables.known < len(inc._session.engine.node_executors)
    assert "aten.softplus" in fast.tables.why


def test_compile_after_is_checked():
    with pytest.raises(ValueError, match="compile_after: expected a number of updates"):
        to_incremental(MODELS["sage"]().eval(), compile_after=0)


# Products #########################################################################################


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("inner", "width"), [(1, 1), (3, 5), (128, 40), (0, 3), (600, 700)])
def test_products_of_any_size(inner, width, dtype, seed):
    """Also of one whose rows have to go to BLAS one by one, lest it starts threads."""
    rng = generator(seed)
    assert (inner * width * 2 > ONE_THREAD) == (inner == 600)
    matrix = torch.from_numpy(rng.standard_normal((width, inner))).to(dtype) / max(inner, 1) ** 0.5
    bias = torch.from_numpy(rng.standard_normal(width)).to(dtype)
    x = torch.from_numpy(rng.standard_normal((BLOCK, inner))).to(dtype)
    for given in (bias, None):
        space = Space()
        found = translate(lambda rows, given=given: linear(rows, matrix, given), [x], space)
        flat, at = space.arrays(dtype)
        for rows in (1, 7, BLOCK):
            flat[found.inputs[0] :][: rows * inner] = x[:rows].reshape(-1).numpy()
            run_rows(flat, found.ops, 0, len(found.ops), at, rows)
            got = torch.from_numpy(flat[found.output :][: rows * width]).view(rows, width)
            bound = 1e-4 if dtype == torch.float32 else 1e-12
            assert torch.allclose(got, linear(x[:rows], matrix, given), rtol=0, atol=bound)

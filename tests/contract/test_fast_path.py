"""Updates in one call of compiled code: the same exact answers, and the same reported work."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, logsigmoid
from torch_geometric.nn import GAT, GCN, GIN, EdgeCNN, GATv2Conv, GCNConv, GraphConv, GraphSAGE

from pyg_incremental import InvalidDeltaError, to_incremental
from pyg_incremental.delta.resolve.resolver import Resolver
from pyg_incremental.engine import loop
from pyg_incremental.fused import parts, tables
from pyg_incremental.fused.registers import Space, UntranslatableError
from pyg_incremental.fused.row_ops import translate
from pyg_incremental.kernels.compiled.kinds import MOST
from pyg_incremental.kernels.compiled.row_ops import BLOCK, CODES, ONE_THREAD, run_rows
from pyg_incremental.kernels.threads import number_of_threads
from pyg_incremental.ops import maps
from tests.closeness import assert_close
from tests.side_by_side import SideBySide
from tests.strategies import generator, index
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_models import MODEL_CASES

CASES = [*CONV_CASES, *HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *MODEL_CASES]
ELSEWHERE = {str(case) for case in CASES if any(case.compiled_from(f) == 1 for f in case.formats)}
"""Cases of which a walk in another format is compiled from the first update on."""
RUNS = [
    *(
        pytest.param(
            case,
            torch.float64,
            id=f"{case}-f64",
            marks=[pytest.mark.more] if str(case) in ELSEWHERE else [],
        )
        for case in CASES
    ),
    *(pytest.param(case, torch.float32, id=f"{case}-f32") for case in CONV_CASES),
]
WHOLE = (
    "gcn-plain", "graph-weights", "sage-mean", "sage-max", "gin-two-linears", "gat-heads",
    # messages that are functions of edges
    "gatv2-heads", "gatv2-attr-tensor", "transformer-beta", "gen-plain", "dna-plain", "film-plain",
    "edge-conv-plain", "edge-conv-mean", "gine-plain", "nn-max",
    "nn-one-linear", "point-net-list", "pna-attr",
)  # fmt: skip
WITH_FAR_LOGITS = (
    "res-gated-attr-max",
    "cg-backward-attr",
    "gatedgraph-weights",
    "edge-conv-softmax",
)
"""Where `exp` overflows, which is infinity in compiled code, and an error in plain Python."""


def fast_of(inc):
    """The fast path of an incremental model, if it has one."""
    return inc._session.engine.fast


@pytest.mark.matrix
@pytest.mark.unmeasured
@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_every_kind_of_delta(case, dtype, seed):
    SideBySide(case, case.formats[0], dtype, seed + 3, compile_after=1).walk()


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(n, marks=[pytest.mark.kernels, pytest.mark.measured]) for n in WHOLE),
        *WITH_FAR_LOGITS,
    ],
)
def test_whole_plans_are_compiled(name, seed):
    case = next(case for case in CASES if case.name == name)
    sides = SideBySide(case, seed=seed, compile_after=1, backend="compiled")
    sides.walk()
    fast = fast_of(sides.inc)
    assert fast.tables.known == len(fast.executors), fast.tables.why


@pytest.mark.parametrize("most", [3, pytest.param(9, marks=pytest.mark.kernels), 60])
@pytest.mark.parametrize("name", WHOLE)
def test_executors_go_on_where_there_is_no_room(name, most, seed, monkeypatch):
    """Whichever step the machine stops at, and whatever rows it leaves behind."""
    monkeypatch.setattr(tables, "MOST", most)
    case = next(case for case in CASES if case.name == name)
    SideBySide(case, seed=seed, compile_after=1, backend="compiled").walk()


def test_functions_of_many_edges_are_left_to_their_executor(seed):
    """A hub whose messages would take more than `MOST` elements."""
    rng, out = generator(seed), 1024
    inc = to_incremental(GATv2Conv(4, out, add_self_loops=False).eval(), compile_after=1)
    far = torch.arange(1, MOST // out + 8)
    edges = torch.stack([torch.zeros_like(far), far])
    inc(torch.from_numpy(rng.standard_normal((len(far) + 1, 4))).float(), edges)
    hub = torch.tensor([0])
    for _ in range(2):
        update = inc.apply_delta(
            x_changes=(hub, torch.from_numpy(rng.standard_normal((1, 4))).float())
        )
        assert inc.verify() < 1e-4
    assert update.stats.edges >= len(far)
    assert torch.equal(update.changed, far)


# The same work ####################################################################################

N, CHANNELS = 300, 16
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 16, 2, 5),
    "sage": lambda: GraphSAGE(CHANNELS, 16, 2, 5),
    "sage-max": lambda: GraphSAGE(CHANNELS, 16, 2, 5, aggr="max"),
    "gin": lambda: GIN(CHANNELS, 16, 2, 5, norm="batch_norm"),
    "gat": lambda: GAT(CHANNELS, 16, 2, 5, heads=4),
    "gatv2": lambda: GAT(CHANNELS, 16, 2, 5, heads=4, v2=True),
    "edge-cnn": lambda: EdgeCNN(CHANNELS, 16, 2, 5),
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
    monkeypatch.setattr(parts, "PART", at_a_time)
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


# The short way ####################################################################################


def drawn(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape))


def arrival(inc, rng):
    """Two nodes come with edges, from and to old ones and each other; and a feature changes."""
    first = inc.num_nodes
    ends = [[first, first + 1, 3, first], [5, first, first + 1, first + 1]]
    return {
        "x_add": drawn(rng, 2, CHANNELS), "edge_index_add": torch.tensor(ends),
        "x_changes": (torch.tensor([7]), drawn(rng, 1, CHANNELS)),
    }  # fmt: skip


def undirected(inc, rng):
    return {
        "edge_index_add": torch.tensor([[1, 2], [2, 2]]),
        "x_add": drawn(rng, 1, CHANNELS), "undirected": True,
    }  # fmt: skip


def leaving(inc, rng):
    return {"nodes_del": torch.from_numpy(rng.permutation(inc.num_nodes)[:2])}


def maybe_there(inc, rng):
    return {"edge_index_del": inc.graph.to_edge_index()[:, 4:6], "missing": "ignore"}


SHORT = {"arrival": arrival, "both": undirected, "leaving": leaving, "ignore": maybe_there}


def refuse(*_):
    raise AssertionError("the delta was resolved step by step")


@pytest.mark.parametrize("kind", SHORT)
@pytest.mark.parametrize("name", MODELS)
def test_many_kinds_of_delta_take_the_short_way(name, kind, seed, monkeypatch):
    """They are looked at once, go through compiled code, and the work is what executors do."""
    rng = generator(seed)
    fast, slow = pair(name, rng)
    for inc in (fast, slow):
        inc.apply_delta(index([(0, 1)]))
    for _ in range(4):
        delta = SHORT[kind](fast, rng)
        with monkeypatch.context() as patched:
            patched.setattr(Resolver, "resolve", refuse)
            one = fast.apply_delta(**delta)
        other = slow.apply_delta(**delta)
        assert [s[:6] for s in one.stats.steps] == [s[:6] for s in other.stats.steps]
        assert torch.equal(one.changed, other.changed)
        assert fast.verify() < 1e-12
        assert not fast.check()
        assert fast.num_nodes == slow.num_nodes


@pytest.mark.parametrize("with_loops", [False, True])
def test_edges_with_data_take_the_short_way(with_loops, seed, monkeypatch):
    rng = generator(seed)
    model = GraphConv(CHANNELS, 5)
    if with_loops:
        model = GATv2Conv(CHANNELS, 5, edge_dim=1, fill_value=0.5)
    name = "edge_attr" if with_loops else "edge_weight"
    inc = to_incremental(model.double().eval(), compile_after=1)
    edges, tail = torch.from_numpy(rng.integers(0, N, (2, 3 * N))), (1,) * with_loops
    inc(drawn(rng, N, CHANNELS), edges, drawn(rng, 3 * N, *tail).abs())
    inc.apply_delta(nodes_del=[0])
    monkeypatch.setattr(Resolver, "resolve", refuse)
    for given in ("field", "mapping"):
        rows = drawn(rng, 3, *tail).abs()
        data = {f"{name}_add": rows} if given == "field" else {"edge_data_add": {name: rows}}
        inc.apply_delta(torch.from_numpy(rng.integers(0, N, (2, 3))), **data)
        assert inc.verify() < 1e-12
        inc.apply_delta(x_add=drawn(rng, 1, CHANNELS), undirected=True, **data,
                        edge_index_add=torch.tensor([[4, 5, 6], [N, 5, 8]]))  # fmt: skip
        assert inc.verify() < 1e-12
        inc.apply_delta(edge_index_del=inc.graph.to_edge_index()[:, -5:])
        assert inc.verify() < 1e-12
        assert not inc.check()


@pytest.mark.parametrize(
    "delta",
    [
        {"x_add": torch.ones(1, CHANNELS), "edge_index_add": index([(N + 1, 0)])},
        {"x_add": torch.ones(1, CHANNELS + 1)},
        {"nodes_del": torch.tensor([N])},
        {"edge_index_del": index([(0, 0)]), "undirected": True},
        {"edge_index_add": index([(0, 1)]), "edge_attr_add": torch.ones(1, 2)},
    ],
    ids=["no such node", "too wide", "no such node to remove", "no such edge", "no such data"],
)
def test_what_is_refused_leaves_every_byte(delta, seed):
    inc, _ = pair("sage", generator(seed))
    inc.apply_delta(nodes_del=torch.tensor([0]))
    inc.apply_delta(index([(1, 2)]))
    digest = inc.state_digest()
    delta = {k: v.double() if k == "x_add" else v for k, v in delta.items()}
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(**delta)
    assert inc.state_digest() == digest
    assert inc.num_nodes == N
    inc.apply_delta(index([(3, 4)]))
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("place", ["_grow", "make_room_for", "_finish", "changed_few"])
def test_an_arrival_that_fails_is_taken_back(place, seed, monkeypatch):
    """While room is made for it, and behind the call that computes it, on both ways."""
    rng = generator(seed)
    inc, _ = pair("sage", rng)
    inc.apply_delta(index([(1, 2)]))
    before, out = inc.graph.to_edge_index(), inc.out.clone()
    if place == "_finish":
        inc._few = None

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        engine = inc._session.engine
        patched.setattr(type(engine.fast if place == "changed_few" else engine), place, fail)
        with pytest.raises(MemoryError):
            inc.apply_delta(**arrival(inc, rng))
    assert inc.num_nodes == N
    assert torch.equal(inc.graph.to_edge_index(), before)
    assert torch.allclose(inc.out, out)
    inc.apply_delta(**arrival(inc, rng))
    assert inc.verify() < 1e-12


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


class Odd(torch.nn.Module):
    """A model with a step that the machine does not know."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GraphSAGE(CHANNELS, 8, 1), GraphSAGE(8, 8, 1)

    def forward(self, x, edge_index):
        return self.second(logsigmoid(self.first(x, edge_index)), edge_index)


def test_a_step_that_is_unknown_is_left_to_its_executor(seed):
    """The machine runs what comes before it."""
    rng = generator(seed)
    inc = to_incremental(Odd().double().eval(), compile_after=1)
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    inc(x, torch.from_numpy(rng.integers(0, N, (2, 4 * N))))
    for _ in range(5):
        inc.apply_delta(torch.from_numpy(rng.integers(0, N, (2, 3))))
        assert inc.verify() < 1e-12
    fast = fast_of(inc)
    assert 0 < fast.tables.known < len(inc._session.engine.node_executors)
    assert "aten.log_sigmoid" in fast.tables.why


@pytest.mark.parametrize("part", [1, 2048])
def test_small_steps_keep_out_of_the_threads_of_pytorch(part, seed, monkeypatch):
    """Whoever carries them out; ours still know how many there are."""
    rng, threads, seen = generator(seed), torch.get_num_threads(), set()
    inc = to_incremental(Odd().double().eval())
    inc(drawn(rng, N, CHANNELS), torch.from_numpy(rng.integers(0, N, (2, 4 * N))))
    monkeypatch.setattr(maps, "PART", part)
    run = maps.MapExecutor._new_rows

    def watched(self, ids, first, last):
        seen.add((torch.get_num_threads(), number_of_threads()))
        return run(self, ids, first, last)

    monkeypatch.setattr(maps.MapExecutor, "_new_rows", watched)
    torch.set_num_threads(2)
    try:
        for _ in range(12):  # without a fast path, and with one that stops in the midst
            inc.apply_delta(torch.from_numpy(rng.integers(0, N, (2, 3))))
            assert torch.get_num_threads() == number_of_threads() == 2
        assert seen == {(1 if part > 1 else 2, 2)}
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(index([(N, 0)]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert inc.verify() < 1e-12


class Scores(nn.Module):
    """Rows of edges, which executors of their own compute."""

    def __init__(self):
        super().__init__()
        self.gnn = MODELS["sage"]()

    def forward(self, x, edge_index):
        h = self.gnn(x, edge_index)
        return (h[edge_index[0]] * h[edge_index[1]]).sum(-1)


@pytest.mark.parametrize("make", [MODELS["sage"], Scores], ids=["sage", "scores"])
@pytest.mark.parametrize(
    ("after", "edges", "first"), [(8, 4 * N, 0), (8, 4 * N + 1, 8), (None, 1, None)]
)
def test_large_graphs_do_not_wait_for_their_plan(make, after, edges, first, seed, monkeypatch):
    monkeypatch.setattr(loop, "LARGE", edges)
    rng = generator(seed)
    model = make().double().eval()
    inc = to_incremental(model, compile_after=after, backend="compiled")
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), index(rng.integers(0, N, (4 * N, 2))))
    compiled = [inc._session.engine.fast is not None]
    for _ in range(9):
        inc.apply_delta(index(rng.integers(0, N, (3, 2))))
        compiled.append(inc._session.engine.fast is not None)
    assert compiled == [first is not None and i >= first for i in range(10)]
    assert inc.verify() < 1e-12


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


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("repeat", lambda x: (x.view(-1, 4, 10) / x[:, :4, None]).flatten(1)),
        ("repeat", lambda x: x * x[:, 3:4]),
        ("copy", lambda x: (x.view(-1, 10, 4) / x[:, 10:20, None]).flatten(1)),
        ("across", lambda x: x.view(-1, 4, 10).mean(1)),
        ("total", lambda x: x.view(-1, 4, 10).sum(2)),
        ("sum", lambda x: x.view(-1, 4, 10)[:, :, ::2].sum(1)),
        ("amax", lambda x: x.view(-1, 4, 10).amax(1)),
        ("slice", lambda x: x[:, 3:13].exp()),
        ("copy", lambda x: x[:, 7:7].exp()),
    ],
)
def test_elements_are_read_as_they_stand(name, fn, dtype, seed):
    """Runs of one element, and rows that are added, are not looked up element by element."""
    x = drawn(generator(seed), BLOCK, 40).to(dtype)
    space = Space()
    found = translate(fn, [x], space)
    assert CODES[name] in found.ops[:, 0]
    flat, at = space.arrays(dtype)
    for rows in (1, 7, BLOCK):
        flat[found.inputs[0] :][: rows * 40] = x[:rows].reshape(-1).numpy()
        run_rows(flat, found.ops, 0, len(found.ops), at, rows)
        want = fn(x[:rows])
        got = torch.from_numpy(flat[found.output :][: want.numel()]).view(want.shape)
        near = 1e-5 if dtype == torch.float32 else 1e-12
        assert torch.allclose(got, want, rtol=near, atol=near)


def test_what_a_map_writes_to_is_followed():
    found = translate(lambda x: torch.zeros_like(x).add_(x).mul_(2), [torch.randn(4, 2)], Space())
    assert len(found.ops) == 2


@pytest.mark.parametrize(
    "depends", [lambda x: x if x[0, 0] > 0 else -x, lambda x: x * float(x[0, 0])]
)
def test_a_map_that_depends_on_values_is_left_to_torch(depends):
    with pytest.raises(UntranslatableError, match="depends on a value"):
        translate(depends, [torch.ones(4, 2)], Space())


class AfterAllRows(nn.Module):
    """Attention over edge functions behind a step on all rows, where compiled code has stopped."""

    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(CHANNELS, 4), GATv2Conv(4, 4)

    def forward(self, x, edge_index):
        h = self.one(x, edge_index)
        return self.two(h - h.mean(0), edge_index)


def test_steps_behind_compiled_code_keep_no_gradients(seed):
    torch.manual_seed(seed)
    model = AfterAllRows().double().eval()
    x, edges = torch.randn(30, CHANNELS).double(), torch.randint(30, (2, 90))
    inc = to_incremental(model, compile_after=1)
    inc(x, edges)
    for _ in range(4):
        new = torch.randint(30, (2, 1))
        inc.apply_delta(edge_index_add=new)
        edges = torch.cat([edges, new], 1)
        assert not inc.out.requires_grad
        assert_close(inc.out, model(x, edges))


class Where(nn.Module):
    """Sums of rows that a condition of two of their numbers is asked for."""

    def __init__(self, condition):
        super().__init__()
        self.condition = condition

    def forward(self, x, edge_index):
        given = torch.where(self.condition(x[:, :1], x[:, 1:2]), x, 5.0)
        return torch.zeros_like(given).index_add_(0, edge_index[1], given[edge_index[0]])


@pytest.mark.parametrize("condition", [torch.logical_and, torch.logical_or])
def test_conditions_of_numbers(condition):
    """Whether they are zero counts, not which is larger, nor what their product rounds to."""
    model, edges = Where(condition).eval(), torch.arange(8).repeat(2, 1).roll(1, 1)
    inc = to_incremental(model, compile_after=1)
    inc(torch.rand(8, 3) + 1, edges)
    for pair in ((0.0, -1.0), (-1.0, 0.0), (0.0, -0.0), (1e-30, -1e-30), (torch.inf, 0.0)):
        up = inc.apply_delta(x_changes=(torch.tensor([3]), torch.tensor([[*pair, 2.0]])))
        assert_close(inc.out, model(inc.x, inc.graph.to_edge_index()))
        assert torch.equal(up.out, inc.out[up.changed])
    assert not fast_of(inc).tables.why


FAR = torch.full((2,), 1e9, dtype=torch.float64)


@pytest.mark.parametrize(
    "rows",
    [
        lambda x: x.sum(1, True, dtype=torch.float64),
        lambda x: x.mean(1, True, dtype=torch.float64),
        lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64),
        lambda x: x + FAR - FAR,
        lambda x: torch.cat([x, FAR.expand_as(x)], 1).sum(1, True) - 2e9,
        lambda x: x + torch.full_like(x, 1e9, dtype=torch.float64) - FAR,
        lambda x: torch.where(x > 0.1 + 0 * FAR, 1.0, 0.0),
    ],
    ids=["sum", "mean", "norm", "constant", "beside", "like", "compared"],
)
def test_a_map_that_computes_in_float64_of_float32_is_left_to_torch(rows, seed):
    """Also one whose result is in float32 again."""
    for fn in (rows, lambda x: rows(x).float()):
        with pytest.raises(UntranslatableError, match=r"in two dtypes|dtype or other rows"):
            translate(fn, [drawn(generator(seed), 4, 2).float()], Space())
    found = translate(lambda x: rows(x).double(), [drawn(generator(seed), 4, 2)], Space())
    assert len(found.ops)


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_relu_keeps_the_sign_of_zero(dtype):
    """One over it tells them apart; PyTorch keeps it, too."""
    x, space = torch.tensor([[-0.0, 0.0, -1.0, torch.nan]], dtype=dtype), Space()
    found = translate(torch.relu, [torch.ones(4, 4, dtype=dtype)], space)
    flat, at = space.arrays(dtype)
    flat[found.inputs[0] :][:4] = x[0].numpy()
    run_rows(flat, found.ops, 0, len(found.ops), at, 1)
    got = torch.from_numpy(flat[found.output :][:4])
    assert_close(1 / got, 1 / torch.relu(x[0]))

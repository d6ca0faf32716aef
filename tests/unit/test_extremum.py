"""Largest and smallest messages: kept by an engine, and held against PyTorch's scatter."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch

from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.resolve.resolver import Resolver
from pyg_incremental.engine.loop import Engine
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.ops import EdgeFunction, Extremum, Sum
from pyg_incremental.ops import extremum as module
from pyg_incremental.program.steps import Domain, Program, Relation
from pyg_incremental.rows import NO_IDS, Backend
from pyg_incremental.telemetry.work import StepStats, UpdateStats
from tests.closeness import assert_close
from tests.oracle import World
from tests.strategies import DELTAS, generator, index, journey, make_world, node_rows

pytestmark = pytest.mark.kernels

BACKENDS = ("compiled", "reference")
NAN, INF = math.nan, math.inf


# An extremum in an engine, and the truth ##########################################################


def difference(x_j, x_i, e):
    return (x_j - x_i) * e[:, None]


def source_and_edge(x_j, e):
    return torch.relu(x_j + e[:, None])


def target_and_edge(x_i, e):
    return (x_i * e[:, None])[:, None, :]  # [k, 1, channels]: taken as flat rows


def edge_alone(e):
    return e  # [k]: taken as one channel


FUNCTIONS = {
    "x_j, x_i, e": (difference, "ste"),
    "x_j, e": (source_and_edge, "se"),
    "x_i, e": (target_and_edge, "te"),
    "e": (edge_alone, "e"),
}


@dataclass(frozen=True)
class Case:
    largest: bool = True
    weights: bool = False
    loops: str = "keep"
    reverse: bool = False
    function: str = ""

    def __str__(self):
        parts = ["max" if self.largest else "min", self.loops, self.function]
        parts += ["weights"] * self.weights + ["reverse"] * self.reverse
        return "-".join(part for part in parts if part)


CASES = [
    Case(),
    Case(largest=False),
    Case(weights=True),
    Case(largest=False, weights=True, reverse=True),
    Case(loops="drop"),
    Case(largest=False, loops="only", weights=True),
    Case(reverse=True, loops="drop"),
    Case(function="x_j, x_i, e"),
    Case(function="x_j, x_i, e", largest=False, reverse=True, loops="drop"),
    Case(function="x_j, e"),
    Case(function="x_i, e", largest=False),
    Case(function="e"),
]


def expected(case, world):
    """The extremum of all messages as PyG's aggregations take it."""
    src, dst = world.edge_index()
    if case.reverse:
        src, dst = dst, src
    x, e = world.x, world.edge_data("edge_weight")
    if case.loops != "keep":
        kept = (src == dst) == (case.loops == "only")
        src, dst, e = src[kept], dst[kept], e[kept]
    messages = x[src] * e[:, None] if case.weights else x[src]
    if case.function:
        fn, reads = FUNCTIONS[case.function]
        messages = fn(*({"s": x[src], "t": x[dst], "e": e}[end] for end in reads))
        messages = messages.reshape(len(e), math.prod(messages.shape[1:]))
    into = dst[:, None].expand_as(messages)
    reduce = "amax" if case.largest else "amin"
    return messages.new_zeros(len(x), messages.shape[1]).scatter_reduce_(
        0, into, messages, reduce, include_self=False
    )


def engine_of(program, graph, world, backend):
    program.graph(Relation())
    return Engine(
        program, {"": graph}, {"": world.num_nodes}, Backend(backend, world.x), None, lambda _: None
    )


def update(engine, graph, world, num_nodes, delta, renew=NO_IDS):
    """Apply one delta to a graph and its engine; returns the work."""
    roles = Roles((Relation(),), {"x": ""}, dict.fromkeys(graph.edge_data, ""), (), num_nodes)
    resolver = Resolver(roles, {"": graph}, num_nodes, {"x": world.x[:0]})
    resolved = resolver.resolve(GraphDelta(**delta))
    events = resolver.apply(resolved, {"": graph}, num_nodes)
    work = engine.update(events, resolved.new_nodes, resolved.rows, {"": renew})
    for happened in events.values():
        graph.release(happened.removed.slots)
    return work


class Kept:
    """The package's side: a program with one extremum `top`, and `out = -top`."""

    def __init__(self, case, world, backend):
        self.case, self.world = case, world
        self.program = program = Program()
        x = program.input("x", Domain.NODE)
        e = program.input("edge_weight", Domain.EDGE)
        source = weight = message = None
        if case.function:
            fn, reads = FUNCTIONS[case.function]
            source, target, edges = (
                (x,) * ("s" in reads),
                (x,) * ("t" in reads),
                (e,) * ("e" in reads),
            )
            message, source = EdgeFunction(fn, source, target, edges), None
            inputs = message.inputs
        else:
            source, weight = x, e if case.weights else None
            inputs = (x, e) if case.weights else (x,)
        top = program.value("top", Domain.NODE)
        self.step = Extremum(
            top, inputs, case.loops, case.reverse, case.largest, source, weight, message
        )
        program.add(None, lambda: self.step)
        program.outputs.append(program.map("out", torch.neg, [top]))
        data = {"edge_weight": world.edge_data("edge_weight")}
        self.graph = DynamicGraph(world.edge_index(), world.num_nodes, data)
        self.num_nodes = {"": world.num_nodes}
        self.engine = engine_of(program, self.graph, world, backend)
        self.cell = self.engine.cells[top]
        self.state = self.engine.aggregators[0]
        self.engine.full({"x": world.x.clone()})

    def apply(self, renew=NO_IDS, **delta):
        """One delta; returns the work of the extremum."""
        work = update(self.engine, self.graph, self.world, self.num_nodes, delta, renew)
        found = [StepStats(*entry) for entry in work if entry[0] == "top"]
        assert len(found) <= 1
        return found[0] if found else StepStats("top", self.step.kind, 0, 0)

    @property
    def rows(self):
        return self.cell.whole(self.graph.num_nodes)

    @property
    def changed(self):
        return [] if self.cell.ids is None else sorted(self.cell.ids.array.tolist())

    @property
    def owner(self):
        return self.state.owner.tensor[: self.graph.num_nodes]

    def check(self, what=""):
        """Values are exact; each channel is owned by an edge into its row, or has none."""
        want = expected(self.case, self.world)
        assert_close(self.rows, want, tolerance=0, what=f"{self.case}: {what}")
        out = self.engine.cells[self.program.outputs[0]].whole(len(want))
        assert_close(out, -want, tolerance=0, what=f"{self.case}: out {what}")
        assert self.state.owner.tensor.shape == self.cell.array.shape
        at = self.graph.slots.src if self.case.reverse else self.graph.slots.dst
        for v, owners in enumerate(self.owner.tolist()):
            for slot in owners:
                assert slot == -1 or (at[slot] == v and self.graph.slots.in_at[slot] >= 0)
        has_edge = (self.owner >= 0).all(1)
        assert torch.equal(has_edge, (self.owner >= 0).any(1))


def walk(case, world, rng, names):
    """Both backends through the same deltas: same values and owners, and the same work."""
    sides = [Kept(case, world, backend) for backend in BACKENDS]
    for name in names:
        delta = DELTAS[name](world, rng)
        after = world.copy()
        after.apply(**delta)
        before = sides[0].rows.clone()
        work = []
        for side in sides:
            work.append(side.apply(**delta))
            side.world = after
            side.check(name)
        world = after
        assert work[0] == work[1], name
        assert same_bits(sides[0].rows, sides[1].rows), name
        assert torch.equal(sides[0].owner, sides[1].owner), name
        now = sides[0].rows
        differ = [
            v for v in range(len(now)) if v >= len(before) or not same_bits(now[v], before[v])
        ]
        assert sides[0].changed == sides[1].changed == differ, name
        w = work[0]
        assert w.resilient + w.no_reset + w.covered + w.exposed == w.rows
        assert w.exposed == w.reread
    return sides


def same_bits(a, b):
    kind = {4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.view(kind), b.view(kind))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_kind_of_delta(case, dtype, seed):
    rng = generator([seed, CASES.index(case)])
    world = make_world(rng, data=(("edge_weight", None),), signed=True, dtype=dtype)
    walk(case, world, rng, journey(rng))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_few_values_make_many_ties(case, seed):
    rng = generator([seed, 100 + CASES.index(case)])
    world = make_world(rng, data=(("edge_weight", None),), signed=True)
    sides = walk(case, world, rng, ["ties", "ties_end", "negative_zero", "positive_zero"] * 4)
    assert sides[0].graph.num_edges


@pytest.mark.parametrize("case", CASES, ids=str)
def test_from_no_edges_and_back(case, seed):
    rng = generator([seed, 200 + CASES.index(case)])
    world = World(node_rows(rng, 6, 3, torch.float64), [], {"edge_weight": torch.zeros(0).double()})
    names = ["refill", "all_edges_leave", "new_nodes_with_edges", "refill", "grow_hub", "mixed"]
    walk(case, world, rng, [*names, "all_edges_leave", "new_isolated_nodes", "self_loops"])


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_a_few_edges_at_a_time(case, seed, monkeypatch):
    monkeypatch.setattr(module, "CACHED", 5)
    monkeypatch.setattr(module, "CHUNK", 5)
    rng = generator([seed, 300 + CASES.index(case)])
    world = make_world(rng, data=(("edge_weight", None),), signed=True)
    walk(case, world, rng, ["change_hub", "mixed", "remove_hub", "ties", "refill", "grow_hub"])


# By hand ##########################################################################################


def star(*rows, largest=True, backend="compiled", weight=None, function=""):
    """Edges from nodes 1, 2, ... into node 0; `rows` are the features of the sources."""
    x = torch.tensor([[0.0] * len(rows[0]), *rows]).double()
    edges = [(v, 0) for v in range(1, len(x))]
    weight = torch.ones(len(edges)).double() if weight is None else torch.tensor(weight).double()
    case = Case(largest=largest, weights=not function, function=function)
    return Kept(case, World(x, edges, {"edge_weight": weight}), backend)


def step(kept, **delta):
    """A delta on both sides, which have to agree; weight one for added edges."""
    if "edge_index_add" in delta:
        delta.setdefault("edge_weight_add", torch.ones(delta["edge_index_add"].shape[1]).double())
    work = kept.apply(**delta)
    kept.world = kept.world.copy()
    kept.world.apply(**delta)
    kept.check()
    return work


def features(**rows):
    """`x_changes` by node, such as `n3=[1.0]`."""
    return [int(name[1:]) for name in rows], torch.tensor(list(rows.values())).double()


def classes(work):
    return work.resilient, work.no_reset, work.covered, work.exposed


@pytest.mark.parametrize("backend", BACKENDS)
def test_classes_of_rows(backend):
    def kept(*more):
        return star([5.0, 0.0], [3.0, 0.0], [1.0, 4.0], *more, backend=backend)

    # An edge leaves that owns nothing; one that shares its zero with the owner.
    work = step(kept(), edge_index_del=index([(2, 0)]))
    assert (work.rows, work.changed, work.edges, classes(work)) == (1, 0, 1, (1, 0, 0, 0))
    # A message rises, but not high enough; then it takes channels over.
    assert classes(step(kept(), x_changes=features(n2=[4.0, 4.0]))) == (1, 0, 0, 0)
    assert classes(step(kept(), x_changes=features(n2=[6.0, 0.0]))) == (0, 1, 0, 0)
    # The owner of a channel rises, and covers its own loss.
    assert classes(step(kept(), x_changes=features(n1=[7.0, 0.0]))) == (0, 0, 1, 0)
    # The owner of a channel leaves, and another edge comes.
    other = kept([9.0, 9.0])
    step(other, edge_index_del=index([(4, 0)]))
    swap = {"edge_index_del": index([(1, 0)]), "edge_index_add": index([(4, 0)])}
    assert classes(step(other, **swap)) == (0, 0, 1, 0)
    # It leaves, and nothing covers: one of two channels of one row is read along two edges.
    work = step(kept(), edge_index_del=index([(1, 0)]))
    assert (work.rows, work.changed, work.reread, work.channels) == (1, 1, 1, 1)
    assert (work.edges, classes(work)) == (1 + 2, (0, 0, 0, 1))
    # Its message falls.
    work = step(kept(), x_changes=features(n3=[1.0, 3.0]))
    assert (work.channels, classes(work)) == (1, (0, 0, 0, 1))
    # The last edges leave: nothing is read.
    work = step(kept(), edge_index_del=index([(1, 0), (2, 0), (3, 0)]))
    assert (work.reread, work.channels, work.edges, classes(work)) == (0, 0, 3, (0, 0, 1, 0))
    # A change that reaches no one.
    assert step(kept(), x_changes=features(n0=[1.0, 1.0])).rows == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_the_owner_among_equals_exposes(backend):
    zeros = [[0.0] * 4] * 5
    kept = star(*zeros, backend=backend)
    assert kept.owner[0].tolist() == [0, 0, 0, 0]
    work = step(kept, edge_index_del=index([(2, 0), (3, 0)]))
    assert (work.changed, classes(work)) == (0, (1, 0, 0, 0))
    work = step(kept, edge_index_del=index([(1, 0)]))
    assert (work.changed, work.channels, classes(work)) == (0, 4, (0, 0, 0, 1))
    assert kept.changed == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_unchanged_rows_leave_the_dirty_set(backend):
    kept = star([2.0, 1.0], [1.0, 2.0], backend=backend)
    step(kept, x_changes=features(n1=[2.0, 0.5]))
    assert kept.changed == []
    assert kept.engine.cells[kept.program.outputs[0]].ids is None
    step(kept, x_changes=features(n1=[2.0, 3.0]))
    assert kept.changed == [0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_row_takes_what_comes_and_is_zero_again(backend):
    for largest, sign in ((True, -1.0), (False, 1.0)):
        kept = star([3.0 * sign], [2.0 * sign], largest=largest, backend=backend)
        assert kept.rows[0].item() == (-2.0 if largest else 2.0)
        step(kept, edge_index_del=index([(1, 0), (2, 0)]))
        assert same_bits(kept.rows, torch.zeros(3, 1).double())
        work = step(kept, edge_index_add=index([(1, 0)]))
        assert kept.rows[0].item() == 3.0 * sign
        assert classes(work) == (0, 1, 0, 0)


@pytest.mark.parametrize("largest", [True, False], ids=["max", "min"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_not_finite(backend, largest):
    kept = star([1.0], [2.0], [3.0], largest=largest, backend=backend)
    best = INF if largest else -INF
    for value in (best, NAN, -best, NAN, 1.5, best, -best):
        step(kept, x_changes=features(n2=[value]))
    step(kept, x_changes=features(n1=[NAN], n2=[NAN]))
    step(kept, edge_index_del=index([(1, 0)]))
    assert kept.rows[0].isnan()
    step(kept, edge_index_del=index([(2, 0)]))
    assert kept.rows[0].item() == 3.0
    step(kept, x_changes=features(n3=[-best]))
    assert kept.rows[0].item() == -best


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_stays_a_nan_when_another_one_is_left(backend):
    kept = star([NAN], [NAN], [1.0], backend=backend)
    assert step(kept, edge_index_del=index([(2, 0)])).exposed == 0
    assert step(kept, edge_index_del=index([(1, 0)])).exposed == 1
    assert kept.rows[0].item() == 1.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_two_zeros_the_positive_one_is_larger(backend):
    for largest in (True, False):
        kept = star([-0.0], [0.0], [-0.0], largest=largest, backend=backend)
        assert torch.signbit(kept.rows[0]).item() is not largest
        step(kept, edge_index_del=index([(2, 0)]))
        assert torch.signbit(kept.rows[0]).item()
        assert kept.changed == ([0] if largest else [])
        step(kept, edge_index_add=index([(2, 0)]))
        assert torch.signbit(kept.rows[0]).item() is not largest


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights(backend):
    kept = star([1.0], [2.0], [3.0], weight=[4.0, 1.0, 1.0], backend=backend)
    both = index([(1, 0), (2, 0)])
    assert kept.rows[0].item() == 4.0
    step(kept, edge_changes=(both, {"edge_weight": torch.tensor([-4.0, 5.0]).double()}))
    assert kept.rows[0].item() == 10.0
    # The same weight again: the edge covers itself.
    work = step(kept, edge_changes=(both, {"edge_weight": torch.tensor([-4.0, 5.0]).double()}))
    assert (work.changed, classes(work)) == (0, (1, 0, 0, 0))
    work = step(kept, edge_changes=(both, {"edge_weight": torch.tensor([-4.0, 0.5]).double()}))
    assert (kept.rows[0].item(), work.channels) == (3.0, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parallel_edges(backend):
    kept = star([1.0], [2.0], backend=backend)
    step(kept, edge_index_add=index([(2, 0), (2, 0)]))
    for left in (2, 1, 0):
        step(kept, edge_index_del=index([(2, 0)]))
        assert kept.rows[0].item() == (2.0 if left else 1.0)


# State ############################################################################################


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_way_leaves_no_trace(case, seed):
    """A kept state is, bit for bit, that of a first pass on the graph as it is."""
    rng = generator([seed, 400 + CASES.index(case)])
    world = make_world(rng, data=(("edge_weight", None),), signed=True)
    world.x = world.x.round()  # ties, and zeros of both signs
    names = [*journey(rng)[:12], "negative_zero", "nan_comes", "delete_edges", "change_features"]
    for side in walk(case, world, rng, names):
        fresh = Kept(case, side.world, side.engine.backend.name)
        assert same_bits(fresh.rows, side.rows)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_restored_rows_get_owners_of_their_own(backend, case, seed):
    """Rows read from a file may differ in the last bits from those of the pass before."""
    rng = generator([seed, 500])
    world = make_world(rng, nodes=8, channels=3, data=(("edge_weight", None),), signed=True)
    row = world.x[0].clone()
    world.x[:] = row  # equal messages: a change in the last bit is a change of owner
    kept = Kept(case, world, backend)
    x = kept.engine.cells[kept.program.inputs["x"]].tensor
    for v in range(world.num_nodes):
        x[v] = row * (1 + 2.0**-52 * int(rng.integers(0, 4)))
    kept.world = world = world.copy()
    world.x = x[: world.num_nodes].clone()
    saved = expected(case, world)
    kept.engine.restore({"top": saved, "out": -saved}, {"top": {}})
    kept.state.restored()
    kept.check()
    assert same_bits(kept.rows, saved)
    for name in ["delete_edges", "change_features", "mixed", "ties"] * 2:
        delta = DELTAS[name](kept.world, rng)
        kept.apply(**delta)
        kept.world = kept.world.copy()
        kept.world.apply(**delta)
        kept.check(name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_restored_rows_of_a_function_stay(backend):
    """Its messages are not stored, and may come out differently in the last bits now."""
    kept = star([1.0], [2.0], backend=backend, function="x_j, e")
    saved = kept.rows * (1 + 2.0**-52)
    kept.engine.restore({"top": saved}, {"top": {}})
    kept.state.restored()
    assert same_bits(kept.rows, saved)
    assert kept.owner[0].item() == 1


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_made_afresh(backend, case, seed):
    rng = generator([seed, 600])
    kept = Kept(case, make_world(rng, data=(("edge_weight", None),), signed=True), backend)
    want = kept.rows.clone()
    kept.rows[[0, 3]] = 1000.0 if case.largest else -1000.0
    work = kept.apply(renew=torch.tensor([0, 3]))
    kept.check()
    assert work.rows == 2
    assert work.channels == work.reread * want.shape[1]
    # ... while something else changes in the same row.
    kept.rows[[0, 3]] = NAN
    delta = DELTAS["mixed"](kept.world, rng)
    kept.apply(renew=torch.tensor([3, 0]), **delta)
    kept.world.apply(**delta)
    kept.check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_it_was_goes_on_to_a_sum(backend, seed):
    """A sum that reads an extremum retracts its OLD rows."""
    rng = generator([seed, 700])
    world = make_world(rng)
    program = Program()
    x = program.input("x", Domain.NODE)
    top = program.value("top", Domain.NODE)
    program.add(None, lambda: Extremum(top, (x,), "keep", False, True, x, None, None))
    total = program.value("total", Domain.NODE)
    program.add(None, lambda: Sum(total, (top,), "keep", False, top, None))
    program.outputs.append(program.map("out", torch.neg, [total]))
    graph = DynamicGraph(world.edge_index(), world.num_nodes)
    engine = engine_of(program, graph, world, backend)
    engine.full({"x": world.x.clone()})
    num_nodes = {"": world.num_nodes}
    for name in journey(rng, finite=True):
        delta = DELTAS[name](world, rng)
        update(engine, graph, world, num_nodes, delta)
        world.apply(**delta)
        src, dst = world.edge_index()
        rows = expected(
            Case(), World(world.x, world.pairs(), {"edge_weight": torch.ones(len(src))})
        )
        want = torch.zeros_like(rows).index_add_(0, dst, rows[src])
        assert_close(engine.cells[total].whole(graph.num_nodes), want, what=name)


# Kinds of messages ################################################################################


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_matrix_product_on_edges(backend, seed, monkeypatch):
    """Its rows differ in the last bits with the number of edges it is given."""
    rng = generator([seed, 750])
    matrix = torch.from_numpy(rng.standard_normal((10, 7)))

    def edge_conv(x_j, x_i):
        return torch.relu(torch.cat([x_i, x_j - x_i], 1) @ matrix)

    monkeypatch.setitem(FUNCTIONS, "edge conv", (edge_conv, "st"))
    world = make_world(rng, data=(("edge_weight", None),))
    kept = Kept(Case(function="edge conv"), world, backend)
    for name in journey(rng):
        delta = DELTAS[name](kept.world, rng)
        kept.apply(**delta)
        kept.world.apply(**delta)
        assert_close(kept.rows, expected(kept.case, kept.world), what=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_short_floats(case, dtype, seed):
    rng = generator([seed, 800])
    world = make_world(rng, data=(("edge_weight", None),), signed=True, dtype=dtype)
    kept = Kept(case, world, "auto")
    assert kept.engine.backend.name == "reference"
    for name in journey(rng):
        delta = DELTAS[name](kept.world, rng)
        kept.apply(**delta)
        kept.world = kept.world.copy()
        kept.world.apply(**delta)
        want = expected(case, kept.world)
        assert_close(kept.rows, want, tolerance=0, what=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_that_are_longer_than_features(backend, seed):
    rng = generator([seed, 900])
    world = make_world(rng, data=(("edge_weight", None),), dtype=torch.float32)
    for edge in world.edges:
        edge["edge_weight"] = edge["edge_weight"].double() / 3
    world.empty = {"edge_weight": torch.zeros(0).double()}
    kept = Kept(Case(weights=True), world, backend)
    kept.check()
    assert kept.rows.dtype == torch.float64
    rows = torch.full((1, 5), 0.1)
    step(kept, edge_index_del=index(world.pairs()[::3]), x_changes=([1], rows))


@pytest.mark.parametrize("backend", BACKENDS)
def test_features_of_several_dimensions(backend, seed):
    rng = generator([seed, 1000])
    world = make_world(rng, nodes=8)
    world.x = torch.from_numpy(rng.standard_normal((8, 2, 3)))
    program = Program()
    x, top = program.input("x", Domain.NODE), program.value("top", Domain.NODE)
    program.add(None, lambda: Extremum(top, (x,), "keep", False, True, x, None, None))
    program.outputs.append(top)
    graph = DynamicGraph(world.edge_index(), 8)
    engine = engine_of(program, graph, world, backend)
    engine.full({"x": world.x.clone()})
    for v in range(8):
        world.x[v] = torch.from_numpy(rng.standard_normal((2, 3)))
        rows = {"x": (torch.tensor([v]), world.x[[v]])}
        engine.update({}, {}, rows)
        src, dst = world.edge_index()
        want = torch.zeros(8, 2, 3).double()
        into = dst[:, None, None].expand(-1, 2, 3)
        want.scatter_reduce_(0, into, world.x[src], "amax", include_self=False)
        assert torch.equal(engine.cells[top].whole(8), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_whole_numbers_are_refused(backend):
    world = World(torch.ones(3, 2).double(), [(0, 1)], {"edge_weight": torch.tensor([2])})
    kept = star([1.0], backend=backend)
    with pytest.raises(
        UnsupportedModelError, match=r"'top' takes the max of messages of torch.int64"
    ):
        Kept(Case(function="e"), world, backend)
    kept.check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_is_not_asked_about_no_edges(backend, monkeypatch):
    def rigid(x_j):
        return x_j.view(len(x_j), 1, -1)  # an error for no rows

    monkeypatch.setitem(FUNCTIONS, "rigid", (rigid, "s"))
    kept = star([1.0, 2.0], [2.0, 1.0], backend=backend, function="rigid")
    kept.apply(edge_index_del=index([(1, 0), (2, 0)]))
    assert kept.rows.tolist() == [[0.0, 0.0]] * 3
    kept.apply(edge_index_add=index([(2, 0)]), edge_weight_add=torch.ones(1).double())
    assert kept.rows[0].tolist() == [2.0, 1.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_makes_something_else_on_fewer_edges(backend, monkeypatch):
    few = star([1.0], [2.0], [3.0], backend=backend)

    def fickle(e):
        return torch.ones(len(e), 1 + (len(e) == 2)).double()

    monkeypatch.setitem(FUNCTIONS, "e", (fickle, "e"))
    kept = Kept(Case(function="e"), few.world, backend)
    with pytest.raises(UnsupportedModelError, match=r"float64 \[2\], but of torch.float64 \[1\]"):
        kept.apply(edge_index_add=index([(1, 2), (0, 1)]), edge_weight_add=torch.ones(2).double())


def test_either_a_source_or_a_function():
    program = Program()
    x, top = program.input("x", Domain.NODE), program.value("top", Domain.NODE)
    message = EdgeFunction(torch.neg, (x,), (), ())
    e = program.input("edge_weight", Domain.EDGE)
    for given in ((None, None, None), (x, None, message), (None, e, message), (None, e, None)):
        with pytest.raises(ValueError, match="a source, with or without a weight, or of an edge"):
            Extremum(top, (x,), "keep", False, True, *given)


def test_kind_and_print():
    program = Program()
    x, top = program.input("x", Domain.NODE), program.value("top", Domain.NODE)
    assert str(Extremum(top, (x,), "keep", False, True, x, None, None)) == "top = max(x)"
    assert str(Extremum(top, (x,), "keep", False, False, x, None, None)) == "top = min(x)"
    assert Extremum(top, (x,), "keep", False, False, x, None, None).messages == ()


def test_printed_work():
    work = [("x", "input", 2, 2, 0, 0), ("top", "max", 10, 4, 1234, 4, 5, 1, 2, 3, 4, "push")]
    assert str(UpdateStats("incremental", 1, 2, 0.003, work)).splitlines() == [
        "step  kind         rows  changed     edges  reread  way",
        "x     input           2        2         0       0",
        "top   max            10        4     1,234       4  push",
        "        1 resilient, 2 no reset, 3 covered, 4 exposed (5 channels read)",
        "incremental: 1 edges added, 2 deleted, 3.000 ms",
    ]


def test_work_is_gone_through_step_by_step():
    work = [("x", "input", 2, 2, 0, 0), ("top", "max", 10, 4, 1234, 4, 5, 1, 2, 3, 4, "push")]
    stats = UpdateStats("incremental", 1, 2, 0.003, work)
    assert [step.name for step in itertools.islice(stats, 9)] == ["x", "top"]


# Against InkStream's rule #########################################################################


def read_by_comparing_values(old_x, new_x, old_pairs, gone, came, stored):
    """How many rows InkStream's rule would read again, for a maximum.

    A row is read again if in some channel a retracted message equals the stored extremum and no
    inserted message is as large. Pairs are distinct.
    """
    out, into = {}, {}
    for u, v in gone:
        out.setdefault(v, []).append(old_x[u])
    for u, v in came:
        into.setdefault(v, []).append(new_x[u])
    left = [pair for pair in old_pairs if pair not in set(gone)]
    for u, v in left:
        if old_x[u] != new_x[u]:
            out.setdefault(v, []).append(old_x[u])
            into.setdefault(v, []).append(new_x[u])
    has_edge = {v for _, v in [*left, *came]}
    rows = 0
    for v, retracted in out.items():
        exposed = any(
            any(message[f] == best for message in retracted)
            and not any(message[f] >= best for message in into.get(v, []))
            for f, best in enumerate(stored[v])
        )
        rows += exposed and v in has_edge
    return rows


@pytest.mark.parametrize("relu", [True, False], ids=["relu", "plain"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_reads_less_than_by_comparing_values(backend, relu, seed):
    rng = generator([seed, 1100])
    nodes, channels = 40, 8

    def rows(count):
        some = node_rows(rng, count, channels, torch.float64)
        return some.relu() if relu else some

    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, nodes, (240, 2))})
    x = rows(nodes)
    world = World(x, pairs, {"edge_weight": torch.ones(len(pairs)).double()})
    kept = Kept(Case(), world, backend)
    ours = theirs = read = 0
    for _ in range(30):
        there = kept.world.pairs()
        gone = [there[i] for i in rng.choice(len(there), 4, replace=False)]
        fresh = {(int(u), int(v)) for u, v in rng.integers(0, nodes, (4, 2))}
        came = sorted(fresh - set(there))
        changed = rng.choice(nodes, 2, replace=False).tolist()
        old_x, stored = kept.world.x.tolist(), kept.rows.tolist()
        work = step(
            kept,
            edge_index_del=index(gone),
            edge_index_add=index(came),
            x_changes=(changed, rows(2)),
        )
        rule = read_by_comparing_values(old_x, kept.world.x.tolist(), there, gone, came, stored)
        assert work.reread <= rule
        ours, theirs, read = ours + work.reread, theirs + rule, read + work.channels
    assert ours > 0
    assert read < ours * channels / 2
    assert ours < theirs if relu else ours == theirs

"""Edge inputs of any name and number, and edge data that is scaled by the whole graph."""

import pytest
import torch
from torch_geometric.nn import GraphConv, SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, UnsupportedModelError, to_incremental
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import KINDS, generator, index, make_world
from tests.zoo import CHANNELS
from tests.zoo_edges import EDGE_MIXING_CASES, INPUT_CASES, AnyName

BY_NAME = {case.name: case for case in INPUT_CASES}
ADD = index([(0, 3), (4, 1), (2, 2)])
BACKENDS = ("compiled", "reference")


# Scales of the whole graph #######################################################################


def larger(world, factor, pairs):
    """Keywords that add `pairs` with data `factor` times as large as all that is there."""
    name = world.names[0]
    largest = world.edge_data(name).abs().amax(0)
    return {"edge_index_add": index(pairs), f"{name}_add": torch.stack([largest * factor] * 2)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", EDGE_MIXING_CASES, ids=str)
def test_a_new_extreme_reaches_every_row(case, backend, seed):
    """The largest weight comes and goes, so does the largest feature, and nodes are added."""
    sides = SideBySide(case, seed=seed, backend=backend)
    world = sides.world
    name = world.names[0]
    pairs = [(1, 7), (9, 8)]
    largest = torch.full((1, CHANNELS), 9.0).double()
    row = world.x[[3]].clone()
    before = sides.inc.out.clone()
    sides.step(larger(world, 4, pairs), "a new largest weight")
    sides.step({"edge_index_del": index(pairs)}, "the largest weight leaves")
    assert_close(sides.inc.out, before)
    sides.step({"x_changes": (torch.tensor([3]), largest)}, "x.max() grows")
    sides.step({"x_changes": (torch.tensor([3]), row)}, "x.max() shrinks")
    assert_close(sides.inc.out, before)
    sides.step({"x_add": 2 * largest}, "a new node holds x.max()")
    sides.step({"x_add": torch.zeros(3, CHANNELS).double()}, "more nodes")
    values = world.edge_data(name)[:1] * 16
    pair = index(sides.world.pairs()[:1])
    sides.step({"edge_changes": (pair, {name: values})}, "a weight grows")
    sides.step({"nodes_del": torch.tensor([3, world.num_nodes])}, "nodes leave")


# Names ###########################################################################################


def named(weights=True, nodes=12, edges=24, name="edges-of-any-name"):
    case = BY_NAME[name]
    model, twin = case.build()
    world = make_world(generator(0), nodes=nodes, edges=edges, data=case.data)
    inc = to_incremental(model)
    case.call(inc, world.inputs())
    return inc, twin, world


def apply(inc, twin, world, **delta):
    world.apply(**delta)
    update = inc.apply_delta(**delta)
    assert_close(inc.out, full(twin, world))
    return update


def test_an_edge_input_of_any_name():
    inc, twin, world = named()
    assert inc.mode == "incremental"
    assert list(inc.graph.edge_data) == ["weight"]
    assert torch.equal(inc.edge_data("weight"), world.edge_data("weight"))
    apply(inc, twin, world, edge_index_add=ADD, edge_data_add={"weight": torch.rand(3).double()})
    change = (index([(0, 3)]), {"weight": torch.full((1,), 7.0).double()})
    apply(inc, twin, world, edge_changes=change)
    apply(inc, twin, world, edge_index_del=ADD)


@pytest.mark.parametrize("keyword", ["edge_weight_add", "edge_attr_add"])
def test_the_only_edge_input_takes_the_usual_keywords(keyword):
    inc, twin, world = named()
    rows = torch.rand(3).double()
    inc.apply_delta(edge_index_add=ADD, **{keyword: rows})
    world.apply(edge_index_add=ADD, edge_data_add={"weight": rows})
    assert_close(inc.out, full(twin, world))
    assert torch.equal(inc.edge_data("weight"), world.edge_data("weight"))


def test_an_edge_input_is_told_from_node_rows_by_its_length():
    """One row per node is node data under the same name."""

    class Noise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AnyName()

        def forward(self, x, edge_index, rows, of_nodes=True):
            if of_nodes:
                return self.model(x + rows, edge_index, None)
            return self.model(x, edge_index, rows)

    torch.manual_seed(0)
    model = Noise().double().eval()
    world = make_world(generator(0))
    per_node = torch.randn(world.num_nodes, CHANNELS).double()
    inc = to_incremental(model)
    inc(world.x, world.edge_index(), per_node)
    assert not inc.graph.edge_data
    inc.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    with torch.no_grad():
        assert_close(inc.out, model(world.x, world.edge_index(), per_node))
    per_edge = torch.rand(len(world.edges)).double()
    inc(world.x, world.edge_index(), per_edge, False)
    inc.apply_delta(edge_index_add=ADD, edge_data_add={"rows": torch.ones(3).double()})
    world.apply(edge_index_add=ADD)
    per_edge = torch.cat([per_edge, torch.ones(3).double()])
    with torch.no_grad():
        assert_close(inc.out, model(world.x, world.edge_index(), per_edge, False))


# Several edge inputs #############################################################################


def typed_rows(count):
    kinds = torch.arange(count) % KINDS
    return {"edge_type": kinds, "edge_weight": torch.linspace(0.5, 2, count).double()}


@pytest.mark.parametrize("name", ["edges-by-type", "edges-rgcn"])
@pytest.mark.parametrize("undirected", [False, True])
def test_typed_edges_are_added(undirected, name):
    inc, twin, world = named(name=name)
    rows = {key: typed_rows(3)[key] for key in world.names}
    both = {"edge_index_add": ADD, "edge_data_add": rows, "undirected": undirected}
    apply(inc, twin, world, **both)
    for key in world.names:
        assert torch.equal(inc.edge_data(key), world.edge_data(key)), key
        assert inc.edge_data(key).dtype == rows[key].dtype
    kinds = {"edge_type": torch.tensor([2])}
    apply(inc, twin, world, edge_changes=(index([(0, 3)]), kinds), undirected=undirected)
    apply(inc, twin, world, edge_index_del=ADD, undirected=undirected)


def test_both_ways_to_give_edge_data_at_once():
    inc, twin, world = named(name="edges-by-type")
    rows = typed_rows(3)
    inc.apply_delta(
        edge_index_add=ADD,
        edge_weight_add=rows["edge_weight"],
        edge_data_add={"edge_type": rows["edge_type"]},
    )
    world.apply(edge_index_add=ADD, edge_data_add=rows)
    assert_close(inc.out, full(twin, world))


@pytest.mark.parametrize("undirected", [False, True])
def test_inverse_and_coalesce_keep_all_edge_data(undirected):
    inc, twin, world = named(name="edges-by-type")
    start = sorted(edge_rows_of(inc))
    fresh = GraphDelta(
        edge_index_add=ADD,
        edge_index_del=index([world.pairs()[0]]) if not undirected else None,
        edge_data_add=typed_rows(3),
        undirected=undirected,
    )
    inverse = fresh.inverse(inc)
    inc.apply_delta(fresh.coalesce())
    said = {key: getattr(fresh, key) for key in fresh.__dataclass_fields__}
    assert said.pop("invalid") == "error"  # the oracle has no other way
    world.apply(**{key: value for key, value in said.items() if value is not None})
    assert_close(inc.out, full(twin, world))
    inc.apply_delta(inverse)
    assert sorted(edge_rows_of(inc)) == start
    gone = GraphDelta(nodes_del=torch.tensor([0]))
    inverse = gone.inverse(inc)
    inc.apply_delta(gone)
    inc.apply_delta(inverse.coalesce())
    assert sorted(edge_rows_of(inc)) == start
    assert inc.verify() <= 1e-9


def test_coalesce_keeps_an_edge_that_comes_back_with_other_data():
    """With data it is not the same edge any more."""
    inc, twin, world = named()
    pair = index(world.pairs()[:1])
    delta = {
        "edge_index_del": pair,
        "edge_index_add": pair,
        "edge_data_add": {"weight": torch.full((1,), 5.0).double()},
    }
    inc.apply_delta(GraphDelta(**delta).coalesce())
    world.apply(**delta)
    assert_close(inc.out, full(twin, world))
    assert inc.edge_data("weight")[-1] == 5


def edge_rows_of(inc):
    rows = inc.graph.to_edge_index().t().tolist()
    data = zip(*(inc.edge_data(name).tolist() for name in inc.graph.edge_data), strict=True)
    return [(u, v, *row) for (u, v), row in zip(rows, data, strict=True)]


# Refusals ########################################################################################

W = torch.ones(3).double()
KIND = torch.zeros(3).long()
# The model, its edge inputs, the keywords and the words that the message must hold.
BAD = {
    "none given": ("edges-of-any-name", {}, ["edge_data_add", "'weight'"]),
    "unknown name": ("edges-of-any-name", {"edge_data_add": {"cost": W}}, ["cost", "['weight']"]),
    "one too many": (
        "edges-of-any-name",
        {"edge_data_add": {"weight": W, "cost": W}},
        ["cost", "['weight']"],
    ),
    "too long": (
        "edges-of-any-name",
        {"edge_data_add": {"weight": torch.ones(4).double()}},
        ["weight", "4", "3"],
    ),
    "another dtype": (
        "edges-of-any-name",
        {"edge_data_add": {"weight": W.to(torch.complex128)}},
        ["weight", "complex128", "float64"],
    ),
    "not a mapping": ("edges-of-any-name", {"edge_data_add": W}, ["edge_data_add", "mapping"]),
    "one of two given": (
        "edges-by-type",
        {"edge_weight_add": W},
        ["edge_data_add", "'edge_type'"],
    ),
    "the other of two given": (
        "edges-by-type",
        {"edge_data_add": {"edge_type": KIND}},
        ["edge_data_add", "'edge_weight'"],
    ),
    "unknown beside known": (
        "edges-by-type",
        {"edge_data_add": {"edge_type": KIND, "edge_weight": W, "edge_attr": W}},
        ["edge_attr", "'edge_type'", "'edge_weight'"],
    ),
    "given twice": (
        "edges-by-type",
        {"edge_weight_add": W, "edge_data_add": {"edge_type": KIND, "edge_weight": W}},
        ["edge_weight", "twice"],
    ),
    "types of floats": (
        "edges-by-type",
        {"edge_weight_add": W, "edge_data_add": {"edge_type": W}},
        ["edge_type", "float64", "int64"],
    ),
}


@pytest.mark.parametrize(("name", "keywords", "words"), BAD.values(), ids=BAD)
def test_bad_edge_data(name, keywords, words):
    inc, _, _ = named(name=name)
    digest = inc.state_digest()
    with pytest.raises(InvalidDeltaError) as caught:
        inc.apply_delta(edge_index_add=ADD, **keywords)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    assert inc.state_digest() == digest
    assert inc.stale is None


def test_edge_data_where_the_model_has_none():
    world = World(torch.ones(5, 5).double(), [(0, 1)])
    inc = to_incremental(SAGEConv(5, 2).double().eval())
    inc(**world.inputs())
    with pytest.raises(InvalidDeltaError, match="'weight'"):
        inc.apply_delta(edge_index_add=ADD, edge_data_add={"weight": W})
    inc.apply_delta(edge_index_add=index([(0, 3)]), edge_data_add={})
    assert inc.num_edges == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_edge_data_may_be_coarser_than_the_rows(dtype, seed):
    """Compiled kernels do not know it, so that the plain ones take it."""
    torch.manual_seed(seed)
    model = GraphConv(4, 3).eval()
    x, edges, weight = torch.randn(9, 4), torch.randint(9, (2, 20)), torch.rand(20).to(dtype)
    inc = to_incremental(model)
    inc(x, edges, weight)
    assert inc.mode == "incremental"
    more, theirs = torch.tensor([[1, 2], [3, 3]]), torch.rand(2).to(dtype)
    inc.apply_delta(edge_index_add=more, edge_weight_add=theirs, x_changes=([3], x[:1]))
    x = x.index_copy(0, torch.tensor([3]), x[:1])
    want = model(x, torch.cat([edges, more], 1), torch.cat([weight, theirs]))
    assert_close(inc.out, want)
    with pytest.raises(UnsupportedModelError, match="edge data included"):
        to_incremental(model, backend="compiled")(x, edges, weight)

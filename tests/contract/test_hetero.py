"""Pairs of node features, dicts of them, and several graphs: exact under every kind of delta."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, NNConv, SAGEConv, SignedConv

from pyg_incremental import (
    GraphDelta,
    InvalidDeltaError,
    UnsupportedModelError,
    load,
    to_incremental,
)
from pyg_incremental.conv.hgt import joined
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.hetero_side_by_side import HeteroSides
from tests.hetero_strategies import BOUGHT, FOLLOWS, HETERO_DELTAS, LABELS, RATES, TYPES, as_plain
from tests.side_by_side import clone
from tests.strategies import generator, index
from tests.zoo import CHANNELS
from tests.zoo_hetero import GRAPH_CASES, HETERO_CASES, PAIR_CASES

CASES = [*PAIR_CASES, *GRAPH_CASES, *HETERO_CASES]


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_in_float64(case, seed):
    sides = HeteroSides(case, seed=seed, backend="compiled")
    assert sides.inc.backend == "compiled"
    assert sides.inc.mode in case.mode, sides.inc
    if case.kinds is not None:
        assert {s.kind for s in sides.inc.program.steps if s.hops} == set(case.kinds)
    sides.walk()


COMPILED = (
    "SAGE-mean", "SAGE-max", "SAGE-multi", "SAGE-std", "Graph-weighted", "GIN-max-eps", "GAT-attr",
    "MF", "WLContinuous",
)  # fmt: skip


@pytest.mark.parametrize("case", [c for c in CASES if str(c) in COMPILED], ids=str)
def test_pairs_in_compiled_code(case, seed):
    """One graph between two kinds of nodes, whose ids overlap."""
    sides = HeteroSides(case, seed=seed + 3, backend="compiled", compile_after=1)
    sides.walk()
    assert sides.inc._session.engine.fast is not None


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_on_reference_kernels(case, seed):
    HeteroSides(case, seed=seed + 1, backend="reference").walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=str)
def test_close_in_float32(case, seed):
    HeteroSides(case, torch.float32, seed + 2).walk()


# Ways of use ######################################################################################


def sides_of(name, seed=0, **options):
    case = next(case for case in CASES if str(case) == name)
    return HeteroSides(case, seed=seed, **options)


MODELS = ("SAGE-mean", "HeteroConv-mean", "different-convs", "attributes", "HGT", "HGTConv-skip")
WALK = ("mixed", "remove_node", "change_edge_data", "a_relation_empties", "add_in_every_type")


@pytest.mark.parametrize("name", MODELS)
def test_saved_and_loaded(name, seed, tmp_path):
    sides = sides_of(name, seed)
    sides.walk(WALK)
    sides.inc.save(tmp_path / "state.pt")
    loaded = load(tmp_path / "state.pt", sides.inc.model)
    assert loaded.state_digest() == sides.inc.state_digest()
    sides.inc = loaded
    sides.check_all()
    sides.walk(WALK)


@pytest.mark.parametrize("name", MODELS)
def test_a_delta_and_its_inverse_give_the_start(name, seed):
    sides = sides_of(name, seed)
    for kind in ("mixed", "isolate_node", "change_edge_data", "delete_then_add", "add_in_one_type"):
        before = clone(sides.inc.out)
        world = sides.world.copy()
        delta = HETERO_DELTAS[kind](sides.world, sides.rng)
        back = sides.inc.inverse(GraphDelta(**as_plain(delta, world)))
        sides.step(delta, kind)
        sides.inc.apply_delta(back)
        # New nodes stay, without edges.
        pairs = zip(tensors_of(before), tensors_of(sides.inc.out), strict=True)
        for old, now in pairs:
            assert_close(now[: len(old)], old)
        assert sides.inc.verify() < 1e-9
        sides = sides_of(name, seed + 1)


@pytest.mark.parametrize("name", MODELS)
def test_refreshed_and_scrubbed(name, seed):
    sides = sides_of(name, seed, scrub_rows=3)
    sides.walk(WALK)
    kinds = list(sides.world.x)
    sides.inc.refresh(nodes={kind: [0, len(sides.world.x[kind]) - 1] for kind in kinds})
    sides.check_all()
    sides.out = clone(sides.inc.out)  # rows made afresh round differently
    sides.walk(WALK)
    sides.inc.refresh()
    sides.check_all()
    assert sides.inc.verify() < 1e-9
    assert sides.inc.verify(num_nodes=3) < 1e-9


@pytest.mark.parametrize("name", ["HeteroConv-mean", "HGT"])
def test_parameters_are_read_when_they_are_refreshed(name, seed):
    sides = sides_of(name, seed)
    for model in (sides.inc.model, sides.twin):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)
    assert sides.inc.stale
    sides.inc.refresh()
    sides.out = clone(sides.inc.out)
    sides.check_all()
    sides.walk(WALK)


def test_a_split_delta_equals_the_merged_one(seed):
    merged, split = sides_of("different-convs", seed), sides_of("different-convs", seed)
    delta = HETERO_DELTAS["add_in_every_type"](merged.world, merged.rng)
    gone = HETERO_DELTAS["delete_in_every_type"](merged.world, merged.rng)
    merged.step({**gone, **delta})
    split.step(gone)
    for edge_type in TYPES:
        split.step({"edge_index_add": {edge_type: delta["edge_index_add"][edge_type]}})
    assert_close(merged.inc.out, split.inc.out)


# Work #############################################################################################


def test_only_the_touched_relation_works():
    sides = sides_of("HeteroConv-sum")
    update = sides.step({"edge_index_add": {FOLLOWS: index([(1, 3)])}})
    sums = [s for s in update.stats.steps if s.kind == "sum"]
    first = [s for s in sums if s.name.startswith("first.")]
    assert {s.name.split("<")[1].split(">")[0] for s in first} == {"user___follows___user"}
    assert all(s.rows == 1 and s.edges == 1 for s in first)
    # Only user 3 changed, and its out-edges lead to items and users.
    second = [s for s in sums if s.name.startswith("second.") and s.edges]
    touched = {s.name.split("<")[1].split(">")[0] for s in second}
    assert touched <= {"user___follows___user", "user___rates___item"}


def test_nothing_happens_where_nothing_changed():
    sides = sides_of("HGT")
    assert not sides.step({}).stats.steps
    same = {"x_changes": {"item": (torch.tensor([0]), sides.world.x["item"][:1].clone())}}
    assert [s.kind for s in sides.step(same).stats.steps] == ["input"]


def test_a_node_type_that_changes_leaves_the_others_alone():
    sides = sides_of("HGTConv")
    update = sides.step(
        {"edge_index_add": {RATES: index([(2, 5)])}},
    )
    assert update.changed["user"].tolist() == []
    assert update.changed["item"].tolist() == [5]
    softmax = [s for s in update.stats.steps if s.kind == "softmax"]
    assert len(softmax) == 1
    assert softmax[0].rows == 1


def test_attention_over_several_relations_takes_one_edge_at_a_time():
    """An edge of one relation costs one edge, though the softmax runs over all of them."""
    sides = sides_of("HGTConv")
    softmax = softmax_of(sides.step({"edge_index_add": {BOUGHT: index([(0, 4)])}}))
    assert softmax.reread == 1, "the first edge of a row: it has no reference yet"
    softmax = softmax_of(sides.step({"edge_index_add": {BOUGHT: index([(1, 4)])}}))
    assert (softmax.rows, softmax.edges, softmax.reread) == (1, 1, 0)


def softmax_of(update):
    (step,) = [s for s in update.stats.steps if s.kind == "softmax"]
    return step


# What is refused ##################################################################################


def refused(name, match, **delta):
    sides = sides_of(name)
    digest = sides.inc.state_digest()
    with pytest.raises(InvalidDeltaError, match=match):
        sides.inc.apply_delta(**delta)
    assert sides.inc.state_digest() == digest
    assert sides.inc.stale is None
    sides.walk(("mixed",))


X = torch.zeros(1, 5, dtype=torch.float64)


@pytest.mark.parametrize(
    ("delta", "match"),
    [
        ({"x_changes": ([0], X)}, r"x_changes: there are several kinds.*'user', 'item'"),
        ({"x_add": X}, "x_add: there are several kinds"),
        ({"nodes_del": [0]}, "nodes_del: there are several kinds"),
        ({"x_changes": {"usr": ([0], X)}}, r"x_changes: there is no 'usr'.*'user'"),
        ({"nodes_del": {"usr": [0]}}, r"nodes_del: there is no 'usr'.*\['user', 'item', 'tag'\]"),
        ({"x_changes": {"user": ([11], X)}}, r"x_changes\['user'\]\[0\]: node id 11 .*\[0, 11\)"),
        ({"nodes_del": {"item": [8]}}, r"nodes_del\['item'\]: node id 8 .*\[0, 8\)"),
        ({"x_changes": {"item": ([0], X)}}, r"x_changes\['item'\]\[1\]: expected shape \[k, 3\]"),
        ({"x_add": {"tag": X}}, r"x_add\['tag'\]: expected shape \[k, 4\] \(got \[1, 5\]\)"),
        ({"x_add": {"user": X + 1j}}, r"x_add\['user'\]: expected dtype torch.float64"),
        ({"edge_index_add": [[0], [0]]}, "edge_index_add: there are several graphs; give a dict"),
        ({"edge_index_add": {("a", "b", "c"): [[0], [0]]}}, r"there is no \('a', 'b', 'c'\)"),
        (
            {"edge_index_add": {RATES: [[0], [8]]}},
            r"edge_index_add\[.*'rates'.*\]: edge 0 is \(0, 8\), but ids of 'item' nodes lie in .*",
        ),
        (
            {"edge_index_add": {RATES: [[11], [0]]}},
            r"\(11, 0\), but ids of 'user' nodes lie in \[0, 11\)",
        ),
        (
            {"edge_index_del": {LABELS: [[0], [0]]}},
            r"edge_index_del\[\('tag', 'labels', 'item'\)\]: edge \(0, 0\) .* is not in the graph",
        ),
        (
            {"edge_index_add": {RATES: [[0], [0]]}, "edge_weight_add": {RATES: [1.0]}},
            r"edge_weight_add\[\('user', 'rates', 'item'\)\]: this model was first called without",
        ),
        (
            {"edge_index_add": {RATES: [[0], [0]]}, "undirected": True},
            "connects two kinds of nodes, so its edges have one direction",
        ),
        ({"edge_changes": {RATES: ([[0], [0]], {"edge_attr": X})}}, "has no edge input"),
    ],
)
def test_what_is_refused(delta, match):
    refused("HeteroConv-sum", match, **delta)


def test_attributes_are_asked_for_by_their_name():
    refused(
        "attributes",
        r"edge_index_add\[.*'rates'.*\]: 1 edges come without 'edge_attr'.*edge_attr_add of shape "
        r"\[1, 3\]",
        edge_index_add={RATES: [[0], [0]]},
    )
    refused(
        "attributes",
        r"edge_attr_add\[.*\]: expected shape \[1, 3\].*\(got \[1, 2\]\)",
        edge_index_add={RATES: [[0], [0]]},
        edge_attr_add={RATES: [[1.0, 2.0]]},
    )


def test_a_pair_is_refused_by_its_ends():
    refused("SAGE-mean", r"ids of 'dst' nodes lie in \[0, 8\)", edge_index_add=[[0], [8]])
    refused("SAGE-mean", r"nodes_del\['dst'\]: node id 8", nodes_del={"dst": [8]})
    refused("SAGE-mean", "edges have one direction", edge_index_add=[[0], [0]], undirected=True)


def test_a_type_without_features_is_refused():
    class Items(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv((5, 3), 4)

        def forward(self, x_dict, edge_index_dict):
            return self.conv((x_dict["user"], x_dict["item"]), edge_index_dict[RATES])

    inc = to_incremental(Items().eval())
    edges = {RATES: torch.tensor([[0], [0]])}
    with pytest.raises(UnsupportedModelError, match="'item', of which there are no features"):
        inc({"user": torch.randn(3, 5)}, edges)
    with pytest.raises(InvalidDeltaError, match=r"names node 3, but ids lie in \[0, 2\)"):
        inc(
            {"user": torch.randn(3, 5), "item": torch.randn(2, 3)},
            {RATES: torch.tensor([[0], [3]])},
        )


# Graphs by the names of the arguments #############################################################


def test_two_graphs_go_by_the_names_of_the_arguments(seed):
    torch.manual_seed(seed)
    inc = to_incremental(SignedConv(5, 4, first_aggr=True).double().eval())
    x = torch.rand(8, 5, dtype=torch.float64)
    inc(x, torch.randint(8, (2, 12)), torch.randint(8, (2, 12)))
    assert inc.mode == "incremental"
    before = inc.out.clone()
    update = inc.apply_delta(
        edge_index_add={
            "pos_edge_index": torch.tensor([[0, 1], [2, 2]]),
            "neg_edge_index": [[3], [4]],
        },
        x_add=x[:1],
        x_changes=([5], x[:1]),
    )
    assert update.changed.tolist() == rows_that_differ(before, inc.out)
    assert {2, 4, 5, 8} <= set(update.changed.tolist())
    assert inc.verify() < 1e-9
    with pytest.raises(InvalidDeltaError, match=r"several graphs.*'pos_edge_index'"):
        inc.apply_delta(edge_index_add=[[0], [1]])
    inc.apply_delta(edge_index_add={"neg_edge_index": [[6], [7]]}, undirected=True, nodes_del=[2])
    edges = inc.graph["neg_edge_index"].to_edge_index().t().tolist()
    assert [6, 7] in edges
    assert [7, 6] in edges
    assert inc.verify() < 1e-9


# HeteroData #######################################################################################


class OnData(torch.nn.Module):
    """A model that takes the data object itself."""

    def __init__(self):
        super().__init__()
        self.conv = HeteroConv({RATES: SAGEConv((5, 3), 4), BOUGHT: SAGEConv((3, 5), 4)})
        self.last = NNConv((4, 4), 2, torch.nn.Linear(3, 8))

    def forward(self, data):
        h = self.conv(data.x_dict, data.edge_index_dict)
        store = data[RATES]
        return h["user"], self.last((h["user"], h["item"]), store.edge_index, store.edge_attr)


def some_data(seed):
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(9, 5), torch.rand(6, 3)
    data["user"].y = torch.zeros(9)  # a label, which new nodes need not bring
    data[RATES].edge_index = torch.randint(6, (2, 14), generator=generator)
    data[RATES].edge_attr = torch.rand(14, 3, generator=generator)
    data[BOUGHT].edge_index = torch.randint(6, (2, 10), generator=generator)
    return data


def test_a_whole_data_object(seed, tmp_path):
    torch.manual_seed(seed)
    inc = to_incremental(OnData().eval())
    inc(some_data(seed))
    assert inc.mode == "incremental"
    update = inc.apply_delta(
        edge_index_add={RATES: [[9], [5]]},
        edge_attr_add={RATES: torch.rand(1, 3)},
        x_add={"user": torch.rand(1, 5)},
        nodes_del={"item": [1]},
    )
    assert isinstance(update.changed, tuple)
    assert inc.verify() < 1e-4
    inc.save(tmp_path / "state.pt")
    assert load(tmp_path / "state.pt", inc.model).state_digest() == inc.state_digest()


def test_a_data_object_for_a_model_that_takes_dicts(seed):
    model, data = sides_of("HeteroConv-sum").inc.model, some_data(seed)
    for kind in data.node_types:
        data[kind].x = data[kind].x.double()
    inc = to_incremental(model)
    inc(data)
    assert_close(inc.out, model(data.x_dict, data.edge_index_dict))


# A delta by type, without a model ################################################################


def test_coalesced_type_by_type(seed):
    sides = sides_of("different-convs", seed)
    delta = {
        "edge_index_del": {FOLLOWS: index(sides.world.pairs(FOLLOWS)[:2])},
        "edge_index_add": {
            FOLLOWS: index([sides.world.pairs(FOLLOWS)[0], (3, 4)]),
            RATES: index([(1, 1)]),
        },
        "x_changes": {"user": (torch.tensor([1, 1]), torch.rand(2, 5, dtype=torch.float64))},
    }
    small = GraphDelta(**delta).coalesce()
    assert small.edge_index_add[FOLLOWS].tolist() == [[3], [4]]
    assert small.edge_index_del[FOLLOWS].size(1) == 1
    assert small.x_changes["user"][0].tolist() == [1]
    twice = sides_of("different-convs", seed)
    twice.inc.apply_delta(small)
    sides.step(delta)
    assert_close(twice.inc.out, sides.inc.out)


def test_both_directions_type_by_type():
    delta = GraphDelta(edge_index_add={FOLLOWS: [[0], [1]]}, undirected=True)
    assert delta.both_directions().edge_index_add[FOLLOWS].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InvalidDeltaError, match="connects two kinds of nodes"):
        GraphDelta(edge_index_add={RATES: [[0], [1]]}, undirected=True).both_directions()


def test_softmax_states_join_however_far_apart_they_are():
    """Large negative logits in one graph, none or larger ones in the others."""
    logits = torch.tensor([[-900.0, -905.0], [3.0, 700.0]], dtype=torch.float64)
    values = torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=torch.float64)

    def state(graph):
        top = logits[graph].max()
        mass = torch.exp(logits[graph] - top)
        return torch.stack([(mass * values[graph]).sum(), mass.sum(), top]).view(1, 3)

    nothing = torch.zeros(1, 3, dtype=torch.float64)
    want = (logits.flatten().softmax(0) * values.flatten()).sum()
    assert_close(joined((state(0), state(1)), 1), want.view(1, 1))
    alone = (logits[0].softmax(0) * values[0]).sum().view(1, 1)
    assert_close(joined((state(0), nothing), 1), alone)
    assert_close(joined((nothing, nothing), 1), torch.zeros(1, 1, dtype=torch.float64))


def test_a_type_that_was_not_there_at_first(seed):
    """It is asked for by a line to write, with which nodes and edges of it come by deltas."""
    rng = generator(seed)
    torch.manual_seed(seed)
    first, later = ("a", "to", "b"), ("b", "to", "c")
    sage = SAGEConv((5, 5), 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing comes to 'a'
        model = HeteroConv({first: sage, later: SAGEConv((5, 5), 6)}).double().eval()
    x = {kind: torch.randn(9, 5).double() for kind in "ab"}
    edges = {first: torch.from_numpy(rng.integers(9, size=(2, 20)))}
    inc = to_incremental(model)
    inc(x, edges)
    pair = torch.tensor([[1], [0]])
    for delta, line in (
        ({"x_add": {"c": torch.ones(1, 5)}}, "'c': torch.empty(0, channels)"),
        ({"nodes_del": {"c": [0]}}, "'c': torch.empty(0, channels)"),
        ({"edge_index_add": {later: pair}}, f"{later!r}: torch.empty(2, 0, dtype=torch.int64)"),
    ):
        with pytest.raises(InvalidDeltaError) as raised:
            inc.apply_delta(**delta)
        assert f"call the model again with no rows of it, {{..., {line}}}" in str(raised.value)
        assert "args_dict" not in str(raised.value)
    x["c"], edges[later] = torch.empty(0, 5).double(), torch.empty(2, 0, dtype=torch.int64)
    inc(x, edges)
    for _ in range(6):
        new = torch.randn(2, 5).double()
        x["c"] = torch.cat([x["c"], new])
        ends = rng.integers(9, size=3), rng.integers(len(x["c"]), size=3)
        more = torch.from_numpy(np.stack(ends))
        edges[later] = torch.cat([edges[later], more], 1)
        inc.apply_delta(x_add={"c": new}, edge_index_add={later: more})
        with torch.no_grad():
            assert_close(inc.out, model(x, edges))
    assert inc.mode == "incremental"


class TwoFields(nn.Module):
    """Reads ids and features of one type of nodes."""

    def __init__(self):
        super().__init__()
        self.films, self.genres = nn.Embedding(6, CHANNELS), nn.Embedding(3, CHANNELS)
        self.conv = SAGEConv(CHANNELS, 4)

    def forward(self, data):
        films = self.films(data["film"].n_id) + self.genres(data["film"].x)
        return self.conv((data["user"].x, films), data["user", "rates", "film"].edge_index)


@pytest.mark.parametrize("fields", [("n_id", "x"), ("x", "n_id")])
def test_a_type_alone_means_its_x_in_whatever_order_fields_were_written(fields, seed):
    torch.manual_seed(seed)
    data = HeteroData()
    data["user"].x = torch.randn(5, CHANNELS, dtype=torch.float64)
    for name in fields:
        data["film"][name] = (
            torch.arange(6) if name == "n_id" else torch.zeros(6, dtype=torch.int64)
        )
    edges = torch.stack([torch.randint(5, (20,)), torch.randint(6, (20,))])
    data["user", "rates", "film"].edge_index = edges
    model = TwoFields().double().eval()
    inc = to_incremental(model)
    inc(data)
    inc.apply_delta(x_changes={"film": ([4], torch.tensor([2]))})
    data["film"].x[4] = 2
    with torch.no_grad():
        assert_close(inc.out, model(data))

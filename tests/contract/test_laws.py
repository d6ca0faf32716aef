"""The three laws.

A delta and its inverse give the start; a split delta equals the merged one; rows that no change can
reach stay bit-identical.
"""

import pytest
import torch

from pyg_incremental import GraphDelta, to_incremental
from tests.closeness import assert_close
from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, generator, make_world, node_rows
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_models import BASIC_CASES

NAMES = (
    "gcn-weights", "gcn-plain", "sage-mean", "sage-max", "sage-std", "gin-two-linears",
    "gat-heads", "gat-attr-mean", "graph-weights", "graph-max-weights",
)  # fmt: skip
TWO_INPUTS = ("edges-by-type", "edges-weight-and-attr", "edges-of-any-name")
MODELS = ("GCN-batch-norm", "GraphSAGE-max-norm-jk", "GIN-norm-jk", "GAT-attr", "GCN-weights")
CASES = [case for case in CONV_CASES if case.name in NAMES]
CASES += [case for case in BASIC_CASES if case.name in MODELS]
CASES += [case for case in EDGE_CASES if case.name in TWO_INPUTS]
# A removed node keeps its id, so adding nodes has no inverse as a delta of its own: see the docs.
INVERTIBLE = [
    name
    for name in DELTAS
    if name not in ("new_isolated_nodes", "new_nodes_with_edges", "new_node_changed_and_removed",
                    "mixed", "missing_ignored")
]  # fmt: skip


def edge_multiset(inc):
    """Edges with their data, without regard to order."""
    data = [inc.edge_data(name).reshape(inc.num_edges, -1) for name in inc.graph.edge_data]
    rows = torch.cat([inc.graph.to_edge_index().t().double(), *data], dim=1)
    return sorted(map(tuple, rows.tolist()))


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_delta_and_inverse_give_the_start(case, backend, seed):
    sides = SideBySide(case, seed=seed, backend=backend)
    inc = sides.inc
    for name in INVERTIBLE:
        delta = GraphDelta(**DELTAS[name](sides.world, sides.rng))
        inverse = delta.inverse(inc)
        x, edges, out = inc.x.clone(), edge_multiset(inc), inc.out.clone()
        inc.apply_delta(delta)
        inc.apply_delta(inverse)
        assert torch.equal(inc.x.nan_to_num(7.0), x.nan_to_num(7.0)), name
        assert edge_multiset(inc) == edges, name
        assert_close(inc.out, out, what=f"{name} and back")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_inverse_of_the_inverse(case, seed):
    sides = SideBySide(case, seed=seed)
    inc = sides.inc
    delta = GraphDelta(**DELTAS["undirected_mix"](sides.world, sides.rng))
    inverse = delta.inverse(inc)
    inc.apply_delta(delta)
    there, out = edge_multiset(inc), inc.out.clone()
    again = inverse.inverse(inc)
    inc.apply_delta(inverse)
    inc.apply_delta(again)
    assert edge_multiset(inc) == there
    assert_close(inc.out, out)


def split(delta):
    """One delta as several, in the documented order of its parts."""
    parts = [("x_add",), ("edge_index_del",)]
    parts += [("edge_index_add", "edge_weight_add", "edge_attr_add", "edge_data_add")]
    parts += [("x_changes",), ("edge_changes",), ("nodes_del",)]
    common = {key: delta[key] for key in ("undirected", "missing") if key in delta}
    for keys in parts:
        part = {key: delta[key] for key in keys if key in delta}
        if part:
            yield {**part, **common}


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_split_equals_merged(case, backend, seed):
    one = SideBySide(case, seed=seed, backend=backend)
    many = SideBySide(case, seed=seed, backend=backend, world=one.world.copy())
    for name in ("mixed", "new_node_changed_and_removed", "undirected_mix", "mixed"):
        delta = DELTAS[name](one.world, one.rng)
        one.step(delta, name)
        for part in split(delta):
            many.step(part, f"part of {name}")
        assert_close(one.inc.out, many.inc.out)
        assert torch.equal(one.inc.graph.to_edge_index(), many.inc.graph.to_edge_index())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_coalesced_equals_plain(case, seed):
    one = SideBySide(case, seed=seed)
    two = SideBySide(case, seed=seed, world=one.world.copy())
    for name in ("mixed", "duplicate_ids_in_x", "duplicate_edge_changes", "undirected_mix",
                 "delete_then_add", "new_node_changed_and_removed", "empty_arrays"):  # fmt: skip
        delta = DELTAS[name](one.world, one.rng)
        one.step(delta, name)
        two.inc.apply_delta(GraphDelta(**delta).coalesce())
        assert edge_multiset(one.inc) == edge_multiset(two.inc), name
        assert_close(one.inc.out, two.inc.out, what=name)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_out_of_reach_stay_bit_identical(case, backend, seed):
    """Two components: whatever happens in one, the other keeps every bit."""
    rng = generator(seed)
    left = make_world(rng, data=case.data)
    right = make_world(rng, data=case.data)
    shift = left.num_nodes
    pairs = left.pairs() + [(u + shift, v + shift) for u, v in right.pairs()]
    data = {name: torch.cat([left.edge_data(name), right.edge_data(name)]) for name in left.names}
    world = World(torch.cat([left.x, right.x]), pairs, data)
    model, _ = case.build(seed)
    inc = to_incremental(model, backend=backend)
    inputs = world.inputs()
    inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
    before = inc.out[shift : shift + right.num_nodes].clone()
    for name in ("change_features", "add_edges", "delete_edges", "change_hub", "remove_hub",
                 "grow_hub", "zero_degree", "nan_comes", "change_edge_data"):  # fmt: skip
        delta = DELTAS[name](left, rng)
        left.apply(**delta)
        update = inc.apply_delta(**delta)
        after = inc.out[shift : shift + right.num_nodes]
        assert torch.equal(bits(after), bits(before)), name
        assert not ((update.changed >= shift) & (update.changed < shift + len(before))).any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_further_away_than_the_layers_stay_bit_identical(case, seed):
    """On a long path a change travels as far as the model has layers, and GCN one edge more."""
    nodes = 20
    rng = generator(seed)
    pairs = [(v, v + 1) for v in range(nodes - 1)]
    full_world = make_world(rng, nodes=nodes, edges=nodes, data=case.data)
    data = {name: full_world.edge_data(name)[: len(pairs)] for name in full_world.names}
    world = World(node_rows(rng, nodes, CHANNELS, torch.float64), pairs, data)
    model, _ = case.build(seed)
    inc = to_incremental(model)
    inputs = world.inputs()
    inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
    layers = sum(module.__class__.__name__.endswith("Conv") for module in model.modules())
    before = inc.out.clone()
    inc.apply_delta(x_changes=(torch.tensor([5]), torch.ones(1, CHANNELS).double()))
    far = [v for v in range(nodes) if v < 5 or v > 5 + layers]
    assert torch.equal(bits(inc.out[far]), bits(before[far]))
    assert (inc.out[5] != before[5]).any() or case.name == "sage-std"


def bits(tensor):
    return tensor.contiguous().view(torch.int64)

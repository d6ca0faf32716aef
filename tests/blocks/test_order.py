"""Orders of nodes: each node once, the same result, fewer rows read."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import to_hetero

from pyg_incremental import InvalidDeltaError, StateFileError, evaluate
from pyg_incremental.blocks import order as orders
from pyg_incremental.blocks.evaluate import evaluator_of
from pyg_incremental.blocks.files import MANIFEST
from pyg_incremental.blocks.given import call_of
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.order import ORDERS, orders_of
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings
from tests.blocks.test_command import Two
from tests.blocks.test_evaluate import (
    CHANNELS,
    GAT,
    GCN,
    NODES,
    Data,
    GraphSAGE,
    full,
    graph,
    model_of,
    path,
)
from tests.blocks.test_files import killed_after
from tests.closeness import assert_close

PLENTY = 1 << 30


def roles_of(data, model=None):
    return classify(call_of(model or model_of(), data))


def rows_read(data, order, rows=64, memory=PLENTY):
    """Rows that blocks of so many nodes read in all layers, in an order."""
    site = call_of(model_of(GraphSAGE), data)
    roles = classify(site)
    with torch.no_grad():
        plan = prepare(site, roles, Settings())
        places = NodeOrder(orders_of(order, roles, memory))
        evaluator = evaluator_of(plan, roles, PLENTY, LayerStore(), None, None, rows, places)
        evaluator.run(lambda rows: None)
    return evaluator.read


def groups(seed, nodes=2000, each=50, degree=12):
    """Groups of nodes with most edges inside, under random names."""
    rng = np.random.default_rng(seed)
    dst = rng.integers(0, nodes, nodes * degree)
    inside = dst - dst % each + rng.integers(0, each, len(dst))
    src = np.where(rng.random(len(dst)) < 0.9, inside, rng.integers(0, nodes, len(dst)))
    name = rng.permutation(nodes)
    edges = torch.from_numpy(np.stack([name[src], name[dst]]))
    return Data(x=torch.randn(nodes, CHANNELS).double(), edge_index=edges)


def shuffled_path(seed):
    name = torch.from_numpy(np.random.default_rng(seed).permutation(NODES))
    edges = name[path(seed).edge_index]
    return Data(x=graph(seed).x, edge_index=torch.cat([edges, edges.flip(0)], 1))


@pytest.mark.parametrize("order", [*ORDERS, "ids"])
@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_the_result_is_in_the_order_of_ids(make, order, seed, tmp_path):
    data, model = graph(seed, 1000, 6000), model_of(make)
    if order == "ids":
        order = torch.from_numpy(np.random.default_rng(seed).permutation(1000))
    want = full(model, data)
    assert_close(evaluate(model, data, order=order, memory=500_000), want)
    rows = torch.empty(1000, 3, dtype=torch.float64)
    assert evaluate(model, data, order=order, out=rows) is rows
    assert_close(rows, want)
    ids = [7, 3, 999, 7]
    assert_close(evaluate(model, data, order=order, nodes=ids), want[ids])
    got = evaluate(model, data, order=order, directory=tmp_path / "all", memory=240_000)
    assert_close(got, want)
    assert np.array_equal(np.load(tmp_path / "all" / "out.npy"), got.numpy())
    part = evaluate(model, data, order=order, nodes=ids, directory=tmp_path / "part")
    assert_close(part, want[ids])
    held = np.load(tmp_path / "part" / "out.npy")  # ascending ids, whatever the order
    assert_close(torch.from_numpy(held), want[[3, 7, 999]])


@pytest.mark.parametrize("order", ORDERS)
def test_each_node_once(order, seed):
    for edges in (0, 1, 900):
        data = graph(seed, edges=edges)
        (found,) = orders_of(order, roles_of(data), PLENTY).values()
        assert np.array_equal(np.sort(found), np.arange(NODES))


def test_groups_share_what_they_read(seed):
    data = groups(seed)
    given = rows_read(data, None)
    order = np.random.default_rng(seed).permutation(data.num_nodes)
    assert rows_read(data, order) == pytest.approx(given, rel=0.05)
    assert rows_read(data, "communities") < 0.5 * given


def test_neighbours_on_a_path_share_what_they_read(seed):
    """A block of 64 nodes reads itself and two more."""
    data = shuffled_path(seed)
    blocks = 2 * (1 + (NODES - 1) // 64)
    assert rows_read(data, None) > 2 * 2 * NODES
    edges = data.edge_index.numpy()
    for order in ("rcm", orders.by_passes(lambda: iter([edges]), NODES, passes=NODES)):
        assert rows_read(data, order) <= 2 * NODES + 2 * blocks


def test_those_with_most_edges_come_first(seed):
    data = graph(seed)
    (found,) = orders_of("degree", roles_of(data), PLENTY).values()
    degree = data.edge_index[1].bincount(minlength=NODES)[found]
    assert (degree.diff() <= 0).all()


def test_a_graph_that_does_not_fit_is_read_in_passes(seed, monkeypatch):
    data = graph(seed)
    roles = roles_of(data)
    wanted = orders_of("rcm", roles, PLENTY)[""]
    monkeypatch.setattr(orders, "_both_ways", None)  # calling it fails
    monkeypatch.setattr(orders, "AT_ONCE", 100)
    memory = orders.PER_EDGE * data.num_edges - 1
    found = orders_of("rcm", roles, memory)[""]
    assert np.array_equal(np.sort(found), np.arange(NODES))
    read, by_scipy = rows_read(data, found), rows_read(data, wanted)
    assert read == pytest.approx(by_scipy, rel=0.05)
    with pytest.raises(MemoryError, match="order='communities' needs 64,000 bytes"):
        orders_of("communities", roles, memory)


def test_passes_are_limited(seed):
    """What they do not reach comes in the order of ids."""
    data = shuffled_path(seed)
    src, dst = data.edge_index.numpy()
    found = orders.by_passes(lambda: iter([(src, dst)]), NODES, passes=9)[::-1]
    assert np.array_equal(np.sort(found), np.arange(NODES))
    assert (np.diff(found[10:]) > 0).all()
    ends = {(a, b) for a, b in zip(src, dst, strict=True)}
    assert all((a, b) in ends for a, b in pairwise(found[:10]))


def bipartite(seed):
    """Users who buy within a group of items, under random names."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 600, 6000)
    item = rng.permutation(300)[user // 60 * 30 + rng.integers(0, 30, 6000)]
    edges = torch.from_numpy(np.stack([rng.permutation(600)[user], item]))
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(600, 4), torch.randn(300, 5)
    data["user", "buys", "item"].edge_index = edges
    data["item", "bought_by", "user"].edge_index = edges.flip(0)
    model = to_hetero(Two(), data.metadata()).eval()
    model(data.x_dict, data.edge_index_dict)
    return data, model


def test_one_order_for_several_kinds(seed):
    data, model = bipartite(seed)
    want = model(data.x_dict, data.edge_index_dict)
    site = call_of(model, data)
    roles = classify(site)
    with torch.no_grad():
        plan = prepare(site, roles, Settings())
        read = {}
        for order in (None, *ORDERS):
            places = NodeOrder(orders_of(order, roles, PLENTY))
            evaluator = evaluator_of(plan, roles, PLENTY, LayerStore(), None, None, 60, places)
            evaluator.run(lambda rows: None)
            read[order] = evaluator.read
            assert_close(evaluator.result(None), want)
    assert read["communities"] < 0.7 * read[None]
    own = {kind: torch.arange(n - 1, -1, -1) for kind, n in roles.num_nodes.items()}
    assert_close(evaluate(model, data, order=own, memory=210_000), want)
    with pytest.raises(InvalidDeltaError, match="order must be a dict by kind"):
        evaluate(model, data, order=own["user"])


def test_an_order_that_is_none(seed):
    data, model = graph(seed), model_of()
    for wrong in ([1, 2], torch.zeros(NODES).long(), torch.arange(NODES).double()):
        with pytest.raises(InvalidDeltaError, match="each of the 400 nodes once"):
            evaluate(model, data, order=wrong)
    with pytest.raises(InvalidDeltaError, match="order must be one of rcm, communities, degree"):
        evaluate(model, data, order="rabbit")


def test_a_killed_evaluation_goes_on_in_its_order(seed, tmp_path, monkeypatch):
    data, model = graph(seed, 1000, 6000), model_of(GraphSAGE)

    def run(order):
        return evaluate(model, data, directory=tmp_path, memory=120_000, order=order)

    killed_after(3, monkeypatch, lambda: run("rcm"))
    with pytest.raises(StateFileError, match="holds another evaluation"):
        run("degree")
    assert_close(run("rcm"), full(model, data))
    assert {path.name for path in tmp_path.iterdir()} == {"out.npy", MANIFEST}


def test_another_order_of_the_same_name_is_told(seed, tmp_path):
    """Reverse Cuthill-McKee order is another one where the graph does not fit in memory."""
    data, model = graph(seed, 1000, 6000), model_of()
    evaluate(model, data, directory=tmp_path, order="rcm")
    with pytest.raises(
        StateFileError,
        match=r"order is another .order='rcm' takes another one where memory= is too small",
    ):
        evaluate(model, data, directory=tmp_path, order="rcm", memory=120_000)


def test_a_node_that_does_not_fit_is_named_by_its_id(seed):
    star = torch.stack([torch.arange(NODES), torch.full((NODES,), 7)])
    data = Data(x=torch.randn(NODES, CHANNELS).double(), edge_index=star)
    with pytest.raises(MemoryError, match="the in-edges of node number 7 need"):
        evaluate(model_of(GraphSAGE), data, memory=40_000, order=torch.arange(NODES).flip(0))

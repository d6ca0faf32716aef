"""Small plain deltas go a way of their own: the same answers, the same work, the same refusals."""

import pytest
import torch
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    GCNConv,
    GINEConv,
    GraphSAGE,
    HypergraphConv,
    PDNConv,
    RGCNConv,
)

from pyg_incremental import GraphDelta, InvalidDeltaError, StaleStateError, to_incremental
from pyg_incremental.fused import run as machine
from pyg_incremental.session.at_once import FewChanges
from tests.closeness import assert_close
from tests.strategies import generator

N, CHANNELS = 200, 8
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 8, 2, 5),
    "sage": lambda: GraphSAGE(CHANNELS, 8, 2, 5),
    "sage-max": lambda: GraphSAGE(CHANNELS, 8, 2, 5, aggr="max"),
    "gin": lambda: GIN(CHANNELS, 8, 2, 5),
    "gat": lambda: GAT(CHANNELS, 8, 2, 5, heads=2),
}


def drawn(seed):
    rng = generator(seed)
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    return rng, x, torch.from_numpy(rng.integers(N, size=(2, 3 * N)))


def made(name, x, edges):
    torch.manual_seed(5)
    inc = to_incremental(MODELS[name]().double().eval(), compile_after=1, backend="compiled")
    inc(x, edges)
    for _ in range(2):  # the first lays the plan out, the second finds where everything is
        inc.apply_delta(edge_index_add=edges[:, :1])
    return inc


def plain_delta(rng, inc, size):
    """Edges that come, edges that leave, and features."""
    come = torch.from_numpy(rng.integers(N, size=(2, size)))
    edges = inc.graph.to_edge_index()
    gone = edges[:, torch.from_numpy(rng.permutation(edges.shape[1])[:size])]
    ids = torch.from_numpy(rng.permutation(N)[:size])
    return GraphDelta(come, gone, (ids, torch.from_numpy(rng.standard_normal((size, CHANNELS)))))


@pytest.fixture
def short(monkeypatch):
    """How often the short way was gone, to its end or not."""
    taken, apply = [], FewChanges.apply

    def counted(self, *given):
        update = apply(self, *given)
        taken.append(update is not None)
        return update

    monkeypatch.setattr(FewChanges, "apply", counted)
    return taken


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [1, 5, machine.FEW, machine.FEW + 1])
def test_the_same_as_the_longer_way(name, size, seed, short):
    rng, x, edges = drawn(seed)
    few, longer = made(name, x, edges), made(name, x, edges)
    longer._few = None
    short.clear()
    for _ in range(6):
        delta = plain_delta(rng, few, size)
        ours, theirs = few.apply_delta(delta), longer.apply_delta(delta)
        assert torch.equal(ours.changed, theirs.changed)
        assert torch.equal(ours.out, theirs.out)
        assert ours.stats.steps == theirs.stats.steps
        assert (ours.stats.edges_added, ours.stats.edges_deleted) == (size, size)
        assert ours.version == theirs.version == few.version
        assert torch.equal(few.out, longer.out)
        assert torch.equal(ours.out, few.out[ours.changed])
    assert short[1:] == [size <= machine.FEW] * 5  # the first one may find too little room
    assert few.verify() < 1e-9
    few.check()


@pytest.mark.parametrize("name", MODELS)
def test_nodes_that_arrive_too(name, seed, short):
    """Other deltas between and behind them, also where a store has to grow."""
    rng, x, edges = drawn(seed)
    few, longer = made(name, x, edges), made(name, x, edges)
    longer._few = None
    short.clear()
    for count in (1, 0, 3, 1, 0, machine.FEW, machine.FEW, 1, 0):
        n = few.num_nodes
        come = torch.from_numpy(rng.integers(n, size=(2, 3)))
        come[0] = torch.arange(n, n + 3) % (n + count)
        delta = GraphDelta(come, few.graph.to_edge_index()[:, :2])
        if count:
            rows = torch.from_numpy(rng.standard_normal((count, CHANNELS)))
            delta = GraphDelta(come, few.graph.to_edge_index()[:, :2], x_add=rows)
        ours, theirs = few.apply_delta(delta), longer.apply_delta(delta)
        assert few.num_nodes == longer.num_nodes == n + count
        assert torch.equal(ours.changed, theirs.changed)
        assert torch.equal(ours.out, theirs.out)
        assert ours.stats.steps == theirs.stats.steps
        assert torch.equal(few.out, longer.out)
        assert few.verify() < 1e-9
    assert sum(short) >= 6  # some find too little room for slots, or for lists
    few.check()


def by_name(delta):
    """The same fields, each by the names that the arguments of `forward` have."""
    edges = {name: getattr(delta, name) for name in ("edge_index_add", "edge_index_del")}
    found = {name: {"edge_index": value} for name, value in edges.items() if value is not None}
    for name in ("x_add", "x_changes"):
        if (value := getattr(delta, name)) is not None:
            found[name] = {"x": value}
    if (data := delta.edge_data_add) is not None:
        found["edge_data_add"] = {"edge_index": data}
    return found


@pytest.mark.parametrize("name", MODELS)
def test_what_is_said_by_name_goes_it_too(name, seed, short):
    rng, x, edges = drawn(seed)
    named, plain = made(name, x, edges), made(name, x, edges)
    for turn in range(5):
        delta = plain_delta(rng, named, 3)
        if turn % 2:
            new = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
            delta = GraphDelta(delta.edge_index_add, delta.edge_index_del, x_add=new)
        short.clear()
        ours = named.apply_delta(**by_name(delta))
        theirs = plain.apply_delta(delta)
        assert len(short) == 2
        assert short[0] == short[1]
        assert torch.equal(ours.changed, theirs.changed)
        assert torch.equal(named.out, plain.out)
        assert torch.equal(named.x, plain.x)
    with pytest.raises(InvalidDeltaError, match="there is no 'y'"):
        named.apply_delta(x_changes={"y": (torch.tensor([1]), x[:1])})
    assert named.verify() < 1e-9
    named.check()


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_one_field_by_name_and_another_without(backend, seed):
    rng, x, edges = drawn(seed)
    model = GINEConv(torch.nn.Linear(CHANNELS, 5), edge_dim=3).double().eval()
    inc = to_incremental(model, compile_after=1, backend=backend)
    data = attributes(rng, edges.shape[1])
    inc(x, edges, **data)
    inc.apply_delta(edge_index_del=edges[:, :1])
    come, more = torch.from_numpy(rng.integers(N, size=(2, 2))), attributes(rng, 2)
    name = "edge_index"
    for delta in (
        {"edge_index_add": {name: come}, "edge_data_add": more, "edge_index_del": edges[:, 1:2]},
        {"edge_index_add": come, "edge_data_add": {name: more}, "edge_index_del": {name: come}},
        {"edge_index_add": {name: come}, **{f"{key}_add": rows for key, rows in more.items()}},
    ):
        inc.apply_delta(**delta)
        state = inc.graph.state()
        assert_close(inc.out, model(inc.x, state.pop("edge_index"), **state))
    assert inc.graph.num_edges == 3 * N - 2 + 2 + 2
    version = inc.version
    for delta in (
        {"edge_index_add": {"edges": come}, "edge_data_add": more},
        {"nodes_del": torch.tensor([3]), "edge_data_add": more},  # data of edges that do not come
        {"nodes_del": torch.tensor([3]), "edge_attr_add": more["edge_attr"]},
    ):
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(**delta)
    assert inc.version == version


@pytest.mark.parametrize(
    "delta",
    [
        GraphDelta(
            torch.tensor([[N], [N + 1]]), x_add=torch.zeros(1, CHANNELS, dtype=torch.float64)
        ),
        GraphDelta(edge_index_add=torch.tensor([[0], [N]])),
        GraphDelta(edge_index_del=torch.tensor([[0, 0], [0, 0]])),
        GraphDelta(x_changes=(torch.tensor([-1]), torch.zeros(1, CHANNELS).double())),
    ],
    ids=["end of an edge of a new node", "end", "missing", "id"],
)
def test_what_is_refused_changes_nothing(delta, seed, short):
    _, x, edges = drawn(seed)
    inc = made("sage", x, edges[:, (edges != 0).all(0)])
    out, version = inc.out.clone(), inc.version
    short.clear()
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(delta)
    assert short == [False]
    assert inc.version == version
    assert torch.equal(inc.out, out)
    inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]))
    assert short == [False, True]
    inc.check()


def test_rows_of_the_store_itself(seed, short):
    """They are read before they are written."""
    _, x, edges = drawn(seed)
    inc = made("sage", x, edges)
    short.clear()
    inc.apply_delta(x_changes=(torch.tensor([0, 1]), inc.x[1:3]))
    assert short == [False]
    assert_close(inc.x[:2], x[1:3])
    assert inc.verify() < 1e-9


def test_results_are_the_callers(seed, short):
    rng, x, edges = drawn(seed)
    inc = made("sage", x, edges)
    held = []
    short.clear()
    for _ in range(4):
        update = inc.apply_delta(
            x_changes=(torch.tensor([3]), torch.from_numpy(rng.standard_normal((1, CHANNELS))))
        )
        held.append((update, update.changed.clone(), update.out.clone()))
    assert short == [True] * 4
    for update, changed, out in held:
        assert torch.equal(update.changed, changed)
        assert torch.equal(update.out, out)


def test_what_fails_is_taken_back(seed, short, monkeypatch):
    _, x, edges = drawn(seed)
    inc = made("gcn", x, edges)
    out, version = inc.out.clone(), inc.version

    def out_of_memory(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(machine, "update", out_of_memory)
        with pytest.raises(MemoryError):
            inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]))
    short.clear()
    assert inc.version == version
    assert_close(inc.out, out)  # it was computed anew
    for _ in range(3):
        inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]))
    assert short == [True, True]  # behind the first one, which lays the plan out anew
    assert inc.verify() < 1e-9


def test_names_of_deltas_and_stale_states(seed, short):
    _, x, edges = drawn(seed)
    inc = made("gin", x, edges)
    short.clear()
    one = torch.tensor([[1], [2]])
    assert not inc.apply_delta(edge_index_add=one, delta_id="a").repeated
    assert inc.apply_delta(edge_index_add=one, delta_id="a").repeated
    assert short == [True]
    with torch.no_grad():
        next(inc.model.parameters()).add_(1)
    with pytest.raises(StaleStateError):
        inc.apply_delta(edge_index_add=one)
    assert short == [True]


def test_who_asks_for_old_rows_gets_them(seed, short):
    rng, x, edges = drawn(seed)
    inc = made("sage", x, edges)
    short.clear()
    for turn in range(3):
        out = inc.out.clone()
        rows = torch.from_numpy(rng.standard_normal((1, CHANNELS)))
        update = inc.apply_delta(x_changes=(torch.tensor([turn]), rows), old=turn == 1)
        if turn == 1:
            assert torch.equal(update.old, out[update.changed])
    assert short == [True]  # from the second on the longer way keeps the old output, too


# Edges with data ##################################################################################


def attributes(rng, count):
    return {"edge_attr": torch.from_numpy(rng.standard_normal((count, 3)))}


def weights(rng, count):
    return {"edge_weight": torch.from_numpy(rng.random(count))}


def kinds(rng, count):
    return {"edge_type": torch.from_numpy(rng.integers(0, 3, count))}


WITH_DATA = {
    "read as they are": (lambda: GINEConv(torch.nn.Linear(CHANNELS, 5), edge_dim=3), attributes),
    "with maps": (lambda: PDNConv(CHANNELS, 5, edge_dim=3, hidden_channels=4), attributes),
    "with loops": (lambda: GCNConv(CHANNELS, 5), weights),
    "with maps in torch": (lambda: RGCNConv(CHANNELS, 5, 3), kinds),
}


@pytest.mark.parametrize("name", WITH_DATA)
def test_edges_with_data(name, seed, short):
    make, data = WITH_DATA[name]
    rng, x, edges = drawn(seed)
    torch.manual_seed(5)
    model, both = make().double().eval(), []
    given = data(rng, edges.shape[1])
    for _ in range(2):
        both.append(to_incremental(model, compile_after=1, backend="compiled"))
        both[-1](x, edges, **given)
        for way in ("edge_index_del", "x_changes"):
            one = edges[:, :1] if way == "edge_index_del" else (torch.tensor([1]), x[:1])
            both[-1].apply_delta(**{way: one})
    few, longer = both
    longer._few = None
    short.clear()
    for size in (1, 2, 1, 5, 1):
        plain = plain_delta(rng, few, size)
        more = {"edge_data_add": data(rng, size)}
        for delta in (
            {"edge_index_add": plain.edge_index_add, **more},
            {"edge_index_del": plain.edge_index_del},
            {"x_changes": plain.x_changes},
            {"edge_index_add": torch.tensor([[4], [4]]), "edge_data_add": data(rng, 1)},
            by_name(GraphDelta(plain.edge_index_del, **more)),
        ):
            ours, theirs = few.apply_delta(**delta), longer.apply_delta(**delta)
            assert torch.equal(ours.changed, theirs.changed)
            assert torch.equal(ours.out, theirs.out)
            assert {s[:6] for s in ours.stats.steps} == {s[:6] for s in theirs.stats.steps}
            state = few.graph.state()
            assert_close(few.out, model(few.x, state.pop("edge_index"), **state))
    assert sum(short) >= 23  # some find too little room
    few.check()


def test_data_of_edges_that_are_refused(seed, short):
    """It was written to slots that nobody looks at."""
    rng, x, edges = drawn(seed)
    torch.manual_seed(5)
    inc = to_incremental(RGCNConv(CHANNELS, 5, 3).double().eval(), compile_after=1)
    inc(x, edges, **kinds(rng, edges.shape[1]))
    for _ in range(2):
        inc.apply_delta(edge_index_del=inc.graph.to_edge_index()[:, :2])
    digest, out = inc.state_digest(), inc.out.clone()
    short.clear()
    kind = {"edge_type": torch.tensor([1])}
    for bad in (torch.tensor([[0], [N]]), torch.tensor([[-1], [0]])):
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(bad, edge_data_add=kind)
    assert inc.state_digest() == digest
    with pytest.raises(IndexError, match="names relation"):
        inc.apply_delta(torch.tensor([[0], [1]]), edge_data_add={"edge_type": torch.tensor([3])})
    assert_close(inc.out, out)
    assert short == [False, False]
    inc.apply_delta(torch.tensor([[0], [1]]), edge_data_add=kind)
    assert inc.verify() < 1e-12
    assert not inc.check()


HYPEREDGES = 50


def hyper(seed):
    """A hypergraph whose hyperedges are fewer than its nodes."""
    rng = generator(seed)
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    index = torch.from_numpy(rng.integers((N, HYPEREDGES), size=(3 * N, 2)).T.copy())
    index[1, 0] = HYPEREDGES - 1
    torch.manual_seed(5)
    model = HypergraphConv(CHANNELS, 5).double().eval()
    inc = to_incremental(model, compile_after=1, backend="compiled")
    inc(x, index)
    for _ in range(2):
        inc.apply_delta(edge_index_add=index[:, :1])
    return rng, inc, model


def test_nodes_that_come_to_hyperedges_and_leave_them(seed, short):
    rng, inc, model = hyper(seed)
    short.clear()
    for _ in range(6):
        come = torch.from_numpy(rng.integers((N, HYPEREDGES), size=(4, 2)).T.copy())
        index = inc.graph.to_edge_index()
        ids = torch.from_numpy(rng.permutation(N)[:3])
        gone = index[:, torch.from_numpy(rng.permutation(index.shape[1])[:4])]
        rows = torch.from_numpy(rng.standard_normal((3, CHANNELS)))
        up = inc.apply_delta(come, gone, (ids, rows))
        assert torch.equal(up.out, inc.out[up.changed])
        assert_close(inc.out, model(inc.x, inc.graph.to_edge_index()))
    assert short[1:] == [True] * 5
    inc.check()


@pytest.mark.parametrize("many", [1, 3])
def test_a_hyperedge_that_is_new_goes_the_longer_way(many, seed, short):
    """Its id is that of a node, so that it looks like one that is there."""
    _, inc, model = hyper(seed)
    short.clear()
    inc.apply_delta(edge_index_add=torch.tensor([[3], [HYPEREDGES]]).repeat(1, many))
    assert not any(short)
    assert_close(inc.out, model(inc.x, inc.graph.to_edge_index()))
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(edge_index_add=torch.tensor([[N], [3]]))
    with pytest.raises(InvalidDeltaError, match="undirected"):
        inc.apply_delta(edge_index_add=torch.tensor([[3], [4]]), undirected=True)
    inc.check()

"""Series, rows of more dimensions, lists of graphs, graphs that a model holds, sparse rows.

Each is held against the model itself, called with the user's own kind of argument.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, HeteroLinear, LGConv, SAGEConv

from pyg_incremental import IncrementalWarning, InvalidDeltaError, load, to_incremental
from pyg_incremental.errors import UnsupportedModelError
from tests.closeness import assert_close
from tests.strategies import generator

NODES, EDGES, STEPS = 30, 80, 4


class World:
    """Rows `[n, ...]` and edges, changed as a user would change their own."""

    def __init__(self, seed, *tail):
        self.rng = generator(seed)
        torch.manual_seed(int(self.rng.integers(1 << 30)))
        self.x = torch.randn(NODES, *tail, dtype=torch.float64)
        self.e = torch.from_numpy(self.rng.integers(NODES, size=(2, EDGES)))

    def delta(self, grows=True, rows=True, leave=True):
        """Some fields of a delta, which this world takes as well."""
        rng, fields = self.rng, {}
        if grows and rng.random() < 0.4:
            new = torch.randn(int(rng.integers(1, 3)), *self.x.shape[1:], dtype=self.x.dtype)
            self.x, fields["x_add"] = torch.cat([self.x, new]), new
        if rng.random() < 0.6:
            at = np.unique(rng.integers(self.e.shape[1], size=2))
            pairs = self.e[:, at]
            keep = np.ones(self.e.shape[1], bool)
            for u, v in pairs.T.tolist():  # the youngest that is left
                same = (self.e[0] == u) & (self.e[1] == v) & torch.from_numpy(keep)
                keep[int(same.nonzero()[-1])] = False
            self.e, fields["edge_index_del"] = self.e[:, keep], pairs
        new = torch.from_numpy(rng.integers(len(self.x), size=(2, int(rng.integers(1, 4)))))
        self.e, fields["edge_index_add"] = torch.cat([self.e, new], 1), new
        if rows and rng.random() < 0.6:
            ids = torch.from_numpy(np.unique(rng.integers(len(self.x), size=2)))
            given = torch.randn(len(ids), *self.x.shape[1:], dtype=self.x.dtype)
            self.x = self.x.index_copy(0, ids, given)
            if "x_add" not in fields or int(ids.max()) < len(self.x) - len(fields["x_add"]):
                fields["x_changes"] = ids, given
            else:  # rows of new nodes are given once
                first = len(self.x) - len(fields["x_add"])
                fields["x_add"] = self.x[first:]
                old = ids < first
                fields["x_changes"] = ids[old], given[old]
        return fields


class Attend(nn.Module):
    """A conv for each step, weighed."""

    def __init__(self):
        super().__init__()
        self.conv, self.weigh = GCNConv(3, 4), nn.Parameter(torch.rand(STEPS))

    def forward(self, x, edge_index):
        weights = self.weigh.softmax(0)
        return sum(w * self.conv(x[..., t], edge_index).tanh() for t, w in enumerate(weights))


class Recurrent(nn.Module):
    def __init__(self, kind, read, **options):
        super().__init__()
        self.layer = getattr(nn, kind)(3, 5, batch_first=True, **options)
        self.read, self.conv = read, SAGEConv(-1, 4)

    def forward(self, x, edge_index):
        return self.conv(self.read(*self.layer(x.transpose(1, 2))), edge_index)


class Module(nn.Module):
    def __init__(self, layer, read):
        super().__init__()
        self.layer, self.read, self.conv = layer, read, SAGEConv(-1, 4)

    def forward(self, x, edge_index):
        return self.conv(self.read(self.layer(x)), edge_index)


def encoder(**options):
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(STEPS, 2, 8, batch_first=True, **options),
        2,
        enable_nested_tensor=False,
    )


SERIES = {
    "steps": Attend,
    "all steps": lambda: Recurrent("LSTM", lambda out, _: out[:, -1]),
    "hidden state": lambda: Recurrent("LSTM", lambda _, states: states[0][-1]),
    "cell": lambda: Recurrent("LSTM", lambda _, states: states[1][0]),
    "squeezed": lambda: Recurrent("GRU", lambda _, h: h.squeeze(0)),
    "layers": lambda: Recurrent("GRU", lambda _, h: h[-1], num_layers=2),
    "both ways": lambda: Recurrent(
        "RNN", lambda _, h: torch.cat([h[-2], h[-1]], -1), bidirectional=True
    ),
    "convolution": lambda: Module(nn.Conv1d(3, 5, 2), lambda h: h.relu().amax(-1)),
    "attention": lambda: Module(encoder(), lambda h: h.mean(1)),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", SERIES)
def test_series_of_each_node(name, seed):
    torch.manual_seed(0)
    world, model = World([seed, len(name)], 3, STEPS), SERIES[name]().double()
    with torch.no_grad():
        model(world.x, world.e)
    inc = to_incremental(model.eval(), compile_after=2)
    assert_close(inc(world.x, world.e), model(world.x, world.e))
    assert inc.mode == "incremental"
    for _ in range(6):
        up = inc.apply_delta(**world.delta())
        assert_close(inc.out, model(world.x, world.e))
    assert sum(s.rows for s in up.stats if s.kind == "map") < 8 * len(world.x)


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.conv = HeteroLinear(3, 5, 3), SAGEConv(5, 4)

    def forward(self, x, edge_index, node_type):
        return self.conv(self.lin(x, node_type), edge_index)


def test_a_layer_for_each_type_of_nodes(seed):
    world, model = World(seed, 3), Typed().double().eval()
    kinds = torch.from_numpy(world.rng.integers(3, size=NODES))
    inc = to_incremental(model, compile_after=2)
    inc(world.x, world.e, kinds)
    assert inc.mode == "incremental"
    for turn in range(5):
        fields = world.delta(grows=False)
        rows = {"x": fields.pop("x_changes", ([], world.x[:0]))}
        kinds = kinds.clone()
        kinds[turn] = (kinds[turn] + 1) % 3
        rows["node_type"] = [turn], kinds[turn : turn + 1]
        inc.apply_delta(**fields, x_changes=rows)
        assert_close(inc.out, model(world.x, world.e, kinds))


def test_states_that_are_put_together_run_on_all_rows():
    world = World(1, 3, STEPS)
    model = Recurrent("GRU", lambda _, h: h.sum(0)).double()
    model(world.x, world.e)
    inc = to_incremental(model.eval())
    with pytest.warns(IncrementalWarning, match="one row for each input row"):
        inc(world.x, world.e)
    inc.apply_delta(**world.delta())
    assert_close(inc.out, model(world.x, world.e))


class Static(nn.Module):
    """A model on each entry of a batch, as the error about static graphs writes it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, edge_index):
        return torch.stack([self.model(x[:, b], edge_index) for b in range(x.size(1))], 1)


@pytest.mark.parametrize("kind", [Attend, lambda: GCNConv(3, 4)])
def test_static_graphs_are_followed_as_the_error_says(kind, seed):
    tail = (3, STEPS) if kind is Attend else (3,)
    world, model = World(seed, 2, *tail), kind().double().eval()
    with pytest.raises(UnsupportedModelError, match=r"x\.transpose\(0, 1\)"):
        to_incremental(model)(world.x.transpose(0, 1), world.e)
    inc = to_incremental(Static(model).eval())
    inc(world.x, world.e)
    assert inc.mode == "incremental"
    for _ in range(6):
        inc.apply_delta(**world.delta())
        with torch.no_grad():
            each = torch.stack([model(rows, world.e) for rows in world.x.transpose(0, 1)])
            assert_close(inc.out.transpose(0, 1), each)


def test_rows_of_more_dimensions_are_asked_for():
    world, model = World(0, 3, STEPS), Attend().double().eval()
    inc = to_incremental(model)
    with pytest.raises(UnsupportedModelError, match=r"\[num_nodes, batch, channels\]"):
        inc(world.x[None].expand(2, -1, -1, -1), world.e)
    many = torch.randn(NODES, 2 * NODES, STEPS, dtype=torch.float64)
    with pytest.raises(InvalidDeltaError, match=r"roles=\{'x': 'node'\}"):
        inc(many, world.e)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(2 * NODES, 3)

        def forward(self, x, edge_index):
            return self.conv(x.mean(-1), edge_index)

    model = Wide().double().eval()
    inc = to_incremental(model, roles={"x": "node"})
    assert_close(inc(many, world.e), model(many, world.e))


class Window(nn.Module):
    """A state that goes from snapshot to snapshot."""

    def __init__(self):
        super().__init__()
        self.conv, self.cell = GCNConv(3, 4), nn.GRUCell(4, 4)

    def forward(self, xs, edge_indices):
        h = xs[0].new_zeros(xs[0].size(0), 4)
        for x, edge_index in zip(xs, edge_indices, strict=True):
            h = self.cell(self.conv(x, edge_index).relu(), h)
        return h


class OneX(Window):
    def forward(self, x, edge_indices):
        return super().forward([x] * len(edge_indices), edge_indices)


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_lists_of_snapshots(count, kind, seed, tmp_path):
    worlds = [World([seed, count, i], 3) for i in range(count)]
    model = Window().double().eval()
    inc = to_incremental(model, compile_after=2)

    def given():
        return kind(w.x for w in worlds), kind(w.e for w in worlds)

    assert_close(inc(*given()), model(*given()))
    assert inc.mode == "incremental"
    for turn in range(5):
        at = turn % count
        fields = worlds[at].delta(grows=False)
        graph, rows = f"edge_indices[{at}]", fields.pop("x_changes", None)
        if rows is not None:
            rows = {f"xs[{at}]": rows}
        inc.apply_delta(**{k: {graph: v} for k, v in fields.items()}, x_changes=rows)
        assert_close(inc.out, model(*given()))
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    assert torch.equal(again.out, inc.out)
    new = torch.randint(NODES, (2, 3))
    worlds[0].e = torch.cat([worlds[0].e, new], 1)
    again.apply_delta(edge_index_add={"edge_indices[0]": new})
    assert_close(again.out, model(*given()))


def test_a_list_of_graphs_beside_one_set_of_nodes():
    worlds = [World([5, i], 3) for i in range(2)]
    model = OneX().double().eval()
    inc, x = to_incremental(model), worlds[0].x
    inc(x, [w.e for w in worlds])
    fields = worlds[1].delta(grows=False, rows=False)
    inc.apply_delta(**{k: {"edge_indices[1]": v} for k, v in fields.items()})
    assert_close(inc.out, model(x, [w.e for w in worlds]))
    assert inc.mode == "incremental"


def test_a_list_of_objects():
    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 4)

        def forward(self, snapshots):
            return [self.conv(d.x, d.edge_index) for d in snapshots]

    worlds, model = [World([6, i], 3) for i in range(3)], Apart().double().eval()

    def given():
        return [Data(x=w.x, edge_index=w.e) for w in worlds]

    inc = to_incremental(model)
    inc(given())
    fields = worlds[2].delta(grows=False, rows=False)
    inc.apply_delta(**{k: {("snapshots[2]",) * 2: v} for k, v in fields.items()})
    for ours, theirs in zip(inc.out, model(given()), strict=True):
        assert_close(ours, theirs)
    assert inc.mode == "incremental"


class Recommender(nn.Module):
    """The graph is the model's own."""

    def __init__(self, edge_index, weight=None):
        super().__init__()
        self.table, self.conv, self.edge_weight = nn.Embedding(NODES, 4), LGConv(), weight
        self.register_buffer("edge_index", edge_index)

    def forward(self, users=None):
        h = self.conv(self.table.weight, self.edge_index, self.edge_weight)
        return h if users is None else h[users].sum(-1)


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_graph_that_the_model_holds(weighted, asks, seed, tmp_path):
    world = World(seed, 3)
    weight = torch.rand(EDGES, dtype=torch.float64) if weighted else None
    model = Recommender(world.e, weight).double().eval()
    given = (torch.tensor([3, 1, 4]),) if asks else ()
    inc = to_incremental(model)
    first = world.e
    assert_close(inc(*given), model(*given))
    assert inc.mode == "incremental"
    for _ in range(5):
        fields, before = world.delta(grows=False, rows=False), weight
        if weighted:
            more = torch.rand(fields["edge_index_add"].shape[1], dtype=torch.float64)
            fields["edge_weight_add"] = more
        inc.apply_delta(**fields)
        assert model.edge_index is first
        assert model.edge_weight is before
        own = Recommender(world.e, inc.edge_data("edge_weight") if weighted else None)
        own.table = model.table
        assert_close(inc.out, own(*given))
    assert inc.verify() < 1e-12
    assert inc.stale is None
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    assert_close(again.out, inc.out, 0)
    for now in (again, inc):
        now.apply_delta(edge_index_del=world.e[:, :1], which="oldest")
    assert_close(again.out, inc.out)
    assert again.verify() < 1e-12


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(6, 5), GATConv(5, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Looks(Sparse):
    """Does something else with rows that are not sparse."""

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        return h.relu() if x.is_sparse else h.tanh()


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("model", [Sparse, Looks])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features(layout, model, seed, tmp_path):
    world = World(seed, 6)
    world.x = world.x * (world.x > 0.5)
    made = model().double().eval()
    inc = to_incremental(made)

    def given():
        return world.x.to_sparse(layout=layout), world.e

    assert_close(inc(*given()), made(*given()))
    for _ in range(4):
        inc.apply_delta(**world.delta())
        assert_close(inc.out, made(*given()))
    looks = model is Looks and layout is torch.sparse_coo
    assert inc.mode == ("full pass" if looks else "incremental")
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", made)
    again.apply_delta(**world.delta())
    assert_close(again.out, made(*given()))
    assert again.mode == inc.mode


class Named(nn.Module):
    """A conv for each of several graphs of the same nodes, by name."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleDict({"follows": GCNConv(3, 4), "blocks": SAGEConv(3, 4)})

    def forward(self, x, graphs):
        return sum(self.convs[name](x, graph) for name, graph in graphs.items())


def test_graphs_in_a_dict(seed, tmp_path):
    world, model = World(seed, 3), Named().double().eval()
    graphs = {"follows": world.e, "blocks": torch.randint(NODES, (2, 50))}
    inc = to_incremental(model)
    inc(world.x, graphs)
    assert inc.mode == "incremental"
    for step in range(6):
        fields = world.delta(grows=False)
        name = ["follows", "blocks"][step % 2]
        key = f"graphs['{name}']"
        new = torch.randint(NODES, (2, 2))
        graphs[name] = torch.cat([graphs[name], new], 1)
        more = {"x_changes": fields["x_changes"]} if "x_changes" in fields else {}
        inc.apply_delta(edge_index_add={key: new}, **more)
        with torch.no_grad():
            assert_close(inc.out, model(world.x, graphs))
    with pytest.raises(InvalidDeltaError, match=r"graphs\['follows'\]"):
        inc.apply_delta(edge_index_add={"follows": new})
    inc.save(tmp_path / "state")
    assert torch.equal(load(tmp_path / "state", model).out, inc.out)

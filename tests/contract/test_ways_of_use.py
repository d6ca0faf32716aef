"""Ways in which a wrapped model is used: modes of autograd, several wrappers, other inputs."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GCNConv, SAGEConv

from pyg_incremental import GraphDelta, IncrementalWarning, StaleStateError, load, to_incremental
from tests.closeness import assert_close, rows_that_differ
from tests.oracle import World, full
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS, generator, make_world
from tests.zoo import CHANNELS, MIXED
from tests.zoo_edges import EDGE_CASES
from tests.zoo_models import HIDDEN, MODEL_CASES

ADD = torch.tensor([[0], [2]])


def start(seed=0, **options):
    torch.manual_seed(seed)
    model = GCN(CHANNELS, 6, 2, 3, norm="batch").double().eval()
    world = make_world(generator(seed))
    inc = to_incremental(model, **options)
    return inc, model, world


def walk(inc, model, world, seed, names=("mixed", "change_features", "mixed")):
    rng = generator(seed)
    for name in names:
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta)
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("inside", ["first pass", "updates", "both"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_modes_of_autograd(mode, inside):
    inc, model, world = start()
    plain = torch.enable_grad
    with (mode if inside != "updates" else plain)():
        out = inc(**world.inputs())
    with (mode if inside != "first pass" else plain)():
        walk(inc, model, world, 1)
        inc.refresh()
    walk(inc, model, world, 2)
    assert not out.requires_grad
    assert not inc.out.requires_grad


def test_inputs_that_require_grad():
    inc, model, world = start()
    inputs = world.inputs()
    inputs["x"].requires_grad_()
    out = inc(**inputs)
    assert not out.requires_grad
    row = torch.ones(1, CHANNELS).double().requires_grad_()
    inc.apply_delta(x_changes=(torch.tensor([1]), row))
    world.apply(x_changes=(torch.tensor([1]), row.detach()))
    assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("how", ["reference", "compiled", "at once"])
@pytest.mark.parametrize("ids", [[3, 4, 5], [4, 3, 2], [0, 4, 8]])
def test_rows_of_the_store_as_new_rows(how, ids, seed):
    """`inc.x` is a view of what is stored: rows that are read must not be written over before."""
    options = {
        "reference": {"backend": "reference"},
        "compiled": {"backend": "compiled", "compile_after": None},
        "at once": {"backend": "compiled", "compile_after": 1},
    }[how]
    inc, model, world = start(seed, **options)
    inc(**world.inputs())
    for given in (inc.x[2:5], inc.x[1:7:2], inc.x[:3]):
        world.apply(x_changes=(torch.tensor(ids), given.clone()))
        inc.apply_delta(x_changes=(torch.tensor(ids), given))
        assert torch.equal(inc.x, world.inputs()["x"])
        assert_close(inc.out, full(model, world))


@pytest.mark.parametrize("compile_after", [None, 1])
def test_a_delta_object_costs_and_does_the_same(compile_after, seed):
    inc, model, world = start(seed, compile_after=compile_after)
    other, _, _ = start(seed, compile_after=compile_after)
    inc(**world.inputs())
    other(**world.inputs())
    for i in range(3):
        delta = {"edge_index_add": ADD, "x_changes": ([i], torch.randn(1, CHANNELS).double())}
        world.apply(**delta)
        stats = inc.apply_delta(GraphDelta(**delta)).stats
        assert stats.steps == other.apply_delta(**delta).stats.steps
        assert_close(inc.out, full(model, world))
    assert inc.state_digest() == other.state_digest()


@pytest.mark.parametrize("compile_after", [None, 1])
def test_edges_that_come_and_go_for_long_take_no_more_memory(compile_after, seed):
    """Room that edges leave is used again, however they leave: in pairs, or with a node."""
    inc, model, world = start(seed, compile_after=compile_after)
    inc(**world.inputs())
    pair, node = torch.tensor([[0, 3], [2, 3]]), torch.tensor([4])
    held = []
    for _ in range(60):
        for delta in (
            {"edge_index_add": pair},
            {"edge_index_del": pair},
            {"edge_index_add": torch.tensor([[0, 1, 2], [4, 4, 4]])},
            {"nodes_del": node},
        ):
            world.apply(**delta)
            inc.apply_delta(**delta)
        held.append(inc.memory_report().total)
    assert held[-1] == held[1], held
    assert_close(inc.out, full(model, world))


def test_two_wrappers_of_one_model_do_not_meet():
    one, model, world = start()
    two = to_incremental(model)
    other = make_world(generator(5), nodes=9)
    one(**world.inputs())
    two(**other.inputs())
    for seed in range(4):
        walk(one, model, world, seed, ["mixed"])
        walk(two, model, other, seed + 10, ["mixed"])


def test_one_wrapper_on_one_graph_after_another():
    inc, model, world = start()
    for seed in range(3):
        world = make_world(generator(seed), nodes=8 + seed)
        inc(**world.inputs())
        walk(inc, model, world, seed)


def test_the_first_pass_may_change_format_and_inputs():
    torch.manual_seed(0)
    model = GCN(CHANNELS, 6, 2, 3).double().eval()
    inc = to_incremental(model)
    for fmt, data in (("coo", ()), ("csr", (("edge_weight", None),)),
                      ("coo", (("edge_weight", None),)), ("edge_index_by_col", ())):  # fmt: skip
        world = make_world(generator(1), fmt=fmt, data=data)
        inputs = world.inputs()
        inc(inputs.pop("x"), inputs.pop("edge_index"), **inputs)
        walk(inc, model, world, 3)


def test_the_dtype_may_change_with_a_new_first_pass():
    inc, model, world = start()
    inc(**world.inputs())
    model.float()
    world = make_world(generator(0), dtype=torch.float32)
    inc(**world.inputs())
    walk(inc, model, world, 1)
    assert inc.out.dtype == torch.float32


def test_refresh_of_some_rows_is_not_enough_after_training():
    """The other rows would still be those of the old parameters."""
    inc, model, world = start()
    inc(**world.inputs())
    with torch.no_grad():
        model.convs[0].lin.weight.mul_(2)
    try:
        inc.refresh([1])
    except StaleStateError:
        inc.refresh()
    assert_close(inc.out, full(model, world))


def test_training_and_updates_take_turns():
    inc, model, world = start()
    inc(**world.inputs())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for seed in range(3):
        model.train()
        inputs = world.inputs()
        loss = model(inputs["x"], inputs["edge_index"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        inc.refresh()
        walk(inc, model, world, seed)


def test_the_model_itself_stays_usable():
    inc, model, world = start()
    twin = copy.deepcopy(model)
    inc(**world.inputs())
    walk(inc, twin, world, 1)
    assert_close(full(model, world), full(twin, world), tolerance=0)
    assert type(model) is GCN
    assert list(model.state_dict()) == list(twin.state_dict())
    out = model.train()(**world.inputs())
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("shape", [(), (1,)], ids=["flat", "column"])
def test_ids_as_features(shape):
    """Integer features that an embedding reads."""

    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding(7, CHANNELS)
            self.conv = SAGEConv(CHANNELS, 3)

        def forward(self, x, edge_index):
            return self.conv(self.rows(x.squeeze(-1) if shape else x), edge_index)

    torch.manual_seed(0)
    model = Embedded().double().eval()
    world = World(torch.arange(6).view(6, *shape) % 7, [(0, 1), (1, 2), (2, 0), (4, 5)])
    inc = to_incremental(model)
    inc(**world.inputs())
    for delta in (
        {"x_changes": (torch.tensor([1]), torch.tensor([6]).view(1, *shape))},
        {"edge_index_add": ADD, "x_add": torch.tensor([3, 3]).view(2, *shape)},
        {"nodes_del": torch.tensor([0])},
    ):
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(model, world))


def test_one_output_per_edge():
    """A link decoder: the output has one row per edge, in the order of `to_edge_index()`."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(CHANNELS, 4)

        def forward(self, x, edge_index):
            z = self.conv(x, edge_index)
            return (z[edge_index[0]] * z[edge_index[1]]).sum(-1)

    torch.manual_seed(0)
    model = Decoder().double().eval()
    world = make_world(generator(0))
    inc = to_incremental(model)
    inc(**world.inputs())
    rng = generator(1)
    for name in ("change_features", "add_edges", "delete_edges", "mixed", "all_edges_leave",
                 "refill"):  # fmt: skip
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta)
        assert_close(inc.out, full(model, world))


@pytest.mark.many
@pytest.mark.parametrize("case", [*MODEL_CASES, *EDGE_CASES], ids=str)
@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_sizes_that_coincide(case, seed):
    """As many nodes as edges as hidden channels: no shape gives a role away."""
    rng = generator(seed)
    pairs = [(v, (v + 1) % HIDDEN) for v in range(HIDDEN)]
    model_world = make_world(rng, nodes=HIDDEN, edges=HIDDEN, data=case.data)
    data = {name: model_world.edge_data(name)[:HIDDEN] for name in model_world.names}
    world = World(model_world.x, pairs, data)
    sides = SideBySide(case, world=world, seed=seed)
    sides.walk(["change_features", "delete_then_add", "change_edge_data", "mixed", "mixed"])


def test_two_components_and_a_big_delta():
    """A delta larger than the graph itself."""
    inc, model, world = start()
    inc(**world.inputs())
    rng = generator(2)
    pairs = torch.from_numpy(rng.integers(0, 40, (2, 500)))
    x_add = torch.from_numpy(rng.standard_normal((28, CHANNELS)))
    delta = {"edge_index_add": pairs, "x_add": x_add, "undirected": True}
    world.apply(**delta)
    update = inc.apply_delta(**delta)
    assert_close(inc.out, full(model, world))
    assert len(update.changed) == 40
    delta = {"edge_index_del": pairs, "undirected": True}
    world.apply(**delta)
    inc.apply_delta(**delta)
    assert_close(inc.out, full(model, world))


def test_changed_is_exact_when_rounding_hides_a_change():
    """A change below the last bit of the sum changes no value, so no row is named."""
    torch.manual_seed(0)
    conv = SAGEConv(1, 1, aggr="sum", root_weight=False, bias=False).double().eval()
    nn.init.ones_(conv.lin_l.weight)
    world = World(torch.tensor([[0.0], [1e16], [0.25]]).double(), [(1, 0), (2, 0)])
    inc = to_incremental(conv)
    inc(**world.inputs())
    before = inc.out.clone()
    update = inc.apply_delta(x_changes=(torch.tensor([2]), torch.tensor([[0.5]]).double()))
    assert update.changed.tolist() == rows_that_differ(before, inc.out) == []


def test_mixed_mode_names_its_steps():
    model = GAT(CHANNELS, 6, 2, 3, norm="pair_norm").double().eval()
    inc = to_incremental(model)
    inc(**make_world(generator(0)).inputs())
    assert inc.mode in MIXED
    assert "norms.0" in str(inc.program)
    assert any(step.kind == "whole" for step in inc.program.steps)


# Roles of the inputs are those of the first call ##################################################


class Prototypes(nn.Module):
    """Compares every node with vectors that it is given."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index, proto):
        return self.conv(x, edge_index) @ proto.t()


class Weighted(nn.Module):
    """Its edge input is known by nothing but its length."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index, cost):
        return self.conv(x, edge_index, cost.abs())


def renew(inc, how, tmp_path):
    """The same state after a refresh, or from a file."""
    if how == "refresh":
        inc.refresh()
        return inc
    inc.save(tmp_path / "state")
    return load(tmp_path / "state", inc.model)


@pytest.mark.parametrize("how", ["refresh", "save and load"])
@pytest.mark.parametrize("edges", [90, 42], ids=["as many nodes", "as many edges"])
def test_constant_rows_keep_their_role(how, edges, tmp_path):
    """48 nodes and 50 prototypes; then there are 50 nodes (or edges), and they still differ."""
    torch.manual_seed(0)
    model = Prototypes().double().eval()
    rng = generator(0)
    pairs = [(int(u), int(v)) for u, v in rng.integers(0, 48, (edges, 2))]
    world = World(torch.randn(48, CHANNELS).double(), pairs)
    proto = torch.randn(50, 4).double()

    def call(model, inputs):
        return model(inputs["x"], inputs["edge_index"], proto)

    inc = to_incremental(model)
    call(inc, world.inputs())
    assert inc.mode == "incremental"
    for _ in range(3):
        delta = {
            "x_add": torch.randn(2, CHANNELS).double(),
            "edge_index_add": torch.randint(0, 48, (2, 8)),
        }
        world.apply(**delta)
        inc.apply_delta(**delta)
        inc = renew(inc, how, tmp_path)
        assert inc.mode == "incremental"
        assert_close(inc.out, full(model, world, call))


@pytest.mark.parametrize("how", ["refresh", "save and load"])
def test_edge_rows_keep_their_role(how, tmp_path):
    """As many edges as nodes, but only later."""
    torch.manual_seed(0)
    model = Weighted().double().eval()
    world = make_world(generator(0), nodes=12, data=(("cost", None),))
    inc = to_incremental(model)
    inc(**world.inputs())
    gone = torch.tensor(world.pairs()[12:]).t()
    added = {"edge_index_add": ADD, "edge_data_add": {"cost": torch.ones(1).double()}}
    for delta in ({"edge_index_del": gone}, added, added):
        world.apply(**delta)
        inc.apply_delta(**delta)
        inc = renew(inc, how, tmp_path)
        assert list(inc.graph.edge_data) == ["cost"]
        assert_close(inc.out, full(model, world))


# Data objects #####################################################################################


class Typed(nn.Module):
    """Reads a field of a `Data` object that PyG does not know."""

    def __init__(self, field):
        super().__init__()
        self.embed = nn.Embedding(3, CHANNELS)
        self.conv = GCNConv(CHANNELS, 4)
        self.field = field

    def forward(self, data):
        rows = getattr(data, self.field)
        if self.field == "node_type":
            rows = self.embed(rows)
        return self.conv(data.x + rows, data.edge_index)


class FeaturesOnly(nn.Module):
    """Reads the usual fields, whatever else there is."""

    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(CHANNELS, 6)
        self.conv2 = SAGEConv(6, 4)

    def forward(self, data):
        x = self.conv1(data.x, data.edge_index).relu()
        return self.conv2(x, data.edge_index)


def with_fields(nodes, gone=()):
    """A call with a `Data` object that has fields of the first graph's size.

    Those of nodes that are gone are zero.
    """
    generator = torch.Generator().manual_seed(0)
    fields = {
        "node_type": torch.randint(0, 3, (nodes,), generator=generator),
        "z": torch.randn(nodes, CHANNELS, generator=generator).double(),
        "y": torch.randint(0, 4, (nodes,), generator=generator),
        "train_mask": torch.rand(nodes, generator=generator) < 0.5,
        "name": "a graph",
    }
    for rows in (fields["node_type"], fields["z"]):
        rows[list(gone)] = 0
    return lambda model, inputs: model(Data(**inputs, **fields))


@pytest.mark.parametrize("field", ["node_type", "z"])
def test_fields_of_a_data_object_that_the_model_reads(field):
    torch.manual_seed(0)
    model = Typed(field).double().eval()
    world = make_world(generator(0))
    call = with_fields(world.num_nodes)
    inc = to_incremental(model)
    assert_close(call(inc, world.inputs()), full(model, world, call))
    rng = generator(1)
    for name in ("change_features", "add_edges", "delete_edges", "remove_hub", "grow_hub"):
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta)
        if "nodes_del" in delta:
            call = with_fields(world.num_nodes, delta["nodes_del"].tolist())
        assert_close(inc.out, full(model, world, call))
    inc.refresh()
    assert_close(inc.out, full(model, world, call))


@pytest.mark.parametrize("how", ["refresh", "save and load"])
def test_fields_of_a_data_object_that_the_model_does_not_read(how, tmp_path):
    """Labels and masks are for training; new nodes need none."""
    torch.manual_seed(0)
    model = FeaturesOnly().double().eval()
    world = make_world(generator(0))
    call = with_fields(world.num_nodes)
    inc = to_incremental(model)
    call(inc, world.inputs())
    rng = generator(1)
    for name in ("new_nodes_with_edges", "mixed", "new_isolated_nodes"):
        delta = DELTAS[name](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta)
        inc = renew(inc, how, tmp_path)
        assert inc.mode == "incremental"
        assert_close(inc.out, full(model, world, call))


class Tokens(nn.Module):
    """Integer features, a number as its first parameter, and a ReLU in place behind a norm."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.3))
        self.table = nn.Embedding(20, CHANNELS)
        self.conv1 = SAGEConv(CHANNELS, 6, aggr=["mean", "max"])
        self.norm = nn.BatchNorm1d(6)
        self.conv2 = GCNConv(6, 3)

    def forward(self, x, edge_index):
        h = self.table(x)
        h = self.norm(self.conv1(h, edge_index)).relu_() * self.gain
        left, right = h.chunk(2, dim=-1)
        return self.conv2(torch.cat([right, left], dim=-1), edge_index)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_integer_features_stay_incremental(backend):
    torch.manual_seed(0)
    model = Tokens().double().eval()
    x, edges = torch.randint(0, 20, (12,)), torch.randint(0, 12, (2, 30))
    inc = to_incremental(model, strict=True, backend=backend)
    inc(x, edges)
    for i in range(12):
        x[i] = (x[i] + 1) % 20
        x = torch.cat([x, x[:1]])
        arriving = torch.tensor([[len(x) - 1], [i]])
        gone = inc.graph.to_edge_index()[:, :1]
        inc.apply_delta(arriving, gone, ([i], x[i : i + 1]), x_add=x[-1:])
        with torch.no_grad():
            assert_close(inc.out, model(x, inc.graph.to_edge_index()))
        assert inc.num_nodes == len(x)


def test_both_directions_beside_features_by_name(seed):
    """What is said of one input by its name leaves the edges of a delta as they are."""
    inc, _, world = start(seed)
    rows = torch.ones(1, CHANNELS).double()
    delta = GraphDelta(edge_index_add=ADD, undirected=True, x_changes={"x": ([1], rows)})
    for way in (delta, delta.both_directions(), delta.coalesce()):
        inc(**world.inputs())
        inc.apply_delta(way)
        added = inc.graph.to_edge_index()[:, -2:].t().tolist()
        assert sorted(added) == [[0, 2], [2, 0]]
        assert torch.equal(inc.x[1], rows[0])
        assert inc.verify() < 1e-9


class ReadsTheGraph(nn.Module):
    """One of its outputs depends on the edges and on nothing else."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index), edge_index[1].double().cumsum(0)


def test_a_step_that_reads_the_graph_alone_follows_it(seed):
    """Also once small updates run in compiled code, which knows no graph as an object."""
    torch.manual_seed(seed)
    inc = to_incremental(ReadsTheGraph().double().eval(), backend="compiled")
    inc(torch.randn(9, CHANNELS).double(), torch.randint(9, (2, 20)))
    assert inc.mode == "mixed"
    for _ in range(30):
        inc.apply_delta(edge_index_add=torch.randint(9, (2, 1)))
        assert inc.verify() < 1e-9


@pytest.mark.parametrize("was_called", [False, True])
def test_pruned_layers_run_whole_and_stay_current(was_called, seed):
    torch.manual_seed(seed)
    model, world = SAGEConv(CHANNELS, 4).double().eval(), make_world(generator(seed))
    prune.l1_unstructured(model.lin_l, "weight", 0.5)
    if was_called:
        with torch.no_grad():
            model(**world.inputs())
    inc = to_incremental(model)
    with pytest.warns(IncrementalWarning, match="keeps 'weight' of 'lin_l'"):
        inc(**world.inputs())
    assert "prune.remove" in str(inc.explain())
    walk(inc, model, world, seed)
    prune.remove(model.lin_l, "weight")
    inc(**world.inputs())
    assert inc.mode == "incremental"
    walk(inc, model, world, seed)


@pytest.mark.parametrize("options", [{}, {"compile_after": 1}, {"lazy": True}], ids=str)
def test_plain_changes_mean_x_wherever_it_stands(options, seed):
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.kinds, self.conv = nn.Embedding(9, CHANNELS), SAGEConv(CHANNELS, 4, aggr="max")

        def forward(self, z, x, edge_index):
            return self.conv(self.kinds(z) + x, edge_index)

    torch.manual_seed(seed)
    model = Second().double().eval()
    z, x = torch.randint(9, (12,)), torch.randn(12, CHANNELS, dtype=torch.float64)
    inc = to_incremental(model, **options)
    inc(z, x, torch.randint(12, (2, 40)))
    for node in range(10):
        x[node] = torch.randn(CHANNELS)
        z[node] = 3
        inc.apply_delta(torch.randint(12, (2, 2)), None, ([node], x[[node]]))
        inc.apply_delta(x_changes={"z": ([node], z[[node]])})
    with torch.no_grad():
        assert_close(inc.out, model(z, x, inc.graph.to_edge_index()))
    assert inc.check() == []

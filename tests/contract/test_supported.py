"""The table of supported layers is true: each class is wrapped, run, and its program looked at."""

import copy
import dataclasses
import importlib.util
import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.conv import __all__ as CLASSES
from torch_geometric.nn.conv import spline_conv

from pyg_incremental import IncrementalWarning, supported_layers, to_incremental
from pyg_incremental.conv import registered, registry
from pyg_incremental.trace.supported import SupportedLayer, scheme_of
from tests.closeness import assert_close
from tests.oracle import call_plain, full
from tests.strategies import generator, make_world, mixed
from tests.zoo import ATTR, CHANNELS, WEIGHT, Case

OUT = 4
TYPE = (("edge_type", "type"),)
TYPES = 3
EDGE = ("v", "to", "v")
TABLE = {layer.name: layer for layer in supported_layers()}
EXACT = ("incremental", "constrained")
ROOT = Path(__file__).parents[2]


# One sample of each class #########################################################################


@dataclass(frozen=True)
class Sample:
    """A conv with its usual options.

    Args:
        make: Makes the module.
        data: Edge data that it is called with.
        call: How it and its wrapper are called.
        delta: What the wrapper is given in the place of a delta of one graph.
        remembers: Its answers depend on earlier calls, so it has to be its own oracle.
    """

    make: Callable[[], nn.Module]
    data: tuple = ()
    call: Callable[..., Any] = call_plain
    delta: Callable[[dict], dict] = dict
    remembers: bool = False


class Called(nn.Module):
    """A conv that is called by a function `call(conv, x, edge_index, *edge data)`."""

    def __init__(self, conv, call):
        super().__init__()
        self.conv, self.call = conv, call

    def forward(self, x, edge_index, edge_attr=None, edge_type=None):
        given = (rows for rows in (edge_attr, edge_type) if rows is not None)
        return self.call(self.conv, x, edge_index, *given)


def small(size, out=OUT):
    return nn.Sequential(nn.Linear(size, 6), nn.ReLU(), nn.Linear(6, out))


def alone(make, *data):
    return Sample(make, data)


def called(make, call, *data):
    return Sample(lambda: Called(make(), call), data)


def heterogeneous(make):
    """A conv of many kinds of nodes and edges, on one of each."""

    def delta(given):
        keys = {name: EDGE if name.startswith("edge") else "v" for name in given}
        return {name: {keys[name]: value} for name, value in given.items()}

    def call(model, inputs):
        return model({"v": inputs["x"]}, {EDGE: inputs["edge_index"]})

    return Sample(make, (), call, delta)


def on_two_graphs(make):
    """A conv of two graphs, the second with the edges of the first turned around."""

    def delta(given):
        return {
            name: {"pos_edge_index": value, "neg_edge_index": value.flip(0)}
            if name.startswith("edge")
            else value
            for name, value in given.items()
        }

    def call(model, inputs):
        return model(inputs["x"], inputs["edge_index"], inputs["edge_index"].flip(0))

    return Sample(make, (), call, delta)


def with_first(conv, x, edge_index):
    return conv(x, x, edge_index)


def with_points(conv, x, edge_index):
    return conv(x, x[:, :3], edge_index)


def heat(aggr):
    return called(
        lambda: gnn.HEATConv(CHANNELS, OUT, 2, TYPES, 3, 3, 2, aggr=aggr),
        lambda conv, x, edge_index, attr, kind: conv(
            x, edge_index, (x[:, 0] > 0).long(), kind, attr
        ),
        *ATTR,
        *TYPE,
    )


META = (["v"], [EDGE])
DEGREES = torch.tensor([1, 3, 4, 2])
SAMPLES = {
    "SimpleConv": alone(gnn.SimpleConv),
    "GCNConv": alone(lambda: gnn.GCNConv(CHANNELS, OUT)),
    "ChebConv": alone(lambda: gnn.ChebConv(CHANNELS, OUT, K=3)),
    "SAGEConv": alone(lambda: gnn.SAGEConv(CHANNELS, OUT)),
    "GraphConv": alone(lambda: gnn.GraphConv(CHANNELS, OUT), *WEIGHT),
    "GatedGraphConv": alone(lambda: gnn.GatedGraphConv(CHANNELS, 2), *WEIGHT),
    "ResGatedGraphConv": alone(lambda: gnn.ResGatedGraphConv(CHANNELS, OUT)),
    "GATConv": alone(lambda: gnn.GATConv(CHANNELS, OUT, heads=2)),
    "GATv2Conv": alone(lambda: gnn.GATv2Conv(CHANNELS, OUT, heads=2)),
    "TransformerConv": alone(lambda: gnn.TransformerConv(CHANNELS, OUT, heads=2)),
    "AGNNConv": alone(gnn.AGNNConv),
    "TAGConv": alone(lambda: gnn.TAGConv(CHANNELS, OUT)),
    "GINConv": alone(lambda: gnn.GINConv(small(CHANNELS))),
    "GINEConv": alone(lambda: gnn.GINEConv(small(CHANNELS), edge_dim=3), *ATTR),
    "ARMAConv": alone(lambda: gnn.ARMAConv(CHANNELS, OUT, num_stacks=2, num_layers=2)),
    "SGConv": alone(lambda: gnn.SGConv(CHANNELS, OUT, K=2)),
    "SSGConv": alone(lambda: gnn.SSGConv(CHANNELS, OUT, alpha=0.1, K=2)),
    "APPNP": alone(lambda: gnn.APPNP(K=3, alpha=0.1)),
    "MFConv": alone(lambda: gnn.MFConv(CHANNELS, OUT, max_degree=4)),
    "RGCNConv": alone(lambda: gnn.RGCNConv(CHANNELS, OUT, TYPES), *TYPE),
    "FastRGCNConv": alone(lambda: gnn.FastRGCNConv(CHANNELS, OUT, TYPES), *TYPE),
    "RGATConv": alone(lambda: gnn.RGATConv(CHANNELS, OUT, TYPES, heads=2), *TYPE),
    "SignedConv": on_two_graphs(lambda: gnn.SignedConv(CHANNELS, OUT, first_aggr=True)),
    "DNAConv": called(
        lambda: gnn.DNAConv(CHANNELS),
        lambda conv, x, edge_index: conv(torch.stack([x, 2 * x], 1), edge_index),
    ),
    "PointNetConv": called(lambda: gnn.PointNetConv(small(CHANNELS + 3)), with_points),
    "GMMConv": alone(lambda: gnn.GMMConv(CHANNELS, OUT, dim=3, kernel_size=2), *ATTR),
    "NNConv": alone(lambda: gnn.NNConv(CHANNELS, OUT, small(3, CHANNELS * OUT)), *ATTR),
    "CGConv": alone(lambda: gnn.CGConv(CHANNELS, dim=3), *ATTR),
    "EdgeConv": alone(lambda: gnn.EdgeConv(small(2 * CHANNELS))),
    "PPFConv": called(
        lambda: gnn.PPFConv(small(CHANNELS + 4)),
        lambda conv, x, edge_index: conv(x, x[:, :3], x[:, 2:], edge_index),
    ),
    "FeaStConv": alone(lambda: gnn.FeaStConv(CHANNELS, OUT, heads=2)),
    "PointTransformerConv": called(lambda: gnn.PointTransformerConv(CHANNELS, OUT), with_points),
    "LEConv": alone(lambda: gnn.LEConv(CHANNELS, OUT), *WEIGHT),
    "PNAConv": alone(
        lambda: gnn.PNAConv(
            CHANNELS, OUT, ["mean", "max", "std"], ["identity", "amplification"], DEGREES
        )
    ),
    "ClusterGCNConv": alone(lambda: gnn.ClusterGCNConv(CHANNELS, OUT)),
    "GENConv": alone(lambda: gnn.GENConv(CHANNELS, OUT)),
    "GCN2Conv": called(lambda: gnn.GCN2Conv(CHANNELS, alpha=0.1, theta=0.5, layer=1), with_first),
    "WLConv": dataclasses.replace(
        called(
            gnn.WLConv,
            lambda conv, x, edge_index: conv((x[:, 0] > 0).long(), edge_index).double(),
        ),
        remembers=True,
    ),
    "WLConvContinuous": alone(gnn.WLConvContinuous),
    "FiLMConv": alone(lambda: gnn.FiLMConv(CHANNELS, OUT)),
    "SuperGATConv": alone(lambda: gnn.SuperGATConv(CHANNELS, OUT, heads=2)),
    "FAConv": called(lambda: gnn.FAConv(CHANNELS), with_first),
    "EGConv": alone(lambda: gnn.EGConv(CHANNELS, OUT, num_heads=2, num_bases=3)),
    "PDNConv": alone(lambda: gnn.PDNConv(CHANNELS, OUT, edge_dim=3, hidden_channels=6), *ATTR),
    "GeneralConv": alone(lambda: gnn.GeneralConv(CHANNELS, OUT)),
    "HGTConv": heterogeneous(lambda: gnn.HGTConv(CHANNELS, OUT, META, heads=2)),
    "HEATConv": heat("sum"),
    "HeteroConv": heterogeneous(lambda: gnn.HeteroConv({EDGE: gnn.SAGEConv(CHANNELS, OUT)})),
    "HANConv": heterogeneous(lambda: gnn.HANConv(CHANNELS, OUT, META)),
    "LGConv": alone(gnn.LGConv),
    "PointGNNConv": called(
        lambda: gnn.PointGNNConv(small(CHANNELS, 3), small(CHANNELS + 3), small(OUT, CHANNELS)),
        with_points,
    ),
    "GPSConv": alone(lambda: gnn.GPSConv(CHANNELS, gnn.SAGEConv(CHANNELS, CHANNELS), norm=None)),
    "AntiSymmetricConv": alone(lambda: gnn.AntiSymmetricConv(CHANNELS)),
    "DirGNNConv": alone(lambda: gnn.DirGNNConv(gnn.SAGEConv(CHANNELS, OUT))),
    "MixHopConv": alone(lambda: gnn.MixHopConv(CHANNELS, OUT)),
}

NEEDS = {
    "CuGraphSAGEConv": (CHANNELS, OUT),
    "CuGraphGATConv": (CHANNELS, OUT),
    "CuGraphRGCNConv": (CHANNELS, OUT, TYPES),
    "GravNetConv": (CHANNELS, OUT, 2, 2, 3),
    "DynamicEdgeConv": (small(2 * CHANNELS), 3),
    "XConv": (CHANNELS, OUT, 3, 4),
    "SplineConv": (CHANNELS, OUT, 3, 4),
}
"""Arguments of the classes that PyG does not let one make without kernels that it may lack."""

ELSEWHERE = ("PANConv", "FusedGATConv", "MeshCNNConv", "HypergraphConv")
"""Classes with a test of their own."""


def followed(name, sample, seed, dtype=torch.float64):
    """A wrapped sample, held against full passes before and after a delta of all kinds."""
    rng = generator([seed, zlib.crc32(name.encode())])
    world = make_world(rng, data=sample.data, dtype=dtype)
    model, twin = Case(name, sample.make).build(seed, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        inc = to_incremental(model)
        sample.call(inc, world.inputs())
        oracle = model if sample.remembers else twin
        assert_close(inc.out, full(oracle, world, sample.call), what=f"{name}, first pass")
        delta = mixed(world, rng)
        inc.apply_delta(**sample.delta(delta))
        world.apply(**delta)
    assert_close(inc.out, full(oracle, world, sample.call), what=f"{name}, after a delta")
    return inc


# The table ########################################################################################


def test_every_class_has_an_entry():
    assert list(TABLE) == [name for name in CLASSES if name != "MessagePassing"]
    assert {*SAMPLES, *NEEDS, *ELSEWHERE} == set(TABLE)


TRACED = {
    "GatedGraphConv", "ResGatedGraphConv", "CGConv", "EdgeConv", "WLConvContinuous",
    "PointGNNConv", "GENConv", "GINEConv", "GeneralConv", "NNConv", "TransformerConv",
    "PointNetConv", "PPFConv", "AGNNConv", "SuperGATConv", "PointTransformerConv",
    "SAGEConv", "GraphConv", "GINConv", "SimpleConv", "SGConv", "APPNP", "PDNConv", "EGConv",
    "SignedConv", "LGConv", "TAGConv", "SSGConv", "MixHopConv", "GCN2Conv", "GMMConv", "FeaStConv",
    "HEATConv",
}  # fmt: skip
"""Classes of which the tracer finds the program in their `forward`."""


def test_every_program_has_an_entry_and_every_entry_a_program():
    known, found = registered(), set()
    for name, layer in TABLE.items():
        kind = getattr(gnn, name)
        if issubclass(kind, gnn.MessagePassing) and layer.scheme != "refused":
            has_program = any(c in known for c in kind.__mro__)
            what = f"{name} has {'a' if has_program else 'no'} program, the table says {layer}"
            assert layer.scheme in EXACT or not has_program, what
            found |= {name} if layer.scheme in EXACT and not has_program else set()
    assert found == TRACED
    of_pyg = {c.__name__ for c in known if c.__module__.startswith("torch_geometric.nn.conv.")}
    assert of_pyg <= set(TABLE)


def test_most_classes_are_followed_by_their_messages():
    assert sum(layer.scheme in EXACT for layer in TABLE.values()) >= 50


def test_entries_say_how_or_why():
    for layer in TABLE.values():
        assert layer.steps if layer.scheme in EXACT else layer.note, layer


@pytest.mark.parametrize("name", SAMPLES)
def test_the_scheme_is_that_of_the_program(name, seed):
    inc = followed(name, SAMPLES[name], seed)
    assert scheme_of(inc.program) == TABLE[name].scheme, f"{name}:\n{inc.program}"
    if TABLE[name].scheme in EXACT:
        assert inc.mode == "incremental"


def test_the_ten_models_of_neutronrt(monkeypatch):
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    monkeypatch.delitem(sys.modules, "examples.own_convs", raising=False)
    own = importlib.import_module("examples.own_convs")
    assert {own.CommNet, own.PinSAGE} <= set(registered())
    models = {layer.model: layer for layer in TABLE.values() if layer.model}
    assert set(models) == {"MoNet", "GCN", "GraphSAGE", "RGCN", "GAT", "G-GCN", "A-GNN", "RGAT"}
    constrained = {name for name, layer in models.items() if layer.scheme == "constrained"}
    assert constrained == {"GAT", "G-GCN", "A-GNN", "RGAT"}
    assert all(layer.scheme in EXACT for layer in models.values())


# What the notes say ###############################################################################


def mixing(size):
    """A network whose rows depend on all rows."""
    return nn.Sequential(nn.Linear(size, OUT), nn.BatchNorm1d(OUT, track_running_stats=False))


def pna(aggregators, **options):
    return gnn.PNAConv(CHANNELS, OUT, aggregators, ["identity"], DEGREES, **options)


FALLBACKS = [
    ("GCNConv", "row recompute", alone(lambda: gnn.GCNConv(CHANNELS, OUT, aggr="std"))),
    ("ChebConv", "full pass", alone(lambda: gnn.ChebConv(CHANNELS, OUT, K=3), *WEIGHT)),
    (
        "ChebConv",
        "full pass",
        alone(lambda: gnn.ChebConv(CHANNELS, OUT, K=3, normalization=None)),
    ),
    ("ChebConv", "row recompute", alone(lambda: gnn.ChebConv(CHANNELS, OUT, K=3, aggr="mul"))),
    ("GATConv", "row recompute", alone(lambda: gnn.GATConv(CHANNELS, OUT, aggr="max"))),
    ("GATv2Conv", "row recompute", alone(lambda: gnn.GATv2Conv(CHANNELS, OUT, aggr="max"))),
    ("AGNNConv", "row recompute", alone(lambda: gnn.AGNNConv(aggr="median"))),
    ("HEATConv", "row recompute", heat("median")),
    (
        "TransformerConv",
        "row recompute",
        alone(lambda: gnn.TransformerConv(CHANNELS, OUT, aggr="mul")),
    ),
    (
        "SuperGATConv",
        "row recompute",
        alone(lambda: gnn.SuperGATConv(CHANNELS, OUT, aggr="median")),
    ),
    ("GINConv", "full pass", alone(lambda: gnn.GINConv(mixing(CHANNELS)))),
    ("EdgeConv", "full pass", alone(lambda: gnn.EdgeConv(mixing(2 * CHANNELS)))),
    (
        "ARMAConv",
        "full pass",
        alone(lambda: gnn.ARMAConv(CHANNELS, OUT, act=nn.Softmax(dim=-1))),
    ),
    ("ARMAConv", "full pass", alone(lambda: gnn.ARMAConv(CHANNELS, OUT, aggr="softmax"))),
    (
        "RGCNConv",
        "row recompute",
        alone(lambda: gnn.RGCNConv(CHANNELS, OUT, TYPES, aggr="std"), *TYPE),
    ),
    (
        "RGATConv",
        "row recompute",
        alone(lambda: gnn.RGATConv(CHANNELS, OUT, TYPES, mod="f-additive"), *TYPE),
    ),
    (
        "PointNetConv",
        "row recompute",
        called(lambda: gnn.PointNetConv(small(CHANNELS + 3), aggr="median"), with_points),
    ),
    ("FeaStConv", "row recompute", alone(lambda: gnn.FeaStConv(CHANNELS, OUT, aggr="median"))),
    ("LEConv", "constrained", alone(lambda: gnn.LEConv(CHANNELS, OUT, aggr="mean"))),
    ("PNAConv", "constrained", alone(lambda: pna(["mean"], pre_layers=2))),
    ("PNAConv", "constrained", alone(lambda: pna(["softmax"]))),
    (
        "FiLMConv",
        "row recompute",
        alone(lambda: gnn.FiLMConv(CHANNELS, OUT, TYPES, aggr="std"), *TYPE),
    ),
    (
        "EGConv",
        "full pass",
        alone(lambda: gnn.EGConv(CHANNELS, OUT, num_heads=2, aggregators=["mean"])),
    ),
    (
        "GeneralConv",
        "constrained",
        alone(lambda: gnn.GeneralConv(CHANNELS, OUT, attention=True, attention_type="dot_product")),
    ),
    (
        "GeneralConv",
        "constrained",
        alone(lambda: gnn.GeneralConv(CHANNELS, OUT, directed_msg=False)),
    ),
]


@pytest.mark.parametrize(
    ("name", "scheme", "sample"),
    [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(FALLBACKS)],
)
def test_what_falls_back(name, scheme, sample, seed):
    assert scheme in TABLE[name].note
    assert scheme_of(followed(name, sample, seed).program) == scheme


@pytest.mark.parametrize(
    "conv",
    [
        gnn.GCNConv(CHANNELS, OUT, aggr="max"),
        gnn.SimpleConv(aggr="mean", combine_root="self_loop"),
    ],
    ids=["gcn", "simple"],
)
def test_a_matrix_merges_self_loops(conv):
    graph = torch.eye(6).roll(1, 0).to_sparse_csr()
    inc = to_incremental(conv.eval())
    inc(torch.randn(6, CHANNELS), graph)
    assert scheme_of(inc.program) == "full pass"
    assert "matrix: full pass" in TABLE[type(conv).__name__].note


# Classes that need more than PyG ##################################################################


@pytest.mark.parametrize("name", NEEDS)
def test_pyg_says_what_it_lacks(name):
    kind, layer = getattr(gnn, name), TABLE[name]
    assert layer.scheme == "refused" or "pyg-lib" in layer.note
    there = importlib.util.find_spec("pyg_lib" if "pyg-lib" in layer.note else "pylibcugraphops")
    if there is not None:
        pytest.skip(f"PyG has what {name} needs")
    with pytest.raises(ImportError, match=name):
        kind(*NEEDS[name])


def test_fused_gat_says_what_it_lacks():
    there = importlib.util.find_spec("dgNN")
    if there is not None:
        pytest.skip("PyG has what FusedGATConv needs")
    with pytest.raises(ImportError, match="dgNN"):
        gnn.FusedGATConv(CHANNELS, OUT, add_self_loops=False)


def test_spline_conv_where_its_kernels_are(seed, monkeypatch):
    """In their place: a basis of one function."""
    monkeypatch.setattr(
        spline_conv, "spline_basis", lambda pseudo, *_: (pseudo, pseudo.long() * 0), raising=False
    )
    monkeypatch.setattr(
        spline_conv,
        "spline_weighting",
        lambda x, weight, basis, index: x @ weight[0] * basis,
        raising=False,
    )
    monkeypatch.setattr(spline_conv.warnings, "warn", lambda *_, **__: None)
    sample = alone(lambda: gnn.SplineConv(CHANNELS, OUT, dim=1, kernel_size=2), ("edge_attr", 1))
    assert scheme_of(followed("SplineConv", sample, seed).program) == TABLE["SplineConv"].scheme


@pytest.mark.sparse
def test_pan_conv_where_torch_sparse_is(seed):
    pytest.importorskip("torch_sparse")
    sample = called(
        lambda: gnn.PANConv(CHANNELS, OUT, filter_size=2),
        lambda conv, x, edge_index: conv(x, edge_index)[0],
    )
    inc = followed("PANConv", sample, seed, torch.float32)  # PyG takes no other
    assert scheme_of(inc.program) == TABLE["PANConv"].scheme


def test_mesh_cnn_conv_takes_new_features_only(seed):
    torch.manual_seed(seed)
    at = torch.arange(10).repeat_interleave(4)
    graph = torch.stack([at, (at + torch.arange(1, 5).repeat(10)) % 10])
    conv = gnn.MeshCNNConv(CHANNELS, OUT).double().eval()
    twin, x = copy.deepcopy(conv), torch.randn(10, CHANNELS).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncrementalWarning)
        inc = to_incremental(conv)
        inc(x, graph)
    x = x.clone()
    x[3] = 1.0
    inc.apply_delta(x_changes=([3], x[[3]]))
    with torch.no_grad():
        assert_close(inc.out, twin(x, graph))
    assert scheme_of(inc.program) == TABLE["MeshCNNConv"].scheme
    digest = inc.state_digest()
    with pytest.raises(RuntimeError, match="size of tensor"):  # PyG's own words
        inc.apply_delta(edge_index_add=torch.tensor([[0], [3]]), x_changes=([4], x[[3]]))
    assert inc.stale is None
    assert inc.state_digest() == digest
    inc.apply_delta(x_changes=([4], x[[3]]))
    assert inc.verify() < 1e-9


# Schemes ##########################################################################################


@pytest.mark.parametrize(
    ("scheme", "make"),
    [
        ("incremental", lambda: gnn.SAGEConv(CHANNELS, OUT, aggr="max")),
        ("incremental", lambda: gnn.SAGEConv(CHANNELS, OUT, aggr=["mean", "std", "softmax"])),
        ("incremental", lambda: gnn.GCN(CHANNELS, 6, 2, OUT)),
        ("constrained", lambda: gnn.EdgeConv(small(2 * CHANNELS), aggr="sum")),
        ("constrained", lambda: gnn.GAT(CHANNELS, 6, 2, OUT, add_self_loops=False)),
        ("row recompute", lambda: gnn.SAGEConv(CHANNELS, OUT, aggr="median")),
        ("row recompute", lambda: gnn.EdgeConv(small(2 * CHANNELS), aggr="mul")),
        (
            "full pass",
            lambda: gnn.Sequential(
                "x, edge_index",
                [
                    (gnn.GATConv(CHANNELS, OUT), "x, edge_index -> x"),
                    (gnn.GraphNorm(OUT), "x -> x"),
                ],
            ),
        ),
    ],
)
def test_a_program_has_the_scheme_of_its_weakest_step(scheme, make):
    inc = to_incremental(make().eval())
    inc(torch.randn(6, CHANNELS), torch.randint(6, (2, 20)))
    assert scheme_of(inc.program) == scheme


@pytest.mark.parametrize(
    ("scheme", "aggr"),
    [
        *[("incremental", aggr) for aggr in ("sum", "mean", "max", "min", "var", "std")],
        *[("incremental", aggr) for aggr in ("softmax", "powermean")],
        ("incremental", gnn.DegreeScalerAggregation("max", "linear", DEGREES)),
        ("incremental", gnn.MultiAggregation(["max", "std"], mode="sum")),
        ("row recompute", gnn.MultiAggregation(["max", "median"], mode="sum")),
        ("row recompute", "median"),
        ("row recompute", "mul"),
        ("row recompute", gnn.QuantileAggregation(0.3)),
        ("row recompute", gnn.SortAggregation(1)),
        ("row recompute", gnn.MultiAggregation([gnn.SortAggregation(1), "median"])),
        ("row recompute", gnn.MLPAggregation(CHANNELS, CHANNELS, 9, num_layers=1)),
        ("row recompute", gnn.VariancePreservingAggregation()),
        ("incremental", gnn.AttentionalAggregation(nn.Linear(CHANNELS, 1))),
        ("incremental", gnn.DeepSetsAggregation(nn.Linear(CHANNELS, CHANNELS))),
        ("full pass", "lstm"),
        ("full pass", gnn.GRUAggregation(CHANNELS, CHANNELS)),
        ("full pass", gnn.LCMAggregation(CHANNELS, CHANNELS, project=False)),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_table_of_aggregations(scheme, aggr):
    target = (torch.arange(20) % 6).sort().values  # PyG's median fails without an edge at the end
    inc = to_incremental(gnn.SAGEConv(CHANNELS, OUT, aggr=copy.deepcopy(aggr)).eval())
    inc(torch.randn(6, CHANNELS), torch.stack([torch.randint(6, (20,)), target]))
    assert scheme_of(inc.program) == scheme


def test_features_make_a_row_its_own_and_degrees_do_not():
    """Attributes filled in by a mean are rows of edges: no features, no row recompute."""
    inc = to_incremental(gnn.GATConv(CHANNELS, OUT, edge_dim=3).eval())
    inc(torch.randn(6, CHANNELS), torch.randint(6, (2, 20)), torch.randn(20, 3))
    assert any(s.kind == "rows" for s in inc.program.steps)
    assert scheme_of(inc.program) == "constrained"


def test_the_table_prints_and_does_not_change():
    layers = supported_layers()
    lines = str(layers).splitlines()
    assert len(lines) == len(layers) == len(CLASSES) - 1
    assert lines[1].split()[:2] == ["GCNConv", "incremental"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        layers[0].scheme = "refused"
    assert isinstance(layers[0], SupportedLayer)


def test_the_readme_counts_the_classes():
    text = " ".join((ROOT / "README.md").read_text().split())
    schemes = [layer.scheme for layer in TABLE.values()]
    followed = sum(scheme in EXACT for scheme in schemes)
    assert f"{followed} of PyG's {len(schemes)} conv classes" in text
    assert f"In {schemes.count('constrained')} of them" in text


def test_the_page_holds_the_table_of_today(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    pages = importlib.import_module("layer_table")
    assert pages.written() == pages.PAGE.read_text(), "run: make docs-table"


@pytest.mark.parametrize("how", ["amax", "mean", "sum"])
def test_a_readout_of_all_nodes_is_no_full_pass(how):
    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gnn.SAGEConv(4, 3)

        def forward(self, x, edge_index):
            return getattr(self.conv(x, edge_index).relu(), how)(0)

    inc = to_incremental(Readout().eval(), strict=True)
    inc(torch.randn(6, 4), torch.randint(6, (2, 20)))
    assert inc.mode == scheme_of(inc.program) == "incremental"

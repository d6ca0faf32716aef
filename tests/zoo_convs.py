"""The five convs with every option, each on every format that PyG accepts for it."""

import copy

import torch
from torch.nn import BatchNorm1d, Dropout, Identity, LayerNorm, Linear, ReLU, Sequential
from torch_geometric.nn import (
    MLP,
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    SoftmaxAggregation,
)
from torch_geometric.nn import LayerNorm as GraphLayerNorm

from tests.zoo import ATTR, CHANNELS, EDGES, MIXED, WEIGHT, Case

OUT = 4
BACK = {"flow": "target_to_source"}
UNSORTED = ("coo", "edge_index")
WITH_CSR = (*EDGES, "csr", "sparse_tensor")
ALL = (*EDGES, "csr", "csc", "sparse_tensor")
# The aggregations that PyG fuses; the others have no CSC path.
FUSED = ("sum", "mean", "max", "min")


def case(name, make, **about):
    return Case(name, make, **about)


def gcn(name, about=None, **options):
    about = {"formats": WITH_CSR, **(about or {})}
    return case(f"gcn-{name}", lambda: GCNConv(CHANNELS, OUT, **options), **about)


def sage(name, about=None, channels=CHANNELS, **options):
    fused = options.get("aggr", "mean") in FUSED
    about = {"formats": ALL if fused else WITH_CSR, **(about or {})}
    return case(f"sage-{name}", lambda: SAGEConv(channels, OUT, **copy.deepcopy(options)), **about)


def gin(name, nn, about=None, **options):
    fused = options.get("aggr", "sum") in FUSED
    about = {"formats": ALL if fused else WITH_CSR, **(about or {})}
    return case(f"gin-{name}", lambda: GINConv(nn(), **options), **about)


def gat(name, about=None, channels=CHANNELS, **options):
    about = {"formats": WITH_CSR, **(about or {})}
    return case(f"gat-{name}", lambda: GATConv(channels, OUT, **options), **about)


def graph(name, about=None, **options):
    # PyG's fused EdgeIndex path knows no float64 without weights.
    weighted = "data" in (about or {})
    about = {"formats": ALL if weighted else (*UNSORTED, "csr", "csc"), **(about or {})}
    return case(f"graph-{name}", lambda: GraphConv(CHANNELS, OUT, **options), **about)


def two_linears():
    return Sequential(Linear(CHANNELS, 6), ReLU(), Linear(6, OUT))


WEIGHTED = {"data": WEIGHT}
SIGNED = {"data": WEIGHT, "signed": True}
BACKWARD = {"formats": EDGES}
# In a CSR matrix PyG merges a self-loop with the one it adds: another message, not another weight.
MERGED = {"csr_mode": MIXED}
ATTRIBUTED = {"data": ATTR, "formats": EDGES}

GCN_CASES = [
    gcn("plain"),
    gcn("improved", improved=True),
    gcn("weights", WEIGHTED),
    gcn("weights-improved", WEIGHTED, improved=True),
    gcn("weights-signed", SIGNED),
    gcn("no-loops", add_self_loops=False),
    gcn("no-loops-weights", WEIGHTED, add_self_loops=False),
    gcn("no-loops-weights-signed", SIGNED, add_self_loops=False),
    gcn("not-normalized", {"formats": ALL}, normalize=False),
    gcn("not-normalized-weights", {**WEIGHTED, "formats": ALL}, normalize=False),
    gcn("no-bias", bias=False),
    gcn("cached", cached=True),
    gcn("cached-weights", WEIGHTED, cached=True),
    gcn("backward", BACKWARD, **BACK),
    gcn("backward-weights", {**WEIGHTED, **BACKWARD}, **BACK),
    gcn("backward-not-normalized", BACKWARD, normalize=False, **BACK),
    gcn("mean", MERGED, aggr="mean"),
    gcn("max", MERGED, aggr="max"),
    gcn("min-weights", {**WEIGHTED, **MERGED}, aggr="min"),
    gcn("std", MERGED, aggr="std"),
    gcn("max-not-normalized", {"formats": ALL}, aggr="max", normalize=False),
    gcn("mean-backward-weights", {**WEIGHTED, **BACKWARD}, aggr="mean", **BACK),
]

SAGE_CASES = [
    sage("mean"),
    sage("sum", aggr="sum"),
    sage("add", {"formats": ALL}, aggr="add"),
    sage("max", aggr="max"),
    sage("min", aggr="min"),
    sage("std", aggr="std"),
    sage("var", aggr="var"),
    sage("median", {"picky": True}, aggr="median"),
    sage("mul", aggr="mul"),
    sage("list", aggr=["mean", "max"]),
    sage("list-of-four", aggr=["sum", "mean", "min", "std"]),
    sage("softmax", aggr="softmax"),
    sage("softmax-learned", aggr=SoftmaxAggregation(learn=True)),
    # Sorted input only: PyG's LSTM aggregation refuses an unsorted COO edge_index.
    sage(
        "lstm",
        {"mode": MIXED, "formats": ("edge_index_by_col", "csr", "sparse_tensor"), "picky": True},
        aggr="lstm",
    ),
    sage("normalize", normalize=True),
    sage("no-root", root_weight=False),
    sage("project", project=True),
    sage("project-max", project=True, aggr="max"),
    sage("no-bias", bias=False),
    sage("no-bias-no-root", bias=False, root_weight=False),
    sage("two-channel-counts", channels=(CHANNELS, CHANNELS)),
    sage("backward", BACKWARD, **BACK),
    sage("backward-max", BACKWARD, aggr="max", **BACK),
    sage("backward-sum-normalize", BACKWARD, aggr="sum", normalize=True, **BACK),
]

GIN_CASES = [
    gin("two-linears", two_linears),
    gin("one-linear", lambda: Linear(CHANNELS, OUT)),
    gin("wide-linear", lambda: Linear(CHANNELS, 4 * CHANNELS)),
    gin("eps", two_linears, eps=0.3),
    gin("train-eps", two_linears, eps=0.3, train_eps=True),
    gin("mlp", lambda: MLP([CHANNELS, 6, OUT])),
    gin("mlp-no-norm", lambda: MLP([CHANNELS, 6, OUT], norm=None, act="elu")),
    gin("mlp-layer-norm", lambda: MLP([CHANNELS, 6, OUT], norm="layer_norm"), {"mode": MIXED}),
    gin("batch-norm", lambda: Sequential(Linear(CHANNELS, 6), BatchNorm1d(6), ReLU())),
    gin("layer-norm", lambda: Sequential(LayerNorm(CHANNELS), Linear(CHANNELS, OUT))),
    gin(
        "graph-layer-norm",
        lambda: Sequential(Linear(CHANNELS, OUT), GraphLayerNorm(OUT)),
        {"mode": MIXED},
    ),
    gin("dropout", lambda: Sequential(Dropout(0.5), Linear(CHANNELS, OUT))),
    gin("relu-first", lambda: Sequential(ReLU(), Linear(CHANNELS, OUT))),
    gin("relu-in-place", lambda: Sequential(ReLU(inplace=True), Linear(CHANNELS, OUT))),
    gin("no-bias", lambda: Linear(CHANNELS, OUT, bias=False)),
    gin("identity", Identity),
    gin("mean", two_linears, aggr="mean"),
    gin("max", two_linears, aggr="max"),
    gin("std", two_linears, aggr="std"),
    gin("backward", two_linears, BACKWARD, **BACK),
]

GAT_CASES = [
    gat("plain"),
    gat("heads", heads=3),
    gat("heads-mean", heads=3, concat=False),
    gat("no-loops", heads=2, add_self_loops=False),
    gat("slope", negative_slope=0.7),
    gat("steep-slope", negative_slope=0.0, heads=2),
    gat("no-bias", bias=False, heads=2),
    gat("residual", residual=True, heads=2),
    gat("residual-mean", residual=True, heads=2, concat=False),
    gat("dropout", dropout=0.5),
    gat("two-channel-counts", channels=(CHANNELS, CHANNELS), heads=2),
    gat("attr-mean", ATTRIBUTED, edge_dim=3, heads=2),
    gat("attr-add", ATTRIBUTED, edge_dim=3, heads=2, fill_value="add"),
    gat("attr-max", ATTRIBUTED, edge_dim=3, fill_value="max"),
    gat("attr-min", ATTRIBUTED, edge_dim=3, fill_value="min"),
    gat("attr-mul", ATTRIBUTED, edge_dim=3, fill_value="mul"),
    gat("attr-float", ATTRIBUTED, edge_dim=3, heads=2, fill_value=0.5),
    gat("attr-tensor", ATTRIBUTED, edge_dim=3, fill_value=torch.tensor([0.5, -1.0, 2.0])),
    gat("attr-no-loops", ATTRIBUTED, edge_dim=3, heads=2, add_self_loops=False),
    gat("attr-residual", ATTRIBUTED, edge_dim=3, heads=2, residual=True),
    gat("attr-ignored", ATTRIBUTED, heads=2),
    gat("one-attr", {"data": (("edge_attr", 1),), "formats": (*EDGES, "csr")}, edge_dim=1),
    gat("flat-attr", {"data": (("edge_attr", None),), "formats": EDGES}, edge_dim=1),
    gat("mean", aggr="mean", heads=2),
    gat("max", aggr="max"),
    gat("backward", BACKWARD, heads=2, **BACK),
    gat("backward-attr", ATTRIBUTED, heads=2, edge_dim=3, **BACK),
    gat("backward-attr-float", ATTRIBUTED, edge_dim=3, fill_value=0.5, **BACK),
]

GRAPH_CASES = [
    graph("plain"),
    graph("weights", WEIGHTED),
    graph("weights-signed", SIGNED),
    graph("mean", aggr="mean"),
    graph("mean-weights", WEIGHTED, aggr="mean"),
    graph("max", aggr="max"),
    graph("max-weights", SIGNED, aggr="max"),
    graph("min-weights", WEIGHTED, aggr="min"),
    graph("std", {"formats": (*UNSORTED, "csr")}, aggr="std"),
    graph("no-bias", WEIGHTED, bias=False),
    graph("backward", {"formats": UNSORTED}, **BACK),
    graph("backward-weights", {"data": WEIGHT, "formats": UNSORTED}, **BACK),
    graph("backward-max", {"formats": UNSORTED}, aggr="max", **BACK),
]

CONV_CASES = [*GCN_CASES, *SAGE_CASES, *GIN_CASES, *GAT_CASES, *GRAPH_CASES]

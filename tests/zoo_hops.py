"""Convs that sum over neighbours, once or several times, each with its options."""

import copy

import torch
from torch_geometric.nn import (
    APPNP,
    AntiSymmetricConv,
    ARMAConv,
    ChebConv,
    ClusterGCNConv,
    DNAConv,
    EGConv,
    FAConv,
    GATConv,
    GatedGraphConv,
    GCN2Conv,
    LEConv,
    LGConv,
    MFConv,
    MixHopConv,
    PDNConv,
    QuantileAggregation,
    SGConv,
    SimpleConv,
    SSGConv,
    TAGConv,
    WLConvContinuous,
)

from tests.zoo import ATTR, CHANNELS, EDGES, WEIGHT, WHOLE, Case

OUT = 4
WIDE = 3 * CHANNELS
WITH_CSR = (*EDGES, "csr")
WEIGHTED = {"data": WEIGHT}
SIGNED = {"data": WEIGHT, "signed": True}
BACK = {"flow": "target_to_source"}
COO = {"formats": EDGES}
# In a CSR matrix PyG merges a self-loop with the one it adds: another message, not another weight.
MERGED = {"csr_mode": WHOLE}


class WithTwo(torch.nn.Module):
    """Gives a conv its features and others that are made of the same."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv
        self.lin = torch.nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x, edge_index, edge_weight=None):
        x_0 = self.lin(x)
        if edge_weight is None:
            return self.conv(x, x_0, edge_index)
        return self.conv(x, x_0, edge_index, edge_weight)


class InLayers(torch.nn.Module):
    """Gives a conv several rows of features for each node."""

    def __init__(self, conv, layers, channels):
        super().__init__()
        self.conv, self.layers, self.channels = conv, layers, channels
        self.lin = torch.nn.Linear(CHANNELS, layers * channels)

    def forward(self, x, edge_index, edge_weight=None):
        rows = self.lin(x).view(-1, self.layers, self.channels)
        return self.conv(rows, edge_index, edge_weight)


class Scaled(torch.nn.Module):
    """Gives a ChebConv its `lambda_max`; one for each of two graphs if they come as a tensor."""

    def __init__(self, conv, largest=None):
        super().__init__()
        self.conv, self.largest = conv, largest

    def forward(self, x, edge_index, edge_weight=None, largest=None):
        if largest is None:
            return self.conv(x, edge_index, edge_weight, lambda_max=self.largest)
        batch = (x[:, 0] > 0).long()
        return self.conv(x, edge_index, edge_weight, batch=batch, lambda_max=largest)


def call_for_two(model, inputs):
    """Call a model with one number for each of two graphs."""
    return model(**inputs, largest=torch.tensor([1.5, 3.0], dtype=inputs["x"].dtype))


def call_for_all(model, inputs):
    """Call a model with one number in a tensor."""
    return model(**inputs, largest=torch.tensor(1.5, dtype=inputs["x"].dtype))


def case(name, make, about, **more):
    about = {"formats": WITH_CSR, **more, **(about or {})}
    return Case(name, make, **about)


def maker(kind, label, *sizes, **fixed):
    def make(name, about=None, sizes=sizes, **options):
        given = {**fixed, **options}
        more = COO if "flow" in options else {}
        return case(f"{label}-{name}", lambda: kind(*sizes, **copy.deepcopy(given)), about, **more)

    return make


simple = maker(SimpleConv, "simple")
lg = maker(LGConv, "lg")
sg = maker(SGConv, "sg", CHANNELS, OUT, K=2)
ssg = maker(SSGConv, "ssg", CHANNELS, OUT, alpha=0.1, K=3)
appnp = maker(APPNP, "appnp", K=3, alpha=0.2)
tag = maker(TAGConv, "tag", CHANNELS, OUT)
mix_hop = maker(MixHopConv, "mixhop", CHANNELS, OUT)
arma = maker(ARMAConv, "arma", CHANNELS, OUT)
cheb = maker(ChebConv, "cheb", CHANNELS, OUT, K=3)
gated = maker(GatedGraphConv, "gatedgraph", CHANNELS, 2)
cluster = maker(ClusterGCNConv, "cluster", CHANNELS, OUT)
le = maker(LEConv, "le", CHANNELS, OUT)
wl = maker(WLConvContinuous, "wlcontinuous")
mf = maker(MFConv, "mf", CHANNELS, OUT)
pdn = maker(PDNConv, "pdn", CHANNELS, OUT, edge_dim=3, hidden_channels=4)
eg = maker(EGConv, "eg", CHANNELS, 6, num_heads=3, num_bases=2)


def gcn2(name, about=None, **options):
    more = COO if "flow" in options else {}
    return case(
        f"gcn2-{name}", lambda: WithTwo(GCN2Conv(CHANNELS, alpha=0.3, **options)), about, **more
    )


def fa(name, about=None, **options):
    more = COO if "flow" in options else {}
    return case(f"fa-{name}", lambda: WithTwo(FAConv(CHANNELS, **options)), about, **more)


def dna(name, about=None, layers=3, channels=4, **options):
    more = COO if "flow" in options else {}
    return case(
        f"dna-{name}", lambda: InLayers(DNAConv(channels, **options), layers, channels), about,
        **more,
    )  # fmt: skip


def scaled_cheb(name, about, largest, **options):
    return case(
        f"cheb-{name}", lambda: Scaled(ChebConv(CHANNELS, OUT, **{"K": 3, **options}), largest),
        about, **COO,
    )  # fmt: skip


def antisymmetric(name, about=None, phi=None, **options):
    return case(
        f"antisymmetric-{name}",
        lambda: AntiSymmetricConv(CHANNELS, phi and phi(), **options),
        about,
    )


SUMS = [
    simple("plain"),
    simple("weights", WEIGHTED),
    simple("weights-signed", {**SIGNED, **COO}),
    simple("mean", aggr="mean"),
    simple("mean-weights", WEIGHTED, aggr="mean"),
    simple("max", aggr="max"),
    simple("min-weights", SIGNED, aggr="min"),
    simple("std", aggr="std"),
    simple("median", {"picky": True}, aggr="median"),
    simple("list", aggr=["mean", "max", "std"]),
    simple("root-sum", combine_root="sum"),
    simple("root-cat", combine_root="cat"),
    simple("root-cat-max-weights", WEIGHTED, combine_root="cat", aggr="max"),
    simple("root-loop", combine_root="self_loop"),
    simple("root-loop-weights", WEIGHTED, combine_root="self_loop"),
    simple("root-loop-mean", MERGED, combine_root="self_loop", aggr="mean"),
    simple("root-loop-max", MERGED, combine_root="self_loop", aggr="max"),
    simple("root-loop-min-weights", {**SIGNED, **MERGED}, combine_root="self_loop", aggr="min"),
    simple("root-loop-std", MERGED, combine_root="self_loop", aggr="std"),
    simple("backward", **BACK),
    le("plain"),
    le("weights", WEIGHTED),
    le("weights-signed", SIGNED),
    le("two-channel-counts", sizes=((CHANNELS, CHANNELS), OUT)),
    le("no-bias", bias=False),
    le("mean", aggr="mean"),
    le("max-weights", WEIGHTED, aggr="max"),
    le("backward-weights", WEIGHTED, **BACK),
    cluster("plain", COO),
    cluster("diagonal", COO, diag_lambda=0.5),
    cluster("wide", COO, sizes=(CHANNELS, WIDE)),
    cluster("no-bias", COO, bias=False),
    cluster("mean", COO, aggr="mean"),
    cluster("max", COO, diag_lambda=0.5, aggr="max"),
    cluster("std", COO, aggr="std"),
    cluster("backward", diag_lambda=0.5, **BACK),
    wl("plain", COO),
    wl("weights", {**WEIGHTED, **COO}),
    wl("weights-signed", {**SIGNED, **COO}),
    wl("backward-weights", WEIGHTED, **BACK),
    mf("plain", COO),
    mf("low-degrees", COO, max_degree=2),
    mf("no-bias", COO, bias=False),
    mf("two-channel-counts", COO, sizes=((CHANNELS, CHANNELS), OUT)),
    mf("mean", COO, aggr="mean"),
    mf("max", COO, aggr="max"),
    mf("backward", **BACK),
    gated("plain"),
    gated("weights", WEIGHTED),
    gated("padded", sizes=(CHANNELS + 2, 3)),
    gated("no-bias", bias=False),
    gated("mean", aggr="mean"),
    gated("max-weights", WEIGHTED, aggr="max"),
    gated("backward", **BACK),
]

EGS = [
    eg("symnorm"),
    eg("symnorm-no-loops", add_self_loops=False),
    eg("symnorm-cached", cached=True),
    eg("no-bias", bias=False),
    eg("all", COO, aggregators=["symnorm", "sum", "mean", "min", "max", "var", "std"]),
    eg(
        "all-no-loops",
        COO,
        aggregators=["mean", "symnorm", "std", "max", "min", "sum", "var"],
        add_self_loops=False,
    ),
    eg("max-std", COO, aggregators=["max", "std"], add_self_loops=False),
    # An EdgeIndex knows its number of nodes, and PyG then adds a loop to each.
    eg("global-loops", {"formats": ("coo",), "mode": WHOLE}, aggregators=["sum"]),
    eg("aggr-ignored", COO, aggregators=["symnorm", "max"], aggr="mean"),
    eg("backward", aggregators=["symnorm", "std"], **BACK),
]

ONE_HOP = [
    lg("plain"),
    lg("weights", WEIGHTED),
    lg("weights-signed", SIGNED),
    lg("not-normalized-weights", WEIGHTED, normalize=False),
    lg("max-weights", SIGNED, aggr="max"),
    lg("mean", aggr="mean"),
    lg("std", aggr="std"),
    lg("backward-weights", WEIGHTED, **BACK),
    gcn2("plain"),
    gcn2("weights", WEIGHTED),
    gcn2("beta", theta=0.5, layer=2),
    gcn2("two-weights", theta=0.5, layer=2, shared_weights=False),
    gcn2("cached-weights", WEIGHTED, cached=True),
    gcn2("no-loops-weights", SIGNED, add_self_loops=False),
    gcn2("not-normalized", normalize=False),
    gcn2("not-normalized-weights", WEIGHTED, normalize=False),
    gcn2("mean", {"csr_mode": WHOLE}, aggr="mean", theta=0.5, layer=2),
    gcn2("max-weights", {**WEIGHTED, **MERGED}, aggr="max", theta=0.5, layer=2),
    gcn2("backward", **BACK),
    pdn("plain", {"data": ATTR, **COO}),
    pdn("no-attr", COO),
    pdn("no-loops", {"data": ATTR, **COO}, add_self_loops=False),
    pdn("not-normalized", {"data": ATTR, **COO}, normalize=False),
    pdn("no-bias", {"data": ATTR, **COO}, bias=False),
    pdn("mean", {"data": ATTR, **COO}, aggr="mean"),
    pdn("max", {"data": ATTR, **COO}, aggr="max"),
    pdn("backward", {"data": ATTR}, **BACK),
    fa("plain"),
    fa("no-eps", eps=0.0),
    fa("dropout", dropout=0.5),
    fa("cached", cached=True),
    fa("no-loops", add_self_loops=False),
    fa("not-normalized-weights", WEIGHTED, normalize=False),
    fa("mean", MERGED, aggr="mean"),
    fa("max", MERGED, aggr="max"),
    fa("std", MERGED, aggr="std"),
    fa("backward", **BACK),
    dna("plain"),
    dna("one-layer", layers=1),
    dna("heads", heads=2),
    dna("groups", heads=4, groups=2, bias=False),
    dna("weights", WEIGHTED),
    dna("weights-signed", {**SIGNED, **COO}),
    dna("cached", cached=True),
    dna("no-loops", add_self_loops=False),
    dna("not-normalized-weights", WEIGHTED, normalize=False),
    dna("mean", MERGED, aggr="mean"),
    dna("max-weights", {**WEIGHTED, **MERGED}, aggr="max"),
    dna("backward-weights", WEIGHTED, **BACK),
]

SEVERAL_HOPS = [
    sg("plain"),
    sg("one", K=1),
    sg("none", K=0),
    sg("weights", WEIGHTED),
    sg("weights-signed", SIGNED),
    sg("wide", sizes=(CHANNELS, WIDE)),
    sg("no-loops-weights", WEIGHTED, add_self_loops=False),
    sg("cached-weights", WEIGHTED, cached=True),
    sg("no-bias", bias=False),
    sg("mean", MERGED, aggr="mean"),
    sg("max", MERGED, aggr="max"),
    sg("min-weights", {**SIGNED, **MERGED}, aggr="min"),
    sg("backward-weights", WEIGHTED, **BACK),
    ssg("plain"),
    ssg("one", K=1),
    ssg("weights", WEIGHTED),
    ssg("wide", sizes=(CHANNELS, WIDE)),
    ssg("no-loops-weights", SIGNED, add_self_loops=False),
    ssg("cached", cached=True),
    ssg("mean", MERGED, aggr="mean"),
    ssg("max", MERGED, aggr="max"),
    ssg("backward", **BACK),
    appnp("plain"),
    appnp("weights", WEIGHTED),
    appnp("no-loops-weights", SIGNED, add_self_loops=False),
    appnp("not-normalized", normalize=False),
    appnp("not-normalized-weights", WEIGHTED, normalize=False),
    appnp("cached-weights", WEIGHTED, cached=True),
    appnp("dropout", dropout=0.5),
    appnp("max", MERGED, aggr="max"),
    appnp("backward-weights", WEIGHTED, **BACK),
    tag("plain"),
    tag("none", K=0),
    tag("weights", WEIGHTED),
    tag("weights-signed", SIGNED),
    tag("wide", sizes=(CHANNELS, WIDE)),
    tag("no-bias", bias=False),
    tag("not-normalized", normalize=False),
    tag("not-normalized-weights", WEIGHTED, normalize=False),
    tag("mean", aggr="mean"),
    tag("max-weights", WEIGHTED, aggr="max"),
    tag("backward", **BACK),
    mix_hop("plain"),
    mix_hop("weights", WEIGHTED),
    mix_hop("no-zero", powers=[1, 3]),
    mix_hop("any-order", WEIGHTED, powers=[3, 0, 1]),
    mix_hop("only-zero", powers=[0]),
    mix_hop("twice", powers=[2, 0, 2]),
    mix_hop("wide", sizes=(CHANNELS, WIDE)),
    mix_hop("no-loops-weights", WEIGHTED, add_self_loops=False),
    mix_hop("no-bias", bias=False),
    mix_hop("max", MERGED, aggr="max"),
    mix_hop("backward", **BACK),
    arma("plain", COO),
    arma("stacks", COO, num_stacks=3, num_layers=3),
    arma("shared", {**WEIGHTED, **COO}, num_stacks=2, num_layers=3, shared_weights=True),
    arma("weights-signed", {**SIGNED, **COO}, num_stacks=2, num_layers=2),
    arma("tanh", COO, num_layers=2, act=torch.tanh),
    arma("no-act", COO, num_layers=2, act=None),
    arma("dropout", COO, dropout=0.5),
    arma("no-bias", COO, num_stacks=2, bias=False),
    arma("max", {**WEIGHTED, **COO}, num_layers=2, aggr="max"),
    arma("mul", COO, num_stacks=2, num_layers=2, aggr="mul"),
    arma("median", {**WEIGHTED, **COO, "picky": True}, num_stacks=2, aggr="median"),
    arma("quantile", {**COO, "picky": True}, num_stacks=2, aggr=QuantileAggregation(0.3)),
    arma("backward", num_stacks=2, **BACK),
    cheb("plain", COO),
    cheb("one", COO, K=1),
    cheb("two", COO, K=2),
    cheb("five", COO, K=5),
    cheb("wide", COO, sizes=(CHANNELS, WIDE), K=4),
    cheb("rw", COO, normalization="rw"),
    cheb("no-bias", COO, bias=False),
    cheb("global-none", {**COO, "mode": WHOLE}, normalization=None),
    cheb("global-weights", {**WEIGHTED, **COO, "mode": WHOLE}),
    *(cheb(aggr, COO, aggr=aggr) for aggr in ("mean", "max", "std", "mul")),
    cheb("median", {**COO, "picky": True}, aggr="median"),
    cheb("max-rw-backward", normalization="rw", aggr="max", **BACK),
    scaled_cheb("lambda-mean", WEIGHTED, 1.5, aggr="mean"),
    scaled_cheb("lambda-max", SIGNED, 1.5, aggr="max"),
    cheb("backward", K=4, **BACK),
    cheb("backward-rw", normalization="rw", **BACK),
    scaled_cheb("lambda", WEIGHTED, 1.5),
    scaled_cheb("lambda-signed", SIGNED, 1.5, K=2),
    scaled_cheb("lambda-rw", WEIGHTED, 3.0, normalization="rw", K=4),
    scaled_cheb("lambda-none", WEIGHTED, 7.0, normalization=None),
    scaled_cheb("lambda-tensor", {**WEIGHTED, "call": call_for_all}, None),
    scaled_cheb("lambda-two", {**WEIGHTED, "call": call_for_two}, None, K=4),
    scaled_cheb("lambda-two-backward", {**WEIGHTED, "call": call_for_two}, None, **BACK),
    scaled_cheb("lambda-none-backward", WEIGHTED, 7.0, normalization=None, **BACK),
]

ANTISYMMETRIC = [
    antisymmetric("plain"),
    antisymmetric("three", num_iters=3),
    antisymmetric("relu-no-bias", act="relu", bias=False),
    antisymmetric("no-act", act=None),
    antisymmetric("gat", COO, phi=lambda: GATConv(CHANNELS, CHANNELS), num_iters=2),
    antisymmetric("lg-weights", {**WEIGHTED, **COO}, phi=lambda: SGConv(CHANNELS, CHANNELS)),
]

HOP_CASES = [*SUMS, *EGS, *ONE_HOP, *SEVERAL_HOPS, *ANTISYMMETRIC]
"""Cases of this family of convs."""

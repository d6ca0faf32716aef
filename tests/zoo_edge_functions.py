"""Convs whose messages are functions of both ends or of edge data, with their usual options."""

import copy
import itertools

import torch
from torch import nn
from torch.nn import BatchNorm1d, Dropout, LeakyReLU, Linear, ReLU, Sequential, Tanh
from torch_geometric import nn as gnn
from torch_geometric.nn import MLP

from tests.strategies import KINDS
from tests.zoo import ATTR, CHANNELS, EDGES, Case

OUT = 4
BACK = {"flow": "target_to_source"}
UNSORTED = ("coo", "edge_index")
WITH_CSR = (*EDGES, "csr")
ATTRIBUTED = {"data": ATTR}
TYPED = {"data": (("edge_type", "type"),)}
ONE = {"data": (("edge_attr", 1),)}
WIDE = {"data": (("edge_attr", CHANNELS),)}
BACKWARD = {"formats": UNSORTED}


def small(*sizes):
    layers = [Linear(sizes[0], sizes[1])]
    for width, following in itertools.pairwise(sizes[1:]):
        layers += [ReLU(), Linear(width, following)]
    return Sequential(*layers)


def every_aggr(family, about=None, *, lists=False, **options):
    """A conv with every aggregation that it takes.

    PyG's median fails on some graphs. Of a list the results are concatenated where the conv allows
    for that width, else added up.
    """
    names = ("sum", "mean", "max", "min", "std", "var", "mul", "softmax", "powermean")
    several = (["mean", "max", "std"], ["sum", "min", "var"], ["softmax", "mul"])
    about = about or {}
    return [
        *(family(aggr, about, aggr=aggr, **options) for aggr in names),
        family("median", {**about, "picky": True}, aggr="median", **options),
        *(
            family("-".join(aggrs), about, aggr=aggrs if lists else summed(aggrs), **options)
            for aggrs in several[: 3 if lists else 1]
        ),
    ]


def summed(aggrs):
    return gnn.MultiAggregation(aggrs, mode="sum")


# Messages from the source and the edge #########################################################


def gine(name, about=None, net=lambda: small(CHANNELS, 6, OUT), **options):
    about = {**ATTRIBUTED, **(about or {})}
    if about["data"] == ATTR:
        options = {"edge_dim": 3, **options}
    return Case(f"gine-{name}", lambda: gnn.GINEConv(net(), **copy.deepcopy(options)), **about)


def nn_conv(name, about=None, net=lambda: small(3, 6, CHANNELS * OUT), **options):
    about = {**ATTRIBUTED, **(about or {})}
    return Case(
        f"nn-{name}", lambda: gnn.NNConv(CHANNELS, OUT, net(), **copy.deepcopy(options)), **about
    )


def gmm(name, about=None, channels=CHANNELS, **options):
    about = {**ATTRIBUTED, **(about or {})}
    options = {"dim": 3, "kernel_size": 2, **options}
    return Case(
        f"gmm-{name}", lambda: gnn.GMMConv(channels, OUT, **copy.deepcopy(options)), **about
    )


KERNEL_CASES = [
    gine("plain"),
    gine("same-width", WIDE),
    gine("eps", eps=0.3),
    gine("train-eps", eps=0.3, train_eps=True),
    gine("mlp", net=lambda: MLP([CHANNELS, 6, OUT])),
    gine("batch-norm", WIDE, net=lambda: Sequential(BatchNorm1d(CHANNELS), Linear(CHANNELS, OUT))),
    gine("one-linear", net=lambda: Linear(CHANNELS, OUT)),
    gine("backward", BACKWARD, **BACK),
    *every_aggr(gine),
    nn_conv("plain"),
    nn_conv("no-root", root_weight=False),
    nn_conv("no-bias", bias=False),
    nn_conv("neither", root_weight=False, bias=False),
    nn_conv("one-linear", net=lambda: Linear(3, CHANNELS * OUT)),
    nn_conv("backward", BACKWARD, **BACK),
    *every_aggr(nn_conv),
    gmm("plain"),
    gmm("one-kernel", kernel_size=1),
    gmm("separate", separate_gaussians=True),
    gmm("separate-max", separate_gaussians=True, aggr="max"),
    gmm("no-bias", bias=False),
    gmm("backward", BACKWARD, **BACK),
    *every_aggr(gmm),
]  # fmt: skip


class TypedMatrices(nn.Module):
    """A learned matrix for each type of edge."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.NNConv(CHANNELS, OUT, nn.Embedding(KINDS, CHANNELS * OUT))

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


KERNEL_CASES += [Case("nn-types", TypedMatrices, **TYPED)]


# Messages gated by both ends ###################################################################


def cg(name, about=None, **options):
    return Case(
        f"cg-{name}", lambda: gnn.CGConv(CHANNELS, **copy.deepcopy(options)), **(about or {})
    )


def res_gated(name, about=None, **options):
    return Case(
        f"res-gated-{name}",
        lambda: gnn.ResGatedGraphConv(CHANNELS, OUT, **copy.deepcopy(options)),
        **(about or {}),
    )


def film(name, about=None, **options):
    return Case(
        f"film-{name}",
        lambda: gnn.FiLMConv(CHANNELS, OUT, **copy.deepcopy(options)),
        **(about or {}),
    )


def film_typed(name, about=None, **options):
    return film(f"typed-{name}", {**TYPED, **(about or {})}, num_relations=KINDS, **options)


GATED_CASES = [
    cg("plain", {"formats": WITH_CSR}),
    cg("attr", ATTRIBUTED, dim=3),
    cg("batch-norm", ATTRIBUTED, dim=3, batch_norm=True),
    cg("no-bias", bias=False),
    cg("backward", BACKWARD, **BACK),
    cg("backward-attr", {**ATTRIBUTED, **BACKWARD}, dim=3, **BACK),
    *every_aggr(cg),
    res_gated("plain", {"formats": WITH_CSR}),
    res_gated("attr", ATTRIBUTED, edge_dim=3),
    res_gated("tanh", act=Tanh()),
    res_gated("leaky", ATTRIBUTED, act=LeakyReLU(0.3), edge_dim=3),
    res_gated("function", act=torch.tanh),
    res_gated("no-root", root_weight=False),
    res_gated("no-bias", ATTRIBUTED, edge_dim=3, bias=False),
    res_gated("backward", BACKWARD, **BACK),
    *every_aggr(res_gated),
    *[
        Case(f"res-gated-attr-{aggr}", lambda a=aggr: gnn.ResGatedGraphConv(
            CHANNELS, OUT, edge_dim=3, aggr=a), **ATTRIBUTED)
        for aggr in ("mean", "max", "std")
    ],
    film("plain", {"formats": WITH_CSR}),
    film("no-act", act=None),
    film("tanh", act=Tanh()),
    film("nn", nn=small(CHANNELS, 6, 2 * OUT)),
    film("backward", BACKWARD, **BACK),
    *every_aggr(film),
    film_typed("mean"),
    film_typed("sum", aggr="sum"),
    film_typed("max", aggr="max"),
    film_typed("min", aggr="min", act=Tanh()),
    film_typed("std", aggr="std"),
    film_typed("list", aggr=summed(["mean", "max"]), nn=small(CHANNELS, 2 * OUT)),
    film_typed("backward", BACKWARD, **BACK),
]  # fmt: skip


# Points ########################################################################################


class Points(nn.Module):
    """Its first columns are positions (and normals), the others features."""

    def __init__(self, conv, *names, features=True):
        super().__init__()
        self.conv, self.names, self.features = conv, names, features

    def forward(self, x, edge_index):
        rows = {name: x[:, 3 * i : 3 * i + 3] for i, name in enumerate(self.names)}
        features = x[:, 2:] if self.features else None
        return self.conv(features, edge_index=edge_index, **rows)


def edge_conv(name, about=None, net=lambda: small(2 * CHANNELS, 6, OUT), **options):
    return Case(
        f"edge-conv-{name}", lambda: gnn.EdgeConv(net(), **copy.deepcopy(options)), **(about or {})
    )


def point_net(
    name, about=None, local=lambda: small(6, 5, OUT), last=None, features=True, **options
):
    def make():
        nets = local and local(), last and last()
        return Points(gnn.PointNetConv(*nets, **options), "pos", features=features)

    return Case(f"point-net-{name}", make, **(about or {}))


def point_gnn(name, about=None, **options):
    def make():
        nets = small(3, 4, 3), small(6, 5, OUT), small(OUT, 3)
        return Points(gnn.PointGNNConv(*nets, **copy.deepcopy(options)), "pos")

    return Case(f"point-gnn-{name}", make, **(about or {}))


class PairPoints(nn.Module):
    """Positions and normals are columns of the input.

    Were they computed by a linear layer, two equal points might come out a rounding error apart,
    and the angle to such a difference says nothing.
    """

    def __init__(self, conv, features=True):
        super().__init__()
        self.conv, self.features = conv, features

    def forward(self, x, edge_index):
        return self.conv(x[:, 1:3] if self.features else None, x[:, :3], x[:, 2:5], edge_index)


def ppf(name, about=None, local=lambda: small(6, 5, OUT), last=None, features=True, **options):
    def make():
        nets = local and local(), last and last()
        return PairPoints(gnn.PPFConv(*nets, **options), features)

    return Case(f"ppf-{name}", make, **(about or {}))


POINT_CASES = [
    edge_conv("plain", {"formats": WITH_CSR}),
    edge_conv("one-linear", net=lambda: Linear(2 * CHANNELS, OUT)),
    edge_conv("mlp", net=lambda: MLP([2 * CHANNELS, 6, OUT])),
    edge_conv("dropout", net=lambda: Sequential(Dropout(0.5), Linear(2 * CHANNELS, OUT), ReLU())),
    edge_conv("backward", BACKWARD, **BACK),
    *every_aggr(edge_conv, lists=True),
    point_net("plain"),
    point_net("no-features", local=lambda: Linear(3, OUT), features=False),
    point_net("no-networks", local=None),
    point_net("both-networks", last=lambda: small(OUT, 3)),
    point_net("no-loops", {"formats": WITH_CSR}, add_self_loops=False),
    point_net("backward", BACKWARD, **BACK),
    point_net("sum", aggr="sum"),
    point_net("mean", aggr="mean"),
    point_net("min", aggr="min"),
    point_net("list", aggr=["mean", "max", "sum"]),
    point_net("std", aggr="std"),
    point_net("list-no-loops", aggr=["mean", "max", "std"], add_self_loops=False),
    point_gnn("plain", {"formats": WITH_CSR}),
    point_gnn("backward", BACKWARD, **BACK),
    *every_aggr(point_gnn),
    ppf("plain"),
    ppf("no-features", local=lambda: Linear(4, OUT), features=False),
    ppf("no-networks", local=None),
    ppf("both-networks", last=lambda: small(OUT, 3)),
    ppf("no-loops", {"formats": WITH_CSR}, add_self_loops=False),
    ppf("backward", BACKWARD, **BACK),
    ppf("sum", aggr="sum"),
    ppf("mean-list", aggr=["mean", "min"]),
    ppf("std", aggr="std"),
]


# Several aggregators ###########################################################################


def pna(name, about=None, channels=CHANNELS, **options):
    options = {
        "aggregators": ["mean", "min", "max", "std"],
        "scalers": ["identity", "amplification", "attenuation"],
        "deg": torch.tensor([1, 3, 4, 2]),
        **options,
    }
    return Case(f"pna-{name}", lambda: gnn.PNAConv(channels, OUT, **options), **(about or {}))


PNA_CASES = [
    pna("plain", {"formats": WITH_CSR}),
    pna("attr", ATTRIBUTED, edge_dim=3),
    pna("towers", towers=2),
    pna("towers-attr", ATTRIBUTED, towers=2, edge_dim=3),
    pna("divided", channels=CHANNELS, towers=1, divide_input=True),
    pna("layers", pre_layers=2, post_layers=2, towers=2),
    pna("layers-attr", ATTRIBUTED, pre_layers=3, post_layers=2, edge_dim=3, act="elu"),
    pna("scalers", scalers=["identity", "linear", "inverse_linear", "attenuation"]),
    pna("trained-norm", scalers=["amplification", "linear"], train_norm=True),
    pna("sum-var", aggregators=["sum", "var"]),
    pna("only-max", aggregators=["max"], scalers=["identity"]),
    pna("only-min-attr", ATTRIBUTED, aggregators=["min"], scalers=["linear"], edge_dim=3),
    pna("other", {"picky": True}, aggregators=["mean", "median", "softmax"], scalers=["identity"]),
    pna("backward", BACKWARD, **BACK),
    pna("backward-attr", {**ATTRIBUTED, **BACKWARD}, edge_dim=3, **BACK),
]


class Divided(nn.Module):
    """PNA that hands each tower a part of the channels."""

    def __init__(self, **options):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, 6)
        self.conv = gnn.PNAConv(
            6, OUT, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([1, 3, 4]),
            towers=2, divide_input=True, **options,
        )  # fmt: skip

    def forward(self, x, edge_index, edge_attr=None):
        return self.conv(self.lin(x), edge_index, edge_attr)


PNA_CASES += [
    Case("pna-divided-towers", Divided),
    Case("pna-divided-towers-attr", lambda: Divided(edge_dim=3), **ATTRIBUTED),
    Case("pna-divided-towers-layers", lambda: Divided(pre_layers=2)),
]


# Relations #####################################################################################


def rgcn(name, about=None, conv=gnn.RGCNConv, channels=CHANNELS, out=OUT, **options):
    about = {**TYPED, **(about or {})}
    return Case(f"{name}", lambda: conv(channels, out, KINDS, **options), **about)


class Blocks(nn.Module):
    """A number of channels that blocks divide."""

    def __init__(self, conv, **options):
        super().__init__()
        self.lin, self.conv = nn.Linear(CHANNELS, 6), conv(6, OUT, KINDS, num_blocks=2, **options)

    def forward(self, x, edge_index, edge_type):
        return self.conv(self.lin(x), edge_index, edge_type)


def relational(name, conv):
    def one(option, about=None, **options):
        return rgcn(f"{name}-{option}", about, conv, **options)

    def blocks(option, **options):
        return Case(f"{name}-blocks-{option}", lambda: Blocks(conv, **options), **TYPED)

    return [
        one("plain"),
        one("sum", aggr="sum"),
        one("bases", num_bases=2),
        one("bases-sum", num_bases=2, aggr="sum"),
        blocks("mean"),
        blocks("sum", aggr="sum"),
        one("wide", out=3 * CHANNELS),
        one("wide-sum", out=3 * CHANNELS, aggr="sum", num_bases=2),
        one("no-root", root_weight=False),
        one("no-bias", bias=False, root_weight=False),
        one("backward", BACKWARD, **BACK),
    ]


RELATION_CASES = [
    *relational("rgcn", gnn.RGCNConv),
    *relational("fast-rgcn", gnn.FastRGCNConv),
    rgcn("rgcn-max", aggr="max"),
    rgcn("rgcn-min-bases", aggr="min", num_bases=2),
    Case("rgcn-blocks-max", lambda: Blocks(gnn.RGCNConv, aggr="max"), **TYPED),
    rgcn("rgcn-std", aggr="std"),
    rgcn("rgcn-mul", aggr="mul"),
]

EDGE_FUNCTION_CASES = [
    *KERNEL_CASES,
    *GATED_CASES,
    *POINT_CASES,
    *PNA_CASES,
    *RELATION_CASES,
]
"""Cases of one family of convs."""

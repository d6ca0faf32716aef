"""Convs that attend, and their kin: every usual option of each."""

from dataclasses import replace
from itertools import chain

import torch
from torch.nn import Linear, ReLU, Sequential
from torch_geometric.nn import (
    AGNNConv,
    FeaStConv,
    GATConv,
    GATv2Conv,
    GENConv,
    GeneralConv,
    HEATConv,
    PointTransformerConv,
    RGATConv,
    SuperGATConv,
    TransformerConv,
)
from torch_geometric.nn.models.attentive_fp import GATEConv

from tests.zoo import ATTR, CHANNELS, EDGES, Case

OUT = 4
RELATIONS = 3
BACK = {"flow": "target_to_source"}
BACKWARD = {"formats": EDGES}
WITH_CSR = (*EDGES, "csr")
ATTRIBUTED = {"data": ATTR, "formats": EDGES}
TYPED = {"data": (("edge_type", "type"),), "formats": EDGES}
TYPED_ATTR = {"data": (("edge_type", "type"), *ATTR), "formats": EDGES}


def of(kind, prefix, formats=WITH_CSR):
    """A maker of cases of one conv class that takes (in_channels, out_channels)."""

    def case(name, about=None, channels=CHANNELS, **options):
        about = {"formats": formats, **(about or {})}
        return Case(f"{prefix}-{name}", lambda: kind(channels, OUT, **options), **about)

    return case


def sorted_apart(case):
    """A case on a plain `edge_index`, and on sorted edges without NaN and infinities.

    If all logits of a row are minus infinity, PyG gives its edges a weight of zero where it knows
    that they are sorted, and of NaN in a plain `edge_index`.
    """
    others = tuple(fmt for fmt in case.formats if fmt != "coo")
    yield replace(case, formats=("coo",))
    yield replace(case, name=f"{case.name}-sorted", formats=others, finite=True)


class Pair(torch.nn.Module):
    """A conv on `(x_src, x_dst)`: two sets of features of the same nodes."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, **data):
        return self.conv((x[:, :3], x[:, 2:]), edge_index, **data)


def pair(name, make, **about):
    return Case(name, lambda: Pair(make((3, CHANNELS - 2), OUT)), **about)


gatv2 = of(GATv2Conv, "gatv2")
GATV2_CASES = [
    gatv2("plain"),
    gatv2("heads", heads=3),
    gatv2("heads-mean", heads=3, concat=False),
    *sorted_apart(gatv2("no-loops", heads=2, add_self_loops=False)),
    gatv2("shared", heads=2, share_weights=True),
    *sorted_apart(gatv2("shared-no-loops", share_weights=True, add_self_loops=False)),
    gatv2("slope", negative_slope=0.7),
    gatv2("no-bias", heads=2, bias=False),
    gatv2("residual", heads=2, residual=True),
    gatv2("residual-mean", heads=2, residual=True, concat=False),
    gatv2("dropout", dropout=0.5),
    gatv2("two-channel-counts", channels=(CHANNELS, CHANNELS), heads=2),
    gatv2("attr-mean", ATTRIBUTED, edge_dim=3, heads=2),
    gatv2("attr-add", ATTRIBUTED, edge_dim=3, fill_value="add"),
    gatv2("attr-max", ATTRIBUTED, edge_dim=3, fill_value="max"),
    gatv2("attr-float", ATTRIBUTED, edge_dim=3, heads=2, fill_value=0.5),
    gatv2("attr-tensor", ATTRIBUTED, edge_dim=3, fill_value=torch.tensor([0.5, -1.0, 2.0])),
    *sorted_apart(gatv2("attr-no-loops", ATTRIBUTED, edge_dim=3, add_self_loops=False)),
    gatv2("flat-attr", {"data": (("edge_attr", None),), "formats": EDGES}, edge_dim=1),
    gatv2("mean", heads=2, aggr="mean"),
    gatv2("max", heads=2, aggr="max"),
    gatv2("std-attr", ATTRIBUTED, edge_dim=3, aggr="std"),
    gatv2("backward", BACKWARD, heads=2, **BACK),
    gatv2("backward-attr", ATTRIBUTED, heads=2, edge_dim=3, **BACK),
    gatv2("backward-attr-float", ATTRIBUTED, edge_dim=3, fill_value=0.5, **BACK),
    pair("gatv2-pair", lambda i, o: GATv2Conv(i, o, heads=2, residual=True)),
]

transformer = of(TransformerConv, "transformer")
TRANSFORMER_CASES = [
    transformer("plain"),
    transformer("heads", heads=3),
    transformer("heads-mean", heads=3, concat=False),
    transformer("beta", heads=2, beta=True),
    transformer("beta-mean", heads=2, beta=True, concat=False),
    transformer("no-root", heads=2, root_weight=False),
    transformer("no-bias", bias=False),
    transformer("dropout", dropout=0.5),
    transformer("attr", ATTRIBUTED, heads=2, edge_dim=3),
    transformer("attr-beta", ATTRIBUTED, edge_dim=3, beta=True),
    transformer("mean", heads=2, aggr="mean"),
    transformer("max", heads=2, aggr="max"),
    transformer("min-attr", ATTRIBUTED, edge_dim=3, aggr="min"),
    transformer("backward-attr", ATTRIBUTED, heads=2, edge_dim=3, **BACK),
    pair("transformer-pair", lambda i, o: TransformerConv(i, o, heads=2, beta=True)),
]

supergat = of(SuperGATConv, "supergat")
SUPERGAT_CASES = [
    supergat("mixed"),
    supergat("mixed-heads", heads=3),
    supergat("dot-heads", heads=3, attention_type="SD"),
    supergat("heads-mean", heads=2, concat=False),
    supergat("no-loops", heads=2, add_self_loops=False),
    supergat("no-bias", bias=False, attention_type="SD"),
    supergat("max", heads=2, aggr="max"),
    supergat("mean", heads=2, aggr="mean"),
    supergat("backward", BACKWARD, heads=2, **BACK),
]


def agnn(name, about=None, **options):
    return Case(
        f"agnn-{name}", lambda: AGNNConv(**options), **{"formats": WITH_CSR, **(about or {})}
    )


AGNN_CASES = [
    agnn("plain"),
    agnn("fixed", requires_grad=False),
    agnn("no-loops", add_self_loops=False),
    agnn("mean", aggr="mean"),
    agnn("max", aggr="max"),
    agnn("list", BACKWARD, aggr=["mean", "max"]),
    agnn("backward", BACKWARD, **BACK),
]


def rgat(name, about=None, **options):
    def make():
        conv = RGATConv(CHANNELS, OUT, RELATIONS, **options)
        torch.nn.init.normal_(conv.l2)  # PyG leaves it as the memory was
        return conv

    return Case(f"rgat-{name}", make, **{**TYPED, **(about or {})})


WITHIN = {"attention_mechanism": "within-relation"}
TIMES = {"attention_mode": "multiplicative-self-attention"}
RGAT_CASES = [
    rgat("plain"),
    rgat("heads", heads=2),
    rgat("heads-mean", heads=2, concat=False),
    rgat("times", heads=2, **TIMES),
    rgat("times-dim", heads=2, dim=2, **TIMES),
    rgat("times-dim-mean", heads=2, dim=2, concat=False, **TIMES),
    rgat("within", heads=2, **WITHIN),
    rgat("within-times", dim=2, **WITHIN, **TIMES),
    rgat("within-attr", TYPED_ATTR, heads=2, edge_dim=3, **WITHIN),
    rgat("within-mean", heads=2, aggr="mean", **WITHIN),
    rgat("bases", num_bases=2),
    rgat("blocks", heads=5, num_blocks=5),
    rgat("attr", TYPED_ATTR, heads=2, edge_dim=3),
    rgat("attr-times", TYPED_ATTR, heads=2, edge_dim=3, **TIMES),
    rgat("additive", heads=2, mod="additive"),
    rgat("additive-times", mod="additive", dim=2, **TIMES),
    rgat("additive-mean", heads=2, mod="additive", aggr="mean"),
    rgat("scaled", heads=2, mod="scaled"),
    rgat("scaled-within", heads=2, mod="scaled", **WITHIN),
    rgat("scaled-times", heads=2, mod="scaled", **TIMES),
    rgat("f-scaled", heads=2, mod="f-scaled"),
    rgat("f-additive", heads=2, mod="f-additive"),
    rgat("no-bias", bias=False),
    rgat("mean", heads=2, aggr="mean"),
    rgat("max", heads=2, aggr="max"),
    rgat("backward", heads=2, **BACK),
]


class Heat(torch.nn.Module):
    """`HEATConv` with node types found in the features."""

    def __init__(self, **options):
        super().__init__()
        self.conv = HEATConv(CHANNELS, OUT, 2, RELATIONS, 3, 3, 2, **options)

    def forward(self, x, edge_index, edge_type, edge_attr):
        return self.conv(x, edge_index, (x[:, 0] > 0).long(), edge_type, edge_attr)


def heat(name, **options):
    return Case(f"heat-{name}", lambda: Heat(**options), **TYPED_ATTR)


HEAT_CASES = [
    heat("plain"),
    heat("heads", heads=3),
    heat("heads-mean", heads=2, concat=False),
    heat("no-root", heads=2, root_weight=False),
    heat("no-root-mean", heads=2, root_weight=False, concat=False),
    heat("no-bias", bias=False),
    heat("mean", heads=2, aggr="mean"),
    heat("max", heads=2, aggr="max"),
    heat("backward", heads=2, **BACK),
]


class AttentiveLayer(torch.nn.Module):
    """The first layer of `AttentiveFP`: a conv that reads edge attributes, then a cell."""

    def __init__(self):
        super().__init__()
        self.conv = GATEConv(CHANNELS, CHANNELS, 3)
        self.cell = torch.nn.GRUCell(CHANNELS, CHANNELS)

    def forward(self, x, edge_index, edge_attr):
        return self.cell(self.conv(x, edge_index, edge_attr).relu(), x)


def gate(name, make):
    return Case(f"gate-{name}", make, scheme="constrained", **ATTRIBUTED)


GATE_CASES = [
    gate("plain", lambda: GATEConv(CHANNELS, CHANNELS, 3)),
    gate("dropout", lambda: GATEConv(CHANNELS, CHANNELS, 3, dropout=0.5)),
    gate("cell", AttentiveLayer),
]

gen = of(GENConv, "gen")
GEN_CASES = [
    gen("plain"),
    gen("softmax-learned", learn_t=True, t=0.7),
    gen("powermean", aggr="powermean", p=2.0),
    gen("powermean-learned", aggr="powermean", p=1.5, learn_p=True),
    gen("add", aggr="add"),
    gen("mean", aggr="mean"),
    gen("max", aggr="max"),
    gen("std", aggr="std"),
    gen("list", aggr=["mean", "max", "std"]),
    Case("gen-same-width", lambda: GENConv(CHANNELS, CHANNELS, norm=None), formats=WITH_CSR),
    gen("attr", ATTRIBUTED, edge_dim=3),
    gen("attr-same-width", {"data": (("edge_attr", OUT),), "formats": EDGES}),
    gen("attr-powermean", ATTRIBUTED, edge_dim=3, aggr="powermean", p=2.0),
    gen("attr-add", ATTRIBUTED, edge_dim=3, aggr="add"),
    gen("attr-max", ATTRIBUTED, edge_dim=3, aggr="max"),
    gen("attr-list", ATTRIBUTED, edge_dim=3, aggr=["add", "min", "softmax"]),
    gen("norm", msg_norm=True),
    gen("norm-learned", ATTRIBUTED, msg_norm=True, learn_msg_scale=True, edge_dim=3),
    gen("layer-norm", norm="layer", bias=True, num_layers=3),
    gen("no-norm", norm=None, num_layers=1),
    gen("backward", ATTRIBUTED, edge_dim=3, **BACK),
    pair("gen-pair", GENConv),
]

general = of(GeneralConv, "general")
DOT = {"attention": True, "attention_type": "dot_product"}
EDGED = {"in_edge_channels": 3}
GENERAL_CASES = [
    general("plain"),
    general("heads", heads=3),
    general("mean", heads=2, aggr="mean"),
    general("max", heads=2, aggr="max"),
    general("skip", skip_linear=True),
    general("normalized", l2_normalize=True),
    general("no-bias", bias=False),
    general("attr", ATTRIBUTED, heads=2, **EDGED),
    general("attr-max", ATTRIBUTED, aggr="max", **EDGED),
    general("mutual", heads=2, directed_msg=False),
    general("mutual-mean", aggr="mean", directed_msg=False),
    general("mutual-attr-max", ATTRIBUTED, aggr="max", directed_msg=False, **EDGED),
    general("attention", heads=2, attention=True),
    general("attention-attr", ATTRIBUTED, heads=2, attention=True, **EDGED),
    general("attention-mutual", heads=2, attention=True, directed_msg=False),
    general("attention-max", heads=2, attention=True, aggr="max"),
    general("dot", heads=2, **DOT),
    general("dot-attr", ATTRIBUTED, heads=2, **DOT, **EDGED),
    general("dot-mutual", heads=2, directed_msg=False, **DOT),
    general("dot-mutual-attr", ATTRIBUTED, directed_msg=False, **DOT, **EDGED),
    general("backward", ATTRIBUTED, heads=2, **DOT, **EDGED, **BACK),
    Case("general-itself", lambda: GeneralConv(CHANNELS, CHANNELS, heads=2), formats=WITH_CSR),
    pair("general-pair", lambda i, o: GeneralConv(i, o, heads=2, **DOT)),
]

feast = of(FeaStConv, "feast")
FAILS_EMPTY = {"picky": True}  # PyG itself fails on a graph without edges
FEAST_CASES = [
    feast("plain"),
    feast("heads", heads=3),
    feast("no-loops", FAILS_EMPTY, heads=3, add_self_loops=False),
    feast("no-bias", heads=2, bias=False),
    feast("add", heads=2, aggr="add"),
    feast("max", heads=2, aggr="max"),
    feast("min-no-loops", FAILS_EMPTY, heads=2, aggr="min", add_self_loops=False),
    feast(
        "list-no-loops",
        {**FAILS_EMPTY, **BACKWARD},
        heads=2,
        bias=False,
        aggr=["mean", "max"],
        add_self_loops=False,
    ),
    feast("std", BACKWARD, heads=2, aggr="std"),
    feast("backward", BACKWARD, heads=2, **BACK),
    Case("feast-pair", lambda: Pair(FeaStConv(3, OUT, heads=2))),
]


class Points(torch.nn.Module):
    """`PointTransformerConv` at positions found in the features."""

    def __init__(self, **options):
        super().__init__()
        self.conv = PointTransformerConv(CHANNELS, OUT, **options)

    def forward(self, x, edge_index):
        return self.conv(x, x[:, 2:], edge_index)


def point(name, options=dict, **about):
    return Case(f"point-{name}", lambda: Points(**options()), **{"formats": WITH_CSR, **about})


def nets():
    return {
        "pos_nn": Sequential(Linear(3, 6), ReLU(), Linear(6, OUT)),
        "attn_nn": Sequential(Linear(OUT, 6), ReLU(), Linear(6, OUT)),
    }


POINT_CASES = [
    point("plain"),
    point("nets", nets),
    point("one-logit", lambda: {"attn_nn": Linear(OUT, 1)}),
    *sorted_apart(point("no-loops", lambda: {"add_self_loops": False})),
    point("mean", lambda: {"aggr": "mean"}),
    point("max", lambda: {"aggr": "max"}),
    point("list", lambda: {"aggr": ["add", "max"]}, formats=EDGES),
    point("backward", lambda: BACK, formats=EDGES),
]

GAT_CASES = [
    pair("gat-pair", lambda i, o: GATConv(i, o, heads=2, residual=True)),
    Case("gat-pair-shared", lambda: Pair(GATConv(3, OUT, heads=2))),
    pair("gat-pair-max", lambda i, o: GATConv(i, o, aggr="max")),
]

ATTENTION_CASES = [
    *GAT_CASES,
    *GATV2_CASES,
    *chain.from_iterable(map(sorted_apart, TRANSFORMER_CASES)),
    *SUPERGAT_CASES,
    *AGNN_CASES,
    *chain.from_iterable(map(sorted_apart, RGAT_CASES)),
    *chain.from_iterable(map(sorted_apart, HEAT_CASES)),
    *chain.from_iterable(map(sorted_apart, GATE_CASES)),
    *GEN_CASES,
    *GENERAL_CASES,
    *FEAST_CASES,
    *POINT_CASES,
]

"""Models over several types of nodes and edges, and convs called with a pair of node features."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch_geometric.nn import (
    GAT,
    GIN,
    CGConv,
    DirGNNConv,
    EdgeConv,
    FeaStConv,
    FiLMConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GeneralConv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    GraphSAGE,
    HANConv,
    HeteroConv,
    HGTConv,
    LEConv,
    Linear,
    MFConv,
    NNConv,
    ResGatedGraphConv,
    SAGEConv,
    SignedConv,
    SimpleConv,
    TransformerConv,
    WLConvContinuous,
    to_hetero,
)

from tests.hetero_oracle import PAIR
from tests.hetero_strategies import BOUGHT, CHANNELS, FOLLOWS, LABELS, RATES, TYPES
from tests.zoo import ATTR, INCREMENTAL, MIXED, WEIGHT

THREE = (RATES, BOUGHT, FOLLOWS)
FIVE = {"src": 5, "dst": 5}


@dataclass(frozen=True)
class HeteroCase:
    """One model of this zoo.

    Args:
        name: The id of the test.
        make: Makes the module; lazy parameters are filled by a first pass.
        types: The edge types of its graph.
        data: Edge data of every type: (name, width), width None for a weight.
        channels: Numbers of features by node type.
        mode: Values that `inc.mode` may have.
        kinds: Kinds of aggregations its program must consist of, or None.
        picky: PyG itself fails on some graphs, which are then left out.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    types: tuple = (PAIR,)
    data: tuple = ()
    channels: dict | None = None
    mode: tuple = INCREMENTAL
    kinds: tuple | None = None
    picky: bool = False

    def __str__(self):
        return self.name


# Pairs ############################################################################################


def net(width, out=4):
    return torch.nn.Sequential(
        torch.nn.Linear(width, out), torch.nn.ReLU(), torch.nn.Linear(out, out)
    )


def sage(**options):
    return lambda: SAGEConv((5, 3), 4, **options)


AGGRS = {
    "sum": ("sum",), "mean": ("sum",), "max": ("max",), "min": ("min",), "mul": ("rows",),
    "median": ("rows",), "var": ("sum",), "std": ("sum",), "softmax": ("softmax",),
    "powermean": ("sum",),
}  # fmt: skip

PAIR_CASES = [
    *(
        HeteroCase(f"SAGE-{a}", sage(aggr=a), kinds=k, picky=a == "median")
        for a, k in AGGRS.items()
    ),
    *(
        HeteroCase(f"Graph-{a}", lambda a=a: GraphConv((5, 3), 4, aggr=a), kinds=k,
                   picky=a == "median")
        for a, k in AGGRS.items()
    ),
    HeteroCase("SAGE-multi", sage(aggr=["mean", "max", "std"]), kinds=("max", "sum")),
    HeteroCase("SAGE-project-normalize", sage(project=True, normalize=True)),
    HeteroCase("SAGE-no-root", sage(root_weight=False, bias=False)),
    HeteroCase("Graph-weighted", lambda: GraphConv((5, 3), 4), data=WEIGHT),
    HeteroCase("Graph-weighted-max", lambda: GraphConv((5, 3), 4, aggr="max"), data=WEIGHT),
    HeteroCase("GIN", lambda: GINConv(net(5)), channels=FIVE),
    HeteroCase("GIN-max-eps", lambda: GINConv(net(5), aggr="max", train_eps=True), channels=FIVE),
    HeteroCase("GINE", lambda: GINEConv(net(5), edge_dim=3), data=ATTR, channels=FIVE),
    HeteroCase("ResGated", lambda: ResGatedGraphConv((5, 3), 4)),
    HeteroCase("FiLM", lambda: FiLMConv((5, 3), 4)),
    HeteroCase("NN", lambda: NNConv((5, 3), 4, net(3, 20)), data=ATTR),
    HeteroCase("GMM", lambda: GMMConv((5, 3), 4, dim=3, kernel_size=2), data=ATTR),
    HeteroCase("CG", lambda: CGConv((5, 3), dim=3), data=ATTR),
    HeteroCase("Edge", lambda: EdgeConv(net(10)), channels=FIVE),
    HeteroCase("General", lambda: GeneralConv((5, 3), 4)),
    HeteroCase("General-attention", lambda: GeneralConv((5, 3), 4, attention=True, heads=2)),
    HeteroCase("LE", lambda: LEConv((5, 3), 4)),
    HeteroCase("MF", lambda: MFConv((5, 3), 4)),
    HeteroCase("GEN", lambda: GENConv((5, 3), 4)),
    HeteroCase("WLContinuous", WLConvContinuous, channels=FIVE, data=WEIGHT),
    HeteroCase("FeaSt", lambda: FeaStConv(5, 4, heads=2, add_self_loops=False), channels=FIVE,
               picky=True),
    HeteroCase("Simple", lambda: SimpleConv(combine_root="sum"), channels=FIVE),
    HeteroCase("GAT", lambda: GATConv((5, 3), 4, heads=2, add_self_loops=False)),
    HeteroCase("GAT-attr", lambda: GATConv((5, 3), 4, edge_dim=3, add_self_loops=False),
               data=ATTR),
    # Here a self-loop leads from source i to target i, whoever the two are.
    HeteroCase("GAT-loops", lambda: GATConv((5, 3), 4, heads=2), mode=MIXED),
    HeteroCase("GATv2-loops", lambda: GATv2Conv((5, 3), 4), mode=MIXED),
    HeteroCase("GATv2", lambda: GATv2Conv((5, 3), 4, heads=2, add_self_loops=False)),
    HeteroCase("Transformer", lambda: TransformerConv((5, 3), 4, heads=2, edge_dim=3, beta=True),
               data=ATTR),
]  # fmt: skip


# Several types ####################################################################################


def any_sage(edge_type):
    return SAGEConv((-1, -1), 6)


class TwoLayers(torch.nn.Module):
    """Two layers of a `HeteroConv`; nodes that are no target keep their features."""

    def __init__(self, aggr="sum", first=any_sage, second=any_sage, types=TYPES):
        super().__init__()
        self.first = HeteroConv({e: first(e) for e in types}, aggr=aggr)
        self.second = HeteroConv({e: second(e) for e in types}, aggr=aggr)

    def forward(self, x_dict, edge_index_dict, **edge_data):
        made = self.first(x_dict, edge_index_dict, **edge_data)
        h = {kind: rows.flatten(1).relu() for kind, rows in {**x_dict, **made}.items()}
        return self.second(h, edge_index_dict, **edge_data)


def width(kind, layer):
    """Tags are no target, so they come into the second layer as they are."""
    return CHANNELS[kind] if layer == 1 or kind == "tag" else 6


def weighted(layer):
    return lambda e: GraphConv((width(e[0], layer), width(e[2], layer)), 6)


def with_attributes(layer):
    def make(edge_type):
        sizes = width(edge_type[0], layer), width(edge_type[2], layer)
        return NNConv(sizes, 6, torch.nn.Linear(3, sizes[0] * 6))

    return make


def different(edge_type):
    return {
        RATES: GraphConv((5, 3), 6, aggr="max"),
        BOUGHT: SAGEConv((-1, -1), 6, aggr=["mean", "std"]),
        FOLLOWS: GCNConv(-1, 6),
        LABELS: SAGEConv((-1, -1), 6, aggr="min"),
    }[edge_type]


def attention(edge_type):
    return GATConv((-1, -1), 6, add_self_loops=edge_type == FOLLOWS)


def hetero(model):
    return lambda: to_hetero(model().eval(), (["user", "item"], list(THREE)))


class Transformer(torch.nn.Module):
    """The HGT of PyG's examples: a linear layer per type, attention, one type read out."""

    def __init__(self, types=THREE, layers=2, heads=2):
        super().__init__()
        kinds = list(dict.fromkeys(kind for s, _, t in types for kind in (s, t)))
        self.lin = torch.nn.ModuleDict({kind: Linear(-1, 8) for kind in kinds})
        self.convs = torch.nn.ModuleList(
            HGTConv(8, 8, (kinds, list(types)), heads) for _ in range(layers)
        )
        self.out = Linear(8, 3)

    def forward(self, x_dict, edge_index_dict):
        h = {kind: self.lin[kind](x).relu_() for kind, x in x_dict.items()}
        for conv in self.convs:
            h = {**h, **{kind: rows.relu() for kind, rows in conv(h, edge_index_dict).items()}}
        return self.out(h["user"])


def one_hgt(types, out=6, heads=3):
    kinds = list(dict.fromkeys(kind for s, _, t in types for kind in (s, t)))
    return lambda: HGTConv({k: CHANNELS[k] for k in kinds}, out, (kinds, list(types)), heads=heads)


class TwoData(torch.nn.Module):
    """Weights for one conv, attributes for the other."""

    def __init__(self):
        super().__init__()
        self.first = HeteroConv({e: weighted(1)(e) for e in THREE})
        self.second = HeteroConv({e: with_attributes(2)(e) for e in THREE})

    def forward(self, x_dict, edge_index_dict, edge_weight_dict, edge_attr_dict):
        h = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        return self.second(h, edge_index_dict, edge_attr_dict=edge_attr_dict)


class Branching(TwoLayers):
    """Decides by the number of dimensions, which no graph changes."""

    def forward(self, x_dict, edge_index_dict):
        out = super().forward(x_dict, edge_index_dict)
        return {kind: rows if rows.dim() == 2 else rows[:, 0] for kind, rows in out.items()}


class Inside(torch.nn.Module):
    """A conv that returns a dict, called in ways that PyG allows and few use."""

    def __init__(self, conv, metadata=THREE, given=THREE):
        super().__init__()
        sizes = {"user": 5, "item": 3}
        self.conv, self.given = conv(sizes, 4, (["user", "item"], list(metadata)), heads=2), given

    def forward(self, x_dict, edge_index_dict):
        made = self.conv(x_dict, {e: edge_index_dict[e] for e in self.given})
        return made["user"], made["item"]


# Several graphs on the same nodes ################################################################

FRIENDS, FOES = ("user", "likes", "user"), ("user", "fights", "user")
LIKES, DISLIKES = ("user", "likes", "item"), ("user", "dislikes", "item")


class Signed(torch.nn.Module):
    """Two layers over friends and foes."""

    def __init__(self, aggr="mean", hidden=4):
        super().__init__()
        self.first = SignedConv(5, hidden, True, aggr=aggr)
        self.second = SignedConv(hidden, 3, False, aggr=aggr, bias=False)

    def forward(self, x_dict, edge_index_dict):
        graphs = edge_index_dict[FRIENDS], edge_index_dict[FOES]
        return self.second(self.first(x_dict["user"], *graphs).relu(), *graphs)


class SignedPair(torch.nn.Module):
    """What users like and dislike."""

    def __init__(self, first=True):
        super().__init__()
        self.conv = SignedConv(6 if first else 3, 4, first)

    def forward(self, x_dict, edge_index_dict):
        x = x_dict["user"], x_dict["item"]
        return self.conv(x, edge_index_dict[LIKES], edge_index_dict[DISLIKES])


class Directed(torch.nn.Module):
    """Along the edges and against them."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = DirGNNConv(first, 0.3), DirGNNConv(second, root_weight=False)

    def forward(self, x_dict, edge_index_dict):
        h = self.first(x_dict["user"], edge_index_dict[FOLLOWS]).relu()
        return self.second(h, edge_index_dict[FOLLOWS])


SIX = {"user": 6, "item": 6}
GRAPH_CASES = [
    *(
        HeteroCase(f"Signed-{a}", lambda a=a: Signed(a), types=(FRIENDS, FOES), kinds=k)
        for a, k in AGGRS.items()
        if a in ("sum", "mean", "max", "std", "mul")
    ),
    HeteroCase("Signed-wide", lambda: Signed("mean", 20), types=(FRIENDS, FOES), kinds=("sum",)),
    HeteroCase("Signed-pair", SignedPair, types=(LIKES, DISLIKES), channels=SIX),
    HeteroCase("Signed-pair-later", lambda: SignedPair(first=False), types=(LIKES, DISLIKES),
               channels=SIX),
    HeteroCase("Dir-GCN", lambda: Directed(GCNConv(5, 4), GCNConv(4, 3)), types=(FOLLOWS,)),
    HeteroCase("Dir-SAGE", lambda: Directed(SAGEConv(5, 4, aggr="max"), SAGEConv(4, 3)),
               types=(FOLLOWS,)),
    HeteroCase("Dir-GAT", lambda: Directed(GATConv(5, 4), GraphConv(4, 3)), types=(FOLLOWS,)),
]  # fmt: skip


HETERO_CASES = [
    *(
        HeteroCase(f"HeteroConv-{a}", lambda a=a: TwoLayers(a), types=TYPES)
        for a in ("sum", "mean", "max", "min", "cat")
    ),
    HeteroCase("HeteroConv-stack", lambda: TwoLayers(None, types=THREE), types=THREE),
    HeteroCase("different-convs", lambda: TwoLayers("sum", different), types=TYPES),
    HeteroCase("different-max", lambda: TwoLayers("max", different),
               types=TYPES),
    HeteroCase("weights", lambda: TwoLayers("mean", weighted(1), weighted(2)), types=TYPES,
               data=WEIGHT),
    HeteroCase("attributes", lambda: TwoLayers("sum", with_attributes(1), with_attributes(2)),
               types=TYPES, data=ATTR),
    HeteroCase("weights-and-attributes", TwoData, types=THREE, data=(*WEIGHT, *ATTR)),
    HeteroCase("branching", Branching, types=TYPES),
    HeteroCase("attention", lambda: TwoLayers("sum", attention, types=THREE), types=THREE),
    HeteroCase("to_hetero-GraphSAGE", hetero(lambda: GraphSAGE((-1, -1), 8, 2, 4)), types=THREE),
    HeteroCase("to_hetero-SAGE-max", hetero(lambda: GraphSAGE((-1, -1), 8, 2, 4, aggr="max")),
               types=THREE),
    HeteroCase("to_hetero-GIN", hetero(lambda: GIN(5, 8, 2, 4)), types=THREE,
               channels={"user": 5, "item": 5}),
    HeteroCase("to_hetero-GAT",
               hetero(lambda: GAT((-1, -1), 8, 2, 4, add_self_loops=False)),
               types=THREE),
    HeteroCase("HGT", Transformer, types=THREE, kinds=("softmax",)),
    HeteroCase("HGT-no-edges", lambda: Transformer(TYPES, 1), types=TYPES, kinds=("softmax",)),
    HeteroCase("HGTConv", one_hgt(THREE), types=THREE, kinds=("softmax",)),
    HeteroCase("HGTConv-one-graph", lambda: Inside(HGTConv, given=(FOLLOWS,)), types=THREE),
    # PyG then looks up other weights than those of the relation, and this is followed too.
    HeteroCase("HGTConv-other-order", lambda: Inside(HGTConv, THREE[::-1]), types=THREE,
               mode=MIXED),
    HeteroCase("HAN", lambda: Inside(HANConv), types=THREE, mode=MIXED),
    HeteroCase("HGTConv-skip", one_hgt(TYPES, 5, 1), types=TYPES, kinds=("softmax",)),
]  # fmt: skip

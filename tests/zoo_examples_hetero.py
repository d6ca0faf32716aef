"""Models for several kinds of nodes and edges, in the shape of `examples/hetero/` of PyG."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn

from tests.example import Example
from tests.scene import CHANNELS, TYPES, a_shop

HIDDEN, OUT = 6, 4
RATES, RATED_BY, FOLLOWS = TYPES
META = (["user", "item"], list(TYPES))
WIDTH = {"user": CHANNELS, "item": 3}


class Hgt(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_dict = nn.ModuleDict({k: nn.Linear(w, HIDDEN) for k, w in WIDTH.items()})
        self.convs = nn.ModuleList(gnn.HGTConv(HIDDEN, HIDDEN, META, heads=2) for _ in range(2))
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {kind: self.lin_dict[kind](x).relu_() for kind, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return self.lin(x_dict["user"])


class Han(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = gnn.HANConv(WIDTH, HIDDEN, META, heads=2, dropout=0.6)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        return self.lin(self.conv(x_dict, edge_index_dict)["user"])


class Relational(nn.Module):
    """HeteroConv in layers, of several convs."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList()
        for user, item in ((CHANNELS, 3), (HIDDEN, HIDDEN)):
            self.convs.append(gnn.HeteroConv({
                RATES: gnn.SAGEConv((user, item), HIDDEN),
                RATED_BY: gnn.GATConv((item, user), HIDDEN, add_self_loops=False),
                FOLLOWS: gnn.GCNConv(user, HIDDEN),
            }, aggr="sum"))  # fmt: skip
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {key: F.leaky_relu(x) for key, x in x_dict.items()}
        return self.lin(x_dict["user"])


class Projected(nn.Module):
    """OGB's mag: a linear layer for each kind, then two layers of typed SAGE."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleDict({k: nn.Linear(w, HIDDEN) for k, w in WIDTH.items()})
        self.convs = nn.ModuleList(
            gnn.HeteroConv({e: gnn.SAGEConv((-1, -1), HIDDEN) for e in TYPES}, aggr="mean")
            for _ in range(2)
        )
        self.norm = gnn.LayerNorm(HIDDEN, mode="node")

    def forward(self, x_dict, edge_index_dict):
        h = {kind: self.lins[kind](x) for kind, x in x_dict.items()}
        for conv in self.convs:
            new = conv(h, edge_index_dict)
            h = {kind: self.norm(rows + h[kind]).relu() for kind, rows in new.items()}
        return h


class Weighed(nn.Module):
    """Convs by relation called one by one, and their results in a weighted sum."""

    def __init__(self):
        super().__init__()
        self.rates = gnn.GraphConv((CHANNELS, 3), OUT)
        self.rated, self.follows = gnn.GraphConv((3, CHANNELS), OUT), gnn.GraphConv(CHANNELS, OUT)
        self.share = nn.Parameter(torch.tensor([0.2, 0.7]))

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        user, item = x_dict["user"], x_dict["item"]
        back = self.rated((item, user), edge_index_dict[RATED_BY], edge_weight_dict[RATED_BY])
        other = self.follows(user, edge_index_dict[FOLLOWS], edge_weight_dict[FOLLOWS])
        first = self.rates((user, item), edge_index_dict[RATES], edge_weight_dict[RATES])
        return {"user": self.share[0] * back + self.share[1] * other, "item": first.tanh()}


def made_hetero():
    return called(gnn.to_hetero(gnn.GraphSAGE((-1, -1), HIDDEN, 2, OUT), META), in_order)


def attention_made_hetero():
    model = gnn.GAT((-1, -1), HIDDEN, 2, OUT, add_self_loops=False)
    return called(gnn.to_hetero(model, META), in_order)


def in_order(model, arguments):
    return model(*arguments.values())


def rated(seed):
    return a_shop(seed, data=(("edge_weight", None),))


def called(model, call=lambda model, arguments: model(**arguments)):
    """A model whose lazy parameters have taken their shape."""
    with torch.no_grad():
        call(model.double().eval(), a_shop(0).arguments())
    return model


HETERO_EXAMPLES = [
    Example("hgt", "hetero/hgt_dblp.py", Hgt, scene=a_shop),
    Example("han", "hetero/han_imdb.py", Han, scene=a_shop),
    Example("hetero-conv", "hetero/hetero_conv_dblp.py", Relational, scene=a_shop),
    Example("mag-sage", "ogb nodeproppred/mag", lambda: called(Projected()), scene=a_shop),
    Example("to-hetero-sage", "hetero/to_hetero_mag.py", made_hetero, scene=a_shop,
            call=in_order),
    Example("to-hetero-gat", "hetero/to_hetero_mag.py", attention_made_hetero, scene=a_shop,
            call=in_order),
    Example("relations-by-hand", "hetero/bipartite_sage.py", Weighed, scene=rated),
]  # fmt: skip

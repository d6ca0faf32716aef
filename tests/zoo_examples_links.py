"""Models for links and for edges, in the shape of PyG's and OGB's examples."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn import GAE, VGAE, LightGCN

from tests.example import Example
from tests.scene import BARE, CHANNELS, KINDS, SAME_NODES, Changes, Scene, a_graph, a_shop, edges_of

HIDDEN, OUT = 6, 4
ATTR = (("edge_attr", 3),)
TYPE = (("edge_type", "type"),)
META = (["user", "item"], [("user", "rates", "item"), ("item", "rated_by", "user"),
                           ("user", "follows", "user")])  # fmt: skip


class Encoder(nn.Module):
    def __init__(self, conv=gnn.GCNConv):
        super().__init__()
        self.conv1, self.conv2 = conv(CHANNELS, HIDDEN), conv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class LinkNet(Encoder):
    """Scores the pairs of an `edge_label_index` by a product of the rows of their nodes."""

    def encode(self, x, edge_index):
        return super().forward(x, edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)

    def forward(self, x, edge_index, edge_label_index):
        return self.decode(self.encode(x, edge_index), edge_label_index)


class LinkMlp(LinkNet):
    """OGB's predictor: an MLP over the product, a sigmoid behind it."""

    def __init__(self, conv=gnn.SAGEConv):
        super().__init__(conv)
        self.lins = nn.ModuleList([nn.Linear(OUT, HIDDEN), nn.Linear(HIDDEN, 1)])

    def decode(self, z, edge_label_index):
        x = z[edge_label_index[0]] * z[edge_label_index[1]]
        for lin in self.lins[:-1]:
            x = F.dropout(F.relu(lin(x)), p=0.5, training=self.training)
        return torch.sigmoid(self.lins[-1](x))


class LinkCat(LinkMlp):
    """An MLP over both rows, one behind the other, as in PyG's heterogeneous examples."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(2 * OUT, HIDDEN), nn.Linear(HIDDEN, 1)])

    def decode(self, z, edge_label_index):
        row, col = edge_label_index
        z = torch.cat([z[row], z[col]], dim=-1)
        return self.lins[1](self.lins[0](z).relu()).view(-1)


class LinkCosine(LinkNet):
    def decode(self, z, edge_label_index):
        return F.cosine_similarity(z[edge_label_index[0]], z[edge_label_index[1]])


class LinkBilinear(LinkNet):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(OUT, OUT))

    def decode(self, z, edge_label_index):
        src, dst = z.index_select(0, edge_label_index[0]), z.index_select(0, edge_label_index[1])
        return torch.einsum("ec,cd,ed->e", src, self.weight, dst)


class Decoded(nn.Module):
    """An autoencoder: rows of nodes, and the probabilities of pairs."""

    def __init__(self, auto):
        super().__init__()
        self.auto = auto

    def forward(self, x, edge_index, edge_label_index):
        z = self.auto.encode(x, edge_index)
        return self.auto.decode(z, edge_label_index)


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = gnn.GCNConv(CHANNELS, HIDDEN)
        self.mu, self.logstd = gnn.GCNConv(HIDDEN, OUT), gnn.GCNConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index).relu()
        return self.mu(x, edge_index), self.logstd(x, edge_index)


class AllPairs(Encoder):
    """The probabilities of all pairs there are."""

    def forward(self, x, edge_index):
        return gnn.InnerProductDecoder().forward_all(super().forward(x, edge_index))


class Fraud(nn.Module):
    """A class for every edge, from both of its ends and its attributes."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(2 * HIDDEN + 3, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x, edge_index, edge_attr):
        h = self.conv(x, edge_index).relu()
        src, dst = edge_index
        return self.mlp(torch.cat([h[src], h[dst], edge_attr], dim=-1))


class Transactions(nn.Module):
    """Rows of edges that go along with those of nodes (multi-GNN for money laundering)."""

    def __init__(self):
        super().__init__()
        self.node, self.edge = nn.Linear(CHANNELS, HIDDEN), nn.Linear(3, HIDDEN)
        self.convs = nn.ModuleList(
            gnn.GINEConv(nn.Linear(HIDDEN, HIDDEN), edge_dim=HIDDEN) for _ in range(2)
        )
        self.emlps = nn.ModuleList(nn.Linear(3 * HIDDEN, HIDDEN) for _ in range(2))
        self.bns = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))
        self.mlp = nn.Linear(3 * HIDDEN, 2)

    def forward(self, x, edge_index, edge_attr):
        src, dst = edge_index
        x, edge_attr = self.node(x), self.edge(edge_attr)
        for conv, emlp, bn in zip(self.convs, self.emlps, self.bns, strict=True):
            x = (x + F.relu(bn(conv(x, edge_index, edge_attr)))) / 2
            edge_attr = edge_attr + emlp(torch.cat([x[src], x[dst], edge_attr], dim=-1)) / 2
        x = x[edge_index.T].reshape(-1, 2 * HIDDEN).relu()
        return self.mlp(torch.cat([x, edge_attr.view(-1, edge_attr.shape[1])], 1))


class Tgn(nn.Module):
    """The attention of TGN: how long ago, as attributes of edges that are made in `forward`."""

    def __init__(self):
        super().__init__()
        self.time = nn.Linear(1, HIDDEN)
        self.conv = gnn.TransformerConv(CHANNELS, 3, heads=2, edge_dim=HIDDEN + 3)

    def forward(self, x, last_update, edge_index, edge_time, edge_attr):
        ago = last_update[edge_index[0]] - edge_time
        ago = self.time(ago.view(-1, 1)).cos()
        return self.conv(x, edge_index, torch.cat([ago, edge_attr], dim=-1))


class DistMult(nn.Module):
    """RGCN and a score for pairs; the relation that is asked for is an argument."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.RGCNConv(CHANNELS, OUT, KINDS)
        self.relation = nn.Parameter(torch.randn(KINDS, OUT))

    def forward(self, x, edge_index, edge_type, edge_label_index):
        z = self.conv(x, edge_index, edge_type)
        rel = self.relation[0]
        return torch.sum(z[edge_label_index[0]] * rel * z[edge_label_index[1]], dim=1)


class Ddi(nn.Module):
    """OGB's ddi: there are no features, only embeddings."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(BARE, CHANNELS)
        self.gnn = LinkMlp()

    def forward(self, edge_index, edge_label_index):
        return self.gnn(self.emb.weight, edge_index, edge_label_index)


class Embedded(LightGCN):
    """LightGCN's rows and the score of pairs."""

    def forward(self, edge_index, edge_label_index):
        return super().forward(edge_index, edge_label_index)


class Signed(nn.Module):
    """Positive and negative edges: two graphs on one set of nodes."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.SignedConv(CHANNELS, 3, first_aggr=True)
        self.conv2 = gnn.SignedConv(3, 3, first_aggr=False)

    def forward(self, x, edge_index, neg_edge_index):
        z = F.relu(self.conv1(x, edge_index, neg_edge_index))
        return F.relu(self.conv2(z, edge_index, neg_edge_index))


class ShopLinks(nn.Module):
    """Heterogeneous link prediction: a pair joins a user and an item."""

    def __init__(self):
        super().__init__()
        self.encoder = gnn.to_hetero(gnn.GraphSAGE((-1, -1), HIDDEN, 2, OUT), META)
        self.lin1, self.lin2 = nn.Linear(2 * OUT, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z = self.encoder(x_dict, edge_index_dict)
        row, col = edge_label_index
        z = torch.cat([z["user"][row], z["item"][col]], dim=-1)
        return self.lin2(self.lin1(z).relu()).view(-1)


class ShopDot(nn.Module):
    """The same with a product: HeteroConv, then users times items."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.HeteroConv({
            META[1][0]: gnn.SAGEConv((CHANNELS, 3), OUT),
            META[1][1]: gnn.SAGEConv((3, CHANNELS), OUT),
        })  # fmt: skip

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z = self.conv(x_dict, edge_index_dict)
        return (z["user"][edge_label_index[0]] * z["item"][edge_label_index[1]]).sum(-1)


def watched(seed):
    return a_graph(seed, pairs=12)


def typed(seed):
    return a_graph(seed, pairs=12, data=TYPE)


def transactions(seed):
    return a_graph(seed, data=ATTR)


def timed(seed):
    return a_graph(seed, data=(("edge_time", None), *ATTR), inputs=(("last_update", None),))


def bare_pairs(seed):
    draw, graphs = Changes(seed), ("edge_index", "edge_label_index")
    scene = Scene({"": {}}, {g: [] for g in graphs}, {g: {} for g in graphs})
    for g, count in zip(graphs, (30, 12), strict=True):
        scene.edges[g] = edges_of(draw.rng, draw.pairs(scene, g, count), {})
    return scene


def both_signs(seed):
    scene = a_graph(seed)
    draw = Changes(seed + 1)
    scene.edges["neg_edge_index"], scene.empty["neg_edge_index"] = [], {}
    pairs = draw.pairs(scene, "neg_edge_index", 20)
    scene.edges["neg_edge_index"] = edges_of(draw.rng, pairs, {})
    return scene


def shop_pairs(seed):
    return a_shop(seed, pairs=10)


def shop_links():
    """A model whose lazy parameters have taken their shape."""
    model = ShopLinks().double().eval()
    with torch.no_grad():
        model(**a_shop(0, pairs=10).arguments())
    return model


LINK_EXAMPLES = [
    Example("link-gcn-dot", "link_pred.py", LinkNet, scene=watched),
    Example("link-gat-dot", "link_pred.py", lambda: LinkNet(gnn.GATConv), scene=watched),
    Example("link-mlp", "ogb linkproppred/collab/gnn.py", LinkMlp, scene=watched),
    Example("link-cat", "hetero/hetero_link_pred.py", LinkCat, scene=watched),
    Example("link-cosine", "link prediction", LinkCosine, scene=watched),
    Example("link-bilinear", "link prediction", LinkBilinear, scene=watched),
    Example("gae", "autoencoder.py", lambda: Decoded(GAE(Encoder())), scene=watched),
    Example("vgae", "autoencoder.py --variational", lambda: Decoded(VGAE(Gaussian())),
            scene=watched),
    Example("gae-all-pairs", "autoencoder.py", AllPairs, scene=a_graph),
    Example("edge-mlp", "fraud: edge classification", Fraud, scene=transactions),
    Example("edge-rows", "Multi-GNN: transactions", Transactions, scene=transactions),
    Example("tgn-attention", "tgn.py", Tgn, scene=timed),
    Example("rgcn-distmult", "rgcn_link_pred.py", DistMult, scene=typed),
    Example("ddi", "ogb linkproppred/ddi/gnn.py", Ddi, scene=bare_pairs, changes=SAME_NODES),
    Example("lightgcn", "lightgcn.py", lambda: LightGCN(BARE, OUT, 2), scene=bare_pairs,
            changes=SAME_NODES),
    Example("signed-gcn", "signed_gcn.py", Signed, scene=both_signs),
    Example("hetero-link", "hetero/hetero_link_pred.py", shop_links,
            scene=shop_pairs),
    Example("bipartite-dot", "hetero/bipartite_sage.py", ShopDot,
            scene=lambda seed: a_shop(seed, types=META[1][:2], pairs=10)),
]  # fmt: skip

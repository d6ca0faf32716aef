"""Models for nodes, in the shape of PyG's and OGB's examples (the code is our own)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn

from tests.example import Example
from tests.scene import (  # fmt: skip
    BARE,
    CHANNELS,
    KINDS,
    SAME_NODES,
    Changes,
    Scene,
    a_graph,
    edges_of,
    empty_rows,
)

HIDDEN, OUT = 6, 4
WEIGHT = (("edge_weight", None),)
ATTR = (("edge_attr", 3),)
TYPE = (("edge_type", "type"),)


class Two(nn.Module):
    """Dropout, conv, activation, dropout, conv: most of PyG's examples on Planetoid."""

    def __init__(self, first, second, act=F.relu):
        super().__init__()
        self.conv1, self.conv2, self.act = first, second, act

    def forward(self, x, edge_index, *edge_data, **more):
        x = F.dropout(x, p=0.6, training=self.training)
        x = self.act(self.conv1(x, edge_index, *edge_data, **more))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index, *edge_data, **more)


class Gcn(nn.Module):
    def __init__(self, cached=False):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN, cached=cached)
        self.conv2 = gnn.GCNConv(HIDDEN, OUT, cached=cached)

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.conv2(x, edge_index, edge_weight), dim=1)


class Agnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(CHANNELS, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.prop1 = gnn.AGNNConv(requires_grad=False)
        self.prop2 = gnn.AGNNConv(requires_grad=True)

    def forward(self, x, edge_index):
        x = F.relu(self.lin1(F.dropout(x, training=self.training)))
        x = self.prop2(self.prop1(x, edge_index), edge_index)
        return F.log_softmax(self.lin2(x), dim=1)


class OneConv(nn.Module):
    """SGC and APPNP: linear layers around one propagation."""

    def __init__(self, conv):
        super().__init__()
        self.lin, self.conv = nn.Linear(CHANNELS, HIDDEN), conv

    def forward(self, x, edge_index):
        return F.log_softmax(self.conv(self.lin(x).relu(), edge_index), dim=1)


class Gcn2(nn.Module):
    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(CHANNELS, HIDDEN), nn.Linear(HIDDEN, OUT)])
        self.convs = nn.ModuleList(
            gnn.GCN2Conv(HIDDEN, 0.1, 0.5, layer + 1, shared_weights=True) for layer in range(3)
        )

    def forward(self, x, edge_index):
        x = x_0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(F.dropout(x, 0.5, training=self.training), x_0, edge_index).relu()
        return self.lins[1](x).log_softmax(dim=-1)


class PpiGat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.lin1 = gnn.GATConv(CHANNELS, 3, heads=2), nn.Linear(CHANNELS, 6)
        self.conv2, self.lin2 = gnn.GATConv(6, OUT, heads=3, concat=False), nn.Linear(6, OUT)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        return self.conv2(x, edge_index) + self.lin2(x)


class GeniePath(nn.Module):
    """Breadth by attention; depth by an LSTM that takes one step for each layer."""

    def __init__(self, lazy=False):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(CHANNELS, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.breadths = nn.ModuleList(gnn.GATConv(HIDDEN, HIDDEN) for _ in range(2))
        wide = 2 * HIDDEN if lazy else HIDDEN
        self.depths = nn.ModuleList(nn.LSTM(wide, HIDDEN, 1, bias=False) for _ in range(2))
        self.lazy = lazy

    def forward(self, x, edge_index):
        x = self.lin1(x)
        h = torch.zeros(1, x.shape[0], HIDDEN, dtype=x.dtype, device=x.device)
        c = torch.zeros_like(h)
        if self.lazy:
            seen = [torch.tanh(breadth(x, edge_index)) for breadth in self.breadths]
            x = x[None, :]
            for own, depth in zip(seen, self.depths, strict=True):
                x, (h, c) = depth(torch.cat([own[None, :], x], -1), (h, c))
            return self.lin2(x[0])
        for breadth, depth in zip(self.breadths, self.depths, strict=True):
            x, (h, c) = depth(torch.tanh(breadth(x, edge_index))[None, :], (h, c))
            x = x[0]
        return self.lin2(x)


class Jumping(nn.Module):
    def __init__(self, mode):
        super().__init__()
        sizes = [CHANNELS, HIDDEN, HIDDEN]
        self.convs = nn.ModuleList(gnn.SAGEConv(size, HIDDEN) for size in sizes)
        self.jump = gnn.JumpingKnowledge(mode, HIDDEN, 3)
        self.lin = nn.Linear(3 * HIDDEN if mode == "cat" else HIDDEN, OUT)

    def forward(self, x, edge_index):
        xs = []
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
            xs += [x]
        return self.lin(self.jump(xs))


class ArxivGnn(nn.Module):
    """OGB's GCN and SAGE on arXiv: batch norms between convs."""

    def __init__(self, conv):
        super().__init__()
        self.convs = nn.ModuleList(
            [conv(CHANNELS, HIDDEN), conv(HIDDEN, HIDDEN), conv(HIDDEN, OUT)]
        )
        self.bns = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs[:-1]):
            x = F.relu(self.bns[i](conv(x, edge_index)))
            x = F.dropout(x, p=0.5, training=self.training)
        return self.convs[-1](x, edge_index).log_softmax(dim=-1)


class ProductsGat(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [gnn.GATConv(CHANNELS, 3, 2), gnn.GATConv(6, OUT, 2, concat=False)]
        )
        self.skips = nn.ModuleList([nn.Linear(CHANNELS, 6), nn.Linear(6, OUT)])

    def forward(self, x, edge_index):
        for i, (conv, skip) in enumerate(zip(self.convs, self.skips, strict=True)):
            x = conv((x, x), edge_index) + skip(x)
            if i != len(self.convs) - 1:
                x = F.elu(x)
        return x.log_softmax(dim=-1)


class RevGnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(CHANNELS, 8), nn.Linear(8, OUT)
        self.norm = nn.LayerNorm(8)
        self.convs = nn.ModuleList(gnn.GroupAddRev(RevBlock(4), num_groups=2) for _ in range(2))

    def forward(self, x, edge_index):
        x = self.lin1(x)
        mask = None
        if self.training:
            mask = torch.zeros_like(x).bernoulli_(0.5)
        for conv in self.convs:
            x = conv(x, edge_index, mask)
        return self.lin2(F.relu(self.norm(x)))


class RevBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.conv = gnn.SAGEConv(channels, channels)

    def reset_parameters(self):
        self.conv.reset_parameters()

    def forward(self, x, edge_index, dropout_mask=None):
        x = self.norm(x).relu()
        if self.training and dropout_mask is not None:
            x = x * dropout_mask
        return self.conv(x, edge_index)


class UniMP(nn.Module):
    def __init__(self):
        super().__init__()
        self.label_emb = gnn.MaskLabel(KINDS, CHANNELS)
        self.convs = nn.ModuleList([
            gnn.TransformerConv(CHANNELS, 3, heads=2, concat=True, beta=True),
            gnn.TransformerConv(6, OUT, heads=2, concat=False, beta=True),
        ])  # fmt: skip
        self.norm = nn.LayerNorm(6)

    def forward(self, x, y, edge_index, label_mask):
        x = self.label_emb(x, y, label_mask)
        x = self.norm(self.convs[0](x, edge_index)).relu()
        return self.convs[1](x, edge_index)


class DeeperGcn(nn.Module):
    """Rows of nodes made of the attributes of their edges, then GENConv in residual layers."""

    def __init__(self):
        super().__init__()
        self.node, self.edge = nn.Linear(CHANNELS, HIDDEN), nn.Linear(3, HIDDEN)
        self.layers = nn.ModuleList()
        for _ in range(2):
            conv = gnn.GENConv(HIDDEN, HIDDEN, aggr="softmax", t=1.0, learn_t=True, norm="layer")
            norm = gnn.LayerNorm(HIDDEN, mode="node")
            self.layers.append(gnn.DeepGCNLayer(conv, norm, nn.ReLU(inplace=True), "res+", 0.1))
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr = self.node(x), self.edge(edge_attr)
        x = self.layers[0].conv(x, edge_index, edge_attr)
        for layer in self.layers[1:]:
            x = layer(x, edge_index, edge_attr)
        x = self.layers[0].act(self.layers[0].norm(x))
        return self.lin(F.dropout(x, p=0.1, training=self.training))


class EntityRgcn(nn.Module):
    """No features: each node has a weight of its own for each relation."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.RGCNConv(BARE, HIDDEN, KINDS, num_bases=3)
        self.conv2 = gnn.RGCNConv(HIDDEN, OUT, KINDS, num_bases=3)

    def forward(self, edge_index, edge_type):
        x = F.relu(self.conv1(None, edge_index, edge_type))
        return F.log_softmax(self.conv2(x, edge_index, edge_type), dim=1)


class Sign(nn.Module):
    """Hops of the features, a linear layer for each, and attention over the hops."""

    def __init__(self, attention):
        super().__init__()
        self.hop = gnn.SimpleConv(aggr="mean")
        self.lins = nn.ModuleList(nn.Linear(CHANNELS, HIDDEN) for _ in range(3))
        self.score = nn.Linear(HIDDEN, 1) if attention else None
        self.lin = nn.Linear(HIDDEN if attention else 3 * HIDDEN, OUT)

    def forward(self, x, edge_index):
        hops = [x]
        for _ in self.lins[1:]:
            hops.append(self.hop(hops[-1], edge_index))
        hs = [lin(h).relu() for lin, h in zip(self.lins, hops, strict=True)]
        if self.score is None:
            return self.lin(torch.cat(hs, dim=-1))
        h = torch.stack(hs, dim=1)
        weight = torch.softmax(self.score(h).squeeze(-1), dim=1)
        return self.lin(torch.einsum("nk,nkc->nc", weight, h))


class Labels(nn.Module):
    def __init__(self):
        super().__init__()
        self.spread = gnn.LabelPropagation(num_layers=2, alpha=0.9)

    def forward(self, y, edge_index, mask):
        return self.spread(y, edge_index, mask=mask)


class Smoothed(nn.Module):
    """Errors of a classifier spread along the edges, scaled to their mean, and smoothed."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, KINDS)
        self.post = gnn.CorrectAndSmooth(2, 0.9, 2, 0.8, autoscale=True)

    def forward(self, x, edge_index, y, train):
        soft = self.lin(x).softmax(dim=-1)
        soft = self.post.correct(soft, y[train], train, edge_index)
        return self.post.smooth(soft, y[train], train, edge_index)


def bare(seed):
    draw = Changes(seed)
    scene = Scene(
        {"": {}}, {"edge_index": []}, {"edge_index": {"edge_type": empty_rows("type")[:0]}}
    )
    pairs = draw.pairs(scene, "edge_index", 30)
    scene.edges["edge_index"] = edges_of(draw.rng, pairs, scene.empty["edge_index"])
    return scene


def with_data(*data, **more):
    return lambda seed: a_graph(seed, data=data, **more)


def two(name, source, conv, data=(), **more):
    """Two convs; `conv` makes one of so many channels in and out."""
    make = lambda: Two(conv(CHANNELS, HIDDEN), conv(HIDDEN, OUT))  # noqa: E731
    return Example(name, source, make, scene=with_data(*data), **more)


LABELLED = (("y", "type"), ("label_mask", "mask"))
TRAINED = (("y", "type"), ("train", "mask"))

NODE_EXAMPLES = [
    Example("gcn", "gcn.py", Gcn, scene=with_data(*WEIGHT)),
    Example("gcn-cached", "gcn.py, trained", lambda: Gcn(cached=True), warm=True),
    two("gat", "gat.py", lambda i, o: gnn.GATConv(i, o, heads=2, concat=False, dropout=0.6)),
    two("super-gat", "super_gat.py", lambda i, o: gnn.SuperGATConv(i, o, heads=2, concat=False,
        attention_type="MX", edge_sample_ratio=0.8, is_undirected=True)),
    two("tagcn", "tagcn.py", lambda i, o: gnn.TAGConv(i, o)),
    two("arma", "arma.py", lambda i, o: gnn.ARMAConv(i, o, 2, 2, shared_weights=True)),
    two("film", "film.py", gnn.FiLMConv),
    two("dir-gnn", "dir_gnn.py", lambda i, o: gnn.DirGNNConv(gnn.SAGEConv(i, o))),
    two("cluster-gcn", "cluster_gcn_ppi.py", gnn.ClusterGCNConv),
    two("rgat", "rgat.py", lambda i, o: gnn.RGATConv(i, o, KINDS), data=TYPE),
    two("spline", "cora.py", lambda i, o: gnn.GMMConv(i, o, dim=3, kernel_size=2), data=ATTR),
    Example("agnn", "agnn.py", Agnn),
    Example("sgc-cached", "sgc.py, trained",
            lambda: gnn.SGConv(CHANNELS, OUT, K=2, cached=True), warm=True),
    Example("appnp", "citation/appnp.py", lambda: OneConv(gnn.APPNP(K=4, alpha=0.1))),
    Example("gcn2", "gcn2_cora.py", Gcn2),
    Example("ppi-gat", "ppi.py", PpiGat),
    Example("geniepath", "geniepath.py", GeniePath),
    Example("geniepath-lazy", "geniepath.py", lambda: GeniePath(lazy=True)),
    Example("jk-cat", "jumping knowledge", lambda: Jumping("cat")),
    Example("jk-lstm", "jumping knowledge", lambda: Jumping("lstm")),
    Example("arxiv-gcn", "ogb nodeproppred/arxiv/gnn.py", lambda: ArxivGnn(gnn.GCNConv)),
    Example("arxiv-sage", "ogb nodeproppred/arxiv/gnn.py", lambda: ArxivGnn(gnn.SAGEConv)),
    Example("products-gat", "ogbn_products_gat.py", ProductsGat),
    Example("rev-gnn", "rev_gnn.py", RevGnn),
    Example("unimp", "unimp_arxiv.py", UniMP, scene=with_data(inputs=LABELLED)),
    Example("deeper-gcn", "ogbn_proteins_deepgcn.py", DeeperGcn, scene=with_data(*ATTR)),
    Example("rgcn-entities", "rgcn.py", EntityRgcn, scene=bare, changes=SAME_NODES),
    Example("linkx", "linkx.py", lambda: gnn.LINKX(16, CHANNELS, HIDDEN, OUT, 2),
            changes=SAME_NODES),
    Example("sign", "sign.py", lambda: Sign(attention=False)),
    Example("gamlp", "ogb products leaderboard: GAMLP", lambda: Sign(attention=True)),
    Example("graph-unet", "graph_unet.py", lambda: gnn.GraphUNet(CHANNELS, HIDDEN, OUT, 2)),
    Example("label-propagation", "label_prop.py", Labels,
            scene=with_data(channels=0, inputs=(("y", "type"), ("mask", "mask")))),
    Example("smoothed", "correct_and_smooth.py", Smoothed,
            scene=with_data(inputs=TRAINED)),
]  # fmt: skip

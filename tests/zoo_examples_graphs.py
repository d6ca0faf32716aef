"""Models for whole graphs, in the shape of PyG's and OGB's examples."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.utils import to_dense_batch

from tests.example import Example
from tests.scene import CHANNELS, OF_GRAPHS, a_graph

HIDDEN, OUT = 6, 4
SORTED = tuple(name for name in OF_GRAPHS if name not in ("new_nodes", "other_graph"))
"""New nodes of a graph that is there already leave `batch` unsorted, which these don't take."""
ATTR = (("edge_attr", 3),)
EDGE_NET = (("edge_attr", 2),)


class Pooled(nn.Module):
    """Convs, a readout of every graph, a classifier."""

    def __init__(self, readout, conv=gnn.GCNConv, wide=1):
        super().__init__()
        self.convs = nn.ModuleList([conv(CHANNELS, HIDDEN), conv(HIDDEN, HIDDEN)])
        self.readout, self.lin = readout, nn.Linear(wide * HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        x = self.readout(x, batch)
        return self.lin(F.dropout(x, p=0.5, training=self.training))


class MutagGin(nn.Module):
    """GIN layers with batch norms, a sum, and an MLP."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            gnn.GINConv(gnn.MLP([width, HIDDEN, HIDDEN])) for width in (CHANNELS, HIDDEN)
        )
        self.mlp = gnn.MLP([HIDDEN, HIDDEN, OUT], norm=None, dropout=0.5)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.mlp(gnn.global_add_pool(x, batch))


class SumOfLayers(nn.Module):
    """A readout of every layer, added up (GIN0 with jumping knowledge)."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([gnn.SAGEConv(CHANNELS, HIDDEN), gnn.SAGEConv(HIDDEN, HIDDEN)])
        self.lin = nn.Linear(2 * HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        x1 = self.convs[0](x, edge_index).relu()
        x2 = self.convs[1](x1, edge_index).relu()
        pooled = [torch.cat([gnn.global_max_pool(h, batch), gnn.global_mean_pool(h, batch)], 1)
                  for h in (x1, x2)]  # fmt: skip
        return self.lin(pooled[0] + pooled[1])


class OneGraph(nn.Module):
    """The whole graph is one: no `batch`."""

    def __init__(self, by_hand):
        super().__init__()
        self.conv, self.lin = gnn.GCNConv(CHANNELS, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.by_hand = by_hand

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).relu()
        return self.lin(h.mean(dim=0) if self.by_hand else gnn.global_mean_pool(h, None))


class OgbMol(nn.Module):
    """OGB's GIN on molecules, with edge embeddings, residuals, and a virtual node."""

    def __init__(self, virtual):
        super().__init__()
        self.node = nn.Linear(CHANNELS, HIDDEN)
        self.convs = nn.ModuleList(
            gnn.GINEConv(nn.Sequential(nn.Linear(HIDDEN, 8), nn.ReLU(), nn.Linear(8, HIDDEN)),
                         edge_dim=3) for _ in range(2)
        )  # fmt: skip
        self.bns = nn.ModuleList(nn.BatchNorm1d(HIDDEN) for _ in range(2))
        self.virtual = nn.Embedding(1, HIDDEN) if virtual else None
        self.mlp = nn.Linear(HIDDEN, HIDDEN)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.node(x)
        if self.virtual is not None:
            zeros = torch.zeros(batch[-1].item() + 1, dtype=torch.long, device=batch.device)
            extra = self.virtual(zeros)
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns, strict=True)):
            if self.virtual is not None:
                h = h + extra[batch]
            new = F.relu(bn(conv(h, edge_index, edge_attr)))
            if self.virtual is not None and i == 0:
                extra = self.mlp(gnn.global_add_pool(h, batch) + extra).relu()
            h = new + h
        return self.lin(gnn.global_mean_pool(h, batch))


class Qm9(nn.Module):
    """NNConv, a GRU over its rounds, Set2Set."""

    def __init__(self):
        super().__init__()
        self.lin0 = nn.Linear(CHANNELS, HIDDEN)
        net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, HIDDEN * HIDDEN))
        self.conv, self.gru = gnn.NNConv(HIDDEN, HIDDEN, net, aggr="mean"), nn.GRU(HIDDEN, HIDDEN)
        self.set2set = gnn.Set2Set(HIDDEN, processing_steps=2)
        self.lin = nn.Linear(2 * HIDDEN, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        out = F.relu(self.lin0(x))
        h = out.unsqueeze(0)
        for _ in range(2):
            m = F.relu(self.conv(out, edge_index, edge_attr))
            out, h = self.gru(m.unsqueeze(0), h)
            out = out.squeeze(0)
        return self.lin(self.set2set(out, batch)).view(-1)


class GruCell(nn.Module):
    """The same with a GRUCell, and a sum."""

    def __init__(self):
        super().__init__()
        self.lin0, self.cell = nn.Linear(CHANNELS, HIDDEN), nn.GRUCell(HIDDEN, HIDDEN)
        self.conv, self.lin = gnn.GraphConv(HIDDEN, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index, batch):
        out = self.lin0(x).relu()
        for _ in range(2):
            out = self.cell(self.conv(out, edge_index).relu(), out)
        return self.lin(gnn.global_add_pool(out, batch)).squeeze(-1)


class TopK(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.conv1, self.pool1 = gnn.GraphConv(CHANNELS, HIDDEN), pool(HIDDEN, ratio=0.8)
        self.conv2, self.lin = gnn.GraphConv(HIDDEN, HIDDEN), nn.Linear(2 * HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        x = F.relu(self.conv1(x, edge_index))
        x, edge_index, _, batch, *_ = self.pool1(x, edge_index, None, batch)
        x = F.relu(self.conv2(x, edge_index))
        both = [gnn.global_max_pool(x, batch), gnn.global_mean_pool(x, batch)]
        return self.lin(torch.cat(both, dim=1))


class MinCut(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = gnn.GCNConv(CHANNELS, HIDDEN), nn.Linear(HIDDEN, 3)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        x = F.relu(self.conv(x, edge_index))
        x, mask = to_dense_batch(x, batch)
        s = torch.softmax(self.pool(x), dim=-1) * mask[..., None]
        return self.lin((s.transpose(1, 2) @ x).mean(dim=1))


class Gps(nn.Module):
    def __init__(self):
        super().__init__()
        self.node, self.lin = nn.Linear(CHANNELS, 8), nn.Linear(8, OUT)
        self.conv = gnn.GPSConv(8, gnn.GINEConv(nn.Linear(8, 8), edge_dim=3), heads=2)

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.conv(self.node(x), edge_index, batch, edge_attr=edge_attr)
        return self.lin(gnn.global_add_pool(x, batch))


class SortPooled(nn.Module):
    """DGCNN: the rows of a graph in order of their last channel, and convolutions over them."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([gnn.GCNConv(CHANNELS, HIDDEN), gnn.GCNConv(HIDDEN, 1)])
        self.pool = gnn.SortAggregation(k=4)
        self.conv1d, self.mlp = nn.Conv1d(1, 3, HIDDEN + 1, HIDDEN + 1), nn.Linear(12, 1)

    def forward(self, x, edge_index, batch):
        xs = []
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
            xs += [x]
        x = self.pool(torch.cat(xs, dim=-1), batch)
        return self.mlp(self.conv1d(x.unsqueeze(1)).relu().flatten(1))


class Points(nn.Module):
    """PointNet on a graph that is handed in: positions, and a maximum for each cloud."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.PointNetConv(gnn.MLP([CHANNELS + 3, HIDDEN], norm=None))
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, pos, edge_index, batch):
        return self.lin(gnn.global_max_pool(self.conv(x, pos, edge_index).relu(), batch))


class Nearest(nn.Module):
    """DGCNN for point clouds: the graph is that of the nearest rows, made in `forward`."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = gnn.EdgeConv(nn.Linear(2 * CHANNELS, HIDDEN)), nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        near = torch.cdist(x, x).topk(3, largest=False).indices
        source = near.reshape(-1)
        target = torch.arange(x.size(0)).repeat_interleave(3)
        h = self.conv(x, torch.stack([source, target]))
        return self.lin(gnn.global_max_pool(h, batch))


class PnaGraphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.edge = nn.Linear(CHANNELS, HIDDEN), nn.Linear(3, 4)
        options = {"aggregators": ["mean", "min", "max", "std"], "deg": torch.tensor([1, 3, 4, 2]),
                   "scalers": ["identity", "amplification", "attenuation"]}  # fmt: skip
        self.conv = gnn.PNAConv(HIDDEN, HIDDEN, edge_dim=4, towers=2, **options)
        self.norm, self.lin = gnn.BatchNorm(HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        x = F.relu(self.norm(self.conv(self.emb(x), edge_index, self.edge(edge_attr))))
        return self.lin(gnn.global_add_pool(x, batch))


class Attentive(nn.Module):
    """AttentiveFP's readout: a node for each graph attends to the rows of the graph."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GATConv(CHANNELS, HIDDEN)
        self.mol, self.cell = gnn.GATConv(HIDDEN, HIDDEN, add_self_loops=False), nn.GRUCell(6, 6)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index, batch):
        x = F.elu(self.conv(x, edge_index))
        row = torch.arange(batch.size(0), device=batch.device)
        to_graph = torch.stack([row, batch], dim=0)
        out = gnn.global_add_pool(x, batch).relu()
        h = F.elu(self.mol((x, out), to_graph))
        return self.lin(self.cell(h, out).relu())


def graphs(*data, **more):
    return lambda seed: a_graph(seed, nodes=18, graphs=4, edges=30, data=data, **more)


def pooled(name, source, readout, **options):
    return of_graphs(name, source, lambda: Pooled(readout(), **options))


def of_graphs(name, source, make, scene=None, changes=OF_GRAPHS):
    return Example(name, source, make, scene or graphs(), changes)


def attention():
    return gnn.AttentionalAggregation(nn.Linear(HIDDEN, 1))


def several():
    return gnn.MultiAggregation(["mean", "max", "std"])


GRAPH_EXAMPLES = [
    pooled("pool-mean", "tutorial: graph classification", lambda: gnn.global_mean_pool),
    pooled("pool-add", "tutorial: graph classification", lambda: gnn.global_add_pool),
    pooled("pool-max", "tutorial: graph classification", lambda: gnn.global_max_pool),
    pooled("pool-module", "aggregation as a module", gnn.MeanAggregation, conv=gnn.GraphConv),
    pooled("pool-several", "MultiAggregation", several, wide=3),
    pooled("pool-attention", "AttentionalAggregation", attention),
    pooled("pool-softmax", "SoftmaxAggregation", lambda: gnn.SoftmaxAggregation(learn=True)),
    pooled("pool-set2set", "Set2Set", lambda: gnn.Set2Set(HIDDEN, 2), wide=2),
    pooled("pool-median", "equilibrium_median.py", gnn.MedianAggregation),
    of_graphs("mutag-gin", "mutag_gin.py", MutagGin),
    of_graphs("gin-jk", "benchmark/kernel/gin.py", SumOfLayers),
    Example("one-graph", "global_mean_pool(x, None)", lambda: OneGraph(False)),
    Example("one-graph-by-hand", "x.mean(dim=0)", lambda: OneGraph(True)),
    of_graphs("ogb-mol", "ogb graphproppred/mol", lambda: OgbMol(False), scene=graphs(*ATTR)),
    of_graphs("ogb-virtual-node", "ogb graphproppred/mol", lambda: OgbMol(True),
              scene=graphs(*ATTR)),
    of_graphs("qm9-nnconv", "qm9_nn_conv.py", Qm9, scene=graphs(*EDGE_NET)),
    of_graphs("gru-cell", "qm9 with a GRUCell", GruCell),
    of_graphs("topk-pool", "proteins_topk_pool.py", lambda: TopK(gnn.TopKPooling)),
    of_graphs("sag-pool", "triangles_sag_pool.py", lambda: TopK(gnn.SAGPooling)),
    of_graphs("mincut", "proteins_mincut_pool.py", MinCut, changes=SORTED),
    of_graphs("gps", "graph_gps.py", Gps, scene=graphs(*ATTR), changes=SORTED),
    of_graphs("sort-pool", "seal_link_pred.py", SortPooled, changes=SORTED),
    of_graphs("pointnet", "pointnet2_classification.py", Points,
              scene=graphs(inputs=(("pos", 3),))),
    of_graphs("nearest", "dgcnn_classification.py", Nearest),
    of_graphs("pna", "pna.py", PnaGraphs, scene=graphs(*ATTR)),
    of_graphs("attentive-fp", "attentive_fp.py", Attentive),
    of_graphs("attentive-fp-whole", "attentive_fp.py",
              lambda: gnn.AttentiveFP(CHANNELS, HIDDEN, OUT, 3, 2, 2), scene=graphs(*ATTR)),
]  # fmt: skip

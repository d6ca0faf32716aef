"""Whole models: those of PyG, hand-written ones, and ones that no tracer can follow."""

import functools
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, PNA, EdgeCNN, GraphSAGE
from torch_geometric.utils import add_self_loops, degree, scatter
from torch_geometric.utils import softmax as edge_softmax

from tests.zoo import (
    ANY,
    ATTR,
    CHANNELS,
    EDGES,
    FULL,
    INCREMENTAL,
    MIXED,
    PARTLY,
    WEIGHT,
    WHOLE,
    Case,
)

HIDDEN, OUT = 6, 4
WEIGHTED = {"data": WEIGHT}
ATTRIBUTED = {"data": ATTR}
PARTS = {"mode": MIXED}


# The models of torch_geometric.nn #################################################################


def basic(name, model, about=None, *, layers=2, **options):
    # fmt: off
    def make():
        return model(CHANNELS, HIDDEN, num_layers=layers, out_channels=OUT, **options)
    # fmt: on
    return Case(name, make, **(about or {}))


BASIC_CASES = [
    basic("GCN", GCN, {"formats": (*EDGES, "csr", "sparse_tensor")}),
    basic("GCN-1-layer", GCN, layers=1),
    basic("GCN-batch-norm", GCN, layers=3, norm="batch", dropout=0.5),
    basic("GCN-act-first", GCN, layers=3, norm="batch", act="elu", act_first=True),
    basic("GCN-graph-layer-norm", GCN, PARTS, norm="layer"),
    basic("GCN-node-layer-norm", GCN, norm="layer", norm_kwargs={"mode": "node"}),
    basic("GCN-graph-norm", GCN, PARTS, norm="graph_norm"),
    basic("GCN-pair-norm", GCN, PARTS, norm="pair_norm"),
    basic("GCN-instance-norm", GCN, PARTS, norm="instance"),
    basic(
        "GCN-tracked-instance-norm",
        GCN,
        {"mode": PARTLY},
        norm="instance",
        norm_kwargs={"track_running_stats": True},
    ),
    basic("GCN-jk-last", GCN, layers=3, jk="last"),
    basic("GCN-jk-cat", GCN, layers=3, jk="cat"),
    basic("GCN-jk-max-norm", GCN, layers=3, jk="max", norm="batch"),
    basic("GCN-jk-lstm", GCN, {"mode": PARTLY}, layers=3, jk="lstm"),
    basic("GCN-weights", GCN, WEIGHTED, layers=3),
    basic("GCN-weights-improved", GCN, WEIGHTED, improved=True),
    basic("GCN-no-act", GCN, act=None),
    basic("GCN-act-in-place", GCN, layers=3, act="relu", act_kwargs={"inplace": True}),
    basic("GCN-act-callable", GCN, act=torch.tanh),
    basic("GCN-prelu", GCN, act="prelu"),
    basic("GCN-cached", GCN, WEIGHTED, cached=True),
    basic("GCN-not-normalized", GCN, WEIGHTED, normalize=False),
    basic("GraphSAGE", GraphSAGE, {"formats": (*EDGES, "csr", "csc", "sparse_tensor")}),
    basic("GraphSAGE-max-norm-jk", GraphSAGE, aggr="max", norm="batch", jk="cat", layers=3),
    basic("GraphSAGE-project", GraphSAGE, project=True, normalize=True),
    basic("GraphSAGE-list", GraphSAGE, aggr=["mean", "max", "std"], layers=2),
    basic("GraphSAGE-leaky-node-norm", GraphSAGE, act="leaky_relu", norm="BatchNorm", layers=3),
    basic("GIN", GIN, {"formats": (*EDGES, "csr", "sparse_tensor")}),
    basic("GIN-norm-jk", GIN, norm="batch", jk="cat", layers=3, train_eps=True),
    basic("GIN-gelu", GIN, act="gelu", eps=0.2),
    basic("GAT", GAT, {"formats": (*EDGES, "csr", "sparse_tensor")}, heads=2),
    basic("GAT-attr", GAT, ATTRIBUTED, heads=2, edge_dim=3, layers=3),
    basic("GAT-jk-max", GAT, heads=2, jk="max", layers=3, norm="batch"),
    basic("GAT-mean-heads-residual", GAT, heads=2, concat=False, residual=True),
    basic("GATv2", GAT, {"data": ATTR, "mode": INCREMENTAL}, v2=True, heads=2, edge_dim=3),
    basic("EdgeCNN", EdgeCNN),
    basic(
        "PNA",
        PNA,
        {},
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=torch.tensor([1, 3, 4, 2]),
    ),
]


# Hand-written models ##############################################################################


class ModuleListNet(nn.Module):
    """The usual loop over convs and norms, with dropout that is off in eval."""

    def __init__(self):
        super().__init__()
        sizes = [CHANNELS, HIDDEN, HIDDEN, OUT]
        pairs = list(itertools.pairwise(sizes))
        self.convs = nn.ModuleList([gnn.SAGEConv(a, b) for a, b in pairs])
        self.norms = nn.ModuleList([nn.BatchNorm1d(b) for _, b in pairs[:-1]])

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs[:-1], self.norms, strict=True):
            x = conv(x, edge_index)
            x = F.relu(norm(x))
            x = F.dropout(x, p=0.5, training=self.training)
        return F.log_softmax(self.convs[-1](x, edge_index), dim=-1)


class SkipNet(nn.Module):
    """Residuals over two convs and the input once more at the end."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(CHANNELS, HIDDEN)
        self.convs = nn.ModuleList([gnn.GCNConv(HIDDEN, HIDDEN) for _ in range(2)])
        self.last = nn.Linear(HIDDEN + CHANNELS, OUT)

    def forward(self, x, edge_index, edge_weight=None):
        h = self.first(x).relu()
        for conv in self.convs:
            h = h + conv(h, edge_index, edge_weight).relu_()
        return self.last(torch.cat([h, x], dim=-1))


class SharedConvNet(nn.Module):
    """One conv called three times: one set of parameters, three states."""

    def __init__(self, conv):
        super().__init__()
        self.encode = nn.Linear(CHANNELS, HIDDEN)
        self.conv = conv

    def forward(self, x, edge_index):
        x = self.encode(x)
        for _ in range(3):
            x = torch.tanh(self.conv(x, edge_index))
        return x


class TwoBranchNet(nn.Module):
    """Different convs side by side on the same graph, then concatenated."""

    def __init__(self):
        super().__init__()
        self.gcn = gnn.GCNConv(CHANNELS, HIDDEN)
        self.sage = gnn.SAGEConv(CHANNELS, HIDDEN, aggr="max")
        self.graph = gnn.GraphConv(CHANNELS, HIDDEN)
        self.out = gnn.GATConv(3 * HIDDEN, OUT, heads=2, concat=False)

    def forward(self, x, edge_index):
        parts = [self.gcn(x, edge_index), self.sage(x, edge_index), self.graph(x, edge_index)]
        return self.out(torch.cat(parts, dim=1).relu(), edge_index)


class EdgeEncoderNet(nn.Module):
    """Edge attributes go through a network of their own before the convs use them."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.score = nn.Linear(4, 1)
        self.gat = gnn.GATConv(CHANNELS, HIDDEN, heads=2, edge_dim=4)
        self.graph = gnn.GraphConv(2 * HIDDEN, OUT)

    def forward(self, x, edge_index, edge_attr):
        edge = self.encode(edge_attr)
        x = self.gat(x, edge_index, edge).relu()
        return self.graph(x, edge_index, self.score(edge).sigmoid().squeeze(-1))


class EdgeWeightMathNet(nn.Module):
    """Arithmetic on edge weights in `forward`."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GraphConv(HIDDEN, OUT, aggr="mean")

    def forward(self, x, edge_index, edge_weight):
        x = self.conv1(x, edge_index, edge_weight * 0.5).relu()
        return self.conv2(x, edge_index, torch.exp(-edge_weight))


class OptionalWeightNet(nn.Module):
    """Control flow on an argument that may be missing."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.SAGEConv(HIDDEN, OUT)

    def forward(self, x, edge_index, edge_weight=None):
        x = self.conv1(x, edge_index, edge_weight)
        if edge_weight is not None:
            x = x * 2
        return self.conv2(F.elu(x), edge_index)


class DataNet(nn.Module):
    """Takes a `Data` object."""

    def __init__(self, attr=False):
        super().__init__()
        self.attr = attr
        self.conv1 = gnn.GATConv(CHANNELS, HIDDEN, edge_dim=3 if attr else None)
        self.conv2 = gnn.GCNConv(HIDDEN, OUT)

    def forward(self, data):
        edge_attr = data.edge_attr if self.attr else None
        x = self.conv1(data.x, data.edge_index, edge_attr).relu()
        return self.conv2(x, data.edge_index)


class PoolNet(nn.Module):
    """A vector for the whole graph is made inside; it is the output or goes back to the nodes."""

    def __init__(self, graph_level):
        super().__init__()
        self.conv1 = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.SAGEConv(HIDDEN, OUT)
        self.lin = nn.Linear(OUT, OUT)
        self.graph_level = graph_level

    def forward(self, x, edge_index):
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        pooled = gnn.global_mean_pool(x, None)
        return self.lin(pooled) if self.graph_level else x + self.lin(pooled)


class ValueFlowNet(nn.Module):
    """Its control flow depends on values: no tracer can follow it."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GCNConv(CHANNELS, HIDDEN)
        self.other = gnn.SAGEConv(CHANNELS, HIDDEN)

    def forward(self, x, edge_index):
        if x.sum() > 0:
            return self.conv(x, edge_index)
        return self.other(x, edge_index)


class SizeFlowNet(nn.Module):
    """Its control flow depends on the number of nodes and edges."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GraphConv(CHANNELS, HIDDEN)
        self.other = gnn.GINConv(nn.Linear(CHANNELS, HIDDEN))

    def forward(self, x, edge_index):
        assert x.dim() == 2
        conv = self.conv if edge_index.size(1) > 2 * x.size(0) else self.other
        return conv(x, edge_index)


class TupleNet(nn.Module):
    """Returns its embedding beside the answer."""

    def __init__(self):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GCNConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index).relu()
        return self.conv2(h, edge_index), h


class NoGraphNet(nn.Module):
    """Uses no edge at all."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(CHANNELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT))

    def forward(self, x, edge_index):
        return self.net(x)


class EdgeOpsNet(nn.Module):
    """Builds degrees, loops and attention over the edges by hand in `forward`."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, HIDDEN)
        self.att = nn.Linear(HIDDEN, 1)
        self.conv = gnn.GraphConv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        h = self.lin(x)
        row, col = edge_index[0], edge_index[1]
        weight = edge_softmax(self.att(h)[row].squeeze(-1), col, num_nodes=x.size(0))
        h = h / degree(col, x.size(0)).view(-1, 1)
        h = scatter(h[row] * weight.view(-1, 1), col, dim=0, dim_size=x.size(0), reduce="sum")
        return self.conv(h, edge_index, weight)


class GcnNormNet(nn.Module):
    """Normalises the edges once and shares the weights between convs."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [gnn.GCNConv(CHANNELS, HIDDEN, normalize=False), gnn.GraphConv(HIDDEN, OUT)]
        )

    def forward(self, x, edge_index, edge_weight):
        edge_index, edge_weight = gnn.conv.gcn_conv.gcn_norm(
            edge_index, edge_weight, x.size(0), False, True, "source_to_target", x.dtype
        )
        x = self.convs[0](x, edge_index, edge_weight).relu()
        return self.convs[1](x, edge_index, edge_weight)


class ReversedEdgesNet(nn.Module):
    """Sends messages along the edges and against them."""

    def __init__(self):
        super().__init__()
        self.there = gnn.SAGEConv(CHANNELS, OUT)
        self.back = gnn.SAGEConv(CHANNELS, OUT, flow="target_to_source")

    def forward(self, x, edge_index):
        return self.there(x, edge_index) + self.back(x, edge_index)


class FlippedEdgesNet(nn.Module):
    """Turns the edge_index round itself before one of its convs."""

    def __init__(self):
        super().__init__()
        self.there = gnn.SAGEConv(CHANNELS, OUT)
        self.back = gnn.GCNConv(CHANNELS, OUT)

    def forward(self, x, edge_index):
        return self.there(x, edge_index) - self.back(x, edge_index.flip(0))


class MeanMessages(gnn.MessagePassing):
    """A conv of a user's own: the message reads both ends and an attribute."""

    def __init__(self, aggr="mean"):
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(2 * CHANNELS + 3, OUT)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        return self.lin(torch.cat([x_i, x_j - x_i, edge_attr], dim=-1)).relu()


class GlobalMessages(gnn.MessagePassing):
    """A conv of a user's own that reads the mean over all nodes: nothing about it is local."""

    def __init__(self):
        super().__init__(aggr="sum")
        self.lin = nn.Linear(CHANNELS, OUT)

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return self.lin(out + x.mean(dim=0))

    def message(self, x_j):
        return x_j


class ChildOfGCN(gnn.GCNConv):
    """A subclass that changes what its parent does: the parent's program must not be used."""

    def forward(self, x, edge_index, edge_weight=None):
        return super().forward(x, edge_index, edge_weight).sin() + x.mean(dim=0).sum()


class ChildOfSAGEMessage(gnn.SAGEConv):
    """A subclass that changes the message only."""

    def message(self, x_j):
        return x_j.abs()


class GATWithAttention(nn.Module):
    """Asks GATConv for its attention weights."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GATConv(CHANNELS, OUT)

    def forward(self, x, edge_index):
        out, (_, alpha) = self.conv(x, edge_index, return_attention_weights=True)
        return out * alpha.max()


class BufferNet(nn.Module):
    """Adds a value kept in a buffer and one learned parameter to every row."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GraphConv(CHANNELS, OUT)
        self.register_buffer("shift", torch.linspace(-1, 1, OUT))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, edge_index):
        return self.scale * self.conv(x, edge_index) + self.shift


class HookedNet(nn.Module):
    """Its convs have forward hooks that change their output."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)
        self.conv.register_forward_hook(negate_output)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def negate_output(module, args, output):
    return -output


class AttentionNet(nn.Module):
    """Every node attends to every node."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GCNConv(CHANNELS, HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, 2, batch_first=True)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index).unsqueeze(0)
        return self.attention(x, x, x, need_weights=False)[0].squeeze(0)


class Between(nn.Module):
    """A function of node rows between two convs."""

    def __init__(self, function, width=HIDDEN):
        super().__init__()
        self.conv1 = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GCNConv(width, OUT)
        self.function = function

    def forward(self, x, edge_index):
        return self.conv2(self.function(self.conv1(x, edge_index)), edge_index)


def sequential(*modules):
    return gnn.Sequential("x, edge_index", list(modules))


def sequential_plain():
    return sequential(
        (gnn.GCNConv(CHANNELS, HIDDEN), "x, edge_index -> x"),
        nn.ReLU(inplace=True),
        (gnn.GCNConv(HIDDEN, OUT), "x, edge_index -> x"),
    )


def sequential_jk():
    return gnn.Sequential(
        "x, edge_index, edge_attr",
        [
            (nn.Dropout(0.5), "x -> x"),
            (gnn.GATConv(CHANNELS, HIDDEN, edge_dim=3), "x, edge_index, edge_attr -> x1"),
            nn.ELU(),
            (gnn.GATConv(HIDDEN, HIDDEN, edge_dim=3), "x1, edge_index, edge_attr -> x2"),
            (lambda a, b: [a, b], "x1, x2 -> xs"),
            (gnn.JumpingKnowledge("cat"), "xs -> x"),
            nn.Linear(2 * HIDDEN, OUT),
        ],
    )


def sequential_pooled():
    return gnn.Sequential(
        "x, edge_index",
        [
            (gnn.SAGEConv(CHANNELS, HIDDEN), "x, edge_index -> x"),
            nn.BatchNorm1d(HIDDEN),
            (lambda x: x - x.mean(0), "x -> x"),
            nn.Linear(HIDDEN, OUT),
        ],
    )


def call_data(model, inputs):
    return model(Data(**inputs))


def other_conv(name, make, about=None):
    """A conv that is not one of the five: the whole step runs again, exactly."""
    return Case(f"other-{name}", make, **(about or {}))


def incremental_convs():
    import pyg_incremental as pi

    return sequential(
        (pi.IncrementalGCNConv(CHANNELS, HIDDEN), "x, edge_index -> x"),
        nn.ReLU(),
        (pi.IncrementalSAGEConv(HIDDEN, HIDDEN), "x, edge_index -> x"),
        (pi.IncrementalGATConv(HIDDEN, HIDDEN, heads=2, concat=False), "x, edge_index -> x"),
        (pi.IncrementalGINConv(nn.Linear(HIDDEN, HIDDEN)), "x, edge_index -> x"),
        (pi.IncrementalGraphConv(HIDDEN, OUT), "x, edge_index -> x"),
    )


def plain_convs():
    return sequential(
        (gnn.GCNConv(CHANNELS, HIDDEN), "x, edge_index -> x"),
        nn.ReLU(),
        (gnn.SAGEConv(HIDDEN, HIDDEN), "x, edge_index -> x"),
        (gnn.GATConv(HIDDEN, HIDDEN, heads=2, concat=False), "x, edge_index -> x"),
        (gnn.GINConv(nn.Linear(HIDDEN, HIDDEN)), "x, edge_index -> x"),
        (gnn.GraphConv(HIDDEN, OUT), "x, edge_index -> x"),
    )


HAND_CASES = [
    Case("module-list", ModuleListNet),
    Case("skips", SkipNet),
    Case("skips-weights", SkipNet, data=WEIGHT),
    Case("shared-gcn", lambda: SharedConvNet(gnn.GCNConv(HIDDEN, HIDDEN))),
    Case("shared-gat", lambda: SharedConvNet(gnn.GATConv(HIDDEN, HIDDEN))),
    Case("shared-gin", lambda: SharedConvNet(gnn.GINConv(nn.Linear(HIDDEN, HIDDEN)))),
    Case("branches", TwoBranchNet, formats=("coo", "edge_index")),
    Case("edge-encoder", EdgeEncoderNet, data=ATTR),
    Case("edge-weight-math", EdgeWeightMathNet, data=WEIGHT),
    Case("optional-weight-given", OptionalWeightNet, data=WEIGHT),
    Case("optional-weight-missing", OptionalWeightNet),
    Case("data-object", DataNet, call=call_data, mode=ANY),
    Case("data-object-attr", lambda: DataNet(True), call=call_data, data=ATTR, mode=ANY),
    Case("pool-to-graph", lambda: PoolNet(True), keeps_nodes=True),
    Case("pool-to-nodes", lambda: PoolNet(False), mode=MIXED),
    Case("value-flow", ValueFlowNet, mode=FULL),
    Case("size-flow", SizeFlowNet, mode=FULL, formats=("coo", "edge_index")),
    Case("tuple-output", TupleNet),
    Case("no-graph", NoGraphNet),
    Case("edge-ops", EdgeOpsNet, formats=("coo",)),
    Case("gcn-norm-in-forward", GcnNormNet, data=WEIGHT, formats=("coo",)),
    Case("both-directions", ReversedEdgesNet),
    Case("flipped-edges", FlippedEdgesNet, mode=ANY, formats=("coo",)),
    Case("own-conv", MeanMessages, data=ATTR, mode=ANY),
    Case("own-conv-max", lambda: MeanMessages("max"), data=ATTR, mode=ANY),
    Case("own-global-conv", GlobalMessages, mode=WHOLE),
    Case("child-of-gcn", lambda: ChildOfGCN(CHANNELS, OUT), data=WEIGHT, mode=WHOLE),
    Case("child-of-sage", lambda: ChildOfSAGEMessage(CHANNELS, OUT), mode=ANY),
    Case("attention-weights", GATWithAttention),
    Case("buffer", BufferNet, formats=("coo", "edge_index")),
    Case("forward-hook", HookedNet, mode=ANY),
    Case("node-attention", AttentionNet, mode=WHOLE),
    Case("sequential", sequential_plain),
    Case("sequential-jk", sequential_jk, data=ATTR),
    Case("sequential-centred", sequential_pooled, mode=MIXED),
    Case("incremental-convs", incremental_convs, twin=plain_convs, formats=("coo", "edge_index")),
]

OTHER_CASES = [
    other_conv("SGConv", lambda: gnn.SGConv(CHANNELS, OUT, K=2)),
    other_conv("SGConv-cached", lambda: gnn.SGConv(CHANNELS, OUT, K=2, cached=True)),
    other_conv("APPNP", lambda: gnn.APPNP(K=3, alpha=0.1)),
    other_conv("ChebConv", lambda: gnn.ChebConv(CHANNELS, OUT, K=3)),
    other_conv("TAGConv", lambda: gnn.TAGConv(CHANNELS, OUT), {"data": WEIGHT}),
    other_conv("TransformerConv", lambda: gnn.TransformerConv(CHANNELS, OUT, heads=2)),
    other_conv("EdgeConv", lambda: gnn.EdgeConv(nn.Linear(2 * CHANNELS, OUT))),
    other_conv(
        "GINEConv", lambda: gnn.GINEConv(nn.Linear(CHANNELS, OUT), edge_dim=3), {"data": ATTR}
    ),
    other_conv("DirGNNConv", lambda: gnn.DirGNNConv(gnn.SAGEConv(CHANNELS, OUT)), {"mode": ANY}),
    other_conv(
        "DeepGCNLayer",
        lambda: sequential(
            (
                gnn.DeepGCNLayer(
                    gnn.SAGEConv(CHANNELS, CHANNELS), nn.BatchNorm1d(CHANNELS), nn.ReLU(), "res+"
                ),
                "x, edge_index -> x",
            )
        ),
        {"mode": ANY},
    ),
    other_conv(
        "GPSConv",
        lambda: gnn.GPSConv(CHANNELS, gnn.SAGEConv(CHANNELS, CHANNELS), heads=1),
        {"mode": WHOLE},
    ),
]


# What mixes rows, and what only looks as if it did ################################################


made = functools.partial


def between(name, function, **about):
    """A case with `function` between two convs; a partial makes the module to put there."""
    makes_module = isinstance(function, functools.partial)
    make = lambda: Between(function() if makes_module else function)  # noqa: E731
    return Case(name, make, formats=("coo",), **about)


def only_rows(name, function, **about):
    return between(f"rows-{name}", function, **about)


def mixes(name, function, **about):
    return between(f"mixes-{name}", function, **{"mode": WHOLE, **about})


class LstmOverNodes(nn.Module):
    """Reads the nodes as one sequence."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)

    def forward(self, x):
        return self.lstm(x)[0]


def flip_halves(x):
    return x.view(x.size(0), 2, -1).flip(1).reshape(x.size(0), -1)


ROW_CASES = [
    only_rows("chunk", lambda x: torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)),
    only_rows("split-max", lambda x: torch.max(x, -x)),
    only_rows("normalize", lambda x: F.normalize(x, dim=-1)),
    only_rows("softmax", lambda x: torch.softmax(x, dim=1)),
    only_rows("mean-of-row", lambda x: x - x.mean(dim=-1, keepdim=True)),
    only_rows("clamp", lambda x: x.clamp(-0.5, 0.5) + torch.sigmoid(x)),
    only_rows("views", flip_halves, mode=ANY),
    only_rows("where", lambda x: torch.where(x > 0, x, 0.1 * x)),
    only_rows("columns", lambda x: torch.cat([x[:, :3], x[:, 3:] ** 2], dim=1)),
    only_rows("einsum", lambda x: torch.einsum("nc,nd->ncd", x, x).sum(1), mode=ANY),
    only_rows("gru-cell", made(nn.GRUCell, HIDDEN, HIDDEN), mode=ANY),
    only_rows("layer-norm", made(nn.LayerNorm, HIDDEN)),
    only_rows("glu", lambda x: F.glu(torch.cat([x, x], dim=1), dim=1), mode=ANY),
    only_rows("unbind", lambda x: torch.stack(x.unbind(1)[::-1], dim=1), mode=ANY),
]

MIXING_CASES = [
    mixes("mean", lambda x: x - x.mean(0)),
    mixes("mean-keepdim", lambda x: x - x.mean(dim=-2, keepdim=True)),
    mixes("softmax", lambda x: x * F.softmax(x, dim=0)),
    mixes("softmax-negative-dim", lambda x: x * torch.softmax(x, -2)),
    mixes("softmax-module", made(nn.Softmax, dim=0)),
    mixes("cumsum", lambda x: x.cumsum(0)),
    mixes("flip", lambda x: x.flip(0)),
    mixes("roll", lambda x: torch.roll(x, 1, 0)),
    mixes("roll-flat", lambda x: torch.roll(x, 1)),
    mixes("sort", lambda x: x.sort(dim=0).values),
    mixes("gram", lambda x: x @ (x.t() @ x)),
    mixes("all-pairs", lambda x: torch.softmax(x @ x.t(), dim=-1) @ x),
    mixes("norm", lambda x: x / (1 + x.norm())),
    mixes("normalize-columns", lambda x: F.normalize(x, dim=0)),
    mixes("first-row", lambda x: x + x[0]),
    mixes("last-row", lambda x: x + x[-1:]),
    mixes("max", lambda x: x - x.max(dim=0).values),
    mixes("max-of-all", lambda x: x / (1 + x.abs().max())),
    mixes("batch-statistics", made(nn.BatchNorm1d, HIDDEN, track_running_stats=False)),
    mixes("layer-norm-of-all", lambda x: F.layer_norm(x, x.shape)),
    mixes("einsum", lambda x: torch.einsum("nc,md->nc", x, x)),
    mixes("distances", lambda x: torch.cdist(x, x) @ x),
    mixes("position", lambda x: x + torch.arange(x.size(0)).view(-1, 1)),
    mixes("node-count", lambda x: x / x.size(0)),
    mixes("row-number-mask", lambda x: x * (torch.arange(len(x)) % 2).view(-1, 1)),
    mixes("lstm-over-nodes", made(LstmOverNodes)),
    mixes("conv1d-over-nodes", lambda x: F.avg_pool1d(x.t().unsqueeze(0), 3, 1, 1)[0].t()),
    mixes("transpose-module", lambda x: F.softmax(x.transpose(0, 1), dim=1).transpose(0, 1)),
    mixes("reshape", lambda x: x.reshape(-1).view(HIDDEN, -1).t()),
    mixes("scatter", lambda x: x + torch.zeros_like(x).index_add(0, torch.tensor([0]), x[1:2])),
    mixes("encoder", made(nn.TransformerEncoderLayer, HIDDEN, 2, 8, batch_first=True)),
    mixes("global-add-pool", lambda x: x + gnn.global_add_pool(x, None)),
    mixes("mean-subtraction", made(gnn.MeanSubtractionNorm)),
    mixes("stack-of-rows", lambda x: torch.cat([x[1:], x[:1]], dim=0)),
]  # fmt: skip

MODEL_CASES = [*BASIC_CASES, *HAND_CASES, *OTHER_CASES, *ROW_CASES, *MIXING_CASES]

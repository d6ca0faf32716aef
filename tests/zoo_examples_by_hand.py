"""Models that pass messages, keep a state or pick their way in `forward`, as people write them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.utils import add_self_loops, degree, scatter, softmax, to_dense_adj

from tests.example import Example
from tests.scene import CHANNELS, a_graph

HIDDEN, OUT = 6, 4
WEIGHT = (("edge_weight", None),)


# Message passing by hand ##########################################################################


class TutorialConv(gnn.MessagePassing):
    """The GCN layer of PyG's tutorial on message passing."""

    def __init__(self, wide, out):
        super().__init__(aggr="add")
        self.lin, self.bias = nn.Linear(wide, out, bias=False), nn.Parameter(torch.zeros(out))

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        deg_inv_sqrt = deg.pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        return self.propagate(edge_index, x=x, norm=norm) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class TutorialEdgeConv(gnn.MessagePassing):
    def __init__(self, wide, out):
        super().__init__(aggr="max")
        self.mlp = nn.Sequential(nn.Linear(2 * wide, out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=1))


class TwoOf(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv1, self.conv2 = conv(CHANNELS, HIDDEN), conv(HIDDEN, OUT)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class LoopsInForward(nn.Module):
    """Self-loops, degrees and a normalised sum in the model itself."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, OUT)

    def forward(self, x, edge_index):
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        row, col = edge_index
        norm = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        h = self.lin(x)
        return scatter(norm[row].view(-1, 1) * norm[col].view(-1, 1) * h[row], col, 0, x.size(0))


class MeanByHand(nn.Module):
    """What arrives, added up and divided by how many there were."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2 * CHANNELS, OUT)

    def forward(self, x, edge_index):
        src, dst = edge_index
        total = torch.zeros(x.size(0), x.size(1), dtype=x.dtype).index_add(0, dst, x[src])
        count = torch.zeros(x.size(0), dtype=x.dtype).index_add(
            0, dst, torch.ones_like(dst, dtype=x.dtype)
        )
        return self.lin(torch.cat([x, total / count.clamp(min=1).unsqueeze(-1)], dim=-1))


class OwnAttention(nn.Module):
    """Attention with several heads, written out with einsum and a softmax over in-edges."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(CHANNELS, 6) for _ in range(3))
        self.lin = nn.Linear(6, OUT)

    def forward(self, x, edge_index):
        src, dst = edge_index[0], edge_index[1]
        q, k, v = (f(x).view(-1, 2, 3) for f in (self.query, self.key, self.value))
        score = torch.einsum("ehc,ehc->eh", q[dst], k[src]) / 3**0.5
        alpha = softmax(score, dst, num_nodes=x.size(0))
        out = scatter(alpha.unsqueeze(-1) * v[src], dst, dim=0, dim_size=x.size(0), reduce="sum")
        return self.lin(out.flatten(1))


class GatByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.att = nn.Linear(CHANNELS, OUT), nn.Linear(2 * OUT, 1)

    def forward(self, x, edge_index):
        h, (row, col) = self.lin(x), edge_index
        e = F.leaky_relu(self.att(torch.cat([h[row], h[col]], dim=-1)), 0.2).squeeze()
        return scatter(softmax(e, col, num_nodes=h.size(0)).view(-1, 1) * h[row], col, 0, h.size(0))


class SparseAdjacency(nn.Module):
    """A sparse matrix made of the edges, and its product with the rows."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, OUT)

    def forward(self, x, edge_index):
        one = torch.ones(edge_index.size(1), dtype=x.dtype)
        adj = torch.sparse_coo_tensor(edge_index.flip(0), one, (x.size(0), x.size(0)))
        return torch.sparse.mm(adj, self.lin(x))


class DenseAdjacency(SparseAdjacency):
    def forward(self, x, edge_index):
        adj = to_dense_adj(edge_index, max_num_nodes=x.size(0))[0].to(x.dtype)
        return adj.t() @ self.lin(x)


# How people write the rest ########################################################################


class MadeInside(nn.Module):
    """Modules made in `forward`, and an activation that is a lambda."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GraphConv(CHANNELS, HIDDEN)
        self.lin, self.act = nn.Linear(HIDDEN, OUT), lambda h: h * torch.sigmoid(1.7 * h)

    def forward(self, x, edge_index):
        h = self.act(self.conv(x, edge_index))
        return nn.LogSoftmax(dim=-1)(self.lin(nn.Dropout(0.5)(h) if self.training else nn.ELU()(h)))


class ZerosFirst(nn.Module):
    """Rows are gathered in a tensor of zeros that `forward` makes."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(gnn.SAGEConv(CHANNELS, OUT) for _ in range(3))

    def forward(self, x, edge_index):
        out = torch.zeros(x.size(0), OUT, dtype=x.dtype, device=x.device)
        for conv in self.convs:
            out = out + conv(x, edge_index)
        return out / len(self.convs)


class WithoutEdges(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.conv = nn.Linear(CHANNELS, OUT), gnn.GCNConv(CHANNELS, OUT)

    def forward(self, x, edge_index):
        if edge_index.numel() == 0:
            return self.lin(x)
        return self.conv(x, edge_index) + self.lin(x)


class Hooked(nn.Module):
    """A forward hook scales what a layer returns."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = gnn.SAGEConv(CHANNELS, HIDDEN), gnn.SAGEConv(HIDDEN, OUT)
        self.lin = nn.Linear(HIDDEN, HIDDEN)
        self.lin.register_forward_hook(lambda module, given, out: 0.5 * out)

    def forward(self, x, edge_index):
        return self.conv2(self.lin(self.conv1(x, edge_index)).relu(), edge_index)


class Squeezed(nn.Module):
    """One number for each node, and `squeeze()` without a dimension."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = gnn.GCNConv(CHANNELS, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index).relu()).squeeze()


class Noisy(nn.Module):
    """The weights of edges are those that are above the mean."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GCNConv(CHANNELS, OUT)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight * (edge_weight > edge_weight.mean()))


class Positions(nn.Module):
    """Features beside the number of a node, as a share of all."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS + 1, OUT)

    def forward(self, x, edge_index):
        at = torch.arange(x.size(0), dtype=x.dtype, device=x.device) / x.size(0)
        return self.conv(torch.cat([x, at[:, None]], dim=-1), edge_index)


# Recurrent cells ##################################################################################


class GConvGru(nn.Module):
    """Gates of Chebyshev convs over features and state (PyTorch Geometric Temporal)."""

    def __init__(self, lambda_max=None):
        super().__init__()
        self.of_x = nn.ModuleList(gnn.ChebConv(CHANNELS, HIDDEN, 2) for _ in range(3))
        self.of_h = nn.ModuleList(gnn.ChebConv(HIDDEN, HIDDEN, 2) for _ in range(3))
        self.lin, self.lambda_max = nn.Linear(HIDDEN, 1), lambda_max

    def forward(self, x, edge_index, edge_weight=None, h=None):
        if h is None:
            h = torch.zeros(x.shape[0], HIDDEN, dtype=x.dtype, device=x.device)
        about = {"edge_weight": edge_weight, "lambda_max": self.lambda_max}
        z, r = (
            torch.sigmoid(of_x(x, edge_index, **about) + of_h(h, edge_index, **about))
            for of_x, of_h in zip(self.of_x[:2], self.of_h[:2], strict=True)
        )
        new = self.of_x[2](x, edge_index, **about)
        new = torch.tanh(new + self.of_h[2](h * r, edge_index, **about))
        h = z * h + (1 - z) * new
        return self.lin(h.relu()), h


class Tgcn(nn.Module):
    """T-GCN: one GCN layer for each gate, a linear layer over it and the state."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(gnn.GCNConv(CHANNELS, HIDDEN) for _ in range(3))
        self.lins = nn.ModuleList(nn.Linear(2 * HIDDEN, HIDDEN) for _ in range(3))

    def gate(self, i, x, edge_index, edge_weight, h):
        own = self.convs[i](x, edge_index, edge_weight)
        return self.lins[i](torch.cat([own, h], dim=1))

    def forward(self, x, edge_index, edge_weight, h=None):
        if not isinstance(h, torch.Tensor):
            h = torch.zeros(x.shape[0], HIDDEN, dtype=x.dtype).to(x.device)
        z = torch.sigmoid(self.gate(0, x, edge_index, edge_weight, h))
        r = torch.sigmoid(self.gate(1, x, edge_index, edge_weight, h))
        new = torch.tanh(self.gate(2, x, edge_index, edge_weight, h * r))
        return z * h + (1 - z) * new


class OverTime(nn.Module):
    """Several snapshots of the features of a node, one after the other (A3T-GCN)."""

    def __init__(self):
        super().__init__()
        self.cell, self.attention = Tgcn(), nn.Parameter(torch.randn(3))
        self.lin = nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index, edge_weight):
        x = x.view(x.size(0), CHANNELS, 3)
        weight, total = torch.softmax(self.attention, dim=0), 0
        for period in range(3):
            total = total + weight[period] * self.cell(x[:, :, period], edge_index, edge_weight)
        return self.lin(total.relu())


def weighted(seed):
    return a_graph(seed, data=WEIGHT)


def with_state(seed):
    return a_graph(seed, data=WEIGHT, inputs=(("h", HIDDEN),))


def by_hand(name, source, make, scene=a_graph):
    return Example(name, source, make, scene)


BY_HAND_EXAMPLES = [
    by_hand("tutorial-gcn", "tutorial: creating message passing networks",
            lambda: TwoOf(TutorialConv)),
    by_hand("tutorial-edge-conv", "tutorial: creating message passing networks",
            lambda: TwoOf(TutorialEdgeConv)),
    by_hand("loops-in-forward", "add_self_loops, degree, scatter", LoopsInForward),
    by_hand("mean-by-hand", "index_add", MeanByHand),
    by_hand("own-attention", "einsum, softmax over in-edges", OwnAttention),
    by_hand("gat-by-hand", "pyGAT", GatByHand),
    by_hand("sparse-adjacency", "pygcn: a sparse matrix made in forward", SparseAdjacency),
    by_hand("dense-adjacency", "to_dense_adj", DenseAdjacency),
    by_hand("made-inside", "modules made in forward, lambdas", MadeInside),
    by_hand("zeros-first", "torch.zeros(x.size(0), k)", ZerosFirst),
    by_hand("without-edges", "if edge_index.numel() == 0", WithoutEdges),
    by_hand("hooked", "forward hooks", Hooked),
    by_hand("squeezed", "squeeze()", Squeezed),
    by_hand("above-the-mean", "edges by a statistic of all", Noisy, scene=weighted),
    by_hand("positions", "torch.arange(x.size(0))", Positions),
    by_hand("gconv-gru", "PyG Temporal: GConvGRU", GConvGru, scene=weighted),
    by_hand("gconv-gru-lambda", "PyG Temporal: GConvGRU", lambda: GConvGru(2.0), weighted),
    by_hand("gconv-gru-state", "PyG Temporal: GConvGRU", lambda: GConvGru(2.0), with_state),
    by_hand("tgcn", "PyG Temporal: TGCN", Tgcn, scene=weighted),
    by_hand("tgcn-state", "PyG Temporal: TGCN", Tgcn, scene=with_state),
    by_hand("a3tgcn", "PyG Temporal: A3TGCN", OverTime,
            scene=lambda seed: a_graph(seed, data=WEIGHT, channels=3 * CHANNELS)),
]  # fmt: skip

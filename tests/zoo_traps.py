"""Models that a tracer misreads easily: aliases, changes in place, rows per node, own parts."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data

from tests.zoo import ANY, CHANNELS, PARTLY, WEIGHT, WHOLE, Case
from tests.zoo_models import HIDDEN, OUT, between

NODES = 12


# Changes in place #################################################################################


def relu_not_assigned(h):
    h.relu_()
    return h


def functional_relu_not_assigned(h):
    F.relu(h, inplace=True)
    return h


def relu_in_place_then_skip(h):
    return F.relu(h, inplace=True) + h


def method_in_place_then_skip(h):
    return h.relu_() * h


def augmented_alias(h):
    other = h
    other += 1
    return h * other


def view_in_place(h):
    h[:, :3].zero_()
    return h


def item_assigned(h):
    h[:, 0] = 1
    return h


def row_assigned(h):
    h[0] = 1
    return h


def chain_in_place(h):
    h.mul_(2).add_(1)
    return h - 1


def out_argument(h):
    torch.mul(h, 2, out=h)
    return h


class InPlaceModule(nn.Module):
    """`nn.ReLU(inplace=True)` on a value that is used again."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)

    def forward(self, h):
        return self.act(h) + h


class InPlaceInput(nn.Module):
    """Changes its own input."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)

    def forward(self, x, edge_index):
        x.relu_()
        return self.conv(x, edge_index)


class InPlaceOutputOfLayer(nn.Module):
    """Keeps the layers' outputs in a list and changes one of them afterwards."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([gnn.GCNConv(CHANNELS, HIDDEN), gnn.GCNConv(HIDDEN, HIDDEN)])

    def forward(self, x, edge_index):
        outputs = []
        for conv in self.convs:
            x = conv(x, edge_index)
            outputs.append(x)
            x = x.tanh_()
        return torch.cat(outputs, dim=-1)


IN_PLACE = [
    between(f"in-place-{function.__name__}", function, mode=ANY)
    for function in (
        relu_not_assigned,
        functional_relu_not_assigned,
        relu_in_place_then_skip,
        method_in_place_then_skip,
        augmented_alias,
        view_in_place,
        item_assigned,
        row_assigned,
        chain_in_place,
        out_argument,
    )
]
IN_PLACE += [
    Case("in-place-module-then-skip", lambda: MadeBetween(InPlaceModule), mode=ANY),
    Case("in-place-input", InPlaceInput, mode=ANY),
    Case("in-place-layer-output", InPlaceOutputOfLayer, mode=ANY),
]


class MadeBetween(nn.Module):
    """A module between two convs."""

    def __init__(self, make):
        super().__init__()
        self.conv1 = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GCNConv(HIDDEN, OUT)
        self.part = make()

    def forward(self, x, edge_index):
        return self.conv2(self.part(self.conv1(x, edge_index)), edge_index)


# Tensors of the model itself ######################################################################


class NodeParameter(nn.Module):
    """One learned row per node, as a parameter, an embedding or a buffer."""

    def __init__(self, how):
        super().__init__()
        self.conv1 = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.GCNConv(HIDDEN, OUT)
        self.how = how
        if how == "embedding":
            self.rows = nn.Embedding(NODES, HIDDEN)
        else:
            self.rows = nn.Parameter(torch.randn(NODES, HIDDEN))
        self.register_buffer("scale", torch.rand(NODES))

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index)
        if self.how == "embedding":
            h = h + self.rows.weight
        elif self.how == "parameter":
            h = torch.cat([h, self.rows], dim=-1)[:, 3 : 3 + HIDDEN]
        else:
            h = h * self.scale[:, None]
        return self.conv2(h, edge_index)


class MaskBuffer(nn.Module):
    """Picks rows by a mask that it keeps."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)
        self.register_buffer("mask", torch.arange(NODES) % 3 == 0)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)[self.mask]


class Twice(nn.Module):
    """One conv on two different inputs, and one layer norm for both."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GraphConv(CHANNELS, OUT)
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, x, edge_index):
        return self.conv(self.norm(x), edge_index) - self.conv(self.norm(-x * x), edge_index)


class Pair(nn.Module):
    """A conv with other features at the sources than at the targets."""

    def __init__(self, conv, target=True):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, HIDDEN)
        self.conv = conv
        self.target = target

    def forward(self, x, edge_index):
        return self.conv((self.lin(x).tanh(), x if self.target else None), edge_index)


class Scaled(nn.Module):
    """Takes plain numbers and flags beside tensors."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GCNConv(CHANNELS, OUT)

    def forward(self, x, edge_index, scale=1.0, flip=False, names=()):
        x = self.conv(x * scale, edge_index)
        return -x if flip and not names else x


class Positions(nn.Module):
    """Takes a second tensor with one row per node."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.GATConv(CHANNELS + 2, OUT)

    def forward(self, x, pos, edge_index):
        return self.conv(torch.cat([x, pos], dim=-1), edge_index)


class Batched(nn.Module):
    """Takes the usual batch vector, here all of one graph."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)
        self.norm = gnn.GraphNorm(OUT)

    def forward(self, x, edge_index, batch):
        return gnn.global_max_pool(self.norm(self.conv(x, edge_index), batch), batch)


class DictNet(nn.Module):
    """Returns a dict, with one value in it twice."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, HIDDEN)
        self.lin = nn.Linear(HIDDEN, OUT)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return {"embedding": h, "logits": self.lin(h.relu()), "again": h}


class ReturnsItsInput(nn.Module):
    """One output is the input itself."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)

    def forward(self, x, edge_index):
        return x, self.conv(x, edge_index)


class NewRows(nn.Module):
    """Makes row tensors from the number of nodes."""

    def __init__(self, how):
        super().__init__()
        self.conv1 = gnn.GCNConv(CHANNELS, HIDDEN)
        self.conv2 = gnn.SAGEConv(HIDDEN + 2, OUT)
        self.how = how

    def forward(self, x, edge_index):
        h = self.conv1(x, edge_index)
        if self.how == "zeros":
            more = torch.zeros(h.size(0), 2, dtype=h.dtype)
        elif self.how == "new":
            more = h.new_ones((h.shape[0], 2))
        elif self.how == "eye":
            more = torch.eye(h.size(0), 2, dtype=h.dtype)
        else:
            more = torch.full_like(h[:, :2], 0.5)
        return self.conv2(torch.cat([h, more], dim=1), edge_index)


class DataSize(nn.Module):
    """Takes a `Data` object and asks it for sizes."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.SAGEConv(CHANNELS, OUT)

    def forward(self, data):
        return self.conv(data.x, data.edge_index) / data.num_nodes


class Residual(nn.Module):
    """Returns the sum over a growing list of skip connections."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, HIDDEN)
        self.convs = nn.ModuleList([gnn.GINConv(nn.Linear(HIDDEN, HIDDEN)) for _ in range(3)])

    def forward(self, x, edge_index):
        states = [self.lin(x)]
        for conv in self.convs:
            states.append(conv(F.relu(sum(states)), edge_index))
        return torch.stack(states, dim=0).mean(dim=0)


# Parts of a user's own ############################################################################


class GlobalAggregation(gnn.aggr.Aggregation):
    """An aggregation that looks at all messages of the graph."""

    def forward(self, x, index=None, ptr=None, dim_size=None, dim=-2):
        return self.reduce(x, index, ptr, dim_size, dim, reduce="sum") + x.mean()


class LocalAggregation(gnn.aggr.Aggregation):
    """An aggregation of a user's own that is local in truth."""

    def forward(self, x, index=None, ptr=None, dim_size=None, dim=-2):
        return self.reduce(x.abs(), index, ptr, dim_size, dim, reduce="sum").sqrt()


class CentreRows(nn.Module):
    """A module of a user's own that mixes rows."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, OUT)

    def forward(self, x):
        return self.lin(x - x.mean(dim=0))


class ScaleRows(nn.Module):
    """A module of a user's own that works row by row."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CHANNELS, OUT)
        self.scale = nn.Parameter(torch.ones(OUT))

    def forward(self, x):
        return self.lin(x) * self.scale


class PlainChildOfGCN(gnn.GCNConv):
    """A subclass that changes nothing but its constructor."""

    def __init__(self, channels):
        super().__init__(channels, OUT, improved=True)


class UpdateChildOfGraph(gnn.GraphConv):
    """A subclass with an update function."""

    def update(self, inputs):
        return inputs.tanh()


class AggregateChildOfGIN(gnn.GINConv):
    """A subclass with an aggregate function."""

    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        return super().aggregate(inputs**2, index, ptr, dim_size)


def double_messages(module, inputs, output):
    return 2 * output


def with_message_hook():
    conv = gnn.SAGEConv(CHANNELS, OUT)
    conv.register_message_forward_hook(double_messages)
    return conv


def with_propagate_hook():
    conv = gnn.GCNConv(CHANNELS, OUT)
    conv.register_propagate_forward_hook(double_messages)
    return conv


def with_weight_norm():
    conv = gnn.SAGEConv(CHANNELS, OUT)
    nn.utils.parametrizations.weight_norm(conv.lin_l, "weight")
    return conv


def call_positions(model, inputs):
    x = inputs["x"]
    pos = torch.linspace(-1, 1, 2 * NODES, dtype=x.dtype).view(NODES, 2)
    return model(x, pos, inputs["edge_index"])


def call_batch(model, inputs):
    return model(inputs["x"], inputs["edge_index"], torch.zeros(NODES, dtype=torch.long))


def call_scaled(model, inputs):
    return model(inputs["x"], inputs["edge_index"], 0.5, flip=True)


def call_data(model, inputs):
    return model(Data(**inputs))


OWN_CASES = [
    Case("node-parameter", lambda: NodeParameter("parameter"), mode=ANY, picky=True),
    Case("node-embedding", lambda: NodeParameter("embedding"), mode=ANY, picky=True),
    Case("node-buffer", lambda: NodeParameter("buffer"), mode=ANY, picky=True),
    Case("mask-buffer", MaskBuffer, mode=ANY, picky=True),
    Case("two-inputs-one-conv", Twice, formats=("coo", "edge_index")),
    Case("pair-sage", lambda: Pair(gnn.SAGEConv((HIDDEN, CHANNELS), OUT)), mode=ANY),
    Case("pair-sage-no-target", lambda: Pair(gnn.SAGEConv(HIDDEN, OUT), False), mode=ANY),
    Case("pair-gat", lambda: Pair(gnn.GATConv((HIDDEN, CHANNELS), OUT)), mode=ANY),
    Case("pair-graph", lambda: Pair(gnn.GraphConv((HIDDEN, CHANNELS), OUT)), mode=ANY,
         formats=("coo", "edge_index")),
    Case("plain-arguments", Scaled, call=call_scaled),
    Case("positions", Positions, call=call_positions, mode=ANY, picky=True),
    Case("batch-vector", Batched, call=call_batch, mode=ANY, picky=True, keeps_nodes=True),
    Case("dict-output", DictNet),
    Case("returns-its-input", ReturnsItsInput),
    Case("new-rows-zeros", lambda: NewRows("zeros"), mode=ANY),
    Case("new-rows-new", lambda: NewRows("new"), mode=ANY),
    Case("new-rows-eye", lambda: NewRows("eye"), mode=ANY),
    Case("new-rows-like", lambda: NewRows("like"), mode=PARTLY),
    Case("data-size", DataSize, call=call_data, mode=ANY),
    Case("many-skips", Residual, mode=ANY),
    Case("global-aggregation", lambda: gnn.SAGEConv(CHANNELS, OUT, aggr=GlobalAggregation()),
         mode=WHOLE, picky=True),
    Case("local-aggregation", lambda: gnn.SAGEConv(CHANNELS, OUT, aggr=LocalAggregation())),
    Case("mean-aggregation-object", lambda: gnn.SAGEConv(CHANNELS, OUT, gnn.MeanAggregation())),
    Case("quantile-aggregation", picky=True,
         make=lambda: gnn.SAGEConv(CHANNELS, OUT, gnn.QuantileAggregation(0.3))),
    Case("attentional-aggregation", make=lambda: gnn.SAGEConv(
        CHANNELS, OUT, gnn.AttentionalAggregation(nn.Linear(CHANNELS, 1)))),
    Case("deep-sets-aggregation", make=lambda: gnn.SAGEConv(
        CHANNELS, OUT, gnn.DeepSetsAggregation(nn.Linear(CHANNELS, CHANNELS), nn.ReLU()))),
    Case("power-mean-aggregation", make=lambda: gnn.SAGEConv(
        CHANNELS, OUT, gnn.PowerMeanAggregation(p=2.0))),
    Case("variance-preserving-aggregation", make=lambda: gnn.SAGEConv(
        CHANNELS, OUT, gnn.VariancePreservingAggregation())),
    Case("sort-aggregation", formats=("edge_index_by_col",), picky=True,
         make=lambda: gnn.SAGEConv(CHANNELS, OUT, gnn.SortAggregation(1))),
    Case("gru-aggregation", mode=WHOLE, picky=True, formats=("edge_index_by_col",),
         make=lambda: gnn.SAGEConv(CHANNELS, OUT, gnn.GRUAggregation(CHANNELS, CHANNELS))),
    Case("multi-aggregation-attention", mode=ANY, make=lambda: gnn.SAGEConv(
        CHANNELS, OUT, ["mean", "max"], aggr_kwargs={"mode": "sum"})),
    Case("gin-of-mixing-module", lambda: gnn.GINConv(CentreRows()), mode=ANY),
    Case("gin-of-own-module", lambda: gnn.GINConv(ScaleRows()), mode=ANY),
    Case("gin-of-function", lambda: gnn.GINConv(torch.tanh), mode=ANY),
    Case("gin-of-mixing-function", lambda: gnn.GINConv(lambda x: x.cumsum(0)), mode=ANY),
    Case("child-plain", lambda: PlainChildOfGCN(CHANNELS), mode=ANY, data=WEIGHT),
    Case("child-update", lambda: UpdateChildOfGraph(CHANNELS, OUT), mode=ANY,
         formats=("coo", "edge_index")),
    Case("child-aggregate", lambda: AggregateChildOfGIN(nn.Linear(CHANNELS, OUT)), mode=ANY),
    Case("message-hook", with_message_hook, mode=ANY),
    Case("propagate-hook", with_propagate_hook, mode=ANY),
    Case("weight-norm", with_weight_norm, mode=ANY),
    Case("decomposed-gcn", lambda: gnn.GCNConv(CHANNELS, OUT, decomposed_layers=2), mode=ANY),
]  # fmt: skip

TRAP_CASES = [*IN_PLACE, *OWN_CASES]

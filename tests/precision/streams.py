"""Streams of deltas that are made to blur sums in float32, each held against float64.

Every delta is followed by a pass of the original model in float64 on the graph as it is then. What
counts is how far a row is from that, as a part of its largest element.
"""

import copy
import itertools
from typing import NamedTuple

import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINEConv, GraphSAGE, SimpleConv

from pyg_incremental import to_incremental

CHANNELS = 8
BOUND = 1e-5


class Weighted(nn.Module):
    """A weighted sum and nothing else."""

    def __init__(self):
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight)


class OfEdges(nn.Module):
    """A sum of functions of edges, which are computed anew when they are taken back."""

    def __init__(self):
        super().__init__()
        self.conv = GINEConv(nn.Linear(CHANNELS, CHANNELS), edge_dim=1)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight[:, None])


MODELS = {
    "sum": lambda: SimpleConv(aggr="sum"),
    "mean": lambda: SimpleConv(aggr="mean"),
    "gcn": lambda: GCNConv(CHANNELS, CHANNELS),
    "weighted": Weighted,
    "attention": lambda: GATConv(CHANNELS, CHANNELS, heads=2, add_self_loops=False),
    "edges": OfEdges,
    "two layers": lambda: GraphSAGE(CHANNELS, 16, 2, 8),
}
WITH_WEIGHTS = "weighted", "edges"


class Start(NamedTuple):
    """Where a stream begins: features `[n, CHANNELS]`, edges `[2, m]`, and a weight for each."""

    x: torch.Tensor
    edges: torch.Tensor
    weights: torch.Tensor


def star(size, x):
    """All nodes but the first send to that."""
    src = torch.arange(1, size + 1)
    return Start(x, torch.stack([src, torch.zeros_like(src)]), torch.full((size,), 0.3))


def to_hub(src):
    return torch.stack([src, torch.zeros_like(src)])


# Streams: each takes how large it is to be, and gives where it begins and the deltas that follow


def equal_messages(size, draw):
    """A hub whose in-neighbours are all alike loses nearly all of them."""
    start = star(size, torch.randn(CHANNELS, generator=draw).expand(size + 1, -1).contiguous())
    parts = start.edges[:, :-3].split(max(size // 20, 1), 1)
    return start, ({"edge_index_del": part} for part in parts)


def grown_and_emptied(size, draw):
    """A hub gains and loses all of its in-edges, again and again."""
    start = star(size, 1 + 0.1 * torch.randn(size + 1, CHANNELS, generator=draw))
    begin = Start(start.x, start.edges[:, :1], start.weights[:1])

    def deltas():
        for _ in itertools.count():
            parts = start.edges[:, 1:].split(max(size // 8, 1), 1)
            for part in parts:
                yield {"edge_index_add": part, "edge_weight_add": torch.full((part.shape[1],), 0.7)}
            for part in parts:
                yield {"edge_index_del": part}

    return begin, deltas()


def alternating_signs(size, draw):
    """Messages change their signs, some of them at a time."""
    start = star(size, torch.rand(size + 1, CHANNELS, generator=draw) + 0.5)
    x = start.x.clone()

    def deltas():
        while True:
            ids = 1 + torch.randperm(size, generator=draw)[: max(size // 10, 1)]
            x[ids] *= -1 - 1e-3 * torch.rand(1, generator=draw)
            yield {"x_changes": (ids, x[ids].clone())}

    return start, deltas()


def huge_beside_tiny(size, draw):
    """1e8 comes, by features and by edges, and leaves what is of the size of 1e-8."""
    start = star(size, 1e-8 * (1 + torch.rand(size + 1, CHANNELS, generator=draw)))

    def deltas():
        while True:
            at = 1 + torch.randint(size, (1,), generator=draw)
            yield {"x_changes": (at, torch.full((1, CHANNELS), 1e8))}
            yield {"edge_index_add": to_hub(at), "edge_weight_add": torch.ones(1)}
            yield {"edge_index_del": to_hub(at)}
            yield {"x_changes": (at, start.x[at])}

    return start, deltas()


def copies_of_an_edge(size, draw):
    """One edge comes ever so many times, and leaves as often but for one."""
    start = star(2, torch.randn(3, CHANNELS, generator=draw))

    def deltas():
        while True:
            each = to_hub(torch.ones(max(size // 6, 1), dtype=torch.int64))
            for _ in range(6):
                yield {"edge_index_add": each, "edge_weight_add": torch.full((each.shape[1],), 0.1)}
            for _ in range(6):
                yield {"edge_index_del": each}

    return start, deltas()


def weights_that_cancel(size, draw):
    """Half of the weights are what the other half is, but for the sign."""
    start = star(size, 1 + 1e-3 * torch.randn(size + 1, CHANNELS, generator=draw))
    weights = 10 * torch.rand(size // 2, generator=draw)
    weights = torch.cat([weights, -weights])
    start = Start(start.x, start.edges[:, : len(weights)], weights)

    def deltas():
        while True:
            ids = 1 + torch.randperm(len(weights), generator=draw)[: max(size // 20, 1)]
            rows = 1 + 1e-3 * torch.randn(len(ids), CHANNELS, generator=draw)
            yield {"x_changes": (ids, rows)}
            yield {"edge_index_del": start.edges[:, ids - 1]}
            yield {"edge_index_add": start.edges[:, ids - 1], "edge_weight_add": weights[ids - 1]}

    return start, deltas()


def window(size, draw):
    """The oldest edges leave as new ones come; most lead to few nodes."""
    nodes = max(size // 10, 20)

    def drawn(count):
        ends = torch.rand(2, count, generator=draw)
        return torch.stack([ends[0] * nodes, ends[1] ** 3 * nodes]).long()

    edges = drawn(size)
    x = torch.randn(nodes, CHANNELS, generator=draw).abs() + 1

    def deltas():
        held = edges
        while True:
            new = drawn(max(size // 20, 1))
            gone, held = held[:, : new.shape[1]], torch.cat([held[:, new.shape[1] :], new], 1)
            ids = torch.randperm(nodes, generator=draw)[:5]
            yield {
                "edge_index_add": new, "edge_index_del": gone, "which": "oldest",
                "edge_weight_add": torch.rand(new.shape[1], generator=draw),
                "x_changes": (ids, torch.randn(5, CHANNELS, generator=draw).abs() + 1),
            }  # fmt: skip

    return Start(x, edges, torch.rand(size, generator=draw)), deltas()


STREAMS = {
    "equal messages": equal_messages,
    "grown and emptied": grown_and_emptied,
    "alternating signs": alternating_signs,
    "huge beside tiny": huge_beside_tiny,
    "copies of an edge": copies_of_an_edge,
    "weights that cancel": weights_that_cancel,
    "window": window,
}


def worst_of(stream, model, size, count, seed=0, **options):
    """The largest error of a row after any of `count` deltas, as a part of the row.

    Options are those of `to_incremental`. Rows that are zero have to be zero.
    """
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    start, deltas = STREAMS[stream](size, draw)
    has_weights = model in WITH_WEIGHTS
    original = MODELS[model]().eval()
    exact = copy.deepcopy(original).double()
    inc = to_incremental(original, **options)
    inc(start.x.clone(), start.edges, *([start.weights] if has_weights else []))
    worst = 0.0
    for delta in itertools.islice(deltas, count):
        if not has_weights:
            delta.pop("edge_weight_add", None)
        inc.apply_delta(**delta)
        worst = max(worst, error_of(inc, exact, has_weights))
    return worst


@torch.no_grad()
def error_of(inc, exact, has_weights):
    """The same for the state of now."""
    given = [inc.x.double(), inc.graph.to_edge_index()]
    if has_weights:
        given.append(inc.edge_data("edge_weight").double())
    want = exact(*given)
    gap = (inc.out - want).abs().amax(1)
    scale = want.abs().amax(1)
    error = torch.where(gap == 0, gap, gap / scale)
    return float(error.max())

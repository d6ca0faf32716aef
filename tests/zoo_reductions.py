"""Reductions that have no rule of their own: a row is computed again from its in-edges."""

import torch
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn import MessagePassing, aggr

from tests.zoo import CHANNELS, EDGES, WEIGHT, Case

SORTED = ("edge_index_by_col",)
OUT = 4


class OwnWeighted(MessagePassing):
    """Weighted rows of the sources, squashed."""

    def forward(self, x, edge_index, edge_weight=None):
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return x_j.tanh() if edge_weight is None else (x_j * edge_weight.view(-1, 1)).tanh()


class OwnAtBothEnds(MessagePassing):
    """A layer on the rows at both ends, and one behind the reduction."""

    def __init__(self, aggr, width):
        super().__init__(aggr=aggr)
        self.before = nn.Linear(2 * CHANNELS, CHANNELS)
        self.after = nn.Linear(width, OUT)

    def forward(self, x, edge_index):
        return self.after(self.propagate(edge_index, x=x)) + x[:, :OUT]

    def message(self, x_i, x_j):
        return self.before(torch.cat([x_i, x_j - x_i], dim=-1)).relu()


REDUCTIONS = {
    "sort": (lambda: aggr.SortAggregation(2), 2 * CHANNELS),
    "first-of-sorted": (lambda: aggr.SortAggregation(1), CHANNELS),
    "median": (aggr.MedianAggregation, CHANNELS),
    "quantile": (lambda: aggr.QuantileAggregation(0.3), CHANNELS),
    "quantiles": (lambda: aggr.QuantileAggregation([0.2, 0.7], "midpoint"), 2 * CHANNELS),
    "mul": (aggr.MulAggregation, CHANNELS),
    "set2set": (lambda: aggr.Set2Set(CHANNELS, 2), 2 * CHANNELS),
    "sort-and-median": (
        lambda: aggr.MultiAggregation([aggr.SortAggregation(1), aggr.MedianAggregation()]),
        2 * CHANNELS,
    ),
}
"""Makes the module, and how wide its rows are."""


def _cases():
    for name, (make, width) in REDUCTIONS.items():
        formats = SORTED if "sort" in name else EDGES
        matrix = {"formats": (*formats, "csr")}
        about = {
            "formats": formats,
            # PyG fails without edges, and in a quantile if the first rows have none.
            "picky": name not in ("mul", "set2set"),
        }
        for weight, data in (("", ()), ("-weighted", WEIGHT)):
            yield Case(
                f"simple-{name}{weight}", lambda m=make: gnn.SimpleConv(m()), data, **about | matrix
            )
            yield Case(f"own-{name}{weight}", lambda m=make: OwnWeighted(m()), data, **about)
            yield Case(
                f"graph-{name}{weight}",
                lambda m=make, w=width: gnn.GraphConv((w, CHANNELS), OUT, m()),
                data,
                **about | matrix,
            )
        wide = CHANNELS if name == "sort-and-median" else width  # of several SAGE knows how wide
        yield Case(
            f"sage-{name}",
            lambda m=make, w=wide: gnn.SAGEConv((w, CHANNELS), OUT, m()),
            **about | matrix,
        )
        yield Case(f"own-both-ends-{name}", lambda m=make, w=width: OwnAtBothEnds(m(), w), **about)


REDUCTION_CASES = list(_cases())

"""What is found out about a conv of a user's own by trying it on small graphs."""

import pytest
import torch
from torch_geometric.nn import MessagePassing, aggr

from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace.locality import why_not_local
from pyg_incremental.trace.own_forward import OwnForward

X, GRAPH = Value("x", Domain.NODE), Value("edge_index", Domain.WHOLE)


def tried(conv, by_target=False):
    forward = OwnForward(conv.eval(), {"x": X, "edge_index": GRAPH}, GRAPH, (X,), (), False)
    return why_not_local(forward, [torch.randn(9, 2)], [], by_target)


class Gathers(MessagePassing):
    """Any aggregation of the rows of the sources."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


class NeedsSorted(MessagePassing):
    """Reads runs of edges, and fails where they are not sorted."""

    def forward(self, x, edge_index):
        if not bool((edge_index[1].diff() >= 0).all()):
            raise ValueError("not sorted")
        return self.propagate(edge_index, x=x)


class WrongUnsorted(MessagePassing):
    """Sums runs of edges; of edges that are not sorted it keeps the last run of each row."""

    def forward(self, x, edge_index):
        row, size = edge_index[1].unique_consecutive(return_counts=True)
        runs = x[edge_index[0]].split(size.tolist())
        out = torch.zeros_like(x)
        for at, run in zip(row.tolist(), runs, strict=False):
            out[at] = run.sum(0)
        return out


class NeedsFirst(MessagePassing):
    """Fails where the first row has no in-edge."""

    def forward(self, x, edge_index):
        if 0 not in edge_index[1].tolist():
            raise IndexError("no edge into the first row")
        return self.propagate(edge_index, x=x)


class Unsized(MessagePassing):
    """Fails where the last row has no in-edge; one row alone is added to all."""

    def forward(self, x, edge_index):
        return x + aggr.SumAggregation()(x[edge_index[0]], edge_index[1])


class NeedsManyRows(MessagePassing):
    """Fails on every small graph."""

    def forward(self, x, edge_index):
        if x.size(0) < 1000:
            raise RuntimeError("too few rows")
        return self.propagate(edge_index, x=x)


@pytest.mark.parametrize(
    "conv",
    [
        Gathers("sum"), Gathers("median"), Gathers(aggr.QuantileAggregation([0.1, 0.9])),
        NeedsFirst("sum"), NeedsFirst("median"),
    ],
)  # fmt: skip
def test_what_fails_without_edges_into_the_first_rows_is_tried_with_some(conv):
    assert tried(conv) == ""


def test_what_fails_on_unsorted_edges_is_tried_on_sorted_ones_if_it_gets_such():
    for aggregation in ("sum", "median"):
        assert "not sorted" in tried(NeedsSorted(aggregation))
        assert tried(NeedsSorted(aggregation), by_target=True) == ""


@pytest.mark.parametrize(
    ("conv", "reason"),
    [(WrongUnsorted(), "edges that do not lead into it"), (Unsized(), "in-neighbours alone")],
)
def test_where_it_runs_it_has_to_be_right(conv, reason):
    assert reason in tried(conv, by_target=True)


def test_what_fails_everywhere_tells_nothing():
    assert "it fails on a small graph (RuntimeError: too few rows)" in tried(NeedsManyRows())

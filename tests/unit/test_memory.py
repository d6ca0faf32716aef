"""The memory report counts what is there, each thing once."""

import gc
import weakref

import pytest
import torch
from torch_geometric.nn import GATConv, GraphSAGE, SAGEConv

from pyg_incremental import to_incremental


def wrapped(model, nodes, edges, channels=8):
    generator = torch.Generator().manual_seed(0)
    inc = to_incremental(model.eval())
    x = torch.randn(nodes, channels, generator=generator)
    inc(x, torch.randint(nodes, (2, edges), generator=generator))
    return inc


def by_part(report):
    return {(p.name, p.what): p.bytes for p in report.parts}


def test_rows_of_one_layer_by_hand():
    n = 100
    parts = by_part(wrapped(SAGEConv(8, 4, aggr="max"), n, 300).memory_report())
    assert parts["x", "rows"] == n * 8 * 4
    largest = "SAGEConv.scatter_reduce.extremum"
    assert parts[largest, "rows"] == n * 8 * 4
    assert parts[largest, "state"] == n * 8 * 4  # whose message stands in each channel
    for name in ("lin_l", "lin_r", "SAGEConv.add"):
        assert parts[name, "rows"] == n * 4 * 4


def test_a_sum_is_kept_as_the_finished_row_with_its_drift():
    n = 100
    parts = by_part(wrapped(SAGEConv(8, 4), n, 300).memory_report())
    assert parts["SAGEConv.add", "rows"] == n * 4 * 4
    low = n * 4 * 4  # what rows lose when they are rounded
    assert parts["SAGEConv.add", "state"] == low + n * 4 + 4 * 4  # drift, and the channels' scale
    assert not any("scatter_add" in name for name, _ in parts)


def test_every_tensor_is_counted_once():
    inc = wrapped(GraphSAGE(8, 16, 2, 4), 200, 800)
    seen = {
        cell.rows.data_ptr(): cell.rows.nbytes
        for cell in inc._session.engine.cells.values()
        if cell.rows is not None
    }
    report = inc.memory_report()
    assert sum(p.bytes for p in report.parts if p.what == "rows") == sum(seen.values())
    assert report.total == sum(p.bytes for p in report.parts)
    assert str(report.total // 2**20) in str(report)
    assert [p.bytes for p in report.parts] == sorted((p.bytes for p in report.parts), reverse=True)


def test_edges_cost_edges_and_nodes_cost_nodes():
    small = wrapped(GATConv(8, 4), 200, 5_000).memory_report()
    edges = wrapped(GATConv(8, 4), 200, 50_000).memory_report()
    nodes = wrapped(GATConv(8, 4), 2_000, 5_000).memory_report()
    assert edges.bytes_per_node == small.bytes_per_node
    assert abs(nodes.bytes_per_node - small.bytes_per_node) < 10
    assert 50 < small.bytes_per_edge < 100
    assert 50 < edges.bytes_per_edge < 100  # the table of pairs has a power of two of places


@pytest.mark.parametrize("after", [1, None])
def test_what_a_refresh_replaces_goes_at_once(after):
    """Not when Python next looks for cycles, which may be thousands of refreshes later."""
    inc = to_incremental(GraphSAGE(4, 8, 2, 3).eval(), compile_after=after)
    inc(torch.randn(20, 4), torch.randint(20, (2, 60)))
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))
    session = inc._session
    held = [session, session.engine, *([session.engine.fast] if after else [])]
    gone = [weakref.ref(thing) for thing in held]
    assert None not in held
    gc.disable()
    try:
        del session, held
        inc.refresh()
        assert [ref() for ref in gone] == [None] * len(gone)
    finally:
        gc.enable()

"""An update traced step by step: nothing is kept, and its work is that of the update."""

import copy

import pytest
import torch
from torch_geometric.nn import GAT, GCN, EdgeConv, GraphSAGE, Sequential

from pyg_incremental import GraphDelta, UnsupportedModelError, to_incremental
from tests.closeness import assert_close, tensors_of

CHANNELS = 4
MODELS = {
    "sage": lambda: GraphSAGE(CHANNELS, 8, 2, 3),
    "gcn": lambda: GCN(CHANNELS, 8, 2, 3),
    "gat": lambda: GAT(CHANNELS, 8, 2, 3),
    "edge": lambda: Sequential(
        "x, edge_index", [(EdgeConv(torch.nn.Linear(2 * CHANNELS, 3)), "x, edge_index -> x")]
    ),
}


def wrapped(kind):
    torch.default_generator.manual_seed(3)
    model = MODELS[kind]().double().eval()
    rng = torch.Generator().manual_seed(4)
    x = torch.randn(12, CHANNELS, dtype=torch.float64, generator=rng)
    edges = torch.randint(12, (2, 40), generator=rng)
    inc = to_incremental(model)
    inc(x, edges)
    return copy.deepcopy(model), inc


def deltas(inc):
    rng = torch.Generator().manual_seed(5)
    rows = torch.randn(2, CHANNELS, dtype=torch.float64, generator=rng)
    gone = inc.graph.to_edge_index()[:, :2]
    return [
        GraphDelta(edge_index_add=[[0, 5], [5, 1]]),
        GraphDelta(edge_index_del=gone),
        GraphDelta(x_changes=([3, 7], rows)),
        GraphDelta(edge_index_add=[[2], [12]], x_add=rows[:1]),
    ]


@pytest.mark.parametrize("kind", MODELS)
def test_a_trace_does_the_work_of_the_update_and_keeps_nothing(kind):
    model, inc = wrapped(kind)
    for delta in deltas(inc):
        before, version = [t.clone() for t in tensors_of(inc.out)], inc.version
        trace = inc.trace_update(delta)
        assert inc.version == version
        assert all(map(torch.equal, before, tensors_of(inc.out)))
        stats = inc.preview(delta).stats
        worked = {s.name: (s.rows, s.changed) for s in trace if s.rows}
        assert worked == {s.name: (s.rows, s.changed) for s in stats if s.rows}
        assert [s.name for s in trace] == [str(s.output) for s in _run(inc)]
        inc.apply_delta(delta)
        with torch.no_grad():
            assert_close(inc.out, model(inc.x, inc.graph.to_edge_index()))


def _run(inc):
    return [e.step for e in inc._session.engine.executors]


def test_rows_that_reach_a_step_are_those_that_changed_before_it():
    _, inc = wrapped("sage")
    trace = inc.trace_update(x_changes=([3], torch.ones(1, CHANNELS, dtype=torch.float64)))
    changed = {s.name: s.changed for s in trace}
    assert changed["x"] == 1
    for step in trace:
        assert step.rows_in == sum(changed[name] for name in step.reads)
    reached = [s for s in trace if s.kind == "sum" and s.rows]
    assert reached
    assert {s.way for s in reached} <= {"push", "pull"}
    assert all(s.rows_in and s.seconds > 0 for s in reached)
    assert trace.seconds == sum(s.seconds for s in trace)


def test_it_reads_as_a_table():
    _, inc = wrapped("sage")
    head, *lines = str(inc.trace_update(edge_index_add=[[0], [5]])).splitlines()
    assert " ".join(head.split()) == "step kind rows in rows rows out edges us way, reads"
    assert len(lines) == len(_run(inc)) + 1
    assert lines[-1].endswith("us in all")


def test_what_runs_whole_steps_again_is_refused():
    _, inc = wrapped("sage")
    with pytest.raises(UnsupportedModelError, match="leave them out"):
        inc.trace_update(GraphDelta(values={"x": torch.zeros(12, CHANNELS)}))

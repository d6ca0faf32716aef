"""`inc.explain()`: each line of a model, how it runs, why, what it costs."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GCNConv, MedianAggregation, PairNorm, SAGEConv

from pyg_incremental import IncrementalWarning, StaleStateError, to_incremental
from tests.example import Run
from tests.scene import CHANNELS
from tests.strategies import DELTAS, generator, make_world
from tests.zoo_examples import EXAMPLES
from tests.zoo_examples_by_hand import TutorialConv, TwoOf

quiet = pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")


class Lines(nn.Module):
    """One line of each kind."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = GCNConv(CHANNELS, 6), PairNorm()
        self.conv2, self.lin = SAGEConv(6, 4, aggr=MedianAggregation()), nn.Linear(4, 3)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        x = self.norm(x)
        x = self.conv2(x, edge_index)
        return self.lin(x) * (x.abs() < 9e9).all(-1, True)


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        if x.size(0) > 5:  # <html>
            x = x.relu()
        return x


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(SAGEConv(CHANNELS, CHANNELS) for _ in range(3))

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return x


def started(model, seed):
    torch.manual_seed(seed)
    world = make_world(generator(seed), nodes=20, edges=50, channels=CHANNELS)
    inc = to_incremental(model().double().eval())
    inc(**world.inputs())
    return inc, world


def lines_of(model):
    """The numbers and the code of the lines of a `forward`."""
    code, first = inspect.getsourcelines(model.forward)
    return {first + at: line.strip() for at, line in enumerate(code)}


def test_each_line_says_how_it_runs(seed):
    inc, _ = started(Lines, seed)
    explanation = inc.explain()
    assert [s.runs for s in explanation] == [
        "incremental", "all rows", "row recompute", "incremental",
    ]  # fmt: skip
    written = lines_of(Lines)
    for step in explanation:
        assert step.place.path == __file__
        assert step.code == written[step.place.line]
        assert bool(step.why) == (step.runs != "incremental")
    assert [s.what[0] for s in explanation][:3] == ["conv1", "norm", "conv2"]
    assert "norm" in explanation.steps[1].why
    assert "BatchNorm" in explanation.steps[1].instead
    assert explanation.mode == inc.mode == "mixed"
    assert f"test_explain.py:{explanation.steps[1].place.line}); see explain()" in repr(inc)


@pytest.mark.filterwarnings("error::pyg_incremental.IncrementalWarning")
def test_steps_on_all_rows_are_said_once_where_the_model_is_called():
    inc, world = to_incremental(Lines().double().eval()), make_world(generator(0))
    with pytest.warns(IncrementalWarning) as caught:
        inc(**world.inputs())
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))  # a warning is an error here
    inc.refresh()
    assert inc.mode == "mixed"
    (warning,) = caught
    assert warning.filename == __file__
    assert re.search(
        r"norm: PairNorm .*\. Every update runs that on all rows", str(warning.message)
    )


def test_what_a_line_cost_in_the_last_update(seed):
    inc, world = started(Lines, seed)
    assert all(step.rows is None and step.cost == "-" for step in inc.explain())
    up = inc.apply_delta(**DELTAS["add_edges"](world, generator(seed)))
    first, norm, again, last = inc.explain()
    work = {step.name: step for step in up.stats.steps}
    assert norm.rows == norm.of == inc.num_nodes
    assert 0 < first.rows < first.of
    assert 0 < work["degree"].edges < first.edges
    assert again.edges == sum(s.edges for n, s in work.items() if n.startswith("conv2")) > 0
    assert last.rows > 0 == last.edges
    assert sum(s.edges for s in inc.explain()) == up.stats.edges
    inc.apply_delta()
    assert [step.rows for step in inc.explain()] == [0, 0, 0, 0]
    inc.refresh()
    assert all(step.rows is None for step in inc.explain())


def test_after_a_small_update_the_work_is_that_of_compiled_code(seed):
    inc, world = started(Loop, seed)
    rng = generator(seed)
    for _ in range(12):
        up = inc.apply_delta(**DELTAS["change_features"](world, rng))
    assert inc._session.engine.fast is not None
    explanation = inc.explain()
    assert sum(step.edges for step in explanation) == up.stats.edges > 0
    assert explanation.steps[-1].rows == len(up.changed)


def test_a_loop_stands_there_once_for_each_round(seed):
    inc, _ = started(Loop, seed)
    assert [step.what for step in inc.explain()] == [(f"convs.{i}", "relu") for i in range(3)]
    assert len({step.place for step in inc.explain()}) == 1


def test_a_full_pass_names_the_line_and_points_to_the_table(seed):
    with pytest.warns(IncrementalWarning, match=r"explain\(\) says") as caught:
        inc, _ = started(Branch, seed)
    assert len(caught) == 1
    (step,) = inc.explain()
    assert step.runs == "full pass"
    assert step.code.startswith("if x.size(0) > 5:")
    assert step.code == lines_of(Branch)[step.place.line]
    assert f"test_explain.py:{step.place.line}" in str(caught[0].message)
    assert step.instead
    inc.apply_delta(x_changes=([1], torch.ones(1, CHANNELS, dtype=torch.float64)))
    assert inc.explain().steps[0].rows == 20


@quiet
def test_text_and_table(seed):
    inc, _ = started(Branch, seed)
    text = str(inc.explain())
    assert text.startswith("Branch, 1 line: 1 full pass; no update yet\n")
    assert re.search(r"test_explain.py:\d+ +if x.size\(0\) > 5:", text)
    assert "\n    why: what it does depends on" in text
    assert "\n    instead: " in text
    table = inc.explain()._repr_html_()
    assert table.count("<tr>") == 2
    assert "&lt;html&gt;" in table
    assert "<html>" not in table


def test_models_of_pyg_show_their_own_lines(seed):
    inc, _ = started(lambda: GCN(CHANNELS, 6, 2, 3), seed)
    steps = [s for s in inc.explain() if s.what[0].startswith("convs")]
    assert [s.what[0] for s in steps] == ["convs.0", "convs.1"]
    assert all(s.place.path.endswith("basic_gnn.py") for s in steps)


def test_a_conv_alone_has_no_line(seed):
    inc, _ = started(lambda: GCNConv(CHANNELS, 3), seed)
    (step,) = inc.explain()
    assert (step.place, step.code, step.line) == (None, "", "GCNConv")


def test_a_conv_alone_that_is_looked_into_shows_its_own_lines(seed):
    inc, _ = started(lambda: SAGEConv(CHANNELS, 3), seed)
    assert {Path(step.place.path).name for step in inc.explain()} == {"sage_conv.py"}
    assert {step.what for step in inc.explain()} == {("SAGEConv",)}


def test_before_the_first_call_there_is_nothing_to_explain():
    with pytest.raises(StaleStateError, match="has not been called yet"):
        to_incremental(GCN(CHANNELS, 6, 2, 3).eval()).explain()


def test_what_pyg_writes_for_a_conv_is_not_shown(seed):
    inc, _ = started(lambda: TwoOf(TutorialConv), seed)
    assert {Path(s.place.path).name for s in inc.explain()} == {"zoo_examples_by_hand.py"}


def test_a_readout_of_several_steps_is_one_line(seed):
    run = Run(next(e for e in EXAMPLES if str(e) == "pool-mean"), seed)
    assert [s.code for s in run.inc.explain()].count("x = self.readout(x, batch)") == 1

"""Where most messages changed, rows are summed afresh instead of corrected edge by edge."""

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SimpleConv, TransformerConv

from pyg_incremental import StaleStateError, to_incremental
from pyg_incremental.kernels.compiled import choice
from pyg_incremental.kernels.compiled.extremum import WIDE
from pyg_incremental.ops import base
from pyg_incremental.ops import maps as executors
from pyg_incremental.rows import nodes
from pyg_incremental.session.session import Session
from tests.side_by_side import SideBySide
from tests.strategies import generator
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_models import MODEL_CASES

N, CHANNELS = nodes.MANY + 200, 6
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 8, 2, 4),
    "sage": lambda: GraphSAGE(CHANNELS, 8, 2, 4),
    "sage-max": lambda: GraphSAGE(CHANNELS, 8, 2, 4, aggr="max"),
    "gin": lambda: GIN(CHANNELS, 8, 2, 4),
    "gat": lambda: GAT(CHANNELS, 8, 2, 4),
    "gated": lambda: TransformerConv(CHANNELS, 8, beta=True),
}


def started(name, rng, **options):
    torch.manual_seed(0)
    inc = to_incremental(MODELS[name]().double().eval(), **options)
    edges = torch.from_numpy(rng.integers(0, N - 50, (2, 4 * N)))  # some nodes have no edges
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), edges)
    return inc


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("order", ["ascending", "mixed", "most"])
@pytest.mark.parametrize("name", MODELS)
def test_exact_when_all_or_most_nodes_change(name, order, backend, seed):
    rng = generator(seed)
    inc = started(name, rng, backend=backend)
    ids = torch.arange(N) if order == "ascending" else torch.from_numpy(rng.permutation(N))
    ids = ids[: N - 100] if order == "most" else ids
    rows = torch.from_numpy(rng.standard_normal((len(ids), CHANNELS)))
    before = inc.out.clone()
    update = inc.apply_delta(
        edge_index_add=torch.from_numpy(rng.integers(0, N, (2, 5))), x_changes=(ids, rows)
    )
    assert torch.equal(inc.x[ids], rows)
    assert inc.verify() < 1e-11
    assert torch.equal(update.changed, (inc.out != before).any(1).nonzero().flatten())
    assert torch.equal(update.out, inc.out[update.changed])
    assert inc.apply_delta(x_changes=([3], rows[:1])).changed.numel() > 0
    assert inc.verify() < 1e-11


@pytest.mark.parametrize("compile_after", [1, None])
@pytest.mark.parametrize(("name", "value"), [("sage", "convs.0.add"), ("gat", "convs.0.softmax")])
def test_the_choice_is_by_edges_and_is_reported(name, value, compile_after, seed):
    """A few hubs have more to push than there is to read; nearly all other nodes have less."""
    rng, hubs = generator(seed), 40
    of_hubs, of_others = 2 * choice.LEAST, choice.LEAST + 700
    dst = torch.from_numpy(rng.integers(0, N, of_hubs + of_others))
    src = [rng.integers(0, hubs, of_hubs), rng.integers(hubs, N, of_others)]
    torch.manual_seed(0)
    inc = to_incremental(MODELS[name]().double().eval(), compile_after=compile_after)
    inc(
        torch.from_numpy(rng.standard_normal((N, CHANNELS))),
        torch.stack([torch.from_numpy(np.concatenate(src)), dst]),
    )
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))
    others = hubs + torch.from_numpy(rng.permutation(N - hubs))
    cases = [(torch.arange(hubs), True), (others[: N // 4], False)]
    if name == "sage":  # the own row of each node that changes is made afresh in a GAT
        cases.append((others[: 9 * len(others) // 10], False))
    for ids, pulled in cases:
        rows = torch.from_numpy(rng.standard_normal((len(ids), CHANNELS)))
        step = inc.apply_delta(x_changes=(ids, rows)).stats[value]
        assert inc.verify() < 1e-11
        assert step.way == ("pull" if pulled else "push")
        assert (step.reread == step.rows) is pulled, step
        out = inc.graph.to_edge_index()
        reached = torch.isin(out[0], ids)
        read = int(torch.isin(out[1], out[1, reached]).sum())
        assert step.edges >= (read if pulled else int(reached.sum()))


@pytest.mark.parametrize("compile_after", [1, None])
@pytest.mark.parametrize("channels", [WIDE - 1, WIDE])
def test_wide_rows_of_a_maximum_are_made_afresh_sooner(channels, compile_after, seed):
    rng, few = generator(seed), nodes.MANY + 50
    torch.manual_seed(0)
    model = GraphSAGE(channels, 8, 2, 4, aggr="max").double().eval()
    inc = to_incremental(model, compile_after=compile_after)
    count = 3 * few  # so that these are no half of them
    x = torch.from_numpy(rng.standard_normal((count, channels)))
    inc(x, torch.from_numpy(rng.integers(0, count, (2, 9 * count))))
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))
    for _ in range(2):
        ids = torch.from_numpy(rng.permutation(count)[:few])
        rows = torch.from_numpy(rng.standard_normal((few, channels)))
        edges = torch.from_numpy(rng.integers(0, count, (2, 9)))
        step = inc.apply_delta(edges, inc.graph.to_edge_index()[:, :9], (ids, rows)).stats.steps
        ways = [s.way for s in step if s.kind == "max"]
        assert ways[0] == ("pull" if channels == WIDE else "push")
        assert inc.verify() < 1e-11
    inc.check()


CASES = [*CONV_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *MODEL_CASES]


@pytest.mark.matrix
@pytest.mark.parametrize(
    "case", [case for case in CASES if "incremental" in case.modes(case.formats[0])], ids=str
)
def test_exact_in_random_sequences_of_deltas(case, seed, monkeypatch):
    monkeypatch.setattr(nodes, "MANY", 0)  # so that most nodes of a small graph are enough
    monkeypatch.setattr(choice, "LEAST", 0)
    monkeypatch.setattr(executors, "PART", 2)
    monkeypatch.setattr(base, "AT_ONCE", 5)
    SideBySide(case, case.formats[0], seed=seed, compile_after=None).walk()


class Clipped(torch.nn.Module):
    """Sums of what is positive."""

    def __init__(self):
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x, edge_index):
        return self.conv(torch.relu(x), edge_index)


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_what_looks_like_most_and_is_not(backend, seed, monkeypatch):
    """All features change, but only those of the first nodes are to be seen behind the ReLU."""
    monkeypatch.setattr(executors, "PART", 64)
    rng = generator(seed)
    inc = to_incremental(Clipped().eval(), compile_after=None, backend=backend)
    x = -torch.from_numpy(rng.random((N, CHANNELS))) - 1
    inc(x, torch.from_numpy(rng.integers(0, N, (2, 4 * N))))
    rows = x - 1
    rows[:100] *= -1
    before = inc.out.clone()
    update = inc.apply_delta(
        edge_index_add=torch.from_numpy(rng.integers(0, N, (2, 5))),
        x_changes=(torch.arange(N), rows),
    )
    assert inc.verify() < 1e-11
    assert torch.equal(update.changed, (inc.out != before).any(1).nonzero().flatten())
    clipped, total = update.stats["relu"], next(s for s in update.stats.steps if s.kind == "sum")
    assert (clipped.rows, clipped.changed) == (N, 100)
    assert total.way == "pull"  # there are no OLD rows that could be retracted
    assert inc.apply_delta(x_changes=([N - 1], -rows[:1])).changed.numel() == 0
    assert inc.verify() < 1e-11


def test_a_value_that_one_map_reads_is_never_whole_in_memory(seed, monkeypatch):
    monkeypatch.setattr(executors, "PART", 64)
    rng = generator(seed)
    inc = started("gated", rng, compile_after=None)
    (cell,) = (c for c in inc._session.engine.cells.values() if c.is_read_once)
    sizes = []
    part = executors.MapExecutor._new_rows

    def spy(self, ids, first, last):
        if self.out is cell:
            sizes.append(last - first)
        return part(self, ids, first, last)

    monkeypatch.setattr(executors.MapExecutor, "_new_rows", spy)
    inc.apply_delta(
        x_changes=(torch.arange(N), torch.from_numpy(rng.standard_normal((N, CHANNELS))))
    )
    assert cell.fresh is None
    assert cell.rows is None
    assert max(sizes) == 64
    assert sum(sizes) == N  # each row once
    assert inc.verify() < 1e-11


def test_a_refresh_takes_no_new_memory_and_leaves_the_output_alone(seed):
    rng = generator(seed)
    inc = started("sage-max", rng, compile_after=None)
    before, copy, features = inc.out, inc.out.clone(), inc.x
    engine = inc._session.engine
    held = {c.tensor.data_ptr() for c in engine.cells.values() if c.rows is not None}
    held |= {a.owner.tensor.data_ptr() for a in engine.aggregators}
    with torch.no_grad():
        next(inc.model.parameters()).mul_(2)
    inc.refresh()
    engine = inc._session.engine
    now = {c.tensor.data_ptr() for c in engine.cells.values() if c.rows is not None}
    now |= {a.owner.tensor.data_ptr() for a in engine.aggregators}
    assert len(now - held) == 1  # the output, of which there are views
    assert torch.equal(before, copy)
    assert not torch.equal(inc.out, copy)
    assert inc.x.data_ptr() == features.data_ptr()
    assert inc.verify() < 1e-11


def test_a_refresh_that_fails_midway_is_mended_by_the_next(seed, monkeypatch):
    rng = generator(seed)
    inc = started("gat", rng)
    copy = inc.out.clone()
    with monkeypatch.context() as patch:
        patch.setattr(Session, "fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            inc.refresh()
    with pytest.raises(StaleStateError):
        inc.apply_delta(x_changes=([3], torch.zeros(1, CHANNELS)))
    inc.refresh()
    assert torch.equal(inc.out, copy)
    assert inc.verify() < 1e-11


@pytest.mark.parametrize("options", [{}, {"store": "minimal"}, {"backend": "reference"}], ids=str)
@pytest.mark.parametrize("name", ["sage", "sage-max"])
def test_refresh_after_the_graph_has_grown(name, options, seed):
    rng = generator(seed)
    inc = started(name, rng, compile_after=1, **options)
    for turn in range(3):
        count = N + 30 * turn
        new = torch.from_numpy(rng.standard_normal((30, CHANNELS)))
        inc.apply_delta(x_add=new, edge_index_add=torch.from_numpy(rng.integers(0, count, (2, 40))))
        inc.refresh()
        inc.refresh()
        inc.apply_delta(x_changes=(torch.arange(30), new), nodes_del=torch.tensor([turn]))
        assert inc.verify() < 1e-11

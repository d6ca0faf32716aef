"""Where most messages changed, rows are summed afresh instead of corrected edge by edge."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_incremental import to_incremental
from pyg_incremental.aggregate.base import MANY
from tests.strategies import generator

N, CHANNELS = MANY + 200, 6
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 8, 2, 4),
    "sage": lambda: GraphSAGE(CHANNELS, 8, 2, 4),
    "sage-max": lambda: GraphSAGE(CHANNELS, 8, 2, 4, aggr="max"),
    "gin": lambda: GIN(CHANNELS, 8, 2, 4),
    "gat": lambda: GAT(CHANNELS, 8, 2, 4),
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
@pytest.mark.parametrize(
    ("name", "value"), [("sage", "convs.0.aggr_sum"), ("gat", "convs.0.softmax")]
)
def test_the_choice_is_by_counts_and_is_reported(name, value, compile_after, seed):
    rng = generator(seed)
    inc = started(name, rng, compile_after=compile_after)
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))
    for changed, pulled in ((N, True), (N // 2 - 10, False)):
        ids = torch.from_numpy(rng.permutation(N)[:changed])
        rows = torch.from_numpy(rng.standard_normal((changed, CHANNELS)))
        step = inc.apply_delta(x_changes=(ids, rows)).stats[value]
        assert inc.verify() < 1e-11
        assert step.way == ("pull" if pulled else "push")
        assert (step.reread == step.rows) is pulled, step
        assert step.edges > 0

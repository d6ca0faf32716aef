"""Any deltas on any number of ranks give what one process gives (ranks are threads here)."""

import pytest
import torch

from pyg_incremental import UnsupportedModelError
from pyg_incremental.distributed import local_ids
from tests.distributed.journey import Journey
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import BY_NAME, EVERY
from tests.side_by_side import clone

# One of each way in which a model can be computed on ranks: sums, weights, extrema, attention,
# functions of edges, rows; against the edges; loops that are added; several hops; other formats.
RUNS = [
    ("gcn-weights", "coo", 2),
    ("gcn-plain", "csr", 3),
    ("gcn-backward-weights", "coo", 3),
    ("sage-max", "coo", 4),
    ("sage-median", "coo", 2),
    ("sage-std", "coo", 3),
    ("gin-mlp", "coo", 3),
    ("gat-attr-mean", "coo", 3),
    ("gat-heads", "coo", 4),
    ("graph-mean-weights", "csc", 2),
    ("both-directions", "coo", 3),
    ("other-TransformerConv", "coo", 3),
    ("other-ChebConv", "coo", 2),
    ("other-DirGNNConv", "coo", 3),
    ("GCN-cached", "coo", 3),
    ("edge-encoder", "coo", 3),
    ("tuple-output", "coo", 3),
    ("data-object", "coo", 2),
]


@pytest.mark.parametrize(("name", "fmt", "size"), RUNS, ids=lambda v: str(v))
def test_a_journey(name, fmt, size, seed):
    all_well(run_ranks(size, lambda comm: Journey(comm, BY_NAME[name], fmt, seed).walk()))


@pytest.mark.parametrize("options", [{"backend": "reference"}, {"scrub_rows": 2}], ids=str)
def test_a_journey_with_other_settings(options, seed):
    def work(comm):
        Journey(comm, BY_NAME["GAT"], seed=seed, single=False, **options).walk()

    all_well(run_ranks(3, work))


def test_a_journey_in_float32(seed):
    def work(comm):
        case = BY_NAME["GraphSAGE"]
        journey = Journey(comm, case, seed=seed, single=False, dtype=torch.float32)
        journey.walk(["mixed", "add_edges", "remove_hub", "grow_hub", "mixed"])

    all_well(run_ranks(2, work))


@pytest.mark.parametrize("name", ["gat-attr-mean", "gcn-weights", "gcn-backward"])
def test_new_nodes_that_use_up_the_gap(name, seed, monkeypatch):
    """Own ids then go on behind the ghosts, and the ids between belong to nobody."""
    monkeypatch.setattr(local_ids, "_gap", lambda count: 1)

    def work(comm):
        journey = Journey(comm, BY_NAME[name], seed=seed)
        journey.walk(["new_nodes_with_edges", "mixed", "add_edges", "new_isolated_nodes"] * 3)
        assert journey.inc._part.own.has_holes
        journey.walk()
        journey.inc.refresh()
        journey.out = clone(journey.inc.gather_out())
        assert not journey.inc._part.own.has_holes
        journey.walk(["mixed", "mixed"])

    all_well(run_ranks(3, work))


REFUSED = ["mixes-mean", "pool-to-graph", "GCN-graph-norm", "sage-lstm"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_all_rows_is_refused_by_all_ranks(name, seed):
    results = run_ranks(2, lambda comm: Journey(comm, BY_NAME[name], seed=seed, single=False))
    assert len({str(r) for r in results}) == 1
    for result in results:
        assert isinstance(result, UnsupportedModelError)
        assert "Use to_incremental, in one process" in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY[5::40], ids=str)
def test_cases_of_the_zoo_that_are_not_refused(case, seed):
    results = run_ranks(3, lambda comm: Journey(comm, case, case.formats[0], seed).walk())
    if not any(isinstance(r, UnsupportedModelError) for r in results):
        all_well(results)

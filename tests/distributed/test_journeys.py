"""Any deltas on any number of ranks give what one process gives (ranks are threads here)."""

import pytest
import torch

from pyg_incremental import UnsupportedModelError
from pyg_incremental.distributed.numbering import local_ids
from pyg_incremental.fused import parts, tables
from pyg_incremental.fused.run import FastPath
from tests.distributed.journey import Travel
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import BY_NAME, EVERY, HETERO, HYPER, travel
from tests.side_by_side import clone
from tests.strategies import SPOILERS

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
    ("linkx", "coo", 3),
    ("linkx-deep", "coo", 2),
    ("embeddings", "coo", 3),
]
# The same over several kinds of nodes and edges: pairs, dicts, several graphs, hyperedges.
OTHERS = [
    ("SAGE-max", 3), ("SAGE-mul", 2), ("Graph-weighted", 1), ("GAT-attr", 3), ("FeaSt", 2),
    ("Signed-max", 3), ("Signed-pair", 2), ("Dir-GAT", 3), ("HeteroConv-mean", 2),
    ("HeteroConv-stack", 3), ("different-convs", 4), ("attributes", 2),
    ("weights-and-attributes", 3), ("to_hetero-GAT", 2), ("HGT", 3), ("HGTConv-skip", 2),
    ("plain", 3), ("max-signed", 2), ("attention-node-max", 3), ("attention-edge-weighted", 2),
    ("two-layers-weighted", 3), ("encoded", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fmt", "size"), RUNS, ids=lambda v: str(v))
def test_a_journey(name, fmt, size, seed):
    all_well(run_ranks(size, lambda comm: travel(comm, name, fmt, seed=seed).walk()))


@pytest.mark.parametrize(("name", "size"), OTHERS, ids=lambda v: str(v))
def test_a_journey_over_several_kinds(name, size, seed):
    all_well(run_ranks(size, lambda comm: travel(comm, name, seed=seed).walk()))


@pytest.mark.parametrize("name", ["GAT", "different-convs"])
@pytest.mark.parametrize("options", [{"backend": "reference"}, {"scrub_rows": 2}], ids=str)
def test_a_journey_with_other_settings(name, options, seed):
    def work(comm):
        travel(comm, name, seed=seed, single=False, **options).walk()

    all_well(run_ranks(3, work))


COMPILED = [
    ("gcn-plain", 3), ("gat-heads", 2), ("sage-mean", 2), ("sage-max", 3),
    ("GraphSAGE", 4), ("GIN", 2), ("GAT", 2), ("GraphSAGE-max-norm-jk", 3),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "size"), COMPILED)
def test_a_journey_in_compiled_code(name, size, threads, seed, monkeypatch):
    """The plan of every rank is one for the machine, which stops at exchanges."""
    if threads > 1:
        monkeypatch.setattr(parts, "MANY", 0)
        monkeypatch.setattr(parts, "number_of_threads", lambda: threads)
    exchanges = _noted(monkeypatch)

    def work(comm):
        travel(comm, name, seed=seed, compile_after=1, backend="compiled").walk()

    all_well(run_ranks(size, work))
    assert exchanges.count(True) > 10


def _noted(monkeypatch):
    """Whether there was room for what arrived, at each exchange that the machine meets."""
    notes, exchange = [], FastPath._exchange

    def noting(*args):
        notes.append(exchange(*args))
        return notes[-1]

    monkeypatch.setattr(FastPath, "_exchange", noting)
    return notes


def test_more_rows_arrive_than_the_machine_has_room_for(seed, monkeypatch):
    monkeypatch.setattr(tables, "MOST", 24)
    exchanges = _noted(monkeypatch)

    def work(comm):
        journey = travel(comm, "GraphSAGE", seed=seed, compile_after=1, backend="compiled")
        journey.walk(["add_edges", "change_features", "delete_edges", "mixed", "change_hub"] * 2)

    all_well(run_ranks(2, work))
    assert {True, False} == set(exchanges)


def test_a_journey_in_float32(seed):
    def work(comm):
        journey = travel(comm, "GraphSAGE", seed=seed, single=False, dtype=torch.float32)
        journey.walk(["mixed", "add_edges", "remove_hub", "grow_hub", "mixed"])
        other = travel(comm, "HGT", seed=seed, single=False, dtype=torch.float32)
        other.walk(["mixed", "remove_nodes_of_every_kind", "add_in_every_type", "mixed"])

    all_well(run_ranks(2, work))


ALONE = ["gat-heads", "sage-median", "HeteroConv-stack", "HGT", "attention-node", "linkx"]


@pytest.mark.parametrize("name", ALONE)
def test_ranks_with_one_node_and_with_none(name, seed, monkeypatch):
    """Nearly all belongs to the first rank, one node of each kind to the second, none to others."""

    def lonely(self, count):
        owner = torch.zeros(count, dtype=torch.long)
        owner[self.rng.integers(count)] = 1
        return owner

    monkeypatch.setattr(Travel, "some_ranks", lonely)

    def work(comm):
        journey = travel(comm, name, seed=seed)
        journey.walk([step for step in journey.plan() if step not in SPOILERS][:8])

    all_well(run_ranks(4, work))


@pytest.mark.parametrize(
    ("name", "size"), [("gcn-weights", 3), ("both-directions", 2), ("weights", 3), ("weighted", 3)]
)
def test_what_all_ranks_say_beforehand_undoes_a_delta(name, size, seed):
    def work(comm):
        journey = travel(comm, name, seed=seed)
        plan = [step for step in journey.plan() if step not in SPOILERS]
        journey.there_and_back([step for step in plan if not step.startswith("missing")])

    all_well(run_ranks(size, work))


NEW = {
    "coo": ["new_nodes_with_edges", "mixed", "add_edges", "new_isolated_nodes"],
    "types": ["new_nodes_with_edges", "mixed", "add_in_every_type", "new_isolated_nodes"],
    "hyper": ["new_nodes", "mixed", "add", "new_hyperedges"],
}


@pytest.mark.parametrize(
    ("name", "plan"),
    [("gat-attr-mean", "coo"), ("gcn-backward", "coo"), ("HGT", "types"), ("weighted", "hyper")],
)
def test_new_nodes_that_use_up_the_gap(name, plan, seed, monkeypatch):
    """Own ids then go on behind the ghosts, and the ids between belong to nobody."""
    monkeypatch.setattr(local_ids, "_gap", lambda count: 1)

    def work(comm):
        journey = travel(comm, name, seed=seed)
        journey.walk(NEW[plan] * 3)
        region = journey.inc._part.region
        assert any(own.has_holes for own in region.own.values())
        journey.walk(journey.plan()[:12])
        journey.inc.refresh()
        journey.out = clone(journey.inc.gather_out())
        region = journey.inc._part.region
        assert not any(own.has_holes for own in region.own.values())
        journey.walk(["mixed", "mixed"])

    all_well(run_ranks(3, work))


REFUSED = [
    "mixes-mean", "pool-to-graph", "GCN-graph-norm", "sage-lstm", "GAT-loops", "HAN", "sorts",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_all_rows_is_refused_by_all_ranks(name, seed):
    fmt = BY_NAME[name].formats[0] if name in BY_NAME else ""
    results = run_ranks(2, lambda comm: travel(comm, name, fmt, seed=seed, single=False))
    assert len({str(r) for r in results}) == 1
    for result in results:
        assert isinstance(result, UnsupportedModelError)
        assert "Use to_incremental, in one process" in str(result)


EVERYTHING = [(case, case.formats[0]) for case in EVERY[5::40]]
EVERYTHING += [(case, "") for case in (*HETERO.values(), *HYPER.values())][2::5]


@pytest.mark.matrix
@pytest.mark.slow
@pytest.mark.parametrize(("case", "fmt"), EVERYTHING, ids=lambda v: str(v))
def test_cases_of_the_zoo_that_are_not_refused(case, fmt, seed):
    results = run_ranks(3, lambda comm: travel(comm, str(case), fmt, seed=seed).walk())
    if not any(isinstance(r, UnsupportedModelError) for r in results):
        all_well(results)

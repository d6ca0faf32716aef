"""`evaluate` on ranks gives the full pass of the original model (ranks are threads)."""

import copy
import functools
import inspect

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, SAGEConv, global_mean_pool

from pyg_incremental import InvalidDeltaError, StaleStateError, UnsupportedModelError
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    RankFailedError,
    evaluation,
    partition,
    write_shards,
)
from pyg_incremental.distributed.boundary import exchange
from pyg_incremental.distributed.part.in_blocks import Budget
from tests.closeness import assert_close, tensors_of
from tests.distributed.runs import ADD, ARGS, MODEL, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import travel

# Sums, weights, maxima, attention, jumping knowledge, rows of edges; against the edges; a matrix;
# learned rows; several kinds of nodes and edges; hyperedges.
RUNS = [
    ("gcn-weights", "coo"), ("gcn-plain", "csr"), ("gcn-backward-weights", "coo"),
    ("sage-max", "coo"), ("sage-median", "coo"), ("gat-attr-mean", "coo"), ("gat-heads", "coo"),
    ("GraphSAGE-max-norm-jk", "coo"), ("both-directions", "coo"), ("edge-encoder", "coo"),
    ("graph-mean-weights", "csc"), ("tuple-output", "coo"), ("linkx", "coo"),
    ("embeddings", "coo"), ("other-TransformerConv", "coo"), ("different-convs", None),
    ("weights-and-attributes", None), ("HGT", None), ("to_hetero-GAT", None),
    ("attention-node-max", None),
]  # fmt: skip
EVERY = [(size, rows) for size in (1, 2, 3) for rows in (1, 7, None)]
"""Numbers of ranks, and of rows in a block."""
SOME = [(1, None), (2, 1), (3, 7)]
IN_EVERY = ("gcn-weights", "sage-max", "gat-attr-mean", "GraphSAGE-max-norm-jk", "different-convs")


class Called:
    """Stands in the place of a model: hands what it is called with to `evaluate`, by name."""

    def __init__(self, inc, **options):
        self.inc, self.options = inc, options

    def __call__(self, *args, **kwargs):
        given = inspect.signature(self.inc.model.forward).bind(*args, **kwargs).arguments
        given |= given.pop("kwargs", {})
        return self.inc.evaluate(given, **self.options)


@pytest.fixture
def in_blocks_of(monkeypatch):
    """Blocks of so many rows from here on."""

    def choose(rows):
        limited = functools.partial(Budget, rows_in_block=rows)
        monkeypatch.setattr(evaluation, "Budget", limited)

    return choose


@pytest.mark.parametrize(("name", "fmt"), RUNS, ids=lambda v: str(v))
def test_equal_to_the_model(name, fmt, seed, in_blocks_of):
    options = {} if fmt is None else {"fmt": fmt}

    def start(comm):
        return travel(comm, name, seed=seed, single=False, **options)

    journeys = all_well(run_ranks(3, start))

    def work(comm):
        journey = journeys[comm.rank]
        inc = DistributedIncrementalModel(journey.inc.model, comm)
        found = journey.call(Called(inc, partition_by=owner, gather=True, progress=False))
        assert_close(found.out, want)

    want = journeys[0].full(journeys[0].world)
    for size, rows in EVERY if name in IN_EVERY else SOME:
        journeys[0].size = size
        owner = journeys[0].owners()
        in_blocks_of(rows)
        all_well(run_ranks(size, work))


@pytest.mark.parametrize("name", ["GraphSAGE", "gcn-backward-weights", "different-convs"])
def test_the_current_graph(name, seed, in_blocks_of):
    in_blocks_of(5)

    def work(comm):
        journey = travel(comm, name, seed=seed, single=False).walk()
        before = journey.inc.state_digest()
        found = journey.inc.evaluate(gather=True)
        assert_close(found.out, journey.full(journey.world))
        mine = journey.inc.evaluate()
        assert_close(mine.out, journey.inc.out)
        for ids, want in zip(*map(tensors_of, (mine.nodes, journey.inc.nodes)), strict=True):
            assert torch.equal(ids, want)
        assert journey.inc.state_digest() == before

    all_well(run_ranks(3, work))


def test_each_rank_has_its_own_rows():
    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        data = Data(x=ARGS[0], edge_index=ARGS[1])
        found = inc.evaluate(data, partition_by=torch.arange(60) % 3)
        assert found.nodes.tolist() == list(range(comm.rank, 60, 3))
        assert_close(found.out, expected()[found.nodes])
        assert inc.mode == "not called yet"

    all_well(run_ranks(3, work))


def test_ranks_without_nodes_take_part():
    def work(inc):
        data = {"x": ARGS[0], "edge_index": ARGS[1]}
        found = inc.evaluate(data, partition_by=torch.zeros(60).long())
        every = inc.evaluate(data, partition_by=torch.zeros(60).long(), gather=True)
        assert_close(every.out, expected())
        return len(found.nodes), list(found.out.shape)

    assert on_ranks(2, work) == [(60, [60, 3]), (0, [0, 3])]


def test_rows_travel_a_few_at_a_time(monkeypatch):
    """All ranks hold as many rounds as the one with the least memory needs."""
    monkeypatch.setattr(exchange, "LEAST", 2)

    def work(inc):
        held = []
        for memory in ("1GB", 9000 if inc.rank == 1 else "1GB"):
            first = inc.rounds.count
            assert_close(inc.evaluate(memory=memory).out, inc.out)
            held.append(inc.rounds.count - first)
        return held

    held = on_ranks(3, work, partition_by="hash")
    assert held == held[:1] * 3
    assert held[0][1] > held[0][0]


def test_in_a_directory(tmp_path):
    def work(inc):
        inc.apply_delta(ADD if inc.rank else None)
        found = inc.evaluate(directory=tmp_path, memory="1MB")
        again = inc.evaluate(directory=tmp_path, memory="1MB")
        assert_close(found.out, inc.out)
        assert_close(again.out, inc.out)
        left = sorted(p.name for p in (tmp_path / f"rank-{inc.rank}-of-2").iterdir())
        assert left == ["manifest.json", "out.npy"]
        assert np.array_equal(np.load(tmp_path / f"rank-{inc.rank}-of-2" / "out.npy"), again.out)

    on_ranks(2, work)


def test_from_shards(tmp_path):
    chosen = partition(ARGS[1], 60, 2, "ldg")
    write_shards(tmp_path, chosen, ARGS[1].numpy(), {"x": ARGS[0].numpy()})

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        assert_close(inc.evaluate(shards=tmp_path, gather=True).out, expected())

    all_well(run_ranks(2, work))


def test_what_one_rank_cannot_do_ends_on_all():
    def work(inc):
        memory = 400 if inc.rank else "1GB"
        return inc.evaluate(memory=memory)

    def run(comm):
        return work(DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(*ARGS))

    first, second = run_ranks(2, run)
    assert isinstance(second, MemoryError)
    assert isinstance(first, RankFailedError)
    assert "in the middle of evaluate" in str(first)


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(6, 3)

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.conv(x, edge_index), batch)


class Scored(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(6, 3)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h[edge_index[0]] * h[edge_index[1]]).sum(-1)


WRONG = {
    "nodes is not there on ranks": ({"nodes": [3]}, UnsupportedModelError),
    "num_neighbors is not there": ({"num_neighbors": 3}, UnsupportedModelError),
    "no argument 'node'": ({"node": [3]}, InvalidDeltaError),
    "data or shards, not both": ({"shards": "there"}, InvalidDeltaError),
    "arguments belong to shards": ({"arguments": {}}, InvalidDeltaError),
    "memory: expected a number": ({"memory": "much"}, ValueError),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused_is_refused_on_all_ranks(said):
    options, kind = WRONG[said]

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        inc.evaluate({"x": ARGS[0], "edge_index": ARGS[1]}, **(options if comm.rank else {}))

    for error in run_ranks(2, work):
        assert isinstance(error, kind)
        assert said in str(error)


def test_models_that_cannot_be_parted_are_refused():
    batch = torch.zeros(60).long()
    data = {"x": ARGS[0], "edge_index": ARGS[1]}
    tried = (
        (Pooled(), data | {"batch": batch}, "these may be on several ranks"),
        (Scored(), data, "has no row per node|has a row for each edge"),
        (GCN(6, 4, 2, 3, norm="pair_norm"), data, "cannot be computed on parts of the graph"),
    )
    for model, given, said in tried:

        def work(comm, model=model, given=given):
            inc = DistributedIncrementalModel(copy.deepcopy(model).double().eval(), comm)
            inc.evaluate(given)

        for error in run_ranks(2, work):
            assert isinstance(error, UnsupportedModelError)
            assert any(part in str(error) for part in said.split("|"))
            assert "Use pyg_incremental.evaluate, in one process" in str(error)


def test_before_the_first_pass_there_is_no_graph():
    def work(comm):
        DistributedIncrementalModel(copy.deepcopy(MODEL), comm).evaluate()

    for error in run_ranks(2, work):
        assert isinstance(error, StaleStateError)

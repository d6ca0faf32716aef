"""The model over ranks: how it starts, and what it tells."""

import copy

import pytest
import torch
from torch_geometric.nn import GCN, SAGEConv

from pyg_incremental import UnsupportedModelError
from pyg_incremental.distributed import DistributedIncrementalModel, PartitionError, start, verify
from pyg_incremental.session import near
from tests.distributed.runs import ADD, ARGS, MODEL, errors_on_ranks, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks


@pytest.mark.parametrize("by", ["metis", "ldg", "hash", "own"])
def test_any_partition_gives_the_same(by):
    owner = torch.arange(60) % 3 if by == "own" else by

    def work(inc):
        assert torch.equal(inc.x, ARGS[0][inc.nodes])
        assert "rank" in repr(inc)
        assert inc.mode == "incremental"
        assert inc.backend == "compiled"
        assert "exchange" in str(inc.program)
        assert inc.memory_report().total > inc.x.numel() * 8
        return inc.gather_out(), len(inc.nodes), inc.num_edges, inc.verify()

    got = on_ranks(3, work, partition_by=owner)
    for out, _, _, gap in got:
        assert torch.allclose(out, expected(), atol=1e-12)
        assert gap < 1e-9
    assert sum(g[1] for g in got) == 60
    assert sum(g[2] for g in got) == ARGS[1].shape[1]


@pytest.mark.parametrize("wrong", [65536, 0.7, -1])
def test_a_rank_that_there_is_none_of_is_refused(wrong):
    """65,536 is 0 where only sixteen bits are looked at."""
    owner = torch.zeros(60, dtype=torch.float64 if wrong == 0.7 else torch.int64)
    owner[7] = wrong
    inc = DistributedIncrementalModel(copy.deepcopy(MODEL))
    with pytest.raises(PartitionError, match="expected a rank below 1 for each of the 60 nodes"):
        inc(*ARGS, partition_by=owner)


def test_owners_may_be_a_list():
    inc = DistributedIncrementalModel(copy.deepcopy(MODEL))
    inc(*ARGS, partition_by=[0] * 60)
    assert torch.allclose(inc.out, expected(), atol=1e-12)


def test_ranks_without_nodes_take_part():
    owner = torch.zeros(60, dtype=torch.long)

    def work(inc):
        up = inc.apply_delta(ADD if inc.rank == 2 else None, gather=True)
        # New nodes go where there is room, to a rank that had none.
        rows = torch.ones(2, 6, dtype=torch.float64)
        inc.apply_delta(x_add=rows if inc.rank == 1 else None)
        return up.changed, inc.verify(), len(inc.nodes)

    got = on_ranks(3, work, partition_by=owner)
    assert all(gap < 1e-9 for _, gap, _ in got)
    assert [n for *_, n in got] == [60, 1, 1]


def test_a_single_process_needs_no_communicator():
    inc = DistributedIncrementalModel(copy.deepcopy(MODEL))
    assert inc.mode == "not called yet"
    assert inc.backend == "auto"
    assert "not called yet" in repr(inc)
    inc(*ARGS)
    inc.apply_delta(ADD)
    assert torch.allclose(inc.out, expected(ADD), atol=1e-12)
    assert inc.num_ghosts == 0


def test_ranks_have_to_have_one_model():
    def work(comm):
        model = copy.deepcopy(MODEL)
        if comm.rank:
            next(model.parameters()).data += 1
        DistributedIncrementalModel(model, comm)(*ARGS)

    for error in run_ranks(2, work):
        assert isinstance(error, PartitionError)
        assert "same parameters" in str(error)


def test_owners_have_to_be_ranks():
    for error in errors_on_ranks(2, lambda inc: inc, partition_by=torch.full((60,), 7)):
        assert isinstance(error, PartitionError)
        assert "a rank below 2" in str(error)


def test_partition_by_says_who_owns_which_kind():
    """Kinds that are left out go to where their neighbours are."""
    torch.manual_seed(0)
    model = SAGEConv((6, 3), 4).double().eval()
    x = torch.randn(20, 6).double(), torch.randn(10, 3).double()
    edges = torch.stack([torch.arange(20), torch.arange(20) // 2])
    owner = torch.arange(20) // 10

    def run(by):
        def work(comm):
            inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
            inc(x, edges, partition_by=by)
            assert inc.verify() < 1e-9
            assert inc.num_nodes == 30
            return inc.nodes["dst"].tolist(), inc.num_ghosts

        return run_ranks(2, work)

    first, second = all_well(run({"src": owner}))
    assert first == (list(range(5)), 0)
    assert second == (list(range(5, 10)), 0)
    for by in ("metis", "ldg", "hash", {"src": owner, "dst": torch.zeros(10)}):
        all_well(run(by))
    wrong = {
        "give a dict with keys": owner,
        "there is no 'film'": {"film": owner},
        "10 nodes of type 'dst'": {"dst": owner},
        "expected a method": "best",
    }
    for said, by in wrong.items():
        for error in run(by):
            assert isinstance(error, PartitionError)
            assert said in str(error)


def test_only_models_are_taken():
    with pytest.raises(UnsupportedModelError, match=r"expected a torch\.nn\.Module"):
        DistributedIncrementalModel(3)


def test_some_nodes_are_enough_to_verify():
    torch.manual_seed(3)
    model = GCN(6, 8, 2, 3).double().eval()
    weight = torch.rand(ARGS[1].shape[1], dtype=torch.float64)

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(*ARGS, edge_weight=weight, partition_by="hash")
        sent = inc.rounds.bytes_sent
        few, sent_few = inc.verify(4), inc.rounds.bytes_sent - sent
        every = inc.verify(60)
        if comm.rank == 1:
            inc.out[:] += 1  # spoilt: the output of a rank is what is checked
        return few, every, inc.verify(40), inc.verify(40, seed=2), sent_few

    for few, every, *spoilt, _ in all_well(run_ranks(3, work)):
        assert max(few, every) < 1e-9
        assert min(spoilt) > 0.9


def test_messages_are_stored_once():
    torch.manual_seed(3)
    model = GCN(6, 8, 2, 3).double().eval()

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)(*ARGS)
        inc.apply_delta(ADD if comm.rank else None)
        return {part.name for part in inc.memory_report().parts if part.what == "rows"}

    for stored in all_well(run_ranks(2, work)):
        exchanged = {name.removesuffix("'") for name in stored if name.endswith("'")}
        assert len(exchanged) == 2
        assert not exchanged & stored


@pytest.mark.parametrize("end", [0, 59])
def test_a_sample_is_checked_where_nobody_asks_what_the_last_nodes_see(end):
    """Their in-edges come from nodes that were not fetched, one of which may have the last id."""
    path = torch.stack([torch.arange(59), torch.arange(1, 60)])

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        inc(ARGS[0], path if end else path.flip(0))
        return [inc.verify(1, seed=seed) for seed in range(12)]

    for gaps in all_well(run_ranks(2, work)):
        assert max(gaps) < 1e-9


@pytest.mark.parametrize(
    ("room", "sent", "said"), [(1 << 28, [16], ""), (70_000, [4], ""), (100, [], "too many")]
)
def test_the_first_rank_holds_no_more_than_it_may(room, sent, said, monkeypatch):
    """Fewer nodes where sixteen see too much, and a word where one does."""
    gathered = []

    def counted(part, site, got):
        gathered.append(sum(len(g.asked[""]) for g in got))
        rows = sum(len(g.ids[""]) for g in got) + sum(
            pairs.shape[1] for g in got for pairs, _ in g.edges.values()
        )
        assert rows <= near.rows_in(part.session, room)
        return both(part, site, got)

    both = verify.both
    monkeypatch.setattr(verify, "both", counted)
    monkeypatch.setattr(start, "ROOM", room)
    model = GCN(6, 8, 1, 3).double().eval()
    pairs = torch.randint(400, (2, 1600), generator=torch.Generator().manual_seed(1))
    x = torch.randn(400, 6, dtype=torch.float64)
    warned = warnings_of(monkeypatch)

    def work(comm):
        return DistributedIncrementalModel(copy.deepcopy(model), comm)(x, pairs)

    for inc in all_well(run_ranks(2, work)):
        assert inc.version == 0
    assert gathered == sent
    assert [said in text for text in warned] == [True] * bool(said)


def test_a_model_that_lacks_memory_where_it_is_compared_discredits_no_program(monkeypatch):
    def both(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(verify, "both", both)
    warned = warnings_of(monkeypatch)

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(*ARGS)
        return inc.apply_delta(ADD if inc.rank == 0 else None).version

    assert all_well(run_ranks(2, work)) == [1, 1]
    assert ["allocate memory" in text for text in warned] == [True]


def warnings_of(monkeypatch):
    """What ranks warn of, which are silent in tests."""
    texts = []
    monkeypatch.setattr(start, "warn", lambda text, *_, **__: texts.append(text))
    return texts

"""The model over ranks, apart from deltas: how it starts, what it refuses, files, faults."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT, GCN

from pyg_incremental import (
    GraphDelta,
    InvalidDeltaError,
    StaleStateError,
    StateFileError,
    UnsupportedModelError,
    to_incremental,
)
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    MPICommunicator,
    PartitionError,
    RankFailedError,
    TorchCommunicator,
    partition,
    rounds,
    write_shards,
)
from pyg_incremental.distributed.exchange import ExchangeExecutor
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import small_call

MODEL, ARGS = small_call()


def on_ranks(size, work, **options):
    """Run `work(inc)` on every rank of a started model; nobody may raise."""

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        return work(inc(*ARGS, **options))

    return all_well(run_ranks(size, run))


def errors_on_ranks(size, work, **options):
    """The same, where every rank raises."""

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        return work(inc(*ARGS, **options))

    return run_ranks(size, run)


def expected(*deltas):
    inc = to_incremental(copy.deepcopy(MODEL))
    inc(*ARGS)
    for delta in deltas:
        inc.apply_delta(delta)
    return inc.out


ADD = GraphDelta(edge_index_add=torch.tensor([[0, 7], [5, 5]]))
BAD = GraphDelta(x_changes=(torch.tensor([99]), torch.ones(1, 6, dtype=torch.float64)))

# Start ############################################################################################


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


def test_shards_are_enough(tmp_path):
    x, edge_index = ARGS
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64)
    torch.manual_seed(1)
    model = GCN(6, 8, 2, 3).double().eval()
    chosen = partition(edge_index, 60, 3)
    data = {"edge_weight": weight.numpy()}
    write_shards(tmp_path, chosen, edge_index.numpy(), {"x": x.numpy()}, data)
    inc = to_incremental(copy.deepcopy(model))
    inc(x, edge_index, edge_weight=weight)
    delta = GraphDelta(edge_index_add=[[0], [5]], edge_weight_add=[0.5], nodes_del=[3])
    inc.apply_delta(delta)

    def work(comm):
        mine = DistributedIncrementalModel(copy.deepcopy(model), comm).from_shards(tmp_path)
        mine.apply_delta(delta if comm.rank == 1 else None)
        return mine.gather_out()

    for out in all_well(run_ranks(3, work)):
        assert torch.allclose(out, inc.out, atol=1e-12)
    for error in run_ranks(2, work):
        assert isinstance(error, PartitionError)


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


def test_several_kinds_of_nodes_are_refused():
    from torch_geometric.nn import SAGEConv

    model = SAGEConv((6, 6), 3).double().eval()

    def work(comm):
        DistributedIncrementalModel(model, comm)((ARGS[0], ARGS[0]), ARGS[1])

    for error in run_ranks(2, work):
        assert isinstance(error, UnsupportedModelError)
        assert "one graph on one kind of nodes" in str(error)
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


# Deltas ###########################################################################################


def test_up_names_this_rank_s_rows_and_gather_all():
    single = to_incremental(copy.deepcopy(MODEL))
    single(*ARGS)
    want = single.apply_delta(ADD)

    def work(inc):
        up = inc.apply_delta(ADD if inc.rank == 0 else None)
        assert set(up.changed.tolist()) <= set(inc.nodes.tolist())
        place = torch.searchsorted(inc.nodes, up.changed)
        assert torch.equal(up.out, inc.out[place])
        assert up.version == inc.version == 1
        return up.changed

    got = on_ranks(3, work)
    assert sorted(torch.cat(got).tolist()) == want.changed.tolist()


def test_nothing_costs_one_small_collective():
    def work(inc):
        up = inc.apply_delta()
        assert up.changed.numel() == 0
        assert up.out.shape == (0, 3)
        again = inc.apply_delta(ADD if inc.rank == 0 else None)
        return up.stats, again.stats

    for nothing, something in on_ranks(2, work):
        assert nothing.rounds == 1
        assert nothing.bytes_sent == nothing.bytes_received == 0
        # The heads, the parts, who asks for what, and one round for each of two aggregations.
        assert something.rounds == 5
        assert len(something.exchanges) == 2
        assert "rounds" in str(something)
        assert something.seconds_computing > 0


def test_only_changed_boundary_rows_are_sent():
    """One feature row changes: it goes once to every rank that holds a ghost of its node."""
    _, edge_index = ARGS
    owner = torch.arange(60) % 3
    node = int(edge_index[0, 0])
    delta = GraphDelta(x_changes=([node], torch.ones(1, 6, dtype=torch.float64)))

    def work(inc):
        return inc.apply_delta(delta if inc.rank == 0 else None).stats.exchanges

    traffic = on_ranks(3, work, partition_by=owner)
    targets = edge_index[1][edge_index[0] == node]
    holders = set(owner[targets].tolist()) - {int(owner[node])}
    first = [t[0] for t in traffic]
    assert sum(t.rows_sent for t in first) == len(holders) == sum(t.rows_received for t in first)
    assert first[0].row_bytes == 8 * 8 + 4
    assert sum(t.bytes_sent for t in first) == len(holders) * first[0].row_bytes
    # The second hop: rows that changed in the first, each once for every rank that holds it.
    touched = torch.cat([targets, torch.tensor([node])]).unique()
    pairs = {
        (int(u), int(owner[v]))
        for u, v in edge_index.t().tolist()
        if u in touched and owner[u] != owner[v]
    }
    assert sum(t[1].rows_sent for t in traffic) <= len(pairs)


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (BAD, "node id 99"),
        (GraphDelta(edge_index_del=[[1], [1]]), r"edge \(1, 1\) at position 0"),
        (GraphDelta(edge_index_add=[[1], [77]]), r"edge 0 is \(1, 77\)"),
        (GraphDelta(edge_changes=([[0], [0]], {"edge_weight": [1.0]})), "no edge input"),
        (GraphDelta(missing="perhaps"), "missing"),
        (GraphDelta(x_add=[[1.0]]), "x_add"),
        (GraphDelta(x_add=np.ones((1, 6)), edge_index_del=[[1], [1]]), r"edge \(1, 1\)"),
        (GraphDelta(x_add=np.ones((1, 6)), nodes_del=[80]), "nodes_del"),
    ],
)
def test_a_mistake_on_one_rank_is_an_error_on_all(culprit, bad, message):
    def work(inc):
        before = inc.out.clone()
        with pytest.raises(InvalidDeltaError, match=message) as raised:
            inc.apply_delta(bad if inc.rank == culprit else ADD)
        assert torch.equal(inc.out, before)
        assert inc.stale is None
        assert inc.version == 0
        inc.apply_delta(ADD if inc.rank == culprit else None)
        assert inc.verify() < 1e-9
        return str(raised.value)

    assert len(set(on_ranks(2, work))) == 1


def test_an_absent_edge_is_named_as_in_one_process():
    _, edge_index = ARGS
    gone = torch.cat([edge_index[:, :3], torch.tensor([[1, 1], [1, 1]]), edge_index[:, 4:6]], 1)
    single = to_incremental(copy.deepcopy(MODEL))
    single(*ARGS)
    with pytest.raises(InvalidDeltaError) as want:
        single.apply_delta(edge_index_del=gone)

    def work(inc):
        with pytest.raises(InvalidDeltaError) as got:
            inc.apply_delta(edge_index_del=gone if inc.rank == 1 else None)
        if inc.rank == 1:
            inc.apply_delta(edge_index_del=gone, missing="ignore")
        else:
            inc.apply_delta()
        return str(got.value), inc.verify()

    for said, gap in on_ranks(3, work):
        assert said == str(want.value)
        assert gap < 1e-9


def test_parts_have_to_agree_on_missing_edges():
    def work(inc):
        with pytest.raises(InvalidDeltaError, match="the ranks differ"):
            inc.apply_delta(edge_index_del=[[1], [1]], missing="ignore" if inc.rank else "error")

    on_ranks(2, work)


def test_parts_count_as_one_delta_in_the_order_of_the_ranks():
    rows = torch.eye(6, dtype=torch.float64)
    parts = [
        GraphDelta(x_add=rows[:1], edge_index_add=[[61], [0]], x_changes=([4], rows[1:2])),
        GraphDelta(x_add=rows[2:4], edge_index_add=[[60], [62]], x_changes=([4, 60], rows[4:6])),
    ]
    whole = GraphDelta(
        x_add=rows[[0, 2, 3]],
        edge_index_add=[[61, 60], [0, 62]],
        x_changes=([4, 4, 60], rows[[1, 4, 5]]),
    )

    def work(inc):
        inc.apply_delta(parts[inc.rank])
        assert inc.num_nodes == 63
        return inc.gather_out()

    for out in on_ranks(2, work):
        assert torch.allclose(out, expected(whole), atol=1e-12)


# Staleness and faults #############################################################################


def test_parameters_that_change_on_one_rank_make_all_stale():
    def work(inc):
        with torch.no_grad():
            if inc.rank == 1:
                next(inc.model.parameters()).add_(1)
        for ask in (lambda: inc.apply_delta(ADD), inc.verify, inc.gather_out):
            with pytest.raises(StaleStateError, match=r"rank 1: .* refresh\(\)"):
                ask()
        with torch.no_grad():
            if inc.rank == 0:
                next(inc.model.parameters()).add_(1)
        inc.refresh()
        inc.apply_delta(ADD if inc.rank == 0 else None)
        return inc.verify()

    assert max(on_ranks(2, work)) < 1e-9


def test_training_mode_is_refused():
    def work(inc):
        inc.model.train(inc.rank == 0)
        with pytest.raises(StaleStateError, match="training mode"):
            inc.refresh()
        inc.model.eval()
        assert inc.verify() < 1e-9

    on_ranks(2, work)
    with pytest.raises(StaleStateError, match="not been called yet"):
        DistributedIncrementalModel(MODEL).apply_delta()


def test_a_rank_that_raises_in_the_middle_does_not_let_the_others_wait(monkeypatch):
    plain = ExchangeExecutor.rows_changed
    broken = [False]

    def failing(self):
        if self.step.link.rounds.rank == 1 and broken[0]:
            raise MemoryError("no room")
        plain(self)

    monkeypatch.setattr(ExchangeExecutor, "rows_changed", failing)

    def work(inc):
        if inc.rank == 0:
            broken[0] = True
        inc._together(lambda: None)
        kind = MemoryError if inc.rank == 1 else RankFailedError
        with pytest.raises(kind):
            inc.apply_delta(ADD if inc.rank == 0 else None)
        assert "interrupted" in inc.stale
        with pytest.raises(StaleStateError, match="interrupted"):
            inc.apply_delta(ADD)
        broken[0] = False
        inc._together(lambda: None)
        inc.refresh()
        return inc.gather_out(), inc.verify()

    for out, gap in on_ranks(3, work):
        assert gap < 1e-9
        assert torch.allclose(out, expected(ADD), atol=1e-12)


def test_ranks_that_are_out_of_step_stay_out():
    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(*ARGS)
        if comm.rank == 1:
            return None
        with pytest.raises(RankFailedError):
            inc.apply_delta(ADD)
        with pytest.raises(RankFailedError, match="no longer in step"):
            inc.verify()
        return None

    all_well(run_ranks(2, run, timeout=0.5))


def test_large_messages_travel_in_pieces(monkeypatch):
    monkeypatch.setattr(rounds, "LARGEST", 100)
    assert all(gap < 1e-9 for gap in on_ranks(3, lambda inc: inc.verify()))


def test_communicators_say_what_they_need(monkeypatch):
    with pytest.raises(RuntimeError, match="init_process_group"):
        TorchCommunicator()
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(ImportError, match="mpi4py"):
        MPICommunicator()


# Files ############################################################################################

SECOND = GraphDelta(nodes_del=[4], x_add=np.ones((2, 6)), edge_index_add=[[60, 0], [1, 61]])


@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 2), (2, 4), (1, 3), (3, 1)])
def test_a_save_is_loaded_on_any_number_of_ranks(tmp_path, before, after):
    def save(inc):
        inc.apply_delta(ADD if inc.rank == 0 else None)
        inc.save(tmp_path)
        inc.apply_delta(SECOND if inc.rank == 0 else None)
        inc.save(tmp_path)

    on_ranks(before, save)
    assert len(list(tmp_path.iterdir())) == before + 1

    def load(comm):
        inc = DistributedIncrementalModel.load(tmp_path, copy.deepcopy(MODEL), comm)
        assert inc.version == 2
        out = inc.gather_out()
        inc.apply_delta(ADD if inc.rank == 0 else None)
        assert inc.version == 3
        assert inc.verify() < 1e-9
        inc.save(tmp_path)
        return out

    for out in all_well(run_ranks(after, load)):
        assert torch.allclose(out, expected(ADD, SECOND), atol=1e-12)
    assert len(list(tmp_path.iterdir())) == after + 1


def test_a_save_of_a_graph_with_weights_in_a_data_object(tmp_path):
    torch.manual_seed(2)
    model = GAT(6, 8, 2, 3, edge_dim=1).double().eval()
    attr = torch.rand(ARGS[1].shape[1], 1, dtype=torch.float64)

    def save(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(*ARGS, edge_attr=attr).save(tmp_path)
        return inc.gather_out()

    def load(comm):
        return DistributedIncrementalModel.load(tmp_path, copy.deepcopy(model), comm).gather_out()

    for a, b in zip(all_well(run_ranks(2, save)), all_well(run_ranks(2, load)), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_a_save_that_does_not_fit_is_refused(tmp_path):
    on_ranks(2, lambda inc: inc.save(tmp_path / "a"))
    other = copy.deepcopy(MODEL)
    next(other.parameters()).data += 1

    def errors(folder, model=MODEL):
        def work(comm):
            return DistributedIncrementalModel.load(folder, copy.deepcopy(model), comm)

        got = run_ranks(2, work)
        assert all(isinstance(e, StateFileError) for e in got), got
        assert len({str(e) for e in got}) == 1
        return str(got[0])

    assert "another model" in errors(tmp_path / "a", other)
    assert "holds no save" in errors(tmp_path / "b")
    (tmp_path / "a" / "rank-0001-version-0.pt").write_bytes(b"cut off")
    assert "cannot be read" in errors(tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text("{}")
    assert "not the manifest" in errors(tmp_path / "a")

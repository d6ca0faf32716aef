"""Ranks with stale rows, ranks that raise, ranks that are lost."""

import copy

import pytest
import torch

from pyg_incremental import InvalidDeltaError, StaleStateError
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    MPICommunicator,
    RankFailedError,
    TorchCommunicator,
)
from pyg_incremental.distributed.boundary.exchange import ExchangeExecutor
from pyg_incremental.distributed.wire import rounds
from pyg_incremental.encoding import framing
from tests.distributed.runs import ADD, ARGS, MODEL, SECOND, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import travel
from tests.side_by_side import clone


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


@pytest.mark.parametrize("name", ["gcn-weights", "HGT"])
def test_rows_of_some_nodes_are_made_afresh(name, seed):
    def work(comm):
        journey = travel(comm, name, seed=seed)
        journey.walk(["mixed"])
        inc = journey.inc
        kinds = inc._part.region.own
        few = [0, 3, 3, 1] if len(kinds) == 1 else {kind: [0, 1] for kind in kinds}
        inc.refresh(few)
        assert inc.version == 1
        journey.out = clone(inc.gather_out())
        journey.check_all()
        with pytest.raises(InvalidDeltaError, match="node id 99"):
            inc.refresh({next(iter(kinds)): [99]} if comm.rank else few)
        journey.walk(["mixed"])

    all_well(run_ranks(3, work))


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


def test_rows_of_an_accelerator_come_to_that_of_the_receiver(monkeypatch):
    """Here all float tensors are taken for such rows."""

    def is_elsewhere(value):
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    monkeypatch.setattr(framing, "is_elsewhere", is_elsewhere)

    def work(inc):
        assert inc.rounds.device == torch.device("cpu")
        inc.apply_delta(SECOND if inc.rank else None, gather=True)
        return inc.gather_out(), inc.verify()

    for out, gap in on_ranks(2, work):
        assert gap < 1e-9
        assert torch.allclose(out, expected(SECOND), atol=1e-12)


def test_communicators_say_what_they_need(monkeypatch):
    with pytest.raises(RuntimeError, match="init_process_group"):
        TorchCommunicator()
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(ImportError, match="mpi4py"):
        MPICommunicator()

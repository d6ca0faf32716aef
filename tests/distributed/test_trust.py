"""Ranks that do not do the same thing, are interrupted, or get what does not fit."""

import copy
import json
import os
import signal
import sys

import numpy as np
import pytest
import torch
from torch_geometric.nn import GAT

from pyg_incremental import (
    GraphDelta,
    InvalidDeltaError,
    StaleStateError,
    StateFileError,
    UnsupportedModelError,
)
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    OutOfStepError,
    PartitionError,
    RankFailedError,
    partition,
    write_shards,
)
from pyg_incremental.distributed.files import manifests
from pyg_incremental.distributed.files import saving as saving_module
from pyg_incremental.distributed.part.region import Region
from pyg_incremental.distributed.wire import rounds
from pyg_incremental.distributed.wire.interrupts import HeldBack
from pyg_incremental.encoding import whole_file
from pyg_incremental.files import snapshot
from tests.distributed.runs import ADD, ARGS, MODEL, SECOND, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks

# Ranks that do not do the same thing ##############################################################

CALLS = {
    "apply_delta": lambda inc, folder: inc.apply_delta(ADD if inc.rank == 0 else None),
    "save": lambda inc, folder: inc.save(folder),
    "refresh": lambda inc, folder: inc.refresh(),
    "verify": lambda inc, folder: inc.verify(),
    "gather_out": lambda inc, folder: inc.gather_out(),
    "state_digest": lambda inc, folder: inc.state_digest(),
    "inverse": lambda inc, folder: inc.inverse(ADD),
}


@pytest.mark.parametrize("other", [name for name in CALLS if name != "apply_delta"])
def test_calls_that_do_not_belong_together_are_the_same_error_on_all(tmp_path, other):
    def work(inc):
        name = other if inc.rank == 1 else "apply_delta"
        with pytest.raises(OutOfStepError, match=f"rank 0 is in apply_delta.*in {other}") as said:
            CALLS[name](inc, tmp_path)
        assert inc.version == 0
        assert inc.stale is None
        inc.apply_delta(ADD if inc.rank == 0 else None)  # they are in step again
        assert inc.version == 1
        return str(said.value), inc.gather_out(), inc.verify()

    results = on_ranks(2, work)
    assert len({said for said, *_ in results}) == 1
    for _, out, gap in results:
        assert gap < 1e-9
        assert torch.allclose(out, expected(ADD), atol=1e-12)
    assert not list(tmp_path.iterdir())


def test_a_rank_that_has_left_out_a_call_is_noticed():
    def work(inc):
        if inc.rank == 0:
            with pytest.raises(OutOfStepError, match=r"rank 0 is in verify \(call 2"):
                inc.verify()
        else:
            with pytest.raises(OutOfStepError):
                inc.gather_out()
        first = inc.verify()
        return first, inc.gather_out()

    for gap, out in on_ranks(2, work):
        assert gap < 1e-9
        assert torch.allclose(out, expected(), atol=1e-12)


# Interrupts #######################################################################################


def interrupting(monkeypatch, owner, name, rank, when):
    """Let one rank be interrupted before or after something, once."""
    plain, left = getattr(owner, name), [1]

    def run(self, *args, **kwargs):
        here = getattr(self, "_rounds", None) or self.rounds
        hit = here.rank == rank and left and here.version_probe()
        if hit and when == "before":
            left.clear()
            raise KeyboardInterrupt
        got = plain(self, *args, **kwargs)
        if hit and when == "after":
            left.clear()
            raise KeyboardInterrupt
        return got

    monkeypatch.setattr(owner, name, run)
    return left


@pytest.fixture
def armed(monkeypatch):
    """Rounds that say whether ranks are in an update."""

    def probe(self):
        return self._operation == rounds.OPERATIONS.index("apply_delta")

    monkeypatch.setattr(rounds.Rounds, "version_probe", probe, raising=False)


@pytest.mark.usefixtures("armed")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["tell", "take", "serve", "let_go"])
def test_an_interrupt_leaves_the_old_version_or_the_new_one(monkeypatch, name, when, rank):
    """Whatever rank is interrupted wherever: refresh() agrees on what is in, on all ranks."""
    left = interrupting(monkeypatch, Region, name, rank, when)

    def work(inc):
        kind = KeyboardInterrupt if inc.rank == rank else RankFailedError
        said = None
        try:
            inc.apply_delta(SECOND if inc.rank == 0 else None, delta_id="second")
            # A rank that was through when the other one was interrupted hears of it now.
            inc.gather_out()
        except (kind, StaleStateError) as error:
            said = type(error).__name__
        inc.refresh()
        version, out = inc.version, inc.gather_out()
        again = inc.apply_delta(SECOND if inc.rank == 0 else None, delta_id="second")
        assert again.repeated is (version == 1)
        assert inc.version == 1
        assert torch.allclose(inc.gather_out(), expected(SECOND), atol=1e-12)
        return said, version, out, inc.verify()

    results = on_ranks(2, work)
    assert not left, "nothing was interrupted"
    assert len({version for _, version, *_ in results}) == 1
    for said, version, out, gap in results:
        assert said is not None
        assert gap < 1e-9
        want = expected(SECOND) if version else expected()
        assert torch.allclose(out, want, atol=1e-12)


@pytest.mark.parametrize("share", range(0, 100, 9))
def test_an_interrupt_at_any_event_of_an_update(share):
    """One rank is interrupted somewhere in `apply_delta`, outside of a round."""
    outside = ("rounds.py", "interrupts.py", "threads.py", "test_trust.py")

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(*ARGS)
        inc.apply_delta(ADD if inc.rank == 0 else None)

        def events(stop):
            """Count the events of an update on this rank, or interrupt at one of them."""
            count = [0]

            def trace(frame, event, _):
                name = frame.f_code.co_filename
                if (
                    "pyg_incremental" not in name
                    or any(part in name for part in outside)
                    or event == "return"  # of a generator that is being closed nothing is raised
                    or frame.f_code.co_name.startswith("<")
                ):
                    return None
                count[0] += 1
                if count[0] == stop:
                    sys.settrace(None)
                    raise KeyboardInterrupt
                return trace

            sys.settrace(trace)
            try:
                inc.apply_delta(SECOND if inc.rank == 0 else None, delta_id=stop)
            finally:
                sys.settrace(None)
            return count[0]

        if comm.rank == 0:
            total = events(-1)
        else:
            inc.apply_delta()
        total = inc.rounds.everywhere(total if comm.rank == 0 else None)[0]
        begun = inc.version
        stop = max(1, total * share // 100)
        said = ""
        try:
            if comm.rank == 0:
                events(stop)
            else:
                inc.apply_delta()
            inc.gather_out()
        except (KeyboardInterrupt, RankFailedError, StaleStateError, OutOfStepError) as error:
            said = type(error).__name__
        try:
            inc.refresh()
        except OutOfStepError:  # the other one was still waiting for the delta
            inc.refresh()
        moved = inc.version - begun
        inc.apply_delta(SECOND if inc.rank == 0 else None, delta_id=stop)
        assert inc.version == begun + 1
        return said, moved, inc.num_nodes, inc.verify()

    results = all_well(run_ranks(2, run))
    assert len({moved for _, moved, *_ in results}) == 1
    for said, _, nodes, gap in results:
        assert said
        assert gap < 1e-9
        assert nodes == 64  # two updates of two nodes each, none of them twice


OPERATIONS = {
    "refresh": lambda inc, folder: inc.refresh(),
    "refresh some": lambda inc, folder: inc.refresh([3, 7]),
    "save": lambda inc, folder: inc.save(folder),
    "read": lambda inc, folder: inc.gather_out(),
}


@pytest.mark.many
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("share", range(3, 90, 24))
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_at_any_event_of_anything_else(name, share, raised, tmp_path):
    """One rank raises somewhere in an operation, outside of a round; nothing is torn or lost."""
    outside = ("rounds.py", "interrupts.py", "threads.py", "test_trust.py")

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(*ARGS)
        inc.apply_delta(ADD if inc.rank == 0 else None)
        inc.save(tmp_path)

        def events(stop):
            count = [0]

            def trace(frame, event, _):
                name_of_file = frame.f_code.co_filename
                if (
                    "pyg_incremental" not in name_of_file
                    or any(part in name_of_file for part in outside)
                    or event == "return"
                    or frame.f_code.co_name.startswith("<")
                ):
                    return None
                count[0] += 1
                if count[0] == stop:
                    sys.settrace(None)
                    raise raised("injected")
                return trace

            sys.settrace(trace)
            try:
                OPERATIONS[name](inc, tmp_path)
            finally:
                sys.settrace(None)
            return count[0]

        total = events(-1) if comm.rank == 0 else OPERATIONS[name](inc, tmp_path)
        total = inc.rounds.everywhere(total if comm.rank == 0 else None)[0]
        said = ""
        try:
            if comm.rank == 0:
                events(max(1, total * share // 100))
            else:
                OPERATIONS[name](inc, tmp_path)
            inc.gather_out()
        except (raised, RankFailedError, StaleStateError, OutOfStepError) as error:
            said = type(error).__name__
        try:
            inc.refresh()
        except OutOfStepError:  # the other one was still waiting
            inc.refresh()
        assert inc.version == 1
        loaded = DistributedIncrementalModel.load(tmp_path, copy.deepcopy(MODEL), comm)
        assert torch.allclose(loaded.gather_out(), expected(ADD), atol=1e-12)
        inc.apply_delta(SECOND if inc.rank == 0 else None)
        return said, inc.gather_out(), inc.verify()

    for said, out, gap in all_well(run_ranks(2, run)):
        assert said
        assert gap < 1e-9
        assert torch.allclose(out, expected(ADD, SECOND), atol=1e-12)


def interrupted(times, seen, error=None):
    """Ctrl-C so many times within a block."""
    held = HeldBack()
    with held, held:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        seen.append(times)
        if error is not None:
            raise error


def test_the_first_ctrl_c_waits_and_the_second_does_not():
    before, seen = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1, seen)
    assert seen == [1]
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, seen)
    assert seen == [1]
    with pytest.raises(ZeroDivisionError):
        interrupted(1, seen, ZeroDivisionError())
    assert seen == [1, 1]
    assert signal.getsignal(signal.SIGINT) is before


# Deltas with a name ###############################################################################


def test_a_delta_with_a_name_is_applied_once(tmp_path):
    def work(inc):
        mine = ADD if inc.rank == 0 else None
        up = inc.apply_delta(mine, delta_id=17 if inc.rank == 0 else None)
        assert not up.repeated
        for rank in range(inc.size):  # whoever names it
            up = inc.apply_delta(mine, delta_id=17 if inc.rank == rank else None, gather=True)
            assert up.repeated
            assert up.version == inc.version == 1
            assert not len(up.changed)
            assert not len(up.out)
        assert not inc.apply_delta(delta_id="nothing").repeated
        assert inc.version == 2
        assert inc.apply_delta(mine, delta_id="nothing").repeated
        with pytest.raises(InvalidDeltaError, match="delta_id: the ranks differ"):
            inc.apply_delta(mine, delta_id=f"of {inc.rank}")
        with pytest.raises(InvalidDeltaError, match="expected a string or an integer"):
            inc.apply_delta(mine, delta_id=1.5 if inc.rank else None)
        inc.save(tmp_path)
        return inc.gather_out()

    for out in on_ranks(2, work):
        assert torch.allclose(out, expected(ADD), atol=1e-12)

    def again(comm):
        inc = DistributedIncrementalModel.load(tmp_path, copy.deepcopy(MODEL), comm)
        assert inc.version == 2
        assert inc.apply_delta(ADD if inc.rank == 0 else None, delta_id=17).repeated
        inc.refresh()
        assert inc.apply_delta(ADD if inc.rank == 0 else None, delta_id="nothing").repeated
        return inc.gather_out()

    for size in (2, 3):
        for out in all_well(run_ranks(size, again)):
            assert torch.allclose(out, expected(ADD), atol=1e-12)


def test_autocast_is_refused_on_all_ranks():
    def work(inc):
        with torch.autocast("cpu", enabled=inc.rank == 1):
            for ask in (inc.apply_delta, inc.verify, inc.refresh, lambda: inc(*ARGS)):
                with pytest.raises(UnsupportedModelError, match="autocast"):
                    ask()
        assert inc.stale is None
        return inc.verify()

    assert max(on_ranks(2, work)) < 1e-9


# Messages #########################################################################################


def test_messages_execute_nothing():
    """What would run code if it was a pickle is not even read as a message."""
    import pickle

    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("executed",))

    data = torch.frombuffer(bytearray(pickle.dumps(Evil())), dtype=torch.uint8)

    def run(comm):
        talk = rounds.Rounds(comm)
        with pytest.raises(RankFailedError, match="cannot read"):
            [talk._unpacked(part) for part in talk.exchange([data] * comm.size)]
        with pytest.raises(ValueError, match="cannot be written without code"):
            talk._packed(Evil())

    all_well(run_ranks(2, run))


ROUTED = {
    "a large id": lambda p: p.edges["edge_index", False].given.added.__setitem__((0, 0), 10**9),
    "a negative id": lambda p: p.edges["edge_index", False].given.added.__setitem__((1, 0), -5),
    "ids of another dtype": lambda p: p.removed.__setitem__("", np.array([1.5])),
    "rows of another width": lambda p: p.rows.__setitem__(
        "x", (np.array([0]), torch.ones(1, 2).double())
    ),
    "too few rows": lambda p: p.rows.__setitem__("x", (np.arange(3), torch.ones(1, 6).double())),
    "an unknown input": lambda p: p.new_rows.__setitem__("y", torch.ones(1)),
    "an unknown kind": lambda p: p.new.__setitem__("film", np.array([0])),
    "an unknown graph": lambda p: p.edges.__setitem__(("adj", False), p.edges["edge_index", False]),
    "data of no name": lambda p: p.edges["edge_index", False].given.added_data.__setitem__(
        "w", torch.ones(1)
    ),
    "places of other edges": lambda p: setattr(
        p.edges["edge_index", False], "deleted_at", np.array([3])
    ),
}


@pytest.mark.parametrize("change", ROUTED.values(), ids=ROUTED)
def test_a_parcel_that_does_not_fit_is_not_opened(change, monkeypatch):
    from pyg_incremental.distributed.delta.route import Router

    plain = Router._parcels

    def garbled(self, *args):
        parcels = plain(self, *args)
        if self._rounds.rank == 0 and parcels[1] is not None:
            change(parcels[1])
        return parcels

    monkeypatch.setattr(Router, "_parcels", garbled)
    delta = GraphDelta(edge_index_add=torch.stack([torch.arange(60), torch.arange(60).flip(0)]))

    def work(inc):
        with pytest.raises(RankFailedError):
            inc.apply_delta(delta if inc.rank == 0 else None)
        assert inc.version == 0
        inc.refresh()
        return inc.gather_out(), inc.verify()

    for out, gap in on_ranks(2, work, partition_by="hash"):
        assert gap < 1e-9
        assert torch.allclose(out, expected(), atol=1e-12)


# Saves ############################################################################################


def test_a_save_that_is_cut_off_leaves_the_one_before_it(tmp_path, monkeypatch):
    """Also where the version repeats, as it does when the model is called again."""
    on_ranks(2, lambda inc: inc.save(tmp_path))
    plain = saving_module.write_part

    def dies(folder, model, part, call, token):
        got = plain(folder, model, part, call, token)
        if part.rounds.rank == 1:
            raise KeyboardInterrupt
        return got

    def cut_off(comm):
        x, edge_index = ARGS
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(x + 1, edge_index)
        assert inc.version == 0
        with pytest.raises(KeyboardInterrupt if comm.rank else RankFailedError):
            inc.save(tmp_path)

    def load(comm):
        inc = DistributedIncrementalModel.load(tmp_path, copy.deepcopy(MODEL), comm)
        return inc.gather_out()

    with monkeypatch.context() as patch:
        patch.setattr(saving_module, "write_part", dies)
        all_well(run_ranks(2, cut_off))
    for out in all_well(run_ranks(2, load)):
        assert torch.allclose(out, expected(), atol=1e-12)
    assert len(list(tmp_path.iterdir())) == 3


def test_files_of_two_saves_are_never_read_together(tmp_path):
    on_ranks(2, lambda inc: inc.save(tmp_path / "a"))
    x, edge_index = ARGS

    def other(comm):
        DistributedIncrementalModel(copy.deepcopy(MODEL), comm)(x + 1, edge_index).save(
            tmp_path / "b"
        )

    all_well(run_ranks(2, other))
    (old,), (new,) = ((tmp_path / f).glob("rank-0001-*") for f in "ab")
    old.write_bytes(new.read_bytes())
    for error in _loads(tmp_path / "a"):
        assert isinstance(error, StateFileError)
        assert "another file" in str(error)


def _loads(folder, model=MODEL, size=2):
    def work(comm):
        inc = DistributedIncrementalModel.load(folder, copy.deepcopy(model), comm)
        return inc.gather_out()

    return run_ranks(size, work)


@pytest.mark.parametrize("size", [2, 3])
def test_a_save_of_a_model_that_computed_something_else_is_refused(tmp_path, size):
    torch.manual_seed(1)
    model = GAT(6, 8, 2, 3).double().eval()

    def save(comm):
        DistributedIncrementalModel(copy.deepcopy(model), comm)(*ARGS).save(tmp_path)

    all_well(run_ranks(2, save))
    all_well(_loads(tmp_path, model, size))
    model.convs[0].negative_slope = 0.9
    for error in _loads(tmp_path, model, size):
        assert isinstance(error, StateFileError)
        assert "convs.0.negative_slope was 0.2, is 0.9" in str(error)


def with_edge(value):
    return lambda c: c["edge_index"]["edge_index"].__setitem__((0, 0), value)


FORGERIES = {
    "id 10^9": with_edge(10**9),
    "id -5": with_edge(-5),
    "id 2^32 + 7": with_edge(2**32 + 7),
    "edges of another rank": lambda c: c["edge_index"]["edge_index"][1].copy_(
        (c["owner"][""] == 0).nonzero()[0]
    ),
    "an owner that is not there": lambda c: c["owner"][""].__setitem__(0, 7),
    "no owner": lambda c: c["owner"][""].__setitem__(0, -1),
    "owners of fewer nodes": lambda c: c["owner"].__setitem__("", c["owner"][""][:9]),
    "owners of another dtype": lambda c: c["owner"].__setitem__("", c["owner"][""].long()),
    "nodes of another rank": lambda c: c["ids"][""].add_(1),
    "nodes twice": lambda c: c["ids"][""].__setitem__(1, int(c["ids"][""][0])),
    "large ids": lambda c: c["ids"][""].__setitem__(-1, 2**40),
    "few rows": lambda c: c["nodes"].__setitem__("x", c["nodes"]["x"][:3]),
    "no rows": lambda c: c["nodes"].clear(),
    "no graph": lambda c: c["edge_index"].clear(),
    "data that nobody asked for": lambda c: c["edges"]["edge_index"].__setitem__(
        "w", torch.ones(c["edge_index"]["edge_index"].shape[1])
    ),
    "no call": lambda c: c.pop("call"),
    "no sample": lambda c: c["call"].pop("sample"),
    "an unknown kind": lambda c: c["call"]["nodes"].__setitem__("x", "film"),
    "another version": lambda c: c.__setitem__("version", 3),
    "few outputs": lambda c: c.__setitem__("out", [t[:2] for t in c["out"]]),
    "other outputs": lambda c: c.__setitem__("out", [t + 1 for t in c["out"]]),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_save_that_does_not_hang_together_is_refused(tmp_path, change):
    on_ranks(2, lambda inc: inc.save(tmp_path))
    (path,) = tmp_path.glob("rank-0001-*")
    content = snapshot.read(path)
    change(content)
    checksum = snapshot.write(path, content)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["checksum"]
    manifest["checksums"][1] = checksum
    manifest["checksum"] = manifests.checksum_of(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for size in (2, 3):
        for error in _loads(tmp_path, size=size):
            assert isinstance(error, StateFileError), error


def test_a_manifest_that_was_changed_is_refused(tmp_path):
    on_ranks(2, lambda inc: inc.save(tmp_path))
    path = tmp_path / "manifest.json"
    plain = path.read_text()
    for change in (
        {"version": 5}, {"token": "../../../../tmp/x"}, {"checksums": []}, {"deltas": [[1]]},
        {"deltas": [[[], 1]]}, {"format": 1},
    ):  # fmt: skip
        manifest = {**json.loads(plain), **change}
        path.write_text(json.dumps(manifest))
        assert all(isinstance(e, StateFileError) for e in _loads(tmp_path))
        del manifest["checksum"]
        path.write_text(json.dumps({**manifest, "checksum": manifests.checksum_of(manifest)}))
        assert all(isinstance(e, StateFileError) for e in _loads(tmp_path)), change
    for text in ("[]", "{", "null", "[" * 100000):
        path.write_text(text)
        assert all(isinstance(e, StateFileError) for e in _loads(tmp_path))


# Shards ###########################################################################################


def shards(folder):
    x, edge_index = ARGS
    chosen = partition(edge_index, len(x), 2, "hash")
    write_shards(folder, chosen, edge_index.numpy(), {"x": x.numpy()})


def starts(folder):
    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        return inc.from_shards(folder).gather_out()

    return run_ranks(2, work)


@pytest.mark.parametrize(
    "name", ["owner.npy", "part-0001/ids.npy", "part-0001/x.npy", "part-0001/edge_index.npy"]
)
def test_shards_that_are_damaged_are_refused(tmp_path, name):
    shards(tmp_path)
    for out in all_well(starts(tmp_path)):
        assert torch.allclose(out, expected(), atol=1e-12)
    path = tmp_path / name
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[:-9] + b"\x55" + whole[-8:], b"", whole[:40], None):
        if broken is None:
            path.unlink()
        else:
            path.write_bytes(broken)
        for error in starts(tmp_path):
            assert isinstance(error, PartitionError), (broken, error)
            assert path.name in str(error)
    path.write_bytes(whole)
    all_well(starts(tmp_path))


def test_shards_that_do_not_hang_together_are_refused(tmp_path):
    shards(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for name, at, value in (
        ("part-0001/edge_index.npy", (0, 0), 10**9), ("part-0001/edge_index.npy", (0, 0), -5),
        ("part-0001/ids.npy", 0, -1), ("part-0001/ids.npy", -1, 2**40), ("owner.npy", 0, 9),
        ("part-0001/x.npy", None, ">f8"),
    ):  # fmt: skip
        path = tmp_path / name
        whole = path.read_bytes()
        array = np.load(path)
        if at is None:
            array = array.astype(value)
        else:
            array[at] = value
        np.save(path, array)
        changed = copy.deepcopy(manifest)
        changed["checksums"][name] = whole_file.checksum(path)
        del changed["checksum"]
        changed["checksum"] = manifests.checksum_of(changed)
        (tmp_path / "manifest.json").write_text(json.dumps(changed))
        for error in starts(tmp_path):
            assert isinstance(error, PartitionError), error
        path.write_bytes(whole)
    for change in ({"num_parts": "2"}, {"nodes": [["x"]]}, {"more": 1}, {"num_nodes": {"": 9}}):
        changed = {**manifest, **change}
        del changed["checksum"]
        changed["checksum"] = manifests.checksum_of(changed)
        (tmp_path / "manifest.json").write_text(json.dumps(changed))
        for error in starts(tmp_path):
            assert isinstance(error, PartitionError), error

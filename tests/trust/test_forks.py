"""Processes that are forked beside work: none hangs, none writes to what the parent holds."""

import contextlib
import gc
import io
import os
import signal
import sys
import threading
import time

import pytest
import torch
from numba.core.compiler_lock import global_compiler_lock
from tqdm import tqdm

from pyg_incremental import StaleStateError
from pyg_incremental.kernels import locks
from pyg_incremental.kernels.locks import ONE_TRACER
from tests.torture.forks import forks
from tests.trust.small import CHANNELS, drawn, edge, sage, wrapped

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
LIMIT = 20


def in_child(work):
    """The exit code of a child that does some work: 0 where that returns True, 1 where not."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        code = 1
        with contextlib.suppress(BaseException):
            torch.set_num_threads(1)
            code = 0 if work() else 1
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def held(lock, seconds):
    """A thread that has just taken a lock, and gives it back after some time."""
    taken = threading.Event()

    def hold():
        lock.acquire()
        taken.set()
        time.sleep(seconds)
        lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(LIMIT)
    yield
    thread.join(LIMIT)


def test_a_fork_while_a_thread_compiles():
    inc = wrapped(warm=True)

    def work():
        with global_compiler_lock:
            return inc.apply_delta(edge_index_add=edge(0, 1)).version == 13

    with held(global_compiler_lock, 0.2):
        assert in_child(work) == 0


def test_a_fork_while_a_thread_traces():
    """Not before it is through: a child would find `nn.Module` patched, for ever."""
    inc = wrapped()
    with held(ONE_TRACER, 0.2):
        assert in_child(lambda: inc.refresh().version == 0 and inc.verify() < 1e-5) == 0


def test_a_fork_by_the_thread_that_traces_does_not_wait_for_itself():
    with ONE_TRACER:
        assert in_child(lambda: True) == 0


@pytest.mark.parametrize("name", ["lock", "model"])
def test_a_fork_waits_for_work_that_is_under_way(name):
    """PyTorch locks each parameter for a moment, and a child may use the same."""
    inc = wrapped()
    inc.apply_delta(edge_index_add=edge(0, 1))
    through = []

    class Work:
        acquire = getattr(inc._rwlock, name).acquire

        @staticmethod
        def release():
            through.append(True)
            getattr(inc._rwlock, name).release()

    with held(Work, 0.2):
        assert in_child(lambda: through == [True] and inc.refresh().version == 1) == 0
    assert inc.apply_delta(edge_index_add=edge(0, 1)).version == 2


def test_a_fork_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    inc = wrapped()
    with held(inc._rwlock.lock, 0.5):
        began = time.monotonic()
        assert in_child(lambda: inc.refresh().version == 0) == 0
        assert time.monotonic() - began < LIMIT
        assert inc._rwlock.model.acquire(blocking=False)
        inc._rwlock.model.release()
    assert inc.apply_delta(edge_index_add=edge(0, 1)).version == 1


def test_a_fork_from_inside_a_forward_does_not_wait_for_itself():
    model = sage()
    inc = wrapped(model)
    codes = []
    model.register_forward_pre_hook(lambda *_: codes.append(in_child(lambda: True)))
    inc.refresh()
    assert codes
    assert set(codes) == {0}


@pytest.mark.parametrize("has_terminal", [False, True])
def test_a_fork_while_a_thread_makes_a_bar(monkeypatch, has_terminal):
    inc = wrapped()
    monkeypatch.setattr(sys, "stderr", Terminal() if has_terminal else io.StringIO())
    inc.refresh()  # there was a bar, if there is a terminal
    with held(tqdm.get_lock(), 0.2):
        assert in_child(lambda: inc.refresh().version == 0 and inc.check() == []) == 0


class Terminal(io.StringIO):
    """Where bars are shown."""

    def isatty(self):
        return True


def test_many_forks_beside_updates():
    done = forks(lambda _: None, 0, 10)
    assert done["children"] == 10
    assert done["updates beside"] > 0


def test_a_child_leaves_the_files_of_its_parent_alone(tmp_path):
    inc = wrapped()
    x, edge_index = drawn(5000, 40_000)  # smaller arrays are in memory whatever is said
    inc.bootstrap({"x": x, "edge_index": edge_index}, memory=1, directory=tmp_path)
    assert inc._session.settings.storage.on_disk > 1 << 20
    inc.apply_delta(edge_index_add=edge(0, 1))
    before = inc.state_digest()

    def refused(call):
        try:
            call()
        except StaleStateError as error:
            return "forked" in str(error)
        return False

    def work():
        rows = torch.ones(1, CHANNELS)
        every = [
            lambda: inc.apply_delta(x_changes=([3], rows)),
            lambda: inc.apply_delta(edge_index_del=edge(0, 1), x_add=rows),
            inc.refresh,
            inc.read,
            lambda: inc.out,
            inc.check,
        ]
        if not all(map(refused, every)) or "forked" not in inc.stale:
            return False
        inc(x, edge_index)  # of its own
        inc.apply_delta(x_changes=([3], rows))
        return inc.stale is None and inc.verify() < 1e-4

    assert in_child(work) == 0
    assert inc.state_digest() == before
    inc.apply_delta(edge_index_add=edge(2, 5))
    assert inc.check() == []
    assert inc.verify() < 1e-4


def test_a_child_goes_on_with_a_copy_of_what_lies_in_memory():
    inc = wrapped(sage(), warm=True)
    before = inc.state_digest()
    rows = torch.ones(1, CHANNELS)
    assert in_child(lambda: inc.apply_delta(x_changes=([3], rows)) and inc.verify() < 1e-5) == 0
    assert inc.state_digest() == before


def test_a_refresh_leaves_nothing_behind():
    """Neither symbols of its trace nor anything else."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def environments():
        gc.collect()
        return sum(issubclass(type(found), ShapeEnv) for found in gc.get_objects())

    inc = wrapped()
    before = environments()
    for _ in range(5):
        inc.refresh()
    assert environments() == before

"""Checkpoints that a forked process writes: of one moment, whole or not there, in nobody's way."""

import os
import signal
import threading
import time

import pytest
import torch

from pyg_incremental import load, to_incremental
from pyg_incremental.encoding.whole_file import LockedFile
from pyg_incremental.files import keeping, saving
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Stream
from tests.stream import scene
from tests.stream.test_restart import left, opened

pytestmark = pytest.mark.skipif(not keeping.CAN_FORK, reason="only Linux forks for checkpoints")


@pytest.fixture(autouse=True)
def _forks(monkeypatch):
    monkeypatch.setattr(keeping, "SMALL", 0)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A child writes when the file is there."""
    go, save, parent = tmp_path / "go", saving.save, os.getpid()

    def late(*args):
        while os.getpid() != parent and not go.exists():
            time.sleep(0.01)
        save(*args)

    monkeypatch.setattr(saving, "save", late)
    return go


def test_it_is_of_the_moment_of_the_fork(tmp_path, gate):
    stream = opened(tmp_path / "s", [])
    for _ in range(3):
        stream.step()
    out, version, position = stream.inc.out.clone(), stream.inc.version, stream.position
    x, edges = stream.inc.x.clone(), stream.inc.graph.to_edge_index()
    stream.checkpoint(wait=False)
    assert stream.is_saving
    stream.drain()  # goes on meanwhile
    assert stream.is_saving
    assert stream.inc.version > version + 3
    gate.touch()
    stream._folder.settle()
    again = load(tmp_path / "s" / "state", scene.sage(), backend="reference")
    assert (again.version, again.extra["position"]) == (version, position)
    assert torch.equal(again.out, out)
    assert torch.equal(again.x, x)
    assert torch.equal(again.graph.to_edge_index(), edges)
    final = stream.inc.out.clone()
    left(stream)
    with opened(tmp_path / "s", []) as stream:
        stream.drain()
        assert (stream.inc.out - final).abs().max() < 1e-10


def test_a_child_that_is_killed_leaves_the_last_one(tmp_path, monkeypatch):
    stream = opened(tmp_path, [])
    stream.step()
    parent, save = os.getpid(), saving.save

    def killed(*args):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        save(*args)

    before = (tmp_path / "state").read_bytes()
    monkeypatch.setattr(saving, "save", killed)
    stream.checkpoint(wait=False)
    with pytest.raises(OSError, match="ended before it was through"):
        stream._folder.settle()
    assert (tmp_path / "state").read_bytes() == before
    stream.drain()
    out = stream.inc.out.clone()
    left(stream)
    with opened(tmp_path, []) as stream:
        assert stream.position == 0
        stream.drain()
        assert (stream.inc.out - out).abs().max() < 1e-10
    assert [f.name for f in tmp_path.iterdir() if "next" in f.name] == []


def test_an_error_of_the_child_is_told(tmp_path, monkeypatch):
    stream = opened(tmp_path, [])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "save", full)
    stream.checkpoint(wait=False)
    with pytest.raises(OSError, match="No space left") as raised:
        stream._folder.settle()
    assert raised.value.errno == 28
    left(stream)


def test_who_dies_with_a_child_at_work_lets_go_of_the_folder(tmp_path, gate):
    """Else nobody could go on until it is through; and what it writes then takes nobody's place."""
    stream = opened(tmp_path / "s", [])
    stream.step()
    stream.checkpoint(wait=False)
    stream._folder._lock._file.close()  # as the end of the process would
    until = time.monotonic() + 20
    while not (lock := LockedFile(tmp_path / "s" / "lock")).is_ours:
        assert time.monotonic() < until
        time.sleep(0.01)
    gate.touch()
    stream._folder._writer.join()
    lock.release()


def test_what_an_orphan_wrote_is_removed(tmp_path):
    opened(tmp_path, []).close()
    for name in (
        "state.0123456789abcdef.next",
        "state.0123456789abcdef.next.0123456789abcdef.part",
    ):
        (tmp_path / name).write_bytes(b"old")
    left(opened(tmp_path, []))
    assert not [f for f in tmp_path.iterdir() if "next" in f.name]


def test_rows_in_files_are_copied(tmp_path):
    x, edge_index = scene.graph()
    inc = to_incremental(scene.sage(), backend="reference", check=False)
    inc.bootstrap({"x": x.repeat(4000, 1), "edge_index": edge_index}, memory=1,
                  directory=tmp_path / "rows")  # fmt: skip
    assert inc.saved_aside(tmp_path / "state", lambda: None) is None
    with Stream(inc, IterableSource([{"src": 1, "dst": 2}]), directory=tmp_path / "s") as stream:
        stream.drain()
        stream.checkpoint(wait=False)
        out = stream.inc.out.clone()
    again = load(tmp_path / "s" / "state", scene.sage(), backend="reference")
    assert torch.equal(again.out, out)


def test_a_model_that_runs_in_another_thread_is_not_waited_for(tmp_path):
    stream = opened(tmp_path, [])
    runs, through = threading.Event(), threading.Event()

    def other():
        with stream.inc._rwlock.model:
            runs.set()
            through.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    runs.wait(20)
    assert stream.inc.saved_aside(tmp_path / "other", lambda: None) is None
    through.set()
    thread.join()
    wait = stream.inc.saved_aside(tmp_path / "other", lambda: [1])
    wait()
    assert load(tmp_path / "other", scene.sage(), backend="reference").extra == [1]
    left(stream)


def test_updates_of_other_threads_beside_many_forks(tmp_path):
    """Each file is one version: no half of an update is in it."""
    inc = scene.called()
    stop, errors = threading.Event(), []

    def update():
        n = 0
        while not stop.is_set():
            n += 1
            try:
                inc.apply_delta(edge_index_add=[[n % 12], [(n * 5) % 12]])
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=update)
    thread.start()
    try:
        waits = [inc.saved_aside(tmp_path / f"{k}", lambda: None) for k in range(4)]
        for wait in waits:
            wait()
    finally:
        stop.set()
        thread.join()
    assert not errors
    for k in range(4):
        again = load(tmp_path / f"{k}", scene.sage(), backend="reference")
        assert again.graph.num_edges == 30 + again.version
        assert again.verify() < 1e-10
    assert inc.verify() < 1e-10


def test_a_small_state_is_copied(tmp_path, monkeypatch):
    monkeypatch.undo()
    assert scene.called().saved_aside(tmp_path / "state", lambda: None) is None
    assert not (tmp_path / "state").exists()


def test_names_of_events_are_in_it(tmp_path):
    stream = opened(tmp_path, [])
    stream.step()
    seen = [*stream._intake.seen]
    stream.checkpoint(wait=False)
    stream._folder.settle()
    left(stream)
    stream = opened(tmp_path, [])
    assert [*stream._intake.seen] == seen
    left(stream)

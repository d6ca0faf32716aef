"""Kills, stops and full disks at the worst moment: what was acknowledged is there afterwards."""

import errno
import os
import shutil
import signal
import time
from multiprocessing import forkserver

import pytest
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.workers import SampleService, checkpoint
from pyg_incremental.sampling.workers.pool import Worker, _context
from pyg_incremental.sources import IterableSource

NODES, FANOUTS, EDGES = 60, [3, 2], 40
SEEDS = torch.tensor([3, 14, 15, 9, 26])


class Follows:
    """A service on edges with times, and one process that is told the same."""

    def __init__(self, folder, **options):
        draw = torch.Generator().manual_seed(1)
        self.x = torch.randn(NODES, 2, generator=draw)
        added = torch.randint(NODES, (6, 2, EDGES), generator=draw)
        self.start, self.now = added[0], torch.arange(EDGES)
        self.deltas = [
            GraphDelta(edge_index_add=edges, edge_data_add={"time": self.now + EDGES * (i + 1)})
            for i, edges in enumerate(added[1:])
        ]
        self.folder, self.options = folder, options

    def made(self):
        return SampleService(
            IterableSource(self.deltas), self.start, self.x, FANOUTS, self.folder,
            edge_time=self.now, seed=7, **self.options,
        )  # fmt: skip

    def restored(self, folder=None, **options):
        source = IterableSource(self.deltas)
        return SampleService.restore(source, folder or self.folder, **options)

    def check(self, service, *done):
        """Every answer is that of one process; a number says up to which delta, a float expires."""
        sampler = StreamingSampler(self.start, NODES, FANOUTS, edge_time=self.now, seed=7)
        taken = 0
        for what in done:
            if isinstance(what, float):
                sampler.expire(what)
                continue
            for delta in self.deltas[taken:what]:
                sampler.apply_delta(delta)
            taken = what
        for seed in SEEDS.split(1):
            data, out = service.query(seed, timeout=60), sampler.sample(seed)
            assert torch.equal(data.n_id, out.node)
            assert torch.equal(data.e_id, out.edge)
            assert torch.equal(data.x, self.x[out.node])


def fails(directory, copy, monkeypatch):
    """No manifest can be written; `copy` is the folder as a kill at that moment leaves it."""

    def write(path, content, write=checkpoint.snapshot.write):
        if path.name == checkpoint.MANIFEST:
            shutil.copytree(directory, copy, dirs_exist_ok=True)
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(checkpoint.snapshot, "write", write)


@pytest.mark.parametrize("between", ["expire", "tick", "subscribe"])
def test_a_checkpoint_after_as_many_events_that_fails_leaves_the_one_before(
    between, tmp_path, monkeypatch
):
    follows = Follows(tmp_path / "service", sampling=2, data_ttl=0, clock=lambda: 2.5 * EDGES)
    with follows.made() as service:
        service.subscribe(SEEDS)
        service.step(2 * EDGES)
        service.checkpoint()
        before = sorted(follows.folder.rglob("*"))
        done = [2]
        if between == "expire":
            service.expire(1.5 * EDGES)
            done.append(1.5 * EDGES)
        elif between == "tick":
            service.tick()
            done.append(2.5 * EDGES)
        else:
            service.subscribe(SEEDS + 1)
        with monkeypatch.context() as patch:
            fails(follows.folder, tmp_path / "killed", patch)
            with pytest.raises(OSError, match="No space"):
                service.checkpoint()
            service._checkpoint_events = 1
            with pytest.raises(OSError, match="No space"):  # what is read is in
                service.step(EDGES)
            service._checkpoint_events = 10**9
        assert sorted(follows.folder.rglob("*")) == before
        done.append(3)
        os.kill(service.workers[0][1], signal.SIGKILL)
        follows.check(service, *done)
        service.step(EDGES)
        follows.check(service, *done, 4)
        service.checkpoint()
        assert len(list(follows.folder.glob("generation-*"))) == 1
    with follows.restored() as service:
        follows.check(service, *done, 4)
    with follows.restored(tmp_path / "killed", sampling=1) as service:
        assert len(list((tmp_path / "killed").glob("generation-*"))) == 1
        follows.check(service, 2)
        service.step(EDGES)
        follows.check(service, 3)


def at_last_join(monkeypatch, accident):
    """The first time that all workers but one are told to meet, something happens."""
    told, tell = [], Worker.tell

    def watched(worker, name, *arguments):
        if name == "join" and arguments[1] == arguments[2] - 1 and not told:
            told.append(name)
            accident(worker)
        return tell(worker, name, *arguments)

    monkeypatch.setattr(Worker, "tell", watched)
    return told


def restore_and_be_killed(folder):
    """A coordinator that dies while its workers meet."""
    # A process of the one that all others fork from asks that one, in place of another one.
    forkserver._forkserver.ensure_running = lambda: None
    at_last_join(pytest.MonkeyPatch(), lambda _: os.kill(os.getpid(), signal.SIGKILL))
    Follows(folder).restored()


def test_meetings_that_were_broken_off_are_nobodys(tmp_path, monkeypatch):
    """A coordinator is killed while workers meet; then a worker is; then the service scales."""
    follows = Follows(tmp_path)
    with follows.made() as service:
        service.subscribe(SEEDS)
        service.step(EDGES)
        service.checkpoint()
    process = _context().Process(target=restore_and_be_killed, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with monkeypatch.context() as patch:
        told = at_last_join(patch, lambda worker: os.kill(worker.process.pid, signal.SIGKILL))
        service = follows.restored(timeout=4.0)
    with service:
        assert told
        follows.check(service, 1)
        assert service.stats.replaced == service.metrics()["service_replaced"] == 1
        service.step(EDGES)
    with follows.restored() as service:  # it counts meetings from the start
        follows.check(service, 1)
        service.scale(serving=2)
        service.scale(sampling=2)
        service.step(EDGES)
        follows.check(service, 2)
        assert service.stats.replaced == 0
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"checkpoint", "generation"}


def test_a_stopped_worker_keeps_nobody_waiting(tmp_path):
    """Questions and answers are larger than a pipe; those to other workers go on."""
    follows = Follows(tmp_path, serving=2, owners=torch.arange(NODES) % 2)
    many, timeout = torch.full((100_000,), 4), 0.5
    with follows.made() as service:
        service.subscribe(torch.cat([SEEDS, many[:1]]))
        stopped = service.workers[1][0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            for seeds in (many, many[:1], many, torch.tensor([4, 7])):
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    service.query(seeds, timeout=timeout)
                assert time.monotonic() - began < 15  # and not for ever
                assert service.query(torch.tensor([3]), timeout=60).n_id[0] == 3
            with pytest.raises(TimeoutError):  # nobody has subscribed to it
                service.query(torch.tensor([8]), timeout=timeout)
            with pytest.raises(TimeoutError):
                service.query(torch.tensor([3]), after=service._supervisor.round, timeout=timeout)
        finally:
            os.kill(stopped, signal.SIGCONT)
        follows.check(service, 0)
        assert service.query(many, timeout=60).n_id[:100_000].eq(4).all()
        assert service.query(torch.tensor([8]), timeout=60).n_id[0] == 8
        assert service.stats.replaced == 0
        os.kill(stopped, signal.SIGKILL)
        follows.check(service, 0)
        assert service.stats.replaced == 1

"""Workers that are processes: they die, come and go, and samples stay those of one process."""

import importlib.util
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta, InvalidDeltaError, StaleStateError, StateFileError
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sources import IterableSource

NODES, FANOUTS, TIMEOUT = 300, [4, 3], 60.0


class Stream:
    """A graph, deltas with deletions, and the samples of one process after any of them."""

    def __init__(self, seed, count=60):
        rng = np.random.default_rng(seed)
        self.start = torch.from_numpy(rng.integers(0, NODES, (2, 4000)))
        self.x = torch.randn(NODES, 3)
        alive, self.deltas = self.start, []
        for _ in range(count):
            gone = torch.from_numpy(rng.permutation(alive.shape[1]))
            come = torch.from_numpy(rng.integers(0, NODES, (2, 150)))
            self.deltas.append(GraphDelta(edge_index_add=come, edge_index_del=alive[:, gone[:120]]))
            alive = torch.cat([alive[:, gone[120:]], come], 1)
        self.sampler = StreamingSampler(self.start, NODES, FANOUTS, seed=7)
        self.taken = 0

    def check(self, service, position, seeds, **how):
        """What a service says of some seeds is what one process says after so many deltas."""
        for delta in self.deltas[self.taken : position]:
            self.sampler.apply_delta(delta)
        self.taken = position
        for seed in torch.as_tensor(seeds).split(1):
            data, out = service.query(seed, **how), self.sampler.sample(seed)
            assert torch.equal(data.n_id, out.node)
            assert torch.equal(data.e_id, out.edge)
            assert torch.equal(data.edge_index, torch.stack([out.row, out.col]))
            assert torch.equal(data.x, self.x[out.node])
            assert data.events_behind == 0


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_day_in_the_life_of_a_service(seed, tmp_path):
    stream, seeds = Stream(seed), torch.arange(0, 60, 3)
    source = IterableSource(stream.deltas)
    service = SampleService(
        source, stream.start, stream.x, FANOUTS, tmp_path, seed=7, sampling=2, serving=2,
        timeout=TIMEOUT, checkpoint_events=10**9, owners=torch.arange(NODES) // 40,
    )  # fmt: skip
    with service:
        service.subscribe(seeds)
        stream.check(service, 0, seeds)
        step = service.step(3 * 270)
        assert (step.position, step.events, step.refused) == (3, 3 * 270, ())
        stream.check(service, 3, seeds)
        first, second = service.step(270, wait=False), service.step(270, wait=False)
        assert second.token > first.token
        stream.check(service, 5, seeds[:3], after=second.token)  # reads what was written
        while_events_flow(service, stream, seeds, lambda: kill(service.workers[0][1]))
        stream.check(service, 25, seeds)
        kill(service.workers[1][0])  # a serving worker; the next query notices
        began = time.monotonic()
        stream.check(service, 25, seeds, timeout=TIMEOUT)
        assert time.monotonic() - began < TIMEOUT
        service.checkpoint()
        service.step(5 * 270)
        kill(service.workers[0][0])  # reads the checkpoint, and the events since then
        service.step(270)
        stream.check(service, 31, seeds)
        service.scale(serving=1)
        stream.check(service, 31, seeds)
        service.scale(sampling=1, serving=2)
        service.step(4 * 270)
        stream.check(service, 35, seeds)
        service.unsubscribe(seeds)
        stats = service.stats
        assert [held["samples"] for held in stats.serving] == [0, 0]
        assert stats.replaced == 3
        assert stats.missing == 0
        assert stats.events == 35 * 270
        assert sum(held["edges"] for held in stats.sampling) == stream.sampler.num_edges
        stream.check(service, 35, seeds[:5])
        service.checkpoint()
        service.step(2 * 270)
    with pytest.raises(StaleStateError, match="closed"):
        service.step()
    for path in tmp_path.rglob("*"):  # nothing in a file is ever executed
        assert path.is_dir() or path.read_bytes()[:7] == b"PYGINCR"
    source = IterableSource(stream.deltas)
    with SampleService.restore(source, tmp_path, sampling=2, serving=1) as service:
        assert source.position() == 35  # what was read after the checkpoint is read again
        stream.check(service, 35, seeds[:5])
        while service.step(10**4).events:
            pass
        stream.check(service, 60, seeds)
        assert service.stats.serving[0]["round"] == service.barrier()


def while_events_flow(service, stream, seeds, accident):
    """Ask all the time while another thread steps and an accident happens in between."""
    failed = []

    def follow():
        try:
            for _ in range(20):
                service.step(270, wait=False)
            service.barrier()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    waited, at = [], 0
    while thread.is_alive():
        if at == 5:
            accident()
        began = time.monotonic()
        data = service.query(seeds[at % len(seeds)].view(1), timeout=TIMEOUT)
        waited.append(time.monotonic() - began)
        assert data.n_id[0] == seeds[at % len(seeds)]
        assert data.x.shape == (len(data.n_id), 3)
        at += 1
    thread.join()
    assert not failed, failed
    assert at > 5
    assert max(waited) < TIMEOUT


def test_what_does_not_fit(tmp_path):
    edges, x = torch.randint(20, (2, 60)), torch.randn(20, 3)
    source = IterableSource([])
    with pytest.raises(ValueError, match="limit for every hop"):
        SampleService(source, edges, x, [3, -1], tmp_path)
    with pytest.raises(ValueError, match="needs edge_time"):
        SampleService(source, edges, x, [3], tmp_path, strategy="topk")
    with pytest.raises(ValueError, match="at least one worker"):
        SampleService(source, edges, x, [3], tmp_path, serving=0)
    with pytest.raises(InvalidDeltaError, match="ids lie in"):
        SampleService(source, edges + 1, x[:20], [3], tmp_path)
    with pytest.raises(FileNotFoundError):
        SampleService.restore(source, tmp_path)
    (tmp_path / "checkpoint").write_bytes(b"PYGINCR\x02something else")
    with pytest.raises(StateFileError):
        SampleService.restore(source, tmp_path)


def test_one_worker_of_each_kind(tmp_path):
    """Bad events are left out; new nodes come; an error of a worker reaches the caller."""
    edges, x = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.eye(3)
    deltas = [
        GraphDelta(edge_index_add=[[0], [7]]),
        GraphDelta(x_add=torch.full((1, 3), 9.0), edge_index_add=[[3], [0]]),
        GraphDelta(x_add="abc", edge_index_add=[[0], [1]]),
        GraphDelta(edge_index_del=[[0], [0]]),
    ]
    memory = None if importlib.util.find_spec("rocksdict") is None else 0
    with SampleService(
        IterableSource(deltas), edges, x, [2], tmp_path, timeout=TIMEOUT, checkpoint_events=2,
        memory=memory,
    ) as service:  # fmt: skip
        with pytest.raises(ValueError, match="node id 3 at"):
            service.query(torch.tensor([3]))
        step = service.step()
        assert [type(error) for error in step.refused] == 2 * [InvalidDeltaError]
        assert "x_add" in str(step.refused[1])
        data = service.query(torch.tensor([0, 3]))
        assert sorted(data.n_id.tolist()) == [0, 2, 3]
        assert data.x[data.n_id == 3].tolist() == [[9, 9, 9]]
        assert service.query(torch.empty(0, dtype=torch.int64)).n_id.numel() == 0
        (folder,) = tmp_path.glob("generation-*")
        assert folder.name.startswith("generation-2-")  # by itself
        kill(service.workers[1][0])
        assert service.query(torch.tensor([3])).n_id.tolist() == [3]
        assert service.stats.replaced == 1
        assert service.stats.missing == 1
        with pytest.raises(ValueError, match="not subscribed that often"):
            service.unsubscribe(torch.tensor([1]))
        assert "1 sampling, 1 serving" in repr(service)
        with pytest.raises(OSError, match="missing"):
            service._supervisor.save(tmp_path / "missing")
        assert len(list(tmp_path.glob("samples-*"))) == (0 if memory is None else 2)
    assert not list(tmp_path.glob("samples-*"))  # of the one that was killed, too


@pytest.mark.parametrize("kind", [0, 1])
def test_a_worker_that_hangs_is_replaced_before_anybody_asks(kind, tmp_path):
    stream = Stream(0, count=2)
    with SampleService(
        IterableSource(stream.deltas), stream.start, stream.x, FANOUTS, tmp_path, seed=7,
        timeout=2.0, heartbeat=0.2,
    ) as service:  # fmt: skip
        service.subscribe(torch.arange(4))
        before = service.workers[kind]
        os.kill(before[0], signal.SIGSTOP)
        until = time.monotonic() + TIMEOUT
        while service.workers[kind] == before and time.monotonic() < until:
            time.sleep(0.1)
        assert service.workers[kind] != before
        stream.check(service, 0, torch.arange(4))
        service.step()
        stream.check(service, 2, torch.arange(4))

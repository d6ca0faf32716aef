"""Kill and stop coordinators and workers of a `SampleService` at random moments.

A coordinator is a process that restores a service and works with it: it steps, expires, scales,
writes checkpoints and asks, while its workers are killed or stopped under its hands, until it is
killed itself. Whoever comes next has to find the last checkpoint that was acknowledged, or one that
was begun after it, and every answer has to be that of one process that was told the same.
"""

import contextlib
import json
import os
import select
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.sampling import SampleCache, StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sampling.workers.pool import _context
from pyg_incremental.sources import IterableSource

NODES, EDGES, DELTAS, FANOUTS = 120, 30, 600, [4, 3]
TIMEOUT, LIMIT = 5.0, 200.0
"""Seconds after which a worker counts as dead, and after which a coordinator hangs."""
LONGEST = 4.0
"""Seconds that a coordinator lives at most once it is up."""


def stream(seed):
    """Features, first edges, and deltas: edges, nodes and features come, change and go."""
    rng = np.random.default_rng(seed)
    x, nodes, deltas = rng.normal(size=(NODES, 3)), NODES, []
    before = start = torch.from_numpy(rng.integers(0, NODES, (2, 8 * EDGES)))
    for number in range(DELTAS):
        new = int(rng.integers(0, 2))
        nodes += new
        added = torch.from_numpy(rng.integers(0, nodes, (2, EDGES)))
        deltas.append(
            GraphDelta(
                x_add=torch.from_numpy(rng.normal(size=(new, 3))),
                edge_index_add=added,
                edge_data_add={"time": torch.arange(EDGES) + EDGES * number},
                edge_index_del=before[:, : EDGES // 2],
                nodes_del=rng.integers(0, nodes, 1) if number % 7 == 0 else None,
                x_changes=(rng.integers(0, nodes, 1), torch.from_numpy(rng.normal(size=(1, 3)))),
                missing="ignore",
            )
        )
        before = added
    return torch.from_numpy(x), start, deltas


class One:
    """One process that is told what a log says: up to which delta, and what expires."""

    def __init__(self, seed, log):
        self.x, self.start, self.deltas = stream(seed)
        times = torch.full((self.start.shape[1],), -1)
        sampler = StreamingSampler(self.start, NODES, FANOUTS, edge_time=times, seed=7)
        self.times, self.cache, self.log, self.taken = times, SampleCache(sampler, self.x), [], 0
        for what, number in log:
            self.tell(what, number)

    def tell(self, what, number):
        if what == "step" and self.log and self.log[-1][0] == "step":
            self.log.pop()
        self.log.append((what, number))
        if what == "expire":
            self.cache.sampler.expire(number)
            return
        for delta in self.deltas[self.taken : number]:
            self.cache.apply_delta(delta)
        self.taken = number

    def differs(self, service, seeds):
        """The first of some seeds for which a service says something else, or None."""
        for seed in seeds.split(1):
            found, out = service.query(seed, timeout=LIMIT), self.cache.query(seed)
            names = ("n_id", "e_id", "edge_index", "x")
            if not all(torch.equal(found[name], out[name]) for name in names):
                return int(seed)
        return None


class Coordinator:
    """One life of a coordinator, which says what it does as lines of JSON."""

    def __init__(self, folder, seed, life, logs, say):
        self.folder, self.seed, self.logs, self.say = folder, seed, logs, say
        self.rng = np.random.default_rng([seed, life])
        self.done = Counter()

    def live(self):
        self.service, self.one = self._up()
        self.say(found=self.one.log)
        self._accidents()
        works = [self.step, self.step, self.ask, self.ask, self.expire, self.keep, self.scale]
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            work = works[self.rng.integers(len(works))]
            self.say(doing=work.__name__)
            work()
            self.done[work.__name__] += 1
            self.say(done=dict(self.done), replaced=self.service._supervisor.replaced)
        self.service.close()

    def _up(self):
        """The service of the last checkpoint, and one process that is as far."""
        if self.logs is None:
            one = One(self.seed, [])
            source = IterableSource(one.deltas)
            service = SampleService(
                source, one.start, one.x, FANOUTS, self.folder, edge_time=one.times, seed=7,
                sampling=2, timeout=TIMEOUT,
            )  # fmt: skip
            return service, one
        one = One(self.seed, [])
        source = IterableSource(one.deltas)
        sampling, serving = self.rng.integers(1, 3, 2).tolist()
        service = SampleService.restore(
            source, self.folder, sampling=sampling, serving=serving, timeout=TIMEOUT
        )
        for log in self.logs:
            if max((n for what, n in log if what == "step"), default=0) == source.position():
                one = One(self.seed, log)
                if one.differs(service, self._seeds(12)) is None:
                    return service, one
        raise AssertionError(f"at {source.position()}, which no checkpoint is: {self.logs}")

    def _accidents(self):
        """Kill or stop a worker now and then, whatever goes on."""
        rng, service = np.random.default_rng(self.rng.integers(1 << 30)), self.service

        def strike():
            while True:
                time.sleep(float(rng.exponential(1.2)))
                every = [pid for kind in service.workers for pid in kind]
                pid, stop = every[rng.integers(len(every))], rng.random() < 0.5
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP if stop else signal.SIGKILL)
                    self.done["worker stopped" if stop else "worker killed"] += 1
                    self.say(struck=pid)
                    if stop and rng.random() < 0.7:  # the others are stopped for good
                        time.sleep(float(rng.exponential(0.4)))
                        os.kill(pid, signal.SIGCONT)

        threading.Thread(target=strike, daemon=True).start()

    def _seeds(self, count):
        return torch.from_numpy(self.rng.integers(0, NODES, count))

    def step(self):
        count = int(self.rng.integers(1, 4))
        step = self.service.step(2 * count * EDGES, wait=bool(self.rng.integers(2)))
        assert not step.refused, step.refused
        self.one.tell("step", step.position)

    def expire(self):
        before = int(self.rng.integers(0, EDGES * (self.one.taken + 1)))
        self.service.expire(before)
        self.one.tell("expire", before)

    def ask(self):
        token, seeds = self.service.barrier(), self._seeds(4)
        wrong = self.one.differs(self.service, seeds)
        assert wrong is None, f"node {wrong} after {self.one.log}"
        self.service.query(self._seeds(20), after=token, timeout=LIMIT)
        self.done["answers compared"] += len(seeds)

    def keep(self):
        self.say(begun=self.one.log)
        self.service.checkpoint()
        self.say(kept=self.one.log)

    def scale(self):
        sampling, serving = self.rng.integers(1, 3, 2).tolist()
        self.say(begun=self.one.log)  # it writes one for other sampling workers
        self.service.scale(sampling=sampling, serving=serving)


def life(folder, seed, number, logs, into):
    """What runs in the process of a coordinator."""
    lock = threading.Lock()

    def say(**line):
        data = json.dumps(line).encode() + b"\n"
        with lock:
            while data:
                data = data[os.write(into, data) :]

    # Workers fork from the process that those of all coordinators fork from.
    forkserver._forkserver.ensure_running = lambda: None
    try:
        Coordinator(folder, seed, number, logs, say).live()
    except BaseException as error:
        say(raised=f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)


def lived(folder, seed, number, logs, rng):
    """Have a coordinator live and die; what it has said, and how it ended."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        life(folder, seed, number, logs, into)
    os.close(into)
    early = rng.random() < 0.25  # before it is up
    left = float(rng.uniform(0, 1.5)) if early else LIMIT
    said, rest, end = [], b"", time.monotonic() + left
    how = "killed while it restores" if early else "hung"
    while select.select([out], [], [], max(0.0, end - time.monotonic()))[0]:
        if not (some := os.read(out, 1 << 16)):
            how = "ended"
            break
        *lines, rest = (rest + some).split(b"\n")
        said += map(json.loads, lines)
        if how == "hung" and any("found" in line for line in said):
            if rng.random() < 0.3:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(float(rng.uniform(0, 0.5)))
                os.kill(pid, signal.SIGCONT)
            how, end = "killed at work", time.monotonic() + float(rng.uniform(0, 1.2 * LONGEST))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while some := os.read(out, 1 << 16):
        rest += some
    said += map(json.loads, filter(None, rest.split(b"\n")))
    os.close(out)
    for line in said:  # those that are stopped go on, and see that nobody is there any more
        if "struck" in line:
            with contextlib.suppress(ProcessLookupError):
                os.kill(line["struck"], signal.SIGCONT)
    return said, how


def services(say, seed, lives):
    """Let so many coordinators live one after the other; returns what happened how often."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _context()
    with contextlib.suppress(ChildProcessError):  # it runs, and is somebody else's child
        forkserver.ensure_running()
    rng, counts, logs = np.random.default_rng([seed, 1 << 20]), Counter(), None
    with tempfile.TemporaryDirectory() as folder:
        for number in range(lives):
            say(f"seed {seed}: coordinator {number}")
            said, how = lived(Path(folder) / "service", seed, number, logs, rng)
            counts[f"coordinator {how}"] += 1
            last: dict = {}
            for line in said:
                last |= line
                if "found" in line or "kept" in line:
                    logs = [line.get("found", line.get("kept"))]
                elif "begun" in line:
                    logs.append(line["begun"])
            counts.update(last.get("done", {}))
            counts["worker replaced"] += last.get("replaced", 0)
            if "raised" in last or how == "hung":
                why = last.get("raised", f"hung in {last.get('doing', 'restoring')}")
                raise AssertionError(f"seed {seed}, coordinator {number}: {why}")
    return dict(counts)

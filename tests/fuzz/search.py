"""Runs trials one after the other, in one process or several."""

import itertools
import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import torch

from tests.fuzz.minimise import Minimiser
from tests.fuzz.script import script_of
from tests.fuzz.trial import draw_trial, run_trial, with_deltas


class Failure(NamedTuple):
    """A model that is not followed as it should be.

    Attributes:
        seed: The seed that it was drawn by.
        sort: In which way it failed.
        why: What was wrong with the smallest trial that fails in the same way.
        ops: The operations of that one.
        script: A program that fails by itself.
    """

    seed: int
    sort: str
    why: str
    ops: tuple[str, ...]
    script: str


def try_one(seed, draw=draw_trial):
    """One trial by its seed.

    Returns:
        The trial, its outcome, the seconds it took, and its `Failure` if it is one.
    """
    began = time.process_time()
    trial = draw(seed)
    outcome = run_trial(trial)
    seconds = time.process_time() - began
    if outcome.kind != "wrong":
        return trial, outcome, seconds, None
    small, last = Minimiser(with_deltas(trial, outcome.deltas), outcome).small()
    script = script_of(small, last.why, f"failure_{seed}.py")
    ops = tuple(statement.op for statement in small.model.statements)
    return trial, outcome, seconds, Failure(seed, last.sort, last.why, ops, script)


def _in_worker(seed, draw):
    trial, outcome, seconds, failure = try_one(seed, draw)
    outcome.deltas = []  # not sent back
    return trial, outcome, seconds, failure


def _start_worker():
    torch.set_num_threads(1)


def search(seeds, draw, workers, minutes, report, folder, progress):
    """Run trials until the seeds or the time end; scripts of failures go into `folder`."""
    ends = time.monotonic() + 60 * minutes if minutes else float("inf")
    seeds = iter(seeds)
    pool, running = _pool(workers), {}
    while time.monotonic() < ends:
        for seed in itertools.islice(seeds, 4 * workers - len(running)):
            running[pool.submit(_in_worker, seed, draw)] = seed
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            died = isinstance(future.exception(), BrokenProcessPool)
            _take(report, running.pop(future), future, Path(folder))
            progress(report)
        if died:  # takes all that were running along
            pool, running = _pool(workers), {}
    pool.shutdown(cancel_futures=True)


def _pool(workers):
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)


def _take(report, seed, future, folder):
    try:
        trial, outcome, seconds, failure = future.result()
    except Exception as error:  # the process died, or the fuzzer itself is wrong
        report.failures.append((f"seed {seed}", f"{type(error).__name__}: {error}"))
        return
    report.take(trial, outcome, seconds)
    if failure is not None:
        path = folder / f"failure_{seed}.py"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(failure.script)
        report.failures.append((str(path), f"{failure.why} [{'; '.join(failure.ops)}]"))

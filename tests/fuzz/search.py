"""Runs trials one after the other, in one process or several."""

import itertools
import multiprocessing
import time
import warnings
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from tests.fuzz.minimise import Minimiser
from tests.fuzz.script import script_of
from tests.fuzz.trial import draw_trial, run_trial, with_deltas


def try_one(seed, minimise=True):
    """One trial by its seed.

    Returns:
        The trial (the small one, if it failed), its outcome, the seconds of the first run, and
        the script of a failure.
    """
    began = time.perf_counter()
    trial = draw_trial(seed)
    outcome = run_trial(trial)
    seconds = time.perf_counter() - began
    if outcome.kind != "wrong":
        return trial, outcome, seconds, ""
    small, last = with_deltas(trial, outcome.deltas), outcome
    if minimise:
        small, last = Minimiser(small, outcome).small()
    return trial, outcome, seconds, script_of(small, last.why, f"failure_{seed}.py")


def _in_worker(seed):
    trial, outcome, seconds, script = try_one(seed)
    outcome.deltas = []  # not sent back
    return trial, outcome, seconds, script


def _start_worker():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def search(seeds, workers, minutes, report, folder, progress):
    """Run trials until the seeds or the time end; scripts of failures go into `folder`."""
    ends = time.monotonic() + 60 * minutes if minutes else float("inf")
    seeds = iter(seeds)
    pool, running = _pool(workers), {}
    while time.monotonic() < ends:
        for seed in itertools.islice(seeds, 4 * workers - len(running)):
            running[pool.submit(_in_worker, seed)] = seed
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
        trial, outcome, seconds, script = future.result()
    except Exception as error:  # the process died, or the fuzzer itself is wrong
        report.failures.append((f"seed {seed}", f"{type(error).__name__}: {error}"))
        return
    report.take(trial, outcome, seconds)
    if script:
        path = folder / f"failure_{seed}.py"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        report.failures.append((str(path), outcome.why))

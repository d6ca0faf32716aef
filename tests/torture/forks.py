"""Processes that are forked beside updates: each goes on with its copy, and none hangs."""

import faulthandler
import os
import select
import signal
import threading
import time

import numpy as np
import torch
from numba.core.compiler_lock import global_compiler_lock

from tests.trust.small import CHANNELS, edge, wrapped

NODES = 40
LIMIT = 30
"""Seconds after which a child hangs."""


def forks(say, seed, count):
    """Fork so many children beside updates; each updates its copy, and every fifth verifies it.

    Threads of the parent update, trace, and take the lock under which Numba compiles and loads; a
    child does the same.
    """
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    inc, stop, updates, errors = wrapped(warm=True), threading.Event(), [0], []

    def update():
        try:
            turn = 0
            while not stop.is_set():
                turn += 1
                pair = edge(turn % NODES, (7 * turn) % NODES)
                inc.apply_delta(edge_index_add=pair)
                inc.apply_delta(edge_index_del=pair)
                if not turn % 40:
                    inc.refresh()
                updates[0] += 2
        except BaseException as error:
            errors.append(error)

    def compile_something():
        while not stop.is_set():
            with global_compiler_lock:
                time.sleep(0.002)
            time.sleep(0.001)

    threads = [threading.Thread(target=t) for t in (update, compile_something)]
    for thread in threads:
        thread.start()
    try:
        while not updates[0] and not errors:
            time.sleep(0.001)
        for i in range(count):
            time.sleep(float(rng.uniform(0, 0.005)))
            say(f"seed {seed}: fork {i}")
            _wait(_child(inc, i))
    finally:
        stop.set()
        for thread in threads:
            thread.join(LIMIT)
    assert not errors, errors
    assert inc.check() == []
    assert inc.verify() < 1e-4
    return {"children": count, "updates beside": updates[0]}


def _child(inc, turn):
    """Start a child that goes on with its copy; its id, and a pipe that closes when it ends."""
    out, into = os.pipe()
    child = os.fork()
    if child:
        os.close(into)
        return child, out
    code = 1
    faulthandler.dump_traceback_later(LIMIT * 2 / 3)  # where one that hangs is
    try:
        torch.set_num_threads(1)
        if inc.stale is not None:  # it was forked in the midst of an update or a refresh
            inc.refresh()
        with global_compiler_lock:
            inc.apply_delta(x_changes=([turn % NODES], torch.ones(1, CHANNELS)))
        if turn % 10 == 0:
            inc.refresh()
        fine = turn % 5 or (inc.verify() < 1e-4 and inc.check() == [])
        code = 0 if fine and (inc.x[turn % NODES] == 1).all() else 3
    finally:
        os._exit(code)


def _wait(started):
    child, out = started
    ended = bool(select.select([out], [], [], LIMIT)[0])
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.close(out)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended, f"a child hangs for {LIMIT} s"
    assert code == 0, f"a child ended with {code}"

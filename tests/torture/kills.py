"""`kill -9` at a random moment of a save: the file holds one whole state, the last one or newer."""

import os
import signal
import tempfile
import time
from pathlib import Path

import torch

from pyg_incremental import load
from tests.trust.small import CHANNELS, edge, sage, wrapped

NODES = 3000


def kills(say, seed, count):
    """Kill so many processes that save; returns how many saves were cut off."""
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(seed)
    cut = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        inc = wrapped(nodes=NODES, edges=9000)
        inc.save(path)
        began = time.perf_counter()
        inc.save(path)
        takes = time.perf_counter() - began
        for i in range(count):
            wait = float(torch.rand(1, generator=rng)) * 3 * takes
            say(f"seed {seed}: kill {i} after {1e3 * wait:.1f} ms")
            before = inc.version
            cut += _killed(inc, path, wait)
            inc = load(path, sage())
            assert inc.version >= before
            _judge(inc)
    return {"kill": count, "cut off in a save": cut}


def _killed(inc, path, wait):
    """Save again and again in a process that is killed; whether that was in the midst of a save."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            while True:
                version = inc.version
                row = torch.full((1, CHANNELS), float(version + 1))
                inc.apply_delta(edge_index_add=edge(version % NODES, 1), x_changes=([0], row))
                os.write(into, b"(")
                inc.save(path)
                os.write(into, b")")
        finally:
            os._exit(1)
    os.close(into)
    assert os.read(out, 1) == b"("
    time.sleep(wait)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    marks = b"("
    while some := os.read(out, 1 << 16):
        marks += some
    os.close(out)
    return marks.endswith(b"(")


def _judge(loaded):
    """The state is one of those that were saved: the features of node 0 say which."""
    version = loaded.version
    if version:
        assert (loaded.x[0] == version).all()
    assert loaded.num_edges == 9000 + version
    assert loaded.check() == []
    assert loaded.verify(50) < 1e-3

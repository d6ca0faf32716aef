"""Any thread may read at any time, and sees one whole version."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import nn

from pyg_incremental import GraphDelta, load, to_incremental
from tests.trust.small import CHANNELS, edge, sage, wrapped

SECONDS = float(os.environ.get("PYG_INCREMENTAL_SECONDS", "1.5"))


class Echo(nn.Module):
    """The output of every node is its features, so that a torn read shows."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.lin.weight)

    def forward(self, x, edge_index):
        return self.lin(x)


def beside(readers, write):
    """Run some readers in threads while this thread writes; returns how often each has read."""
    stop, errors, counts = threading.Event(), [], [0] * len(readers)

    def run(i):
        try:
            while not stop.is_set():
                readers[i]()
                counts[i] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(readers))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not stop.is_set():
        write()
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a reader hangs"
    if errors:
        raise errors[0]
    return counts


@pytest.mark.parametrize("nodes", [1000, 100_000])
def test_no_read_is_torn(nodes):
    """Every delta gives all nodes one new value, and that is the version."""
    inc = to_incremental(Echo().eval())
    inc(torch.zeros(nodes, 1), torch.zeros(2, 1, dtype=torch.long))
    every = torch.arange(nodes)

    def write():
        rows = torch.full((nodes, 1), float(inc.version + 1))
        assert inc.apply_delta(x_changes=(every, rows)).version == rows[0]

    def read_all():
        version, out = inc.read()
        assert (out == version).all(), "torn"

    def read_some():
        version, out = inc.read([0, nodes // 2, nodes - 1])
        assert (out == version).all(), "torn"

    def look():
        assert inc.stale is None
        assert inc.num_nodes == nodes
        assert inc.out.shape == (nodes, 1)

    counts = beside([read_all, read_some, look, read_some], write)
    assert inc.version > 2
    assert min(counts) > 2


def test_whoever_reads_beside_deltas_raises_nothing(tmp_path):
    inc = wrapped(nodes=60, edges=200, warm=True)
    delta = GraphDelta(edge_index_del=inc.graph.to_edge_index()[:, :3], nodes_del=[1, 2])
    turn = 0

    def write():
        nonlocal turn
        pair = edge(turn % 60, (7 * turn) % 60)
        inc.apply_delta(edge_index_add=pair)
        inc.apply_delta(edge_index_del=pair, x_changes=([turn % 60], torch.randn(1, CHANNELS)))
        turn += 1

    saved = []

    def save():
        path = tmp_path / f"state{len(saved)}"
        inc.save(path)
        saved.append(path)

    def look():
        inc.inverse(delta)
        assert len(inc.x) == 60
        assert inc.edge_data is not None
        repr(inc)
        inc.memory_report()
        inc.state_digest()

    def verify():
        assert inc.verify() < 1e-3
        assert inc.verify(5) < 1e-3

    counts = beside([save, look, verify, lambda: inc.check() == [] or pytest.fail("check")], write)
    assert min(counts) > 0
    assert inc.verify() < 1e-3
    for path in saved[:: max(1, len(saved) // 8)]:
        loaded = load(path, sage())
        assert loaded.verify() < 1e-3
        assert loaded.check() == []
        assert loaded.num_edges in (inc.num_edges, inc.num_edges + 1)


def test_a_reader_goes_before_the_next_of_many_deltas():
    inc = wrapped(warm=True)
    longest = 0.0

    def read():
        nonlocal longest
        began = time.perf_counter()
        inc.read([1, 2])
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.005)

    counts = beside([read], lambda: inc.apply_delta(edge_index_add=edge(0, 1)))
    assert counts[0] > 20
    assert longest < 1.0


def test_a_fork_beside_a_delta_does_not_hang():
    inc = wrapped(warm=True)
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with inc._rwlock.model, inc._rwlock.gate, inc._rwlock.lock:
            held.set()
            let_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        torch.set_num_threads(1)
        fine = inc.apply_delta(edge_index_add=edge(0, 1)).version == 13 and inc.stale is None
        os._exit(0 if fine else 1)
    let_go.set()
    thread.join(60)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    inc.apply_delta(edge_index_add=edge(0, 1))

"""A thread that comes back in the midst of its own change: from forward, a hook, or a signal."""

import signal

import pytest
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

from pyg_incremental import IncrementalError, to_incremental
from tests.torture.inject import Injected, injecting
from tests.trust.small import CHANNELS, drawn, edge, sage, wrapped

LIMIT = 20
"""Seconds after which a call hangs."""


class Calling(nn.Module):
    """Calls back once; a `while` that no tracer follows makes it run whole.

    Attributes:
        now: What is called, the same for all copies of the model.
    """

    now = None

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4)

    def forward(self, x, edge_index):
        out = self.conv(x, edge_index)
        while float(out.sum()) == torch.inf:
            out = out / 2
        callback, Calling.now = Calling.now, None
        if callback:
            callback()
        return out


@pytest.fixture(autouse=True)
def alarm():
    def hung(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    Calling.now = None


OUTER = {
    "refresh": lambda inc: inc.refresh(),
    "apply_delta": lambda inc: inc.apply_delta(edge_index_add=edge(0, 1)),
    "call": lambda inc: inc(*drawn()),
}
INNER = {
    **OUTER,
    "bootstrap": lambda inc: inc.bootstrap(dict(zip(("x", "edge_index"), drawn(), strict=True))),
    "preview": lambda inc: inc.preview(edge_index_add=edge(0, 1)),
    "read": lambda inc: inc.read([1]),
    "out": lambda inc: inc.out,
    "verify": lambda inc: inc.verify(),
}


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
@pytest.mark.parametrize("outer", OUTER.values(), ids=OUTER)
def test_from_inside_forward(outer, inner):
    inc = wrapped(Calling().eval())
    assert inc.mode == "full pass"
    said = []

    def callback():
        said.append((inc.stale, repr(inc)))
        with pytest.raises(IncrementalError, match="going on in this very thread") as raised:
            inner(inc)
        said.append(str(raised.value))

    Calling.now = callback
    outer(inc)
    (stale, described), error = said
    assert "not through" in stale
    assert "in the midst of" in described
    assert "interrupted" not in stale + error
    assert inc.stale is None
    assert inc.verify() < 1e-5
    assert inc.check() == []


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_from_inside_verify_of_a_model_that_runs_whole():
    inc = wrapped(Calling().eval(), backend="reference")
    taken = []
    Calling.now = lambda: taken.append(inc._rwlock.is_mine)
    inc.verify()
    assert taken == [True]  # the model runs in the midst of the look, as updates run it, too
    Calling.now = inc.refresh
    with pytest.raises(IncrementalError, match="going on in this very thread"):
        inc.verify()
    assert inc.verify() < 1e-5


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_a_signal_handler_that_reads_is_told_the_truth():
    inc = wrapped(Calling().eval())
    said = []

    def handler(*_):
        said.append(inc.stale)
        with pytest.raises(IncrementalError) as raised:
            inc.read()
        said.append(str(raised.value))

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        Calling.now = lambda: signal.raise_signal(signal.SIGUSR1)
        inc.apply_delta(edge_index_add=edge(0, 1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said[0] == "apply_delta is not through"
    assert "interrupted" not in said[1]
    assert "signal handler" in said[1]
    assert inc.read().version == 1


def test_a_trace_from_inside_a_trace():
    """The tracer's lock is held then, for which a second trace would wait for ever."""
    other = sage()

    class Wrapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(CHANNELS, 4)

        def forward(self, x, edge_index):
            found = to_incremental(other)(*drawn())
            return self.conv(x, edge_index) + found[:1, :4]

    x, edge_index = drawn()
    inc = to_incremental(Wrapping().eval())
    with pytest.warns(match="full pass"):
        inc(x, edge_index)
    inc.apply_delta(edge_index_add=edge(0, 1))
    assert inc.verify() < 1e-5


@pytest.mark.parametrize("what", ["refresh", "preview", "out", "compact"])
def test_whatever_ends_a_call_the_next_one_finds_no_lock_taken(what):
    inc = wrapped()
    work = {"refresh": inc.refresh, "compact": inc.compact, "out": lambda: inc.out,
            "preview": lambda: inc.preview(edge_index_add=edge(1, 2))}[what]  # fmt: skip
    for at in range(45):  # the first lines, where locks are taken
        with pytest.raises(Injected) as kept, injecting(Injected, at):  # notebooks keep it, too
            work()
        inc.refresh()
        assert kept.traceback
    turns = inc._rwlock
    assert not any(lock._is_owned() for lock in (turns.gate, turns.lock, turns.model))

"""Several threads in one process: what one of them does must not show in another."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, SAGEConv

from pyg_incremental import to_incremental
from pyg_incremental.fused.registers import Space
from pyg_incremental.fused.row_ops import translate
from tests.closeness import assert_close
from tests.oracle import full
from tests.strategies import generator, index, make_world
from tests.zoo import CHANNELS


@pytest.fixture(autouse=True)
def threads_switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Caller(threading.Thread):
    """Calls a model again and again until it is told to stop."""

    def __init__(self, model, *inputs):
        super().__init__(daemon=True)
        self.call = torch.no_grad()(lambda: model(*inputs))
        self.wanted = self.call()
        self.rounds, self.errors, self.done = 0, [], False

    def run(self):
        while not self.done and not self.errors:
            try:
                got = self.call()
                assert type(got) is torch.Tensor, type(got)
                assert torch.equal(got, self.wanted)
            except BaseException as error:  # whatever it is, the test is to name it
                self.errors.append(error)
            self.rounds += 1

    def stop(self):
        self.done = True
        self.join(60)
        assert not self.is_alive()
        if self.errors:
            raise AssertionError(f"after {self.rounds} rounds") from self.errors[0]
        assert self.rounds


def models():
    plain = nn.Sequential(nn.Linear(CHANNELS, 8), nn.ReLU(), nn.Linear(8, 3))
    many = SAGEConv(CHANNELS, 3, aggr=["mean", "max", "std"])
    return plain.double().eval(), many.double().eval()


def test_wrapping_disturbs_no_model_of_another_thread():
    torch.manual_seed(0)
    plain, many = models()
    world = make_world(generator(0))
    callers = [Caller(plain, world.x), Caller(many, world.x, world.edge_index())]
    for caller in callers:
        caller.start()
    try:
        for seed in range(20):
            torch.manual_seed(seed)
            wrapped = (GCN if seed % 2 else GAT)(CHANNELS, 6, 2, 3).double().eval()
            to_incremental(wrapped)(**world.inputs())
    finally:
        for caller in callers:
            caller.stop()


def test_the_model_of_another_thread_may_be_the_one_that_is_wrapped():
    torch.manual_seed(0)
    model = GCN(CHANNELS, 6, 2, 3, norm="batch").double().eval()
    world = make_world(generator(0))
    caller = Caller(model, world.x, world.edge_index())
    caller.start()
    try:
        for _ in range(20):
            inc = to_incremental(model)
            inc(**world.inputs())
            assert inc.mode == "incremental"
    finally:
        caller.stop()


def test_threads_that_wrap_models_of_their_own():
    worlds = [make_world(generator(seed), nodes=10 + seed) for seed in range(4)]
    added = index([(0, 3), (3, 5)])

    def wrapped(seed):
        # Made one after another, because the seed belongs to the process.
        torch.manual_seed(seed)
        if seed % 2:
            return SAGEConv(CHANNELS, 3, aggr=["mean", "max"]).double().eval()
        return GCN(CHANNELS, 6, 2, 3).double().eval()

    made = [wrapped(seed) for seed in range(4)]
    inputs = [world.inputs() for world in worlds]

    def work(at):
        outs = []
        for _ in range(6):
            inc = to_incremental(made[at])
            inc(**inputs[at])
            assert inc.mode == "incremental", inc.mode
            inc.apply_delta(edge_index_add=added)
            outs.append(inc.out.clone())
        return outs

    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(work, range(4)))
    for model, world, outs in zip(made, worlds, every, strict=True):
        world.apply(edge_index_add=added)
        for out in outs:
            assert_close(out, full(model, world))


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_deltas_of_two_threads_come_one_after_the_other(backend):
    torch.manual_seed(0)
    model = GCN(CHANNELS, 6, 2, 3).double().eval()
    world = make_world(generator(0))
    inc = to_incremental(model, backend=backend)
    inc(**world.inputs())
    rounds = 60
    rows = torch.randn(2, rounds, 1, CHANNELS).double()
    start = threading.Barrier(2)

    def work(me):
        start.wait()
        versions = []
        for k in range(rounds):
            pair = index([(6 + me, k % world.num_nodes)])
            delta = {"x_changes": (torch.tensor([me]), rows[me, k]), "edge_index_add": pair}
            if k % 3:
                delta = {"edge_index_add": pair}
            update = inc.apply_delta(**delta)
            versions.append(update.version)
            if k % 2:
                versions.append(inc.apply_delta(edge_index_del=pair).version)
        return versions

    with ThreadPoolExecutor(2) as pool:
        versions = list(pool.map(work, range(2)))
    assert sorted(versions[0] + versions[1]) == list(range(1, inc.version + 1))
    assert inc.stale is None
    assert inc.verify() <= 1e-9
    kept = [(6 + me, k % world.num_nodes) for me in range(2) for k in range(0, rounds, 2)]
    found = sorted(map(tuple, inc.graph.to_edge_index().t().tolist()))
    assert found == sorted(world.pairs() + kept)
    for me in range(2):
        assert torch.equal(inc.x[me], rows[me, max(range(0, rounds, 3)), 0])


def test_two_threads_that_trace_leave_no_patch_behind():
    """One lists the steps of a model, the other the operations of a map; the first ends first."""
    call = nn.Module.__call__
    inside, begun, through = threading.Event(), threading.Event(), threading.Event()

    class Slow(nn.Module):
        def forward(self, x, edge_index):
            if type(x) is not torch.Tensor:  # it is being recorded
                inside.set()
                begun.wait(0.2)
            return x + 1

    def wrap():
        world = make_world(generator(0))
        to_incremental(Slow().double().eval())(world.x, world.edge_index())
        through.set()

    def slow_map(x):
        begun.set()
        through.wait(0.5)
        return x + 1

    first = threading.Thread(target=wrap)
    first.start()
    assert inside.wait(60)
    translate(slow_map, [torch.ones(3, 2)], Space())
    first.join(60)
    assert nn.Module.__call__ is call

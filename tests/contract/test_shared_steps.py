"""Large steps of the compiled plan shared by threads: the same rows, and the same work."""

import contextlib

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, SimpleConv

from pyg_incremental import InvalidDeltaError, to_incremental
from pyg_incremental.fused import parts, tables
from pyg_incremental.kernels import threads as threads_module
from pyg_incremental.kernels.threads import in_parts
from tests.side_by_side import SideBySide
from tests.strategies import generator
from tests.zoo_convs import CONV_CASES

N, CHANNELS = 5000, 6
MODELS = {
    "gcn": lambda: GCN(CHANNELS, 8, 2, 5),
    "sage": lambda: GraphSAGE(CHANNELS, 8, 3, 5, jk="cat"),
    "gin": lambda: GIN(CHANNELS, 8, 2, 5, norm="batch_norm"),
}
WHOLE = ("gcn-plain", "graph-weights", "sage-mean", "gin-two-linears", "gat-heads")


class NarrowThenWide(torch.nn.Module):
    """A value of one channel that is not stored, and that two wide maps read."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (SimpleConv("sum") for _ in range(3))
        self.weight = torch.nn.Parameter(torch.randn(8))

    def forward(self, x, edge_index):
        narrow = self.first(x[:, :1], edge_index).tanh()
        wide = self.second(narrow * self.weight, edge_index)
        return wide + self.third(narrow + self.weight, edge_index)


@contextlib.contextmanager
def threads(count):
    """As many threads for torch, and so for us."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.kernels
@pytest.mark.parametrize("name", WHOLE)
def test_every_kind_of_delta(name, seed, monkeypatch):
    """With everything that may be shared shared."""
    monkeypatch.setattr(parts, "MANY", 0)
    case = next(case for case in CONV_CASES if case.name == name)
    with threads(2):
        SideBySide(case, seed=seed, compile_after=1, backend="compiled").walk()


def deltas(rng, edges, count):
    """Edges that leave and come, and rows that change."""
    for _ in range(count):
        gone, edges = edges[:, :300], edges[:, 300:]
        added = torch.from_numpy(rng.integers(0, N, (2, 300)))
        edges = torch.cat([edges, added], 1)
        ids = torch.from_numpy(rng.permutation(N)[:400])
        yield added, gone, (ids, torch.from_numpy(rng.standard_normal((400, CHANNELS))))


@pytest.mark.many
@pytest.mark.parametrize("most", [1 << 24, 1500 * CHANNELS])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_as_from_one_thread(name, count, most, seed, monkeypatch):
    """Also where there is no room for the rows of a step."""
    monkeypatch.setattr(tables, "MOST", most)
    rng = generator(seed)
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    x = torch.from_numpy(rng.standard_normal((N, CHANNELS)))
    edges = torch.from_numpy(rng.permutation(N * 40)[: 4 * N])
    edges = torch.stack([edges % N, (edges * 7 + edges // N) % N])
    models = [to_incremental(model, compile_after=1, backend="compiled") for _ in range(3)]
    for inc in models:
        inc(x, edges)
    many, again, one = models
    shared = []
    for name in ("begin", "total", "compute"):
        method = getattr(parts.Parts, name)

        def spy(self, *args, _name=name, _method=method):
            if self.count > 1:
                shared.append(_name)
            return _method(self, *args)

        monkeypatch.setattr(parts.Parts, name, spy)
    for delta in deltas(rng, edges, 4):
        with threads(count), monkeypatch.context() as patch:
            for module in (parts, threads_module):
                patch.setattr(module, "MANY", 100)
            a = many.apply_delta(*delta)
            again.apply_delta(*delta)
        assert shared
        shared.clear()
        with threads(1):
            b = one.apply_delta(*delta)
        assert not shared
        # Edges differ where one thread reads rows again and several push (`_pulls` of the machine).
        assert [s[:4] for s in a.stats.steps] == [s[:4] for s in b.stats.steps]
        assert torch.equal(a.changed, b.changed)
        assert torch.allclose(a.out, b.out, rtol=0, atol=1e-12)
        assert many.state_digest() == again.state_digest()  # no race
        assert many.verify() < 1e-11


@pytest.mark.parametrize("count", [100, 1500])
def test_the_graph_changes_beside_the_first_sums(count, seed, monkeypatch):
    """However many edges there are, and not if the delta is not valid."""
    monkeypatch.setattr(parts, "MANY", 0)
    rng = generator(seed)
    torch.manual_seed(0)
    inc = to_incremental(MODELS["sage"]().double().eval(), compile_after=1, backend="compiled")
    edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), edges)
    found = []
    method = parts.Parts.begin
    monkeypatch.setattr(
        parts.Parts, "begin", lambda self, *a: found.append(len(a) > 3) or method(self, *a)
    )
    ids = torch.arange(0, N, 7)
    rows = torch.from_numpy(rng.standard_normal((len(ids), CHANNELS)))
    hub = torch.stack([torch.arange(count), torch.full((count,), 3)])  # one list grows often
    with threads(2):
        inc.apply_delta(x_changes=([3], rows[:1]))  # the plan is compiled with it
        inc.apply_delta(hub, edges[:, :count], (ids, rows))
        before = inc.state_digest()
        for wrong in (
            (hub, edges[:, :count], (ids, rows)),  # these edges have left
            (hub + N, None, (ids, rows)),
            (hub, None, (ids + N, rows)),
        ):
            with pytest.raises(InvalidDeltaError):
                inc.apply_delta(*wrong)
        assert inc.state_digest() == before
        inc.apply_delta(edges[:, :count], hub)
    assert any(found)  # once at least: the graph may have to grow first
    assert inc.verify() < 1e-11


@pytest.mark.parametrize("name", ["gat", "sage"])
@pytest.mark.parametrize("hub", [0, N - 1])
def test_most_edges_come_to_the_first_or_the_last_node(hub, name, seed, monkeypatch):
    """Then a thread has no rows at all."""
    monkeypatch.setattr(parts, "MANY", 0)
    rng = generator(seed)
    torch.manual_seed(0)
    model = GAT(CHANNELS, 8, 2, 5, heads=2) if name == "gat" else MODELS[name]()
    inc = to_incremental(model.double().eval(), compile_after=1, backend="compiled")
    edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), edges)
    many = torch.stack([torch.arange(100, 600), torch.full((500,), hub)])
    with threads(2):
        inc.apply_delta(edges[:, :1])  # the plan is compiled with it
        inc.apply_delta(many)
        inc.apply_delta(None, many[:, :400])
    assert inc.verify() < 1e-11


def test_rows_that_are_not_stored_keep_their_order(seed, monkeypatch):
    """One thread computes them, in the order in which their sum has found them; then two go on."""
    monkeypatch.setattr(parts, "MANY", 2 * N)
    rng = generator(seed)
    torch.manual_seed(0)
    inc = to_incremental(NarrowThenWide().double().eval(), compile_after=1, backend="compiled")
    edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), edges)
    computed = []
    method = parts.Parts.compute
    monkeypatch.setattr(
        parts.Parts, "compute", lambda self, *a: computed.append(len(a[0])) or method(self, *a)
    )
    for delta in deltas(rng, edges, 3):
        with threads(2):
            inc.apply_delta(*delta)
        assert computed[0] == 2  # both maps, which read the same
        computed.clear()
        assert inc.verify() < 1e-11


def test_parts_in_order_and_errors():
    assert in_parts(1, str) == ["0"]
    assert in_parts(4, lambda part: part * part) == [0, 1, 4, 9]
    with pytest.raises(ZeroDivisionError):
        in_parts(3, lambda part: 1 // (part - 2))


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_may_change_between_updates(name, seed, monkeypatch):
    monkeypatch.setattr(parts, "MANY", 0)
    rng = generator(seed)
    torch.manual_seed(0)
    inc = to_incremental(MODELS[name]().double().eval(), compile_after=1, backend="compiled")
    edges = torch.from_numpy(rng.integers(0, N, (2, 4 * N)))
    inc(torch.from_numpy(rng.standard_normal((N, CHANNELS))), edges)
    stream = deltas(rng, edges, 5)
    for count in (1, 2, 4, 2, 1):
        with threads(count):
            inc.apply_delta(*next(stream))
        assert inc.verify() < 1e-11

"""Writes to what a model computes with, of which PyTorch counts nothing."""

import os
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

from pyg_incremental import StaleStateError, to_incremental
from pyg_incremental.kernels.reference import graph as plain
from pyg_incremental.kernels.samples import KEYS, PIECE, mixed
from tests.trust.small import CHANNELS, drawn, edge, sage, wrapped

WIDE = 64


class Table(nn.Module):
    """Rows of a table for nodes; far more of them than a glance takes in."""

    def __init__(self, rows):
        super().__init__()
        self.table, self.conv = nn.Embedding(rows, WIDE), SAGEConv(WIDE, 4)

    def forward(self, ids, edge_index):
        return self.conv(self.table(ids), edge_index)


def over_a_table(rows=2000, shared=False, **options):
    torch.manual_seed(0)
    model = Table(rows).eval()
    if shared:
        model.share_memory()
    inc = to_incremental(model, **options)
    inc(torch.arange(60), drawn(60, 240)[1])
    return inc


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("through", ["itself", "another tensor"])
def test_a_fused_step_on_one_row_is_noticed(kind, through):
    inc = over_a_table()
    weight = inc.model.table.weight
    if through == "another tensor":  # over the same memory
        weight = nn.Parameter(weight.data)
    weight.grad = torch.zeros_like(weight)
    weight.grad[7] = 1.0
    options = {"weight_decay": 0.0} if kind is torch.optim.AdamW else {}
    kind([weight], lr=0.1, fused=True, **options).step()
    with pytest.raises(StaleStateError, match="changed in place"):
        inc.apply_delta(edge_index_add=edge(1, 2))
    assert inc.changed_parameters() == ["table.weight"]
    inc.refresh()
    assert inc.changed_parameters() == []
    assert inc.verify() < 1e-5


def test_a_step_of_another_model_costs_nothing():
    inc = over_a_table()
    other = nn.Linear(3, 3)
    other.weight.grad = torch.ones(3, 3)
    torch.optim.Adam(other.parameters(), fused=True).step()
    assert not inc._session.watch.is_stepped
    inc.apply_delta(edge_index_add=edge(1, 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("rows", [60, 3000])
def test_a_step_on_one_row_in_another_process_is_noticed(rows):
    inc = over_a_table(rows, shared=True)
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            weight = inc.model.table.weight
            weight.grad = torch.zeros_like(weight)  # autograd may have threads, which do not fork
            weight.grad[7] = 1.0
            torch.optim.SGD([weight], 0.5).step()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(StaleStateError, match="changed in place"):
        inc.apply_delta(edge_index_add=edge(1, 2))
    assert inc.changed_parameters() == ["table.weight"]
    inc.refresh()
    assert inc.verify() < 1e-5


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("row", [0, 7, 1000, 1999])
def test_a_number_written_through_data_is_found_within_the_turns(row, backend):
    inc = over_a_table(backend=backend)
    turns = inc._session.watch._count
    assert f"within {turns:,} looks" in str(inc.explain())
    assert turns == pytest.approx(2000 * WIDE * 4 / PIECE, abs=2)
    inc.model.table.weight.data[row, 3] += 1.0
    assert inc.changed_parameters() == ["table.weight"]

    def updates():
        for i in range(turns):
            inc.apply_delta(edge_index_add=edge(i % 60, (i * 7) % 60))

    with pytest.raises(StaleStateError, match="table"):
        updates()
    with pytest.raises(StaleStateError, match="table"):  # until somebody does something
        inc.apply_delta(edge_index_add=edge(0, 1))


def test_any_number_of_a_small_model_is_found_at_once():
    inc = wrapped(sage())
    assert not inc.explain().found_late
    for name, p in inc.model.named_parameters():
        for i in range(0, p.numel(), 3):
            p.data.view(-1)[i] *= -1
            assert "changed in place" in inc.stale, (name, i)
            p.data.view(-1)[i] *= -1
            inc.refresh()


class Plain(nn.Module):
    """Holds tensors in all ways but as parameters and buffers."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4)
        self.own = torch.randn(4)
        self.listed = [torch.randn(4), torch.randn(4)]
        self.named = {"a": {"b": torch.randn(4)}}
        self.pair = (torch.randn(4), 3)
        self.options = types.SimpleNamespace(scale=torch.randn(4))
        self.array = np.ones(4, np.float32)

    def forward(self, x, edge_index):
        found = self.conv(x, edge_index) + self.own
        for t in self.listed:
            found = found * t
        found = found + self.named["a"]["b"] + self.pair[0] * self.options.scale
        return found * torch.from_numpy(self.array)


IN_PLACE = {
    "own": lambda m: m.own.add_(5),
    "own[0]": lambda m: m.own.__setitem__(0, 5.0),
    "own.data": lambda m: m.own.data.add_(5),
    "listed": lambda m: m.listed[1].mul_(5),
    "named": lambda m: m.named["a"]["b"].add_(5),
    "pair": lambda m: m.pair[0].add_(5),
    "options": lambda m: m.options.scale.add_(5),
    "array": lambda m: m.array.__iadd__(5),
}
REPLACED = {
    "own": lambda m: setattr(m, "own", torch.ones(4)),
    "listed": lambda m: m.listed.__setitem__(0, torch.ones(4)),
    "appended": lambda m: m.listed.append(torch.ones(4)),
    "fewer": lambda m: m.listed.pop(),
    "named": lambda m: m.named["a"].update(b=torch.ones(4)),
    "gone": lambda m: m.named.clear(),
    "options": lambda m: setattr(m.options, "scale", torch.ones(4)),
    "array": lambda m: setattr(m, "array", np.zeros(4, np.float32)),
}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=IN_PLACE)
def test_tensors_beside_parameters_written_in_place(write):
    torch.manual_seed(0)
    inc = wrapped(Plain().eval())
    inc.model(*drawn())  # a call by hand changes nothing
    assert inc.stale is None
    write(inc.model)
    with pytest.raises(StaleStateError, match="changed in place"):
        inc.apply_delta(edge_index_add=edge(0, 1))
    (name,) = inc.changed_parameters()
    assert name.split(".")[0].split("[")[0] in (
        "own",
        "listed",
        "named",
        "pair",
        "options",
        "array",
    )
    inc.refresh()
    assert inc.stale is None
    assert inc.verify() < 1e-4


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
def test_tensors_beside_parameters_replaced(replace):
    inc = wrapped(Plain().eval())
    replace(inc.model)
    assert "replaced" in inc.stale
    with pytest.raises(StaleStateError):
        inc.apply_delta(edge_index_add=edge(0, 1))
    assert inc.changed_parameters()


def test_both_sets_of_kernels_say_the_same_of_pieces():
    rng = np.random.default_rng(0)
    held = rng.integers(0, 256, 3 * PIECE + 5, np.uint8)
    begin = held.ctypes.data
    pieces = np.array(
        [[begin + at, min(PIECE, held.size - at)] for at in range(0, held.size, PIECE)]
    )
    words = np.array([begin, begin + 8, begin + 400])
    for always, first, last in ((0, 0, 0), (1, 2, 4), (4, 0, 0), (0, 3, 4)):
        told = int(mixed(words, pieces, always, first, last, KEYS))
        assert told == plain.mixed(words, pieces, always, first, last, KEYS)
    before = int(mixed(words[:0], pieces, 4, 0, 0, KEYS))
    for at in (*range(PIECE - 3, PIECE + 3), held.size - 1, held.size - 5):
        held[at] ^= 0x80
        assert int(mixed(words[:0], pieces, 4, 0, 0, KEYS)) != before
        held[at] ^= 0x80

"""Sums in float64 of rows in float32, such as the moments of a standard deviation, in one call."""

import pytest
import torch
from torch_geometric.nn import GCNConv, PNAConv

from pyg_incremental import to_incremental
from pyg_incremental.fused import tables
from pyg_incremental.kernels.compiled.layout import KIND, WIDE_MAP, WIDE_TOTAL
from tests.closeness import assert_close
from tests.contract.test_steps_between import CHANNELS, Pair, fast_of
from tests.strategies import generator


def pna():
    return PNAConv(CHANNELS, 8, ["mean", "std", "var"], ["identity"], torch.tensor([1, 3, 4]))


@pytest.mark.parametrize("kind", ["edges", "loops", "arrival", "leaving"])
def test_moments_stay_in_float64_and_in_compiled_code(kind, seed):
    pair = Pair(pna(), generator(seed), torch.float32)
    for _ in range(8):
        one, other = pair.step(kind)
        assert [s[:3] for s in one] == [s[:3] for s in other]
    inc = pair.both[0]
    found = fast_of(inc).tables
    assert not found.why
    assert {WIDE_MAP, WIDE_TOTAL} < {*found.steps[:, KIND].tolist()}
    src, dst = inc.graph.to_edge_index()
    for total in inc._require().engine.aggregators:
        if total.out.rows.dtype == torch.float64:
            moments = total.source.tensor
            first, second = moments[: inc.num_nodes].chunk(2, 1)
            assert torch.equal(first, first.float().double())
            assert torch.equal(second, first * first)
            wanted = torch.zeros_like(total.out.tensor).index_add_(0, dst, moments[src])
            assert_close(total.out.tensor[: inc.num_nodes], wanted[: inc.num_nodes])
    inc.refresh()
    assert inc.verify() < 1e-4


@pytest.mark.parametrize("most", [3, 9, 60])
def test_moments_for_which_there_is_no_room(most, seed, monkeypatch):
    monkeypatch.setattr(tables, "MOST", most)
    pair = Pair(pna(), generator(seed), torch.float32)
    for kind in ("edges", "arrival", "edges", "leaving", "edges"):
        pair.step(kind)


@pytest.mark.parametrize("threads", [1, 2])
def test_moments_of_most_rows(threads, seed):
    """So many that they are made afresh by their executor; and by threads, where there are some."""
    rng, count = generator(seed), 3000
    edges = torch.from_numpy(rng.integers(0, count, (2, 4 * count)))
    x = torch.from_numpy(rng.standard_normal((count, CHANNELS))).float()
    torch.manual_seed(seed)  # PyG's std is zero below sqrt(1e-5), a step that rounding can take
    model = pna().eval()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inc = to_incremental(model, compile_after=1)
        inc(x, edges)
        for size in (1, 2500, 40, 3000, 1500, 3):
            ids = torch.from_numpy(rng.permutation(count)[:size])
            added = torch.from_numpy(rng.integers(0, count, (2, size)))
            rows = torch.from_numpy(rng.standard_normal((size, CHANNELS))).float()
            inc.apply_delta(added, inc.graph.to_edge_index()[:, :size], (ids, rows))
            assert_close(inc.out, model(inc.x, inc.graph.to_edge_index()))
            assert not inc.check()
    finally:
        torch.set_num_threads(before)
    assert not fast_of(inc).tables.why


class Narrowed(torch.nn.Module):
    """A conv whose result is rounded to float32."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, 8)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).float()


@pytest.mark.parametrize("kind", ["edges", "arrival"])
def test_rows_in_float32_of_rows_in_float64_are_left_to_their_executor(kind, seed):
    """Compiled code would write them twice as wide as they are."""
    pair = Pair(Narrowed(), generator(seed), torch.float64)
    for _ in range(4):
        pair.step(kind)
    for inc in pair.both:
        assert inc.out.dtype == torch.float32
        assert inc.verify() < 1e-5
    assert "another dtype" in fast_of(pair.both[0]).tables.why

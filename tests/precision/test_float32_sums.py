"""Sums in float32 after every delta of streams that are made to blur them; see `streams`.

`python -m tests.precision` runs the long ones.
"""

import pickle

import pytest
import torch
from torch_geometric.nn import GATConv, GraphSAGE

from pyg_incremental import load, to_incremental
from tests.precision.streams import BOUND, MODELS, STREAMS, WITH_WEIGHTS, worst_of

pytestmark = pytest.mark.unmeasured

WAYS = {
    "small updates": {"compile_after": 1},
    "ordinary updates": {"compile_after": None},
    "reference": {"compile_after": None, "backend": "reference"},
}
BLURRED = [  # each leaves what it blurs farther off than `BOUND` where sums are plain float32
    ("equal messages", "mean", 20_000, 20),
    ("equal messages", "sum", 40_000, 20),
    ("equal messages", "gcn", 20_000, 20),
    ("equal messages", "weighted", 40_000, 20),
    ("grown and emptied", "mean", 20_000, 24),
    ("copies of an edge", "mean", 30_000, 18),
    ("copies of an edge", "sum", 60_000, 12),
]
OTHERS = [
    (stream, model, 1_000, 12)
    for at, stream in enumerate(STREAMS)
    for model in [[*MODELS][at % len(MODELS)], "attention", "edges", "two layers"]
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("stream", "model", "size", "count"), BLURRED, ids=lambda v: str(v))
def test_no_stream_blurs_a_sum(stream, model, size, count, way):
    assert worst_of(stream, model, size, count, **WAYS[way]) <= BOUND


@pytest.mark.parametrize(("stream", "model", "size", "count"), OTHERS, ids=lambda v: str(v))
def test_no_stream_blurs_any_kind_of_sum(stream, model, size, count):
    way = [*WAYS.values()][len(stream) % len(WAYS)]
    assert worst_of(stream, model, size, count, **way) <= BOUND


def test_every_kind_of_sum_is_met():
    assert {model for _, model, _, _ in BLURRED + OTHERS} == {*MODELS}
    assert {stream for stream, *_ in BLURRED + OTHERS} == {*STREAMS}
    assert {*WITH_WEIGHTS} < {*MODELS}


def emptied(size=20_000, **options):
    """A hub of equal messages, and the deltas that take them from it."""
    x = torch.randn(1, 4, generator=torch.Generator().manual_seed(3)).expand(size + 1, -1)
    edges = torch.stack([torch.arange(1, size + 1), torch.zeros(size, dtype=torch.int64)])
    torch.manual_seed(0)
    model = GraphSAGE(4, 4, num_layers=1).eval()
    inc = to_incremental(model, **options)
    inc(x.contiguous().clone(), edges)
    return model, inc, edges[:, :-3].split(size // 10, 1)


def test_what_is_lost_by_rounding_is_saved_too(tmp_path):
    model, inc, parts = emptied(compile_after=None)
    for part in parts[:5]:
        inc.apply_delta(edge_index_del=part)
    inc.save(tmp_path / "state")
    other = load(tmp_path / "state", model)
    assert other.state_digest() == inc.state_digest()
    for part in parts[5:]:
        other.apply_delta(edge_index_del=part)
    assert other.verify().relative <= BOUND


def test_a_preview_leaves_no_bit_of_what_is_lost_by_rounding_changed():
    _, inc, parts = emptied(compile_after=None)
    inc.apply_delta(edge_index_del=parts[0])
    before = inc.state_digest()
    inc.preview(edge_index_del=parts[1])
    assert inc.state_digest() == before
    lows = [a.low.tensor for a in inc._session.engine.aggregators]
    assert any(bool(low.any()) for low in lows)


def test_rows_in_float64_keep_nothing_beside_them():
    x, edges = torch.randn(30, 4).double(), torch.randint(30, (2, 90))
    inc = to_incremental(GraphSAGE(4, 4, num_layers=2).double().eval())
    inc(x, edges)
    for a in inc._session.engine.aggregators:
        assert a.low.tensor.numel() == 0
        assert "low" not in a.extra


# What `verify` and `check` say ####################################################################


def test_verify_says_how_much_that_is_of_a_row_and_where():
    torch.manual_seed(0)
    inc = to_incremental(GraphSAGE(8, 16, 2, 4).eval(), compile_after=None)
    inc(torch.randn(50, 8) * 1e6, torch.randint(50, (2, 200)))
    found = inc.verify()
    assert found.is_fine
    assert found.relative <= 1e-5
    assert found.absolute == float(found) == found
    inc.out.numpy()[7] += 1e6  # behind PyTorch's back
    found = inc.verify()
    assert (found.node, found.output, found.is_fine) == (7, 0, False)
    assert found.relative > 0.1
    assert found > 1e5
    assert f"{found:.0e}" == "1e+06"
    assert "node 7" in str(found)
    for seed in range(4):
        some = inc.verify(num_nodes=40, seed=seed)
        assert some.is_fine == (some.node != 7)
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.node, str(again)) == (found, 7, str(found))
    with pytest.raises(AttributeError, match="does not change"):
        found.node = 3


def test_check_finds_nothing_wrong_with_large_logits():
    """Where a linear map rounds otherwise, weights of a softmax are exponentials of that."""
    torch.manual_seed(0)
    x, edges = torch.randn(60, 8), torch.randint(60, (2, 240))
    inc = to_incremental(GATConv(8, 4).eval())
    inc(x * 1e4, edges)
    for _ in range(50):
        inc.apply_delta(x_changes=(torch.randint(60, (1,)), torch.randn(1, 8) * 1e4))
    assert inc.check() == []
    assert inc.verify().is_fine
    (state,) = (a.out for a in inc._session.engine.aggregators)
    state.tensor[5] *= 1.5
    assert any("5" in problem for problem in inc.check())

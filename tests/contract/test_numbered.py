"""Rows of tables and matrices that each row names by a number, in compiled code as in PyTorch."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import MFConv

from pyg_incremental import to_incremental
from pyg_incremental.conv import numbered
from pyg_incremental.fused.registers import Space, UntranslatableError
from pyg_incremental.fused.row_ops import translate
from pyg_incremental.kernels.compiled.row_ops import BLOCK, run_rows
from tests.closeness import assert_close
from tests.strategies import generator

COUNT = 4


def drawn(rng, *shape):
    return torch.from_numpy(rng.standard_normal(shape))


def ran(fn, rows, *more):
    """What the operations of a map give for some rows, written down for others."""
    space = Space()
    examples = [torch.ones_like(r[:4]) for r in (rows, *more)]
    found = translate(fn, examples, space)
    flat, at = space.arrays(rows.dtype)
    for place, given in zip(found.inputs, (rows, *more), strict=True):
        flat[place:][: given.numel()] = given.reshape(-1).numpy()
    run_rows(flat, found.ops, 0, len(found.ops), at, len(rows))
    expected = fn(rows, *more)
    got = torch.from_numpy(flat[found.output :][: expected.numel()])
    return got.view(expected.shape), expected


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("inner", "width"), [(3, 5), (1, 1), (40, 24)])
def test_products_with_the_matrix_that_a_row_names(inner, width, dtype, seed):
    rng = generator(seed)
    matrices = drawn(rng, COUNT, width, inner).to(dtype).transpose(1, 2)
    biases = drawn(rng, COUNT, width).to(dtype)

    def product(x, degree):
        number = numbered.bucket(degree, COUNT)
        return torch.bmm(x.unsqueeze(1), matrices[number]).squeeze(1) + biases[number]

    for rows in (1, 7, BLOCK):
        degree = torch.from_numpy(rng.integers(0, 2 * COUNT, (rows, 1))).to(dtype)
        got, expected = ran(product, drawn(rng, rows, inner).to(dtype), degree)
        assert torch.allclose(got, expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.kernels
def test_several_vectors_of_a_row_times_one_matrix(seed):
    rng = generator(seed)
    matrices = drawn(rng, COUNT, 3, 2)
    got, expected = ran(
        lambda x, n: torch.bmm(x, matrices[numbered.bucket(n, COUNT)]),
        drawn(rng, 6, 4, 3), torch.arange(6.0).double(),
    )  # fmt: skip
    assert_close(got, expected)


LOOKED_UP = {
    "index": lambda table, number: table[number],
    "embedding": lambda table, number: nn.functional.embedding(number, table),
    "index_select": lambda table, number: table.index_select(0, number),
}


@pytest.mark.kernels
@pytest.mark.parametrize("way", LOOKED_UP)
def test_rows_of_a_table_are_what_stands_there(way):
    """Zeros of either sign, infinities and NaN included."""
    table = torch.tensor([[-0.0, 0.0], [torch.inf, -torch.inf], [torch.nan, -0.0], [1.0, 1e-30]])
    got, expected = ran(
        lambda x: LOOKED_UP[way](table, numbered.bucket(x, COUNT)), torch.arange(5.0)
    )
    assert torch.equal(got.view(torch.int32), expected.view(torch.int32))


def test_numbers_of_a_table_without_columns():
    table = torch.tensor([2.0, -0.0, 7.0, 9.0])
    got, expected = ran(lambda x: table[numbered.bucket(x, COUNT)], torch.arange(5.0).view(-1, 1))
    assert torch.equal(1 / got, 1 / expected)


@pytest.mark.kernels
@pytest.mark.parametrize("right", [True, False])
def test_what_lies_between_bounds(right):
    bounds, table = torch.tensor([-1.0, 0.5, 2.0]), torch.arange(4.0) + 10
    rows = torch.tensor([-torch.inf, -1.0, -0.0, 0.5, 0.6, 2.0, 3.0, torch.inf, torch.nan])
    got, expected = ran(lambda x: table[torch.bucketize(x, bounds, right=right)], rows)
    assert torch.equal(got, expected)


TABLE = torch.randn(COUNT, 3)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: TABLE[x[:, 0].long()],
        lambda x: TABLE[x[:, 0].clamp(0, COUNT - 1).long()],
        lambda x: TABLE[numbered.bucket(x[:, 0], COUNT + 1)],
        lambda x: TABLE[numbered.bucket(x[:, 0], COUNT) + 1],
        lambda x: TABLE[-numbered.bucket(x[:, 0], COUNT)],
        lambda x: TABLE.index_select(1, numbered.bucket(x[:, 0], 3)),
        lambda x: TABLE[numbered.bucket(x[:, 0], 2), numbered.bucket(x[:, 0], 2)],
        lambda x: x[numbered.bucket(x[:, 0], 2)],
        lambda x: numbered.bucket(x[:, 0], COUNT),
        lambda x: numbered.bucket(x[:, 0], COUNT) / 2,
        lambda x: TABLE.view(2, 2, 3)[numbered.bucket(x[:, 0], 2)].sum(1),
        lambda x: (TABLE.double()[numbered.bucket(x[:, 0], 4)] / 3).float(),
        lambda x: TABLE.long()[numbered.bucket(x[:, 0], 4)] / 2,
    ],
    ids=[
        "any", "clamped, but NaN", "one too many", "moved", "from the end", "columns", "elements",
        "other rows", "integers", "halves", "matrices", "in float64", "table of integers",
    ],
)  # fmt: skip
def test_what_may_not_be_there_is_left_to_torch(fn):
    """Compiled code reads whatever stands at a place; PyTorch says that there is none."""
    with pytest.raises(UntranslatableError):
        translate(fn, [torch.rand(6, 3)], Space())


# MFConv ###########################################################################################

N = 60


class Sides:
    """A conv beside PyG's own, on a graph some of whose degrees are beyond the largest one."""

    def __init__(self, conv, rng, dtype=torch.float64):
        self.rng, self.conv, self.dtype = rng, conv.to(dtype).eval(), dtype
        self.x = drawn(rng, N, 6).to(dtype)
        self.inc = to_incremental(self.conv, compile_after=1)
        edges = torch.from_numpy(rng.integers(0, N, (2, 3 * N)))
        edges[1, : N // 2] %= 4
        self.inc(self.x, edges)

    def step(self):
        """Edges that come and go and rows that change; what came out, and what PyG makes of it."""
        inc, rng = self.inc, self.rng
        come = torch.from_numpy(rng.integers(0, N, (2, 3)))
        come[1, 0] %= 4
        gone = inc.graph.to_edge_index()[:, torch.from_numpy(rng.permutation(inc.num_edges)[:3])]
        ids = torch.from_numpy(rng.permutation(N)[:2])
        up = inc.apply_delta(come, gone, (ids, drawn(rng, 2, 6).to(self.dtype)))
        wanted = self.conv(inc.x, inc.graph.to_edge_index())
        assert_close(inc.out, wanted)
        assert torch.equal(up.out, inc.out[up.changed])

    @property
    def why(self):
        return self.inc._require().engine.fast.tables.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("max_degree", [0, 1, 3, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_mf_is_compiled_from_end_to_end(bias, max_degree, dtype, seed):
    torch.manual_seed(seed)
    sides = Sides(MFConv(6, 5, max_degree=max_degree, bias=bias), generator(seed), dtype)
    for _ in range(6):
        sides.step()
    assert bool(sides.why) == (max_degree == 0)  # with one product for all rows
    assert not sides.inc.check()


@pytest.mark.parametrize("some", [0, 64])
def test_mf_of_few_rows_and_of_many(some, seed, monkeypatch):
    """Matrices looked up, and each of them a product of its own."""
    monkeypatch.setattr(numbered, "SOME", some)
    torch.manual_seed(seed)
    for few in (0, 8):
        monkeypatch.setattr(numbered, "FEW", few)
        sides = Sides(MFConv(6, 5, max_degree=3), generator(seed))
        for _ in range(4):
            sides.step()
        assert bool(sides.why) == (few == 0)


def test_mf_whose_layers_differ(seed):
    """One of them has no bias: the conv is computed row by row."""
    torch.manual_seed(seed)
    conv = MFConv(6, 5, max_degree=3)
    conv.lins_l[1].bias = None
    sides = Sides(conv, generator(seed))
    for _ in range(3):
        sides.step()


def test_mf_of_new_weights(seed):
    """What is beside each other is made anew with everything else."""
    torch.manual_seed(seed)
    sides = Sides(MFConv(6, 5, max_degree=3), generator(seed))
    for _ in range(2):
        sides.step()
    with torch.no_grad():
        for p in sides.conv.parameters():
            p.add_(0.5)
    sides.inc.refresh()
    for _ in range(3):
        sides.step()
    assert not sides.why

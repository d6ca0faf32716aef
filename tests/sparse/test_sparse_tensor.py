"""torch_sparse.SparseTensor as input: the same deltas, other rules for self-loops and values."""

import pytest
import torch
from torch_geometric import nn as gnn

from tests.side_by_side import SideBySide
from tests.strategies import DELTAS
from tests.zoo import CHANNELS, WEIGHT, Case
from tests.zoo_convs import CONV_CASES
from tests.zoo_models import BASIC_CASES

pytestmark = pytest.mark.sparse

# The largest of several -inf is not -inf for torch_scatter, so attention on rows of infinite logits
# has a meaning of its own as soon as that package is installed; NaN is the same everywhere.
FINITE = [name for name in DELTAS if name != "infinity_comes"]

CASES = [case for case in (*CONV_CASES, *BASIC_CASES) if "sparse_tensor" in case.formats]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_without_values(case, seed):
    sides = SideBySide(case, "sparse_tensor", seed=seed, data=())
    assert sides.inc.mode in case.mode
    sides.walk(FINITE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_with_values(case, seed):
    """GCN and GraphConv weigh by the values; SAGE and GIN drop them, as PyG does."""
    sides = SideBySide(case, "sparse_tensor", seed=seed + 1, data=WEIGHT)
    sides.rng.shuffle(FINITE)
    sides.walk(FINITE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_kernels(case, seed):
    sides = SideBySide(case, "sparse_tensor", seed=seed + 2, backend="reference", data=WEIGHT)
    sides.walk(["mixed", "change_features", "self_loops", "change_edge_data", "mixed"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_close_in_float32(case, seed):
    sides = SideBySide(case, "sparse_tensor", torch.float32, seed=seed + 3, data=WEIGHT)
    sides.walk(["mixed", "change_features", "grow_hub", "delete_edges", "mixed", "refill"])


class Points(torch.nn.Module):
    """A conv at positions found in the features."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, x[:, :3], edge_index)


READ_OFF = [
    Case("gen", lambda: gnn.GENConv(CHANNELS, 4)),
    Case("gen-list", lambda: gnn.GENConv(CHANNELS, 4, aggr=["add", "max", "std"])),
    Case("transformer", lambda: gnn.TransformerConv(CHANNELS, 4, heads=2, beta=True)),
    Case("general", lambda: gnn.GeneralConv(CHANNELS, 4, attention=True, heads=2)),
    Case("cg", lambda: gnn.CGConv(CHANNELS)),
    Case("agnn", lambda: gnn.AGNNConv()),
    Case("agnn-no-loops", lambda: gnn.AGNNConv(add_self_loops=False)),
    Case("supergat", lambda: gnn.SuperGATConv(CHANNELS, 4, heads=2)),
    Case("supergat-dot", lambda: gnn.SuperGATConv(CHANNELS, 4, heads=2, attention_type="SD")),
    Case("point", lambda: Points(gnn.PointTransformerConv(CHANNELS, 4))),
]


@pytest.mark.parametrize("data", [(), WEIGHT], ids=["without", "values"])
@pytest.mark.parametrize("case", READ_OFF, ids=str)
def test_a_conv_without_a_program_is_looked_into(case, data, seed):
    """No row of it is computed again from its whole neighbourhood."""
    sides = SideBySide(case, "sparse_tensor", seed=seed + 4, data=data)
    assert sides.inc.mode == "incremental"
    assert not {"whole", "rows"}.intersection(s.kind for s in sides.inc.program.steps)
    sides.walk(FINITE)

"""Deeper models are exact under every kind of delta, and do no more than a delta calls for."""

from types import SimpleNamespace

import pytest
import torch
import torch_geometric
from torch import nn
from torch_geometric import nn as gnn
from torch_geometric.nn.conv import rgcn_conv, spline_conv

from pyg_incremental import check_conv, to_incremental
from tests.closeness import assert_close
from tests.side_by_side import SideBySide
from tests.zoo import CHANNELS, Case
from tests.zoo_deep_models import DEEP_CASES, DEGREES, ResidualGINE

RUNS = [pytest.param(case, fmt, id=f"{case}-{fmt}") for case in DEEP_CASES for fmt in case.formats]
KINDS = 3


def kinds_of(inc):
    return {s.kind for s in inc.program.steps}


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), RUNS)
def test_exact_in_float64(case, fmt, seed):
    sides = SideBySide(case, fmt, seed=seed, backend="compiled")
    assert sides.inc.mode in case.mode
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", DEEP_CASES, ids=str)
def test_exact_on_reference_kernels(case, seed):
    SideBySide(case, case.formats[0], seed=seed + 1, backend="reference").walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", DEEP_CASES, ids=str)
def test_close_in_float32(case, seed):
    SideBySide(case, case.formats[0], dtype=torch.float32, seed=seed + 2).walk()


PAIRS = {
    "gine": (lambda: gnn.GINEConv(nn.Linear(5, 4), edge_dim=3), "edge_attr"),
    "nn": (lambda: gnn.NNConv((5, 6), 4, nn.Linear(3, 20)), "edge_attr"),
    "gmm": (lambda: gnn.GMMConv((5, 6), 4, dim=3, kernel_size=2), "edge_attr"),
    "cg": (lambda: gnn.CGConv((5, 6), dim=3), "edge_attr"),
    "res-gated": (lambda: gnn.ResGatedGraphConv((5, 6), 4, edge_dim=3), "edge_attr"),
    "film": (lambda: gnn.FiLMConv((5, 6), 4, KINDS), "edge_type"),
    "rgcn": (lambda: gnn.RGCNConv((5, 6), 4, KINDS), "edge_type"),
    "rgcn-max": (lambda: gnn.RGCNConv((5, 6), 4, KINDS, aggr="max"), "edge_type"),
    "fast-rgcn": (lambda: gnn.FastRGCNConv((5, 6), 4, KINDS), "edge_type"),
    "edge-conv": (lambda: gnn.EdgeConv(nn.Linear(10, 4)), None),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_sets_of_nodes(name, seed):
    torch.manual_seed(seed)
    make, data = PAIRS[name]
    conv = make().double().eval()
    # One layer reads the difference of both ends, another one adds the row to the result.
    own = 5 if name in ("gine", "edge-conv") else 6
    far, near = torch.randn(12, 5).double(), torch.randn(9, own).double()
    pairs = torch.randperm(12 * 9)[:40]  # no two alike, so that it is known which one leaves
    edges = torch.stack([pairs // 9, pairs % 9])
    kinds = torch.randint(KINDS, (40,))
    given = {"edge_attr": torch.randn(40, 3).double(), "edge_type": kinds}.get(data)
    inc = to_incremental(conv)
    inc((far, near), edges, *([] if data is None else [given]))
    assert inc.mode == "incremental"
    assert not {"rows", "whole"} & kinds_of(inc)
    far, near = far.clone(), near.clone()
    far[3], near[4] = -far[3], 2 * near[4]
    inc.apply_delta(x_changes={"src": ([3], far[[3]]), "dst": ([4], near[[4]])})
    extra = {} if data is None else {"edge_data_add": {data: given[:2]}}
    inc.apply_delta(edge_index_add=edges[:, :2], edge_index_del=edges[:, 5:9], **extra)
    kept = [*range(5), *range(9, 40), 0, 1]
    with torch.no_grad():
        want = conv((far, near), edges[:, kept], *([] if data is None else [given[kept]]))
    assert_close(inc.out, want)


# Work ############################################################################################

N = 60


@pytest.fixture
def wheel(seed):
    """Every node has three in-edges; node 0 sends to all, so that it is a hub."""
    torch.manual_seed(seed)
    at = torch.arange(N)
    return torch.stack([torch.cat([(at + 1) % N, (at + 7) % N, 0 * at]), at.repeat(3)])


def test_an_edge_encoder_runs_once_per_edge(wheel):
    inc = to_incremental(ResidualGINE().double().eval())
    inc(torch.randn(N, CHANNELS).double(), wheel, torch.randn(3 * N, 3).double())
    up = inc.apply_delta(x_changes=([5], torch.randn(1, CHANNELS).double()))
    assert not [s for s in up.stats.steps if s.name.startswith("edge")]
    up = inc.apply_delta(
        edge_index_add=torch.tensor([[3], [9]]), edge_attr_add=torch.randn(1, 3).double()
    )
    encoder = [s for s in up.stats.steps if s.name.startswith("edge")]
    assert encoder
    assert all(s.rows == 1 for s in encoder)
    assert inc.verify() <= 1e-9


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_pna_reads_no_row_again_but_for_what_a_maximum_loses(edge_dim, wheel):
    conv = gnn.PNAConv(
        CHANNELS, 4, ["mean", "max", "std"], ["identity", "linear"], DEGREES, edge_dim=edge_dim
    )
    inc = to_incremental(conv.double().eval())
    attr = () if edge_dim is None else (torch.randn(3 * N, 3).double(),)
    inc(torch.randn(N, CHANNELS).double(), wheel, *attr)
    assert inc.mode == "incremental"
    assert not {"rows", "whole"} & kinds_of(inc)
    up = inc.apply_delta(x_changes=([20], torch.randn(1, CHANNELS).double()))
    sums = [s for s in up.stats.steps if s.kind == "sum"]
    assert sums
    for s in sums:  # node 20 sends to two nodes and to none as a hub
        assert (s.rows, s.edges, s.reread) == (2, 2, 0)
    (largest,) = (s for s in up.stats.steps if s.kind == "max")
    assert largest.rows == 2
    assert inc.verify() <= 1e-9


@pytest.mark.parametrize("conv", [gnn.RGCNConv, gnn.FastRGCNConv])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_relations_read_no_row_again(conv, aggr, wheel):
    inc = to_incremental(conv(CHANNELS, 4, KINDS, aggr=aggr).double().eval())
    kinds = torch.arange(3 * N) % KINDS
    inc(torch.randn(N, CHANNELS).double(), wheel, kinds)
    for delta in (
        {"x_changes": ([20], torch.randn(1, CHANNELS).double())},
        {
            "edge_index_add": torch.tensor([[4], [9]]),
            "edge_data_add": {"edge_type": torch.tensor([1])},
        },
        {"edge_index_del": torch.tensor([[0], [30]])},
        {"edge_changes": (torch.tensor([[0], [31]]), {"edge_type": torch.tensor([2])})},
    ):
        up = inc.apply_delta(**delta)
        sums = [s for s in up.stats.steps if s.kind == "sum"]
        assert sums
        assert all(s.rows <= 2 and s.reread == 0 for s in sums), up.stats
    assert inc.verify() <= 1e-9


@pytest.mark.parametrize("node", [0, 20])
def test_a_gate_reads_a_row_again_where_its_own_key_changed(node, wheel):
    inc = to_incremental(gnn.ResGatedGraphConv(CHANNELS, 4).double().eval())
    inc(torch.randn(N, CHANNELS).double(), wheel)
    up = inc.apply_delta(x_changes=([node], torch.randn(1, CHANNELS).double()))
    (gates,) = (s for s in up.stats.steps if s.kind == "sum")
    assert gates.reread == 1
    assert gates.rows == (N if node == 0 else 3)
    assert inc.verify() <= 1e-9


def test_no_zero_is_multiplied_with_what_is_not_finite(wheel):
    """A NaN reaches the rows of its own relation only."""
    conv = gnn.RGCNConv(CHANNELS, 4, KINDS, root_weight=False).double().eval()
    inc = to_incremental(conv)
    x, kinds = torch.randn(N, CHANNELS).double(), torch.arange(3 * N) % KINDS
    inc(x, wheel, kinds)
    x = x.clone()
    x[20] = torch.nan
    up = inc.apply_delta(x_changes=([20], x[[20]]))
    assert len(up.changed) == 2
    with torch.no_grad():
        assert_close(inc.out, conv(x, wheel, kinds))
    up = inc.apply_delta(x_changes=([20], torch.zeros(1, CHANNELS).double()))
    assert inc.out.isfinite().all()
    assert inc.verify() <= 1e-9


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_relations_that_pyg_lib_would_aggregate_together(aggr, monkeypatch, seed):
    """With pyg-lib and on large graphs PyG's mean is one over all relations: only it knows when."""

    def segment_matmul(rows, pointer, weight):
        parts = rows.split(pointer.diff().tolist())
        return torch.cat([part @ w for part, w in zip(parts, weight, strict=True)])

    ops = SimpleNamespace(ops=SimpleNamespace(segment_matmul=segment_matmul))
    monkeypatch.setattr(rgcn_conv, "pyg_lib", ops, raising=False)
    monkeypatch.setattr(torch_geometric.typing, "WITH_SEGMM", True)
    monkeypatch.setattr(torch_geometric.backend, "use_segment_matmul", True)
    data = (("edge_type", "type"),)
    case = Case("meeting", lambda: gnn.RGCNConv(CHANNELS, 4, KINDS, aggr=aggr), data=data)
    sides = SideBySide(case, seed=seed)
    assert sides.inc.mode == ("incremental" if aggr == "sum" else "mixed")
    sides.walk()


# What cannot be had ##############################################################################


@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_spline_conv_where_there_are_kernels(aggr, monkeypatch):
    """PyG's kernels are compiled; linear B-splines in one dimension are written down in a line."""

    def basis(pseudo, kernel_size, is_open_spline, degree):
        at = pseudo.clamp(0, 1) * (kernel_size - degree)
        low = at.floor().long().clamp(max=int(kernel_size[0]) - 2)
        return torch.cat([1 - (at - low), at - low], 1), torch.cat([low, low + 1], 1)

    def weighting(x, weight, basis, index):
        return torch.einsum("ki,ksio,ks->ko", x, weight[index], basis)

    monkeypatch.setattr(spline_conv, "spline_basis", basis)
    monkeypatch.setattr(spline_conv, "spline_weighting", weighting)
    monkeypatch.setattr(spline_conv.warnings, "warn", lambda *args, **kwargs: None)
    conv = gnn.SplineConv(CHANNELS, 4, dim=1, kernel_size=4, aggr=aggr)
    report = check_conv(conv, edge_dim=1)
    assert report.mode == "incremental"
    assert not any("rows(" in step for step in report.steps)


def test_a_layer_that_mixes_rows_is_not_used_in_a_message():
    """Batch statistics of the messages: only a full pass knows them."""
    net = nn.Sequential(nn.Linear(2 * CHANNELS, 4), nn.BatchNorm1d(4, track_running_stats=False))
    inc = to_incremental(gnn.EdgeConv(net).double().eval(), backend="compiled")
    inc(torch.randn(N, CHANNELS).double(), torch.randint(N, (2, 200)))
    assert inc.mode == "mixed"
    assert "whole" in kinds_of(inc)
    inc.apply_delta(edge_index_add=torch.tensor([[0], [1]]))
    assert inc.verify() <= 1e-9

"""Features of another dtype than the parameters, which a model casts: it counts in its own."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GraphConv, LGConv, SAGEConv

from pyg_incremental import IncrementalWarning, evaluate, to_incremental
from tests.closeness import assert_close
from tests.oracle import full
from tests.strategies import DELTAS, generator, make_world
from tests.zoo import CHANNELS

CONVS = {
    "gcn": lambda: GCNConv(CHANNELS, 4),
    "sage": lambda: SAGEConv(CHANNELS, 4),
    "graph": lambda: GraphConv(CHANNELS, 4, aggr="mean"),
    "gat": lambda: GATConv(CHANNELS, 2, heads=2, edge_dim=1),
}
HUB = 2050
"""More in-edges than half precision can count one by one."""


class Cast(nn.Module):
    """A conv on features that come in any dtype."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, edge_weight=None):
        more = [] if edge_weight is None else [edge_weight]
        return self.conv(x.float(), edge_index, *more)


def with_rows(delta, change):
    """A delta with other rows of features."""
    more = {}
    if delta.get("x_add") is not None:
        more["x_add"] = change(delta["x_add"])
    if delta.get("x_changes") is not None:
        ids, rows = delta["x_changes"]
        more["x_changes"] = ids, change(rows)
    return {**delta, **more}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CONVS)
def test_mixed_deltas(name, dtype, seed):
    torch.manual_seed(seed)
    model, rng = Cast(CONVS[name]()).eval(), generator(seed)
    weights = [("edge_weight", None)] if name in ("gcn", "graph") else []
    world = make_world(rng, data=weights, dtype=torch.float32)
    world.x = world.x.to(dtype).float()  # what the model makes of features in that dtype
    inc = to_incremental(model)
    inc(**{**world.inputs(), "x": world.x.to(dtype)})
    for _ in range(12):
        delta = with_rows(DELTAS["mixed"](world, rng), lambda rows: rows.to(dtype).float())
        world.apply(**delta)
        inc.apply_delta(**with_rows(delta, lambda rows: rows.to(dtype)))
        assert_close(inc.out, full(model, world))
    assert inc.x.dtype is dtype
    assert inc.mode == "incremental"


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_degrees_are_those_of_the_model(name, seed):
    torch.manual_seed(seed)
    model = Cast(CONVS[name]()).eval()
    hub = torch.stack([torch.arange(HUB) % 50, torch.zeros(HUB, dtype=torch.int64)])
    inc = to_incremental(model)
    x = torch.randn(50, CHANNELS).half()
    inc(x, hub)
    for u in range(20):
        inc.apply_delta(torch.tensor([[u], [0]]))
    edges = inc.graph.to_edge_index()
    assert edges.shape[1] == HUB + 20
    with torch.no_grad():
        assert_close(inc.out, model(x, edges))


def test_a_weight_beyond_half_precision(seed):
    torch.manual_seed(seed)
    model = Cast(CONVS["gcn"]()).eval()
    x, edges, weights = (
        torch.randn(50, CHANNELS).half(),
        torch.randint(50, (2, 200)),
        torch.rand(200),
    )
    inc = to_incremental(model)
    inc(x, edges, weights)
    inc.apply_delta(torch.tensor([[1], [2]]), edge_weight_add=[100_000.0])
    edges = torch.cat([edges, torch.tensor([[1], [2]])], 1)
    with torch.no_grad():
        assert_close(inc.out, model(x, edges, torch.cat([weights, torch.tensor([1e5])])))


def test_what_is_propagated_in_another_dtype_is_exact(seed):
    """It is counted in the dtype of the parameters, which is seen to differ in the first call."""

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.hop, self.lin = LGConv(), nn.Linear(CHANNELS, 4)

        def forward(self, x, edge_index):
            h = self.hop(x, edge_index)
            return h, self.lin(h.float())

    torch.manual_seed(seed)
    model, edges = Wide().eval(), torch.randint(50, (2, 200))
    inc = to_incremental(model)
    with pytest.warns(IncrementalWarning, match="differs from the model by"):
        inc(torch.randn(50, CHANNELS, dtype=torch.float64), edges)
    inc.apply_delta(torch.tensor([[1], [2]]), edges[:, :2])
    with torch.no_grad():
        want = model(inc.x, inc.graph.to_edge_index())
    for ours, theirs in zip(inc.out, want, strict=True):
        assert_close(ours, theirs)


def test_evaluated_by_blocks(seed):
    torch.manual_seed(seed)
    model = Cast(CONVS["sage"]()).eval()
    hub = torch.stack([torch.arange(HUB + 1) % 50, torch.zeros(HUB + 1, dtype=torch.int64)])
    x = torch.randn(50, CHANNELS).half()
    out = evaluate(model, {"x": x, "edge_index": hub}, memory="1MB", progress=False)
    with torch.no_grad():
        assert_close(out, model(x, hub))

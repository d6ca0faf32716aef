"""Rows that a mask picks, layers by type of node, and rows that are picked as they leave."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from pyg_incremental import to_incremental
from tests.closeness import assert_close
from tests.contract.test_kinds_of_rows import World

KINDS = 3


class ByMask(nn.Module):
    """A layer for each type of node, written into rows that are there."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(5, 8) for _ in range(KINDS))
        self.conv = SAGEConv(8, 4)

    def start(self, x):
        return x.new_zeros(x.size(0), 8)

    def forward(self, x, edge_index, node_type):
        h = self.start(x)
        for kind, lin in enumerate(self.lins):
            mask = node_type == kind
            h[mask] = lin(x[mask])
        return self.conv(h, edge_index)


class ByMaskOnEmpty(ByMask):
    def start(self, x):
        return torch.empty(x.size(0), 8, dtype=x.dtype).fill_(1.0)


class Embedded(nn.Module):
    """Ids that mean another table for each type, and features of one type."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(70, 4), nn.Embedding(9, 4)])
        self.lin, self.conv = nn.Linear(5, 4), GCNConv(4, 4)

    def forward(self, x, edge_index, node_type):
        h, ids = torch.zeros_like(x)[:, :4], x[:, 0].abs().mul(2).long().clamp(max=8)
        ids = torch.where(node_type == 0, ids + 50, ids)  # beyond the second table
        for kind, table in enumerate(self.tables):
            h[node_type == kind] = table(ids[node_type == kind])
        some = node_type == 2
        rows = self.lin(x[some]).relu()
        first, second = (rows * 2 + x[some][:, :1]).chunk(2, 1)
        h[some] = torch.cat([second, first], 1)
        h[x[:, 1] > 1.5] = -1.0
        return self.conv(h, edge_index)


class Inverted(nn.Module):
    """What is not there where the mask does not hold would be infinite, or no number."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(5, 4)

    def forward(self, x, edge_index, node_type):
        x, some = x.clone(), node_type == 1
        x[some] = 1 / x[some].abs() + x[some].abs().log()
        x[~some] = 0.5
        return self.conv(x, edge_index)


class Leaves(nn.Module):
    """What is picked leaves."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(5, 4)

    def forward(self, x, edge_index, node_type):
        h = self.conv(x, edge_index)
        return h[node_type == 0].log_softmax(-1), h[:7], h[-3:], h[2], h[::2], h[node_type > 5]


class Centred(Inverted):
    """The mean of what is picked is one of all of them."""

    def forward(self, x, edge_index, node_type):
        x, some = x.clone(), node_type == 1
        x[some] = x[some] - x[some].mean(0)
        return self.conv(x, edge_index)


class OtherMask(Inverted):
    """Two masks that pick equally many rows, but not the same ones."""

    def forward(self, x, edge_index, node_type):
        x, some = x.clone(), node_type == 1
        x[some.flip(0)] = x[some] * 2
        return self.conv(x, edge_index)


class Changed(Inverted):
    """A mask that is made anew once what it is made of has changed."""

    def forward(self, x, edge_index, node_type):
        x = x.clone()
        x[x[:, 0] > 0] = x[x[:, 0] > 0] - 1
        x[x[:, 0] > 0] = 2 * x[x[:, 0] > 0]
        return self.conv(x, edge_index)


FOLLOWED = [ByMask, ByMaskOnEmpty, Embedded, Inverted, Leaves, Changed]


@pytest.mark.parametrize("model", [*FOLLOWED, Centred, OtherMask])
def test_rows_that_a_mask_picks_along_random_deltas(model, seed):
    world, model_of = World(seed, 5), model
    model = model_of().double().eval()
    kinds = torch.arange(len(world.x)) % KINDS
    inc = to_incremental(model, compile_after=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if model_of not in FOLLOWED else "error")
        inc(world.x, world.e, kinds)
    assert (inc.mode == "incremental") == (model_of in FOLLOWED)
    for step in range(10):
        before, fields = len(world.x), world.delta()
        more = len(world.x) - before
        if more:
            new = torch.randint(KINDS, (more,))
            kinds = torch.cat([kinds, new])
            fields["x_add"] = {"x": fields["x_add"], "node_type": new}
        changes = {"x": fields["x_changes"]} if "x_changes" in fields else {}
        kinds = kinds.clone()
        kinds[step] = (kinds[step] + 1) % KINDS  # a node becomes one of another type
        fields["x_changes"] = {**changes, "node_type": ([step], kinds[step : step + 1])}
        inc.apply_delta(**fields)
        with torch.no_grad():
            assert_close(inc.out, model(world.x, world.e, kinds), 1e-9)
    assert inc.verify() < 1e-9
    assert inc.check() == []


def test_of_layers_by_type_only_the_row_of_a_changed_node_runs(seed):
    world, model = World(seed, 5), ByMask().double().eval()
    kinds = torch.arange(len(world.x)) % KINDS
    inc = to_incremental(model, compile_after=None)
    inc(world.x, world.e, kinds)
    up = inc.apply_delta(x_changes=([4], torch.randn(1, 5, dtype=torch.float64)))
    ran = {s.name: s.rows for s in up.stats if s.name.startswith(("lins.", "set_item"))}
    assert ran
    assert set(ran.values()) <= {0, 1}
    assert up.changed.tolist() == sorted({4, *world.e[1, world.e[0] == 4].tolist()})


def test_what_leaves_is_reported_by_its_place():
    world, model = World(0, 5), Leaves().double().eval()
    kinds = torch.arange(len(world.x)) % KINDS
    inc = to_incremental(model)
    before = [rows.clone() for rows in inc(world.x, world.e, kinds)]
    up = inc.apply_delta(x_changes=([3], torch.randn(1, 5, dtype=torch.float64)))
    for was, now, at, rows in zip(before, inc.out, up.changed, up.out, strict=True):
        if now.dim() == 2:
            differ = (was != now).any(1).nonzero().flatten()
            assert at.tolist() == differ.tolist()
            assert_close(rows, now[differ], 0)

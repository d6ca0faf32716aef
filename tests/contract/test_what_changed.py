"""What an update says has changed: old rows, flipped labels, and what a refresh has moved."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GraphSAGE, HeteroConv, SAGEConv

from pyg_incremental import IncrementalError, UnsupportedModelError, to_incremental
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.oracle import full
from tests.side_by_side import clone
from tests.strategies import DELTAS, EVERY, generator, journey, make_world
from tests.trust.small import edge, wrapped
from tests.zoo import CHANNELS

LABELS = 4


class Classes(nn.Module):
    def __init__(self, conv=GCNConv):
        super().__init__()
        self.first, self.last = conv(CHANNELS, 8), conv(8, LABELS)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


class NodesAndEdges(Classes):
    def forward(self, x, edge_index):
        h = super().forward(x, edge_index)
        return h, h[edge_index[0]] * h[edge_index[1]]


class AndSpread(Classes):
    """One of its outputs has no row for each node."""

    def forward(self, x, edge_index):
        h = super().forward(x, edge_index)
        return {"rows": h, "top": h.std(0, keepdim=True)}


class Forked(Classes):
    """Its control flow depends on values, so that updates run full passes."""

    def forward(self, x, edge_index):
        h = super().forward(x, edge_index)
        return h if h.sum() > 0 else 2 * h


class ForkedTwice(Forked):
    def forward(self, x, edge_index):
        h = super().forward(x, edge_index)
        return {"rows": h, "double": 2 * h}


MODELS = {
    "gcn": Classes,
    "max": lambda: Classes(lambda a, b: SAGEConv(a, b, aggr="max")),
    "gat": lambda: Classes(GATConv),
    "nodes and edges": NodesAndEdges,
    "spread of all": AndSpread,
    "full pass": Forked,
    "full pass of two": ForkedTwice,
}


def wrap(name, world, **options):
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    inc = to_incremental(model, **options)
    inc(**world.inputs())
    return model, inc


def old_rows(world, before, changed):
    """What stood in some rows of an output, by the numbers of the oracle's edges, if any."""
    rows = before.new_full((len(changed), *before.shape[1:]), torch.nan)
    for i, at in enumerate(changed.tolist()):
        was = at if world is None else world.edges[at].get("place", len(before))
        if was < len(before):
            rows[i] = before[was]
    return rows


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("asked", ["always", "now and then"])
@pytest.mark.parametrize("name", MODELS)
def test_old_rows_and_flips_after_any_delta(name, asked):
    rng = generator([5, len(name)])
    world = make_world(rng, channels=CHANNELS)
    model, inc = wrap(name, world, compile_after=3)
    labels = {}
    flipped = 0
    for kind in journey(rng, finite=True, kinds=EVERY):
        before = clone(inc.out)
        if not labels:
            labels = {i: t.argmax(1) for i, t in enumerate(tensors_of(before))}
        world.number_edges()
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        old = asked == "always" or rng.random() < 0.5
        up = inc.apply_delta(**delta, old=old)
        want = full(model, world)
        assert_close(inc.out, want)
        if not old:
            assert up.old is None
            labels = {}
            continue
        outputs = zip(*map(tensors_of, (before, up.changed, up.old)), strict=True)
        for i, (was, changed, rows) in enumerate(outputs):
            by_edge = i == 1 and name == "nodes and edges"
            assert_close(rows, old_rows(world if by_edge else None, was, changed), 0, kind)
        if name == "nodes and edges":  # rows of edges move up where others leave
            flips = up.flips[0]
            flipped += _follow(labels, 0, flips, tensors_of(want)[0])
            continue
        flips = up.flips if isinstance(up.flips, dict) else {"": up.flips}
        for i, found in enumerate(flips.values()):
            flipped += _follow(labels, i, found, tensors_of(want)[i])
    assert flipped > 10


def _follow(labels, i, flips, want):
    """Keep a table of labels with the flips alone; it is that of the oracle."""
    known = labels[i]
    table = torch.cat([known, known.new_full((len(want) - len(known),), -1)])
    assert torch.equal(table[flips.ids], flips.old)
    assert bool((flips.old != flips.new).all())
    table[flips.ids] = flips.new
    assert torch.equal(table, want.argmax(1))
    labels[i] = table
    return len(flips.ids)


def test_nothing_is_kept_where_nobody_asks():
    inc = wrapped(warm=True)
    assert inc._before is None
    up = inc.apply_delta(edge_index_add=edge(1, 2))
    assert up.old is None
    with pytest.raises(IncrementalError, match="old=True"):
        _ = up.flips
    was = inc.out.clone()
    up = inc.apply_delta(edge_index_add=edge(3, 2), old=True)
    assert torch.equal(up.old, was[up.changed])
    kept = inc._before
    for _ in range(3):  # from here on the copy follows, whoever asks
        was = inc.out.clone()
        inc.apply_delta(edge_index_add=edge(3, 4))
        up = inc.apply_delta(edge_index_del=edge(3, 4), old=True)
        assert inc._before is kept
        assert_close(up.out, was[up.changed], 1e-5)
    inc.forget()
    assert inc._before is None


def test_a_repeated_delta_has_no_old_rows():
    inc = wrapped()
    inc.apply_delta(edge_index_add=edge(1, 2), delta_id="a")
    up = inc.apply_delta(edge_index_add=edge(1, 2), delta_id="a", old=True)
    assert up.repeated
    assert up.old.shape == (0, 5)
    assert up.flips.ids.numel() == 0


def test_flips_need_labels():
    torch.manual_seed(0)

    class InMatrices(GraphSAGE):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).reshape(-1, 2, 2)

    inc = to_incremental(InMatrices(3, 4, 1, 4).eval())
    inc(torch.randn(9, 3), torch.randint(9, (2, 20)))
    up = inc.apply_delta(x_changes=([0], [[1.0, 2.0, 3.0]]), old=True)
    assert up.old.shape == up.out.shape
    with pytest.raises(UnsupportedModelError, match="threshold"):
        _ = up.flips


def test_labels_that_the_model_gives_itself():
    class Labelled(Classes):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).argmax(-1)

    world = make_world(generator(3), channels=CHANNELS)
    torch.manual_seed(0)
    model = Labelled().double().eval()
    inc = to_incremental(model)
    table = inc(**world.inputs())
    for seed in range(12):
        delta = DELTAS["mixed"](world, generator(seed))
        world.apply(**delta)
        flips = inc.apply_delta(**delta, old=True).flips
        table = torch.cat([table, table.new_full((world.num_nodes - len(table),), -1)])
        assert torch.equal(table[flips.ids], flips.old)
        table[flips.ids] = flips.new
        assert torch.equal(table, full(model, world))


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_refresh_says_what_it_has_moved(name):
    world = make_world(generator(7), channels=CHANNELS)
    model, inc = wrap(name, world)
    for seed in range(3):
        delta = DELTAS["mixed"](world, generator(seed))
        world.apply(**delta)
        inc.apply_delta(**delta)
    up = inc.refresh()
    assert up.version == inc.version == 3
    before = clone(inc.out)
    up = inc.refresh(old=True)  # everything was computed anew just now
    assert all(ids.numel() == 0 for ids in tensors_of(up.changed))
    with torch.no_grad():
        next(p for p in model.last.parameters() if p.dim() == 1)[1] += 100
    up = inc.refresh(old=True)
    rows = zip(*map(tensors_of, (before, inc.out, up.changed, up.out, up.old)), strict=True)
    for was, now, changed, out, old in rows:
        assert changed.tolist() == rows_that_differ(was, now)
        assert torch.equal(out, now[changed])
        assert torch.equal(old, was[changed])
    if name == "nodes and edges":
        assert torch.equal(up.changed_edges[1], world.edge_index()[:, up.changed[1]])
    assert_close(inc.out, full(model, world))


def test_a_refresh_of_some_nodes_says_what_it_has_moved():
    inc = wrapped(warm=True)
    inc.apply_delta(edge_index_add=edge(3, 4), old=True)
    inc._session.engine.aggregators[0].out.tensor[7] += 1.0  # as drift would
    was = inc.out.clone()
    up = inc.refresh([7], old=True)
    assert up.changed.tolist() == rows_that_differ(was, inc.out)
    assert up.changed.numel()
    assert torch.equal(up.old, was[up.changed])
    assert up.stats.rows
    was = inc.out.clone()
    up = inc.apply_delta(edge_index_add=edge(7, 4), old=True)
    assert torch.equal(up.old, was[up.changed])


def test_after_an_interrupt_a_refresh_names_all_rows():
    inc = wrapped()
    inc._session.interrupted = "an update was interrupted"
    assert inc.refresh().changed.numel() == inc.num_nodes
    assert inc.refresh().changed.numel() == 0


def test_by_kind_of_nodes():
    torch.manual_seed(0)
    kinds = [("a", "to", "b"), ("b", "back", "a")]

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HeteroConv({k: SAGEConv((-1, -1), LABELS) for k in kinds})

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    x = {"a": torch.randn(6, 3), "b": torch.randn(5, 2)}
    edges = {k: torch.from_numpy(np.random.default_rng(0).integers(0, 5, (2, 12))) for k in kinds}
    model = Two().eval()
    with torch.no_grad():
        model(x, edges)
    inc = to_incremental(model)
    was = clone(inc(x, edges))
    up = inc.apply_delta(x_changes={"a": ([1, 2], torch.randn(2, 3))}, old=True)
    for kind in "ab":
        assert torch.equal(up.old[kind], was[kind][up.changed[kind]])
        old, new = was[kind].argmax(1), inc.out[kind].argmax(1)
        assert up.flips[kind].ids.tolist() == (old != new).nonzero().view(-1).tolist()

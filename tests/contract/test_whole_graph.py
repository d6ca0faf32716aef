"""Readouts of all nodes together, without `batch`: an aggregate that follows every delta."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import (  # fmt: skip
    GCNConv,
    HeteroConv,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from pyg_incremental import (  # fmt: skip
    GraphDelta,
    IncrementalWarning,
    UnsupportedModelError,
    load,
    to_incremental,
)
from tests.closeness import assert_close
from tests.example import INCREMENTAL, MIXED, Example, Run
from tests.scene import CHANNELS
from tests.side_by_side import clone

WIDTH = 6


class OfAll(nn.Module):
    """A conv, some readout, a classifier."""

    def __init__(self, readout, widths=WIDTH):
        super().__init__()
        self.conv, self.readout = GCNConv(CHANNELS, WIDTH), readout
        self.head = nn.Linear(widths, 3)

    def forward(self, x, edge_index):
        return self.head(self.readout(self.conv(x, edge_index).relu()))


class BesideNodes(OfAll):
    """Rows of nodes, and two that are made of all of them; one has two dimensions."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).relu()
        return h, self.head(h.mean(0)), h.view(-1, 2, 3).sum(0)


class ThenAllAgain(OfAll):
    """What is made of all nodes goes into the row of each."""

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).relu()
        return self.head(h - h.mean(0))


READOUTS = {
    "mean": lambda: OfAll(lambda h: h.mean(0)),
    "mean, a row": lambda: OfAll(lambda h: torch.mean(h, dim=0, keepdim=True)),
    "sum": lambda: OfAll(lambda h: h.sum(dim=-2)),
    "amax": lambda: OfAll(lambda h: h.amax((0,))),
    "amin": lambda: OfAll(lambda h: torch.amin(h, 0, True)),
    "max": lambda: OfAll(lambda h: h.max(0).values),
    "min": lambda: OfAll(lambda h: torch.min(h, 0)[0]),
    "add pool": lambda: OfAll(lambda h: global_add_pool(h, None)),
    "mean pool": lambda: OfAll(lambda h: global_mean_pool(h, None)),
    "max pool": lambda: OfAll(lambda h: global_max_pool(h, None)),
    "several": lambda: OfAll(lambda h: torch.cat([h.mean(0), h.amax(0), h.sum(0)]), 3 * WIDTH),
    "beside nodes": lambda: BesideNodes(None),
}


def run_of(make, seed):
    return Run(Example("of all", "", make), seed)


@pytest.mark.parametrize("make", READOUTS.values(), ids=READOUTS)
def test_every_readout_of_all_follows_every_delta(make, seed):
    run = run_of(make, seed)
    assert run.inc.mode == INCREMENTAL, run.inc.explain()
    assert {s.runs for s in run.inc.explain()} == {INCREMENTAL}
    run.walk(seed)
    run.walk(seed + 1)
    assert run.inc.verify() < 1e-12
    run.inc.refresh()
    run.check()


@pytest.mark.parametrize("options", [{"backend": "reference"}, {"store": "minimal"}], ids=str)
@pytest.mark.parametrize("name", ["mean", "max", "beside nodes"])
def test_in_other_configurations(name, options, seed):
    run = run_of(READOUTS[name], seed)
    scene = run.scene
    run.inc = to_incremental(copy.deepcopy(run.twin), **options)
    run.inc(**scene.arguments())
    assert run.inc.mode == INCREMENTAL
    run.out = clone(run.inc.out)
    run.walk(seed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ThenAllAgain(None),
        lambda: OfAll(lambda h: h.std(0)),
        lambda: OfAll(lambda h: h.mean(0) + h.std(0)),
        lambda: OfAll(lambda h: h.max(0)[1].to(h.dtype)),
        lambda: OfAll(lambda h: h.mean(dim=(0, 1)).expand(WIDTH)),
    ],
    ids=["into each row", "standard deviation", "both", "place", "one number"],
)
def test_what_all_rows_are_for_says_so_and_is_right(make, seed):
    run = run_of(make, seed)
    assert run.inc.mode == MIXED
    run.walk(seed)


def test_a_changed_edge_touches_its_rows_and_that_of_all(seed):
    torch.manual_seed(seed)
    model = READOUTS["mean"]().double().eval()
    inc = to_incremental(model)
    edges = torch.stack([torch.arange(5000), torch.arange(5000).roll(1)])
    inc(torch.randn(5000, CHANNELS).double(), edges)
    up = inc.apply_delta(edge_index_add=torch.tensor([[10], [2000]]))
    # The in-edges of two nodes have other weights; of all nodes there are two other rows.
    assert max(step.rows for step in up.stats.steps) <= 2, up.stats
    assert up.stats.edges_added == 1
    assert inc.verify() < 1e-12


def test_removed_nodes_leave_and_come_back_with_what_names_them(seed, tmp_path):
    torch.manual_seed(seed)
    model = READOUTS["beside nodes"]().double().eval()
    x, edges = torch.randn(12, CHANNELS).double(), torch.randint(12, (2, 30))
    inc = to_incremental(model)
    inc(x, edges)
    there = torch.ones(12, dtype=torch.bool)

    def same():
        place = there.cumsum(0) - 1
        nodes, *of_all = model(x[there], place[edges])
        assert_close(inc.out[0][there], nodes)
        for own, wanted in zip(inc.out[1:], of_all, strict=True):
            assert_close(own, wanted)
        assert inc.verify() < 1e-12

    gone = torch.tensor([2, 5, 7])
    undo = inc.inverse(GraphDelta(nodes_del=gone))
    before = [rows.clone() for rows in inc.out]
    seen = inc.preview(GraphDelta(nodes_del=gone))
    up = inc.apply_delta(nodes_del=gone, old=True)
    rows = zip(up.changed, seen.changed, up.old, before, strict=True)
    for ids, told, old, was in rows:
        assert ids.tolist() == told.tolist()
        assert torch.equal(old, was[ids])
    x, edges = x.index_fill(0, gone, 0), edges[:, ~torch.isin(edges, gone).any(0)]
    there[gone] = False
    same()
    away = inc.inverse(undo)
    inc.apply_delta(undo)
    for own, was in zip(inc.out, before, strict=True):
        assert_close(own, was)
    inc.apply_delta(away)
    same()
    inc.apply_delta(nodes_del=gone[:1])  # nothing is left of it
    same()
    row = torch.ones(1, CHANNELS).double()
    back = GraphDelta(x_changes=(gone[:1], row))
    undo = inc.inverse(back)
    inc.apply_delta(back)  # by a row of features
    x, there[2] = x.index_copy(0, gone[:1], row), True
    same()
    inc.apply_delta(undo)
    x, there[2] = x.index_fill(0, gone[:1], 0), False
    same()
    more = torch.tensor([[5], [0]])
    inc.apply_delta(edge_index_add=more)  # by an edge
    edges, there[5] = torch.cat([edges, more], 1), True
    same()
    inc.apply_delta(  # named and removed at once: it is removed; one comes, and one comes and goes
        nodes_del=torch.tensor([5, 13]),
        x_changes=(torch.tensor([5]), row),
        x_add=torch.cat([row, row]),
        edge_index_add=torch.tensor([[12, 13], [13, 0]]),
    )
    x = torch.cat([x.index_fill(0, torch.tensor([5]), 0), row, 0 * row])
    edges, there = edges[:, ~(edges == 5).any(0)], torch.cat([there, torch.tensor([True, False])])
    there[5] = False
    same()

    for name in ("saved", "refreshed", "compacted"):
        if name == "saved":
            inc.save(tmp_path / "state.pt")
            before, inc = inc, load(tmp_path / "state.pt", model)
            for own, was in zip(inc.out, before.out, strict=True):
                assert torch.equal(own, was)
        elif name == "refreshed":
            inc.refresh()
        else:
            with pytest.raises(UnsupportedModelError, match=r"call compact\(\) first"):
                inc.evaluate()
            ids = inc.compact()
            assert ids.tolist() == torch.where(there, there.cumsum(0) - 1, -1).tolist()
            x, edges, there = x[there], ids[edges], torch.ones(int(there.sum()), dtype=torch.bool)
        same()
        more = torch.randint(len(x), (2, 1))
        more = more if there[more].all() else torch.tensor([[0], [1]])
        inc.apply_delta(edge_index_add=more)
        edges = torch.cat([edges, more], 1)
        same()
    for own, wanted in zip(inc.evaluate(), model(x, edges), strict=True):
        assert_close(own, wanted)


class OfItems(nn.Module):
    """One of two kinds of nodes is read out."""

    def __init__(self):
        super().__init__()
        kinds = [("u", "r", "i"), ("i", "b", "u")]
        self.conv = HeteroConv({k: SAGEConv((CHANNELS, CHANNELS), WIDTH) for k in kinds})

    def forward(self, x_dict, edge_index_dict):
        h = self.conv(x_dict, edge_index_dict)
        return h["u"], h["i"].mean(0)


def test_one_of_several_kinds(seed):
    torch.manual_seed(seed)
    model = OfItems().double().eval()
    x = {kind: torch.randn(n, CHANNELS).double() for kind, n in (("u", 8), ("i", 6))}
    rated = torch.stack([torch.randint(8, (20,)), torch.randint(6, (20,))])
    inc = to_incremental(model)
    inc(x, {("u", "r", "i"): rated, ("i", "b", "u"): rated.flip(0)})
    assert inc.mode == INCREMENTAL
    new = torch.randn(1, CHANNELS).double()
    inc.apply_delta(
        x_add={"i": new}, edge_index_add={("u", "r", "i"): torch.tensor([[1], [6]])},
        nodes_del={"i": torch.tensor([2]), "u": torch.tensor([3])},
    )  # fmt: skip
    assert inc.verify() < 1e-12
    stays, users = torch.tensor([0, 1, 3, 4, 5, 6]), torch.tensor([0, 1, 2, 4, 5, 6, 7])
    rest = {"u": x["u"].index_fill(0, torch.tensor([3]), 0), "i": torch.cat([x["i"], new])[stays]}
    rated = rated[:, (rated[1] != 2) & (rated[0] != 3)]
    place = torch.full((7,), -1).index_copy(0, stays, torch.arange(6))
    to_items = torch.cat([rated, torch.tensor([[1], [6]])], 1)
    to_items, rated = (torch.stack([e[0], place[e[1]]]) for e in (to_items, rated))
    want = model(rest, {("u", "r", "i"): to_items, ("i", "b", "u"): rated.flip(0)})
    assert_close(inc.out[0][users], want[0][users])
    assert_close(inc.out[1], want[1])


def test_beside_a_step_on_all_rows_the_mean_of_all_nodes_is_one(seed):
    run = run_of(lambda: OfAll(lambda h: h.mean(0) + h.std(0)), seed)
    with pytest.warns(IncrementalWarning, match="mean: its result does not have one row"):
        to_incremental(run.twin)(**run.scene.arguments())


def test_a_sum_of_very_many_rows_in_single_precision_is_no_plain_one(seed):
    torch.manual_seed(seed)
    model, n = READOUTS["mean"]().eval(), 300_000
    x, edges = torch.rand(n, CHANNELS), torch.randint(n, (2, 50))
    inc = to_incremental(model)
    inc(x, edges)
    assert inc.mode == INCREMENTAL
    for _ in range(3):
        inc.apply_delta(x_changes=(torch.randint(n, (2,)), torch.rand(2, CHANNELS)))
    exact = copy.deepcopy(model).double()(inc._session.nodes()["x"].double(), edges)
    assert (inc.out - exact).abs().max() < 1e-6

"""What does not fit is named by field and place, or left out; who watches is told."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, SAGEConv

from pyg_incremental import (
    GraphDelta,
    IncrementalError,
    InvalidDeltaError,
    UnsupportedModelError,
    to_incremental,
)
from pyg_incremental.sampling import StreamingSampler
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.strategies import DELTAS, edge_rows, generator, index, journey, make_world, node_rows
from tests.trust.small import drawn as drawn_graph
from tests.trust.small import edge, wrapped

SIZE = 8


def weighted(rng):
    pairs = [(int(u), int(v)) for u, v in rng.integers(0, SIZE, (20, 2))]
    data = {"edge_weight": edge_rows(rng, len(pairs), None, False, torch.float64)}
    world = World(node_rows(rng, SIZE, 5, torch.float64), pairs, data)
    torch.manual_seed(0)
    model = GCNConv(5, 3).double().eval()
    inc = to_incremental(model)
    inc(**world.inputs())
    return world, model, inc


def drawn(rng, count, size=SIZE + 4):
    """Pairs, some of which name nodes that are not there."""
    return index([(int(u) - 2, int(v) - 2) for u, v in rng.integers(0, size, (count, 2))])


def apart(rng, world, undirected):
    """Pairs of which no two are alike, in either direction if that counts; some are there."""
    some = [world.edges[i]["pair"] for i in rng.permutation(len(world.edges))[:3]]
    pairs = [*map(tuple, drawn(rng, 4).t().tolist()), *some]
    pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    kinds = {(tuple(sorted(p)) if undirected else p): p for p in pairs}
    return index([*kinds.values()])


def fits(pair, size=SIZE):
    return all(0 <= int(v) < size for v in pair)


@pytest.mark.parametrize("undirected", [False, True])
def test_what_fits_is_applied_and_the_rest_is_named(undirected, seed):
    rng = generator(seed)
    world, model, inc = weighted(rng)
    refused = 0
    for _ in range(15):
        come = drawn(rng, 6)
        leave, change = (apart(rng, world, undirected) for _ in range(2))
        if not undirected:
            leave = torch.cat([leave, leave[:, :2]], 1)  # listed twice
        change = torch.cat([change, change[:, 1:4].flip(0) if undirected else change[:, 1:4]], 1)
        ids = torch.from_numpy(rng.permutation(SIZE + 4)[:5] - 2)
        rows, weight, other = torch.randn(5, 5), torch.rand(6), torch.rand(change.shape[1])
        gone = torch.from_numpy(rng.integers(-1, SIZE + 1, 1))
        up = inc.apply_delta(
            edge_index_add=come, edge_weight_add=weight, edge_index_del=leave,
            edge_changes=(change, {"edge_weight": other}), x_changes=(ids, rows), nodes_del=gone,
            undirected=undirected, invalid="skip",
        )  # fmt: skip
        # One entry at a time, by somebody who asks the graph first.
        want = set()

        def kept(edges, what, want=want):
            left = [at for at, pair in enumerate(edges.t().tolist()) if fits(pair)]
            want |= {(what, at) for at in range(edges.shape[1]) if at not in left}
            return left

        leaves = kept(leave, "edge_index_del")
        for at in leaves:
            pair = tuple(leave[:, at].tolist())
            for way in [pair, pair[::-1]] if undirected and pair[0] != pair[1] else [pair]:
                try:
                    world.apply(edge_index_del=index([way]))
                except KeyError:
                    want.add(("edge_index_del", at))
        at = kept(come, "edge_index_add")
        double = weight.double()
        world.apply(edge_index_add=come[:, at], edge_weight_add=double[at], undirected=undirected)
        at = [i for i, v in enumerate(ids.tolist()) if 0 <= v < SIZE]
        want |= {("x_changes", i) for i in range(5) if i not in at}
        world.apply(x_changes=(ids[at], rows.double()[at]))
        for at in kept(change, "edge_changes"):
            pair = tuple(change[:, at].tolist())
            for way in [pair, pair[::-1]] if undirected and pair[0] != pair[1] else [pair]:
                try:
                    data = {"edge_weight": other.double()[[at]]}
                    world.apply(edge_changes=(index([way]), data))
                except KeyError:
                    want.add(("edge_changes", at))
        if fits(gone.tolist()):
            world.apply(nodes_del=gone)
        else:
            want.add(("nodes_del", 0))
        found = {(r.what, r.position) for r in up.refused}
        assert found == want
        assert len(found) == len(up.refused)
        assert all(r.reason.startswith(r.what) for r in up.refused)
        assert_close(inc.out, full(model, world))
        assert torch.equal(inc.edge_data("edge_weight"), world.edge_data("edge_weight"))
        refused += len(found)
    assert refused > 30
    assert inc.check() == []


def test_a_delta_that_fits_refuses_nothing():
    rng = generator(0)
    world = make_world(rng, channels=5)
    model = GCNConv(5, 3).double().eval()
    inc = to_incremental(model)
    inc(**world.inputs())
    for kind in journey(rng, finite=True):
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        assert not inc.apply_delta(**delta, invalid="skip").refused
        assert_close(inc.out, full(model, world))


def weights(pairs):
    return index(pairs), {"edge_weight": torch.rand(len(pairs))}


HERE = tuple(drawn_graph()[1][:, 0].tolist())
TWICE = (
    ([HERE, (1, 2), HERE, (1, 1)], (1, 3), {}),
    ([(1, 2), (1, 1), (1, 2), HERE], (0, 1, 2), {}),
    ([(4, 0), (0, 4), (1, 1), (0, 4)], (0, 1, 2, 3), {"undirected": True}),
)
"""Edges, some listed twice; which of them are not there."""


def test_an_error_has_fields():
    inc, weighs = wrapped(), to_incremental(GCNConv(6, 3).eval())
    weighs(*drawn_graph(), torch.rand(120))
    for delta, what, positions in (
        ({"edge_index_add": index([(0, 1), (0, 99), (1, 2), (-1, 0)])}, "edge_index_add", (1, 3)),
        ({"x_changes": ([3, 77], torch.ones(2, 6))}, "x_changes", (1,)),
        ({"nodes_del": [1, -4]}, "nodes_del", (1,)),
        ({"edge_index_del": index([(0, 0)] * 3), "undirected": True}, "edge_index_del", (1, 2)),
        ({"edge_index_add": index([(1, 2), (3, 99)]), "undirected": True}, "edge_index_add", (1,)),
        *(({"edge_changes": weights(of), **more}, "edge_changes", at) for of, at, more in TWICE),
    ):
        with pytest.raises(InvalidDeltaError) as raised:
            (weighs if "edge_changes" in delta else inc).apply_delta(**delta)
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert (error.what, error.positions) == (what, positions)
            assert what in str(error)
    with pytest.raises(InvalidDeltaError) as raised:
        inc.apply_delta(x_changes=([0], torch.ones(1, 7)))
    assert (raised.value.what, raised.value.positions) == ("", ())
    assert inc.version == 0


def test_fields_by_type_are_named_with_it():
    rates, likes = ("user", "rates", "film"), ("film", "likes", "user")
    model = HeteroConv({k: SAGEConv((4, 4), 3) for k in (rates, likes)}).eval()
    inc = to_incremental(model)
    pairs = {rates: index([(0, 1)]), likes: index([(1, 0)])}
    inc({"user": torch.randn(3, 4), "film": torch.randn(2, 4)}, pairs)
    up = inc.apply_delta(
        edge_index_add={likes: index([(1, 5), (1, 2)])}, nodes_del={"user": [7]}, invalid="skip"
    )
    found = [(r.what, r.position) for r in up.refused]
    assert sorted(found) == [(f"edge_index_add[{likes!r}]", 0), ("nodes_del['user']", 0)]
    assert inc.num_edges == 3
    assert inc.verify() < 1e-6


def test_skipping_does_not_forgive_everything():
    inc = wrapped()
    for delta in (
        {"x_add": torch.ones(1, 7)},
        {"edge_index_add": torch.ones(2, 2)},
        {"invalid": "ignore"},
    ):
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(**{"invalid": "skip", **delta})
    with pytest.raises(InvalidDeltaError, match="as a whole"):
        StreamingSampler(edge(0, 1), 2, [1]).apply_delta(edge(1, 0), invalid="skip")
    with pytest.raises(InvalidDeltaError, match="differ in 'invalid'"):
        GraphDelta(edge_index_del=edge(0, 1), invalid="skip") + GraphDelta(
            edge_index_del=edge(1, 0)
        )


# Lists ############################################################################################


def test_two_edges_are_read_as_three_are():
    inc = to_incremental(GATConv(4, 3).eval())
    inc(torch.randn(6, 4), index([(0, 2), (1, 3), (4, 5), (5, 4), (4, 4)]))
    inc.apply_delta(edge_index_del=[[0, 1], [2, 3]])  # (0, 1) and (2, 3) are not there
    assert inc.graph.to_edge_index().tolist() == [[4, 5, 4], [5, 4, 4]]
    inc.apply_delta(edge_index_add=[[0, 1], [1, 0]])  # the same either way
    assert inc.graph.to_edge_index()[:, 3:].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InvalidDeltaError, match=r"torch.tensor\(\[\[0, 1\], \[2, 3\]\]\)\.t\(\)"):
        inc.apply_delta(edge_index_add=[[0, 1], [2, 3]])
    with pytest.raises(InvalidDeltaError, match="is not in the graph"):
        inc.apply_delta(edge_index_del=[[0, 1], [2, 3]])
    inc.apply_delta(edge_index_add=index([(0, 1), (2, 3), (0, 2), (1, 3)]))
    with pytest.raises(InvalidDeltaError, match="0 -> 2 and 1 -> 3, or 0 -> 1 and 2 -> 3"):
        inc.apply_delta(edge_index_del=[[0, 1], [2, 3]])
    with pytest.raises(InvalidDeltaError, match="may be the edges"):
        GraphDelta(edge_index_add=[[0, 1], [2, 3]], undirected=True).both_directions()


def test_ids_of_two_kinds_tell():
    rates, likes = ("user", "rates", "film"), ("film", "likes", "user")
    inc = to_incremental(HeteroConv({k: SAGEConv((4, 4), 3) for k in (rates, likes)}).eval())
    pairs = {rates: index([(0, 1)]), likes: index([(1, 0)])}
    inc({"user": torch.randn(9, 4), "film": torch.randn(2, 4)}, pairs)
    inc.apply_delta(edge_index_add={rates: [[7, 8], [0, 1]]})  # no film is called 8
    assert inc.graph[rates].to_edge_index().tolist() == [[0, 7, 8], [1, 0, 1]]


# Alerts ###########################################################################################


class Score(nn.Module):
    def __init__(self, width=1, squeeze=False, last=nn.Identity):
        super().__init__()
        self.c, self.squeeze, self.last = SAGEConv(5, width), squeeze, last()

    def forward(self, x, edge_index):
        out = self.last(self.c(x, edge_index))
        return out.squeeze(1) if self.squeeze else out


@pytest.mark.parametrize("squeeze", [False, True])
def test_one_logit(squeeze, seed):
    rng = generator(seed)
    torch.manual_seed(seed)
    world = make_world(rng, channels=5)
    model = Score(squeeze=squeeze).double().eval()
    inc = to_incremental(model)
    before = inc(**world.inputs()).reshape(-1)
    flipped = 0
    for kind in journey(rng, finite=True):
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        up = inc.apply_delta(**delta, old=True)
        now = full(model, world).reshape(-1)
        was = torch.cat([before, before.new_full((len(now) - len(before),), torch.nan)])
        for threshold in (0.0, 0.3):
            found = up.crossed(threshold)
            at = ((was >= threshold) != (now >= threshold)).nonzero().flatten()
            assert found.ids.tolist() == at.tolist()
            assert found.rose.tolist() == (now >= threshold)[at].tolist()
            assert_close(found.new, now[at])
        label = torch.where(was.isnan(), -1, (was > 0).long())
        at = (label != (now > 0).long()).nonzero().flatten()
        found = up.flips
        assert found.ids.tolist() == at.tolist()
        assert torch.equal(found.old, label[at])
        flipped += len(at)
        before = now
    assert flipped > 3


def test_what_cannot_be_told_is_refused():
    torch.manual_seed(0)
    x, pairs = torch.randn(30, 5), torch.randint(30, (2, 60))
    inc = to_incremental(Score(last=nn.Sigmoid).eval())
    inc(x, pairs)
    up = inc.apply_delta(x_changes=(torch.arange(30), -x), old=True)
    with pytest.raises(UnsupportedModelError, match=r"crossed\(0.5\)"):
        _ = up.flips
    assert len(up.crossed(0.5).ids) > 3
    inc = to_incremental(Score(width=3).eval())
    inc(x, pairs)
    up = inc.apply_delta(x_changes=(torch.arange(30), -x), old=True)
    with pytest.raises(UnsupportedModelError, match="channel=1"):
        up.crossed(0.5)
    assert torch.equal(up.crossed(0.1, channel=2).new, up.out[up.crossed(0.1, channel=2).ids, 2])
    with pytest.raises(IncrementalError, match="old=True"):
        inc.apply_delta(edge(0, 1)).crossed(0.5)


def test_who_watches_is_told():
    inc, told, risen = wrapped(), [], []
    handle = inc.on_update(told.append)
    up = inc.apply_delta(edge(0, 1))
    assert told == [up]
    assert up.old is None
    other = inc.on_update(lambda up: risen.append(up.crossed(0.0, channel=0)), old=True)
    up = inc.apply_delta(x_changes=([3], torch.ones(1, 6)), delta_id="a")
    assert told[1:] == [up]
    assert up.old is not None
    assert len(risen) == 1
    inc.apply_delta(x_changes=([3], torch.ones(1, 6)), delta_id="a")
    assert len(told) == 2  # it was applied before
    inc.preview(edge(0, 1))
    with pytest.raises(InvalidDeltaError):
        inc.apply_delta(edge(0, 1000))
    assert len(told) == 2
    other.remove()
    handle.remove()
    inc.apply_delta(edge(0, 1))
    assert (len(told), len(risen)) == (2, 1)


def test_what_is_told_may_read_and_apply_and_raise():
    inc, seen = wrapped(), []

    def follow(up):
        reader = threading.Thread(target=lambda: seen.append(inc.read([0]).version))
        reader.start()
        reader.join()  # nobody is kept waiting
        if up.version < 3:
            inc.apply_delta(edge(1, 2))

    handle = inc.on_update(follow)
    inc.apply_delta(edge(0, 1))
    assert seen == [1, 2, 3]
    handle.remove()
    inc.on_update(lambda up: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        inc.apply_delta(edge(0, 1))
    assert inc.version == 4
    assert inc.verify() < 1e-5


def test_the_way_back_on_request(seed):
    rng = generator(seed)
    world, model, inc = weighted(rng)
    for kind in ("delete_edges", "change_features", "mixed", "remove_nodes", "change_edge_data"):
        delta, before = DELTAS[kind](world, rng), copy.deepcopy(world)
        world.apply(**delta)
        up = inc.apply_delta(**delta, undo=True)
        assert_close(inc.out, full(model, world))
        back = inc.apply_delta(up.undo)
        with pytest.raises(IncrementalError, match="ask for it with apply_delta"):
            inc.apply_delta(back.undo)  # None would be an empty delta
        assert_close(inc.out[: before.num_nodes], full(model, before))
        world = before
        inc(**world.inputs())

"""Ids of removed nodes are given back: memory is that of the nodes that are left."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GraphNorm, HeteroConv, SAGEConv

from pyg_incremental import StaleStateError, load, to_incremental
from tests.closeness import assert_close
from tests.contract.test_join import MODELS as WITH_DATA
from tests.contract.test_what_changed import MODELS as SHAPES
from tests.contract.test_what_changed import Classes, NodesAndEdges
from tests.oracle import full
from tests.strategies import DELTAS, EVERY, generator, index, journey, make_world
from tests.trust.small import CHANNELS as SMALL
from tests.trust.small import edge, wrapped
from tests.zoo import CHANNELS


class Normed(nn.Module):
    """Removed nodes count, as long as they have an id."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = GCNConv(CHANNELS, 8), GraphNorm(8), GATConv(8, 4)

    def forward(self, x, edge_index):
        return self.last(self.norm(self.conv(x, edge_index)).relu(), edge_index)


MODELS = {name: (make, ()) for name, make in SHAPES.items()} | WITH_DATA | {"norm": (Normed, ())}


def compacted(world, ids):
    """What is left of a world: it knows nothing of how."""
    stays = [v for v, new in enumerate(ids.tolist()) if new >= 0]
    assert ids[stays].tolist() == list(range(len(stays)))
    gone = set(range(world.num_nodes)) - set(stays)
    assert not any(gone & set(pair) for pair in world.pairs())
    world.x = world.x[stays]
    for one in world.edges:
        u, v = one["pair"]
        one["pair"] = (stays.index(u), stays.index(v))
    return gone


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_model_on_what_is_left_then_and_after_any_delta(name):
    make, data = MODELS[name]
    rng = generator([17, len(name)])
    world = make_world(rng, nodes=60, edges=90, channels=CHANNELS, data=data)
    torch.manual_seed(0)
    model = make().double().eval()
    inc = to_incremental(model, compile_after=3)
    inc(**world.inputs())
    removed, given_back = set(), 0
    kinds = journey(rng, finite=True, kinds=EVERY)
    for at in range(2, len(kinds), 5):
        kinds[at:at] = ["remove_nodes"]
    for i, kind in enumerate(kinds):
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        inc.apply_delta(**delta, old=i % 2 == 0)
        removed |= set(delta.get("nodes_del", torch.zeros(0)).long().tolist())
        if i % 4 == 3:
            back = {v for v in removed if any(v in p for p in world.pairs()) or world.x[v].any()}
            version = inc.version
            gone = compacted(world, inc.compact())
            assert gone == removed - back
            assert inc.version == version + 1
            given_back += len(gone)
            removed = set()  # those that are there again have to be removed again
        assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
        assert torch.equal(inc.x, world.x)
        for rows in world.names:
            assert torch.equal(inc.edge_data(rows), world.edge_data(rows))
        assert_close(inc.out, full(model, world))
    assert given_back > 5
    assert inc.check() == []


DAY = 1000


def day(inc, i, rng):
    """As many nodes come as leave; each that comes knows three that are there."""
    new = torch.arange(DAY) + inc.num_nodes
    old = torch.arange(DAY) + inc.num_nodes - DAY
    ends = old[torch.from_numpy(rng.integers(0, DAY, 3 * DAY))]
    inc.apply_delta(
        x_add=torch.from_numpy(rng.standard_normal((DAY, SMALL))).float(),
        edge_index_add=torch.stack([new.repeat(3), ends]),
        undirected=True,
    )
    inc.apply_delta(nodes_del=old)


def test_twenty_days_leave_the_memory_of_one():
    days, sizes, left = 20, {}, {}
    for compacts in (False, True):
        inc, rng = wrapped(nodes=DAY, edges=3 * DAY), generator(0)
        first = inc.memory_report().total
        for i in range(days):
            day(inc, i, rng)
            if compacts:
                ids = inc.compact()
                assert ids.tolist() == [-1] * DAY + list(range(DAY))
                assert inc.memory_report().total < 1.3 * first
        sizes[compacts], left[compacts] = inc.memory_report().total, inc
    assert sizes[False] > 10 * sizes[True]
    inc, other = left[True], left[False]
    assert inc.num_nodes == DAY
    assert_close(inc.x, other.x[-DAY:], 0)  # the same nodes, under other ids
    assert_close(inc.out, other.out[-DAY:], 1e-4)
    assert inc.verify() < 1e-5


def test_a_node_that_is_there_again_stays():
    inc = wrapped(nodes=40)
    inc.apply_delta(nodes_del=[3, 5, 7, 9])
    inc.apply_delta(x_changes=(5, torch.ones(SMALL)), edge_index_add=edge(7, 1))
    ids = inc.compact()
    assert (ids < 0).nonzero().view(-1).tolist() == [3, 9]
    assert inc.num_nodes == 38
    assert (inc.compact() == torch.arange(38)).all()  # nothing is left to give back
    assert inc.verify() < 1e-5


def test_what_was_removed_is_saved_and_outlives_a_refresh(tmp_path):
    inc = wrapped(nodes=40)
    inc.apply_delta(nodes_del=[3, 5])
    inc.refresh()
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", inc.model)
    for one in (inc, again):
        assert one.compact()[[2, 3, 4, 5, 6]].tolist() == [2, -1, 3, -1, 4]
        assert one.version == 2
        assert one.verify() < 1e-5
    assert_close(inc.out, again.out)
    inc(inc.x.clone(), inc.graph.to_edge_index())  # another graph: nobody was removed from it
    assert inc.compact().min() == 0


def test_if_it_fails_nothing_has_changed():
    inc = wrapped(nodes=40)
    inc.apply_delta(nodes_del=[3])
    digest = inc.state_digest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(inc._session), "fill", lambda *a: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            inc.compact()
    assert (inc.state_digest(), inc.version, inc.stale) == (digest, 1, None)
    assert inc.compact()[3] == -1
    with pytest.raises(StaleStateError, match="not been called"):
        to_incremental(Classes().eval()).compact()


def test_by_kind_and_by_learned_rows():
    torch.manual_seed(0)
    kinds = [("a", "to", "b"), ("b", "back", "a")]

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = HeteroConv({k: SAGEConv((-1, -1), 4) for k in kinds})

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    x = {"a": torch.randn(6, 3).double(), "b": torch.randn(5, 2).double()}
    edges = {k: torch.randint(5, (2, 12)) for k in kinds}
    model = Two().eval().double()
    with torch.no_grad():
        model(x, edges)
    inc = to_incremental(model)
    inc(x, edges)
    inc.apply_delta(nodes_del={"a": [1]})
    ids = inc.compact()
    assert ids["a"].tolist() == [0, -1, 1, 2, 3, 4]
    assert ids["b"].tolist() == [0, 1, 2, 3, 4]
    assert inc.verify() < 1e-9
    inc.apply_delta(edge_index_add={kinds[0]: index([(4, 4)])}, nodes_del={"b": [0]})
    assert inc.verify() < 1e-9

    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.conv = nn.Parameter(torch.randn(6, 3)), GCNConv(3, 2)
            self.num_nodes = 6

        def forward(self, edge_index):
            return self.conv(self.rows, edge_index)

    inc = to_incremental(Learned().eval())
    inc(torch.randint(6, (2, 9)))
    inc.apply_delta(edge_index_del=inc.graph.to_edge_index())
    assert inc.compact().tolist() == list(range(6))


def test_rows_of_edges_move_up_with_their_nodes():
    inc = to_incremental(NodesAndEdges().eval())
    inc(torch.randn(5, CHANNELS), torch.tensor([[0, 4, 2], [4, 2, 3]]))
    inc.apply_delta(nodes_del=[0])
    before = inc.out[1].clone()
    assert inc.compact().tolist() == [-1, 0, 1, 2, 3]
    assert inc.graph.to_edge_index().tolist() == [[3, 1], [1, 2]]
    assert_close(inc.out[1], before)

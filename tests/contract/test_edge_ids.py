"""Edges with ids: deltas delete them by these alone, whatever their ends and however many alike."""

import uuid

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv, HeteroConv, SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, load, to_incremental
from pyg_incremental.session.edge_ids import Identified
from tests.closeness import assert_close

SPELL = {
    "keys": lambda i: 2**40 + 7919 * i,
    "text": lambda i: f"edge {i}",
    "uuid": lambda i: uuid.UUID(int=2**90 + i),
    "mixed": lambda i: i if i % 2 else str(i),
}
NODES = 6


class World:
    """Nodes and edges with ids, as plain Python keeps them."""

    def __init__(self, rng, spell, count=20):
        self.rng, self.spell, self.came = rng, SPELL[spell], 0
        self.x = torch.from_numpy(rng.standard_normal((NODES, 3)))
        self.edges = {}
        self.add(count)

    def add(self, count):
        """New edges, of few pairs, so that many are parallel."""
        new = {}
        for _ in range(count):
            self.came += 1
            u, v = self.rng.integers(len(self.x), size=2).tolist()
            new[self.spell(self.came)] = (u, min(v, 2), float(self.rng.random()))
        self.edges |= new
        return new

    def some(self, most):
        ids = list(self.edges)
        return [ids[i] for i in self.rng.permutation(len(ids))[: self.rng.integers(most + 1)]]

    def inputs(self):
        every = [*self.edges.values()]
        return self.x, pairs(every), torch.tensor([w for *_, w in every], dtype=torch.float64)

    def delta(self):
        """A mixed delta, which is applied here, as fields."""
        rng, fields = self.rng, {}
        way = rng.integers(4)
        gone = self.some(4)
        if gone and way:
            fields["edge_ids_del"] = gone
        elif gone:
            fields["edge_index_del"] = pairs([self.edges[i] for i in gone])
            fields["edge_data_del"] = {"edge_ids": as_given(gone)}
        for i in gone:
            del self.edges[i]
        new = self.add(rng.integers(6))
        if new:
            fields["edge_index_add"] = pairs(new.values())
            fields["edge_weight_add"] = [w for *_, w in new.values()]
            if way:
                fields["edge_ids_add"] = [*new]
            else:
                fields["edge_data_add"] = {"edge_ids": as_given(new)}
        if rng.random() < 0.4:
            node = int(rng.integers(len(self.x)))
            self.x[node] = torch.from_numpy(rng.standard_normal(3))
            fields["x_changes"] = [node], self.x[[node]].clone()
        if rng.random() < 0.2:
            row = torch.from_numpy(rng.standard_normal((1, 3)))
            fields["x_add"], self.x = row, torch.cat([self.x, row])
        if rng.random() < 0.2:
            node = int(rng.integers(len(self.x)))
            fields["nodes_del"] = [node]
            self.x[node] = 0
            self.edges = {i: e for i, e in self.edges.items() if node not in e[:2]}
            fields.pop("x_changes", None) if fields.get("x_changes", ([-1],))[0] == [node] else None
        return fields


def as_given(ids):
    are_keys = all(type(i) is int for i in ids)
    return torch.tensor([*ids], dtype=torch.int64) if are_keys else [*ids]


def pairs(edges):
    found = [edge[:2] for edge in edges]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 2).t().contiguous()


def started(world, model=None):
    torch.manual_seed(0)
    model = (model or GraphConv(3, 2)).double().eval()
    inc = to_incremental(model, compile_after=3)
    inc(*world.inputs(), edge_ids=as_given(world.edges))
    return model, inc


def check(inc, model, world):
    assert_close(inc.out, model(*world.inputs()).detach())
    assert list(inc.edge_ids.tolist()) == [*world.edges]
    assert not inc.check()


@pytest.mark.parametrize("spell", SPELL)
def test_random_deltas_by_id(seed, spell):
    world = World(np.random.default_rng(seed), spell)
    model, inc = started(world)
    check(inc, model, world)
    for _ in range(30):
        before = inc.out.clone(), [*inc.edge_ids.tolist()]
        delta = GraphDelta(**world.delta())
        would = inc.preview(delta)
        up = inc.apply_delta(delta, undo=True)
        assert torch.equal(would.changed, up.changed)
        check(inc, model, world)
        if delta.x_add is None and delta.nodes_del is None and world.rng.random() < 0.4:
            now = inc.out.clone(), [*inc.edge_ids.tolist()]
            again = inc.apply_delta(up.undo, undo=True).undo  # back, and there again
            assert_close(inc.out, before[0])
            assert sorted(map(str, inc.edge_ids.tolist())) == sorted(map(str, before[1]))
            inc.apply_delta(again)
            assert_close(inc.out, now[0])
            assert sorted(map(str, inc.edge_ids.tolist())) == sorted(map(str, now[1]))
            inc(*world.inputs(), edge_ids=as_given(world.edges))


@pytest.mark.parametrize("spell", ["keys", "text"])
def test_files_compact_and_refresh_keep_them(seed, spell, tmp_path):
    world = World(np.random.default_rng(seed), spell)
    model, inc = started(world)
    for turn in range(6):
        inc.apply_delta(**world.delta())
        if turn % 3 == 0:
            inc.refresh()
        if turn % 3 == 1:
            inc.save(tmp_path / "state")
            inc = load(tmp_path / "state", model)
        check(inc, model, world)
    inc.apply_delta(nodes_del=[0])
    world.edges = {i: e for i, e in world.edges.items() if 0 not in e[:2]}
    inc.compact()
    some = [*world.edges][:2]
    inc.apply_delta(edge_ids_del=some)
    assert inc.edge_ids.tolist() == [*world.edges][2:]
    assert inc.verify() < 1e-12


class Scores(torch.nn.Module):
    """A row of the output for each edge."""

    def __init__(self):
        super().__init__()
        self.conv, self.lin = SAGEConv(3, 4), torch.nn.Linear(8, 2)

    def forward(self, x, edge_index, edge_weight):
        h = self.conv(x, edge_index)
        return self.lin(torch.cat([h[edge_index[0]], h[edge_index[1]]], -1)) * edge_weight[:, None]


@pytest.mark.parametrize("spell", ["keys", "text"])
def test_updates_tell_the_ids_of_edges(seed, spell):
    world = World(np.random.default_rng(seed), spell)
    model, inc = started(world, Scores())
    told = dict(zip(world.edges, inc.out.clone(), strict=True))
    for _ in range(10):
        up = inc.apply_delta(**world.delta())
        told |= dict(zip(up.changed_edge_ids.tolist(), up.out, strict=True))
        want = model(*world.inputs()).detach()
        assert_close(torch.stack([told[i] for i in world.edges]), want)


def test_both_directions_have_one_id():
    conv, x = GraphConv(3, 2).double().eval(), torch.randn(4, 3).double()
    edges, one = torch.tensor([[0, 1, 2, 3, 1, 1], [1, 0, 3, 2, 1, 0]]), torch.ones(6).double()
    inc = to_incremental(conv)
    inc(x, edges, one, edge_ids=["a", "a", "b", "b", "loop", "alone"])
    inc.apply_delta(edge_ids_del=["a"])
    assert inc.edge_ids.tolist() == ["b", "b", "loop", "alone"]
    new = torch.tensor([[0], [3]])
    inc.apply_delta(
        edge_index_add=new, edge_ids_add=["a"], edge_weight_add=one[:1], undirected=True
    )
    assert inc.edge_ids.tolist() == ["b", "b", "loop", "alone", "a", "a"]
    inc.apply_delta(edge_ids_del=["b"], undirected=True)
    inc.apply_delta(edge_ids_del=["a", "loop"])
    assert inc.edge_ids.tolist() == ["alone"]
    assert_close(inc.out, conv(x, edges[:, 5:], one[:1]).detach())


def test_names_of_nodes_beside_ids_of_edges():
    conv, x = SAGEConv(3, 2).double().eval(), torch.randn(3, 3).double()
    edges = torch.tensor([[0, 0, 1], [1, 1, 2]])
    inc = to_incremental(conv)
    inc(x, edges, node_ids=["a", "b", "c"], edge_ids=["e", "f", "g"])
    up = inc.apply_delta(
        edge_ids_del=["e"], edge_index_add=[["a"], ["c"]], edge_ids_add=["h"], undo=True
    )
    assert up.changed.tolist() == ["c"]
    inc.apply_delta(up.undo)
    assert sorted(inc.edge_ids) == ["e", "f", "g"]
    assert_close(inc.out, conv(x, edges).detach())
    inc.apply_delta(nodes_del=["b"])
    inc.apply_delta(edge_index_add=[["c"], ["a"]], edge_ids_add=["e"])  # who has left may come
    assert inc.edge_ids.tolist() == ["e"]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("spell", SPELL)
def test_few_edges_are_read_in_one_look(spell, named, monkeypatch):
    """Of parallel edges only the youngest is; others, and all mistakes, are looked at closer."""
    closer, plain = [], Identified.__init__
    monkeypatch.setattr(Identified, "__init__", lambda *a: closer.append(a) or plain(*a))
    of, nodes = SPELL[spell], [f"n{i}" for i in range(NODES)]
    rng = np.random.default_rng(0)
    conv, x = SAGEConv(3, 2).double().eval(), torch.from_numpy(rng.standard_normal((NODES, 3)))
    edges = {of(i): tuple(rng.integers(NODES, size=2).tolist()) for i in range(30)}
    inc = to_incremental(conv, compile_after=1)
    names = {"node_ids": nodes} if named else {}
    inc(x, pairs(edges.values()), edge_ids=as_given(edges), **names)
    inc.apply_delta(x_changes=([nodes[0] if named else 0], x[:1]))
    looked = 0
    for turn in range(100, 220):
        index = inc.edge_ids.tolist()
        leave = [index[i] for i in rng.permutation(len(index))[: turn % 3]]
        new = {of(10 * turn + i): rng.integers(NODES, size=2).tolist() for i in range(turn % 5)}
        fields = {"edge_ids_del": leave} if leave else {}
        if new:
            ends = [*map(list, zip(*new.values(), strict=True))]
            given = np.array([[nodes[i] for i in side] for side in ends], object) if named else None
            fields |= {
                "edge_ids_add": [*new],
                "edge_index_add": given if named else pairs(new.values()),
            }
        left, is_plain = dict(edges), True
        for i in leave:
            is_plain &= i == [other for other, ends in left.items() if ends == edges[i]][-1]
            del left[i]
        closer.clear()
        as_one = [GraphDelta(**fields)] if turn % 2 else []
        inc.apply_delta(*as_one, **({} if as_one else fields))
        assert len(closer) == (not is_plain), fields
        looked += is_plain and bool(fields)
        edges = left | {i: tuple(e) for i, e in new.items()}
        assert inc.edge_ids.tolist() == [*edges]
        assert_close(inc.out, conv(x, pairs(edges.values())).detach())
    assert looked > 40
    some = [*edges][:2]
    for wrong in (True, float(2**40), [some[0]], None, some[0]):
        with pytest.raises(InvalidDeltaError, match="edge_ids_del"):
            inc.apply_delta(edge_ids_del=[some[1], wrong, *some[:1]])
    ends = np.array([["n0"], ["n1"]], object) if named else torch.tensor([[0], [1]])
    with pytest.raises(InvalidDeltaError, match="edge_ids_add"):
        inc.apply_delta(edge_index_add=ends, edge_ids_add=[some[0]])
    assert inc.edge_ids.tolist() == [*edges]


def test_each_type_of_edges_has_its_own():
    kinds = [("u", "r", "v"), ("v", "b", "u")]
    model = HeteroConv({kind: SAGEConv((3, 3), 2) for kind in kinds}).double().eval()
    x = {"u": torch.randn(3, 3).double(), "v": torch.randn(4, 3).double()}
    there = torch.tensor([[0, 0, 1], [1, 1, 2]])
    inc = to_incremental(model)
    ids = {kinds[0]: ["a", "b", "c"], kinds[1]: torch.tensor([7, 8, 9])}
    inc(x, dict.fromkeys(kinds, there), edge_ids=ids)
    inc.apply_delta(edge_ids_del={kinds[0]: ["a"], kinds[1]: [9]})
    want = model(x, {kinds[0]: there[:, 1:], kinds[1]: there[:, :2]})
    assert_close(inc.out["v"], want["v"].detach())
    assert_close(inc.out["u"], want["u"].detach())
    assert inc.edge_ids[kinds[0]].tolist() == ["b", "c"]
    assert inc.edge_ids[kinds[1]].tolist() == [7, 8]
    new = torch.tensor([[2], [0]])
    inc.apply_delta(
        edge_index_add={kinds[0]: new, kinds[1]: new}, edge_ids_add={kinds[0]: ["a"], kinds[1]: [9]}
    )
    assert inc.edge_ids[kinds[0]].tolist() == ["b", "c", "a"]
    assert inc.edge_ids[kinds[1]].tolist() == [7, 8, 9]


def test_what_does_not_fit_names_the_id():
    world = World(np.random.default_rng(0), "text")
    _, inc = started(world)
    inc.apply_delta(nodes_del=[1])
    left = next(i for i, e in world.edges.items() if 1 in e[:2])
    first, *_ = inc.edge_ids.tolist()
    new = {"edge_index_add": torch.tensor([[0], [2]]), "edge_weight_add": [0.5]}
    for fields, match in (
        ({"edge_ids_del": ["nobody"]}, r"edge_ids_del: there is no edge 'nobody' \(position 0\)"),
        ({"edge_ids_del": [first, left]}, rf"no edge '{left}' \(position 1\)"),
        ({"edge_ids_del": [first, first]}, "given twice"),
        ({"edge_ids_del": [first], "edge_index_del": torch.tensor([[0], [0]])}, "got both"),
        ({**new, "edge_ids_add": [first]}, f"there is an edge '{first}' already"),
        ({**new, "edge_ids_add": ["p", "q"]}, "an id for each of the 1 edges"),
        (new, "an id for each of the 1 edges"),
    ):
        with pytest.raises(InvalidDeltaError, match=match):
            inc.apply_delta(**fields)
    assert inc.version == 1
    up = inc.apply_delta(edge_ids_del=["nobody", first], invalid="skip")
    assert [(r.what, r.position) for r in up.refused] == [("edge_ids_del", 0)]
    inc.apply_delta(edge_ids_del=["nobody"], missing="ignore")
    with pytest.raises(InvalidDeltaError, match="'e' names two edges"):
        inc(*world.inputs(), edge_ids=["e"] * len(world.edges))
    bare = to_incremental(SAGEConv(3, 2).double().eval())
    bare(*world.inputs()[:2])
    with pytest.raises(InvalidDeltaError, match="edges have no ids"):
        bare.apply_delta(edge_ids_del=[1])


def test_integers_stay_integers():
    with pytest.raises(InvalidDeltaError, match=r"edge_ids: expected integers.*float32"):
        to_incremental(SAGEConv(3, 2).eval())(
            torch.ones(2, 3), torch.tensor([[0], [1]]), edge_ids=torch.ones(1)
        )
    world = World(np.random.default_rng(0), "keys")
    _, inc = started(world)
    with pytest.raises(InvalidDeltaError, match=r"expected integers .*got 'a'"):
        inc.apply_delta(
            edge_index_add=torch.tensor([[0], [2]]), edge_weight_add=[0.5], edge_ids_add=["a"]
        )


def test_ids_of_edges_that_left_with_their_nodes_take_no_memory():
    conv, x = SAGEConv(3, 2).double().eval(), torch.randn(4, 3).double()
    inc = to_incremental(conv)
    inc(x, torch.tensor([[0], [1]]), edge_ids=["first"])
    table = inc._names.edges.tables["edge_index"]
    for turn in range(400):
        index = torch.tensor([[2, 2, 2, 2], [3, 3, 3, 3]])
        inc.apply_delta(edge_index_add=index, edge_ids_add=[f"{turn}.{i}" for i in range(4)])
        inc.apply_delta(nodes_del=[2])
        assert len(table._ends) == len(table._keys) == len(table._names) < 1040
    assert inc.edge_ids.tolist() == ["first"]

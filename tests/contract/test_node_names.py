"""Nodes with names: deltas, readings, errors and files speak of these; rows are used again."""

import uuid

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from tests.closeness import assert_close

CHANNELS = 3
SPELL = {
    "text": lambda i: f"node {i}",
    "keys": lambda i: 2**40 + 7919 * i,
    "uuid": lambda i: uuid.UUID(int=2**90 + i),
    "mixed": lambda i: i if i % 2 else str(i),
}


class Net(torch.nn.Module):
    def __init__(self, conv=SAGEConv):
        super().__init__()
        self.first, self.second = conv(CHANNELS, 4), conv(4, 2)

    def forward(self, x, edge_index, edge_weight=None):
        more = () if edge_weight is None else (edge_weight,)
        h = self.first(x, edge_index, *more).relu()
        return self.second(h, edge_index, *more)


class World:
    """Nodes and edges by name, as plain Python keeps them."""

    def __init__(self, rng, spell, nodes=8, edges=16, weighted=False):
        self.rng, self.spell, self.came, self.weighted = rng, SPELL[spell], 0, weighted
        self.rows = {self.new(): self.row() for _ in range(nodes)}
        self.edges = [self.edge() for _ in range(edges)]

    def new(self):
        self.came += 1
        return self.spell(self.came)

    def row(self):
        return torch.from_numpy(self.rng.standard_normal(CHANNELS))

    def some(self, most):
        names = list(self.rows)
        return [names[i] for i in self.rng.permutation(len(names))[: self.rng.integers(most + 1)]]

    def edge(self):
        names = list(self.rows)
        src, dst = (names[i] for i in self.rng.integers(len(names), size=2))
        return src, dst, float(self.rng.random())

    def inputs(self):
        at = {name: i for i, name in enumerate(self.rows)}
        found = [(at[u], at[v]) for u, v, _ in self.edges]
        index = torch.tensor(found, dtype=torch.int64).reshape(-1, 2).t()
        given = {"x": torch.stack([*self.rows.values()]), "edge_index": index}
        if self.weighted:
            given["edge_weight"] = torch.tensor([w for *_, w in self.edges], dtype=torch.float64)
        return given

    def delta(self):
        """A mixed delta, which is applied here, as fields."""
        rng, fields = self.rng, {}
        gone = [self.edges[i] for i in rng.permutation(len(self.edges))[: rng.integers(4)]]
        gone = list({(u, v): (u, v, w) for u, v, w in gone}.values())
        for u, v, _ in gone:  # the newest of them
            at = max(i for i, e in enumerate(self.edges) if e[:2] == (u, v))
            del self.edges[at]
        come = self.some(0)
        if rng.random() < 0.5:
            come = [self.new() for _ in range(rng.integers(1, 4))]
            rows = [self.row() for _ in come]
            fields |= {"x_add": torch.stack(rows), "node_ids": come}
            self.rows |= dict(zip(come, rows, strict=True))
        added = [self.edge() for _ in range(rng.integers(4))]
        added += [(name, next(iter(self.rows)), 1.0) for name in come]
        self.edges += added
        if rng.random() < 0.5 and (changed := self.some(3)):
            rows = [self.row() for _ in changed]
            self.rows |= dict(zip(changed, rows, strict=True))
            fields["x_changes"] = changed, torch.stack(rows)
        if rng.random() < 0.4 and (leave := self.some(3)) and len(leave) < len(self.rows) - 2:
            fields["nodes_del"] = leave
            self.rows = {n: row for n, row in self.rows.items() if n not in leave}
            self.edges = [e for e in self.edges if not {*e[:2]} & {*leave}]
        for field, edges in (("edge_index_add", added), ("edge_index_del", gone)):
            if edges:
                pairs = np.empty((2, len(edges)), object)
                for i, (u, v, _) in enumerate(edges):
                    pairs[:, i] = u, v
                fields[field] = pairs
        if added and self.weighted:
            fields["edge_weight_add"] = torch.tensor([w for *_, w in added], dtype=torch.float64)
        return fields


def check(inc, model, world):
    names = list(world.rows)
    assert_close(inc.read(names).out, model(**world.inputs()))
    assert {n for n in inc.node_ids if n is not None} == {*names}
    assert not inc.check()


def started(world, conv=SAGEConv, **settings):
    torch.manual_seed(world.came)
    model = Net(conv).double().eval()
    inc = to_incremental(model, **settings)
    inc(**world.inputs(), node_ids=list(world.rows))
    return model, inc


@pytest.mark.parametrize("spell", SPELL)
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_random_deltas_by_name(seed, spell, weighted):
    world = World(np.random.default_rng(seed), spell, weighted=weighted)
    model, inc = started(world, GCNConv if weighted else SAGEConv, compile_after=3)
    most = 0
    for turn in range(25):
        before = {n: inc.read([n]).out for n in world.rows}
        fields = world.delta()
        up = inc.apply_delta(**fields, old=True)
        names = up.changed.tolist()
        for at, name in enumerate(names):
            if name in world.rows:
                assert_close(up.out[at : at + 1], inc.read([name]).out)
                if name in before:
                    assert_close(up.old[at : at + 1], before[name])
        same = [n for n in world.rows if n in before and n not in names]
        for name in same:
            assert torch.equal(inc.read([name]).out, before[name])
        check(inc, model, world)
        most = max(most, len(world.rows))
        if turn == 12:
            inc.compact()
            check(inc, model, world)
    assert inc.num_nodes <= most + 3
    assert inc.mode == "incremental"


def old_rows(up):
    """The rows before, where there were some; else the new ones."""
    return torch.where(up.old.isnan(), up.out + 1, up.old)


def test_undo_inverse_and_preview(seed):
    world = World(np.random.default_rng(seed), "text", weighted=True)
    model, inc = started(world, GCNConv)
    for _ in range(15):
        names, inputs = list(world.rows), world.inputs()
        rows, edges = dict(world.rows), list(world.edges)
        fields = world.delta()
        tried = inc.preview(**fields)
        [again] = inc.preview_many([GraphDelta(**fields)])
        assert again.changed.tolist() == tried.changed.tolist()
        assert torch.equal(again.out, tried.out)
        there = {n for n in inc.node_ids if n is not None}
        assert there == {*names}
        up = inc.apply_delta(**fields, undo=True, old=True)
        for name, row in zip(tried.changed.tolist(), tried.out, strict=True):
            if name in world.rows:
                assert_close(row[None], inc.read([name]).out)
        far = up.changed[(up.out - old_rows(up)).abs().amax(1).numpy() > 1e-9].tolist()
        assert {*far} <= {*tried.changed.tolist()}
        inc.apply_delta(up.undo)
        assert_close(inc.read(names).out, model(**inputs))
        world.rows, world.edges = rows, edges
        check(inc, model, world)


@pytest.mark.parametrize("spell", SPELL)
def test_a_saved_state_knows_them(seed, spell, tmp_path):
    world = World(np.random.default_rng(seed), spell)
    model, inc = started(world)
    inc.apply_delta(nodes_del=list(world.rows)[:2])
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    assert [*again.node_ids] == [*inc.node_ids]
    new = world.new()
    for one in (inc, again):
        one.apply_delta(x_add=torch.ones(1, CHANNELS).double(), node_ids=new)
    assert_close(again.read([new]).out, inc.read([new]).out)
    assert again.num_nodes == 8


def test_what_is_wrong_is_said_in_names(seed):
    world = World(np.random.default_rng(seed), "text")
    model, inc = started(world)
    digest, (a, b, *_) = inc.state_digest(), list(world.rows)
    absent = next(n for n in world.rows if (a, n) not in {e[:2] for e in world.edges})
    wrong = {
        "no node 'who'": {"edge_index_add": np.array([[a, "who"], [b, b]])},
        "nodes_del: there is no node 'who'": {"nodes_del": ["who"]},
        "x_changes.*'who'": {"x_changes": (["who"], torch.zeros(1, CHANNELS).double())},
        "names two|already": {"x_add": torch.zeros(1, CHANNELS).double(), "node_ids": [a]},
        "a name for each": {"x_add": torch.zeros(1, CHANNELS).double()},
        f"edge \\('{a}', '{absent}'\\)": {"edge_index_del": [[a], [absent]]},
        "may be the edges 'node": {"edge_index_add": [[a, b], [list(world.rows)[2], a]]},
        "strings, integers or UUIDs": {"nodes_del": [1.5]},
        "come without rows": {"node_ids": ["new"]},
    }
    for text, fields in wrong.items():
        with pytest.raises(InvalidDeltaError, match=text):
            inc.apply_delta(**fields)
        assert inc.state_digest() == digest
    with pytest.raises(InvalidDeltaError, match="no node 'who'"):
        inc.read(["who"])
    up = inc.apply_delta(
        edge_index_add=[[a, "who", b], [b, b, b]], nodes_del=["what"], invalid="skip"
    )
    assert [(r.what, r.position) for r in up.refused] == [("nodes_del", 0), ("edge_index_add", 1)]
    assert "'who'" in up.refused[1].reason
    inc.apply_delta(edge_index_del=[["who", a], [a, absent]] * 1, missing="ignore")
    for names in ([*world.rows][:-1], [a] * 8, [1.5] * 8):
        with pytest.raises(InvalidDeltaError, match="node_ids"):
            to_incremental(model)(**world.inputs(), node_ids=names)
    plain = to_incremental(model)
    plain(**world.inputs())
    with pytest.raises(InvalidDeltaError, match="node_ids"):
        plain.apply_delta(x_add=torch.zeros(1, CHANNELS).double(), node_ids=["new"])
    with pytest.raises(InvalidDeltaError, match="one after the other"):
        GraphDelta(x_add=torch.zeros(1, CHANNELS), node_ids=["new"]) + GraphDelta()


def test_graphs_of_a_batch_and_readouts(seed):
    class Pooled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(CHANNELS, 4)

        def forward(self, x, edge_index, batch):
            return global_mean_pool(self.conv(x, edge_index).relu(), batch)

    rng = np.random.default_rng(seed)
    model = Pooled().double().eval()
    x, batch = torch.randn(9, CHANNELS).double(), torch.arange(9) // 3
    inc = to_incremental(model)
    inc(x, torch.tensor([[0, 3, 6], [1, 4, 7]]), batch, node_ids=list("abcdefghi"))
    rows = dict(zip("abcdefghi", zip(x, batch.tolist(), strict=True), strict=True))
    edges = [("a", "b"), ("d", "e"), ("g", "h")]
    for turn in range(8):
        gone = str(rng.choice(sorted(rows)))
        del rows[gone]
        edges = [e for e in edges if gone not in e]
        inc.apply_delta(nodes_del=[gone])
        new, row, graph = f"new{turn}", torch.randn(CHANNELS).double(), int(rng.integers(3))
        other = next(iter(rows))
        rows[new] = row, graph
        edges.append((other, new))
        inc.apply_delta(
            x_add={"x": row[None], "batch": torch.tensor([graph])},
            node_ids=[new],
            edge_index_add=[[other], [new]],
        )
        at = {name: i for i, name in enumerate(rows)}
        pairs = torch.tensor([(at[u], at[v]) for u, v in edges]).t()
        want = model(
            torch.stack([r for r, _ in rows.values()]),
            pairs,
            torch.tensor([g for _, g in rows.values()]),
        )
        assert_close(inc.out[: len(want)], want)
    assert inc.num_nodes == 9


def test_watched_pairs_keep_their_nodes(seed):
    class Links(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(CHANNELS, 4)

        def forward(self, x, edge_index, edge_label_index):
            h = self.conv(x, edge_index)
            return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1)

    model = Links().double().eval()
    x, index = torch.randn(6, CHANNELS).double(), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    inc = to_incremental(model)
    inc(x, index, torch.tensor([[0, 5], [1, 4]]), node_ids=list("abcdef"))
    up = inc.apply_delta(edge_index_add=[["c"], ["b"]])
    assert up.changed_edges.tolist() == [["a"], ["b"]]
    inc.apply_delta(pairs_add=[["c"], ["d"]])
    before = inc.out.clone()
    inc.apply_delta(nodes_del=["f"])  # whose row a pair goes on reading
    inc.apply_delta(x_add=torch.randn(1, CHANNELS).double(), node_ids=["g"])
    want = torch.cat([x * torch.tensor([1, 1, 1, 1, 1, 0])[:, None], inc.x[6:]])
    edges = torch.tensor([[0, 1, 2, 3, 2], [1, 2, 3, 4, 1]])
    assert_close(inc.out, model(want, edges, torch.tensor([[0, 5, 2], [1, 4, 3]])))
    assert inc.num_nodes == 7
    assert not torch.equal(before, inc.out)
    assert_close(inc.query([["b"], ["c"]]), model(want, edges, torch.tensor([[1], [2]])))


def test_several_types(seed):
    class Typed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.there, self.back = SAGEConv((2, CHANNELS), 4), SAGEConv((CHANNELS, 2), 4)

        def forward(self, x_dict, edge_index_dict):
            user, item = x_dict["user"], x_dict["item"]
            buys, by = (edge_index_dict[k] for k in (BUYS, BY))
            return {"item": self.there((user, item), buys), "user": self.back((item, user), by)}

    BUYS, BY = ("user", "buys", "item"), ("item", "by", "user")
    rng = np.random.default_rng(seed)
    model = Typed().double().eval()
    wide = {"user": 2, "item": CHANNELS}

    def fresh(kind):
        return torch.from_numpy(rng.standard_normal(wide[kind]))

    rows = {kind: {f"{kind[0]}{i}": fresh(kind) for i in range(5)} for kind in wide}
    rows["item"] = {100 + i: row for i, row in enumerate(rows["item"].values())}
    edges = {BUYS: [("u0", 101), ("u1", 100)], BY: [(104, "u2")]}

    def call():
        at = {kind: {n: i for i, n in enumerate(of)} for kind, of in rows.items()}
        index = {
            k: torch.tensor([(at[k[0]][u], at[k[2]][v]) for u, v in of]).reshape(-1, 2).t()
            for k, of in edges.items()
        }
        return {kind: torch.stack([*of.values()]) for kind, of in rows.items()}, index

    inc = to_incremental(model)
    inc(*call(), node_ids={kind: list(of) for kind, of in rows.items()})
    for turn in range(8):
        user, item = (str(rng.choice(sorted(rows["user"]))), int(rng.choice(sorted(rows["item"]))))
        new, row, changed = 200 + turn, fresh("item"), fresh("user")
        del rows["item"][item]
        edges = {k: [e for e in of if item not in e] for k, of in edges.items()}
        inc.apply_delta(nodes_del={"item": [item]})
        rows["item"][new], rows["user"][user] = row, changed
        edges[BUYS].append((user, new))
        edges[BY].append((new, user))
        up = inc.apply_delta(
            x_add={"item": row[None]},
            node_ids={"item": [new]},
            x_changes={"user": ([user], changed[None])},
            edge_index_add={BUYS: [[user], [new]], BY: [[new], [user]]},
        )
        assert new in up.changed["item"].tolist()
        assert user in up.changed["user"].tolist()
        want = model(*call())
        found = inc.read({kind: list(of) for kind, of in rows.items()}).out
        for kind in wide:
            assert_close(found[kind], want[kind])
    assert inc.num_nodes == 10
    with pytest.raises(InvalidDeltaError, match=r"nodes_del\['item'\].*no node 7"):
        inc.apply_delta(nodes_del={"item": [7]})
    absent = next(u for u in rows["user"] if (u, new) not in edges[BUYS])
    with pytest.raises(InvalidDeltaError, match=f"edge \\('{absent}', {new}\\)"):
        inc.apply_delta(edge_index_del={BUYS: [[absent], [new]]})


def test_only_some_types_have_names(seed):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv((2, CHANNELS), 4)

        def forward(self, x_dict, edge_index_dict):
            return self.conv((x_dict["a"], x_dict["b"]), edge_index_dict["a", "to", "b"])

    x = {"a": torch.randn(3, 2).double(), "b": torch.randn(2, CHANNELS).double()}
    model, key = Two().double().eval(), ("a", "to", "b")
    inc = to_incremental(model)
    inc(x, {key: torch.tensor([[0], [1]])}, node_ids={"a": ["p", "q", "r"]})
    up = inc.apply_delta(edge_index_add={key: [["r"], [1]]})
    assert up.changed.tolist() == [1]
    assert_close(inc.out, model(x, {key: torch.tensor([[0, 2], [1, 1]])}))

"""Ids to be scored in other shapes than pairs: candidates, triples, users x items, ids in a row.

They come and go by deltas, are asked for without being watched, and rows are computed again where
a node changed that they name, and nowhere else.
"""

from inspect import signature

import pytest
import torch
from torch import nn
from torch_geometric.nn import HeteroConv, LGConv, SAGEConv

from pyg_incremental import InvalidDeltaError, UnsupportedModelError, evaluate, load, to_incremental
from tests.closeness import assert_close, tensors_of

N, E, K, M = 40, 90, 7, 4
THERE, BACK = ("user", "buys", "item"), ("item", "of", "user")

pytestmark = pytest.mark.usefixtures("double")


class Scores(nn.Module):
    """One conv, and something that a test does with its rows."""

    def __init__(self, do):
        super().__init__()
        self.conv, self.do, self.lin, self.of = SAGEConv(5, 4), do, nn.Linear(8, 2), nn.Linear(4, 4)


class One(Scores):
    def forward(self, x, edge_index, ids):
        return self.do(self, self.conv(x, edge_index), ids)


class Two(Scores):
    def forward(self, x, edge_index, users, items):
        return self.do(self, self.conv(x, edge_index), users, items)


class Three(Scores):
    def forward(self, x, edge_index, users, pos, neg):
        return self.do(self, self.conv(x, edge_index), users, pos, neg)


def dot(a, b):
    return (a * b).sum(-1)


def beside_users(m, h, u, c):
    rows = h[u].unsqueeze(1).expand(-1, c.size(1), -1)
    return m.lin(torch.cat([rows, h[c]], -1)).squeeze(-1)


rng = torch.Generator().manual_seed(1)
i, j, k = torch.randint(N, (3, K), generator=rng)
few, wide = torch.randint(N, (5,), generator=rng), torch.randint(N, (K, M), generator=rng)
triples = torch.stack([i, i % 3, j], 1)
TABLES = {
    "candidates": (Two(lambda m, h, u, c: dot(h[u].unsqueeze(1), h[c])), (i, wide)),
    "ranked": (Two(lambda m, h, u, c: dot(h[u][:, None], h[c]).softmax(-1)), (i, wide)),
    "bmm": (Two(lambda m, h, u, c: torch.bmm(h[c], h[u].unsqueeze(-1)).squeeze(-1)), (i, wide)),
    "mlp": (Two(beside_users), (i, wide)),
    "alone": (One(lambda m, h, c: h[c].mean(1)), (wide,)),
    "triples": (
        One(lambda m, h, t: dot(h[t[:, 0]] * m.of.weight[t[:, 1]], h[t[:, 2]])),
        (triples,),
    ),
    "three": (Three(lambda m, h, a, b, c: dot(h[a], h[b]) - dot(h[a], h[c])), (i, j, k)),
    "shifted": (Two(lambda m, h, u, c: dot(h[u], h[c + 5 - 5])), (i, j)),
}
TOGETHER = {
    "users x items": (Two(lambda m, h, u, c: h[u] @ h[c].t()), (i, few)),
    "sigmoid": (Two(lambda m, h, u, c: torch.mm(m.of(h[u]), h[c].T).sigmoid()), (i, few)),
    "einsum": (Two(lambda m, h, u, c: torch.einsum("id,jd->ij", h[u], h[c])), (i, few)),
    "x all": (One(lambda m, h, u: h[u] @ h.t()), (i,)),
    "cat ids": (Two(lambda m, h, a, b: h[torch.cat([a, b])]), (i, few)),
    "cat rows": (Two(lambda m, h, a, b: m.of(torch.cat([h[a], h[b]])).relu()), (i, few)),
    "cat both": (
        Three(lambda m, h, a, b, c: dot(h[torch.cat([a, a])], h[torch.cat([b, c])])),
        (i, j, k),
    ),
}
CASES = TABLES | TOGETHER


class Sides:
    """A wrapped model, and the original on the arguments that it should have by now."""

    def __init__(self, case, seed, **options):
        self.rng = torch.Generator().manual_seed(seed)
        model, self.ids = CASES[case]
        self.model = model.double().eval()
        self.x, self.edges = torch.randn(N, 5, generator=self.rng), self.draw(N, 2, E)
        self.inc = to_incremental(self.model, **options)
        self.inc(self.x, self.edges, *self.ids)
        self.check()

    def draw(self, *shape):
        return torch.randint(shape[0], shape[1:], generator=self.rng)

    def check(self):
        want = self.want(self.ids)
        for ours, theirs in zip(tensors_of(self.inc.out), tensors_of(want), strict=True):
            assert_close(ours, theirs)

    def want(self, ids):
        with torch.no_grad():
            return self.model(self.x, self.edges, *ids)

    def change(self, step):
        new, gone = self.draw(len(self.x), 2, 2), self.edges[:, :2]
        delta = {"edge_index_add": new, "edge_index_del": gone}
        self.edges = torch.cat([self.edges[:, 2:], new], 1)
        if step % 3 == 1:
            delta["x_changes"] = ([step], torch.randn(1, 5, generator=self.rng))
            self.x = self.x.clone().index_copy(0, torch.tensor([step]), delta["x_changes"][1])
        if step % 4 == 2:
            delta["x_add"] = torch.randn(1, 5, generator=self.rng)
            self.x = torch.cat([self.x, delta["x_add"]])
        if step % 5 == 3:
            delta["nodes_del"] = [int(self.ids[0].flatten()[1])]  # a node that is asked for
            self.x = self.x.clone().index_fill(0, torch.tensor(delta["nodes_del"]), 0)
            self.edges = self.edges[:, (self.edges != delta["nodes_del"][0]).all(0)]
        up = self.inc.apply_delta(**delta)
        self.check()
        return up

    def exchange(self):
        """The first row that is asked for leaves, and others come."""
        groups, at = self.inc._require().plan.site.asked.values(), 0
        add, gone, ids = {}, {}, []
        for group in groups:
            own = self.ids[at : at + len(group.names)]
            at += len(group.names)
            new = [torch.randint(len(self.x), (2, *t.shape[1:]), generator=self.rng) for t in own]
            if own[0] is triples or own[0].shape[1:] == (3,):
                new[0][:, 1] %= 3
            first = [t[:1] for t in own]
            if group.form == "table":
                add[group.key] = tuple(new) if len(new) > 1 else new[0]
                gone[group.key] = tuple(first) if len(first) > 1 else first[0]
            else:
                add[group.key] = torch.stack([new[0], new[-1]])
                gone[group.key] = torch.stack([first[0], first[-1]])
            alike = [(t == t[:1]).reshape(len(t), -1).all(1) for t in own]
            newest = int(torch.stack(alike).all(0).nonzero().max())
            ids += [
                torch.cat([t[:newest], t[newest + 1 :], n]) for t, n in zip(own, new, strict=True)
            ]
        self.ids = tuple(ids)
        self.inc.apply_delta(pairs_add=add, pairs_del=gone)
        self.check()


@pytest.mark.parametrize("case", CASES)
def test_scores_are_followed_along_mixed_deltas(case, seed):
    sides = Sides(case, seed)
    assert (sides.inc.mode, sides.inc.num_nodes) == ("incremental", N)
    for step in range(12):
        sides.change(step)
        sides.exchange()
    assert sides.inc.verify() < 1e-12
    assert not sides.inc.check()
    others = [t.flip(0) for t in sides.ids]
    assert_close(sides.inc.query(*others), sides.want(others))
    sides.check()


@pytest.mark.parametrize("case", ["candidates", "triples", "x all", "cat both"])
@pytest.mark.parametrize("options", [{"lazy": True}, {"store": "minimal"}, {"compile_after": 1}])
def test_other_ways_to_keep_rows(case, options, seed):
    sides = Sides(case, seed, **options)
    for step in range(6):
        sides.change(step)
        sides.exchange()
    assert sides.inc.mode == "incremental"


@pytest.mark.parametrize("case", ["candidates", "triples", "users x items", "cat both"])
def test_they_are_saved_and_evaluated(case, seed, tmp_path):
    sides = Sides(case, seed)
    sides.change(0)
    sides.inc.save(tmp_path / "state")
    sides.inc = load(tmp_path / "state", sides.model)
    sides.exchange()
    sides.change(1)
    names, values = signature(sides.model.forward).parameters, (sides.x, sides.edges, *sides.ids)
    given = dict(zip(names, values, strict=True))
    assert_close(evaluate(sides.model, given, progress=False), sides.want(sides.ids))


@pytest.mark.parametrize("case", ["candidates", "triples", "users x items"])
def test_only_rows_of_nodes_that_changed_are_computed(case, seed):
    sides = Sides(case, seed, compile_after=None)
    node = int(sides.ids[0].flatten()[2])
    sides.inc.apply_delta(edge_index_del=sides.edges[:, sides.edges[0] == node])
    sides.edges = sides.edges[:, sides.edges[0] != node]
    sides.x[node] = 1.0  # nobody but itself reads it now
    up = sides.inc.apply_delta(x_changes=([node], torch.ones(1, 5)))
    sides.check()
    named = [(t == node).reshape(len(t), -1).any(1) for t in sides.ids]
    kind = "products" if case == "users x items" else "edge map"
    of_all = sum(int(n.sum()) for n in named)
    expected = of_all if kind == "products" else int(torch.stack(named).any(0).sum())
    assert 0 < expected < K
    assert [s.rows for s in up.stats if s.kind == kind] == [expected]


class Typed(nn.Module):
    """Users and items; which ids are of which kind, only the model says."""

    def __init__(self, do):
        super().__init__()
        self.do = do
        self.c = HeteroConv({THERE: SAGEConv((5, 5), 4), BACK: SAGEConv((5, 5), 4)})

    def forward(self, x_dict, edge_index_dict, users, items):
        h = self.c(x_dict, edge_index_dict)
        return self.do(h["user"][users], h["item"][items])


@pytest.mark.parametrize(
    ("do", "items"),
    [
        (lambda u, c: (u[:, None] * c).sum(-1), wide % 20),
        (lambda u, c: u @ c.t(), few % 20),
        (dot, j % 20),
    ],
    ids=["candidates", "users x items", "pairs"],
)
def test_the_model_tells_of_which_kind_ids_are(do, items, seed):
    model, x = Typed(do).eval(), {"user": torch.randn(30, 5), "item": torch.randn(20, 5)}
    edges, users = torch.stack([torch.randint(30, (80,)), torch.randint(20, (80,))]), i % 30
    users[0] = 29

    def both(edges):
        return {THERE: edges, BACK: edges.flip(0)}

    inc = to_incremental(model)
    inc(x, both(edges), users, items)
    assert inc.mode == "incremental"
    for at in range(5):
        new = torch.stack([torch.randint(30, (2,)), torch.randint(20, (2,))])
        x["item"][at] = at
        inc.apply_delta(
            edge_index_add=both(new), x_changes={"item": ([at], torch.full((1, 5), float(at)))}
        )
        edges = torch.cat([edges, new], 1)
        assert_close(inc.out, model(x, both(edges), users, items))


class Behind(nn.Module):
    """LightGCN in small: items come behind the users."""

    def __init__(self):
        super().__init__()
        self.e, self.c = nn.Embedding(N, 4), LGConv()

    def forward(self, edge_index, users, items):
        h = self.c(self.e.weight, edge_index)
        return dot(h[users], h[items + 25])


def test_ids_of_items_may_begin_behind_those_of_users(seed):
    model, edges, users, items = Behind().eval(), torch.randint(N, (2, E)), i % 25, j % 15
    inc = to_incremental(model)
    assert_close(inc(edges, users, items), model(edges, users, items))
    assert inc.mode == "incremental"
    new = torch.tensor([[3, 30], [28, 4]])
    inc.apply_delta(edge_index_add=new)
    assert_close(inc.out, model(torch.cat([edges, new], 1), users, items))
    with pytest.raises(InvalidDeltaError, match=r"expected ids in \[0, 40\) \(got 53\)"):
        inc.query(users, items % 1 + 28)
    assert inc.stale is None
    assert_close(inc.out, model(torch.cat([edges, new], 1), users, items))


def test_ids_that_do_not_fit_change_nothing(seed):
    sides = Sides("candidates", seed)
    digest = sides.inc.state_digest()
    users, wide = sides.ids
    for given, message in [
        ((users, wide[:, :2]), r"expected shape \[7, 4\]"),
        (torch.tensor([[1], [2]]), r"expected rows of \['users', 'items'\].*give a tuple"),
        ((users, wide + N), r"expected ids in \[0, 40\)"),
        ((users + N, wide), "47|7[0-9]|[4-7][0-9]"),
    ]:
        with pytest.raises(InvalidDeltaError, match=message):
            sides.inc.apply_delta(pairs_add=given)
        assert sides.inc.stale is None
    sides.check()
    assert sides.inc.state_digest() == digest


def test_which_columns_are_ids_is_not_guessed_where_nodes_have_names(seed):
    sides = Sides("triples", seed)
    inc = to_incremental(sides.model)
    inc(sides.x, sides.edges, triples, node_ids=[f"n{at}" for at in range(N)])
    inc.apply_delta(edge_index_add=[["n1"], ["n2"]])
    sides.edges = torch.cat([sides.edges, torch.tensor([[1], [2]])], 1)
    assert_close(inc.out, sides.want((triples,)))
    with pytest.raises(UnsupportedModelError, match="each column as an argument of its own"):
        inc.query([["n1", 1, "n2"]])
    with pytest.raises(InvalidDeltaError, match="ask for others by query"):
        inc.apply_delta(pairs_add=[["n1", 1, "n2"]])

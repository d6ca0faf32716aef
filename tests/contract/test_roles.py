"""What the arguments of a call are, where names do not tell: the model does, or its user."""

from typing import Annotated

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import GraphConv, HeteroConv, LGConv, SAGEConv
from torch_geometric.utils import scatter

from pyg_incremental import (
    IncrementalWarning,
    InvalidDeltaError,
    Role,
    UnsupportedModelError,
    load,
    to_incremental,
)

N, E, K = 40, 90, 7


pytestmark = pytest.mark.usefixtures("double")


class Model(nn.Module):
    """One conv, and something that a test does with its rows."""

    def __init__(self, do=None):
        super().__init__()
        self.conv, self.do, self.of = SAGEConv(5, 4), do, nn.Embedding(3, 4)


class Rows(Model):
    def forward(self, x, edge_index, idx):
        return self.do(self.conv(x, edge_index), idx)


class Two(Model):
    def forward(self, x, edge_index, src, dst):
        return self.do(self.conv(x, edge_index), src, dst)


class Three(Model):
    def forward(self, x, edge_index, head, rel, tail):
        return self.do(self.conv(x, edge_index), head, self.of(rel), tail)


class Triples(Model):
    def forward(self, x, edge_index, users, pos, neg):
        return self.do(self.conv(x, edge_index), users, pos, neg)


def dot(h, i, j):
    return (h[i] * h[j]).sum(-1)


i, j, k = torch.randint(N, (3, K), generator=torch.Generator().manual_seed(1))
SHAPES = {
    "rows": (Rows(lambda h, a: h[a]), (i,), "incremental"),
    "index_select": (Rows(lambda h, a: torch.index_select(h, 0, a)), (i,), "incremental"),
    "embedding": (Rows(lambda h, a: nn.functional.embedding(a, h)), (i,), "incremental"),
    "two": (Two(dot), (i, j), "incremental"),
    "columns": (
        Rows(lambda h, p: dot(h, p[:, 0], p[:, 1])),
        (torch.stack([i, j], 1),),
        "incremental",
    ),
    "turned": (Rows(lambda h, p: dot(h, *p.t())), (torch.stack([i, j], 1),), "incremental"),
    "unbound": (Rows(lambda h, p: dot(h, *p.unbind(1))), (torch.stack([i, j], 1),), "incremental"),
    "at once": (Rows(lambda h, p: h[p].prod(1)), (torch.stack([i, j], 1),), "incremental"),
    "pairs": (Rows(lambda h, p: dot(h, p[0], p[1])), (torch.stack([i, j]),), "incremental"),
    "both ends": (Rows(lambda h, p: h[p].prod(0).sum(-1)), (torch.stack([i, j]),), "incremental"),
    "ends apart": (Rows(lambda h, p: dot(h[p], 0, 1)), (torch.stack([i, j]),), "incremental"),
    "both at once": (Rows(lambda h, p: h[p].relu().sum(0)), (torch.stack([i, j]),), "mixed"),
    "triples": (Three(lambda h, a, r, b: (h[a] * r * h[b]).sum(-1)), (i, i % 3, j), "incremental"),
    "users x items": (Two(lambda h, a, b: h[a] @ h[b].t()), (i, j[:5]), "incremental"),
    "three ids": (
        Triples(lambda h, a, b, c: dot(h, a, b) - dot(h, a, c)),
        (i, j, k),
        "incremental",
    ),
    "table": (
        Rows(lambda h, t: dot(h, t[:, 0], t[:, 2])),
        (torch.stack([i, j, k], 1),),
        "incremental",
    ),
}


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_ids_to_be_scored_are_followed_whatever_their_shape(shape):
    model, ids, mode = SHAPES[shape]
    model = model.double().eval()
    x, edges = torch.randn(N, 5), torch.randint(N, (2, E))
    inc = to_incremental(model)
    assert torch.allclose(inc(x, edges, *ids), model(x, edges, *ids))
    assert (inc.mode, inc.num_nodes) == (mode, N)
    gone = int(ids[0].flatten()[0])
    new = torch.tensor([[3, 9], [8, gone]])
    inc.apply_delta(edge_index_add=new, edge_index_del=edges[:, :2])
    edges = torch.cat([edges[:, 2:], new], 1)
    assert torch.allclose(inc.out, model(x, edges, *ids))
    inc.apply_delta(nodes_del=[gone])  # a node that is asked for
    x[gone] = 0
    edges = edges[:, (edges != gone).all(0)]
    assert torch.allclose(inc.out, model(x, edges, *ids))
    inc.apply_delta(x_add=torch.ones(1, 5), edge_index_add=torch.tensor([[N], [gone]]))
    x, edges = torch.cat([x, torch.ones(1, 5)]), torch.cat([edges, torch.tensor([[N], [gone]])], 1)
    assert torch.allclose(inc.out, model(x, edges, *ids))


class Light(nn.Module):
    """LightGCN in small: all that is known of a node is learned."""

    def __init__(self):
        super().__init__()
        self.e, self.c = nn.Embedding(N, 8), LGConv()

    def forward(self, edge_index, users, items):
        h = self.e.weight
        h = (h + self.c(h, edge_index)) / 2
        return (h[users] * h[items]).sum(-1) + self.e(users).sum(-1)


@pytest.mark.parametrize("count", [6, N, 64, E])
@pytest.mark.parametrize("kind", ["plain", "sized"])
def test_ids_over_a_learned_table_are_no_features(count, kind):
    model, edges = Light().eval(), torch.randint(N, (2, E))
    users, items = torch.randint(25, (count,)), torch.randint(25, N, (count,))
    users[:6] = 5
    inc = to_incremental(model)
    inc(edges if kind == "plain" else EdgeIndex(edges, sparse_size=(N, N)), users, items)
    assert (inc.num_nodes, inc.mode) == (N, "incremental")
    inc.apply_delta(nodes_del=[5])
    edges = edges[:, (edges != 5).all(0)]
    assert torch.allclose(inc.out, model(edges, users, items))
    assert inc.verify() < 1e-12


class Stacked(nn.Module):
    """A table of users and one of items."""

    def __init__(self):
        super().__init__()
        self.u, self.i, self.c = nn.Embedding(25, 8), nn.Embedding(15, 8), LGConv()

    def forward(self, edge_index):
        h = torch.cat([self.u.weight, self.i.weight])
        return (h + self.c(h, edge_index)) / 2


@pytest.mark.parametrize("kind", ["plain", "sized"])
def test_tables_that_are_stacked_are_rows_of_nodes(kind):
    model, edges = Stacked().eval(), torch.randint(N, (2, E))
    edges[0, 0] = N - 1
    inc = to_incremental(model)
    inc(edges if kind == "plain" else EdgeIndex(edges, sparse_size=(N, N)))
    assert (inc.num_nodes, inc.mode) == (N, "incremental")
    new = torch.tensor([[2], [30]])
    up = inc.apply_delta(edge_index_add=new)
    assert len(up.changed) < N / 2
    assert torch.allclose(inc.out, model(torch.cat([edges, new], 1)))


class Decay(nn.Module):
    """Edge data under a name that says nothing."""

    def __init__(self):
        super().__init__()
        self.c = GraphConv(5, 4)

    def forward(self, x, edge_index, t):
        return self.c(x, edge_index, torch.exp(-t))


def ring(count):
    return torch.stack([torch.arange(count), (torch.arange(count) + 1) % count])


def test_edge_data_are_known_where_there_are_as_many_edges_as_nodes():
    model, x, edges, t = Decay().eval(), torch.randn(12, 5), ring(12), torch.rand(12)
    inc = to_incremental(model)
    inc(x, edges, t)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_add=torch.tensor([[1], [5]]), edge_data_add={"t": t[:1]})
    edges, t = torch.cat([edges, torch.tensor([[1], [5]])], 1), torch.cat([t, t[:1]])
    assert torch.allclose(inc.out, model(x, edges, t))


class Either(nn.Module):
    """It runs with a row for each node, and with one for each edge."""

    def __init__(self):
        super().__init__()
        self.c = SAGEConv(5, 4)

    def forward(self, x, edge_index, t):
        return self.c(x, edge_index), t.exp()


def test_what_may_be_either_is_asked_for():
    model, args = Either().eval(), (torch.randn(12, 5), ring(12), torch.rand(12))
    with pytest.raises(InvalidDeltaError, match=r"12 rows.*roles=\{'t': 'node'\}.*'t': 'edge'"):
        to_incremental(model)(*args)
    inc = to_incremental(model, roles={"t": "edge"})
    inc(*args)
    inc.apply_delta(edge_index_add=torch.tensor([[1], [5]]), edge_data_add={"t": torch.zeros(1)})
    assert torch.allclose(inc.out[1], torch.cat([args[2].exp(), torch.ones(1)]))
    inc = to_incremental(model, roles={"t": "node"})
    inc(*args)
    inc.apply_delta(edge_index_add=torch.tensor([[1], [5]]))
    assert torch.equal(inc.out[1], args[2].exp())


class Hinted(nn.Module):
    """A hint says what no name does."""

    def __init__(self):
        super().__init__()
        self.c = SAGEConv(5, 4)

    def forward(self, x, edge_index, t: Annotated[Tensor, Role("edge")]):
        return self.c(x, edge_index), t.exp()


def test_hints_say_it_as_well():
    inc = to_incremental(Hinted().eval())
    inc(torch.randn(12, 5), ring(12), torch.rand(12))
    inc.apply_delta(edge_index_add=torch.tensor([[1], [5]]), edge_data_add={"t": torch.zeros(1)})
    assert inc.out[1].shape == (13,)


def test_roles_that_do_not_fit_are_refused():
    model, args = Either().eval(), (torch.randn(12, 5), ring(12), torch.rand(11))
    with pytest.raises(UnsupportedModelError, match=r"expected one of .*'ids'.*got 'row'"):
        to_incremental(model, roles={"t": "row"})
    with pytest.raises(UnsupportedModelError, match="not called with 'time'"):
        to_incremental(model, roles={"time": "edge"})(*args)
    with pytest.raises(InvalidDeltaError, match=r"'t' is said to be 'edge', but has 11 rows"):
        to_incremental(model, roles={"t": "edge"})(*args)


def test_what_was_understood_can_be_read():
    model, x, edges = (
        Three(lambda h, a, r, b: (h[a] * r * h[b]).sum(-1)),
        torch.randn(N, 5),
        ring(N),
    )
    inc = to_incremental(model.double().eval())
    inc(x, edges, i, i % 3, j)
    assert {name: str(role) for name, role in inc.roles.items()} == {
        "x": "node", "edge_index": "graph", "head": "ids", "tail": "ids", "rel": "edge(head, tail)",
    }  # fmt: skip
    said = inc.explain()
    assert {*said.roles} == {"head", "rel", "tail"}
    assert said.roles["tail"] == "'ids': the model picks rows of nodes by it"
    assert "argument 'rel' is 'edge(head, tail)': the model runs with that" in str(said)
    assert "the model picks rows of nodes by it" in said._repr_html_()


def test_node_data_of_integers_stay_node_data():
    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.c = nn.Embedding(4, 5), SAGEConv(5, 4)

        def forward(self, x, edge_index, colour):
            return self.c(x + self.e(colour), edge_index)

    model, x, edges = Typed().eval(), torch.randn(N, 5), torch.randint(N, (2, E))
    colour = torch.randint(4, (N,))
    inc = to_incremental(model)
    inc(x, edges, colour)
    assert inc.mode == "incremental"
    inc.apply_delta(x_changes={"colour": ([3], torch.tensor([1]))})
    colour[3] = 1
    assert torch.allclose(inc.out, model(x, edges, colour))


class Table(nn.Module):
    """A parameter that is looked up by the type of each edge."""

    def __init__(self):
        super().__init__()
        self.rel = nn.Parameter(torch.randn(4, 5))

    def forward(self, x, edge_index, edge_type):
        src, dst = edge_index
        return scatter(x[src] * self.rel[edge_type], dst, 0, x.size(0), "sum")


def test_a_parameter_is_looked_up_by_the_type_of_an_edge():
    model, x, edges, kinds = (
        Table().eval(),
        torch.randn(N, 5),
        torch.randint(N, (2, E)),
        i.repeat(13),
    )
    inc = to_incremental(model)
    inc(x, edges, kinds[:E] % 4)
    assert inc.mode == "incremental"
    new = torch.tensor([[3], [9]])
    up = inc.apply_delta(edge_index_add=new, edge_data_add={"edge_type": torch.tensor([2])})
    assert up.changed.tolist() == [9]
    edges, kinds = torch.cat([edges, new], 1), torch.cat([kinds[:E] % 4, torch.tensor([2])])
    assert torch.allclose(inc.out, model(x, edges, kinds))


@pytest.mark.parametrize("shape", ["rows", "two", "columns", "pairs", "triples"])
def test_other_ids_are_asked_for_without_being_watched(shape):
    model, ids, _ = SHAPES[shape]
    model = model.double().eval()
    x, edges = torch.randn(N, 5), torch.randint(N, (2, E))
    inc = to_incremental(model)
    before = inc(x, edges, *ids)
    inc.apply_delta(edge_index_del=edges[:, :1])
    before, version = inc.out.clone(), inc.version
    others = [
        ids[0].flip(0) % 3 if len(ids) == 1 and ids[0].dim() == 1 else t.flip(-1) for t in ids
    ]
    others[-1] = others[-1].roll(1, -1) if shape != "columns" else others[-1]
    assert torch.allclose(inc.query(*others), model(x, edges[:, 1:], *others))
    assert torch.equal(inc.out, before)
    assert inc.version == version
    with pytest.raises(InvalidDeltaError, match="expected"):
        inc.query(*others, i)


def test_ids_of_which_the_output_has_no_rows_cannot_be_asked_for():
    inc = to_incremental(Two(lambda h, a, b: (h[a] * h[b]).sum(-1).sum()).double().eval())
    with pytest.warns(IncrementalWarning):
        inc(torch.randn(N, 5), torch.randint(N, (2, E)), i, j)
    with pytest.raises(UnsupportedModelError, match="call the model itself"):
        inc.query(i, j)


def test_pairs_are_saved_and_come_and_go(tmp_path):
    model = Two(dot).double().eval()
    x, edges = torch.randn(N, 5), torch.randint(N, (2, E))
    inc = to_incremental(model)
    inc(x, edges, i, j)
    inc.save(tmp_path / "state")
    inc = load(tmp_path / "state", model)
    up = inc.apply_delta(pairs_add=torch.tensor([[3], [9]]), pairs_del=torch.stack([i, j])[:, :1])
    assert up.changed.tolist() == [K - 1]
    a, b = torch.cat([i[1:], torch.tensor([3])]), torch.cat([j[1:], torch.tensor([9])])
    assert torch.allclose(inc.out, model(x, edges, a, b))


class Typed(nn.Module):
    """Users and items, and pairs of them."""

    def __init__(self):
        super().__init__()
        there, back = SAGEConv((5, 5), 4), SAGEConv((5, 5), 4)
        self.c = HeteroConv({("user", "r", "item"): there, ("item", "b", "user"): back})

    def forward(self, x_dict, edge_index_dict, users, items):
        h = self.c(x_dict, edge_index_dict)
        return (h["user"][users] * h["item"][items]).sum(-1)


def test_ids_of_several_types_are_followed_where_they_are_said():
    model, x = Typed().eval(), {"user": torch.randn(30, 5), "item": torch.randn(20, 5)}
    edges = torch.stack([torch.randint(30, (80,)), torch.randint(20, (80,))])
    users, items = torch.randint(30, (K,)), torch.randint(20, (K,))
    inc = to_incremental(model, roles={"users": "ids(user)", "items": "ids(item)"})

    def both(edges):
        return {("user", "r", "item"): edges, ("item", "b", "user"): edges.flip(0)}

    inc(x, both(edges), users, items)
    assert inc.mode == "incremental"
    gone = int(users[0])
    inc.apply_delta(nodes_del={"user": [gone]})
    x["user"][gone] = 0
    left = edges[:, edges[0] != gone]
    assert torch.allclose(inc.out, model(x, both(left), users, items))


class TwoSides(nn.Module):
    """The nodes of both sides are tensors of their own; two layers, and a skip of the targets."""

    def __init__(self):
        super().__init__()
        self.one, self.two = SAGEConv((5, 3), 4), SAGEConv((5, 4), 2, aggr="max")

    def forward(self, x_user, x_film, edge_index):
        h = self.one((x_user, x_film), edge_index).relu()
        return self.two((x_user, h), edge_index)


SIDES = {"x_user": "node(user)", "x_film": "node(film)", "edge_index": "graph(user, film)"}


@pytest.mark.parametrize("films", [20, N])  # as many as there are users: nothing but roles tells
def test_two_sides_that_are_tensors_of_their_own(films, tmp_path):
    torch.manual_seed(films)
    model = TwoSides().eval()
    x = {"user": torch.randn(N, 5), "film": torch.randn(films, 3)}
    edges = [
        *zip(torch.randint(N, (E,)).tolist(), torch.randint(films, (E,)).tolist(), strict=True)
    ]
    inc = to_incremental(model, roles=SIDES)
    inc(*x.values(), torch.tensor(edges).t())
    assert inc.mode == "incremental"
    assert {name: str(role) for name, role in inc.roles.items()} == SIDES
    for turn in range(12):
        add = [(int(torch.randint(N, ())), turn % films), (turn, len(x["film"]))]
        gone = [edges.pop(0), edges.pop(3)]
        kind, row = ("user", torch.randn(1, 5)) if turn % 2 else ("film", torch.randn(1, 3))
        new = torch.randn(1, 3)
        inc.apply_delta(
            edge_index_add=torch.tensor(add).t(), edge_index_del=torch.tensor(gone).t(),
            x_changes={kind: ([turn], row)}, x_add={"film": new},
        )  # fmt: skip
        edges += add
        x[kind] = x[kind].index_copy(0, torch.tensor([turn]), row)
        x["film"] = torch.cat([x["film"], new])
        assert (inc.out - model(*x.values(), torch.tensor(edges).t())).abs().max() < 1e-12
    inc.save(tmp_path / "state")
    again = load(tmp_path / "state", model)
    assert again.num_nodes_dict == {"user": N, "film": films + 12}
    assert again.verify() < 1e-12


def test_two_sides_that_nobody_tells_apart_are_asked_for():
    x, edges = (torch.randn(N, 5), torch.randn(20, 3)), torch.randint(20, (2, E))
    inc = to_incremental(TwoSides().eval())
    with pytest.warns(IncrementalWarning):
        inc(*x, edges)
    assert "roles={'x_src': 'node(src)', 'x_dst': 'node(dst)'}" in str(inc.explain())
    without = {name: role for name, role in SIDES.items() if name != "edge_index"}
    with pytest.raises(UnsupportedModelError, match=r"roles=\{'edge_index': 'graph\(source"):
        to_incremental(TwoSides().eval(), roles=without)(*x, edges)

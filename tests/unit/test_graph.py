"""DynamicGraph against a plain list of edges."""

import numpy as np
import pytest
import torch

from pyg_incremental import DynamicGraph, InvalidDeltaError
from pyg_incremental.kernels import adjacency

Edge = tuple[int, int, float]


def edges_of(graph: DynamicGraph) -> list[Edge]:
    state = graph.state()
    src, dst = state["edge_index"].tolist()
    return list(zip(src, dst, state["edge_weight"].tolist(), strict=True))


def listed(graph: DynamicGraph, name: str) -> list[Edge]:
    """The edges as one of the neighbour lists tells them."""
    adj = getattr(graph, name)
    found = []
    for v in range(graph.num_nodes):
        for k in range(adj.start[v], adj.start[v] + adj.degree[v]):
            u, w = int(adj.neighbor[k]), float(graph.edge_data["edge_weight"][adj.edge[k]])
            found.append((v, u, w) if name == "out" else (u, v, w))
    return found


def pairs(edges: list[Edge]) -> torch.Tensor:
    return torch.tensor([[e[0] for e in edges], [e[1] for e in edges]], dtype=torch.int64)


@pytest.mark.parametrize("seed", range(12))
def test_any_sequence(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    count = int(rng.integers(0, 12))
    start = rng.integers(0, n, (2, count))
    weight = torch.arange(count).float()
    graph = DynamicGraph(torch.from_numpy(start), n, {"edge_weight": weight})
    expected: list[Edge] = [
        (int(u), int(v), float(w)) for (u, v), w in zip(start.T, weight, strict=True)
    ]
    fresh = 100.0
    for _ in range(60):
        leaving = [expected[i] for i in rng.permutation(len(expected))[: rng.integers(0, 4)]]
        graph.delete_edges(pairs(leaving))
        for u, v, _ in leaving:
            expected.pop(max(i for i, e in enumerate(expected) if e[:2] == (u, v)))
        if rng.random() < 0.2:
            gone = int(rng.integers(0, n))
            graph.remove_nodes(torch.tensor([gone, gone]))
            expected = [e for e in expected if gone not in e[:2]]
        if rng.random() < 0.3:
            graph.add_nodes(2)
            n += 2
        k = int(rng.integers(0, 5))
        added = rng.integers(0, n, (2, k))
        w = torch.arange(k) + fresh
        fresh += k
        graph.add_edges(torch.from_numpy(added), edge_weight=w)
        pairs_added = zip(added.T, w, strict=True)
        expected += [(int(u), int(v), float(x)) for (u, v), x in pairs_added]
        if expected:
            u, v, _ = expected[rng.integers(len(expected))]
            graph.change_edges(torch.tensor([[u], [v]]), edge_weight=torch.tensor([fresh]))
            at = max(i for i, e in enumerate(expected) if e[:2] == (u, v))
            expected[at] = (u, v, fresh)
            fresh += 1
        assert edges_of(graph) == expected
        assert graph.num_edges == len(expected)
        assert sorted(listed(graph, "out")) == sorted(expected)
        assert sorted(listed(graph, "inn")) == sorted(expected)


def test_refusals_change_nothing():
    graph = DynamicGraph(torch.tensor([[0, 1], [1, 2]]), 3, {"edge_weight": torch.ones(2)})
    before = edges_of(graph)
    with pytest.raises(InvalidDeltaError, match=r"edge \(2, 0\) at position 1"):
        graph.delete_edges(torch.tensor([[0, 2], [1, 0]]))
    with pytest.raises(InvalidDeltaError, match=r"edge \(0, 2\)"):
        graph.change_edges(torch.tensor([[0], [2]]), edge_weight=torch.ones(1))
    with pytest.raises(InvalidDeltaError, match="node 3"):
        graph.add_edges(torch.tensor([[0], [3]]), edge_weight=torch.ones(1))
    with pytest.raises(InvalidDeltaError, match="edge_weight"):
        graph.add_edges(torch.tensor([[0], [2]]))
    assert edges_of(graph) == before


def test_hub_edges_cost_the_same_as_any():
    """Deleting a star edge by edge searches no list: the place of every edge is known."""
    n = 2000
    star = torch.stack([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.int64)])
    graph = DynamicGraph(star, n)
    for v in range(1, n):
        graph.delete_edges(torch.tensor([[v], [0]]))
    assert graph.num_edges == 0
    assert graph.inn.degree[0] == 0
    with pytest.raises(ValueError, match="partition"):
        DynamicGraph(torch.empty(2, 0, dtype=torch.int64), 2**31)


def test_room_grows_geometrically():
    """Ten thousand single additions move the pools and the slots a logarithmic number of times."""
    graph = DynamicGraph(torch.empty(2, 0, dtype=torch.int64), 50)
    sizes = set()
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        graph.add_edges(torch.from_numpy(rng.integers(0, 50, (2, 1))))
        sizes.add((graph.slot_capacity, graph.out.neighbor.size))
    assert len(sizes) < 40
    assert graph.num_edges == 10_000
    assert repr(graph) == "DynamicGraph(num_nodes=50, num_edges=10000)"


@pytest.mark.parametrize("undo", ["delete", "remove"])
def test_slots_are_used_again(undo):
    """After many edges left at once, as many single ones find room without a new slot."""
    count, n = 3000, 60
    rng = np.random.default_rng(0)
    edges = torch.from_numpy(rng.integers(0, n, (2, count)))
    graph = DynamicGraph(edges, n, {"edge_weight": torch.arange(count).float()})
    room = graph.slot_capacity
    for _ in range(2):
        if undo == "delete":
            graph.delete_edges(edges)
        else:
            graph.remove_nodes(torch.arange(n))
        assert graph.num_edges == 0
        for at in range(count):
            weight = torch.tensor([float(at)])
            graph.add_edges(edges[:, [at]], edge_weight=weight)
        assert graph.slot_capacity == room
        assert graph.num_edges == count
        expected = zip(*edges.tolist(), range(count), strict=True)
        assert edges_of(graph) == list(expected)


def test_slots_are_used_again_when_edges_come_and_go_one_by_one():
    graph = DynamicGraph(torch.tensor([[0, 1], [1, 2]]), 4)
    room = graph.slot_capacity
    for at in range(1000):
        pair = torch.tensor([[at % 4], [(at + 1) % 4]])
        graph.add_edges(pair)
        graph.delete_edges(pair)
    graph.delete_edges(torch.tensor([[0, 1], [1, 2]]))
    for _ in range(200):
        graph.add_edges(torch.tensor([[0, 1, 2], [3, 3, 3]]))
        graph.remove_nodes(torch.tensor([3]))
    assert graph.num_edges == 0
    assert graph.slot_capacity == room


PARALLEL = 2000


def parallel() -> tuple[DynamicGraph, list[Edge]]:
    """2,000 edges of one pair, among edges of other pairs."""
    pair = [(3, 1)] * PARALLEL
    some = [(0, 1), (3, 2), *pair[:1000], (1, 1), (3, 1), *pair[1001:], (1, 3), (2, 1)]
    expected = [(u, v, float(at)) for at, (u, v) in enumerate(some)]
    weight = torch.tensor([e[2] for e in expected])
    return DynamicGraph(pairs(expected), 4, {"edge_weight": weight}), expected


def check(graph: DynamicGraph, expected: list[Edge]) -> None:
    assert edges_of(graph) == expected
    assert sorted(listed(graph, "out")) == sorted(expected)
    assert sorted(listed(graph, "inn")) == sorted(expected)


@pytest.mark.parametrize("count", [1, 700, PARALLEL - 1, PARALLEL])
def test_parallel_edges_leave_youngest_first(count):
    graph, expected = parallel()
    graph.delete_edges(torch.tensor([[3], [1]]).repeat(1, count))
    at = [i for i, e in enumerate(expected) if e[:2] == (3, 1)]
    gone = set(at[PARALLEL - count :])
    expected = [e for i, e in enumerate(expected) if i not in gone]
    check(graph, expected)
    if count < PARALLEL:
        graph.change_edges(torch.tensor([[3], [1]]), edge_weight=torch.tensor([-1.0]))
        youngest = max(i for i, e in enumerate(expected) if e[:2] == (3, 1))
        expected[youngest] = (3, 1, -1.0)
        check(graph, expected)
    graph.add_edges(torch.tensor([[3, 3], [1, 1]]), edge_weight=torch.tensor([7.0, 8.0]))
    check(graph, [*expected, (3, 1, 7.0), (3, 1, 8.0)])


def test_one_parallel_edge_too_many_is_refused():
    graph, expected = parallel()
    with pytest.raises(InvalidDeltaError, match=r"edge \(3, 1\)"):
        graph.delete_edges(torch.tensor([[3], [1]]).repeat(1, PARALLEL + 1))
    check(graph, expected)


@pytest.mark.parametrize("first", [[], [(1, 4)]], ids=["all there", "one missing"])
def test_a_pair_listed_twice_gives_two_edges(first):
    edges = torch.tensor([[0, 2, 0, 0], [1, 3, 1, 1]])
    graph = DynamicGraph(edges, 5)
    src, dst = np.array([*first, (0, 1), (2, 3), (0, 1)], np.int64).T.copy()
    found, _ = graph.resolve_removal(src, dst, *[np.empty(0, np.int64)] * 2)
    assert found.tolist() == [-1] * len(first) + [3, 1, 2]


@pytest.mark.parametrize("node", [1, 3])
def test_a_node_with_many_parallel_edges_is_removed(node):
    graph, expected = parallel()
    graph.remove_nodes(torch.tensor([node]))
    check(graph, [e for e in expected if node not in e[:2]])
    graph.add_edges(torch.tensor([[3], [1]]), edge_weight=torch.tensor([7.0]))
    assert edges_of(graph)[-1] == (3, 1, 7.0)


def test_one_list_may_outgrow_all_others():
    """A hub with nearly all edges needs twice the room of everything there was."""
    graph = DynamicGraph(torch.empty(2, 0, dtype=torch.int64), 3)
    for _ in range(5000):
        graph.add_edges(torch.tensor([[1], [0]]))
    assert graph.inn.degree[0] == graph.out.degree[1] == graph.num_edges == 5000
    graph.delete_edges(torch.tensor([[1], [0]]).repeat(1, 4999))
    assert graph.to_edge_index().tolist() == [[1], [0]]


@pytest.mark.parametrize("seed", range(4))
def test_what_lists_need_is_what_they_take(seed):
    """So that edges are never half in: not in a list because its pool is full."""
    rng = np.random.default_rng(seed)
    graph = DynamicGraph(torch.from_numpy(rng.integers(0, 9, (2, 20))), 9)
    for size in (1, 3, 40, 500, 2000, 7000):
        at = rng.integers(0, 9, (2, size)) // rng.integers(1, 9)  # some nodes get most
        for side, (key, lists) in enumerate(((at[0], "out"), (at[1], "inn"))):
            adj = getattr(graph, lists)
            needed = adjacency.needed(key, adj)
            exactly = adj.neighbor.size - needed
            assert adjacency.fits(key, adj, exactly)
            assert not adjacency.fits(key, adj, exactly + 1)
            top = int(graph._tops[side])
            if top + needed <= adj.neighbor.size:
                other = np.zeros(size, np.int64)
                copy = adj._replace(**{k: v.copy() for k, v in adj._asdict().items()})
                tops, taken = np.array([top]), np.arange(size)
                adjacency.put(key, other, taken, np.zeros(size, np.int32), copy, tops)
                assert tops[0] == top + needed
                assert (copy.degree - adj.degree == np.bincount(key, minlength=9)).all()
        graph.add_edges(torch.from_numpy(at))
        assert (graph._tops <= [graph.out.neighbor.size, graph.inn.neighbor.size]).all()
        assert len(listed_pairs(graph)) == graph.num_edges


def listed_pairs(graph):
    """The pairs of both lists, which have to agree."""
    found = {}
    for name in ("out", "inn"):
        adj = getattr(graph, name)
        found[name] = sorted(
            (v, int(u)) if name == "out" else (int(u), v)
            for v in range(graph.num_nodes)
            for u in adj.neighbor[adj.start[v] : adj.start[v] + adj.degree[v]]
        )
    assert found["out"] == found["inn"]
    return found["out"]

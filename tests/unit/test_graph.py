"""DynamicGraph against a plain list of edges."""

import numpy as np
import pytest
import torch

from pyg_incremental import DynamicGraph, InvalidDeltaError

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

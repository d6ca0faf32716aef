"""Random graphs, and random changes that fit them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.testing.trials import Change, Pair, TrialGraph

Random = np.random.Generator


def feature_rows(like: Tensor, count: int, rng: Random) -> Tensor:
    """Rows `[count, ...]`: normal, or drawn from those of `like` if these are integers."""
    if not like.dtype.is_floating_point:
        return like[rng.integers(0, len(like), count)] if len(like) else like.new_zeros(count)
    return torch.from_numpy(rng.standard_normal((count, *like.shape[1:]))).to(like)


def edge_rows(like: Tensor, count: int, rng: Random) -> Tensor:
    """Edge data `[count, ...]`: multiples of 1/8 up to 1, or drawn from integers in `like`."""
    if not like.dtype.is_floating_point:
        return feature_rows(like, count, rng)
    return torch.from_numpy(rng.integers(1, 9, (count, *like.shape[1:])) / 8).to(like)


def some_graph(kind: str, x: Tensor, data: Mapping[str, Tensor], rng: Random) -> TrialGraph:
    """A graph of one of the `GRAPHS`; `x`, `[n, ...]`, and `data`, `[m, ...]`, are as its rows."""
    n = {"one node": 1, "no edges": 3}.get(kind, 10)
    pairs: list[Pair] = []
    if kind == "ordinary":  # self-loops, parallel edges, a hub, an isolated node
        pairs = _pairs(rng, n - 1, 14) + [(v, 0) for v in range(1, 6)] + [(0, v) for v in (6, 7)]
        pairs += [(2, 2), (0, 0), pairs[0], pairs[0]]
    elif kind == "dense":
        pairs = [(u, v) for u in range(n - 4) for v in range(n - 4) if rng.random() < 0.7]
    order = rng.permutation(len(pairs))
    rows = {name: edge_rows(t, len(pairs), rng) for name, t in data.items()}
    return TrialGraph(feature_rows(x, n, rng), tuple(pairs[i] for i in order), rows)


GRAPHS = ("ordinary", "dense", "no edges", "one node")


def _pairs(rng: Random, nodes: int, count: int) -> list[Pair]:
    return [(int(u), int(v)) for u, v in rng.integers(0, nodes, (count, 2))]


def _added(graph: TrialGraph, pairs: Sequence[Pair], rng: Random) -> list[Change]:
    data = {name: edge_rows(t, len(pairs), rng) for name, t in graph.data.items()}
    return [Change("add", p, data={n: t[i] for n, t in data.items()}) for i, p in enumerate(pairs)]


def _some_pairs(graph: TrialGraph, rng: Random, count: int) -> list[Pair]:
    count = min(count, len(graph.pairs))
    return [graph.pairs[i] for i in rng.choice(len(graph.pairs), count, replace=False)]


def _some_nodes(graph: TrialGraph, rng: Random, count: int) -> list[int]:
    nodes: list[int] = rng.choice(graph.num_nodes, min(count, graph.num_nodes), False).tolist()
    return nodes


def _add(graph: TrialGraph, rng: Random) -> list[Change]:
    return _added(graph, _pairs(rng, graph.num_nodes, 3), rng)


def _loops(graph: TrialGraph, rng: Random) -> list[Change]:
    return _added(graph, [(v, v) for v in _some_nodes(graph, rng, 2)], rng)


def _parallel(graph: TrialGraph, rng: Random) -> list[Change]:
    return _added(graph, _some_pairs(graph, rng, 1) * 2, rng)


def _delete(graph: TrialGraph, rng: Random) -> list[Change]:
    return [Change("del", pair) for pair in _some_pairs(graph, rng, 3)]


def _last_neighbor(graph: TrialGraph, rng: Random) -> list[Change]:
    targets = [v for _, v in _some_pairs(graph, rng, 1)]
    return [Change("del", pair) for pair in graph.pairs if pair[1] in targets]


def _all_edges(graph: TrialGraph, rng: Random) -> list[Change]:
    return [Change("del", pair) for pair in graph.pairs]


def _features(graph: TrialGraph, rng: Random) -> list[Change]:
    nodes = _some_nodes(graph, rng, 2)
    rows = feature_rows(graph.x, len(nodes), rng)
    return [Change("x", (v,), rows[i]) for i, v in enumerate(nodes)]


def _edge_data(graph: TrialGraph, rng: Random) -> list[Change]:
    pairs = _some_pairs(graph, rng, 3) if graph.data else []
    return [replace(c, kind="edge") for c in _added(graph, pairs, rng)]


def _new_nodes(graph: TrialGraph, rng: Random) -> list[Change]:
    n, (u, v) = graph.num_nodes, rng.integers(0, graph.num_nodes + 2, 2).tolist()
    new = [Change("new", row=row) for row in feature_rows(graph.x, 2, rng)]
    return new + _added(graph, [(n, n + 1), (n + 1, u), (v, n)], rng)


def _remove_node(graph: TrialGraph, rng: Random) -> list[Change]:
    return [Change("drop", (v,)) for v in _some_nodes(graph, rng, 1)]


def _remove_hub(graph: TrialGraph, rng: Random) -> list[Change]:
    ends = [u for u, _ in graph.pairs] or [0]
    return [Change("drop", (max(set(ends), key=ends.count),))] if graph.num_nodes else []


def _mixed(graph: TrialGraph, rng: Random) -> list[Change]:
    gone = _delete(graph, rng)
    left = [i for i, pair in enumerate(graph.pairs) if pair not in {c.at for c in gone}]
    changed = _edge_data(graph.edges(left), rng)
    drop = _remove_node(graph, rng) if rng.random() < 0.3 else []
    return gone + _add(graph, rng) + changed + _features(graph, rng) + _new_nodes(graph, rng) + drop


def _nan(graph: TrialGraph, rng: Random) -> list[Change]:
    floats = graph.x.dtype.is_floating_point
    rows = _features(graph, rng)[:1] if floats else []
    return [replace(c, row=torch.full_like(graph.x[0], torch.nan)) for c in rows]


def _finite_again(graph: TrialGraph, rng: Random) -> list[Change]:
    nodes = (graph.x != graph.x).flatten(1).any(1).nonzero().view(-1).tolist()
    rows = feature_rows(graph.x, len(nodes), rng)
    return [Change("x", (v,), rows[i]) for i, v in enumerate(nodes)]


CHANGES: dict[str, Callable[[TrialGraph, Random], list[Change]]] = {
    "add edges": _add,
    "add self-loops": _loops,
    "add parallel edges": _parallel,
    "delete edges": _delete,
    "last in-neighbour leaves": _last_neighbor,
    "all edges leave": _all_edges,
    "change features": _features,
    "change edge data": _edge_data,
    "new nodes": _new_nodes,
    "remove a node": _remove_node,
    "remove the hub": _remove_hub,
    "mixed": _mixed,
    "NaN": _nan,
    "finite again": _finite_again,
}
"""Kinds of random changes, by name."""

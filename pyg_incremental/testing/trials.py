"""A small graph and what happens to it, and how a failing try is made smaller.

A `TrialGraph` is a plain list of edges and applies changes one at a time, slowly and obviously; it
knows nothing of stored rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Change:
    """One change: `kind` is one of 'new', 'del', 'add', 'x', 'edge' and 'drop'.

    Attributes:
        kind: A new node, an edge that leaves, one that comes, new features, new edge data, or a
            node that leaves.
        at: The node, or source and target of the edge; empty for a new node.
        row: The features, `[...]`.
        data: Edge data by name, `[...]` each.
    """

    kind: str
    at: tuple[int, ...] = ()
    row: Tensor | None = None
    data: Mapping[str, Tensor] = field(default_factory=dict)


Changes = tuple[Change, ...]


@dataclass(frozen=True, eq=False)
class TrialGraph:
    """Features `[num_nodes, ...]`, edges in the order in which they came, and their data."""

    x: Tensor
    pairs: tuple[Pair, ...]
    data: Mapping[str, Tensor]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.x)

    def inputs(self) -> dict[str, Tensor]:
        """What a model is called with: features, edges and edge data, all copies."""
        graph = {"x": self.x.clone(), "edge_index": _index(self.pairs)}
        return {**graph, **{name: rows.clone() for name, rows in self.data.items()}}

    def edges(self, at: Sequence[int]) -> "TrialGraph":
        """The same with some of the edges only, in the order of `at`."""
        rows = torch.tensor(list(at), dtype=torch.long)
        data = {name: t[rows] for name, t in self.data.items()}
        return replace(self, pairs=tuple(self.pairs[i] for i in at), data=data)

    def after(self, changes: Sequence[Change]) -> "TrialGraph":
        """The graph after one delta, in the order that `GraphDelta` documents.

        Raises:
            KeyError: If an edge is not there.
        """
        of = {kind: [c for c in changes if c.kind == kind] for kind in _ORDER}
        x = torch.cat([self.x, *(c.row[None] for c in of["new"] if c.row is not None)])
        kept = list(range(len(self.pairs)))
        for c in of["del"]:
            kept.remove(_last([self.pairs[i] for i in kept], c.at, kept))
        graph = self.edges(kept)
        pairs = [*graph.pairs, *(_pair(c.at) for c in of["add"])]
        data = {n: list(t) + [c.data[n] for c in of["add"]] for n, t in graph.data.items()}
        for c in of["x"]:
            x[c.at[0]] = c.row if c.row is not None else 0
        for c in of["edge"]:
            at = _last(pairs, c.at, range(len(pairs)))
            for name, row in c.data.items():
                data[name][at] = row
        gone = {c.at[0] for c in of["drop"]}
        x[sorted(gone)] = 0
        here = [i for i, pair in enumerate(pairs) if not gone.intersection(pair)]
        rows = {n: torch.stack(t) if t else self.data[n][:0] for n, t in data.items()}
        return TrialGraph(x, tuple(pairs), rows).edges(here)


_ORDER = ("new", "del", "add", "x", "edge", "drop")


def _last(pairs: Sequence[Pair], pair: tuple[int, ...], names: Sequence[int]) -> int:
    for i in reversed(range(len(pairs))):
        if pairs[i] == pair:
            return names[i]
    raise KeyError(pair)


def _pair(at: tuple[int, ...]) -> Pair:
    return at[0], at[1]


def _index(pairs: Sequence[Pair]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()


def as_delta(changes: Sequence[Change]) -> GraphDelta:
    """Changes as one delta."""
    of = {kind: [c for c in changes if c.kind == kind] for kind in _ORDER}
    rows: dict[str, Any] = {}

    def stacked(found: Sequence[Change]) -> dict[str, Tensor]:
        return {name: torch.stack([c.data[name] for c in found]) for name in found[0].data}

    if of["new"]:
        rows["x_add"] = torch.stack([c.row for c in of["new"] if c.row is not None])
    if of["del"]:
        rows["edge_index_del"] = _index([_pair(c.at) for c in of["del"]])
    if of["add"]:
        rows["edge_index_add"] = _index([_pair(c.at) for c in of["add"]])
        if of["add"][0].data:
            rows["edge_data_add"] = stacked(of["add"])
    if of["x"]:
        new = torch.stack([c.row for c in of["x"] if c.row is not None])
        rows["x_changes"] = (torch.tensor([c.at[0] for c in of["x"]]), new)
    if of["edge"]:
        rows["edge_changes"] = (_index([_pair(c.at) for c in of["edge"]]), stacked(of["edge"]))
    if of["drop"]:
        rows["nodes_del"] = torch.tensor([c.at[0] for c in of["drop"]])
    return GraphDelta(**rows)


# Making smaller ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrialStream:
    """A graph and the deltas that are applied to it, one after the other."""

    graph: TrialGraph
    deltas: tuple[Changes, ...] = ()

    def graphs(self) -> Iterator[TrialGraph]:
        """The graph at the start and after each delta.

        Raises:
            KeyError: If a delta names an edge that is not there.
        """
        graph = self.graph
        yield graph
        for changes in self.deltas:
            graph = graph.after(changes)
            yield graph


def smallest(
    trial: TrialStream, fails: Callable[[TrialStream], bool], tries: int = 400
) -> TrialStream:
    """Leave out of a failing trial what is not needed for it to fail.

    Deltas, changes, nodes and edges are left out one at a time, and numbers made short.
    """
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _smaller(trial):
            tries -= 1
            if tries > 0 and fails(candidate):
                trial, smaller = candidate, True
                break
    return next((t for t in (_short(trial, 0), _short(trial, 1)) if fails(t)), trial)


def _smaller(trial: TrialStream) -> Iterator[TrialStream]:
    graph, deltas = trial.graph, trial.deltas
    for i in range(len(deltas)):
        yield TrialStream(graph, deltas[:i] + deltas[i + 1 :])
    for v in reversed(range(graph.num_nodes)):
        yield _without_node(trial, v)
    for i, changes in enumerate(deltas):
        for k in range(len(changes)):
            fewer = changes[:k] + changes[k + 1 :]
            yield TrialStream(graph, (*deltas[:i], fewer, *deltas[i + 1 :]))
    count = len(graph.pairs)
    for i in range(count):
        yield TrialStream(graph.edges([k for k in range(count) if k != i]), deltas)


def _short(trial: TrialStream, digits: int) -> TrialStream:
    """The same with fewer digits."""
    deltas = tuple(
        tuple(c if c.row is None else replace(c, row=_rounded(c.row, digits)) for c in changes)
        for changes in trial.deltas
    )
    return TrialStream(replace(trial.graph, x=_rounded(trial.graph.x, digits)), deltas)


def _rounded(rows: Tensor, digits: int) -> Tensor:
    """Fewer digits, and no negative zero."""
    return rows.round(decimals=digits) + 0.0 if rows.dtype.is_floating_point else rows


def _without_node(trial: TrialStream, node: int) -> TrialStream:
    """The same without a node of the first graph; ids behind it move up."""
    graph = trial.graph

    def moved(at: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v - (v > node) for v in at)

    here = graph.edges([i for i, pair in enumerate(graph.pairs) if node not in pair])
    rows = [v for v in range(graph.num_nodes) if v != node]
    pairs = tuple(_pair(moved(pair)) for pair in here.pairs)
    deltas = tuple(
        tuple(replace(c, at=moved(c.at)) for c in changes if node not in c.at)
        for changes in trial.deltas
    )
    return TrialStream(replace(here, x=graph.x[rows], pairs=pairs), deltas)

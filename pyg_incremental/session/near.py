"""A part of a session's graph: what some nodes see, or some of that where it is too much."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pyg_incremental.delta.journal import State
from pyg_incremental.delta.resolve.derived import with_derived
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.program.steps import Domain, Relation
from pyg_incremental.session.session import Session

AT_ONCE = 4
"""Rows of every node and edge that a model is taken to hold at once: messages and their sums."""


@dataclass(frozen=True)
class NearPart:
    """Some nodes and edges.

    Attributes:
        ids: The nodes of each kind, int64 `[k]`, ascending.
        slots: The edges of each graph, int64 `[m]`, in the order in which a model is given them.
    """

    ids: dict[str, Ids]
    slots: dict[str, Ids]

    @property
    def num_nodes(self) -> int:
        """How many nodes of all kinds there are."""
        return sum(ids.size for ids in self.ids.values())

    @property
    def num_edges(self) -> int:
        """How many edges of all graphs there are."""
        return sum(slots.size for slots in self.slots.values())

    def state(self, session: Session) -> State:
        """Graphs, numbers of nodes and node inputs of the part, copied out of its session."""
        counts = {kind: ids.size for kind, ids in self.ids.items()}
        graphs = {}
        for r in session.roles.relations:
            if r.derived is not None:
                continue
            graph, slots = session.graphs[r.graph], self.slots[r.graph]
            src, dst = graph.ends_of(slots)
            ends = self.places(r.source, src), self.places(r.target, dst)
            at = torch.from_numpy(slots)
            data = {name: rows[at.to(rows.device)] for name, rows in graph.edge_data.items()}
            room = max(counts[r.source], counts[r.target])
            graphs[r.graph] = DynamicGraph(torch.stack(ends), room, data, r.by_target)
        graphs = with_derived(session.roles.relations, graphs, counts)
        nodes = {
            name: rows[torch.from_numpy(self.ids[session.roles.nodes[name]]).to(rows.device)]
            for name, rows in session.nodes().items()
        }
        return graphs, counts, nodes

    def places(self, kind: str, ids: Ids) -> Tensor:
        """Where nodes that are in the part stand in it, int64 `[k]`."""
        return torch.from_numpy(np.searchsorted(self.ids[kind], ids))


def complete_around(
    session: Session, asked: Mapping[str, Ids], most: int | None = None
) -> NearPart | None:
    """All that some nodes see; None if that has more than so many edges.

    `asked` are their ids, int64 `[k]` by kind.
    """
    return _Search(session, asked, most).part(fewer=False)


def some_around(session: Session, asked: Mapping[str, Ids], most: int) -> NearPart:
    """Nodes and edges around some nodes, of at most so many edges.

    A node of which not all edges are taken keeps some from everywhere in its list. All nodes of a
    kind with learned rows are there, and all graphs that a readout stands for.

    Args:
        session: The session.
        asked: The nodes to begin with, int64 `[k]` by kind.
        most: The number of edges.
    """
    part = _Search(session, asked, most).part(fewer=True)
    assert part is not None
    return part


def rows_in(session: Session, nbytes: int) -> int:
    """For how many nodes and edges together a pass of the model itself fits in some bytes."""
    sizes = [rows.shape[1:].numel() for rows in session.nodes().values()]
    sizes += [r.shape[1:].numel() for g in session.graphs.values() for r in g.edge_data.values()]
    sizes += [
        cell.rows.shape[1:].numel()
        for cell in session.engine.cells.values()
        if cell.rows is not None and cell.domain is not Domain.WHOLE
    ]
    counts = {*session.num_nodes.values()}
    sizes += (_width(m, counts) for m in session.plan.site.model.modules())
    return nbytes // (AT_ONCE * max([1, *sizes]) * max(session.like.element_size(), 4))


def _width(module: nn.Module, num_nodes: Set[int]) -> int:
    """Channels of the widest rows that a module makes by itself.

    Tables have a row for each id, and some weights one for each node, of which there are as many.
    """
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return module.embedding_dim
    own = (p for p in module.parameters(recurse=False) if not is_lazy(p))
    return max((size for p in own for size in p.shape if size not in num_nodes), default=1)


class _Search:
    """Goes against the edges, hop by hop; along them, too, where some step gathers that way."""

    def __init__(self, session: Session, asked: Mapping[str, Ids], most: int | None) -> None:
        program = session.plan.program
        self.session, self.asked = session, asked
        self.hops = max(program.depth, 1)
        self.both_ways = program.goes_against_edges
        self.both_ways |= bool(session.roles.derived)  # which may lead the other way
        self.left = np.iinfo(np.int64).max if most is None else most
        self.found: dict[str, list[Ids]] = {r.graph: [] for r in session.roles.relations}
        self.seen = {kind: np.zeros(n, bool) for kind, n in session.num_nodes.items()}

    def part(self, fewer: bool) -> NearPart | None:
        """What is found; None where that is too much and there may be no `fewer` edges."""
        roles, graphs = self.session.roles, self.session.graphs
        self._ends_of_pairs()
        ends = {kind: np.flatnonzero(mask) for kind, mask in self.seen.items()}
        for hop in range(self.hops):
            if not self._go_on(ends, hop, fewer):
                return None
            before, self.seen = self.seen, {k: mask.copy() for k, mask in self.seen.items()}
            for r in roles.given:
                for slots in self.found[r.graph]:
                    self.seen[r.source][graphs[r.graph].slots.src[slots]] = True
                    self.seen[r.target][graphs[r.graph].slots.dst[slots]] = True
            ends = {k: np.flatnonzero(mask & ~before[k]) for k, mask in self.seen.items()}
        named = {r.target for r in roles.relations if r.members}
        for kind in self.seen:
            if kind in named or kind in roles.fixed:
                self.seen[kind][:] = True
        ids = {kind: np.flatnonzero(mask) for kind, mask in self.seen.items()}
        for r in roles.relations:
            if r.members:
                lists = graphs[r.graph].out
                self.found[r.graph].append(_entries(lists, ids[r.source], None))
        places = {
            r.graph: graphs[r.graph].slots_for_model(
                np.unique(np.concatenate([_NONE, *self.found[r.graph]]))
            )
            for r in roles.relations
            if r.derived is None
        }
        return NearPart(ids, places)

    def _ends_of_pairs(self) -> None:
        """Begin at the nodes, and where the model answers for edges at the ends of the first."""
        for kind, ids in self.asked.items():
            self.seen[kind][ids] = True
        most = max((ids.size for ids in self.asked.values()), default=1)
        relations = {r.graph: r for r in self.session.roles.given}
        for value in self.session.plan.program.outputs:
            if value.domain is Domain.EDGE and value.kind in relations:
                graph, r = self.session.graphs[value.kind], relations[value.kind]
                slots = np.flatnonzero(graph.slots.in_at >= 0)[:most]
                self.found[r.graph].append(slots)
                self.seen[r.source][graph.slots.src[slots]] = True
                self.seen[r.target][graph.slots.dst[slots]] = True

    def _go_on(self, ends: Mapping[str, Ids], hop: int, fewer: bool) -> bool:
        """Take the edges of the nodes that were found last; whether all that were wanted fit."""
        relations = [(r, out) for r in self.session.roles.given for out in self._ways(r)]
        share = self.left // ((self.hops - hop) * max(len(relations), 1))
        for r, out in relations:
            graph, near = self.session.graphs[r.graph], ends[r.source if out else r.target]
            lists = graph.out if out else graph.inn
            count = int(lists.degree[near].sum(dtype=np.int64))
            room = share if fewer else self.left
            if count > room and not fewer:
                return False
            slots = _entries(lists, near, room if count > room else None)
            self.left -= slots.size
            self.found[r.graph].append(slots)
        return True

    def _ways(self, relation: Relation) -> tuple[bool, ...]:
        """Whether edges are followed to their targets: not, or both."""
        return (False, True) if self.both_ways else (False,)


_NONE = np.empty(0, np.int64)


def _entries(lists: Adjacency, nodes: Ids, most: int | None) -> Ids:
    """The slots in the lists of some nodes, int64 `[m]`; of at most so many, as many of each."""
    nodes = nodes if most is None else nodes[:: max(1, -(-nodes.size // max(most, 1)))]
    degree = lists.degree[nodes].astype(np.int64)
    taken = degree
    if most is not None:
        taken = np.minimum(degree, max(most // max(nodes.size, 1), 1))
    within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    spread = within * np.repeat(degree, taken) // np.repeat(np.maximum(taken, 1), taken)
    found: Ids = lists.edge[np.repeat(lists.start[nodes], taken) + spread].astype(np.int64)
    return found

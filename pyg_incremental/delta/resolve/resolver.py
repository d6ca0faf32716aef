"""A delta held against the graphs.

It is checked whole, before anything is touched, and turned into slots and rows.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.intake import Intake, Refused
from pyg_incremental.delta.read.edges import GivenEdges, nothing_given
from pyg_incremental.delta.read.reader import DeltaReader
from pyg_incremental.delta.read.unread import without_unread
from pyg_incremental.delta.resolve.derived import Follower
from pyg_incremental.delta.resolve.edges import (
    ResolvedEdges,
    find_edges,
    refuse_absent,
    refuse_too_many,
)
from pyg_incremental.delta.resolve.members import Members
from pyg_incremental.delta.resolve.plain import PlainResolver
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import EdgeEvents, Ids
from pyg_incremental.program.steps import Relation

_NOBODY = np.empty(0, np.int64)


@dataclass
class ResolvedDelta:
    """A valid delta.

    Attributes:
        new_nodes: Number of nodes to append, for each kind of which there are any.
        edges: What happens to the edges of each graph that changes.
        rows: For each changed node input the distinct ids and their new rows, new nodes included.
        removed: The distinct ids of the nodes to remove, for each kind of which there are any.
        refused: What was left out, as it does not fit.
    """

    new_nodes: dict[str, int]
    edges: dict[str, ResolvedEdges]
    rows: dict[str, tuple[Tensor, Tensor]]
    removed: dict[str, Ids] = field(default_factory=dict)
    refused: Sequence[Refused] = ()


class Resolver:
    """Checks deltas against the graphs and node inputs of a call.

    Args:
        roles: What the tensors of the call are.
        graphs: The graphs by the names of the arguments.
        num_nodes: The current number of nodes of each kind.
        rows: Node inputs without rows, `[0, ...]`: shape, dtype and device of new rows.
        kept: The node inputs of which the rows of removed nodes are not cleared.

    Attributes:
        plain: Knows the most common deltas; None if there are others only.
        asking: Those who have to be asked first, see `of_now`.
    """

    def __init__(
        self,
        roles: Roles,
        graphs: Mapping[str, DynamicGraph],
        num_nodes: Mapping[str, int],
        rows: Mapping[str, Tensor],
        kept: Container[str] = (),
    ) -> None:
        self._kept = kept
        self._relations, self._graphs, self._num_nodes = roles.relations, graphs, num_nodes
        self._given = roles.given
        self._inputs: dict[str, list[str]] = {kind: [] for kind in num_nodes}
        for of, kind in roles.handed_in.nodes.items():
            self._inputs[kind].append(of)
        self.reader = DeltaReader(
            roles, num_nodes, rows, {name: graph.edge_data for name, graph in graphs.items()},
            {name: graph.find for name, graph in graphs.items()},
        )  # fmt: skip
        self._members = [Members(r, graphs[r.graph]) for r in roles.relations if r.members]
        self.asking = [m for m in self._members if m.relation.read_back or m.relation.every]
        self._followers = [Follower(r, graphs) for r in roles.derived]
        self.plain: PlainResolver | None = None
        self._roles, self._rows = roles, rows
        if roles.main is not None:
            self.is_plain_on(roles.main.graph)

    def is_plain_on(self, graph: str) -> None:
        """Let `plain` know the deltas of one graph, if there are such."""
        roles, num_nodes = self._roles, self._num_nodes
        main = next(r for r in roles.relations if r.graph == graph)
        name, kind, target = roles.features(main.source), main.source, main.target
        if self._followers:
            return  # whose edges change with those of others
        others = [k for k in roles.kinds if k != kind]
        if name is None or others != [target] * (kind != target):
            return
        if others and (kind or roles.features(target) is not None):
            return  # only of hyperedges, which have no features, it is clear whose are meant
        self._main, self._features = graph, name
        alone = len(roles.relations) == len(num_nodes) == len(roles.nodes) == 1
        called = (name,) if kind in roles.nodes else (name, kind)
        self.plain = PlainResolver(
            self._graphs[graph], num_nodes, main.key, roles.main is None, (kind, target), called,
            self._rows[name], alone, alone and kind not in roles.fixed and not roles.grows(kind),
        )  # fmt: skip

    @property
    def of_now(self) -> PlainResolver | None:
        """The same; None while nodes are in no graph, to which edges may not come, or come back."""
        for members in self.asking:
            if members.graph.num_edges < self._num_nodes[members.relation.source]:
                return None
        return self.plain

    def ids(self, value: Any, name: str) -> dict[str, Ids]:
        """Node ids by kind, checked."""
        return self.reader.ids(value, name)

    def of_plain(
        self, changes: ResolvedEdges | None, given: tuple[Tensor, Tensor] | None
    ) -> ResolvedDelta:
        """A plain delta in the form that all have.

        `given` are ids and rows of the features, int64 `[c]` and `[c, ...]`; None if none change.
        """
        return ResolvedDelta(
            {},
            {} if changes is None else {self._main: changes},
            {} if given is None else {self._features: given},
        )

    def resolve(self, delta: GraphDelta) -> ResolvedDelta:
        """Check everything.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        if self._roles.unread:
            delta = without_unread(delta, self._roles.unread)
        resolver = self.of_now
        plain = None if resolver is None else resolver.resolve(delta)
        if plain is not None:
            return self.of_plain(*plain)
        reader, num_nodes = self.reader, self._num_nodes
        arrivals = reader.arrivals(delta)
        new_nodes = arrivals.counts(num_nodes)
        total = {kind: n + new_nodes.get(kind, 0) for kind, n in num_nodes.items()}
        intake = Intake(delta.invalid == "skip")
        given = reader.read(delta, arrivals, total, intake)
        edges = {}
        for r in self._given:
            gone, own = given.removed_at(r), given.edges.get(r.graph)
            if own is not None or gone[0].size or gone[1].size:
                own = own or nothing_given(self._graphs[r.graph].edge_data)
                edges[r.graph] = self._held(r, own, total, gone, delta, intake)
        rows: dict[str, tuple[Tensor, Tensor]] = {}
        for kind, nodes in given.nodes.items():
            rows |= nodes.rows(reader.nodes[kind].like, num_nodes[kind], self._kept)
        removed = {kind: nodes.removed for kind, nodes in given.nodes.items() if nodes.removed.size}
        for members in self._members:
            self._follow(members, rows, edges, new_nodes, removed)
        for follower in self._followers:
            kind = follower.relation.source
            changes = follower.follow(edges, num_nodes[kind], new_nodes.get(kind, 0))
            if changes is not None:
                edges[follower.relation.graph] = changes
        return ResolvedDelta(new_nodes, edges, rows, removed, intake.refused)

    def _follow(
        self,
        members: Members,
        rows: dict[str, tuple[Tensor, Tensor]],
        edges: dict[str, ResolvedEdges],
        new_nodes: dict[str, int],
        removed: Mapping[str, Ids],
    ) -> None:
        """Let the edges to graphs follow what a delta says of nodes, and hold it against them."""
        r, num_nodes = members.relation, self._num_nodes
        gone, changed = removed.get(r.source, _NOBODY), rows.get(r.members)
        if r.leaves and gone.size:
            changed = members.left(changed, gone)
        if r.every and members.graph.num_edges < num_nodes[r.source]:
            given = [rows[n][0].cpu().numpy() for n in self._inputs[r.source] if n in rows]
            changed = members.back(changed, [*given, *self._ends_at(r.source, edges)], gone)
        if changed is not None:
            rows[r.members] = changed
            before = num_nodes[r.source], num_nodes[r.target]
            edges[r.graph], more = members.follow(before, *rows[r.members])
            if more:
                new_nodes[r.target] = more
        if r.read_back:
            members.refuse_outside(self._ends_at(r.source, edges), rows.get(r.members))

    def _ends_at(self, kind: str, edges: Mapping[str, ResolvedEdges]) -> list[Ids]:
        """The nodes of a kind to which edges come."""
        return [
            edges[g.graph].added[side]
            for g in self._given
            for side, of in enumerate((g.source, g.target))
            if g.graph in edges and of == kind
        ]

    def _held(
        self,
        relation: Relation,
        given: GivenEdges,
        total: Mapping[str, int],
        gone: tuple[Ids, Ids],
        delta: GraphDelta,
        intake: Intake,
    ) -> ResolvedEdges:
        """What is said of the edges of one graph, held against them."""
        graph, ends = self._graphs[relation.graph], (relation.source, relation.target)
        refuse_too_many(graph, given.added.shape[1], max(total[kind] for kind in ends))
        before = self._num_nodes[relation.source], self._num_nodes[relation.target]
        found = find_edges(graph, given, before, gone, delta.which == "oldest")
        if delta.missing == "error":
            refuse_absent(found, self.reader.edges[relation.graph].label, intake)
        return found.resolved(gone)

    def apply(
        self, resolved: ResolvedDelta, graphs: Mapping[str, DynamicGraph], num_nodes: dict[str, int]
    ) -> dict[str, EdgeEvents]:
        """Change the graphs; slots that left have to be released when the update is through."""
        if resolved.new_nodes:
            for kind, count in resolved.new_nodes.items():
                num_nodes[kind] += count
            for r in self._relations:
                more = max(num_nodes[r.source], num_nodes[r.target]) - graphs[r.graph].num_nodes
                if more > 0:
                    graphs[r.graph].append_nodes(more)
        return {name: edges.apply(graphs[name]) for name, edges in resolved.edges.items()}

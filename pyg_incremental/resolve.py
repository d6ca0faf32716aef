"""A delta held against the graphs.

It is checked whole, before anything is touched, and turned into slots and rows.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from pyg_incremental.delta import GraphDelta, as_edges
from pyg_incremental.edge_store import EdgeEvents, Ids
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.resolve_edges import EdgeResolver, ResolvedEdges, short_name
from pyg_incremental.resolve_nodes import NodeResolver
from pyg_incremental.resolve_plain import PlainResolver
from pyg_incremental.resolve_rows import checked_ids
from pyg_incremental.roles import Roles, is_label

_EDGE_FIELDS = (
    "edge_index_add", "edge_index_del", "edge_weight_add", "edge_attr_add", "edge_changes",
    "edge_data_add",
)  # fmt: skip
_NOBODY: Ids = np.empty(0, np.int64)


@dataclass
class ResolvedDelta:
    """A valid delta.

    Attributes:
        new_nodes: Number of nodes to append, for each kind of which there are any.
        edges: What happens to the edges of each graph that changes.
        rows: For each changed node input the distinct ids and their new rows, new nodes included.
    """

    new_nodes: dict[str, int]
    edges: dict[str, ResolvedEdges]
    rows: dict[str, tuple[Tensor, Tensor]]


class Resolver:
    """Checks deltas against the graphs and node inputs of a call.

    Args:
        roles: What the tensors of the call are.
        graphs: The graphs by the names of the arguments.
        num_nodes: The current number of nodes of each kind.
        rows: Node inputs without rows, `[0, ...]`: shape, dtype and device of new rows.
    """

    def __init__(
        self,
        roles: Roles,
        graphs: Mapping[str, DynamicGraph],
        num_nodes: Mapping[str, int],
        rows: Mapping[str, Tensor],
    ) -> None:
        self._roles = roles
        self._num_nodes = num_nodes
        self._features = {kind: roles.features(kind) for kind in num_nodes}
        self._nodes = {
            kind: NodeResolver(
                {n: rows[n] for n, of in roles.nodes.items() if of == kind},
                self._label(kind),
                self._advice(kind),
            )
            for kind in num_nodes
        }
        several = len(roles.relations) > 1
        self._edges = [
            (
                r,
                EdgeResolver(
                    graphs[r.graph], r.unit_values, (r.source, r.target),
                    f"[{r.key!r}]" if several else "",
                    (self._advice(r.source), self._advice(r.target)),
                ),
            )
            for r in roles.relations
        ]  # fmt: skip
        keys = [r.key for r in roles.relations]
        self._main = [r.key for r in roles.relations if not is_label(r.graph)] or keys
        self._growing = [r for r in roles.relations if roles.grows(r.target)]
        self._plain: PlainResolver | None = None
        if len(self._edges) == len(num_nodes) == len(roles.nodes) == 1:
            relation, kind = roles.relations[0], next(iter(num_nodes))
            self._only_input = next(iter(roles.nodes))
            if not graphs[relation.graph].edge_data:
                self._plain = PlainResolver(
                    graphs[relation.graph], num_nodes, kind, rows[self._only_input]
                )

    def ids(self, value: Any, name: str) -> dict[str, Ids]:
        """Node ids by kind, checked."""
        given = self._by_kind(value, name)
        return {
            kind: checked_ids(
                ids, f"{name}{self._label(kind)}", self._num_nodes[kind], self._advice(kind)
            )
            for kind, ids in given.items()
        }

    def _label(self, kind: str) -> str:
        """How messages name a kind of nodes, if there are several."""
        return f"[{kind!r}]" if kind and len(self._num_nodes) > 1 else ""

    def _advice(self, kind: str) -> str:
        """What to do about an id that is too large."""
        if kind in self._roles.fixed:
            return f"there can be no more, as {self._roles.fixed[kind]}"
        if self._roles.grows(kind):
            return "new ones come with the edges that name them"
        return f"add nodes with x_add{f'={{{kind!r}: rows}}' if kind else ''}"

    def resolve(self, delta: GraphDelta) -> ResolvedDelta:
        """Check everything.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        plain = None if self._plain is None else self._plain.resolve(delta)
        if plain is not None:
            changes, given = plain
            return ResolvedDelta(
                {},
                {} if changes is None else {self._edges[0][0].graph: changes},
                {} if given is None else {self._only_input: given},
            )
        if delta.missing not in ("error", "ignore"):
            raise InvalidDeltaError(
                f"missing: expected 'error' or 'ignore' (got {delta.missing!r})"
            )
        num_nodes = self._num_nodes
        deltas = self._by_graph(delta)
        grown = self._grown(deltas)
        new_nodes = dict(grown)
        removed: dict[str, Ids] = {}
        rows: dict[str, tuple[Tensor, Tensor]] = {}
        x_changes = self._by_input(delta.x_changes, "x_changes")
        x_add = self._by_input(delta.x_add, "x_add")
        nodes_del = self._by_kind(delta.nodes_del, "nodes_del")
        if x_changes or x_add or nodes_del:
            for kind, resolver in self._nodes.items():
                before = num_nodes[kind] + grown.get(kind, 0)
                nodes = resolver.resolve(
                    x_changes.get(kind, {}), x_add.get(kind, {}), nodes_del.get(kind), before
                )
                if nodes.new:
                    self._refuse_more(kind, nodes.new)
                    new_nodes[kind] = nodes.new
                removed[kind] = nodes.removed
                rows |= nodes.rows
        edges = {}
        for r, edge_resolver in self._edges:
            own = deltas.get(r.key)
            gone = removed.get(r.source, _NOBODY), removed.get(r.target, _NOBODY)
            if is_label(r.graph):  # pairs to be looked at are no edges of the nodes, which stay
                gone = _NOBODY, _NOBODY
            if own is None and not gone[0].size and not gone[1].size:
                continue
            ends = num_nodes[r.source], num_nodes[r.target]
            total = ends[0] + new_nodes.get(r.source, 0), ends[1] + new_nodes.get(r.target, 0)
            own = own or GraphDelta()
            if own.undirected:
                if r.source != r.target:
                    raise InvalidDeltaError(
                        f"undirected: {r.key!r} connects two kinds of nodes, so its edges have one "
                        "direction; give both edge types"
                    )
                own = own.both_directions()
            edges[r.graph] = edge_resolver.resolve(own, ends, total, gone)
        return ResolvedDelta(new_nodes, edges, rows)

    def apply(
        self, resolved: ResolvedDelta, graphs: Mapping[str, DynamicGraph], num_nodes: dict[str, int]
    ) -> dict[str, EdgeEvents]:
        """Change the graphs; slots that left have to be released when the update is through."""
        if resolved.new_nodes:
            for kind, count in resolved.new_nodes.items():
                num_nodes[kind] += count
            for r, _ in self._edges:
                more = max(num_nodes[r.source], num_nodes[r.target]) - graphs[r.graph].num_nodes
                if more > 0:
                    graphs[r.graph].add_nodes(more)
        return {name: edges.apply(graphs[name]) for name, edges in resolved.edges.items()}

    def _grown(self, deltas: Mapping[Hashable, GraphDelta]) -> dict[str, int]:
        """How many nodes of each kind come with the edges that name them."""
        grown: dict[str, int] = {}
        for r in self._growing:
            own = deltas.get(r.key)
            if own is None or own.edge_index_add is None:
                continue
            ids = as_edges(own.edge_index_add, "edge_index_add")[1]
            more = int(ids.max(initial=-1)) + 1 - self._num_nodes[r.target]
            if more > 0:
                grown[r.target] = max(more, grown.get(r.target, 0))
        return grown

    def _refuse_more(self, kind: str, count: int) -> None:
        """Refuse new nodes of a kind of which there can be no more."""
        why = self._roles.fixed.get(kind)
        if why is not None:
            raise InvalidDeltaError(
                f"x_add{self._label(kind)}: expected no new nodes (got {count}), as {why}"
            )

    # Who is meant --------------------------------------------------------------------------------

    def _by_input(self, value: Any, field: str) -> dict[str, dict[str, Any]]:
        """What is said of each node input, by kind and name."""
        if value is None:
            return {}
        roles = self._roles
        found: dict[str, dict[str, Any]] = {}
        if not isinstance(value, Mapping):
            kind = self._only_kind(field)
            name = self._features[kind]
            if name is None:
                raise InvalidDeltaError(
                    f"{field}: the model is called without node features (got "
                    f"{type(value).__name__}, expected None), as {roles.fixed.get(kind)}; for "
                    "other rows change the parameter and call refresh()"
                )
            return {kind: {name: value}}
        for key, given in value.items():
            name = key if key in roles.nodes else self._features.get(key)
            if name is None:
                raise _unknown(field, key, list(dict.fromkeys([*self._known(), *roles.nodes])))
            kind = roles.nodes[name]
            own = {short_name(n): n for n, of in roles.nodes.items() if of == kind}
            if not isinstance(given, Mapping):
                given = {short_name(name): given}
            for short, part in given.items():
                if short not in own:
                    raise _unknown(f"{field}[{key!r}]", short, list(own))
                found.setdefault(kind, {})[own[short]] = part
        return found

    def _by_kind(self, value: Any, field: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            return {self._only_kind(field): value}
        found: dict[str, Any] = {}
        for key, given in value.items():
            kind: Any = self._roles.nodes.get(key, key)
            if kind not in self._num_nodes:
                raise _unknown(field, key, self._known())
            found[kind] = given
        return found

    def _known(self) -> list[str]:
        """The kinds of nodes; that without a name by its features."""
        return [kind or self._features[kind] or "x" for kind in self._roles.kinds]

    def _only_kind(self, field: str) -> str:
        kinds = self._roles.kinds
        if "" in kinds:
            return ""
        if len(kinds) > 1:
            raise InvalidDeltaError(
                f"{field}: there are several kinds of nodes; give a dict with keys among {kinds}"
            )
        return kinds[0]

    def _by_graph(self, delta: GraphDelta) -> dict[Hashable, GraphDelta]:
        """What is said of the edges of each graph, by its key."""
        keys = [r.key for r, _ in self._edges]
        given = {name: v for name in _EDGE_FIELDS if (v := getattr(delta, name)) is not None}
        if not given:
            return {}
        main = self._main
        if len(main) == 1 and not any(_is_keyed(v, keys) for v in given.values()):
            return {main[0]: delta}
        parts: dict[Hashable, dict[str, Any]] = {}
        for field, value in given.items():
            if not isinstance(value, Mapping):
                raise InvalidDeltaError(
                    f"{field}: there are several graphs; give a dict with keys among {keys}"
                )
            for key, part in value.items():
                if key not in keys:
                    raise _unknown(field, key, keys)
                parts.setdefault(key, {})[field] = part
        nothing = dict.fromkeys(_EDGE_FIELDS)
        return {key: replace(delta, **{**nothing, **part}) for key, part in parts.items()}


def _is_keyed(value: Any, keys: list[Any]) -> bool:
    """Whether a field is given by graph."""
    return isinstance(value, Mapping) and bool(value) and all(k in keys for k in value)


def _unknown(field: str, key: object, known: list[Any]) -> InvalidDeltaError:
    return InvalidDeltaError(f"{field}: there is no {key!r} (got {key!r}, expected one of {known})")

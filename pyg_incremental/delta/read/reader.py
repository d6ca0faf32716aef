"""What a delta says, read without looking at any edge: who is meant, and whether all of it fits."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles, is_label
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import (
    as_edges,
    chosen_ids,
    edge_change_parts,
    mirrored,
    rows_like,
)
from pyg_incremental.delta.intake import Intake
from pyg_incremental.delta.join import PAIR_FIELDS
from pyg_incremental.delta.read.edges import EdgeReader, GivenEdges, short_name
from pyg_incremental.delta.read.nodes import GivenNodes, NodeReader
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Relation

_EDGE_FIELDS = (
    "edge_index_add", "edge_index_del", "edge_weight_add", "edge_attr_add", "edge_changes",
    "edge_data_add", "edge_data_del", "edge_ids_add", "edge_ids_del",
)  # fmt: skip
_NOBODY: Ids = np.empty(0, np.int64)
_NOWHERE: Mapping[str, Callable[[Ids, Ids], Ids]] = {}


class Arrivals(NamedTuple):
    """The nodes that a delta brings.

    Attributes:
        rows: For each kind of which there are new nodes, their rows of each input.
        named: For each kind whose nodes come with the edges that name them one more than the
            largest id named.
    """

    rows: dict[str, dict[str, Tensor]]
    named: dict[str, int]

    def counts(self, num_nodes: Mapping[str, int]) -> dict[str, int]:
        """How many nodes of each kind are new, for kinds of which there are any."""
        found = {kind: len(next(iter(rows.values()))) for kind, rows in self.rows.items()}
        grown = {kind: end - num_nodes[kind] for kind, end in self.named.items()}
        return {**found, **{kind: more for kind, more in grown.items() if more > 0}}


@dataclass
class GivenDelta:
    """What a delta says; as far as one can tell without the edges, all of it fits.

    Attributes:
        nodes: What is said of the nodes of each kind, where anything is.
        edges: What is said of the edges of each graph, where anything is.
    """

    nodes: dict[str, GivenNodes]
    edges: dict[str, GivenEdges]

    def removed_at(self, relation: Relation) -> tuple[Ids, Ids]:
        """The removed nodes at the sources and at the targets of a graph."""
        if is_label(relation.graph):  # pairs to be looked at are no edges of the nodes, which stay
            return _NOBODY, _NOBODY
        ends = [self.nodes.get(kind) for kind in (relation.source, relation.target)]
        source, target = (_NOBODY if given is None else given.removed for given in ends)
        return source, target


class DeltaReader:
    """Reads deltas.

    Args:
        roles: What the tensors of the call are.
        num_nodes: The current number of nodes of each kind.
        rows: Node inputs without rows, `[0, ...]`: shape, dtype and device of new rows.
        edges: For each graph its edge data by name, of any number of rows.
        find: For each graph what finds slots, int64 `[k]`; nothing where nobody knows.
    """

    def __init__(
        self,
        roles: Roles,
        num_nodes: Mapping[str, int],
        rows: Mapping[str, Tensor],
        edges: Mapping[str, Mapping[str, Tensor]],
        find: Mapping[str, Callable[[Ids, Ids], Ids]] = _NOWHERE,
    ) -> None:
        self._roles = roles
        self._num_nodes = num_nodes
        self._features = {kind: roles.features(kind) for kind in num_nodes}
        self.nodes = {
            kind: NodeReader(
                {n: rows[n] for n, of in roles.nodes.items() if of == kind},
                self._label(kind),
                self._advice(kind),
            )
            for kind in num_nodes
        }
        several = len(roles.given) > 1
        self.edges = {
            r.graph: EdgeReader(
                edges[r.graph], r.unit_values, (r.source, r.target),
                f"[{r.key!r}]" if several else "",
                (self._advice(r.source), self._advice(r.target)), find.get(r.graph),
            )
            for r in roles.given
        }  # fmt: skip
        self._main = roles.main
        self._growing = [r for r in roles.given if roles.grows(r.target)]

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

    def ids(self, value: Any, name: str) -> dict[str, Ids]:
        """Nodes that are asked for by kind, see `chosen_ids`."""
        given = self.by_kind(value, name)
        return {
            kind: chosen_ids(
                ids, f"{name}{self._label(kind)}", self._num_nodes[kind], "name nodes of the graph"
            )
            for kind, ids in given.items()
        }

    def arrivals(self, delta: GraphDelta) -> Arrivals:
        """The nodes that a delta brings.

        Raises:
            InvalidDeltaError: If their rows do not fit, or there can be no more.
        """
        if delta.missing not in ("error", "ignore"):
            raise InvalidDeltaError(
                f"missing: expected 'error' or 'ignore' (got {delta.missing!r})"
            )
        if delta.which not in ("newest", "oldest"):
            raise InvalidDeltaError(f"which: expected 'newest' or 'oldest' (got {delta.which!r})")
        if delta.invalid not in ("error", "skip"):
            raise InvalidDeltaError(f"invalid: expected 'error' or 'skip' (got {delta.invalid!r})")
        if delta.values is not None:
            raise InvalidDeltaError(
                "values: arguments that are neither of nodes nor of edges change by apply_delta "
                "alone (got some, expected None); give them to that, in one process"
            )
        if delta.node_ids is not None:
            raise InvalidDeltaError(
                "node_ids: the nodes have no names (got some, expected None); give all of them "
                "names in the first call, as in inc(x, edge_index, node_ids=[...])"
            )
        if delta.edge_ids_del is not None:
            raise InvalidDeltaError(
                "edge_ids_del: the edges have no ids (got some, expected None); give all of them "
                "ids in the first call, as in inc(x, edge_index, edge_ids=[...])"
            )
        named: dict[str, int] = {}
        deltas = self._by_graph(delta) if self._growing else {}
        for r in self._growing:
            own = deltas.get(r.key)
            if own is not None and own.edge_index_add is not None:
                ids = as_edges(own.edge_index_add, "edge_index_add")[1]
                named[r.target] = max(named.get(r.target, 0), int(ids.max(initial=-1)) + 1)
        rows = {}
        for kind, given in self.by_input(delta.x_add, "x_add").items():
            new = self.nodes[kind].new(given)
            if new:
                self._refuse_more(kind, len(next(iter(new.values()))))
                rows[kind] = new
        return Arrivals(rows, named)

    def read(
        self,
        delta: GraphDelta,
        arrivals: Arrivals,
        total: Mapping[str, int],
        intake: Intake | None = None,
    ) -> GivenDelta:
        """Check everything that can be checked without the edges.

        Args:
            delta: The delta.
            arrivals: What `arrivals` has returned.
            total: The number of nodes of each kind once all new ones are in.
            intake: What becomes of entries that do not fit; an error by default.

        Raises:
            InvalidDeltaError: With what is wrong, where, what was got and expected, and what to do.
        """
        intake = Intake() if intake is None and delta.undirected else intake
        deltas = self._by_graph(delta)
        x_changes = self.by_input(delta.x_changes, "x_changes")
        nodes_del = self.by_kind(delta.nodes_del, "nodes_del")
        given = GivenDelta({}, {})
        if x_changes or arrivals.rows or nodes_del:
            for kind, reader in self.nodes.items():
                changes, new = x_changes.get(kind, {}), arrivals.rows.get(kind, {})
                gone = nodes_del.get(kind)
                if changes or new or gone is not None:
                    given.nodes[kind] = reader.read(changes, new, gone, total[kind], intake)
        for r in self._roles.given:
            own = deltas.get(r.key)
            if own is not None:
                before = self._num_nodes[r.source], self._num_nodes[r.target]
                after = total[r.source], total[r.target]
                edges = self.edges[r.graph]
                own = edges.of_tables(edges.of_lists(own, before, after))
                both = _both_directions(own, r, edges.label, intake)
                given.edges[r.graph] = edges.read(both, before, after, intake)
        return given

    def _refuse_more(self, kind: str, count: int) -> None:
        """Refuse new nodes of a kind of which there can be no more."""
        why = self._roles.fixed.get(kind)
        if why is not None:
            raise InvalidDeltaError(
                f"x_add{self._label(kind)}: expected no new nodes (got {count}), as {why}"
            )

    # Who is meant --------------------------------------------------------------------------------

    def _inputs_of(self, kind: str) -> dict[str, str]:
        """The inputs of a kind of nodes by their short names, or whole where two are alike."""
        names = [n for n, of in self._roles.nodes.items() if of == kind]
        short = [short_name(n) for n in names]
        return {s if short.count(s) == 1 else n: n for s, n in zip(short, names, strict=True)}

    def by_input(self, value: Any, field: str) -> dict[str, dict[str, Any]]:
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
            if name is None and key in roles.others:
                raise InvalidDeltaError(
                    f"{field}: '{key}' has no row for each node, so it changes as a whole; write "
                    f"values={{{key!r}: ...}}"
                )
            if name is None:
                handed = roles.handed_in.nodes.items()
                by_name = [n for n, of in handed if not of or "/" not in n]  # others are by type
                raise self._unknown(field, key, list(dict.fromkeys([*self._known(), *by_name])))
            kind = roles.nodes[name]
            own = self._inputs_of(kind)
            if not isinstance(given, Mapping):
                given = {next(short for short, n in own.items() if n == name): given}
            for short, part in given.items():
                if short not in own:
                    raise self._unknown(f"{field}[{key!r}]", short, list(own))
                named = found.setdefault(kind, {})
                if own[short] in named:
                    raise InvalidDeltaError(
                        f"{field}[{key!r}]: '{short}' is given twice, under two names; give it once"
                    )
                named[own[short]] = part
        return found

    def by_kind(self, value: Any, field: str) -> dict[str, Any]:
        """What is said of each kind of nodes."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            return {self._only_kind(field): value}
        found: dict[str, Any] = {}
        for key, given in value.items():
            kind: Any = self._roles.nodes.get(key, key)
            if kind not in self._num_nodes:
                raise self._unknown(field, key, self._known())
            found[kind] = given
        return found

    def _known(self) -> list[str]:
        """The kinds of nodes; that without a name by its features."""
        return [kind or self._features[kind] or "x" for kind in self._roles.kinds]

    def _unknown(self, field: str, key: object, known: list[Any]) -> InvalidDeltaError:
        """What to say of a key that is none."""
        said = f"{field}: there is no {key!r} (got {key!r}, expected one of {known})"
        is_edge = isinstance(key, tuple) and len(key) == 3
        if "" in self._roles.kinds or not (is_edge or isinstance(key, str)) or "[" in field:
            return InvalidDeltaError(f"{said}; {_what_it_may_be(field, key)}")
        if not is_edge and field in (*_EDGE_FIELDS, *PAIR_FIELDS):
            return InvalidDeltaError(f"{said}; edges have types (source, relation, target)")
        none = "torch.empty(2, 0, dtype=torch.int64)" if is_edge else "torch.empty(0, channels)"
        return InvalidDeltaError(
            f"{said}; if it is a type of which there was none yet, call the model again with no "
            f"rows of it, {{..., {key!r}: {none}}}: more come by deltas then"
        )

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
        found = self.edges_by_graph(delta)
        for key, pairs in self.pairs_by_graph(delta).items():
            own = found.get(key, GraphDelta(missing=delta.missing, which=delta.which))
            pairs = self._asked(key, pairs, own)
            for field in pairs:
                if getattr(own, field) is not None and field in PAIR_FIELDS.values():
                    raise InvalidDeltaError(
                        f"{field}[{key!r}]: pairs are given twice, here and as "
                        f"{field.replace('edge_index', 'pairs')}; give them once"
                    )
            found[key] = replace(own, **pairs)
        return found

    def pairs_by_graph(self, delta: GraphDelta) -> dict[Hashable, dict[str, Any]]:
        """The pairs that come and go, by the key of their graph, as fields of edges."""
        known = [r.key for r in self._roles.given if is_label(r.graph)]
        found: dict[Hashable, dict[str, Any]] = {}
        for name, field in PAIR_FIELDS.items():
            value = getattr(delta, name)
            if value is None:
                continue
            if not known:
                raise InvalidDeltaError(
                    f"{name}: the model is called without pairs to be watched (got "
                    f"{type(value).__name__}, expected None); hand them to it in the first call, "
                    "as an edge_label_index"
                )
            if not isinstance(value, Mapping):
                if len(known) > 1:
                    raise InvalidDeltaError(
                        f"{name}: there are several kinds of pairs; give a dict with keys among "
                        f"{known}"
                    )
                value = {known[0]: value}
            for key, part in value.items():
                if key not in known:
                    raise self._unknown(name, key, known)
                found.setdefault(key, {})[field] = part
        return found

    def _asked(self, key: Hashable, given: dict[str, Any], own: GraphDelta) -> dict[str, Any]:
        """Pairs that come and go, with the ids that are data of them as such."""
        relation = next(r for r in self._roles.given if r.key == key)
        names = self._roles.asked(relation.graph)
        if not names:
            return given
        found: dict[str, Any] = {}
        like = self.edges[relation.graph].like
        for field, value in given.items():
            said, data = field.replace("edge_index", "pairs"), field.replace("index", "data")
            parts = value if isinstance(value, tuple) else (value,)
            if len(parts) != len(names):
                raise InvalidDeltaError(
                    f"{said}[{key!r}]: expected rows of {names}, as the model takes them (got "
                    f"{len(parts)}); give {'a tuple' if len(names) > 1 else 'one tensor'}"
                )
            rows = {
                n: rows_like(v, f"{said}[{key!r}]", like[n])
                for n, v in zip(names, parts, strict=True)
            }
            first = rows[names[0]].reshape(len(rows[names[0]]), -1)[:, 0]
            found[field] = torch.stack([first, first])
            found[data] = {**(getattr(own, data) or {}), **rows}
        return found

    def edges_by_graph(self, delta: GraphDelta) -> dict[Hashable, GraphDelta]:
        """What is said of edges, by the key of their graph."""
        keys = [r.key for r in self._roles.given]
        given = {name: v for name in _EDGE_FIELDS if (v := getattr(delta, name)) is not None}
        if not given:
            return {}
        main = self._main
        by_type = [given.get(field) for field in ("edge_index_add", "edge_index_del")]
        if main is not None and not (
            any(_is_keyed(v, keys) for v in given.values())
            or any(isinstance(v, Mapping) for v in by_type)
        ):
            return {main.key: delta}
        parts: dict[Hashable, dict[str, Any]] = {}
        is_alone = main is not None and len(keys) == 1
        for field, value in given.items():
            is_unnamed = not isinstance(value, Mapping) or (
                field.startswith("edge_data") and not _is_keyed(value, keys)
            )
            if is_alone and is_unnamed:
                value = {keys[0]: value}
            if not isinstance(value, Mapping):
                raise InvalidDeltaError(
                    f"{field}: there are several graphs; give a dict with keys among {keys}"
                )
            for key, part in value.items():
                if key not in keys:
                    raise self._unknown(field, key, keys)
                parts.setdefault(key, {})[field] = part
        said = {name: v for name, v in vars(delta).items() if name not in given}
        return {key: GraphDelta(**said, **part) for key, part in parts.items()}


def _what_it_may_be(field: str, key: object) -> str:
    """What somebody may mean by a key where there is nothing to tell apart, and how to say it."""
    if key in GraphDelta.__dataclass_fields__:
        return "unpack a dict of fields: apply_delta(**fields)"
    if isinstance(key, int):
        return f"write {field}=(ids, rows)"
    if isinstance(key, tuple) and len(key) == 2:
        return f"write {field}=torch.tensor(list(edges)).t()"
    return f"leave the key out, {field}=..., where there is one"


def written(roles: Roles, fields: Mapping[str, Mapping[Any, Any]]) -> GraphDelta:
    """A delta whose fields are given by kind of nodes, node input or key of a graph.

    Where there is one graph and one node input it says so without.
    """
    given: dict[str, Any] = dict(fields)
    if roles.is_plain and len(roles.nodes) <= 1:
        given = {
            field: value if field == "values" else next(iter(value.values()))
            for field, value in fields.items()
        }
    return GraphDelta(**given)


def _both_directions(
    delta: GraphDelta, relation: Relation, label: str, intake: Intake | None
) -> GraphDelta:
    """The changes of one graph with `undirected` written out, of which an intake is told."""
    if not delta.undirected:
        return delta
    if relation.source != relation.target:
        raise InvalidDeltaError(
            f"undirected: {relation.key!r} connects two kinds of nodes, so its edges have one "
            "direction; give both edge types"
        )
    for field in ("edge_index_add", "edge_index_del", "edge_changes"):
        value = getattr(delta, field)
        if value is not None and intake is not None:
            edges = edge_change_parts(value)[0] if field == "edge_changes" else value
            twice = mirrored(as_edges(edges, field), in_turn=field == "edge_changes")
            intake.only(f"{field}{label}", twice[1])
    return delta.both_directions()


def _is_keyed(value: Any, keys: list[Any]) -> bool:
    """Whether a field is given by graph."""
    return isinstance(value, Mapping) and bool(value) and set(value) <= set(keys)

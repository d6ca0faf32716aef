"""What the tensors of a call are: node rows, edge rows, graphs, or constants."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from pyg_incremental.call.asked import IDS
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.formats import edges_of_graph
from pyg_incremental.call.graphs import graphs_of
from pyg_incremental.call.hyperedges import hyperedges_of
from pyg_incremental.call.learned import count_told, ids_in, learned_count, why_fixed
from pyg_incremental.call.misgiven import misgiven
from pyg_incremental.call.said import Role
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.program.steps import Domain, Program, Relation, Value

_EDGE_NAMES = ("weight", "weights", "attr")
_EVERY = "every node"


def name_of_everyone(kind: str) -> str:
    """Name of the node input that nobody hands in: which nodes of a kind are there.

    Its rows are 0, and negative for nodes that were removed. A readout of all nodes reads it.
    """
    return f"{kind}/{_EVERY}" if kind else _EVERY


def is_everyone(name: str) -> bool:
    """Whether a node input is one that nobody hands in."""
    return name.rpartition("/")[2] == _EVERY


@dataclass(frozen=True)
class Roles:
    """What the tensors of a call are.

    Attributes:
        relations: The graphs, the edges that inputs such as `batch` stand for, and the graphs that
            the model makes of these.
        nodes: The kind of nodes of each argument with one row per node; of several arguments on one
            kind the features come first.
        edges: The graph of each argument with one row per edge.
        others: Names of all other tensors.
        num_nodes: Number of nodes of each kind.
        edge_index: The edges of each graph, int64 `[2, num_edges]`, sources first.
        values: The values of sparse adjacencies, `[num_edges, ...]`, by graph.
        fixed: The kinds of nodes of which there can be no more, and why.
        unread: Tensors in objects that the model does not read; what is said of them says nothing.
        ids: Of the others, and of edge inputs, those that hold ids of nodes, and of which kind.
    """

    relations: tuple[Relation, ...]
    nodes: dict[str, str]
    edges: dict[str, str]
    others: tuple[str, ...]
    num_nodes: dict[str, int]
    edge_index: dict[str, Tensor] = field(default_factory=dict, repr=False)
    values: dict[str, Tensor] = field(default_factory=dict, repr=False)
    fixed: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    ids: dict[str, str] = field(default_factory=dict)

    def features(self, kind: str) -> str | None:
        """Name of the features of some kind of nodes: what a plain `x_changes` means.

        That is `x` where there is one, as the fields of an object stand in the order in which
        somebody has written them; else the first argument with rows of these nodes.
        """
        names = [name for name, of in self.nodes.items() if of == kind]
        called_x = (n for n in names if n.rpartition("/")[2] in ("x", "x_dict"))
        return next(called_x, names[0] if names else None)

    def declare(self, program: Program, name: str) -> Value:
        """An argument that is not a graph, as an input of a program."""
        if name in self.nodes:
            return program.input(name, Domain.NODE, self.nodes[name])
        if name in self.edges:
            return program.input(name, Domain.EDGE, self.edges[name])
        return program.input(name, Domain.WHOLE)

    @property
    def handed_in(self) -> "Roles":
        """The same without what nobody hands in."""
        ours = {r.target for r in self.relations if r.every}
        return replace(
            self,
            relations=tuple(r for r in self.relations if not r.every and r.derived is None),
            nodes={name: kind for name, kind in self.nodes.items() if not is_everyone(name)},
            num_nodes={kind: count for kind, count in self.num_nodes.items() if kind not in ours},
        )

    @property
    def given(self) -> list[Relation]:
        """The graphs among the arguments."""
        return [r for r in self.relations if not r.members and r.derived is None]

    @property
    def derived(self) -> list[Relation]:
        """The graphs that the model makes of others, those first of which others are made."""
        return [r for r in self.relations if r.derived is not None]

    @property
    def main(self) -> Relation | None:
        """The graph that edges are of where a delta does not say it: the only one beside pairs."""
        found = [r for r in self.given if not is_label(r.graph)] or self.given
        return found[0] if len(found) == 1 else None

    @property
    def kinds(self) -> list[str]:
        """The kinds of nodes that are handed in; graphs that `batch` names are none of them."""
        named = {r.target for r in self.relations if r.members}
        return [kind for kind in self.num_nodes if kind not in named]

    def grows(self, kind: str) -> bool:
        """Whether nodes of some kind come with the first edge that names them.

        They do where nothing is handed in for each of them.
        """
        return kind not in self.fixed and kind not in self.nodes.values()

    @property
    def is_plain(self) -> bool:
        """Whether there is one graph on one set of nodes."""
        return len(self.relations) == 1 and len(self.num_nodes) == 1

    def asked(self, graph: str) -> list[str]:
        """The arguments with ids that are data of the pairs in some graph, in their order."""
        return [n for n, of in self.edges.items() if of == graph and n in self.ids]

    def data_of(self, relation: Relation, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
        """The edge data of a graph by the names of the edge inputs."""
        data = {name: tensors[name] for name, of in self.edges.items() if of == relation.graph}
        if relation.graph in self.values:
            data[relation.values] = self.values[relation.graph]
        return data


def unsaid_pairs(site: BoundCall) -> list[str]:
    """Arguments with pairs to be looked at that do not say which of several kinds they join."""
    kinds = {key for key in site.keys.values() if isinstance(key, str)}
    return [
        name
        for name in site.names
        if len(kinds) > 1
        and name not in site.keys
        and is_label(name)
        and name not in site.joins
        and site.is_graph(name)
    ]


def classify(
    site: BoundCall,
    pairs: Mapping[str, tuple[str, str]] | None = None,
    said: Mapping[str, Role] | None = None,
) -> Roles:
    """Tell the roles of the tensors of a call, by their types, names, keys and shapes.

    Args:
        site: The call.
        pairs: The kinds of nodes that graphs join which do not say it, by their names.
        said: What is known of them, which goes before all of that.

    Raises:
        UnsupportedModelError: If there is no graph, or there are no nodes.
        InvalidDeltaError: If a shape, dtype or id does not fit.
    """
    where, said = f"call of {type(site.model).__name__}", said or {}
    _take_types(site, said)
    graphs = graphs_of(site, said)
    if not graphs:
        raise UnsupportedModelError(
            f"{where}: expected a graph among its arguments, an edge_index [2, num_edges] of int64 "
            f"or a sparse adjacency (got none among {site.names}){misgiven(site.constants)}"
            f"{_only_ids(site)}"
        )
    rest = [name for name in site.names if name not in graphs]
    hyper = hyperedges_of(site, graphs, rest, where)
    nodes, num_nodes, fixed = _nodes(
        site, [n for n in rest if n not in hyper.inputs], graphs, where, said
    )
    nodes, num_nodes, fixed = nodes | hyper.inputs, num_nodes | hyper.count, fixed | hyper.fixed
    relations, edge_index, values = [], {}, {}
    for name in graphs:
        if name in hyper.kind:
            source, target = "", hyper.kind[name]
        else:
            key = {**site.joins, **(pairs or {})}.get(name, site.keys.get(name))
            source, target = ends_of(key, num_nodes, where, name)
        counts = num_nodes[source], num_nodes[target]
        edges, held, fmt = edges_of_graph(site.tensors[name], name, where, counts, (source, target))
        # Pairs to be looked at are never sorted; whether edges stay so, `edge_order` finds out.
        by_target = fmt == "coo" and not is_label(name) and bool((edges[1].diff() >= 0).all())
        plain = len(graphs) == 1 and name not in site.keys
        own = site.asked[name].key if name in site.asked else name
        relations.append(
            Relation(
                name, site.keys.get(name, own), source, target, fmt, by_target,
                "edge_weight" if plain else f"{name}/edge_weight", are_ones(held),
                _is_sized(site.tensors[name]),
            )
        )  # fmt: skip
        edge_index[name] = edges
        if held is not None:
            values[name] = held
    sizes = {*num_nodes.values(), *(edges.shape[1] for edges in edge_index.values())}
    site.refuse_untold(where, said, sizes)
    x, told = next((n for n, kind in nodes.items() if not kind), ""), count_told(site)
    site.counted = x if told == num_nodes.get("", -1) and "num_nodes" not in site.fixed else ""
    left = tuple(site.unread)
    roles = Roles(tuple(relations), nodes, {}, (), num_nodes, edge_index, values, fixed, left)
    others = []
    for name in rest:
        if name in nodes:
            continue
        if name in said:
            found = _as_said(site, name, roles, said[name], where)
        else:
            found = _edge_input(site, name, roles, where) or _more_nodes(site, name, roles)
        if not found:
            others.append(name)
    for asked in (a for a in site.asked.values() if a.is_table):
        of = next(r for r in relations if r.graph == asked.name)
        roles.ids.update(dict.fromkeys(asked.names, of.source))
    return replace(roles, others=tuple(others))


def _only_ids(site: BoundCall) -> str:
    """What to say of a call with nothing but ids: no graph reaches what it returns."""
    given = [site.tensors[name] for name in site.names]
    if not given or any(t.layout is not torch.strided or t.is_floating_point() for t in given):
        return ""
    return (
        "; a model that looks ids up in tables of its own has no graph to follow: call it as it "
        "is, or give forward the graph that it is to read"
    )


def _as_said(site: BoundCall, name: str, roles: Roles, role: Role, where: str) -> bool:
    """Note an argument whose role is known; returns whether it has rows.

    Raises:
        InvalidDeltaError: If it has not as many as there are nodes or edges.
    """
    if role.what == "node":
        counts = {k: roles.num_nodes[k] for k in role.of or roles.num_nodes if k in roles.num_nodes}
        into = roles.nodes
    elif role.what == "edge":
        known = {r.graph: roles.edge_index[r.graph].shape[1] for r in roles.relations}
        counts = {g: n for g, n in known.items() if not role.of or g in role.of}
        into = roles.edges
    else:
        if role.what == "ids":
            roles.ids[name] = role.of[0] if role.of else next(iter(roles.num_nodes))
        return False
    rows = _rows(site.tensors[name])
    found = next((of for of, count in counts.items() if count == rows), None)
    if found is None:
        raise InvalidDeltaError(
            f"{where}: '{name}' is said to be '{role}', but has {rows} rows (expected "
            f"{' or '.join(map(str, counts.values())) or 'those of a kind that is there'}); pass "
            f"as many, or another role in to_incremental(model, roles={{{name!r}: ...}})"
        )
    into[name] = found
    return True


def _take_types(site: BoundCall, said: Mapping[str, Role]) -> None:
    """Let arguments be of the types of nodes that are said of them, where there are several."""
    nodes = {n: role.of[0] for n, role in said.items() if role.what == "node" and role.of}
    if len({*nodes.values()}) > 1:
        for name in (n for n in nodes if n in site.tensors):
            site.keys.setdefault(name, nodes[name])
        for name, role in said.items():
            if role.what == "graph" and role.of and name in site.tensors:
                site.joins.setdefault(name, (role.of[0], role.of[-1]))


def _is_sized(graph: Any) -> bool:
    """Whether a graph is an `EdgeIndex` that says how many nodes there are."""
    return isinstance(graph, EdgeIndex) and None not in graph.sparse_size()


def are_ones(values: Tensor | None) -> bool:
    """Whether the values of a sparse adjacency, `[num_edges]`, say nothing."""
    return values is not None and values.dim() == 1 and bool((values == 1).all())


def _nodes(
    site: BoundCall, rest: list[str], graphs: list[str], where: str, said: Mapping[str, Role]
) -> tuple[dict[str, str], dict[str, int], dict[str, str]]:
    """The features of each kind of nodes, their numbers, and why there can be no more of some."""
    keyed = [
        n for n in rest
        if isinstance(site.keys.get(n), str) and _may_be_of_nodes(site, n.rpartition("/")[2], n)
    ]  # fmt: skip
    if keyed:
        nodes: dict[str, str] = {}
        num_nodes: dict[str, int] = {}
        for name in keyed:
            kind, rows = site.keys[name], _features(site, name, where).shape[0]
            role = said.get(name)
            if role is not None and role.what == "node" and role.of and kind not in role.of:
                raise InvalidDeltaError(
                    f"{where}: '{name}' is said to be '{role}', but its object or key says that "
                    f"its nodes are of type '{kind}'; leave that role out, or pass it under a key "
                    f"of {list(role.of)}"
                )
            if num_nodes.setdefault(kind, rows) != rows:
                raise InvalidDeltaError(
                    f"{where}: '{name}' has {rows} rows, but there are {num_nodes[kind]} nodes of "
                    f"type '{kind}'"
                )
            nodes[name] = kind
        return nodes, num_nodes, {}
    told = [n for n in rest if n in said and said[n].what == "node"]
    free = [n for n in rest if n not in said]
    x = next((n for n in (*told, *free) if n == "x"), None) or next(
        (n for n in rest if n in told or (n in free and counts_nodes(site, n))), None
    )
    if x is None:
        count = learned_count(site, graphs, where)
        why = why_fixed(site.model, count) or (
            f"the model is called with num_nodes={count}; call it again with another number"
        )
        return {}, {"": count}, {"": why}
    return {x: ""}, {"": _features(site, x, where, x in told).shape[0]}, {}


def counts_nodes(site: BoundCall, name: str) -> bool:
    """Whether an argument may have a row for each node, as far as names and PyG's rules tell."""
    return _may_be_of_nodes(site, name, name) and _rows(site.tensors[name]) is not None


def _may_be_of_nodes(site: BoundCall, argument: str, name: str) -> bool:
    """Whether a tensor may have a row for each node, as far as names and PyG's rules tell."""
    return site.levels.get(name, "edge" if argument.startswith("edge") else "node") == "node"


def _features(site: BoundCall, name: str, where: str, is_said: bool = False) -> Tensor:
    """Node features, `[num_nodes, ...]`; of more than two dimensions the first may be another.

    Raises:
        UnsupportedModelError: If they are no dense tensor, or have no row for each node.
        InvalidDeltaError: If it may be that they have none.
    """
    features: Tensor = site.tensors[name]
    shape = list(features.shape)
    batched = (
        "of static graphs, [batch, num_nodes, channels], wrap the model: def forward(self, x, "
        "edge_index): return torch.stack([self.model(x[:, b], edge_index) for b in "
        f"range(x.size(1))], 1), and call that with {name}.transpose(0, 1), "
        "[num_nodes, batch, channels]"
    )
    if features.layout is not torch.strided or not shape:
        raise UnsupportedModelError(
            f"{where}: '{name}' must be a dense tensor of shape [num_nodes, channels] (got "
            f"{shape}, layout {features.layout}); {batched}"
        )
    if len(shape) > 2 and not is_said:
        least = max((ids_in(site.tensors[n]) for n in graphs_of(site)), default=0)
        if shape[0] < least:
            raise UnsupportedModelError(
                f"{where}: '{name}' must have a row for each node, [num_nodes, channels] or "
                f"[num_nodes, channels, steps] (got {shape}, and {least} nodes); {batched}"
            )
        if shape[1] >= least:
            raise InvalidDeltaError(
                f"{where}: '{name}' {shape} may have a row for each of {shape[0]} nodes, or be "
                f"features of {shape[1]} nodes in a batch; if it is the former, say so: "
                f"to_incremental(model, roles={{{name!r}: 'node'}}); else {batched}"
            )
    return features


def ends_of(key: Any, num_nodes: dict[str, int], where: str, name: str) -> tuple[str, str]:
    """The kinds of nodes that a graph connects."""
    if isinstance(key, tuple) and len(key) in (2, 3):
        source, target = key[0], key[-1]
        for kind in (source, target):
            if kind not in num_nodes:
                raise UnsupportedModelError(
                    f"{where}: '{name}' connects nodes of type '{kind}', of which there are no "
                    f"features (got types {sorted(num_nodes)}); pass features of all types"
                )
        return source, target
    if "" in num_nodes:
        return "", ""
    if len(num_nodes) == 1:
        kind = next(iter(num_nodes))
        return kind, kind
    if list(num_nodes) == ["src", "dst"]:
        return "src", "dst"
    raise UnsupportedModelError(
        f"{where}: '{name}' does not say which of {sorted(num_nodes)} it connects; use a dict with "
        f"edge types as keys, or say to_incremental(model, roles={{{name!r}: 'graph(source, "
        "target)'}) with two of these types"
    )


def _edge_input(site: BoundCall, name: str, roles: Roles, where: str) -> bool:
    """Note an argument with one row per edge; returns whether it is one."""
    value, argument = site.tensors[name], name.rpartition("/")[2]
    rows, key = _rows(value), site.keys.get(name)
    level = site.levels.get(name)
    if level not in (None, "edge"):
        return False
    named = level == "edge" or argument.startswith("edge")
    for relation in roles.relations:
        count = roles.edge_index[relation.graph].shape[1]
        if key is not None and key != relation.key:
            continue
        is_node_like = rows in roles.num_nodes.values() and argument not in _EDGE_NAMES
        if rows == count and (named or not is_node_like):
            roles.edges[name] = relation.graph
            return True
        if named and (key is not None or len(roles.relations) == 1):
            if argument.endswith("label_index"):
                cure = f"{name}.t()" if not value.is_floating_point() else f"{name}.long()"
                raise InvalidDeltaError(
                    f"{where}: '{name}' must be pairs of nodes, integers of shape [2, num_pairs] "
                    f"(got {value.dtype} {list(value.shape)}); pass {cure}"
                )
            raise InvalidDeltaError(
                f"{where}: '{name}' has {rows} rows, but the graph has {count} edges; pass a row "
                "for each edge"
            )
    return False


def _more_nodes(site: BoundCall, name: str, roles: Roles) -> bool:
    """Note a further argument with one row per node; returns whether it is one."""
    if site.levels.get(name, "node") != "node":
        return False
    counts = roles.num_nodes
    kind = "" if "" in counts else next(iter(counts))
    if _rows(site.tensors[name]) != counts[kind] or (kind and len(counts) > 1):
        return False
    roles.nodes[name] = kind
    return True


def _rows(value: Any) -> int | None:
    return value.shape[0] if isinstance(value, Tensor) and value.dim() > 0 else None


def is_label(name: str) -> bool:
    """Whether a graph holds pairs of nodes to be looked at, and nothing is sent along them."""
    last = name.rpartition("/")[2]
    return "label" in last or last == IDS

"""What is given for a graph of one type or by type, read in one way.

The type of the nodes and of the edges of a homogeneous graph is `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler.base import NumNeighbors

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_edges, as_ids, as_tensor
from pyg_incremental.errors import InvalidDeltaError

Ids = NDArray[np.int64]
NodeType = str | None
EdgeType = tuple[str, str, str] | None
_OF_EDGES = (
    "edge_index_add", "edge_index_del", "edge_weight_add", "edge_attr_add", "edge_changes",
    "edge_data_add",
)  # fmt: skip
_OF_NODES = ("x_add", "x_changes", "nodes_del")
TIME = "time"
_KEPT_AS = {"edge_time": TIME}


def per_type(given: Any) -> Mapping[Any, Any]:
    """What is given by type; what is given without is that of the type `None`."""
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else {None: given}


def by_type(given: Any, name: str, types: Iterable[Any], expected: str) -> dict[Any, Any]:
    """What is given by type, of types that there are; types that are not named have nothing.

    Args:
        given: A mapping for a heterogeneous graph, something else for a homogeneous one, or None.
        name: What messages call it.
        types: The types; `None` alone for a homogeneous graph.
        expected: What messages expect of one type.

    Raises:
        ValueError: If it is given in the other way, or names a type that is not there.
    """
    types = list(types)
    if given is None:
        return {}
    if isinstance(given, Mapping) == (types == [None]):
        what = expected if types == [None] else f"{expected} for each of {types}, by type"
        raise ValueError(f"{name}: expected {what} (got {_said(given)})")
    found = dict(per_type(given))
    unknown = [kind for kind in found if kind not in types]
    if unknown:
        raise ValueError(f"{name}: expected keys among {types} (got {unknown})")
    return {kind: of for kind, of in found.items() if of is not None}


def _said(given: Any) -> str:
    if isinstance(given, Mapping):
        return f"a {type(given).__name__} with the keys {list(given)[:3]}"
    return repr(given) if given is None or isinstance(given, (int, float)) else type(given).__name__


def nodes_of(given: Any, kinds: list[EdgeType], is_hetero: bool) -> dict[NodeType, int]:
    """The number of nodes of each type.

    Raises:
        ValueError: If it is none, or that of a type is missing.
    """
    ends = list(dict.fromkeys(end for kind in kinds for end in ends_of(kind)))
    types = [*ends, *given] if is_hetero and isinstance(given, Mapping) else ends
    found = by_type(given, "num_nodes", types, "a number of nodes")
    counts = {kind: _whole(count) for kind, count in found.items()}
    if not found.keys() >= set(ends) or any(n is None or n < 0 for n in counts.values()):
        what = f"for each of {ends}" if is_hetero else "of 0 or more"
        raise ValueError(f"num_nodes: expected a number of nodes {what} (got {given!r})")
    return {kind: n for kind, n in counts.items() if n is not None}


def _whole(value: Any) -> int | None:
    """A whole number; None if it is something else."""
    try:
        return None if isinstance(value, (bool, np.bool_)) else index(value)
    except TypeError:
        return None


def edge_data_of(
    edge_index: Mapping[EdgeType, Any], edge_time: Any, edge_weight: Any, strategy: str
) -> dict[EdgeType, dict[str, Tensor]]:
    """What edges of each type come with: times, and weights where the strategy reads them.

    Args:
        edge_index: The edges by type, int64 `[2, num_edges]`.
        edge_time: The times of the edges, `[num_edges]`; by edge type if there are several.
        edge_weight: Their weights, likewise.
        strategy: How neighbours are sampled.

    Raises:
        ValueError: If there are not as many as edges, or the strategy needs what is not there.
    """
    one = "one number for each edge"
    given = {
        "edge_time": by_type(edge_time, "edge_time", edge_index, one),
        "edge_weight": by_type(edge_weight, "edge_weight", edge_index, one),
    }
    if strategy != "weight":
        del given["edge_weight"]
    needed = {"topk": "edge_time", "weight": "edge_weight"}.get(strategy)
    data: dict[EdgeType, dict[str, Tensor]] = {}
    for kind, edges in edge_index.items():
        label = f"[{kind!r}]" if kind else ""
        count = as_edges(edges, "edge_index" + label).shape[1]
        data[kind] = {
            _KEPT_AS.get(name, name): edge_values(of[kind], name + label, count)
            for name, of in given.items()
            if kind in of
        }
        if needed and kind not in given[needed]:
            raise ValueError(f"strategy={strategy!r} needs {needed}{label}, {one}")
    return data


def edge_values(given: Any, name: str, count: int) -> Tensor:
    """Times or weights of edges, `[count]`; those with a fraction are kept in float64.

    They decide what is sampled, and float32 tells no times apart that are a minute from each other.

    Raises:
        InvalidDeltaError: If they are no such numbers.
    """
    found = as_tensor(given, name).detach().cpu()
    found = found.double() if found.is_floating_point() else found
    check_values(found, name, count)
    return found


def check_values(values: Tensor, name: str, count: int) -> None:
    """See that values, `[count]`, are one number for each edge, seed or other thing.

    Raises:
        InvalidDeltaError: If not; NaN is none, of which nobody knows whether it is earlier.
    """
    if values.shape != (count,):
        raise InvalidDeltaError(
            f"{name}: expected one number for each, [{count}] (got shape {list(values.shape)})"
        )
    if values.is_complex():
        raise InvalidDeltaError(f"{name}: expected real numbers (got {values.dtype})")
    if values.is_floating_point() and values.isnan().any():
        at = int(values.isnan().int().argmax())
        raise InvalidDeltaError(f"{name}: expected numbers (got NaN at position {at})")


def ends_of(kind: EdgeType) -> tuple[NodeType, NodeType]:
    """The types of nodes at the sources and at the targets of an edge type."""
    return (kind[0], kind[2]) if kind else (None, None)


def fanouts_of(
    given: Any, kinds: list[EdgeType], is_hetero: bool
) -> tuple[dict[EdgeType, list[int]], int]:
    """The fan-outs of each edge type, and how many hops there are.

    Raises:
        ValueError: If there are none for each hop.
    """
    spoken = list(given) if isinstance(given, (tuple, np.ndarray, Tensor)) else given
    try:
        values = spoken if isinstance(spoken, NumNeighbors) else NumNeighbors(spoken)
        by_kind = values.get_values(kinds if is_hetero else None)
        named = dict(by_kind) if is_hetero else {None: by_kind}
        found = {kind: [_whole(k) for k in fanouts] for kind, fanouts in named.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise _no_fanouts(given, f": {error}") from error
    hops = {len(fanouts) for fanouts in found.values()}
    if len(hops) != 1 or hops == {0} or any(k is None or k < -1 for f in found.values() for k in f):
        raise _no_fanouts(given)
    return {kind: [k for k in f if k is not None] for kind, f in found.items()}, hops.pop()


def _no_fanouts(given: Any, why: str = "") -> ValueError:
    return ValueError(
        "num_neighbors: expected one number for each hop, -1 for all, and equally many hops for "
        f"every edge type (got {given!r}{why})"
    )


def is_edge_type(kind: Any) -> bool:
    """Whether something names a relation between nodes of two types."""
    return isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(k, str) for k in kind)


class DeltaParts(NamedTuple):
    """What a delta says, by type.

    Attributes:
        new_nodes: How many nodes of each type come.
        removed: Ids of nodes of each type of which all edges leave, int64, ascending.
        edges: What is said of the edges of each type.
    """

    new_nodes: dict[NodeType, int]
    removed: dict[NodeType, Ids]
    edges: dict[EdgeType, GraphDelta]


def parts_of(
    delta: GraphDelta, edge_types: list[EdgeType], node_types: list[NodeType], is_hetero: bool
) -> DeltaParts:
    """Take a delta apart by type.

    Raises:
        InvalidDeltaError: If it names a type that is not there, or names none where it has to.
    """
    if delta.pairs_add is not None or delta.pairs_del is not None:
        raise InvalidDeltaError(
            "pairs_add, pairs_del: a sampler watches no pairs (expected None); ask it for samples "
            "of their nodes"
        )
    if delta.invalid != "error":
        raise InvalidDeltaError(
            f"invalid: a sampler takes a delta as a whole (got {delta.invalid!r}, expected 'error')"
        )
    if delta.tells_apart or delta.edge_ids_add is not None:
        raise InvalidDeltaError(
            "edge_index_del, edge_data_del, edge_ids_add, edge_ids_del: a sampler does not tell "
            "edges of one pair apart by their data or ids (expected pairs alone); give "
            "table[['src', 'dst']], and which='oldest' or 'newest'"
        )
    if not is_hetero:
        new, removed = _nodes(delta.x_add, delta.nodes_del)
        return DeltaParts({None: new}, {None: removed}, {None: delta})
    kinds: dict[str, list[Any]] = {name: list(edge_types) for name in _OF_EDGES}
    kinds |= {name: list(node_types) for name in _OF_NODES}
    for field in fields(delta):
        value = getattr(delta, field.name)
        if field.name not in kinds or value is None:
            continue
        unknown = [k for k in value if k not in kinds[field.name]] if _is_keyed(value) else value
        if not _is_keyed(value) or unknown:
            raise InvalidDeltaError(
                f"{field.name}: expected a dict with keys among {kinds[field.name]} (got "
                f"{unknown if _is_keyed(value) else type(value).__name__})"
            )

    def said(name: str, kind: Any) -> Any:
        value = getattr(delta, name)
        return None if value is None else value.get(kind)

    nodes = {k: _nodes(said("x_add", k), said("nodes_del", k)) for k in node_types}
    how = GraphDelta(missing=delta.missing, which=delta.which)
    edges = {k: replace(how, **{name: said(name, k) for name in _OF_EDGES}) for k in edge_types}
    return DeltaParts(
        {k: new for k, (new, _) in nodes.items()}, {k: ids for k, (_, ids) in nodes.items()}, edges
    )


def node_fields(delta: GraphDelta, kind: NodeType) -> GraphDelta:
    """What a delta says of the nodes of one type."""
    if kind is None:
        return delta
    given = {name: getattr(delta, name) for name in _OF_NODES}
    return GraphDelta(**{k: v.get(kind) for k, v in given.items() if v is not None})


def _is_keyed(value: Any) -> bool:
    return isinstance(value, Mapping)


def _nodes(x_add: Any, nodes_del: Any) -> tuple[int, Ids]:
    """How many nodes come, and which ones lose their edges."""
    rows = as_tensor([] if x_add is None else x_add, "x_add")
    if not rows.dim():
        raise InvalidDeltaError(
            "x_add: expected rows of new nodes, [n, in_channels], or [in_channels] of one (got a "
            f"single value, {rows.dtype})"
        )
    new = rows.shape[0] if rows.dim() > 1 else int(rows.numel() > 0)
    return new, np.unique(as_ids([] if nodes_del is None else nodes_del, "nodes_del"))

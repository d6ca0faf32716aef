"""What is given for a graph of one type or by type, read in one way.

The type of the nodes and of the edges of a homogeneous graph is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler.base import NumNeighbors

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import as_ids, as_tensor
from pyg_incremental.errors import InvalidDeltaError

Ids = NDArray[np.int64]
NodeType = str | None
EdgeType = tuple[str, str, str] | None
_OF_EDGES = (
    "edge_index_add", "edge_index_del", "edge_weight_add", "edge_attr_add", "edge_changes",
    "edge_data_add",
)  # fmt: skip
_OF_NODES = ("x_add", "x_changes", "nodes_del")


def per_type(given: Any) -> Mapping[Any, Any]:
    """What is given by type; what is given without is that of the type `None`."""
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else {None: given}


def edge_values(given: Any, name: str) -> Tensor:
    """Times or weights of edges, `[num_edges]`; those with a fraction are kept in float64.

    They decide what is sampled, and float32 tells no times apart that are a minute from each other.

    Raises:
        InvalidDeltaError: If no tensor can be made of them.
    """
    found = as_tensor(given, name).detach().cpu()
    return found.double() if found.is_floating_point() else found


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
    if isinstance(given, tuple):
        given = list(given)
    spoken = given if isinstance(given, NumNeighbors) else NumNeighbors(given)
    values = spoken.get_values(kinds if is_hetero else None)
    found = dict(values) if is_hetero else {None: list(values)}
    hops = {len(fanouts) for fanouts in found.values()}
    ok = all(isinstance(k, int) and k >= -1 for fanouts in found.values() for k in fanouts)
    if len(hops) != 1 or hops == {0} or not ok:
        raise ValueError(
            "num_neighbors: expected one number for each hop, -1 for all, and equally many hops "
            f"for every edge type (got {given})"
        )
    return found, hops.pop()


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

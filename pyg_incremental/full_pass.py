"""The original model on the current graph: all nodes, or the neighbourhood that some nodes see."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_geometric import EdgeIndex
from torch_geometric.utils import k_hop_subgraph

from pyg_incremental.calls.formats import to_format
from pyg_incremental.calls.roles import Roles
from pyg_incremental.calls.site import CallSite, device_of
from pyg_incremental.program import Relation

_CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")


@contextlib.contextmanager
def fresh_caches(model: nn.Module) -> Iterator[None]:
    """Let convs with `cached=True` see the current graph.

    They would otherwise answer for the graph of their first call.
    """
    kept = [
        (m, name, getattr(m, name))
        for m in model.modules()
        if getattr(m, "cached", False)
        for name in _CACHES
        if hasattr(m, name)
    ]
    for m, name, _ in kept:
        setattr(m, name, None)
    try:
        yield
    finally:
        for m, name, value in kept:
            setattr(m, name, value)


_running = threading.local()


def is_running() -> bool:
    """Whether this thread is inside `run` or `plainly`: convs then only compute."""
    return bool(getattr(_running, "depth", 0))


@contextlib.contextmanager
def plainly(model: nn.Module) -> Iterator[None]:
    """Let a model or conv do nothing but compute its output for the arguments it is given."""
    _running.depth = getattr(_running, "depth", 0) + 1
    try:
        with fresh_caches(model):
            yield
    finally:
        _running.depth -= 1


@torch.no_grad()
def run(site: CallSite, tensors: list[Any]) -> Any:
    """The model's own output. It is given copies, since some models write to their inputs."""
    with plainly(site.model):
        return site(*[t.clone() if isinstance(t, Tensor) else t for t in tensors])


def arguments(
    site: CallSite,
    roles: Roles,
    nodes: Mapping[str, Tensor],
    graphs: Mapping[str, Mapping[str, Tensor]],
    num_nodes: Mapping[str, int],
    others: Mapping[str, Tensor],
) -> list[Any]:
    """The tensors of a call, in the order of `site.names`.

    Args:
        site: The call.
        roles: What its tensors are.
        nodes: Node rows by name.
        graphs: For each graph its `edge_index` and edge data, as in `DynamicGraph.state`.
        num_nodes: Number of nodes of each kind.
        others: Other tensors by name.
    """
    given: dict[str, Any] = {**others, **nodes}
    device = device_of(site.model, nodes.values())
    for relation in roles.relations:
        state = graphs[relation.graph]
        given |= {name: rows for name, rows in state.items() if name != "edge_index"}
        given[relation.graph] = graph_object(relation, state, num_nodes, device)
    return [given[name] for name in site.names]


def graph_object(
    relation: Relation,
    state: Mapping[str, Tensor],
    num_nodes: Mapping[str, int],
    device: torch.device,
) -> Any:
    """A graph in the format in which it was handed in."""
    values = state.get(relation.values) if relation.format != "coo" else None
    sizes = num_nodes[relation.source], num_nodes[relation.target]
    if relation.sized:
        return EdgeIndex(state["edge_index"].to(device), sparse_size=sizes)
    return to_format(relation.format, state["edge_index"], values, sizes, device)


def neighbourhood(
    ids: Tensor, hops: int, edge_index: Tensor, num_nodes: int, both_ways: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What rows `ids` see within some hops against the edges, or in both directions.

    Returns:
        The nodes, the edges relabelled, the mask of the edges, and where `ids` went.
    """
    seen = torch.cat([edge_index, edge_index.flip(0)], 1) if both_ways else edge_index
    subset, _, _, _ = k_hop_subgraph(ids, hops, seen, num_nodes=num_nodes)
    inside = torch.zeros(num_nodes, dtype=torch.bool)
    inside[subset] = True
    mask = inside[edge_index[0]] & inside[edge_index[1]]
    place = torch.full((num_nodes,), -1)
    place[subset] = torch.arange(len(subset))
    return subset, place[edge_index[:, mask]], mask, place[ids]


def difference(a: Any, b: Any) -> float:
    """Largest absolute difference between two outputs of the same structure.

    NaN equals NaN, and infinity itself.
    """
    worst = 0.0
    for x, y in zip(pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        if not isinstance(x, Tensor):
            continue
        if x.shape != y.shape:
            return float("inf")
        same = (x == y) | ((x != x) & (y != y))
        gap = torch.where(same, 0.0, (x.double() - y.double()).abs())
        if gap.numel():
            largest = float(gap.nan_to_num(nan=float("inf")).max())
            worst = max(worst, largest)
    return worst

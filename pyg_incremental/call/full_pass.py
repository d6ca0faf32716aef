"""The original model on the current graph: all nodes, or the neighbourhood that some nodes see."""

import contextlib
import copy
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch_geometric import EdgeIndex
from torch_geometric.inspector import Inspector

from pyg_incremental.call.bound_call import BoundCall, device_of
from pyg_incremental.call.formats import to_format
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation

CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")
"""Where convs with `cached=True` keep the graph or the rows of their first call."""


@contextlib.contextmanager
def fresh_caches(model: nn.Module) -> Iterator[None]:
    """Let convs with `cached=True` see the current graph.

    They would otherwise answer for the graph of their first call.
    """
    kept = [
        (m, name, getattr(m, name))
        for m in model.modules()
        if getattr(m, "cached", False)
        for name in CACHES
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
def run(site: BoundCall, tensors: list[Any], *, fresh: bool = False) -> Any:
    """The model's own output. It is given copies, since some models write to their inputs.

    Args:
        site: The call.
        tensors: Its arguments, in the order of `site.names`.
        fresh: Run it on a copy, so that nothing stays in the model, and nothing that the model has
            kept of this package's calls can matter. A model that keeps something from call to call
            always runs on a copy.
    """
    if fresh or site.keeps:
        site = site.on(copied(site.model))
    with plainly(site.model):
        return site(*[t.clone() if isinstance(t, Tensor) else t for t in tensors])


def lacks_memory(error: BaseException) -> bool:
    """Whether something was raised for want of memory, which PyTorch says as a `RuntimeError`."""
    return isinstance(error, MemoryError) or (
        isinstance(error, (RuntimeError, OSError))
        and any(words in str(error).lower() for words in _NO_MEMORY)
    )


_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough mem")


def copied(model: nn.Module) -> nn.Module:
    """A copy of a model; the model itself if it cannot be copied."""
    try:
        return deep_copy(model, {})
    except Exception:  # whatever a user's module keeps
        return model


def deep_copy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A copy of a model; incremental convs in it are copied without what they have stored.

    Args:
        model: The model.
        memo: As `copy.deepcopy` takes it: what was copied, by the ids of the originals.

    Raises:
        Exception: Whatever a part of the model raises that cannot be copied.
    """
    for m in model.modules():
        if "_incremental" in vars(m):
            memo[id(vars(m)["_incremental"])] = None
        for held in vars(m).values():
            if type(held) is OrderedDict and not held:  # half of the time went into these
                memo[id(held)] = OrderedDict()
            elif type(held) is Inspector:  # signatures of a conv's class, read when it was made
                memo[id(held)] = held
            elif isinstance(held, Tensor) and not held.is_leaf:  # as of pruned layers; PyTorch
                memo[id(held)] = held.detach().clone()  # copies none that a call has computed
    made: nn.Module = copy.deepcopy(model, memo)
    for m in made.modules():
        if "_incremental" in vars(m):
            del m.__dict__["_incremental"]
    return made


def arguments(
    site: BoundCall,
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
        nodes: Node rows by name, `[num_nodes, ...]`.
        graphs: For each graph its `edge_index`, int64 `[2, num_edges]`, and edge data,
            `[num_edges, ...]`, as in `DynamicGraph.state`.
        num_nodes: Number of nodes of each kind.
        others: Other tensors by name, of any shape.
    """
    given: dict[str, Any] = {**others, **nodes}
    device = device_of(site.model, nodes.values())
    for relation in roles.given:
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
    """A graph in the format in which it was handed in.

    `state` holds its `edge_index`, int64 `[2, num_edges]`, and edge data, `[num_edges, ...]`.
    """
    values = state.get(relation.values) if relation.format != "coo" else None
    sizes = num_nodes[relation.source], num_nodes[relation.target]
    if relation.sized:
        return EdgeIndex(state["edge_index"].to(device), sparse_size=sizes)
    return to_format(relation.format, state["edge_index"], values, sizes, device)


def neighbourhood(
    asked: Mapping[str, Tensor],
    hops: int,
    relations: Iterable[Relation],
    edge_index: Mapping[str, Tensor | tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    both_ways: bool,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What some rows see within some hops against the edges, or in both directions.

    Args:
        asked: Ids of the rows of each kind of nodes.
        hops: How far they see.
        relations: The graphs.
        edge_index: The edges of each graph, integers `[2, num_edges]`, or both rows of that.
        num_nodes: The number of nodes of each kind.
        both_ways: Whether they see along the edges, too.

    Returns:
        For each kind of nodes whether a node is seen, bool `[num_nodes]`, and for each graph
        whether both ends of an edge are, bool `[num_edges]`.
    """
    relations = list(relations)
    seen = {kind: torch.zeros(n, dtype=torch.bool) for kind, n in num_nodes.items()}
    for kind, ids in asked.items():
        seen[kind][ids] = True
    for _ in range(hops):
        reached = {kind: mask.clone() for kind, mask in seen.items()}
        for r in relations:
            for src, dst in _in_parts(*edge_index[r.graph]):
                reached[r.source][src[seen[r.target][dst]]] = True
                if both_ways:
                    reached[r.target][dst[seen[r.source][src]]] = True
        seen = reached
    kept = {}
    for r in relations:
        found = [
            seen[r.source][src] & seen[r.target][dst]
            for src, dst in _in_parts(*edge_index[r.graph])
        ]
        kept[r.graph] = torch.cat(found)
    return seen, kept


def _in_parts(src: Tensor, dst: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Ends of edges, integers `[num_edges]`, some at a time: PyTorch widens what it indexes by."""
    return zip(src.split(_EDGES), dst.split(_EDGES), strict=True)


_EDGES = 1 << 22
"""Edges that are looked at at a time."""

AGREE = {
    torch.float64: 1e-8, torch.complex128: 1e-8, torch.float32: 1e-3, torch.complex64: 1e-3,
}  # fmt: skip
"""By how much of the largest value two ways to compute the same may differ; 0.1 in fewer bits."""


def gap(ours: Any, theirs: Any) -> float:
    """Largest absolute difference of two outputs if it is more than rounding, else zero."""
    leaves = [t for t in pytree.tree_leaves(theirs) if isinstance(t, Tensor)]
    inexact = (t.dtype for t in leaves if t.dtype.is_floating_point or t.is_complex())
    dtype = next(inexact, torch.float64)
    scale = max(
        (float(_wide(t).abs().nan_to_num(0, 0, 0).max()) for t in leaves if t.numel()),
        default=0.0,
    )
    found = difference(ours, theirs)
    return found if found > AGREE.get(dtype, 0.1) * max(scale, 1.0) else 0.0


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
        gap = torch.where(same, 0.0, (_wide(x) - _wide(y)).abs())
        if gap.numel():
            largest = float(gap.nan_to_num(nan=float("inf")).max())
            worst = max(worst, largest)
    return worst


def _wide(rows: Tensor) -> Tensor:
    """Rows in double precision."""
    return rows.to(torch.complex128 if rows.is_complex() else torch.float64)

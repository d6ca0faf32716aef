"""PyG's `coalesce` as one call: how many edges it leaves depends on which are alike."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import coalesce, undirected

from pyg_incremental.trace.listener import Observer
from pyg_incremental.trace.replaced import homes_of, replaced


def merged(
    edge_index: Tensor, rows: list[Tensor], num_nodes: int | None, reduce: str, by_row: bool
) -> tuple[Tensor, ...]:
    """Edges, int64 `[2, n]`, without repetition, and their rows, `[n, ...]`, reduced."""
    edges, found = coalesce(edge_index, list(rows), num_nodes, reduce, sort_by_row=by_row)
    return (edges, *found)


@contextlib.contextmanager
def merging_seen_by(observer: Observer, modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let it be seen as one call how edges of the same ends become one; nobody else may trace.

    Args:
        observer: Who is to see it.
        modules: The model, in whose files the function may go by a name of its own.
    """
    thread = threading.get_ident()

    def seen(
        edge_index: Any, edge_attr: Any = "???", num_nodes: Any = None, reduce: str = "sum",
        is_sorted: bool = False, sort_by_row: bool = True,
    ) -> Any:  # fmt: skip
        mine = threading.get_ident() == thread and not observer.is_busy
        if not mine or is_sorted or type(edge_index) is tuple:
            return coalesce(edge_index, edge_attr, num_nodes, reduce, is_sorted, sort_by_row)
        if isinstance(edge_attr, torch.SymInt):  # as `to_undirected(edge_index, num_nodes)` has it
            edge_attr, num_nodes = "???", edge_attr
        several = isinstance(edge_attr, (list, tuple))
        rows = list(edge_attr) if several else [edge_attr] * isinstance(edge_attr, Tensor)
        edges, *found = observer.function(merged, edge_index, rows, num_nodes, reduce, sort_by_row)
        if isinstance(edge_attr, str):
            return edges
        return edges, (found if several else found[0] if found else None)

    with replaced({*homes_of(modules), undirected}, {coalesce: seen}):
        yield

"""A full pass of the PyG model after every delta, in three formats of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch_geometric import EdgeIndex

from benchmarks.machine import available_memory
from benchmarks.peers.edge_list import EdgeList
from benchmarks.peers.protocol import Skipped
from pyg_incremental import GraphDelta

Format = Callable[[EdgeList], Any]


class FullPass:
    """The model as it is; `form` says how the edges are handed to it."""

    def __init__(self, model: nn.Module, form: Format) -> None:
        self.model, self.form = model, form

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        check_room(self.model, x, edge_index)
        self.edges = EdgeList(x, edge_index)
        self.graph = self.form(self.edges)
        self.out = self.model(self.edges.x, self.graph)

    def absorb(self, delta: GraphDelta) -> None:
        """Take a delta without computing an output."""
        self.edges.apply(delta)
        if delta.edge_index_add is not None or delta.edge_index_del is not None:
            self.graph = self.form(self.edges)

    def apply(self, delta: GraphDelta) -> None:
        self.absorb(delta)
        self.out = self.model(self.edges.x, self.graph)

    def output(self) -> Tensor:
        return self.out


def check_room(model: nn.Module, x: Tensor, edge_index: Tensor) -> None:
    """Refuse a pass for whose messages, one row per edge, there is not enough memory."""
    widest = max([x.shape[1], *(p.shape[0] for p in model.parameters() if p.dim() > 1)])
    needed = 2 * edge_index.shape[1] * widest * x.element_size()
    free = available_memory()
    if needed > free:
        raise Skipped(
            f"a full pass needs up to {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} are free"
        )


def coo(model: nn.Module) -> FullPass:
    """`edge_index`, sorted by target: gathers and scatters."""
    return FullPass(model, lambda edges: edges.edge_index)


def sorted_edge_index(model: nn.Module) -> FullPass:
    """An `EdgeIndex` that knows that it is sorted: sparse products where PyG has them."""
    return FullPass(model, _as_edge_index)


def _as_edge_index(edges: EdgeList) -> EdgeIndex:
    nodes = len(edges.x)
    return EdgeIndex(edges.edge_index, sparse_size=(nodes, nodes), sort_order="col")


def sparse_tensor(model: nn.Module) -> FullPass:
    """A transposed `SparseTensor`, as `ToSparseTensor` makes it: sparse products everywhere."""
    try:
        from torch_sparse import SparseTensor
    except ImportError as error:
        raise Skipped("torch_sparse is not installed") from error

    def form(edges: EdgeList) -> Any:
        source, target = edges.edge_index
        size = (len(edges.x), len(edges.x))
        return SparseTensor(
            row=target, col=source, sparse_sizes=size, is_sorted=True, trust_data=True
        )

    return FullPass(model, form)

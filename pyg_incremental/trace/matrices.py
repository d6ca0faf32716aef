"""Sparse matrices that a model makes of its edges, to multiply rows of nodes by.

`torch.sparse_coo_tensor(edge_index, weight, (n, n)) @ x` adds up weighted rows along edges: row `i`
of the product gathers from every column `j` of which there is an entry.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from pyg_incremental.conv import ConvCall
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.steps import Domain, NotIncremental, Relation, Value
from pyg_incremental.trace.ids import End, arguments_of
from pyg_incremental.trace.sizes import same_size
from pyg_incremental.trace.written import Written

KEEPS = frozenset(["coalesce", "to_sparse_csr", "to_sparse_csc", "to_sparse_coo", "to_sparse"])
"""What leaves a matrix as it is for a product: entries of one place are added up there too."""
_PRODUCTS = frozenset(["mm", "matmul", "<_sparse_mm>"])
_TURNS = frozenset(["t", "get T", "transpose"])


@dataclass(frozen=True)
class _Matrix:
    """A matrix with an entry for each edge.

    Attributes:
        relation: The graph.
        into_target: Whether its rows are the targets of edges, and its columns the sources.
        values: The entries, of domain `EDGE`; None if all are one.
    """

    relation: Relation
    into_target: bool
    values: Value | None


class Matrices:
    """Follows sparse matrices through a recorded graph.

    Args:
        written: What is written so far.
        graph_of: The graph that a node stands for, and whether its edges are turned around.
        ones: The nodes that hold a one for each edge.
    """

    def __init__(
        self,
        written: Written,
        graph_of: Callable[[Any], tuple[Value, bool] | None],
        ones: dict[fx.Node, tuple[str, str]],
    ) -> None:
        self._written, self._graph_of, self._ones = written, graph_of, ones
        self._of: dict[fx.Node, _Matrix] = {}

    def read(
        self, node: fx.Node, name: str, call_over: Callable[[fx.Node, End], ConvCall], message: Any
    ) -> Value | None:
        """The product of a matrix with rows of nodes; None if an operation is none.

        Args:
            node: The operation.
            name: What it is called.
            call_over: The words with which steps over edges are written.
            message: Makes a message of computed rows of edges.
        """
        first = node.args[0] if node.args else None
        if name == "sparse_coo_tensor":
            made = self._made(node)
            if made is not None:
                self._of[node] = made
        elif not isinstance(first, fx.Node) or first not in self._of:
            return None
        elif name in KEEPS:
            self._of[node] = self._of[first]
        elif name in _TURNS:
            held = self._of[first]
            self._of[node] = replace(held, into_target=not held.into_target)
        elif name in _PRODUCTS and len(node.args) == 2:
            return self._product(node, self._of[first], call_over, message)
        return None

    def _made(self, node: fx.Node) -> _Matrix | None:
        """`sparse_coo_tensor(edge_index, values, (n, n))`."""
        given = arguments_of(node, ("indices", "values", "size"))
        if not {"indices", "values", "size"} <= given.keys():
            return None
        found, held = self._graph_of(given["indices"]), self._written.env.get(given["values"])
        if found is None:
            return None
        relation, sizes = self._written.program.graphs[found[0]], self._written.recorded.sizes
        kind, size = relation.source, given["size"]
        square = isinstance(size, (tuple, list)) and len(size) == 2 and kind == relation.target
        if not square or not all(
            same_size(
                self._written.recorded.fake[s] if isinstance(s, fx.Node) else s, sizes.nodes[kind]
            )
            for s in size
        ):
            return None
        if self._ones.get(given["values"]) == ("ones", ""):
            return _Matrix(relation, found[1], None)
        on_edges = isinstance(held, Value) and held.domain is Domain.EDGE
        if not on_edges or held.kind != relation.graph:  # type: ignore[union-attr]
            return None
        one_each = self._written.recorded.real[given["values"]].dim() == 1
        return _Matrix(relation, found[1], held) if one_each else None

    def _product(
        self,
        node: fx.Node,
        matrix: _Matrix,
        call_over: Callable[[fx.Node, End], ConvCall],
        message: Any,
    ) -> Value | None:
        rows: Any = self._written.env.get(node.args[1])  # type: ignore[arg-type]
        on_nodes = isinstance(rows, Value) and rows.domain is Domain.NODE
        if not on_nodes or rows.kind != matrix.relation.source:
            return None
        if self._written.recorded.real[node.args[1]].dim() != 2:  # type: ignore[index]
            return None
        call = call_over(node, End(matrix.relation, matrix.into_target))
        try:
            weight, program = matrix.values, self._written.program
            if weight is None or weight not in reads_nodes(program):
                return call.total(call.weighted(rows, weight))
            there = program.gather(
                f"{node.name}_rows", rows, matrix.relation.graph, not matrix.into_target
            )
            return call.total(
                message(call, program.map(f"{node.name}_times", _times, [there, weight]))
            )
        except NotIncremental:
            return None


def _times(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rows * weight.view(-1, 1)

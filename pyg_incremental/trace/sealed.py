"""What a model sees of a graph that is no plain tensor while it is recorded."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.trace.nested import rebuilt

_MERGES = "a matrix merges a self-loop with the added one into a single message"


class Sealed:
    """Stands for a graph that is no plain tensor: it can be handed on, and nothing else."""

    def __init__(self, real: Any, refuse: Callable[[str], Any]) -> None:
        self.__dict__.update(real=real, refuse=refuse)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of what it stands for: `isinstance` says what it would say of that."""
        return type(self.__dict__["real"])

    def __getattr__(self, name: str) -> Any:
        kind = type(self.__dict__["real"]).__name__
        return self.__dict__["refuse"](f"it asks its {kind} for '{name}' in forward")

    def __getitem__(self, index: Any) -> Any:
        return self.__getattr__("__getitem__")


class Matrix(Sealed):
    """Stands for a sparse adjacency, transposed as PyG has it, that a conv is looked into with.

    It has the layout of which PyG takes ends and values one by one, whatever that of the real one:
    a conv computes the same, and its edges and values are followed like those of an `edge_index`.

    Args:
        real: The adjacency.
        refuse: Ends the trace where something else is asked of it.
        edges: Its entries, int64 `[2, num_edges]`, sources first.
        values: Their values, `[num_edges, ...]`; None for a `SparseTensor` without.
        sizes: How many targets and sources there are.
        is_made: Whether it was made of another one, so that there is no real one.
        merges: Whether PyG has added up the values of entries at one place, which are several here.
    """

    layout = torch.sparse_coo
    is_sparse, is_sparse_csr, is_cuda, requires_grad = True, False, False, False

    def __init__(
        self,
        real: Tensor,
        refuse: Callable[[str], Any],
        edges: Tensor,
        values: Tensor | None,
        sizes: Sequence[Any],
        is_made: bool = False,
        merges: bool = False,
    ) -> None:
        super().__init__(real, refuse)
        self.__dict__.update(
            edges=edges, entries=values, sizes=sizes, is_made=is_made, merges=merges
        )

    dtype = property(lambda self: self.entries.dtype)
    device = property(lambda self: self.entries.device)
    shape = property(lambda self: self.sizes)

    def size(self, dim: int | None = None) -> Any:
        """Of one dimension, or both."""
        return self.sizes if dim is None else self.sizes[dim]

    def dim(self) -> int:
        """Of a matrix."""
        return 2

    def indices(self) -> Tensor:
        """The targets and the sources of its entries, int64 `[2, num_edges]`."""
        edges: Tensor = self.edges
        return edges.flip(0)

    def _coalesced_(self, _: bool) -> "Matrix":
        return self

    def values(self) -> Tensor:
        """Those of its entries, `[num_edges, ...]`."""
        values: Tensor = self.entries
        return values

    _indices, _values = indices, values

    def sparse_size(self, dim: int) -> Any:
        """Of a `SparseTensor`: the same as `size`."""
        return self.sizes[dim]

    def coo(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of a `SparseTensor`: the targets, the sources, and the values if it has some."""
        return self.edges[1], self.edges[0], self.entries

    def csr(self) -> tuple[None, Tensor, Tensor | None]:
        """Of a `SparseTensor`: without a pointer, so that ends are reduced over one by one."""
        return None, self.edges[0], self.entries

    def to_sparse_csr(self) -> "Matrix":
        """The same, to be multiplied."""
        made = self._like(self.edges, self.entries, self.is_made)
        made.__dict__["layout"] = torch.sparse_csr
        return made

    def _like(self, edges: Tensor, values: Tensor | None, is_made: bool = True) -> "Matrix":
        return Matrix(
            self.real, self.refuse, edges, values, self.sizes, is_made, merges=self.merges
        )

    def with_loops(self, fill: float) -> "Matrix":
        """The same without entries on its diagonal, and `fill` at each place there."""
        kept = self.edges[0] != self.edges[1]
        ids = torch.arange(self.sizes[0], device=self.edges.device)
        edges = torch.cat([self.edges[:, kept], torch.stack([ids, ids])], 1)
        values = self.entries
        if values is not None:
            values = torch.cat([values[kept], values.new_full((self.sizes[0],), fill)])
        return self._like(edges, values)

    def has_value(self) -> bool:
        """Of a `SparseTensor`: whether its entries have values."""
        return self.entries is not None

    def set_value(self, values: Tensor | None, layout: str | None = None) -> "Matrix":
        """The same entries with other values, `[num_edges, ...]`, or none."""
        made = self._like(self.edges, values)
        if self.merges:  # what asks for its entries now makes a message of each
            made.__dict__["indices"] = lambda: self.refuse(_MERGES)
        return made

    def fill_value(self, fill: float, dtype: torch.dtype | None = None) -> "Matrix":
        """Of a `SparseTensor`: the same entries, all of one value."""
        ones = torch.ones(self.edges.shape[1], dtype=dtype, device=self.edges.device)
        return self.set_value(ones if fill == 1 else ones * fill)

    def row_sums(self) -> Tensor:
        """The values of each row added up, `[num_targets]`."""
        made: Tensor = scatter(self.entries, self.edges[1], 0, dim_size=self.sizes[0])
        return made

    def scaled(self, factor: Tensor) -> "Matrix":
        """Each row times a factor of its own, `[num_targets, 1]`, or each column `[1, ...]`."""
        is_column = int(isinstance(factor.shape[1], int) and factor.shape[1] == 1)
        return self.set_value(self.entries * factor.squeeze(is_column)[self.edges[is_column]])

    def __matmul__(self, rows: Tensor) -> Tensor:
        return self.product(rows)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The only function of torch that is followed is its product with rows."""
        matrix = args[0]
        if func is not torch.sparse.mm:
            return matrix.refuse(f"it calls '{getattr(func, '__name__', func)}' on its matrix")
        return matrix.product(*args[1:], **(kwargs or {}))

    def product(self, rows: Tensor, reduce: str = "sum") -> Tensor:
        """The rows of its sources, `[num_sources, channels]`, reduced to one for each target."""
        if self.merges and reduce not in ("sum", "add"):
            self.refuse(_MERGES)
        sent = rows.index_select(0, self.edges[0])
        if self.entries is not None:
            sent = sent * self.entries.view(-1, 1)
        made: Tensor = scatter(sent, self.edges[1], 0, dim_size=self.sizes[0], reduce=reduce)
        return made


def edges_of_matrix(matrix: Any) -> Tensor:
    """The entries of a transposed adjacency `[n, m]` as edges, int64 `[2, num_edges]`."""
    if is_sparse_tensor(matrix):
        targets, sources, _ = matrix.coo()
    else:
        targets, sources = matrix.to_sparse_coo()._indices()
    return torch.stack([sources, targets])


def values_of_matrix(matrix: Any) -> Tensor | None:
    """Their values, `[num_edges, ...]`, or None."""
    if is_sparse_tensor(matrix):
        return matrix.coo()[2]  # type: ignore[no-any-return]
    values: Tensor = matrix.to_sparse_coo()._values()
    return values


def is_matrix(graph: Any) -> bool:
    """Whether a graph is a sparse tensor of PyTorch, or a `SparseTensor`."""
    is_torch = isinstance(graph, Tensor) and graph.layout is not torch.strided
    return is_torch or is_sparse_tensor(graph)


def opened(graph: Any) -> Any:
    """A graph as a conv is looked into with it, whose values are all there."""
    if not is_matrix(graph):
        return graph

    def refuse(reason: str) -> Any:
        raise TypeError(reason)

    edges, values = edges_of_matrix(graph), values_of_matrix(graph)
    return Matrix(graph, refuse, edges, values, [graph.size(0), graph.size(1)])


def as_given(value: Any) -> Any:
    """Arguments with matrices themselves in place of what stands for them."""
    if type(value) is Matrix:
        if value.is_made:
            raise TypeError("a matrix that is made of its adjacency is handed on")
        return value.__dict__["real"]
    return rebuilt(value, as_given)

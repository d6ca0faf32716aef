"""How a model was called: which arguments are node rows, edge rows, the graph, or constants."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.typing import HAS_TORCH_SPARSE, Format

_EDGE_NAMES = ("weight", "weights", "attr")
_DATA_FIELDS = ("x", "edge_index", "adj_t", "edge_weight", "edge_attr", "batch", "pos")


class CallSite(nn.Module):
    """A model with all arguments of one call fixed, but for the tensors named in `names`.

    Tracing this module instead of the model bakes in what was not a tensor (and that optional
    arguments were None), makes a conv that is called directly an ordinary leaf, and lets a model
    that takes a `Data` object be traced like any other.

    Args:
        model: The model.
        arguments: All arguments by parameter name; tensors among them, and those in a `Data`
            object, become inputs.
        positional: The arguments that have to be passed by position, in order.

    Attributes:
        tensors: The tensors of the call, by name; emptied once they are taken over.
        names: Their names, in the order in which `forward` takes them.
        constants: All other arguments.
        data_fields: For each argument that is a `Data` object, which tensors it holds.
    """

    def __init__(
        self, model: nn.Module, arguments: Mapping[str, Any], positional: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.positional = list(positional)
        self.model = model
        self.constants: dict[str, Any] = {}
        self.data_fields: dict[str, tuple[str, ...]] = {}
        self.tensors: dict[str, Any] = {}
        for key, value in arguments.items():
            if isinstance(value, Data):
                fields = _fields_read(model, arguments, value)
                self.tensors.update({n: value[n] for n in fields})
                self.data_fields[key] = fields
            elif isinstance(value, Tensor) or is_sparse_tensor(value):
                self.tensors[key] = value
            else:
                self.constants[key] = value
        self.names = list(self.tensors)
        self.eval()

    def forward(self, *tensors: Any) -> Any:
        """Call the model with `tensors` in the order of `names`."""
        given = dict(zip(self.names, tensors, strict=True))
        arguments = dict(self.constants)
        for key, fields in self.data_fields.items():
            arguments[key] = data = Data()
            data._store._mapping.update({name: given.pop(name) for name in fields})
        arguments.update(given)
        return self.model(*[arguments.pop(name) for name in self.positional], **arguments)


class _Recording(Data):  # type: ignore[misc]
    """A `Data` object that remembers which of its fields were read."""

    def __init__(self, data: Data) -> None:
        super().__init__()
        self._store._mapping.update(data.to_dict())
        self.__dict__["read"] = set()

    def __getattr__(self, key: str) -> Any:
        self.__dict__.get("read", set()).add(key)
        return super().__getattr__(key)

    def __getitem__(self, key: str) -> Any:
        self.__dict__["read"].add(key)
        return super().__getitem__(key)


def _fields_read(model: nn.Module, arguments: Mapping[str, Any], data: Data) -> tuple[str, ...]:
    """The tensors of a `Data` object that a model reads, found by running it on a few nodes.

    What it does not read (labels, masks) is no input, so new nodes need no row of it.
    """
    present = [k for k, v in data.to_dict().items() if isinstance(v, Tensor) or is_sparse_tensor(v)]
    usual = [k for k in present if k in _DATA_FIELDS]
    if len(usual) == len(present):
        return tuple(usual)
    try:
        small = _Recording(data.subgraph(torch.arange(min(30, data.num_nodes or 0))))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(**{k: small if v is data else v for k, v in arguments.items()})
    except Exception:  # a user's model may raise anything; the usual fields are the best guess
        return tuple(usual)
    read: set[str] = small.__dict__["read"]
    return tuple(k for k in present if k in read or k in ("x", "edge_index", "adj_t"))


def bind(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSite:
    """The call site of `model(*args, **kwargs)`."""
    if (
        args
        and isinstance(args[0], Data)
        and next(iter(inspect.signature(model.forward).parameters), "") in _DATA_FIELDS
    ):
        raise InvalidDeltaError(
            f"{type(model).__name__} takes tensors (got a Data object); pass data.x, "
            "data.edge_index and so on"
        )
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidDeltaError(
            f"{type(model).__name__} cannot be called like this: {error}"
        ) from error
    arguments: dict[str, Any] = {}
    positional: list[str] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            # PyG's Sequential knows its own names.
            known = list(getattr(getattr(model, "signature", None), "param_dict", {}))
            names = [known[i] if i < len(known) else f"{name}_{i}" for i in range(len(value))]
            arguments.update(zip(names, value, strict=True))
            positional += names
        else:
            arguments[name] = value
            if kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(name)
    return CallSite(model, arguments, positional)


def is_sparse_tensor(value: object) -> bool:
    """Whether a value is a `torch_sparse.SparseTensor`."""
    if not HAS_TORCH_SPARSE:
        return False
    from torch_sparse import SparseTensor

    return isinstance(value, SparseTensor)


@dataclass(frozen=True)
class Roles:
    """What the tensors of a call are.

    Attributes:
        graph: Name of the argument that is the graph.
        format: The format of the graph.
        x: Name of the node features.
        nodes: Names of all arguments with one row per node, `x` first.
        edges: Names of the arguments with one row per edge.
        others: Names of all other tensors.
        edge_index: The edges, int64 `[2, num_edges]`, sources first.
        values: The values of a sparse adjacency, `[num_edges, ...]`, or None.
        num_nodes: Number of nodes.
        by_target: Whether the edges came sorted by target, which some aggregations insist on.
    """

    graph: str
    format: Format
    x: str
    nodes: tuple[str, ...]
    edges: tuple[str, ...]
    others: tuple[str, ...]
    edge_index: Tensor
    values: Tensor | None
    num_nodes: int
    by_target: bool


def classify(site: CallSite) -> Roles:
    """Tell the roles of the tensors of a call, by their types, names and shapes.

    Raises:
        UnsupportedModelError: If there is not exactly one graph.
        InvalidDeltaError: If a shape, dtype or id does not fit.
    """
    where = f"call of {type(site.model).__name__}"
    graphs = [name for name, value in site.tensors.items() if _is_graph(name, value)]
    if len(graphs) != 1:
        raise UnsupportedModelError(
            f"{where}: expected one graph among its arguments, an edge_index [2, num_edges] of "
            f"int64 or a sparse adjacency (got {graphs or 'none'} among {site.names})"
        )
    graph = graphs[0]
    rest = [name for name in site.names if name != graph]
    x = next((n for n in rest if n == "x"), None) or next(
        (n for n in rest if not n.startswith("edge") and _rows(site.tensors[n]) is not None), None
    )
    if x is None:
        raise UnsupportedModelError(
            f"{where}: expected node features among its arguments (got {site.names})"
        )
    features = site.tensors[x]
    if features.layout is not torch.strided or features.dim() not in (1, 2):
        raise UnsupportedModelError(
            f"{where}: '{x}' must be a dense tensor of shape [num_nodes, channels] (got "
            f"{list(features.shape)}, layout {features.layout}); run static graphs [batch, "
            "num_nodes, channels] one batch entry at a time"
        )
    count = features.shape[0]
    edge_index, values, fmt = _unpack(site.tensors[graph], graph, where, count)
    nodes, edges, others = [x], [], []
    for name in rest:
        if name == x:
            continue
        rows = _rows(site.tensors[name])
        edge_like = rows == edge_index.shape[1] and (rows != count or name in _EDGE_NAMES)
        if name.startswith("edge") or edge_like:
            if rows != edge_index.shape[1]:
                raise InvalidDeltaError(
                    f"{where}: '{name}' has {rows} rows, but the graph has {edge_index.shape[1]} "
                    "edges"
                )
            edges.append(name)
        elif rows == count:
            nodes.append(name)
        else:
            others.append(name)
    by_target = fmt == "coo" and bool((edge_index[1].diff() >= 0).all())
    return Roles(
        graph,
        fmt,
        x,
        tuple(nodes),
        tuple(edges),
        tuple(others),
        edge_index,
        values,
        count,
        by_target,
    )


def _rows(value: Any) -> int | None:
    return value.shape[0] if isinstance(value, Tensor) and value.dim() > 0 else None


def _is_graph(name: str, value: Any) -> bool:
    if is_sparse_tensor(value) or isinstance(value, EdgeIndex):
        return True
    if value.layout is not torch.strided:
        return True
    named = name in ("edge_index", "adj", "adj_t") or name.endswith("edge_index")
    return named or (not value.dtype.is_floating_point and value.dim() == 2 and value.shape[0] == 2)


def _unpack(
    graph: Any, name: str, where: str, num_nodes: int
) -> tuple[Tensor, Tensor | None, Format]:
    """Edges with sources first, values, and format."""
    fmt: Format = "coo"
    values = None
    if is_sparse_tensor(graph):
        dst, src, values = graph.coo()
        edge_index, fmt = torch.stack([src, dst]), "sparse_tensor"
        shape = list(graph.sizes())
    elif isinstance(graph, Tensor) and graph.layout is not torch.strided:
        if graph.layout is torch.sparse_csr:
            row = torch.repeat_interleave(
                torch.arange(graph.shape[0], device=graph.device), graph.crow_indices().diff()
            )
            edge_index, fmt = torch.stack([graph.col_indices(), row]), "csr"
        elif graph.layout is torch.sparse_csc:
            col = torch.repeat_interleave(
                torch.arange(graph.shape[1], device=graph.device), graph.ccol_indices().diff()
            )
            edge_index, fmt = torch.stack([col, graph.row_indices()]), "csc"
        else:
            raise UnsupportedModelError(
                f"{where}: '{name}' has layout {graph.layout}; use .to_sparse_csr(), "
                ".to_sparse_csc() or an edge_index"
            )
        values = graph.values()
        shape = list(graph.shape[:2])
    else:
        edge_index = graph.as_tensor() if isinstance(graph, EdgeIndex) else graph
        shape = [num_nodes, num_nodes]
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype.is_floating_point:
            raise InvalidDeltaError(
                f"{where}: '{name}' must be integers of shape [2, num_edges] (got "
                f"{edge_index.dtype} {list(edge_index.shape)})"
            )
    if shape != [num_nodes, num_nodes]:
        raise InvalidDeltaError(f"{where}: '{name}' is {shape}, but there are {num_nodes} nodes")
    edge_index = edge_index.detach().to("cpu", torch.int64)
    if edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            raise InvalidDeltaError(
                f"{where}: '{name}' names node {low if low < 0 else high}, but ids lie in [0, "
                f"{num_nodes}); pass features for every node"
            )
    return edge_index, None if values is None else values.detach(), fmt


def to_format(
    fmt: Format, edge_index: Tensor, values: Tensor | None, num_nodes: int, device: torch.device
) -> Any:
    """The graph object that a model called with this format expects.

    Args:
        fmt: The format.
        edge_index: Edges, int64 `[2, num_edges]`, sources first.
        values: One row per edge, or None.
        num_nodes: Number of nodes.
        device: Where the object goes.
    """
    edge_index = edge_index.to(device)
    if fmt == "coo":
        return edge_index
    src, dst = edge_index
    if fmt == "sparse_tensor":
        from torch_sparse import SparseTensor

        return SparseTensor(row=dst, col=src, value=values, sparse_sizes=(num_nodes, num_nodes))
    major, minor = (dst, src) if fmt == "csr" else (src, dst)
    order = torch.argsort(major * num_nodes + minor, stable=True)
    pointer = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    pointer[1:] = torch.bincount(major, minlength=num_nodes).cumsum(0)
    make = torch.sparse_csr_tensor if fmt == "csr" else torch.sparse_csc_tensor
    if values is None:
        values = torch.ones(edge_index.shape[1], device=device)
    return make(pointer, minor[order], values[order], size=(num_nodes, num_nodes))

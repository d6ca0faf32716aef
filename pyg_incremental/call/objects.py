"""Objects of PyG that a model takes: `Data`, `HeteroData`, `Batch`, `TemporalData`, subclasses.

The model always gets the object that the user has handed in: a shallow copy of it, in which only
the tensors that are followed are current ones. Fields that the model does not read are in their
place, too, but hold nothing: who reads one after all gets an error, never an old value.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.data.data import BaseData
from torch_geometric.data.hypergraph_data import HyperGraphData
from torch_geometric.data.storage import BaseStorage

from pyg_incremental.call.untold import Untold, has_entries
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.typing import HAS_TORCH_SPARSE

USUAL = (
    "x", "edge_index", "adj_t", "edge_weight", "edge_attr", "batch", "pos", "hyperedge_index",
    "hyperedge_weight", "hyperedge_attr",
)  # fmt: skip
"""Fields whose names say what they are."""
ALWAYS = ("x", "edge_index", "adj_t")
"""Features and graphs."""
_NODES = ("feat", "node_type", "n_id", "tf", "z")
_EVENTS = ("src", "dst")
_SHAPELESS = frozenset(
    (
        "dtype", "device", "layout", "ndim", "dim", "is_sparse", "is_sparse_csr", "is_cuda",
        "is_meta", "is_floating_point", "is_complex", "requires_grad", "is_quantized", "is_nested",
        "is_leaf", "grad_fn", "grad",
    )
)  # fmt: skip
"""What may be asked of a tensor without reading it, or how many rows it has."""


def is_sparse_tensor(value: object) -> bool:
    """Whether a value is a `torch_sparse.SparseTensor`."""
    if not HAS_TORCH_SPARSE:
        return False
    from torch_sparse import SparseTensor

    return isinstance(value, SparseTensor)


def stores_of(data: BaseData) -> dict[Any, BaseStorage]:
    """The stores of an object by type; that of what belongs to no type under None."""
    if isinstance(data, HeteroData):
        return {None: data._global_store, **data._node_store_dict, **data._edge_store_dict}
    return {None: data._store}


def reads(func: Any) -> bool:
    """Whether a function of torch reads a tensor that it is given, or asks how large it is."""
    name = str(getattr(func, "__name__", ""))
    if name == "__get__":
        name = str(getattr(getattr(func, "__self__", None), "__name__", ""))
    return name not in _SHAPELESS


class Unread(Tensor):
    """Stands in an object for a tensor that the model did not read in the first call."""

    field: str

    @classmethod
    def of(cls, field: str, dtype: torch.dtype, dims: int, device: Any = "cpu") -> Unread:
        """A tensor of a dtype and a number of dimensions that holds nothing, `[0, ...]`."""
        made = torch.empty((0,) * dims, dtype=dtype, device=device).as_subclass(cls)
        made.field = field
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What can be told without the values.

        Raises:
            UnsupportedModelError: For all else.
        """
        if not reads(func):
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        field = next((vars(a)["field"] for a in args if isinstance(a, Unread)), "a field")
        raise UnsupportedModelError(
            f"the model reads '{field}' of its object on this graph, but did not on a part of it, "
            "so that it was not followed; have forward read it in every case, as by "
            f"data.{field}.shape before the branch"
        )


class HeldObject:
    """An object that a model takes.

    Args:
        argument: The name of the argument.
        data: The object; it is not touched.
        kind: What its nodes are called, where a call holds the nodes of several objects.

    Attributes:
        argument: The name of the argument.
        kind: As above.
        template: A copy of it, without the tensors that are followed.
        places: Where the tensors that are followed belong: the type and the field, by name.
        levels: What PyG's own rules say of a field, by name: `'node'`, `'edge'`, `'constant'`, or
            nothing where they do not tell nodes from edges.
        keys: The type of nodes or edges that a tensor belongs to, by name, where there are several.
        joins: The types of nodes that the pairs in a tensor join.
        counts_graphs: Whether the number of graphs is read; None while that is to be found out.
    """

    def __init__(self, argument: str, data: BaseData, kind: str = "") -> None:
        self.template = copy.copy(data)
        self.places: dict[str, tuple[Any, str]] = {}
        self.levels: dict[str, str] = {}
        self.keys: dict[str, Any] = {}
        self.joins: dict[str, tuple[str, str]] = {}
        self.counts_graphs: bool | None = None
        self.argument, self.kind = argument, kind

    def taken_apart(
        self, taken: Collection[str], constants: Collection[str] = ()
    ) -> dict[str, Any]:
        """The tensors of the object by name; from here on the template holds none of them.

        Nor does it hold lists and arrays with an entry for each node, edge or graph.

        Args:
            taken: The names of other arguments.
            constants: The names of fields that stay as they are.
        """
        found: dict[str, Any] = {}
        untold: dict[tuple[Any, str], Untold] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyG's, where it can only guess a number of nodes
            for key, store in stores_of(self.template).items():
                for field, value in list(store._mapping.items()):
                    if not (isinstance(value, Tensor) or is_sparse_tensor(value)):
                        name = self._name(key, field, taken)
                        told = name in constants or field in constants
                        if not told and has_entries(value, self._counts(key)):
                            untold[key, field] = Untold(name, value)
                        continue
                    if isinstance(self.template, TemporalData) and field in _EVENTS:
                        continue
                    name = self._name(key, field, taken)
                    self._tell(name, key, field, value)
                    found[name] = value
                    self.places[name] = key, field
            if isinstance(self.template, TemporalData):
                found |= self._events(taken)
        for (key, field), stand_in in untold.items():  # PyG counted nodes by what was there
            stores_of(self.template)[key]._mapping[field] = stand_in
        for key, field in self.places.values():
            mapping = stores_of(self.template)[key]._mapping
            if field in mapping:
                mapping[field] = None
        return found

    def _events(self, taken: Collection[str]) -> dict[str, Any]:
        """The edges that events are, `[2, num_events]`."""
        store = self.template._store._mapping
        src, dst = (store[end] for end in _EVENTS)
        name = self._name(None, "edge_index", taken)
        self.places[name] = None, "edge_index"
        for end in _EVENTS:
            store[end] = None
        return {name: torch.stack([src, dst])}

    def _name(self, key: Any, field: str, taken: Collection[str]) -> str:
        if key is not None or self.kind:
            return name_in(field, self.kind if key is None else key)
        return name_in(field, self.argument) if field in taken else field

    def _tell(self, name: str, key: Any, field: str, value: Any) -> None:
        """Note what PyG's rules say of a field."""
        is_index = field.endswith("index") and isinstance(value, Tensor) and value.dim() == 2
        is_graph = field in ("edge_index", "adj_t", "adj") or isinstance(value, EdgeIndex)
        if is_graph or is_index or not isinstance(value, Tensor):
            if isinstance(key, tuple) and not is_graph and is_index:
                self.joins[name] = key[0], key[-1]
            elif key is not None or self.kind:
                self.keys[name] = (self.kind, self.kind) if key is None else key
            return
        level = self._level(key, field, value)
        if level is not None:
            self.levels[name] = level
        if level in ("node", "edge") and (key is not None or self.kind):
            both = (self.kind, self.kind) if level == "edge" else self.kind
            self.keys[name] = both if key is None else key

    def _level(self, key: Any, field: str, value: Tensor) -> str | None:
        data, store = self.template, stores_of(self.template)[key]
        if field in USUAL and (not isinstance(data, HeteroData) or key is not None):
            if isinstance(data, HeteroData) or self.kind:
                return "edge" if isinstance(key, tuple) or field.startswith("edge") else "node"
            return None  # their names tell
        if isinstance(data, HyperGraphData):
            return "node" if value.dim() and value.shape[0] == data.num_nodes else None
        if isinstance(data, HeteroData):
            nodes = store.num_nodes if isinstance(key, str) else -1
            edges = store.num_edges if isinstance(key, tuple) else -1
        elif isinstance(data, TemporalData):
            nodes, edges = -1, data.num_events
        else:
            nodes, edges = data.num_nodes, data.num_edges
        along = data.__cat_dim__(field, value, store)
        if not value.dim() or not isinstance(along, int) or field == "ptr":
            return "constant"
        rows = value.shape[along]
        if rows not in (nodes, edges):
            return "constant"
        if along % value.dim():
            raise UnsupportedModelError(
                f"'{field}' {list(value.shape)} of the {type(data).__name__} object has its nodes "
                f"or edges along dimension {along}; store it with these first, [{rows}, ...]"
            )
        if nodes != edges:
            return "node" if rows == nodes else "edge"
        return "node" if field in _NODES or "node" in field else "edge" if "edge" in field else ""

    def _counts(self, key: Any) -> set[int]:
        """How many nodes, edges and graphs there are in a store, as far as PyG can say it."""
        data, store = self.template, stores_of(self.template)[key]
        counted = store if isinstance(data, HeteroData) else data
        names: tuple[str, ...] = ("num_nodes", "num_edges")
        if isinstance(data, TemporalData):
            names = ("num_events",)
        if isinstance(data, HeteroData):
            names = () if key is None else names[isinstance(key, tuple) :][:1]
        graphs = vars(stores_of(data)[None]).get("_num_graphs")
        found = [getattr(counted, name) for name in names]
        return {n for n in (*found, graphs) if isinstance(n, int)}

    def leave(self, name: str, tensor: Any) -> None:
        """From here on the model is given nothing in the place of a tensor, of any shape."""
        key, field = self.places.pop(name)
        made = Unread.of(field, tensor.dtype, tensor.dim(), tensor.device)
        stores_of(self.template)[key]._mapping[field] = made
        for told in (self.levels, self.keys, self.joins):
            told.pop(name, None)

    def filled(self, given: MutableMapping[str, Any]) -> BaseData:
        """The object with current tensors, which are taken out of `given`."""
        data = copy.copy(self.template)
        stores = stores_of(data)
        for name, (key, field) in self.places.items():
            mapping, tensor = stores[key]._mapping, given.pop(name)
            if field == "edge_index" and isinstance(data, TemporalData):
                mapping |= dict(zip(_EVENTS, tensor, strict=True))
                continue
            mapping[field] = tensor
        counts = {self.places[name][0]: name for name in reversed(self._counting())}
        for key, name in counts.items():
            if isinstance(stores[key]._mapping.get("num_nodes"), int):
                stores[key]._mapping["num_nodes"] = stores[key][self.places[name][1]].shape[0]
        if self.counts_graphs is None:
            vars(stores[None]).pop("_num_graphs", None)  # it then is asked of `ptr` or `batch`
        elif self.counts_graphs:
            _count_graphs(stores)
        return data

    @property
    def plain(self) -> list[tuple[tuple[Any, str], Any]]:
        """What the object holds beside tensors: the type and field, and the value."""
        found = []
        for key, store in stores_of(self.template).items():
            for field, value in store._mapping.items():
                if (key, field) not in self.places.values() and not isinstance(value, Unread):
                    found.append(((key, field), value))
        return found

    def left(self, read: Collection[str]) -> list[str]:
        """The tensors to leave behind, if a model reads those that are named.

        Features and graphs stay, since they say how many nodes and edges there are, and so does
        what says how many graphs there are, where that is read.
        """
        starts = [name for name, (_, field) in self.places.items() if field == "ptr"]
        named = [name for name, (_, field) in self.places.items() if field == "batch"]
        self.counts_graphs = "_num_graphs" in vars(stores_of(self.template)[None]) and bool(
            {*(starts or named)} & {*read}
        )
        stay = {*read, *(named if self.counts_graphs else ())} - {*starts}
        return [n for n, (_, f) in self.places.items() if n not in stay and f not in ALWAYS]

    def _counting(self) -> list[str]:
        """The tensors that tell the number of nodes of a type."""
        return [
            name
            for name, (key, field) in self.places.items()
            if self.levels.get(name) == "node"
            or (not isinstance(key, tuple) and field in ("x", "pos", "batch"))
        ]


def _count_graphs(stores: Mapping[Any, BaseStorage]) -> None:
    """Let the number of graphs, and where each begins, be what `batch` says of them."""
    named = [s._mapping["batch"] for s in stores.values() if _is_there(s._mapping.get("batch"))]
    if not named or "_num_graphs" not in vars(stores[None]):
        return
    count = int(named[0].max()) + 1
    for batch in named[1:]:
        count = max(count, int(batch.max()) + 1)
    vars(stores[None])["_num_graphs"] = count
    for store in stores.values():
        if "ptr" in store._mapping and _is_there(store._mapping.get("batch")):
            batch = store._mapping["batch"]
            sizes = batch.new_zeros(count + 1).index_add(0, batch + 1, torch.ones_like(batch))
            store._mapping["ptr"] = sizes.cumsum(0)


def _is_there(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Unread)


def name_in(argument: str, kind: Any) -> str:
    """The name of a tensor that an argument holds under a type of nodes or edges."""
    return f"{'__'.join(kind) if isinstance(kind, tuple) else kind}/{argument}"


def part_of(data: BaseData, nodes: int = 30) -> BaseData:
    """The object on its first nodes, or the first events.

    Raises:
        Exception: Whatever PyG raises where it cannot say what these are.
    """
    if isinstance(data, HeteroData):
        some = {s._key: torch.arange(min(nodes, s.num_nodes or 0)) for s in data.node_stores}
        return data.subgraph(some)
    if isinstance(data, Data):
        return data.subgraph(torch.arange(min(nodes, data.num_nodes or 0)))
    return data[:nodes]

"""A call of a model, with everything fixed but its tensors."""

import copy
import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.hypergraph_data import HyperGraphData

from pyg_incremental.call.from_data import spread
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.typing import HAS_TORCH_SPARSE

_DATA_FIELDS = (
    "x", "edge_index", "adj_t", "edge_weight", "edge_attr", "batch", "pos", "hyperedge_index",
    "hyperedge_weight", "hyperedge_attr",
)  # fmt: skip
_DICTS = ("x_dict", "edge_index_dict", "adj_t_dict")


class CallSite(nn.Module):
    """A model with all arguments of one call fixed, but for the tensors named in `names`.

    Tracing this module instead of the model bakes in what was not a tensor (and that optional
    arguments were None), makes a conv that is called directly an ordinary leaf, and lets a model
    that takes a `Data` object be traced like any other.

    Args:
        model: The model.
        arguments: All arguments by parameter name; tensors among them, and those in dicts, pairs,
            `Data` and `HeteroData` objects, become inputs.
        positional: The arguments that have to be passed by position, in order.

    Attributes:
        tensors: The tensors of the call, by name; emptied once they are taken over.
        names: Their names, in the order in which `forward` takes them.
        keys: For each tensor the key under which a dict or pair holds it, or None.
        constants: All other arguments.
        data_fields: For each argument that is a `Data` object, which tensors it holds.
        hyper_data: Which of these are `HyperGraphData` objects: they count their edges otherwise.
        packed: For each argument that is a dict or pair of tensors, what it holds: the name of a
            tensor, or None, under each key.
        hetero: For each argument that is a `HeteroData` object the name of a tensor for each type
            (of nodes or edges) and field.
        keeps: What the model keeps from call to call, if it does; every full pass then runs on a
            copy, for which it is the first call.
        whole: Why the model is not to be traced, if it is not.
    """

    def __init__(
        self, model: nn.Module, arguments: Mapping[str, Any], positional: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.positional = list(positional)
        self.model = model
        self.constants: dict[str, Any] = {}
        self.data_fields: dict[str, tuple[str, ...]] = {}
        self.hyper_data: list[str] = []
        self.packed: dict[str, dict[Any, str | None]] = {}
        self.hetero: dict[str, dict[tuple[Any, str], str]] = {}
        self.keys: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}
        for key, value in arguments.items():
            if _holds_tensors(value) and (isinstance(value, dict) or not self.tensors):
                self._unpack(key, value)
                continue
            if isinstance(value, HeteroData):
                self._take_apart(key, value)
            elif isinstance(value, Data):
                fields = _fields_read(model, arguments, value)
                self.tensors.update({n: value[n] for n in fields})
                self.data_fields[key] = fields
                if isinstance(value, HyperGraphData):
                    self.hyper_data.append(key)
            elif isinstance(value, Tensor) or is_sparse_tensor(value):
                self.tensors[key] = value
            else:
                self.constants[key] = value
        self.names = list(self.tensors)
        self.keeps = self.whole = ""
        self.eval()

    def _unpack(self, argument: str, value: Any) -> None:
        """Take the tensors out of a dict or a pair."""
        pair = isinstance(value, (tuple, list))
        held = dict(enumerate(value)) if pair else value
        names: dict[Any, str | None] = {}
        for key, tensor in held.items():
            kind = ("src", "dst")[key] if pair else key
            name = name_in(argument, kind)
            names[key] = name if tensor is not None else None
            if tensor is not None:
                self.tensors[name] = tensor
                self.keys[name] = kind
        self.packed[argument] = names

    def _take_apart(self, argument: str, data: HeteroData) -> None:
        """Take the usual tensors out of a `HeteroData` object; labels and masks stay behind."""
        names = self.hetero.setdefault(argument, {})
        for kind, store in (*data.node_items(), *data.edge_items()):
            for field in _DATA_FIELDS:
                value = store.get(field)
                if isinstance(value, Tensor) or is_sparse_tensor(value):
                    names[kind, field] = name = name_in(field, kind)
                    self.tensors[name] = value
                    self.keys[name] = kind

    def on(self, model: nn.Module) -> "CallSite":
        """The same call of another model, such as a copy."""
        made = CallSite.__new__(CallSite)
        made.__dict__ = {**self.__dict__, "_modules": {"model": model}}
        return made

    def forward(self, *tensors: Any) -> Any:
        """Call the model with `tensors` in the order of `names`."""
        given = dict(zip(self.names, tensors, strict=True))
        arguments = dict(self.constants)
        for key, fields in self.data_fields.items():
            arguments[key] = data = HyperGraphData() if key in self.hyper_data else Data()
            data._store._mapping.update({name: given.pop(name) for name in fields})
        for key, places in self.hetero.items():
            arguments[key] = hetero_data({at: given.pop(name) for at, name in places.items()})
        for key, names in self.packed.items():
            held = {k: given.pop(name) if name is not None else None for k, name in names.items()}
            pair = list(names) == [0, 1]
            arguments[key] = tuple(held.values()) if pair else held
        arguments.update(given)
        return self.model(*[arguments.pop(name) for name in self.positional], **arguments)


def hetero_data(tensors: Mapping[tuple[Any, str], Any]) -> HeteroData:
    """A `HeteroData` object that holds tensors by type and field."""
    data = HeteroData()
    for (kind, field), tensor in tensors.items():
        data[kind]._mapping[field] = tensor
    return data


def name_in(argument: str, kind: Any) -> str:
    """The name of a tensor that an argument holds under a type of nodes or edges."""
    return f"{'__'.join(kind) if isinstance(kind, tuple) else kind}/{argument}"


def _holds_tensors(value: Any) -> bool:
    """Whether a value is a pair or a dict of tensors (some of them None)."""
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        parts = list(value)
    else:
        return False
    return any(isinstance(v, Tensor) for v in parts) and all(
        v is None or isinstance(v, Tensor) or is_sparse_tensor(v) for v in parts
    )


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
            copied = copy.deepcopy(model)
            copied(**{k: small if v is data else v for k, v in arguments.items()})
    except Exception:  # a user's model may raise anything; the usual fields are the best guess
        return tuple(usual)
    read: set[str] = small.__dict__["read"]
    return tuple(k for k in present if k in read or k in ("x", "edge_index", "adj_t"))


def bind(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallSite:
    """The call site of `model(*args, **kwargs)`."""
    args, kwargs = spread(model, args, kwargs, (*_DATA_FIELDS, *_DICTS))
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
            positional = [*arguments, *names] if names else positional  # those before come first
            arguments.update(zip(names, value, strict=True))
        else:
            arguments[name] = value
            if kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(name)
    return CallSite(model, arguments, positional)


def device_of(model: nn.Module, rows: Iterable[Tensor]) -> torch.device:
    """Where the graph of a call belongs: to its node rows, `[n, ...]`, or else the parameters."""
    return next((t.device for t in chain(rows, model.parameters())), torch.device("cpu"))


def is_sparse_tensor(value: object) -> bool:
    """Whether a value is a `torch_sparse.SparseTensor`."""
    if not HAS_TORCH_SPARSE:
        return False
    from torch_sparse import SparseTensor

    return isinstance(value, SparseTensor)

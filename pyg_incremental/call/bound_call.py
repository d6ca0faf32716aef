"""A call of a model, with everything fixed but its tensors."""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from pyg_incremental.call.asked import Asked
from pyg_incremental.call.from_data import spread
from pyg_incremental.call.held_graphs import held_graphs, holding
from pyg_incremental.call.listed import opened
from pyg_incremental.call.method import refuse_without_forward
from pyg_incremental.call.misgiven import takes_dicts, types_taken
from pyg_incremental.call.objects import (
    ALWAYS,
    USUAL,
    HeldObject,
    is_sparse_tensor,
    name_in,
    part_of,
)
from pyg_incremental.call.reading import names_read
from pyg_incremental.call.returned import ReturnedObject, objects_in, with_objects
from pyg_incremental.call.said import Role, said_of
from pyg_incremental.call.untold import refuse_constants
from pyg_incremental.errors import InvalidDeltaError

_HALF = (torch.float16, torch.bfloat16)
BESIDE = ("edge_time", "node_time", "edge_ids")
"""What may be given beside a call of any model: times, see `expire`, and numbers of edges, by which
those that leave are told apart from others of their pair."""
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
_DICTS = ("x_dict", "edge_index_dict", "adj_t_dict")


class BoundCall(nn.Module):
    """A model with all arguments of one call fixed, but for the tensors named in `names`.

    Tracing this module instead of the model bakes in what was not a tensor (and that optional
    arguments were None), makes a conv that is called directly an ordinary leaf, and lets a model
    that takes an object be traced like any other: it gets the user's own, with current tensors.

    Args:
        model: The model.
        arguments: All arguments by parameter name; tensors among them, and those in dicts, pairs,
            `Data` and other objects, become inputs.
        positional: The arguments that have to be passed by position, in order.
        fixed: The names of arguments and fields that stay as they are.
        beside: Names of tensors that the model is not called with, but which follow its graph.

    Attributes:
        tensors: The tensors of the call, by name; emptied once they are taken over.
        names: Their names, in the order in which `forward` takes them.
        keys: For each tensor the key under which a dict or pair holds it, or None.
        constants: All other arguments.
        objects: The arguments that are objects of PyG.
        levels: What their fields are, as far as PyG's own rules say it: see `HeldObject`.
        joins: The types of nodes that pairs in them join.
        unread: Tensors in them that the model does not read, which so are no inputs.
        returned: What is kept of objects that the model returns, once it has run.
        packed: For each argument that is a dict or pair of tensors, what it holds: the name of a
            tensor, or None, under each key.
        counted: The node input whose rows the argument `num_nodes` counts, or an empty string.
        learned: Of how many nodes the model has learned rows, if several of its tables may be that
            and it is known by what it does with them; 0 else.
        asked: For each tensor that stands for arguments with ids which these are.
        lists: For each argument that is a list its class, and what its entries are called.
        held: Tensors that the model holds by itself, by their paths in it: a graph, say.
        sparse: The layouts of features that came as sparse tensors; their rows are kept dense.
        takes_dense: Whether the model is given dense rows in their place, as while it is traced,
            and objects that are taken to be valid: no delta makes one invalid.
        keeps: What the model keeps from call to call, if it does; every full pass then runs on a
            copy, for which it is the first call.
        whole: Why the model is not to be traced, if it is not.
        why: How it is known what arguments are that do not show it, in words.
    """

    def __init__(
        self,
        model: nn.Module,
        arguments: Mapping[str, Any],
        positional: Sequence[str] = (),
        fixed: Collection[str] = (),
        beside: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.positional, self.fixed = list(positional), frozenset(fixed)
        self.beside, self.counted, self.learned = list(beside), "", 0
        self.model = model
        self.why: dict[str, str] = {}
        self.constants: dict[str, Any] = {}
        self.objects: dict[str, HeldObject] = {}
        self.levels: dict[str, str] = {}
        self.joins: dict[str, tuple[str, str]] = {}
        self.unread: list[str] = []
        self.returned: list[Any] = []
        self.packed: dict[str, dict[Any, str | None]] = {}
        self.asked: dict[str, Asked] = {}
        self.keys: dict[str, Any] = {}
        arguments, self.lists = opened(arguments)
        self.held: dict[str, Any] = {}
        self.sparse: dict[str, torch.layout] = {}
        self.takes_dense = False
        several = sum(isinstance(v, BaseData) for v in arguments.values()) > 1
        self.tensors: dict[str, Any] = {}
        for key, value in arguments.items():
            if _holds_tensors(value) and (isinstance(value, dict) or not self.tensors):
                self._unpack(key, value)
                continue
            if isinstance(value, BaseData):
                plain = several and not isinstance(value, HeteroData)
                self._take_apart(HeldObject(key, value, key if plain else ""), arguments)
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

    def _take_apart(self, held: HeldObject, arguments: Mapping[str, Any]) -> None:
        """Take the tensors out of an object."""
        found = held.taken_apart({*arguments} - {held.argument}, self.fixed)
        twice = [name for name in found if name in self.tensors]
        if twice:
            raise InvalidDeltaError(
                f"{type(self.model).__name__} is called with several objects that have "
                f"'{twice[0]}'; pass one HeteroData object that holds the nodes of both"
            )
        self.hold(held, found)

    def hold(self, held: HeldObject, tensors: Mapping[str, Any]) -> None:
        """Take an object as an argument whose tensors, of any shape, were taken out by name."""
        self.objects[held.argument] = held
        self.tensors |= tensors
        self.levels |= held.levels
        self.keys |= held.keys
        self.joins |= held.joins

    def is_graph(self, name: str) -> bool:
        """Whether a tensor of the call is a graph, by its type, name or shape."""
        value: Any = self.tensors[name]
        if name in self.levels:
            return False
        if is_sparse_tensor(value) or isinstance(value, EdgeIndex):
            return True
        if value.layout is not torch.strided:
            return True
        argument = name.rpartition("/")[2].removesuffix("_dict")
        if isinstance(self.keys.get(name), str):
            return False
        named = argument in ("edge_index", "adj", "adj_t") or argument.endswith("edge_index")
        looks = not value.dtype.is_floating_point and value.dim() == 2 and value.shape[0] == 2
        return named or bool(looks)

    def take_held(self) -> None:
        """Take the graph that the model holds, as it is given none."""
        self.held = held_graphs(self.model)
        self.tensors |= self.held
        self.names = list(self.tensors)

    def with_held(self, more: Mapping[str, Tensor]) -> "BoundCall":
        """The same call with tensors, of any shape, that the model holds, by their paths in it."""
        made = self.on(self.model)
        made.held, made.tensors = {**self.held, **more}, {**self.tensors, **more}
        made.names = list(made.tensors)
        return made

    def leave(self, names: Iterable[str]) -> None:
        """Leave tensors of objects behind that the model does not read."""
        for name in names:
            held = next(h for h in self.objects.values() if name in h.places)
            held.leave(name, self.tensors.pop(name))
            for told in (self.levels, self.keys, self.joins):
                told.pop(name, None)
            self.unread.append(name)
        self.names = list(self.tensors)

    def refuse_untold(self, where: str, said: Collection[str], counts: Collection[int]) -> None:
        """Refuse arguments and fields that may have a row for each node, or for each edge.

        Args:
            where: How the error begins.
            said: What is known.
            counts: The numbers of nodes and edges.

        Raises:
            InvalidDeltaError: If there is one.
        """
        for name, level in self.levels.items():
            if not level and name not in said:
                raise InvalidDeltaError(
                    f"{where}: there are as many edges as nodes ({len(self.tensors[name])}), so "
                    f"'{name}' may be data of either; say which: to_incremental(model, "
                    f"roles={{{name!r}: 'node'}}) or to_incremental(model, "
                    f"roles={{{name!r}: 'edge'}})"
                )
        refuse_constants(self.constants.items(), counts, {*said, *self.fixed})

    def on(self, model: nn.Module) -> "BoundCall":
        """The same call of another model, such as a copy."""
        made = BoundCall.__new__(BoundCall)
        made.__dict__ = {**self.__dict__, "_modules": {"model": model}}
        return made

    def asking(self, asked: Iterable[Asked]) -> "BoundCall":
        """The same call with pairs in the place of arguments with ids."""
        made, groups = self.on(self.model), list(asked)
        made.asked = {**self.asked, **{a.name: a for a in groups}}
        made.tensors, taken = dict(self.tensors), {a.names[0]: a for a in groups}
        made.names = []
        for name in self.names:
            if name in taken:
                made.names.append(taken[name].name)
                made.tensors[taken[name].name] = taken[name].pairs(self.tensors)
            own = next((a for a in groups if name in a.names), None)
            if own is None or own.is_table:
                made.names.append(name)
                held = made.tensors[name]
                made.tensors[name] = held if own is None else own.rows(held)
                continue
            del made.tensors[name]
        return made

    def forward(self, *tensors: Any) -> Any:
        """Call the model with `tensors` in the order of `names`."""
        given = dict(zip(self.names, tensors, strict=True))
        handed = given if self.returned else dict(given)
        for name, asked in self.asked.items():
            given |= asked.handed(given.pop(name), given)
        arguments = dict(self.constants)
        for key, held in self.objects.items():
            arguments[key] = held.filled(given)
            if self.takes_dense:
                vars(arguments[key])["validate"] = _is_valid
        for key, names in self.packed.items():
            parts = {k: given.pop(name) if name is not None else None for k, name in names.items()}
            pair = list(names) == [0, 1]
            arguments[key] = tuple(parts.values()) if pair else parts
        if not self.takes_dense:
            for name, layout in self.sparse.items():
                given[name] = given[name].to_sparse(layout=layout)
        own = {path: given.pop(path) for path in self.held}
        arguments.update(given)
        for name in self.beside:
            del arguments[name]
        if self.counted:
            arguments["num_nodes"] = tensors[self.names.index(self.counted)].shape[0]
        for key, (kind, entries) in self.lists.items():
            arguments[key] = kind(arguments.pop(entry) for entry in entries)
        with holding(self.model, own):
            result = self.model(*[arguments.pop(name) for name in self.positional], **arguments)
        return self._without_objects(result, handed)

    def _without_objects(self, result: Any, handed: Mapping[str, Any]) -> Any:
        """What a model returns, with a dict of its tensors in the place of each object.

        The first run says what these are: it is one on tensors that hold values.
        """
        if not self.returned:
            plain = [part for held in self.objects.values() for part in held.plain]
            kept = objects_in(result, lambda data: ReturnedObject.of(data, handed, plain))
            self.returned.append(kept)
        return with_objects(result, self.returned[0], lambda held, value: held.tensors(value))

    def handed_out(self, out: Any, inputs: Callable[[], Mapping[str, Any]]) -> Any:
        """What the model returns, objects included.

        Args:
            out: The same with a dict of its tensors in the place of each object.
            inputs: Gives the current tensors of the call by name.
        """
        kept = self.returned[0] if self.returned else None
        return with_objects(out, kept, lambda held, made: held.filled(made, inputs))


def _is_valid(raise_on_error: bool = True) -> bool:
    """What `data.validate()` says of a valid object."""
    return True


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


def _is_sparse_rows(name: str, value: Any, role: Role | None) -> bool:
    """Whether an argument is node features as a sparse tensor, `[num_nodes, channels]`."""
    if not isinstance(value, Tensor) or value.layout not in _SPARSE:
        return False
    return name == "x" if role is None else role.what == "node"


def bind(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    roles: Mapping[str, Any] | None = None,
) -> BoundCall:
    """The call site of `model(*args, **kwargs)`, of which the user says some roles.

    Raises:
        InvalidDeltaError: If it cannot be called like this.
        UnsupportedModelError: If it has no `forward`.
    """
    refuse_without_forward(model)
    takes = inspect.signature(model.forward).parameters
    beside = {n: kwargs[n] for n in BESIDE if n in kwargs and n not in takes}
    kwargs = {n: value for n, value in kwargs.items() if n not in beside}
    args, kwargs = spread(model, args, kwargs, (*USUAL, *_DICTS))
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidDeltaError(_not_called(model, args, kwargs, error)) from error
    if takes_dicts(model):
        _refuse_plain(model, bound.arguments)
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
    told = said_of(model, roles)
    fixed = [name for name, role in told.items() if role.what in ("constant", "value")]
    sparse = {n: v.layout for n, v in arguments.items() if _is_sparse_rows(n, v, told.get(n))}
    arguments |= {n: arguments[n].to_dense() for n in sparse}
    site = BoundCall(model, arguments | beside, positional, fixed, beside)
    site.sparse = sparse
    graphs = [name for name, role in told.items() if role.what == "graph"]
    if not graphs and not any(map(site.is_graph, site.names)):
        site.take_held()
    if any(field not in ALWAYS for h in site.objects.values() for _, field in h.places.values()):
        read = _read(site, arguments)
        site.leave([name for held in site.objects.values() for name in held.left(read)])
    return site


def _not_called(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError
) -> str:
    """What to say of arguments that `forward` does not take."""
    named = {**{f"argument {i + 1}": a for i, a in enumerate(args)}, **kwargs}
    got = ", ".join(f"{n}: {type(v).__name__}" for n, v in named.items()) or "none"
    takes = ", ".join(
        p.name if p.default is p.empty else f"{p.name}=..."
        for p in inspect.signature(model.forward).parameters.values()
    )
    return (
        f"{type(model).__name__} cannot be called like this: {error} (got {got}); pass what its "
        f"forward takes: inc({takes})"
    )


def _refuse_plain(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """See that a model of `to_hetero` is called with dicts by type."""
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            types = types_taken(model).get(name, [])
            raise InvalidDeltaError(
                f"{type(model).__name__} was made by to_hetero, so '{name}' is a dict by type (got "
                f"a tensor {list(value.shape)}); pass "
                f"{{{', '.join(f'{t!r}: ...' for t in types)}}}, or a HeteroData object alone"
            )


def _read(site: BoundCall, arguments: Mapping[str, Any]) -> Collection[str]:
    """The tensors of a call that its model reads; labels and masks it often does not.

    That is found by running it, on a few nodes where it does run on these.
    """
    try:
        few = {k: part_of(v) if isinstance(v, BaseData) else v for k, v in arguments.items()}
        return names_read(BoundCall(site.model, few, site.positional, site.fixed))
    except Exception:  # PyG cannot take a part of it, or the model does not run on that
        try:
            return names_read(site)
        except Exception:  # a user's model may raise anything, and will do so again
            return site.names


def dtype_of(model: nn.Module, rows: Iterable[Tensor]) -> torch.dtype:
    """The dtype a model counts in: that of most of its parameters, or else of node rows `[n, ...]`.

    A dtype of half precision counts only where no parameter is wider: a degree that is kept in it
    is none beyond 2,048, and rows or tables of it may be there to save memory alone.
    """
    sizes: Counter[torch.dtype] = Counter()
    for p in model.parameters():
        if p.dtype.is_floating_point:
            sizes[p.dtype] += 0 if is_lazy(p) else p.numel()
    if sizes:
        return max(sizes, key=lambda dtype: (dtype not in _HALF, sizes[dtype]))
    floats = (t.dtype for t in rows if t.dtype.is_floating_point)
    return next(floats, torch.get_default_dtype())


def device_of(model: nn.Module, rows: Iterable[Tensor]) -> torch.device:
    """Where the graph of a call belongs: to its node rows, `[n, ...]`, or else the parameters."""
    return next((t.device for t in chain(rows, model.parameters())), torch.device("cpu"))

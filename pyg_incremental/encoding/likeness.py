"""Whether two objects are alike, in two processes too: a digest of all that they hold.

It covers tensors and arrays byte by byte, containers, functions (their code, defaults, closures,
and the globals that they read), classes (their methods and attributes) and instances (their class
and attributes). Where an object lies says nothing, nor does the order of sets. Of installed
libraries the code counts, but not their globals: who keeps a digest names their versions beside it.

What is held in another way, such as the state of a generator of random numbers on a device, cannot
be compared, and is refused.
"""

import dis
import functools
import hashlib
import inspect
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import PurePath
from threading import Lock, RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LIBRARIES = {
    *sys.stdlib_module_names, "torch", "torch_geometric", "torch_sparse", "torch_scatter",
    "torch_cluster", "torch_spline_conv", "pyg_lib", "numpy", "scipy", "numba", "pyg_incremental",
}  # fmt: skip
_ENTRIES = {
    "forward", "message", "message_and_aggregate", "update", "aggregate", "edge_update",
    "propagate", "edge_updater", "__call__",
}  # fmt: skip
"""The methods with which a pass begins."""
_BEFORE = {"__init__", "__new__", "__init_subclass__", "__setstate__", "__reduce__", "__del__"}
"""Methods that have run when an object is there, or say nothing of what it computes."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis), torch.dtype,
          torch.device, torch.layout, torch.memory_format, torch.Size, np.dtype)  # fmt: skip
_TAKES = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR
_BUILT_IN = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, np.ufunc,
)  # fmt: skip
_NAMED = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_LOCKS = (type(Lock()), type(RLock()))
_NOTES = {"torch_geometric.inspector.Inspector"}
"""What holds only notes on code, of which it makes more when it is asked."""
_COUNTED = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")
"""Where modules keep functions under numbers that say only how many there were before."""
_MACHINERY = {"training", "_non_persistent_buffers_set", "_is_full_backward_hook"}


class CannotTellError(Exception):
    """An object holds what cannot be compared; the message says what, and where."""


@functools.lru_cache(1 << 16)
def _digest_of_code(code: types.CodeType) -> bytes:
    """SHA-256 over what a function does; where it stands says nothing."""
    digests = Digests()
    names = code.co_names, code.co_freevars, code.co_cellvars
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    takes = code.co_flags & _TAKES, code.co_varnames[: sum(arguments)]
    exceptions = getattr(code, "co_exceptiontable", b"")  # since Python 3.11
    said = map(digests.made, (names, arguments, takes, *code.co_consts))
    return _sha(code.co_code, exceptions, *said)


def names_called(model: nn.Module) -> set[str]:
    """The names that a pass of a model may read, of methods among others: it begins at `forward`.

    What only training runs (`training_step`, say) is not among them.
    """
    methods: dict[str, list[types.CodeType]] = {}
    for kind in {k for m in model.modules() for k in type(m).__mro__ if not _is_library(k)}:
        for name, held in vars(kind).items():
            methods.setdefault(name, []).extend(f.__code__ for f in _functions_in(held))
    found: set[str] = set()
    left = {n for n in methods if n in _ENTRIES or (n.startswith("__") and n not in _BEFORE)}
    while left:
        found |= left
        codes = (code for name in left for code in methods.get(name, ()))
        left = {n for code in codes for c in _codes(code) for n in c.co_names} - found
    return found


class Digests:
    """Digests of objects, each made once.

    Args:
        names: Names under which methods of modules are called, besides `forward` and its like.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {*_ENTRIES, *names}
        self._known: dict[int, bytes] = {}
        self._open: dict[int, int] = {}
        self._where: list[str] = []
        self._held: list[Any] = []  # an object that is gone might lend another its address

    def of(self, value: Any) -> str:
        """SHA-256 over an object and all that it holds; tensors may have any shape.

        Raises:
            CannotTellError: If it holds what cannot be compared.
        """
        self._open.clear()
        self._where.clear()
        try:
            return self.made(value).hex()
        except RecursionError as error:
            raise CannotTellError("it is nested too deeply") from error

    def made(self, value: Any) -> bytes:
        """The digest of an object that others may hold, in bytes."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return _sha(type(value).__name__, repr(value))
        at = id(value)
        if at in self._known:
            return self._known[at]
        if at in self._open:  # it holds itself
            return _sha("again", str(len(self._open) - self._open[at]))
        self._open[at] = len(self._open)
        self._held.append(value)
        try:
            made = _sha(*self._parts(value))
        finally:
            del self._open[at]
        self._known[at] = made
        return made

    def _in(self, name: str, value: Any) -> bytes:
        """The digest of what an object holds under a name, which an error tells."""
        self._where.append(name)
        made = self.made(value)
        self._where.pop()
        return made

    def _items(self, held: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        for name, value in held:
            yield self.made(name)
            yield self._in(str(name), value)

    def _parts(self, value: Any) -> Iterator[Any]:
        """What tells an object from others: texts and digests."""
        kind = type(value)
        yield kind.__qualname__
        if isinstance(value, Tensor):
            yield from self._tensor(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            yield from self._array(np.asarray(value))
        elif isinstance(value, (type, types.ModuleType)):
            yield from self._class(value) if isinstance(value, type) else (value.__name__,)
        elif isinstance(value, types.CodeType):
            yield _digest_of_code(value)
        elif isinstance(value, Enum):
            yield from (kind.__qualname__, value.name)
        elif isinstance(value, (*_NAMED, PurePath)) or kind.__module__ == "typing":
            yield str(value)
        elif isinstance(value, _LOCKS) or f"{kind.__module__}.{kind.__qualname__}" in _NOTES:
            return
        elif isinstance(value, _BUILT_IN):
            yield getattr(value, "__qualname__", value.__name__)
            owner = getattr(value, "__self__", None)
            yield self.made(None if isinstance(owner, types.ModuleType) else owner)
        elif isinstance(value, torch.jit.ScriptFunction):
            yield str(value.inlined_graph)
        elif (functions := _functions_of(value)) is not None:
            yield from self._callable(value, functions)
        elif isinstance(value, weakref.ref):
            yield self.made(value())
        else:
            yield from self._instance(value)

    def _tensor(self, value: Tensor) -> Iterator[Any]:
        plain = getattr(type(value), "as_tensor", None)
        if plain is not None:  # a list of edges of PyG
            value = plain(value)
        with torch._C.DisableTorchFunctionSubclass():  # it may refuse to be read as a tensor
            value = value.detach().as_subclass(Tensor)
        yield f"{value.dtype}{list(value.shape)}{value.layout}"
        if value.layout is torch.sparse_coo:
            whole = value.detach().coalesce()
            parts = [whole.indices(), whole.values()]
        elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [value.crow_indices(), value.col_indices(), value.values()]
        elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = [value.ccol_indices(), value.row_indices(), value.values()]
        else:
            if value.is_meta or value.is_quantized or value.layout is not torch.strided:
                raise self._cannot(value)
            yield digest_of_rows(value)
            return
        for part in parts:
            yield digest_of_rows(part)

    def _array(self, value: Any) -> Iterator[Any]:
        yield f"{value.dtype}{list(value.shape)}"
        if value.dtype.hasobject:
            yield self.made(value.tolist())
        else:
            yield hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()

    def _callable(self, value: Any, functions: list[Any]) -> Iterator[Any]:
        for function in functions:
            if not isinstance(function, types.FunctionType):
                yield self.made(function)
                continue
            yield self.made(function.__code__)
            yield self.made((function.__defaults__, function.__kwdefaults__))
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            yield from self._items((name, _content(cell)) for name, cell in cells)
            if not _is_library(function):
                yield from self._items(_globals_of(function))
        if isinstance(value, types.MethodType):
            yield self.made(value.__self__)
        elif isinstance(value, functools.partial):
            yield self.made((value.args, value.keywords))

    def _class(self, value: type) -> Iterator[Any]:
        """Of classes of libraries the code; of others what they hold, too."""
        yield value.__qualname__
        for kind in value.__mro__:
            if kind in (object, nn.Module):
                return
            own, is_module = not _is_library(kind), issubclass(kind, nn.Module)
            for name, held in sorted(vars(kind).items()):
                functions = _functions_in(held)
                if name in _BEFORE or (name.startswith("__") and not functions):
                    continue
                yield name
                if own and functions and (not is_module or name in self._names):
                    yield self._in(f"{kind.__qualname__}.{name}", held)
                elif functions:
                    for function in functions:
                        yield self.made(function.__code__)
                elif type(held) in _PLAIN or (own and not name.startswith(("_abc_", "__"))):
                    yield self._in(f"{kind.__qualname__}.{name}", held)

    def _instance(self, value: Any) -> Iterator[Any]:
        kind = type(value)
        if isinstance(value, torch.jit.ScriptModule):
            raise self._cannot(value)
        yield self.made(kind)
        if isinstance(value, (dict, types.MappingProxyType)):
            yield from self._items(value.items())
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                yield self._in(str(i), item)
        elif isinstance(value, (set, frozenset)):
            yield from sorted(map(self.made, value))
        elif isinstance(value, (str, bytes, int, float, complex)):
            yield repr(value)
        elif not _is_python(kind):
            yield from self._reduced(value)
            return
        yield from self._items(attributes_of(value))

    def _reduced(self, value: Any) -> Iterator[Any]:
        """What an object that is not written in Python says of itself to be copied."""
        try:
            made = value.__reduce_ex__(4)
        except MemoryError:
            raise
        except Exception as error:  # it may refuse in any way
            raise self._cannot(value) from error
        if isinstance(made, str):
            yield made
            return
        function, arguments, *state = made
        yield self.made(function)
        yield self.made(arguments)
        for part in state:
            yield self.made(list(part) if isinstance(part, Iterator) else part)

    def _cannot(self, value: Any) -> CannotTellError:
        at = ".".join(self._where) or "it"
        return CannotTellError(f"'{at}' is a {type(value).__module__}.{type(value).__qualname__}")


def digest_of_rows(rows: Tensor) -> bytes:
    """SHA-256 over the bytes of a tensor of any shape, as it is read."""
    flat = rows.detach().resolve_conj().resolve_neg().as_subclass(Tensor).cpu()
    flat = flat.contiguous().reshape(-1)
    if not flat.numel():
        return b""
    line = flat.as_strided((flat.numel(),), (1,))  # of one the step may be zero
    return hashlib.sha256(line.view(torch.uint8).numpy().data).digest()


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an instance by name, in the order of their names.

    Of a module the numbers of its hooks are left out, and whether it is in training mode; of any
    object what its class names as `NOT_COMPARED`.
    """
    held = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                held[name] = getattr(value, name)
    for name in getattr(type(value), "NOT_COMPARED", ()):
        held.pop(name, None)
    if isinstance(value, nn.Module):
        for name in _MACHINERY & held.keys():
            del held[name]
        for name, hooks in held.items():
            if name.endswith(_COUNTED) and isinstance(hooks, dict):
                held[name] = list(hooks.values())
    return sorted(held.items())


def _sha(*parts: Any) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.digest()


def _is_library(value: Any) -> bool:
    """Whether a class or function is one of an installed library."""
    return str(getattr(value, "__module__", None)).partition(".")[0] in _LIBRARIES


def _is_python(kind: type) -> bool:
    """Whether all that an instance of a class holds are its attributes."""
    known = (object, dict, list, tuple, set, frozenset, str, bytes, int, float, complex)
    return all(k in known or k.__flags__ & (1 << 9) for k in kind.__mro__)


def _functions_of(value: Any) -> list[Any] | None:
    """The functions of which a callable or descriptor is made; None if it is something else."""
    if isinstance(value, types.FunctionType):
        return [value]
    if isinstance(value, (types.MethodType, staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, property):
        return [f for f in (value.fget, value.fset, value.fdel) if f is not None]
    if isinstance(value, functools.partial):
        return [value.func]
    if isinstance(value, functools.cached_property):
        return [value.func]
    for name in ("__wrapped__", "py_func"):  # of a cache of the standard library, of Numba
        if isinstance(inner := getattr(value, name, None), types.FunctionType):
            return [inner]
    return None


def _functions_in(held: Any) -> list[types.FunctionType]:
    """The Python functions that stand in a class under a name."""
    return [f for f in _functions_of(held) or () if isinstance(f, types.FunctionType)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those that stand in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.lru_cache(4096)
def _names_read(code: types.CodeType) -> tuple[str, ...]:
    """The globals that a function reads."""
    read = (i.argval for c in _codes(code) for i in dis.get_instructions(c) if "GLOBAL" in i.opname)
    return tuple(dict.fromkeys(str(name) for name in read))


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function finds under the names of globals; of modules what it may read there."""
    attributes: set[str] = {n for c in _codes(function.__code__) for n in c.co_names}
    for name in _names_read(function.__code__):
        if name not in function.__globals__:
            continue  # one of the built-in ones
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, types.ModuleType) and not _is_library_module(value):
            for read in sorted(attributes & vars(value).keys()):
                yield f"{name}.{read}", vars(value)[read]


def _is_library_module(module: types.ModuleType) -> bool:
    return module.__name__.partition(".")[0] in _LIBRARIES


def _content(cell: Any) -> Any:
    """What a variable of an enclosing function holds; itself, if nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return types.CellType

"""A copy of a model to try things on, and what a call leaves behind in it.

The user's model is never called on a probe: whatever it keeps from call to call (a cached graph, a
counter, statistics of the first features that it sees) would stay in it.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import VGAE
from torch_geometric.nn.models.rev_gnn import InvertibleModule

from pyg_incremental.call.full_pass import CACHES, deep_copy

_NOTES = ("_use_segment_matmul_heuristic_output", "fuse")
"""Where convs of PyG note which of two ways is faster, or open to them; both give the same."""
_LAST = {VGAE: ("__mu__", "__logstd__")}
"""What models of PyG note for a loss, anew in each call and never to be read in the next."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_HOLDS = (list, tuple, set, frozenset, dict)
_DEPTH = 6
"""How deep attributes are looked into: containers in containers, objects in objects."""
KNOWN = ("torch", "torch_geometric", "builtins", "functools", "collections", "inspect", "jinja2")
"""Packages whose objects are taken as they are: they keep nothing from call to call."""


class ModelCopy:
    """A copy of a model that shares no memory with it.

    Args:
        model: The model.

    Attributes:
        model: The copy. Convs with `cached=True` have not been called yet, and reversible blocks
            leave the memory of what they are given alone, as they do when nothing is learned.

    Raises:
        Exception: Whatever a part of the model raises that cannot be copied.
    """

    def __init__(self, model: nn.Module) -> None:
        memo: dict[int, Any] = {}
        self.model = deep_copy(model, memo)
        self._memo = memo
        self._copies: dict[int, Tensor] = {}
        for m in self.model.modules():
            if isinstance(m, InvertibleModule):
                m.disable = True
            if getattr(m, "cached", False):
                for name in CACHES:
                    if hasattr(m, name):
                        setattr(m, name, None)

    def written(self) -> str:
        """Which tensor of the copy no longer holds what the model's does; empty if none.

        Some ways to write to a tensor leave no trace in it.
        """
        names = {id(t): name for name, t in self.model.state_dict(keep_vars=True).items()}
        for key, original in self.originals().items():
            if key in names and not is_lazy(original) and not _equal(self._copies[key], original):
                return f"what is in '{names[key]}'"
        return ""

    def originals(self) -> dict[int, Tensor]:
        """The tensors of the model by the ids of their copies."""
        held = self._memo.get(id(self._memo), [])  # where `deepcopy` keeps what it has copied
        pairs = [(self._memo[id(t)], t) for t in held if isinstance(t, Tensor)]
        self._copies = {id(copied): copied for copied, _ in pairs}
        return {id(copied): t for copied, t in pairs}


def _equal(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


class ModelCopies:
    """What a model holds now, to find out what a call has changed.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._alive: list[Any] = []  # so that no id is given away again
        self._met: set[int] = set()
        self._before = dict(self._read())

    def changed(self) -> str:
        """What is no longer as it was, in the words of an error message; empty if nothing."""
        now = dict(self._read())
        for place in [*now, *self._before]:
            if now.get(place) != self._before.get(place):
                return f"'{place[1]}' of {place[0]}"
        return ""

    def _read(self) -> Iterator[tuple[tuple[str, str], Any]]:
        self._met = set()
        for path, m in self._model.named_modules():
            where = f"'{path}' ({type(m).__name__})" if path else type(m).__name__
            ignored = notes_of(m)
            for name, value in vars(m).items():
                if name in ("_parameters", "_buffers"):
                    for key, tensor in value.items():
                        yield (where, key), self._seen(tensor, _DEPTH)
                elif name not in ignored:
                    yield (where, name), self._seen(value, _DEPTH)

    def _seen(self, value: Any, depth: int) -> Any:
        """Something that differs if a value was replaced, or written to."""
        if isinstance(value, _PLAIN):
            return type(value), value if value == value else "nan"
        self._alive.append(value)
        if isinstance(value, Tensor):
            return id(value), 0 if is_lazy(value) or value.is_inference() else value._version
        if not depth or id(value) in self._met or isinstance(value, (nn.Module, type)):
            return id(value)
        self._met.add(id(value))
        if isinstance(value, dict):
            return id(value), [
                (self._seen(k, depth - 1), self._seen(v, depth - 1)) for k, v in value.items()
            ]
        if isinstance(value, _HOLDS):
            return id(value), [self._seen(v, depth - 1) for v in value]
        if type(value).__module__.partition(".")[0] in KNOWN:
            return id(value)
        held = getattr(value, "__dict__", None)
        return id(value), None if held is None else self._seen(held, depth - 1)


def notes_of(module: nn.Module) -> tuple[str, ...]:
    """Attributes that a call of a module may change without any consequence for the next one."""
    cached = CACHES if getattr(module, "cached", False) else ()
    return (*_NOTES, *_LAST.get(type(module), ()), *cached)


def rng_state() -> bytes:
    """The state of the generator that a model draws from unless it brings its own."""
    return bytes(torch.get_rng_state().numpy())

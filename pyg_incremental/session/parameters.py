"""Noticing that a model is no longer the one whose results are stored, or computes otherwise."""

import hashlib
import re
from itertools import chain
from operator import attrgetter, getitem, is_, itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import Linear
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    MinAggregation,
    SumAggregation,
)

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.kernels.samples import KEYS, mixed
from pyg_incremental.session.held import Held, held_beside, tensor_of
from pyg_incremental.session.pieces import Pieces
from pyg_incremental.session.stepped import memory_of, tell_of_steps

SAMPLES = 8
"""So many words of each parameter are looked at before every update: a step of an optimizer changes
nearly all of them, and a look at all would take longer than a small update."""
_WORD = 4
_is_training = attrgetter("training")
_training_of = itemgetter("training")
_version = attrgetter("_version")
_address = Tensor.data_ptr
_any_autocast = torch._C._is_any_autocast_enabled  # the public question names one device at a time
_WITHOUT_MODE = {
    nn.Identity, nn.Linear, nn.ModuleDict, nn.ModuleList, nn.ReLU, nn.Sequential,
    Linear, MaxAggregation, MeanAggregation, MinAggregation, SumAggregation,
}  # fmt: skip
"""Modules that compute the same in training mode: whoever puts a model into it puts others, too."""
_CONTAINERS = (
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict,
)  # fmt: skip
"""What comes into one of these is mostly used: its owner goes through all that it holds."""
_OTHER_HOOKS = ("backward", "state_dict", "kwargs", "always_called")


class ParameterWatch:
    """Remembers all that a model computes with: by identity, version, memory and content.

    That is parameters, buffers, and tensors and arrays in attributes, lists and dicts. Writes that
    PyTorch counts, steps of optimizers, new memory (`.to()`), replaced submodules and hooks of all
    kinds are noticed at once. What is written past all of that (`.data`, NumPy, other processes)
    shows at once where it hits a sample of words or memory of which all is looked at; else within
    as many looks as there are turns, and at the latest where all bytes are compared (`changed`,
    `reason_exactly`). Setting an attribute such as `conv.negative_slope` leaves no trace that could
    be noticed at this price; `verify()` shows it.

    Args:
        model: The model.
        keeps: Whether it keeps something from call to call: then only parameters and buffers are
            watched.

    Attributes:
        memory: Where the memory of its tensors begins.
        is_stepped: Whether an optimizer has written to any of it since all of it was looked at.
    """

    def __init__(self, model: nn.Module, keeps: bool = False) -> None:
        self._modules = list(model.modules())
        with_mode = [m for m in self._modules if type(m) not in _WITHOUT_MODE]
        self._states = [vars(m) for m in with_mode if "training" in vars(m)]
        self._scripted = [m for m in with_mode if "training" not in vars(m)]
        held = [
            (home, name, t, f"{path}.{name}" if path else name)
            for path, m in model.named_modules()
            for home in (m._parameters, m._buffers)
            for name, t in home.items()
            if t is not None and not is_lazy(t)
        ]
        others: list[Any] = [
            (home, name, thing, name)
            for m in self._modules
            for home in (m._modules, m._parameters, m._buffers)
            for name, thing in home.items()
            if home is m._modules or thing is None  # what may come, such as a bias
        ]
        self._containers = [
            (home, list(home))
            for m in self._modules
            if isinstance(m, _CONTAINERS)
            for home in (m._modules, m._parameters)
        ]
        # TorchScript makes a new object whenever it is asked for a tensor or a module.
        self._found = [entry for entry in [*held, *others] if isinstance(entry[0], dict)]
        known = [*self._found, *self._containers]
        homes: dict[int, dict[str, Any]] = {id(home): home for home, *_ in known}
        self._homes = list(homes.values())
        self._things = self._at_home()
        beside = [] if keeps else held_beside(model)
        self._beside = [list(column) for column in zip(*beside, strict=True)][:3]
        in_lists = {id(h.home): h.home for h in beside if isinstance(h.home, list)}
        self._lists = [*in_lists.values()]
        self._lengths = [*map(len, self._lists)]
        self._handles = RemovableHandle.next_id
        self._hooks = _hooks_of(self._modules)
        self._known_hooks = list(map(list, self._hooks)) if any(self._hooks) else []
        self._remember([(t, name) for _, _, t, name in held], beside)

    def _remember(self, held: list[tuple[Tensor, str]], beside: list[Held]) -> None:
        """Take down versions, memory and content of parameters and buffers, and what is beside."""
        plain = [(t, h.name) for h in beside if (t := tensor_of(h.value)) is not None]
        every = [*held, *plain]
        self._tensors = [t for t, _ in every if t.layout is torch.strided]
        self._names = {id(t): name for t, name in every}
        self._counted = [t for t, _ in every if not t.is_inference()]  # others count nothing
        self._versions, self._memory = self._read()
        self._words = _addresses(self._tensors)
        self._far = [_sampled(t) for t in self._tensors if not t.is_cpu and not t.is_meta]
        self._far_sample = self._read_far()
        arrays = [(h.value, h.name) for h in beside if isinstance(h.value, np.ndarray)]
        self._all: list[tuple[Any, str]] = [
            *((t, self._names[id(t)]) for t in self._tensors),
            *arrays,
        ]
        self._pieces = pieces = Pieces([thing for thing, _ in self._all])
        self._table, self._always = pieces.table, pieces.always
        self._turns = pieces.known(self._words)
        self._turn, self._count = 0, len(self._turns)
        self._sums = [pieces.sum_of(i) for i in range(len(self._all))]
        self.memory = frozenset(map(memory_of, self._tensors))
        self.is_stepped = False
        tell_of_steps(self)

    def _read(self) -> tuple[list[int], list[int]]:
        return list(map(_version, self._counted)), list(map(_address, self._tensors))

    def _read_far(self) -> list[Tensor]:
        """The sampled words of tensors that are not in the memory of this process."""
        return [t.index_select(0, at) for t, at in self._far]

    def _at_home(self) -> list[Any]:
        """All that stands where parameters, buffers and submodules are kept."""
        return [*chain.from_iterable(map(dict.values, self._homes))]

    def _replaced(self) -> str:
        """What has become of something that there was, or an empty string."""
        for home, name, thing, _ in self._found:
            if home.get(name) is not thing:
                return f"'{name}' was replaced"
        for home, names in self._containers:
            if (now := list(home)) != names:
                return f"a container that held {names} holds {now}"
        self._things = self._at_home()  # something has come that nobody knew
        return ""

    def _is_beside_as_it_was(self) -> bool:
        """Whether attributes, lists and dicts still hold the tensors and arrays that they held."""
        homes, keys, values = self._beside
        try:
            same = all(map(is_, map(getitem, homes, keys), values))
        except (KeyError, IndexError):
            return False
        return same and [*map(len, self._lists)] == self._lengths

    def reason(self) -> str:
        """What has changed, or an empty string."""
        scripted = self._scripted and any(map(_is_training, self._scripted))
        if scripted or True in map(_training_of, self._states):
            kind = type(next(filter(_is_training, self._modules))).__name__
            return f"the model is in training mode (at {kind}); call model.eval()"
        now = self._at_home()
        is_same = len(now) == len(self._things) and all(map(is_, now, self._things))
        if not is_same and (replaced := self._replaced()):
            return replaced
        if self._beside and not self._is_beside_as_it_was():
            return "a tensor or array in an attribute, list or dict of the model was replaced"
        # Whoever registers a hook, anywhere in the process, is given a handle with the next number.
        if (self._known_hooks or self._handles != RemovableHandle.next_id) and self._hooks_differ():
            return "a forward hook was added or removed"
        versions, memory = [*map(_version, self._counted)], [*map(_address, self._tensors)]
        if versions != self._versions:
            at = next(i for i, v in enumerate(versions) if v != self._versions[i])
            return f"{self._called(self._counted[at])} was changed in place"
        if memory != self._memory:
            at = next(i for i, p in enumerate(memory) if p != self._memory[i])
            return f"{self._called(self._tensors[at])} was moved to another dtype or device"
        self._turn = turn = (self._turn + 1) % self._count
        first, last, known = self._turns[turn]
        seen = mixed(self._words, self._table, self._always, first, last, KEYS)
        if seen != known or self.is_stepped or (self._far and self._far_differ()):
            return self._looked_at_all(bool(seen != known))
        return ""

    def _looked_at_all(self, differs: bool) -> str:
        """The same after a glance or an optimizer has given cause to look at everything."""
        self.is_stepped = False
        found = self.reason_exactly()
        if found:
            self.is_stepped = True  # until somebody calls refresh
        return found or ("a parameter was changed in place" if differs else "")

    def reason_exactly(self) -> str:
        """The same, after a look at every byte, and at all hooks."""
        if self._hooks_differ():
            return "a forward hook was added or removed"
        for i, (thing, name) in enumerate(self._all):
            if self._pieces.sum_of(i) != self._sums[i]:
                shape = list(thing.shape)
                return f"'{name}' of shape {shape} was changed in place, past PyTorch's counts"
        return ""

    def changed(self) -> list[str]:
        """Names of all parameters, buffers, other tensors and arrays that are not as they were."""
        names = [name for home, key, t, name in self._found if home.get(key) is not t]
        versions, memory = self._read()
        for things, then, now in (
            (self._counted, self._versions, versions), (self._tensors, self._memory, memory)
        ):  # fmt: skip
            names += [
                self._names[id(t)] for t, a, b in zip(things, then, now, strict=True) if a != b
            ]
        if memory == self._memory:  # else what was there may be gone
            sums = self._sums
            names += [n for i, (_, n) in enumerate(self._all) if self._pieces.sum_of(i) != sums[i]]
        if self._beside and not self._is_beside_as_it_was():
            names.append("attributes, lists or dicts of the model")
        return list(dict.fromkeys(names))

    @property
    def found_late(self) -> str:
        """What is not noticed at once that is written past PyTorch's counts; empty if all is."""
        said = []
        if self._count > 1:
            said.append(
                f"of {self._pieces.bytes:,} bytes of parameters and buffers, writes past PyTorch's "
                f"counts (.data, NumPy, other processes) are found within {self._count:,} looks"
            )
        if self._pieces.elsewhere:
            said.append(
                f"of {self._pieces.elsewhere} tensors on another device or in no line of memory "
                f"{SAMPLES} words are looked at"
            )
        return "; ".join([*said, "changed_parameters() compares all"]) if said else ""

    def _hooks_differ(self) -> bool:
        handles, now = RemovableHandle.next_id, list(map(list, self._hooks))
        if now == (self._known_hooks or [[]] * len(now)):
            self._handles = handles
            return False
        return True

    def _far_differ(self) -> bool:
        pairs = zip(self._read_far(), self._far_sample, strict=True)
        return not all(_same_bytes(a, b) for a, b in pairs)

    def _called(self, tensor: Tensor) -> str:
        return f"'{self._names[id(tensor)]}' of shape {list(tensor.shape)}"


def _hooks_of(modules: list[nn.Module]) -> list[dict[int, Any]]:
    """Where modules keep the hooks that a forward pass calls, PyG's own kinds included."""
    own = [
        hooks
        for m in modules
        for name, hooks in vars(m).items()
        if name.endswith("_hooks") and isinstance(hooks, dict)
        if not any(kind in name for kind in _OTHER_HOOKS)
    ]
    return [*own, global_hooks._global_forward_hooks, global_hooks._global_forward_pre_hooks]


def _addresses(tensors: list[Tensor]) -> NDArray[np.int64]:
    """Where to look, int64 `[k]`: some words of each tensor in memory, its first and last ones."""
    found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    for t in tensors:
        if not t.is_cpu or t.layout is not torch.strided or not t.numel():
            continue
        last = sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))
        begin, end = t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()
        begin += -begin % _WORD
        words = (end - begin) // _WORD
        if words > 0:
            at = np.unique(np.linspace(0, words - 1, min(words, SAMPLES)).astype(np.int64))
            found.append(begin + _WORD * at)
    return np.concatenate(found)


def _sampled(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor elsewhere as a line, and some places of it."""
    is_line = tensor.layout is torch.strided and tensor.is_contiguous()
    flat = tensor.detach().view(-1) if is_line else tensor.new_empty(0)
    count = flat.shape[0]
    at = torch.linspace(0, max(0, count - 1), min(count, SAMPLES), dtype=torch.float64)
    return flat, at.long().to(tensor.device)


def _same_bytes(a: Tensor, b: Tensor) -> bool:
    """Whether two lines of equal length are equal, bit by bit."""
    return not a.numel() or torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the structure of a model and the bytes of its parameters and buffers."""
    structure = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # where a function is says nothing
    digest = hashlib.sha256(structure.encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        if isinstance(value, Tensor):
            add_tensor(digest, value)
    return digest.hexdigest()


def add_tensor(digest: "hashlib._Hash", value: Tensor) -> None:
    """Feed shape, dtype and bytes of a tensor of any shape into a digest."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    digest.update(f"{list(value.shape)}{value.dtype}".encode())
    if flat.numel():
        digest.update(flat.view(torch.uint8).numpy().data)


def refuse_autocast() -> None:
    """See that `torch.autocast` is off.

    Raises:
        UnsupportedModelError: If it is on: rows would be of other dtypes than a full pass has.
    """
    if _any_autocast():
        raise UnsupportedModelError(
            "torch.autocast is on, so each operation would choose its own precision; leave it, or "
            "disable it around calls of the incremental model (torch.autocast(..., enabled=False))"
        )

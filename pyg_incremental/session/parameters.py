"""Noticing that a model is no longer the one whose results are stored, or computes otherwise."""

import hashlib
import re
import zlib
from itertools import chain
from operator import attrgetter, is_, itemgetter
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
from pyg_incremental.kernels.samples import mixed

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
    """Remembers all parameters and buffers of a model by identity, version, memory and content.

    In-place changes under autograd's eyes (`load_state_dict`, `copy_`, most optimizers) count up a
    tensor's version; `.to()` and `.double()` give it new memory. What is written past that (fused
    optimizers, `.data`) shows in a sample of the words that each tensor holds, or at the latest
    where all bytes are compared (`reason_exactly`). Replaced submodules and hooks of all kinds are
    noticed. Setting an attribute such as `conv.negative_slope` leaves no trace that could be
    noticed at this price; `verify()` shows it.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        with_mode = [m for m in self._modules if type(m) not in _WITHOUT_MODE]
        self._states = [vars(m) for m in with_mode if "training" in vars(m)]
        self._scripted = [m for m in with_mode if "training" not in vars(m)]
        held = [
            (home, name, t)
            for m in self._modules
            for home in (m._parameters, m._buffers)
            for name, t in home.items()
            if t is not None and not is_lazy(t)
        ]
        others: list[Any] = [
            (home, name, thing)
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
        self._tensors = [t for _, _, t in held]
        # TorchScript makes a new object whenever it is asked for a tensor or a module.
        self._found = [entry for entry in [*held, *others] if isinstance(entry[0], dict)]
        self._names = [name for _, name, _ in held]
        known = [*self._found, *self._containers]
        homes: dict[int, dict[str, Any]] = {id(home): home for home, *_ in known}
        self._homes = list(homes.values())
        self._things = self._at_home()
        self._handles = RemovableHandle.next_id
        self._hooks = _hooks_of(self._modules)
        self._known_hooks = list(map(list, self._hooks)) if any(self._hooks) else []
        self._counted = [t for t in self._tensors if not t.is_inference()]  # others count nothing
        self._versions, self._memory = self._read()
        self._words = _addresses(self._tensors)
        self._far = [_sampled(t) for t in self._tensors if not t.is_cpu and not t.is_meta]
        self._sample, self._far_sample = mixed(self._words), self._read_far()
        self._sums = list(map(_sum_of, self._tensors))

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
        for home, name, thing in self._found:
            if home.get(name) is not thing:
                return f"'{name}' was replaced"
        for home, names in self._containers:
            if (now := list(home)) != names:
                return f"a container that held {names} holds {now}"
        self._things = self._at_home()  # something has come that nobody knew
        return ""

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
        # Whoever registers a hook, anywhere in the process, is given a handle with the next number.
        if (self._known_hooks or self._handles != RemovableHandle.next_id) and self._hooks_differ():
            return "a forward hook was added or removed"
        versions, memory = [*map(_version, self._counted)], [*map(_address, self._tensors)]
        if versions != self._versions:
            at = next(i for i, v in enumerate(versions) if v != self._versions[i])
            return f"{self._called(self._counted[at])} was changed in place"
        if memory != self._memory:
            at = next(i for i, p in enumerate(memory) if p != self._memory[i])
            return f"'{self._names[at]}' was moved to another dtype or device"
        if mixed(self._words) != self._sample or (self._far and self._far_differ()):
            return self.reason_exactly() or "a parameter was changed in place"
        return ""

    def reason_exactly(self) -> str:
        """The same, after a look at every byte of the parameters, and at all hooks."""
        if self._hooks_differ():
            return "a forward hook was added or removed"
        for t, known in zip(self._tensors, self._sums, strict=True):
            if _sum_of(t) != known:
                return f"{self._called(t)} was changed in place, past PyTorch's count of changes"
        return ""

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
        at = next(i for i, t in enumerate(self._tensors) if t is tensor)
        return f"'{self._names[at]}' of shape {list(tensor.shape)}"


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


def _sum_of(tensor: Tensor) -> int:
    """A checksum of all bytes of a tensor."""
    if tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel():
        return 0
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy().data)


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

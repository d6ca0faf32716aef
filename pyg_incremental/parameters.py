"""Noticing that a model is no longer the one whose results are stored."""

import hashlib
import re
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_is_training = attrgetter("training")
_version = attrgetter("_version")
_address = Tensor.data_ptr


class ParameterWatch:
    """Remembers all parameters and buffers of a model by identity, version and memory.

    In-place changes under autograd's eyes (optimizers, `load_state_dict`, `copy_`) count up a
    tensor's version; `.to()` and `.double()` give it new memory. Writing through `.data` leaves no
    trace that could be noticed at this price, and neither does setting an attribute such as
    `conv.negative_slope`; `verify()` shows both. Replaced submodules and hooks are noticed.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        held = [
            (home, name, t)
            for m in self._modules
            for home in (m._parameters, m._buffers)
            for name, t in home.items()
            if t is not None and not is_lazy(t)
        ]
        children = [
            (m._modules, name, child) for m in self._modules for name, child in m._modules.items()
        ]
        self._tensors = [t for _, _, t in held]
        # TorchScript makes a new object whenever it is asked for a tensor or a module.
        found = [entry for entry in [*held, *children] if isinstance(entry[0], dict)]
        self._homes: list[dict[str, Any]] = [home for home, *_ in found]
        self._names = [name for _, name, _ in held]
        self._keys = [name for _, name, _ in found]
        self._things: list[Any] = [thing for *_, thing in found]
        self._hooks = [h for m in self._modules for h in (m._forward_hooks, m._forward_pre_hooks)]
        self._num_hooks = list(map(len, self._hooks)) if any(self._hooks) else []
        self._versions, self._memory = self._read()

    def _read(self) -> tuple[list[int], list[int]]:
        tensors = self._tensors
        return list(map(_version, tensors)), list(map(_address, tensors))

    def reason(self) -> str:
        """What has changed, or an empty string."""
        if any(map(_is_training, self._modules)):
            kind = type(next(filter(_is_training, self._modules))).__name__
            return f"the model is in training mode (at {kind}); call model.eval()"
        if not all(map(is_, map(dict.get, self._homes, self._keys), self._things)):
            now = map(dict.get, self._homes, self._keys)
            pairs = zip(self._keys, now, self._things, strict=True)
            return f"'{next(name for name, a, b in pairs if a is not b)}' was replaced"
        if (self._num_hooks or any(self._hooks)) and list(map(len, self._hooks)) != self._num_hooks:
            return "a forward hook was added or removed"
        versions, memory = self._read()
        if versions != self._versions:
            at = next(i for i, v in enumerate(versions) if v != self._versions[i])
            name, shape = self._names[at], list(self._tensors[at].shape)
            return f"'{name}' of shape {shape} was changed in place"
        if memory != self._memory:
            at = next(i for i, p in enumerate(memory) if p != self._memory[i])
            return f"'{self._names[at]}' was moved to another dtype or device"
        return ""


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
    """Feed shape, dtype and bytes of a tensor into a digest."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    digest.update(f"{list(value.shape)}{value.dtype}".encode())
    if flat.numel():
        digest.update(flat.view(torch.uint8).numpy().data)

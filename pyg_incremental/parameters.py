"""Noticing that a model is no longer the one whose results are stored."""

import hashlib

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


class ParameterWatch:
    """Remembers all parameters and buffers of a model by identity, version and memory.

    In-place changes under autograd's eyes (optimizers, `load_state_dict`, `copy_`) count up a
    tensor's version; `.to()` and `.double()` give it new memory. Writing through `.data` leaves no
    trace that could be noticed at this price; `verify()` shows it.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        self._seen = [
            (home, name, t, t._version, t.data_ptr())
            for m in self._modules
            for home in (m._parameters, m._buffers)
            for name, t in home.items()
            if t is not None and not is_lazy(t)
        ]
        self._count = self._total()

    def _total(self) -> int:
        return sum(len(m._parameters) + len(m._buffers) for m in self._modules)

    def reason(self) -> str:
        """What has changed, or an empty string."""
        for m in self._modules:
            if m.training:
                return f"the model is in training mode (at {type(m).__name__}); call model.eval()"
        for home, name, t, version, memory in self._seen:
            now = home.get(name)
            if now is not t:
                return f"'{name}' was replaced"
            if t._version != version:
                return f"'{name}' of shape {list(t.shape)} was changed in place"
            if t.data_ptr() != memory:
                return f"'{name}' was moved to another dtype or device"
        return ""


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the structure of a model and the bytes of its parameters and buffers."""
    digest = hashlib.sha256(repr(model).encode())
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

"""A device that no machine needs to have: its tensors hold others, and don't mix with these.

What fails on a GPU because a tensor lies on another device fails here, too: an operation on tensors
of both, an index on the device into a tensor that is not. Arithmetic is that of the CPU. It takes
the place that PyTorch keeps for private backends, once for a process, so importing it is for a
process of its own.
"""

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "standin"
aten = torch.ops.aten
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
MOVES = {aten.copy_.default, aten._to_copy.default}


class _Module:
    """What PyTorch asks of `torch.standin`."""

    def is_available(self):
        return True

    def is_initialized(self):
        return True

    def _is_in_bad_fork(self):
        return False

    def current_device(self):
        return 0

    def device_count(self):
        return 1

    def manual_seed_all(self, seed):
        pass


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())


class Away(torch.Tensor):
    """A tensor on the device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here):
        made = torch.Tensor._make_wrapper_subclass(
            cls, here.shape, strides=here.stride(), storage_offset=here.storage_offset(),
            dtype=here.dtype, device=torch.device(NAME, 0),
        )  # fmt: skip
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        _refuse_mixed(func, args, kwargs)
        device, stays = kwargs.get("device"), True
        if device is not None:
            stays, kwargs["device"] = torch.device(device).type == NAME, "cpu"
        out = func(*pytree.tree_map(held, args), **pytree.tree_map(held, kwargs))
        if not stays:
            return out
        given = {id(held(t)): t for t in pytree.tree_leaves((args, kwargs))}  # written in place
        return pytree.tree_map(lambda t: given[id(t)] if id(t) in given else _away(t), out)


def _refuse_mixed(func, args, kwargs):
    if func in MOVES:
        return
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if func in INDEXED:
        tensors = [args[0], *args[2:3]]  # an index may lie on the CPU, but nothing else
        if not isinstance(args[0], Away):
            raise RuntimeError("indices should be on the CPU, as the indexed tensor is")
    if any(t.dim() and not isinstance(t, Away) for t in tensors):
        raise RuntimeError(f"{func}: tensors are on at least two devices, {NAME} and cpu")


def held(value):
    """The tensor on the CPU that one on the device holds; anything else as it is."""
    return value.here if isinstance(value, Away) else value


def _away(value):
    return Away(value) if isinstance(value, torch.Tensor) else value


def _empty(size, dtype=None, **options):
    return Away(torch.empty(size, dtype=dtype or torch.get_default_dtype()))


def _empty_strided(size, stride, dtype=None, **options):
    return Away(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _copy_from(source, target, non_blocking=False):
    held(target).copy_(held(source))
    return target


_tolist = torch.Tensor.tolist
torch.Tensor.tolist = lambda tensor: _tolist(held(tensor))  # refused for subclasses
LIBRARY = torch.library.Library("aten", "IMPL")  # what it registers is there while it is
LIBRARY.impl("empty.memory_format", _empty, "PrivateUse1")
LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")

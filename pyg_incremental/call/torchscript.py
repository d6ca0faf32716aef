"""Models that TorchScript has made, of which nothing is left to follow."""

import inspect

import torch
from torch import nn

from pyg_incremental.errors import UnsupportedModelError


def refuse_torchscript(model: nn.Module) -> None:
    """See that a model can be asked for its arguments and its mode.

    Raises:
        UnsupportedModelError: If TorchScript has traced, frozen or loaded it, or frozen a part.
    """
    for path, m in model.named_modules():
        if not isinstance(m, torch.jit.ScriptModule):
            continue
        if hasattr(m, "training") and (path or _has_signature(m)):
            continue
        where = f"its part '{path}'" if path else type(m).__name__
        raise UnsupportedModelError(
            f"{where} was traced, frozen or loaded by "
            "TorchScript, which leaves neither names of arguments nor modes nor code to follow; "
            "pass the eager module, as it was before torch.jit.trace, script or freeze, with the "
            "same parameters (load_state_dict)"
        )


def _has_signature(model: nn.Module) -> bool:
    try:
        inspect.signature(model.forward)
    except ValueError:
        return False
    return True

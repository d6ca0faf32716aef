"""Precision that each operation would choose for itself."""

import torch

from pyg_incremental.errors import UnsupportedModelError


def refuse_autocast() -> None:
    """See that `torch.autocast` is off.

    Raises:
        UnsupportedModelError: If it is on: rows would be of other dtypes than a full pass has.
    """
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise UnsupportedModelError(
            "torch.autocast is on, so each operation would choose its own precision; leave it, or "
            "disable it around calls of the incremental model (torch.autocast(..., enabled=False))"
        )

"""What a file holds of a wrapped model, and whose it is."""

import os
from typing import Any

import torch
from torch import nn

from pyg_incremental import snapshot
from pyg_incremental.errors import StateFileError, UnsupportedModelError
from pyg_incremental.parameters import fingerprint
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    settings: Settings,
    session: Session,
    version: int,
    scrub_next: int,
) -> None:
    """Write the state of a session; see `IncrementalModel.save`.

    Args:
        path: The file.
        model: The model, of which only a fingerprint is written.
        settings: What the user chose.
        session: The state.
        version: How many updates have been applied.
        scrub_next: The row that is scrubbed next.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
    """
    constants = session.plan.site.constants
    if not snapshot.is_plain(constants):
        raise UnsupportedModelError(
            f"save: the model was called with {constants}, which cannot be saved without code"
        )
    snapshot.write(
        path,
        {
            "model": fingerprint(model),
            "version": version,
            "scrub_next": scrub_next,
            "accumulate_dtype": str(settings.accumulate_dtype),
            "store": settings.store,
            **session.state(exact=False),
        },
    )


def read(path: str | os.PathLike[str], model: nn.Module) -> dict[str, Any]:
    """Read a state of `model`.

    Raises:
        StateFileError: If the file is cut off or damaged, or belongs to another model.
    """
    content = snapshot.read(path)
    if content["model"] != fingerprint(model):
        raise StateFileError(
            f"'{path}' was saved for another model (or other parameters) than this "
            f"{type(model).__name__}; load the parameters that the model had, or call "
            "to_incremental and run a full pass"
        )
    return content


def sums_of(content: dict[str, Any]) -> torch.dtype | None:
    """The dtype in which the sums of a saved state are kept, if it was chosen."""
    known = {"torch.float32": torch.float32, "torch.float64": torch.float64}
    return known.get(content["accumulate_dtype"])

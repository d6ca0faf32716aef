"""What a file holds of a wrapped model, and whose it is."""

import os
from typing import Any, NamedTuple

import torch
from torch import nn

from pyg_incremental import snapshot
from pyg_incremental.errors import StateFileError, UnsupportedModelError
from pyg_incremental.parameters import fingerprint
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings


class Saved(NamedTuple):
    """A copy of a state.

    Attributes:
        constants: The arguments of the call that are no tensors.
        content: Everything else.
    """

    constants: dict[str, Any]
    content: dict[str, Any]


def copied(session: Session, scrub_next: int) -> Saved:
    """What is to be saved of a session; nothing of it changes with the session.

    Args:
        session: The state.
        scrub_next: The row that is scrubbed next.
    """
    committed = session.committed
    deltas = dict(committed.deltas)
    content = {"version": committed.version, "deltas": deltas, "scrub_next": scrub_next}
    return Saved(session.plan.site.constants, {**content, **session.state(exact=False)})


def save(path: str | os.PathLike[str], model: nn.Module, settings: Settings, saved: Saved) -> None:
    """Write a state; see `IncrementalModel.save`.

    Args:
        path: The file.
        model: The model, of which only a fingerprint is written.
        settings: What the user chose.
        saved: The state.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
    """
    if not snapshot.is_plain(saved.constants):
        raise UnsupportedModelError(
            f"save: the model was called with {saved.constants}, which cannot be saved without code"
        )
    snapshot.write(
        path,
        {
            "model": fingerprint(model),
            "accumulate_dtype": str(settings.accumulate_dtype),
            "store": settings.store,
            **saved.content,
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

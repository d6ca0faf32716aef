"""Checkpoints of a service: a file for each sampling worker, and one that says what they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.files import snapshot
from pyg_incremental.sampling.workers.messages import SampleQuery

MANIFEST = "checkpoint"
_FOLDER = "events-"
_FORM = {
    "query": SampleQuery, "files": [[str]], "position": object, "num_nodes": int, "next_id": int,
    "events": int, "seeds": Tensor, "serving": int,
}  # fmt: skip
_QUERY = {
    "num_neighbors": [int], "strategy": str, "seed": int, "data": {str: Tensor}, "x": Tensor,
    "memory": (int, type(None)), "owners": np.ndarray,
}  # fmt: skip


def new_folder(directory: Path, events: int) -> Path:
    """The folder for the files of a checkpoint after so many events."""
    folder = directory / f"{_FOLDER}{events}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(directory: Path, content: dict[str, Any]) -> None:
    """Make a checkpoint the one that counts, and remove those before.

    Raises:
        OSError: If it cannot be written; the one before counts then.
    """
    snapshot.write(directory / MANIFEST, content)
    kept = Path(content["files"][0][0]).parent
    for folder in directory.glob(f"{_FOLDER}*"):
        if folder != kept:
            shutil.rmtree(folder, ignore_errors=True)


def read(directory: Path) -> dict[str, Any]:
    """The checkpoint that counts.

    Raises:
        FileNotFoundError: If there is none.
        StateFileError: If it is damaged or something else.
    """
    content, checked = snapshot.read(directory / MANIFEST), Checked(str(directory / MANIFEST))
    checked.fits(content, _FORM, "")
    query, seeds = content["query"], content["seeds"]
    checked.fits(query._asdict(), _QUERY, "query")
    if seeds.dtype != torch.int64 or seeds.dim() != 1 or seeds.numel() > content["num_nodes"]:
        raise checked.refuse("the seeds are not those of so many nodes")
    if query.owners.dtype != np.int64 or query.owners.ndim != 1 or (query.owners < 0).any():
        raise checked.refuse("the owners are no parts of nodes")
    if not query.num_neighbors or min(query.num_neighbors) < 0 or (seeds < 0).any():
        raise checked.refuse("a number is negative")
    return content

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
from pyg_incremental.sampling.read import ends_of, is_edge_type
from pyg_incremental.sampling.workers.messages import SampleQuery
from pyg_incremental.sampling.workers.route import edges_by_type

MANIFEST = "checkpoint"
_FOLDER = "events-"
_FORM = {
    "query": SampleQuery, "files": [[str]], "position": object, "num_nodes": {object: int},
    "next_id": {object: int}, "events": int, "seeds": {object: Tensor}, "serving": int,
}  # fmt: skip
_QUERY = {
    "num_neighbors": {object: [int]}, "strategy": str, "seed": int,
    "data": {object: {str: Tensor}}, "x": {object: Tensor}, "memory": (int, type(None)),
    "owners": {object: np.ndarray}, "edges_by": {object: str},
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
    query = content["query"]
    checked.fits(query._asdict(), _QUERY, "query")
    _refuse_types(checked, content, query)
    for kind, seeds in content["seeds"].items():
        if seeds.dtype != torch.int64 or seeds.dim() != 1 or (seeds < 0).any():
            raise checked.refuse("the seeds are no numbers of subscriptions")
        if seeds.numel() > content["num_nodes"][kind]:
            raise checked.refuse("the seeds are not those of so many nodes")
    for parts in query.owners.values():
        if parts.dtype != np.int64 or parts.ndim != 1 or (parts < 0).any():
            raise checked.refuse("the owners are no parts of nodes")
    fanouts = list(query.num_neighbors.values())
    if len(set(map(len, fanouts))) != 1 or not fanouts[0] or min(map(min, fanouts)) < 0:
        raise checked.refuse("the numbers of neighbours are not those of hops")
    return content


def _refuse_types(checked: Checked, content: dict[str, Any], query: SampleQuery) -> None:
    """See that all that is by type is of the same ones."""
    kinds, names, records = list(query.num_neighbors), list(query.x), list(query.edges_by)
    try:
        edges_by_type(query.edges_by, records)
        routes = query.routes
    except ValueError as error:
        raise checked.refuse(str(error)) from error
    checked.same(kinds, list(routes), "edge types")
    checked.same(list(query.data), kinds, "edge types")
    checked.same(sorted(map(str, content["next_id"])), sorted(map(str, records)), "edge types")
    for found in (content["num_nodes"], content["seeds"]):
        checked.same(list(found), names, "node types")
    ok = (kinds == [None] and names == [None]) or all(map(is_edge_type, kinds))
    if not ok or {end for kind in kinds for end in ends_of(kind)} - {*names}:
        raise checked.refuse("the types of nodes are not those of edges")
    if set(query.owners) - {*names}:
        raise checked.refuse("there are owners of nodes that are not there")

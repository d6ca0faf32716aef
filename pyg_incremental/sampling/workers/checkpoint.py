"""Checkpoints of a service: a file for each sampling worker, and one that says what they are.

The files of each checkpoint are in a folder of their own. The one that says what they are, the
manifest, is written last and takes its place in one step; what it named before is removed after.
So one checkpoint is whole at any time.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.errors import StateFileError
from pyg_incremental.files import snapshot
from pyg_incremental.sampling.read import ends_of, is_edge_type
from pyg_incremental.sampling.workers.messages import SampleQuery
from pyg_incremental.sampling.workers.route import edges_by_type
from pyg_incremental.sampling.workers.supervisor import Supervisor

MANIFEST = "checkpoint"
_FOLDER = re.compile(r"generation-(\d+)-[0-9a-f]{8}$")
_FORM = {
    "query": SampleQuery, "files": [[str]], "position": object, "num_nodes": {object: int},
    "next_id": {object: int}, "events": int, "seeds": {object: Tensor}, "serving": int,
}  # fmt: skip
_QUERY = {
    "num_neighbors": {object: [int]}, "strategy": str, "seed": int,
    "data": {object: {str: Tensor}}, "x": {object: Tensor}, "memory": (int, type(None)),
    "owners": {object: np.ndarray}, "edges_by": {object: str},
}  # fmt: skip


def save(supervisor: Supervisor, content: dict[str, Any]) -> None:
    """Have all sampling workers write their files, and make that the checkpoint that counts.

    Args:
        supervisor: The workers.
        content: What else there is to say of it.

    Raises:
        OSError: If it cannot be written; the one before counts then, or this one.
    """
    with begun(supervisor.directory) as folder:
        files = supervisor.save(folder)
        seeds = {kind: torch.from_numpy(counts.copy()) for kind, counts in supervisor.seeds.items()}
        more = {"files": files, "seeds": seeds, "serving": len(supervisor.serving)}
        write(supervisor.directory, {**content, **more})
    supervisor.saved(files)
    sweep(supervisor.directory, files)


@contextmanager
def begun(directory: Path) -> Iterator[Path]:
    """A new folder for the files of a checkpoint, under a name that no other one ever has.

    A worker that was given up may write to its own file late, and nobody reads that one. If the
    block ends with an error the folder is removed, unless its checkpoint counts by then.
    """
    made = [int(found[1]) for path in directory.iterdir() if (found := _FOLDER.match(path.name))]
    folder = directory / f"generation-{max(made, default=0) + 1}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    except BaseException:
        if not _may_count(directory, folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _may_count(directory: Path, folder: Path) -> bool:
    """Whether the manifest names the files in a folder, or cannot be read."""
    try:
        files = snapshot.read(directory / MANIFEST)["files"]
    except FileNotFoundError:
        return False
    except StateFileError:
        return True
    return any(Path(name).parent.name == folder.name for name, _ in files)


def write(directory: Path, content: dict[str, Any]) -> None:
    """Make a checkpoint the one that counts: all its files are on the disk.

    Raises:
        OSError: If it cannot be written; the one before counts then, or this one.
    """
    names = [[os.path.relpath(path, directory), checksum] for path, checksum in content["files"]]
    snapshot.write(directory / MANIFEST, {**content, "files": names})


def sweep(directory: Path, files: Sequence[tuple[str, str]]) -> None:
    """Remove what other checkpoints have left than the one of some files, which counts."""
    kept = {Path(path).parent.name for path, _ in files}
    for path in directory.iterdir():
        if _FOLDER.match(path.name) and path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def read(directory: Path) -> dict[str, Any]:
    """The checkpoint that counts, with the paths of its files.

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
    content["files"] = [(str(directory / name), checksum) for name, checksum in content["files"]]
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

"""The state of a distributed model on disk: one file for each rank, and a manifest."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyg_incremental import snapshot
from pyg_incremental.distributed import ldg
from pyg_incremental.distributed.call import Sample
from pyg_incremental.distributed.shards import Shard
from pyg_incremental.errors import StateFileError, UnsupportedModelError
from pyg_incremental.parameters import fingerprint

FORMAT = 1
_MANIFEST = "manifest.json"
_ROOM = 1.05
Folder = str | os.PathLike[str]


def _file(folder: Folder, rank: int, version: int) -> Path:
    return Path(folder) / f"rank-{rank:04}-version-{version}.pt"


def write_part(
    folder: Folder, model: nn.Module, shard: Shard, sample: Sample, version: int
) -> None:
    """Write what one rank owns.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
    """
    if not snapshot.is_plain(sample.constants):
        raise UnsupportedModelError(
            f"save: the model was called with {sample.constants}, which cannot be saved without "
            "code"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    snapshot.write(
        _file(folder, shard.rank, version),
        {
            "model": fingerprint(model),
            "version": version,
            "owner": torch.from_numpy(np.array(shard.owner)),
            "ids": torch.from_numpy(np.array(shard.ids)),
            "nodes": {k: t.clone() for k, t in shard.nodes.items()},
            "edge_index": shard.edge_index.clone(),
            "edges": {k: t.clone() for k, t in shard.edges.items()},
            "by_target": shard.by_target,
            "sample": {
                "nodes": sample.nodes,
                "edges": sample.edges,
                "others": sample.others,
                "constants": sample.constants,
                "positional": sample.positional,
                "data_fields": {k: list(v) for k, v in sample.data_fields.items()},
            },
        },
    )


def write_manifest(folder: Folder, size: int, version: int) -> None:
    """Say that the files of all ranks are there."""
    path = Path(folder) / _MANIFEST
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({"format": FORMAT, "size": size, "version": version}))
    os.replace(temporary, path)


def clean(folder: Folder, rank: int, size: int, version: int) -> None:
    """Remove this rank's files of earlier saves, and those of ranks that are no more."""
    for path in Path(folder).glob("rank-*-version-*.pt"):
        of, at = path.stem.split("-")[1], path.stem.split("-")[3]
        mine = int(of) == rank or (rank == 0 and int(of) >= size)
        if mine and (int(of) >= size or int(at) != version):
            path.unlink(missing_ok=True)


def read_manifest(folder: Folder) -> dict[str, Any]:
    """What a folder holds.

    Raises:
        StateFileError: If it is none of ours.
    """
    path = Path(folder) / _MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StateFileError(
            f"'{folder}' holds no save of a distributed model ({type(error).__name__}: {error})"
        ) from error
    if manifest.get("format") != FORMAT or not {"size", "version"} <= manifest.keys():
        raise StateFileError(f"'{path}' is not the manifest of a save of format {FORMAT}")
    return manifest


def _read(folder: Folder, manifest: dict[str, Any], model: nn.Module, rank: int) -> dict[str, Any]:
    path = _file(folder, rank, manifest["version"])
    content = snapshot.read(path)
    if content["model"] != fingerprint(model):
        raise StateFileError(
            f"'{path}' was saved for another model (or other parameters) than this "
            f"{type(model).__name__}; load the parameters that the model had, or start anew"
        )
    return content


def placed_anew(
    folder: Folder, manifest: dict[str, Any], model: nn.Module, size: int
) -> NDArray[np.int16]:
    """Owners of all nodes for another number of ranks: LDG over the files, one at a time."""
    owner = np.empty(0, np.int16)
    sizes = np.zeros(size, np.int64)
    for rank in range(manifest["size"]):
        content = _read(folder, manifest, model, rank)
        if not rank:
            owner = np.full(len(content["owner"]), ldg.NOWHERE, np.int16)
        ids, (src, dst) = content["ids"].numpy(), content["edge_index"].numpy()
        order = np.argsort(dst, kind="stable")
        start = np.searchsorted(dst[order], np.append(ids, owner.size))
        room = max(1.0, _ROOM * owner.size / size)
        ldg.place(ids, start, np.ascontiguousarray(src[order]), owner, sizes, room)
    return owner


def read_part(
    folder: Folder,
    manifest: dict[str, Any],
    model: nn.Module,
    rank: int,
    size: int,
    owner: NDArray[np.int16] | None,
) -> tuple[Shard, Sample]:
    """What one rank owns, and a sample of the call.

    Args:
        folder: The save.
        manifest: Its manifest.
        model: The model that it belongs to.
        rank: The rank.
        size: The number of ranks now.
        owner: Who owns each node, if that has changed; the files are then read one after another.
    """
    if owner is None:
        content = _read(folder, manifest, model, rank)
        shard = Shard(
            rank, size, content["owner"].numpy(), content["ids"].numpy(), content["nodes"],
            content["edge_index"], content["edges"], content["by_target"],
        )  # fmt: skip
        return shard, _sample(content["sample"])
    parts = []
    for old in range(manifest["size"]):
        content = _read(folder, manifest, model, old)
        mine = torch.from_numpy(np.flatnonzero(owner[content["ids"].numpy()] == rank))
        edges = torch.from_numpy(np.flatnonzero(owner[content["edge_index"][1].numpy()] == rank))
        parts.append(
            (
                content["ids"][mine], {k: t[mine] for k, t in content["nodes"].items()},
                content["edge_index"][:, edges], {k: t[edges] for k, t in content["edges"].items()},
            )
        )  # fmt: skip
    ids = torch.cat([p[0] for p in parts])
    order = ids.argsort()
    shard = Shard(
        rank, size, owner, ids[order].numpy(),
        {k: torch.cat([p[1][k] for p in parts])[order] for k in parts[0][1]},
        torch.cat([p[2] for p in parts], 1),
        {k: torch.cat([p[3][k] for p in parts]) for k in parts[0][3]}, content["by_target"],
    )  # fmt: skip
    return shard, _sample(content["sample"])


def _sample(content: dict[str, Any]) -> Sample:
    fields = {k: tuple(v) for k, v in content["data_fields"].items()}
    return Sample(**{**content, "data_fields": fields})

"""The state of a distributed model on disk: one file for each rank, and a manifest."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pyg_incremental import snapshot
from pyg_incremental.calls.state import relations_of
from pyg_incremental.distributed import ldg
from pyg_incremental.distributed.call import Call
from pyg_incremental.distributed.owners import Ranks
from pyg_incremental.distributed.place import ROOM
from pyg_incremental.distributed.shard import Shard
from pyg_incremental.distributed.union import Union
from pyg_incremental.errors import StateFileError, UnsupportedModelError
from pyg_incremental.parameters import fingerprint

FORMAT = 1
_MANIFEST = "manifest.json"
Folder = str | os.PathLike[str]


def _file(folder: Folder, rank: int, version: int) -> Path:
    return Path(folder) / f"rank-{rank:04}-version-{version}.pt"


def write_part(folder: Folder, model: nn.Module, shard: Shard, call: Call, version: int) -> None:
    """Write what one rank owns.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
    """
    if not snapshot.is_plain(call.site.constants):
        raise UnsupportedModelError(
            f"save: the model was called with {call.site.constants}, which cannot be saved without "
            "code"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    snapshot.write(
        _file(folder, shard.rank, version),
        {
            "model": fingerprint(model),
            "version": version,
            "owner": {k: torch.from_numpy(np.array(ranks)) for k, ranks in shard.owner.items()},
            "ids": {k: torch.from_numpy(np.array(ids)) for k, ids in shard.ids.items()},
            "nodes": {k: t.clone() for k, t in shard.nodes.items()},
            "edge_index": {k: t.clone() for k, t in shard.edge_index.items()},
            "edges": {
                graph: {k: t.clone() for k, t in data.items()}
                for graph, data in shard.edges.items()
            },
            "call": call.described(),
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


class Save:
    """A save on disk, of which one file at a time is read.

    Args:
        folder: Where it is.
        model: The model that it belongs to.

    Attributes:
        size: The number of ranks that wrote it.
        version: How many updates it holds.

    Raises:
        StateFileError: If the folder holds no save; later, if a file is cut off or damaged, or
            belongs to another model.
    """

    def __init__(self, folder: Folder, model: nn.Module) -> None:
        manifest = read_manifest(folder)
        self.size: int = manifest["size"]
        self.version: int = manifest["version"]
        self._folder, self._model = folder, model

    def _read(self, rank: int) -> dict[str, Any]:
        path = _file(self._folder, rank, self.version)
        content = snapshot.read(path)
        if content["model"] != fingerprint(self._model):
            raise StateFileError(
                f"'{path}' was saved for another model (or other parameters) than this "
                f"{type(self._model).__name__}; load the parameters that the model had, or start "
                "anew"
            )
        return content

    def _files(self) -> Iterator[dict[str, Any]]:
        return (self._read(rank) for rank in range(self.size))

    def placed_anew(self, size: int) -> dict[str, Ranks]:
        """Owners of all nodes for another number of ranks: LDG over the files, one at a time."""
        owner = np.empty(0, np.int16)
        sizes = np.zeros(size, np.int64)
        union = Union({})
        for rank, content in enumerate(self._files()):
            if not rank:
                union = Union({kind: len(ranks) for kind, ranks in content["owner"].items()})
                owner = np.full(union.total, ldg.NOWHERE, np.int16)
            parts = {
                r: content["edge_index"][r.graph].numpy() for r in relations_of(content["call"])
            }
            src, dst = union.edges(parts.items())
            ids = [union.ids(kind, some.numpy()) for kind, some in content["ids"].items()]
            nodes = np.sort(np.concatenate(ids))
            order = np.argsort(dst, kind="stable")
            start = np.searchsorted(dst[order], np.append(nodes, union.total))
            room = max(1.0, ROOM * union.total / size)
            ldg.place(nodes, start, np.ascontiguousarray(src[order]), owner, sizes, room)
        return union.split(owner)

    def part(
        self, rank: int, size: int, owner: Mapping[str, Ranks] | None
    ) -> tuple[Shard, dict[str, Any]]:
        """What one rank owns, and a description of the call.

        Args:
            rank: The rank.
            size: The number of ranks now.
            owner: Who owns each node, if that has changed; the files are then read one after
                another.
        """
        if owner is None:
            content = self._read(rank)
            own = {kind: ranks.numpy() for kind, ranks in content["owner"].items()}
            return _shard(content, rank, size, own), content["call"]
        parts = [_cut(content, rank, owner) for content in self._files()]
        first = parts[0]
        order = {k: torch.cat([p["ids"][k] for p in parts]).argsort() for k in first["ids"]}
        kinds = first["call"]["nodes"]
        content = {
            "ids": {k: torch.cat([p["ids"][k] for p in parts])[at] for k, at in order.items()},
            "nodes": {
                k: torch.cat([p["nodes"][k] for p in parts])[order[kinds[k]]]
                for k in first["nodes"]
            },
            "edge_index": {
                k: torch.cat([p["edge_index"][k] for p in parts], 1) for k in first["edge_index"]
            },
            "edges": {
                graph: {k: torch.cat([p["edges"][graph][k] for p in parts]) for k in data}
                for graph, data in first["edges"].items()
            },
        }
        return _shard(content, rank, size, dict(owner)), first["call"]


def _shard(content: dict[str, Any], rank: int, size: int, owner: dict[str, Ranks]) -> Shard:
    return Shard(
        rank, size, owner, {kind: ids.numpy() for kind, ids in content["ids"].items()},
        content["nodes"], content["edge_index"], content["edges"],
    )  # fmt: skip


def _cut(content: dict[str, Any], rank: int, owner: Mapping[str, Ranks]) -> dict[str, Any]:
    """Of a file what a rank owns now."""
    call = content["call"]
    mine = {
        kind: torch.from_numpy(np.flatnonzero(owner[kind][ids.numpy()] == rank))
        for kind, ids in content["ids"].items()
    }
    pairs, data = {}, {}
    for r in relations_of(call):
        edges = content["edge_index"][r.graph]
        at = torch.from_numpy(np.flatnonzero(owner[r.target][edges[1].numpy()] == rank))
        pairs[r.graph] = edges[:, at]
        data[r.graph] = {k: t[at] for k, t in content["edges"][r.graph].items()}
    return {
        "ids": {kind: ids[mine[kind]] for kind, ids in content["ids"].items()},
        "nodes": {k: t[mine[call["nodes"][k]]] for k, t in content["nodes"].items()},
        "edge_index": pairs,
        "edges": data,
        "call": call,
    }

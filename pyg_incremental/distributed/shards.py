"""The part of a graph that one rank owns: in memory, and on disk as memory-mapped arrays.

A folder of shards holds

    manifest.json             sizes, names, how it was partitioned
    owner.npy                 the part of every node, int16 [num_nodes]
    part-0003/ids.npy         the nodes that part 3 owns, ascending, int64
    part-0003/x.npy           their rows of the node input `x`, and so on for others
    part-0003/edge_index.npy  their in-edges, in global ids, in their order, int64 [2, k]
    part-0003/edge_weight.npy data of these edges, and so on for others

Writing goes through the inputs in chunks, so that memory-mapped inputs never have to fit.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.partition import Partition

FORMAT = 1
CHUNK = 1 << 22
Owner = NDArray[np.int16]


@dataclass
class Shard:
    """What one rank owns of a graph.

    Attributes:
        rank: The number of the part.
        size: The number of parts.
        owner: The part of every node, int16 `[num_nodes]`.
        ids: The nodes that this part owns, ascending, int64 `[n]`.
        nodes: Their rows of each node input, `[n, ...]`.
        edge_index: Their in-edges in global ids, int64 `[2, k]`.
        edges: The data of these edges by name, `[k, ...]`.
        by_target: Whether the edges of the graph came sorted by target.
    """

    rank: int
    size: int
    owner: Owner = field(repr=False)
    ids: NDArray[np.int64] = field(repr=False)
    nodes: dict[str, Tensor] = field(repr=False)
    edge_index: Tensor = field(repr=False)
    edges: dict[str, Tensor] = field(repr=False)
    by_target: bool = False


def shard_of(
    rank: int,
    size: int,
    owner: Owner,
    nodes: Mapping[str, Tensor],
    edge_index: Tensor,
    edges: Mapping[str, Tensor],
    by_target: bool,
) -> Shard:
    """The part of one rank, cut out of a graph that is all there."""
    ids = np.flatnonzero(owner == rank)
    own = torch.from_numpy(ids)
    mine = torch.from_numpy(np.flatnonzero(owner[edge_index[1].numpy()] == rank))
    return Shard(
        rank, size, owner, ids, {k: t[own] for k, t in nodes.items()}, edge_index[:, mine],
        {k: t[mine] for k, t in edges.items()}, by_target,
    )  # fmt: skip


def write_shards(
    folder: str | os.PathLike[str],
    chosen: Partition,
    edge_index: NDArray[np.int64],
    nodes: Mapping[str, NDArray[Any]],
    edges: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """Write one folder for each part.

    Args:
        folder: Where to; made if it is not there. The manifest is written last.
        chosen: Which part owns which node.
        edge_index: int64 `[2, num_edges]`; may be memory-mapped, like all others.
        nodes: Node inputs by the names of the model's arguments, `[num_nodes, ...]`.
        edges: Edge inputs likewise, `[num_edges, ...]`.

    Returns:
        The folder.

    Raises:
        PartitionError: If an array has another number of rows.
    """
    edges = edges or {}
    owner: Owner = chosen.owner.numpy()
    for name, rows in nodes.items():
        if rows.shape[0] != owner.size:
            raise PartitionError(
                f"write_shards: '{name}' has {rows.shape[0]} rows, but there are {owner.size} nodes"
            )
    for name, rows in edges.items():
        if rows.shape[0] != edge_index.shape[1]:
            raise PartitionError(
                f"write_shards: '{name}' has {rows.shape[0]} rows, but there are "
                f"{edge_index.shape[1]} edges"
            )
    root = Path(folder)
    parts = [root / _name(p) for p in range(chosen.num_parts)]
    for part in parts:
        part.mkdir(parents=True, exist_ok=True)
    np.save(root / "owner.npy", owner)
    for p, part in enumerate(parts):
        np.save(part / "ids.npy", np.flatnonzero(owner == p))
    for name, rows in nodes.items():
        _scatter(parts, f"{name}.npy", rows, owner, chosen.sizes.tolist())
    counts = chosen.in_edges.tolist()
    to = _Owners(owner, edge_index)
    for name, rows in edges.items():
        _scatter(parts, f"{name}.npy", rows, to, counts)
    by_target = _scatter_edges(parts, edge_index, owner, counts)
    _write_json(
        root / "manifest.json",
        {
            "format": FORMAT,
            "num_nodes": int(owner.size),
            "num_edges": int(edge_index.shape[1]),
            "num_parts": chosen.num_parts,
            "method": chosen.method,
            "edges_cut": chosen.edges_cut,
            "nodes": list(nodes),
            "edges": list(edges),
            "by_target": by_target,
        },
    )
    return root


class _Owners:
    """The part of the target of each edge, looked up where it is asked for."""

    def __init__(self, owner: Owner, edge_index: NDArray[np.int64]) -> None:
        self._owner, self._edge_index = owner, edge_index

    def __getitem__(self, at: slice) -> Owner:
        found: Owner = self._owner[self._edge_index[1, at]]
        return found


def _scatter(
    parts: list[Path], file: str, rows: NDArray[Any], to: Owner | _Owners, counts: list[int]
) -> None:
    """Write each row into the file of its part."""
    maps = [
        np.lib.format.open_memmap(
            part / file, mode="w+", dtype=rows.dtype, shape=(count, *rows.shape[1:])
        )
        for part, count in zip(parts, counts, strict=True)
    ]
    done = [0] * len(parts)
    for first in range(0, rows.shape[0], CHUNK):
        some, where = rows[first : first + CHUNK], to[first : first + CHUNK]
        for p in np.unique(where).tolist():
            own = some[where == p]
            maps[p][done[p] : done[p] + len(own)] = own
            done[p] += len(own)
    for m in maps:
        m.flush()


def _scatter_edges(
    parts: list[Path], edge_index: NDArray[np.int64], owner: Owner, counts: list[int]
) -> bool:
    """Write each edge into the file of its target's part; returns if they come by target."""
    maps = [
        np.lib.format.open_memmap(part / "edge_index.npy", mode="w+", dtype=np.int64, shape=(2, n))
        for part, n in zip(parts, counts, strict=True)
    ]
    done, by_target, last = [0] * len(parts), True, -1
    for first in range(0, edge_index.shape[1], CHUNK):
        some = np.asarray(edge_index[:, first : first + CHUNK])
        where = owner[some[1]]
        by_target = by_target and last <= some[1, 0] and bool((np.diff(some[1]) >= 0).all())
        last = some[1, -1]
        for p in np.unique(where).tolist():
            own = some[:, where == p]
            maps[p][:, done[p] : done[p] + own.shape[1]] = own
            done[p] += own.shape[1]
    for m in maps:
        m.flush()
    return bool(by_target)


def manifest_of(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What the manifest of a folder of shards says.

    Raises:
        PartitionError: If there is none, or it is of another format.
    """
    path = Path(folder) / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PartitionError(
            f"'{folder}' is no folder of shards ({type(error).__name__}: {error}); write one with "
            "python -m pyg_incremental.distributed partition"
        ) from error
    if manifest.get("format") != FORMAT or "num_parts" not in manifest:
        raise PartitionError(f"'{path}' is not a manifest of shards of format {FORMAT}")
    return manifest


def read_shard(folder: str | os.PathLike[str], rank: int, size: int) -> Shard:
    """The part of one rank, memory-mapped: nothing is read before it is used.

    Raises:
        PartitionError: If the folder has another number of parts, or is none of ours.
    """
    root = Path(folder)
    manifest = manifest_of(root)
    if manifest["num_parts"] != size:
        raise PartitionError(
            f"'{root}' has {manifest['num_parts']} parts, but there are {size} ranks; start as "
            "many ranks, or partition again"
        )
    part = root / _name(rank)
    return Shard(
        rank,
        size,
        np.load(root / "owner.npy", mmap_mode="r"),
        np.load(part / "ids.npy"),
        {name: _mapped(part / f"{name}.npy") for name in manifest["nodes"]},
        _mapped(part / "edge_index.npy"),
        {name: _mapped(part / f"{name}.npy") for name in manifest["edges"]},
        manifest["by_target"],
    )


def _mapped(path: Path) -> Tensor:
    """A file as a tensor; pages that are written to are copied and never reach the file."""
    rows = np.load(path, mmap_mode="c")
    return torch.from_numpy(rows)


def _name(part: int) -> str:
    return f"part-{part:04}"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, indent=1))
    os.replace(temporary, path)

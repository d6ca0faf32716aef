"""Cutting a graph into shards on disk.

It goes through the inputs in chunks, so that memory-mapped inputs never have to fit.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.call.hyperedges import HYPEREDGE
from pyg_incremental.call.objects import name_in
from pyg_incremental.call.roles import ends_of
from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.files import manifests
from pyg_incremental.distributed.files.checked import CHUNK
from pyg_incremental.distributed.files.shard_files import Leaf, Manifest, folder_of, of_kind
from pyg_incremental.distributed.placement.partition import HeteroPartition, Partition
from pyg_incremental.distributed.placement.shard import Owner
from pyg_incremental.encoding.arrays import new_array
from pyg_incremental.encoding.whole_file import sync_file, sync_folder

Array = NDArray[Any]


def write_shards(
    folder: str | os.PathLike[str],
    chosen: Partition | HeteroPartition,
    edge_index: Array | Mapping[Any, Any],
    nodes: Mapping[str, Any],
    edges: Mapping[str, Any] | None = None,
) -> Path:
    """Write one folder for each part.

    All arrays may be memory-mapped. What a model takes as a dict by type of nodes or edges (or as
    a pair) is given as one: `nodes={'x_dict': {'user': ..., 'film': ...}}`.

    Args:
        folder: Where to; made if it is not there. The manifest is written last.
        chosen: Which part owns which node.
        edge_index: int64 `[2, num_edges]`; or such arrays by edge type (the argument
            `edge_index_dict`), or all graphs by the names of the model's arguments.
        nodes: Node inputs by the names of the model's arguments, `[num_nodes, ...]`.
        edges: Edge inputs likewise, `[num_edges, ...]`.

    Returns:
        The folder.

    Raises:
        PartitionError: If an array has another number of rows, or it is not clear what it is.
    """
    owner: dict[str, Owner] = (
        {"": chosen.owner.numpy()} if isinstance(chosen, Partition)
        else {kind: ranks.numpy() for kind, ranks in chosen.owner.items()}
    )  # fmt: skip
    whole = chosen if isinstance(chosen, Partition) else chosen.union
    (Path(folder) / manifests.NAME).unlink(missing_ok=True)  # until all is there again
    writer = _Writer(Path(folder), owner, whole.num_parts)
    node_leaves = [writer.node(*leaf) for leaf in _leaves(nodes)]
    graph_leaves = [writer.graph(*leaf) for leaf in _leaves(_by_argument(edge_index))]
    edge_leaves = [writer.edge(*leaf) for leaf in _leaves(edges or {})]
    writer.ids()
    Manifest(
        whole.num_parts, whole.method, whole.edges_cut, whole.num_edges,
        {kind: int(ranks.size) for kind, ranks in owner.items()}, node_leaves, graph_leaves,
        edge_leaves, [k for k, v in nodes.items() if isinstance(v, (tuple, list))],
        writer.by_target, writer.checksums(),
    ).write(writer.root)  # fmt: skip
    return writer.root


def _by_argument(edge_index: Any) -> Mapping[str, Any]:
    """Graphs by the names of the model's arguments."""
    if not isinstance(edge_index, Mapping):
        return {"edge_index": edge_index}
    if any(isinstance(key, tuple) for key in edge_index):
        return {"edge_index_dict": edge_index}
    return edge_index


def _leaves(arguments: Mapping[str, Any]) -> Iterable[tuple[str, Any, Array]]:
    """Argument, key and array of everything that arguments hold."""
    for name, held in arguments.items():
        if isinstance(held, (tuple, list)):
            yield from ((name, key, a) for key, a in zip(("src", "dst"), held, strict=True))
        elif isinstance(held, Mapping):
            yield from ((name, key, a) for key, a in held.items())
        else:
            yield name, None, held


class _Writer:
    """Writes arrays, each row into the file of its part."""

    def __init__(self, root: Path, owner: dict[str, Owner], num_parts: int) -> None:
        self.root, self.by_target = root, list[str]()
        self._owner, self._num_parts = owner, num_parts
        self._parts = [folder_of(root, part) for part in range(num_parts)]
        self._keys: list[Any] = []
        self._written: list[Path] = []
        self._graphs: dict[Any, tuple[Leaf, Array, Owner]] = {}
        for part in self._parts:
            part.mkdir(parents=True, exist_ok=True)

    def ids(self) -> None:
        """Who owns which node."""
        for kind, owner in self._owner.items():
            np.save(self._fresh(self.root / of_kind(kind, "owner")), owner)
            for part, folder in enumerate(self._parts):
                path = self._fresh(folder / of_kind(kind, "ids"))
                np.save(path, np.flatnonzero(owner == part))

    def _fresh(self, path: Path) -> Path:
        """A file to write, in the place of one that somebody may have mapped into memory."""
        path.unlink(missing_ok=True)
        self._written.append(path)
        return path

    def checksums(self) -> dict[str, str]:
        """Those of all files by name; they are on the disk then."""
        found = {p.relative_to(self.root).as_posix(): sync_file(p) for p in self._written}
        for folder in (*self._parts, self.root):
            sync_folder(folder)
        return found

    def node(self, argument: str, key: Any, rows: Array) -> Leaf:
        """A node input."""
        kind = key if key is not None else self._plain_kind(argument)
        leaf = Leaf(_name(argument, key), argument, key, kind)
        if kind not in self._owner or rows.shape[0] != self._owner[kind].size:
            known = {k or "x": ranks.size for k, ranks in self._owner.items()}
            raise PartitionError(
                f"write_shards: '{leaf.name}' has {rows.shape[0]} rows, but there are "
                f"{self._owner[kind].size if kind in self._owner else known} nodes"
            )
        self._scatter(leaf, rows, self._owner[kind], self._counts(self._owner[kind]))
        return leaf

    def _plain_kind(self, argument: str) -> str:
        return HYPEREDGE if HYPEREDGE in argument and HYPEREDGE in self._owner else ""

    def graph(self, argument: str, key: Any, edges: Array) -> Leaf:
        """A graph: each edge goes into the file of its target's part."""
        name, sizes = _name(argument, key), {k: o.size for k, o in self._owner.items()}
        kind = self._plain_kind(argument) or ends_of(key, sizes, "write_shards", name)[1]
        leaf, owner = Leaf(name, argument, key, kind), self._owner[kind]
        counts = np.zeros(self._num_parts, np.int64)
        for first in range(0, edges.shape[1], CHUNK):
            counts += np.bincount(owner[edges[1, first : first + CHUNK]], minlength=self._num_parts)
        self._keys.append(key)
        self._graphs[key] = leaf, edges, owner
        if self._scatter_edges(leaf, edges, owner, counts):
            self.by_target.append(name)
        return leaf

    def edge(self, argument: str, key: Any, rows: Array) -> Leaf:
        """An edge input."""
        name = _name(argument, key)
        if key not in self._graphs or self._keys.count(key) > 1:
            raise PartitionError(f"write_shards: it is not clear of which graph '{name}' has rows")
        graph, edges, owner = self._graphs[key]
        if rows.shape[0] != edges.shape[1]:
            raise PartitionError(
                f"write_shards: '{name}' has {rows.shape[0]} rows, but there are {edges.shape[1]} "
                "edges"
            )
        leaf, to = Leaf(name, argument, key, graph.name), _Targets(owner, edges)
        self._scatter(leaf, rows, to, self._counts(to))
        return leaf

    def _counts(self, to: "Owner | _Targets") -> NDArray[np.int64]:
        counts = np.zeros(self._num_parts, np.int64)
        for first in range(0, to.size, CHUNK):
            counts += np.bincount(to[first : first + CHUNK], minlength=self._num_parts)
        return counts

    def _maps(self, leaf: Leaf, dtype: Any, shapes: Iterable[tuple[int, ...]]) -> list[Array]:
        return [
            new_array(self._fresh(part / leaf.file), dtype, shape)
            for part, shape in zip(self._parts, shapes, strict=True)
        ]

    def _scatter(
        self, leaf: Leaf, rows: Array, to: "Owner | _Targets", counts: NDArray[np.int64]
    ) -> None:
        """Write each row into the file of its part."""
        maps = self._maps(leaf, rows.dtype, ((n, *rows.shape[1:]) for n in counts.tolist()))
        done = [0] * len(maps)
        for first in range(0, rows.shape[0], CHUNK):
            some, where = rows[first : first + CHUNK], to[first : first + CHUNK]
            for p in np.unique(where).tolist():
                own = some[where == p]
                maps[p][done[p] : done[p] + len(own)] = own
                done[p] += len(own)
        _flush(maps)

    def _scatter_edges(
        self, leaf: Leaf, edges: Array, owner: Owner, counts: NDArray[np.int64]
    ) -> bool:
        """Write each edge into the file of its target's part; returns if they come by target."""
        maps = self._maps(leaf, np.int64, ((2, n) for n in counts.tolist()))
        done, by_target, last = [0] * len(maps), True, -1
        for first in range(0, edges.shape[1], CHUNK):
            some = np.asarray(edges[:, first : first + CHUNK])
            where = owner[some[1]]
            by_target = by_target and last <= some[1, 0] and bool((np.diff(some[1]) >= 0).all())
            last = some[1, -1]
            for p in np.unique(where).tolist():
                own = some[:, where == p]
                maps[p][:, done[p] : done[p] + own.shape[1]] = own
                done[p] += own.shape[1]
        _flush(maps)
        return bool(by_target)


class _Targets:
    """The part of the target of each edge, looked up where it is asked for."""

    def __init__(self, owner: Owner, edges: Array) -> None:
        self._owner, self._edges, self.size = owner, edges, edges.shape[1]

    def __getitem__(self, at: slice) -> Owner:
        found: Owner = self._owner[self._edges[1, at]]
        return found


def _flush(maps: Iterable[Any]) -> None:
    for m in maps:
        if m.size:
            m.flush()


def _name(argument: str, key: Any) -> str:
    return argument if key is None else name_in(argument, key)

"""Shards on disk, as memory-mapped arrays: for each rank what it owns.

A folder of shards holds

    manifest.json             sizes, names, how it was partitioned, checksums of the other files
    owner.npy                 the part of every node, int16 [num_nodes]
    part-0003/ids.npy         the nodes that part 3 owns, ascending, int64
    part-0003/x.npy           their rows of the node input `x`, and so on for others
    part-0003/edge_index.npy  their in-edges, in global ids, in their order, int64 [2, k]
    part-0003/edge_weight.npy data of these edges, and so on for others

With several types of nodes and edges their names stand before: `user.ids.npy`, `user.x_dict.npy`,
`user__rates__film.edge_index_dict.npy`.
"""

import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pyg_incremental.call.bound_call import BoundCall, bind
from pyg_incremental.call.checked import Checked
from pyg_incremental.call.roles import Roles, classify
from pyg_incremental.distributed.call import EDGES, NODES, SampleRows, SharedCall, call_of
from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.files import manifests
from pyg_incremental.distributed.files.checked import shard_fits
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.encoding.whole_file import checksum
from pyg_incremental.program.steps import Relation

FORMAT = 3
_READING = Lock()
"""NumPy parses what an array is, which in two threads at once may fail in Python 3.11
(https://github.com/python/cpython/issues/106905); ranks may be threads."""
_LEAVES = [[(str, [str], type(None))]]
_FORM = {
    "num_parts": int, "method": str, "edges_cut": int, "num_edges": int, "num_nodes": {str: int},
    "nodes": _LEAVES, "graphs": _LEAVES, "edges": _LEAVES, "pairs": [str], "by_target": [str],
    "checksums": {str: str},
}  # fmt: skip
_ADVICE = "Write the shards again, with python -m pyg_incremental.distributed partition"


@dataclass(frozen=True)
class Leaf:
    """An array of a call.

    Attributes:
        name: The name of the tensor in the call.
        argument: The argument of the model that holds it.
        key: The type of nodes or edges under which it does; None if it is the argument itself.
        of: The kind of nodes, or the graph, that it has rows for.
    """

    name: str
    argument: str
    key: Any
    of: str

    @property
    def file(self) -> str:
        """The file that holds it, in the folder of a part."""
        return file_of(self.name)


def file_of(name: str) -> str:
    """The file of an array."""
    return f"{name.replace('/', '.')}.npy"


def folder_of(root: Path, part: int) -> Path:
    """The folder of a part."""
    return root / f"part-{part:04}"


def of_kind(kind: str, what: str) -> str:
    """The file with something about all nodes of a kind."""
    return f"{kind}.{what}.npy" if kind else f"{what}.npy"


@dataclass
class Manifest:
    """What a folder of shards holds.

    Attributes:
        num_parts: The number of parts.
        method: How the graph was partitioned.
        edges_cut: How many edges lead from one part to another one.
        num_edges: How many edges there are.
        num_nodes: The number of nodes of each kind.
        nodes: The node inputs.
        graphs: The graphs; each has rows for the kind of nodes at its targets.
        edges: The edge inputs.
        pairs: Arguments that hold a pair and no dict.
        by_target: The graphs whose edges came sorted by target.
        checksums: SHA-256 of each file.
    """

    num_parts: int
    method: str
    edges_cut: int
    num_edges: int
    num_nodes: dict[str, int]
    nodes: list[Leaf]
    graphs: list[Leaf]
    edges: list[Leaf]
    pairs: list[str]
    by_target: list[str]
    checksums: dict[str, str]

    def write(self, root: Path) -> None:
        """Write it: from here on the folder counts."""
        leaves = {k: list(map(astuple, getattr(self, k))) for k in ("nodes", "graphs", "edges")}
        manifests.write_manifest(root, {"format": FORMAT, **vars(self), **leaves})


def manifest_of(folder: str | os.PathLike[str]) -> Manifest:
    """What the manifest of a folder of shards says.

    Raises:
        PartitionError: If there is none, or it is of another format.
    """
    checked = Checked(str(folder), PartitionError, _ADVICE)
    content = manifests.read_manifest(
        Path(folder), FORMAT, checked, f"It is no folder of shards. {_ADVICE}"
    )
    del content["format"]
    checked.fits(content, _FORM, "")
    checked.same(sorted(content), sorted(_FORM), "entries of the manifest")
    kinds, graphs = content["num_nodes"], [leaf[0] for leaf in content["graphs"]]
    for field, known in (("nodes", kinds), ("graphs", kinds), ("edges", graphs)):
        for fields in content[field]:
            checked.same(len(fields), 4, f"parts of an entry of '{field}'")
            for value, form in zip(fields, (str, str, (str, [str], type(None)), str), strict=True):
                checked.fits(value, form, field)
            if fields[3] not in known:
                raise checked.refuse(f"'{fields[0]}' is of {fields[3]!r}, which is not there")
        content[field] = list(map(_leaf, content[field]))
    for name in kinds:
        if "/" in name or "\\" in name:
            raise checked.refuse(f"{name!r} is no name of a kind of nodes")
    return Manifest(**content)


def _leaf(fields: list[Any]) -> Leaf:
    name, argument, key, of = fields
    return Leaf(name, argument, tuple(key) if isinstance(key, list) else key, of)


class ShardFiles:
    """The part of one rank on disk; nothing is read before it is used.

    Args:
        folder: The folder of all parts.
        rank: The rank.
        size: The number of ranks.

    Raises:
        PartitionError: If the folder has another number of parts, or is none of ours; if a file
            that this rank reads is missing, cut off or damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], rank: int, size: int) -> None:
        self._root = Path(folder)
        self.manifest = manifest_of(folder)
        if self.manifest.num_parts != size:
            raise PartitionError(
                f"'{folder}' has {self.manifest.num_parts} parts, but there are {size} ranks; "
                "start as many ranks, or partition again"
            )
        self._rank, self._size = rank, size
        self._checked = Checked(str(folder), PartitionError, _ADVICE)
        own, m = folder_of(self._root, rank), self.manifest
        files = [self._root / of_kind(k, "owner") for k in m.num_nodes]
        files += [own / of_kind(k, "ids") for k in m.num_nodes]
        files += [own / leaf.file for leaf in (*m.nodes, *m.graphs, *m.edges)]
        for path in files:
            self._compare_checksum(path)

    def _compare_checksum(self, path: Path) -> None:
        """See that a file is the one that was written."""
        name = path.relative_to(self._root).as_posix()
        try:
            found = checksum(path)
        except OSError as error:
            raise self._checked.refuse(
                f"'{name}' cannot be read ({type(error).__name__}: {error})"
            ) from error
        if found != self.manifest.checksums.get(name):
            raise self._checked.refuse(f"'{name}' is damaged: it does not match its checksum")

    def _array(self, path: Path, mode: Literal["c", "r"] | None) -> Any:
        """A file as an array."""
        try:
            with _READING:
                return np.load(path, mmap_mode=mode, allow_pickle=False)
        except Exception as error:  # the reader may stumble over anything in a foreign file
            raise self._checked.refuse(
                f"'{path.name}' is no array ({type(error).__name__}: {error})"
            ) from error

    def _mapped(self, leaf: Leaf) -> Tensor:
        """A file as a tensor; pages that are written to are copied and never reach the file."""
        array = self._array(folder_of(self._root, self._rank) / leaf.file, "c")
        if not array.ndim or array.dtype.kind not in "biuf" or not array.dtype.isnative:
            raise self._checked.refuse(f"'{leaf.file}' holds {array.dtype} {array.shape}")
        return torch.from_numpy(array)

    def shard(self, relations: Iterable[Relation]) -> Shard:
        """What the rank owns; all of it is checked.

        Args:
            relations: The graphs.

        Raises:
            PartitionError: If it does not hang together.
        """
        root, m = self._root, self.manifest
        own = folder_of(root, self._rank)
        shard = Shard(
            self._rank,
            self._size,
            {k: self._array(root / of_kind(k, "owner"), "r") for k in m.num_nodes},
            {k: self._array(own / of_kind(k, "ids"), None) for k in m.num_nodes},
            {leaf.name: self._mapped(leaf) for leaf in m.nodes},
            {leaf.name: self._mapped(leaf) for leaf in m.graphs},
            {
                graph.name: {e.name: self._mapped(e) for e in m.edges if e.of == graph.name}
                for graph in m.graphs
            },
        )
        inputs = {"nodes": m.nodes, "edges": m.edges}
        content = {k: {leaf.name: leaf.of for leaf in leaves} for k, leaves in inputs.items()}
        shard_fits(self._checked, shard, relations, {**content, "matrices": ()})
        counts = {kind: ranks.size for kind, ranks in shard.owner.items()}
        self._checked.same(counts, m.num_nodes, "number of nodes")
        return shard

    def sample(self) -> SampleRows:
        """A few rows."""
        m = self.manifest
        nodes = {leaf.name: self._mapped(leaf)[:NODES].clone() for leaf in m.nodes}
        edges = {
            graph.name: {
                e.name: self._mapped(e)[:EDGES].clone() for e in m.edges if e.of == graph.name
            }
            for graph in m.graphs
        }
        return SampleRows(nodes, edges, {})

    def call(self, model: nn.Module, sample: SampleRows, arguments: dict[str, Any]) -> SharedCall:
        """The call of a model on these shards.

        Args:
            model: The model.
            sample: Rows of all ranks.
            arguments: Its further arguments.

        Raises:
            PartitionError: If the model takes the arrays for something else.
        """
        m = self.manifest
        site = bind(model, (), {**arguments, **self._arguments(sample)})
        roles = classify(site)
        self._compare(roles, site)
        by_target = set(m.by_target)
        relations = tuple(replace(r, by_target=r.graph in by_target) for r in roles.relations)
        num_nodes = {kind: m.num_nodes[kind] for kind in roles.kinds}
        call = call_of(site, replace(roles, relations=relations, num_nodes=num_nodes))
        return replace(call, sample=replace(sample, others=call.sample.others))

    def _arguments(self, sample: SampleRows) -> dict[str, Any]:
        """Small arguments whose numbers of nodes and edges tell which is which."""
        m, tensors = self.manifest, dict(sample.nodes)
        count = {leaf.of: len(sample.nodes[leaf.name]) for leaf in m.nodes}
        for graph in m.graphs:
            source = self._source(graph)
            ends = [min(count.get(k, NODES), m.num_nodes[k]) for k in (source, graph.of)]
            rows = [len(t) for t in sample.edges[graph.name].values()]
            size = min([ends[0] * ends[1], *rows])
            size -= size in count.values()
            at = torch.arange(size)
            tensors[graph.name] = torch.stack([at % max(1, ends[0]), at // max(1, ends[0])])
            tensors |= {k: t[:size] for k, t in sample.edges[graph.name].items()}
        given: dict[str, Any] = {}
        for leaf in (*m.nodes, *m.graphs, *m.edges):
            if leaf.key is None:
                given[leaf.argument] = tensors[leaf.name]
            else:
                given.setdefault(leaf.argument, {})[leaf.key] = tensors[leaf.name]
        return given | {name: tuple(given[name].values()) for name in m.pairs}

    def _source(self, graph: Leaf) -> str:
        """The kind of nodes at the sources of a graph."""
        if isinstance(graph.key, tuple):
            return str(graph.key[0])
        return "src" if graph.of == "dst" and self.manifest.pairs else (
            "" if "" in self.manifest.num_nodes else graph.of
        )  # fmt: skip

    def _compare(self, roles: Roles, site: BoundCall) -> None:
        """See that the model takes nodes for nodes and edges for edges."""
        m = self.manifest
        said = {leaf.name: leaf.of for leaf in (*m.nodes, *m.graphs, *m.edges)}
        found = {**roles.nodes, **roles.edges, **{r.graph: r.target for r in roles.relations}}
        for name in sorted(said.keys() | found.keys()):
            if said.get(name) != found.get(name):
                raise PartitionError(
                    f"'{self._root}': {type(site.model).__name__} takes '{name}' for rows of "
                    f"{found.get(name)!r}, the shards for rows of {said.get(name)!r}"
                )

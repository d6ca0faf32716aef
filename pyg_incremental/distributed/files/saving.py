"""The state of a distributed model on disk: one file for each rank, and a manifest.

The files of every save have names of their own, and the manifest names them with their checksums;
it takes the place of the one before when all of them are on the disk. So whenever a save is cut
off, the one before it is whole, and no file of one is ever read with those of another.
"""

import os
import platform
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.call.checked import Checked
from pyg_incremental.call.state import constants_of, relations_of
from pyg_incremental.distributed.call import SharedCall
from pyg_incremental.distributed.files import manifests
from pyg_incremental.distributed.files.checked import as_arrays, sample_fits, shard_fits
from pyg_incremental.distributed.numbering.owners import Ranks
from pyg_incremental.distributed.part.journal import RankCommitted
from pyg_incremental.distributed.part.part import Part
from pyg_incremental.distributed.placement import ldg
from pyg_incremental.distributed.placement.place import ROOM
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.distributed.placement.union import Union
from pyg_incremental.distributed.wire.rounds import Rounds, together
from pyg_incremental.encoding.whole_file import remove_if_left_over
from pyg_incremental.errors import StateFileError, UnsupportedModelError
from pyg_incremental.files import snapshot
from pyg_incremental.files.restoring import refuse_other
from pyg_incremental.program.steps import Relation
from pyg_incremental.session.options import differences, options_of
from pyg_incremental.session.parameters import fingerprint

FORMAT = 3
_FILE = re.compile(r"rank-(\d{4,})-version-\d+(-[0-9a-f]{16}\.state|\.pt)(\.[0-9a-f]{16}\.part)?")
Folder = str | os.PathLike[str]
_PART = {
    "model": str, "options": {str: object}, "version": int, "owner": {str: Tensor},
    "ids": {str: Tensor}, "nodes": {str: Tensor}, "edge_index": {str: Tensor},
    "edges": {str: {str: Tensor}}, "call": dict, "out": [Tensor], "out_kinds": [str],
}  # fmt: skip


def _file(folder: Folder, rank: int, version: int, token: str) -> Path:
    return Path(folder) / f"rank-{rank:04}-version-{version}-{token}.state"


def save(folder: Folder, model: nn.Module, part: Part, call: SharedCall, rounds: Rounds) -> None:
    """Write what all ranks own; a collective. See `DistributedIncrementalModel.save`.

    Args:
        folder: Where to; made if it is not there.
        model: The model, of which only a fingerprint is written.
        part: The part of this rank.
        call: The call.
        rounds: The conversation with the other ranks.
    """
    rank, version = rounds.rank, part.committed.version
    token = together(rounds, lambda: secrets.token_hex(8), first=True)
    try:
        mine = together(rounds, lambda: write_part(folder, model, part, call, token))
        every = rounds.everywhere(mine)
        together(rounds, lambda: see_all(folder, rounds.size, version, token))
    except BaseException:  # nobody has begun with the manifest
        _file(folder, rank, version, token).unlink(missing_ok=True)
        raise
    together(rounds, lambda: None if rank else write_manifest(folder, every, part.committed, token))
    together(rounds, lambda: clean(folder, rank, rounds.size, token))


def write_part(folder: Folder, model: nn.Module, part: Part, call: SharedCall, token: str) -> str:
    """Write what one rank owns; returns the checksum of the file.

    Args:
        folder: Where to; made if it is not there.
        model: The model, of which only a fingerprint is written.
        part: The part of this rank.
        call: The call.
        token: What the names of the files of this save have in common, 16 hexadecimal digits.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
        OSError: If the file cannot be written.
    """
    constants = constants_of(call.site)
    if not snapshot.is_plain(constants):
        raise UnsupportedModelError(
            f"save: the model was called with {constants}, which cannot be saved without code"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    shard, version = part.shard(), part.committed.version
    return snapshot.write(
        _file(folder, shard.rank, version, token),
        {
            "model": fingerprint(model),
            "options": options_of(model),
            "version": version,
            "owner": {k: torch.from_numpy(np.array(ranks)) for k, ranks in shard.owner.items()},
            "ids": {k: torch.from_numpy(np.array(ids)) for k, ids in shard.ids.items()},
            "nodes": shard.nodes,
            "edge_index": shard.edge_index,
            "edges": shard.edges,
            "call": call.described(),
            "out": pytree.tree_leaves(part.output(copy=False)),
            "out_kinds": pytree.tree_leaves(part.session.outputs.kinds),
        },
    )


def see_all(folder: Folder, size: int, version: int, token: str) -> None:
    """See that the files of all ranks lie in one folder, before a manifest says so.

    Args:
        folder: Where this rank has written.
        size: The number of ranks.
        version: What they have written.
        token: What the names of their files have in common.

    Raises:
        OSError: If this rank does not find the files of the others.
    """
    files = [_file(folder, rank, version, token) for rank in range(size)]
    missing = [rank for rank, path in enumerate(files) if not path.exists()]
    if missing:
        raise FileNotFoundError(
            f"save: the folder '{Path(folder).resolve()}' on {platform.node()} has the file of "
            f"this rank, but none of ranks {missing}, so it could not be loaded. All ranks must "
            "save to one folder that each of them sees: name one on a shared disk, by a path that "
            "does not depend on where a rank was started. Nothing was saved"
        )


def write_manifest(
    folder: Folder, checksums: list[str], committed: RankCommitted, token: str
) -> None:
    """Say that the files of all ranks are there: from here on this is the save.

    Args:
        folder: Where they are.
        checksums: Those of the files of all ranks.
        committed: What they hold.
        token: What their names have in common.
    """
    manifest = {
        "format": FORMAT,
        "version": committed.version,
        "deltas": [[name, version] for name, version in committed.deltas.items()],
        "token": token,
        "checksums": checksums,
    }
    manifests.write_manifest(Path(folder), manifest)


def clean(folder: Folder, rank: int, size: int, token: str) -> None:
    """Remove this rank's files of other saves, and those of ranks that are no more."""
    for path in Path(folder).iterdir():
        name = _FILE.fullmatch(path.name)
        if name is None or (f"-{token}.state" == name[2] and name[3] is None):
            continue
        of = int(name[1])
        if of == rank or (rank == 0 and of >= size):
            if name[3] is None:
                path.unlink(missing_ok=True)
            else:
                remove_if_left_over(path)


def read_manifest(folder: Folder) -> dict[str, Any]:
    """What a folder holds.

    Raises:
        StateFileError: If it is none of ours, or damaged.
    """
    checked = Checked(str(folder))
    manifest = manifests.read_manifest(
        Path(folder), FORMAT, checked, "It holds no save of a distributed model; save again"
    )
    checked.fits(
        manifest,
        {"version": int, "deltas": [[object]], "token": str, "checksums": [str]},
        "",
    )
    for entry in manifest["deltas"]:
        checked.same(len(entry), 2, "parts of an entry of 'deltas'")
        checked.fits(entry[0], (str, int), "deltas")
        checked.fits(entry[1], int, "deltas")
    if not re.fullmatch("[0-9a-f]{16}", manifest["token"]) or manifest["version"] < 0:
        raise checked.refuse("its files have no names")
    if not 1 <= len(manifest["checksums"]) <= np.iinfo(np.int16).max:
        raise checked.refuse(f"it is of {len(manifest['checksums'])} ranks")
    return manifest


class Save:
    """A save on disk, of which one file at a time is read.

    Args:
        folder: Where it is.
        model: The model that it belongs to.

    Attributes:
        size: The number of ranks that wrote it.
        committed: The version that it holds, and what goes with it.

    Raises:
        StateFileError: If the folder holds no save; later, if a file is cut off or damaged, or
            belongs to another model.
    """

    def __init__(self, folder: Folder, model: nn.Module) -> None:
        manifest = read_manifest(folder)
        self.size: int = len(manifest["checksums"])
        self.committed = RankCommitted(manifest["version"], dict(manifest["deltas"]))
        self._checksums, self._token = manifest["checksums"], manifest["token"]
        self._folder, self._model = folder, model

    def _read(self, rank: int) -> dict[str, Any]:
        path = _file(self._folder, rank, self.committed.version, self._token)
        checked = Checked(str(path))
        try:
            content = snapshot.read(path, self._checksums[rank])
        except FileNotFoundError as error:
            raise checked.refuse("the file is missing, which the manifest names") from error
        checked.fits(content.get("model"), str, "model")
        if content["model"] != fingerprint(self._model):
            raise StateFileError(
                f"'{path}' was saved for another model (or other parameters) than this "
                f"{type(self._model).__name__}; load the parameters that the model had, or start "
                "anew"
            )
        checked.fits(content, _PART, "")
        checked.same(content["version"], self.committed.version, "version")
        call = content["call"]
        relations = checked.call(call)
        sample_fits(checked, call.get("sample"), call)
        self._shard(checked, content, rank, self.size, None, call, relations)
        checked.same(len(content["out"]), len(content["out_kinds"]), "number of outputs")
        for kind, rows in zip(content["out_kinds"], content["out"], strict=True):
            checked.rows(rows, len(content["ids"].get(kind, ())), "an output")
        return content

    def _shard(
        self,
        checked: Checked,
        content: dict[str, Any],
        rank: int,
        size: int,
        owner: Mapping[str, Ranks] | None,
        call: Mapping[str, Any],
        relations: tuple[Relation, ...],
    ) -> Shard:
        """A shard of what a file holds, or several; all of it is checked."""
        if owner is None:
            owner = as_arrays(checked, content["owner"], torch.int16, "owners")
        checked.same(sorted(owner), sorted(call["num_nodes"]), "kinds of nodes")
        shard = Shard(
            rank, size, dict(owner), as_arrays(checked, content["ids"], torch.int64, "ids"),
            content["nodes"], content["edge_index"], content["edges"],
        )  # fmt: skip
        shard_fits(checked, shard, relations, call)
        return shard

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

    def part(self, rank: int, size: int, owner: Mapping[str, Ranks] | None) -> "SavedPart":
        """What one rank owns.

        Args:
            rank: The rank.
            size: The number of ranks now.
            owner: Who owns each node, if that has changed; the files are then read one after
                another.

        Raises:
            StateFileError: If a file is cut off, damaged, or does not hang together.
        """
        checked = Checked(str(self._folder))
        if owner is None:
            content = self._read(rank)
        else:
            content = _joined([_cut(content, rank, owner) for content in self._files()])
        call = content["call"]
        shard = self._shard(checked, content, rank, size, owner, call, relations_of(call))
        return SavedPart(checked, shard, call, content["out"], content["options"])


@dataclass(frozen=True)
class SavedPart:
    """What a save holds of one rank.

    Attributes:
        checked: What errors begin with.
        shard: What it owns.
        call: A description of the call.
        out: The outputs at its nodes.
        options: What the model computed besides its parameters.
    """

    checked: Checked
    shard: Shard
    call: dict[str, Any]
    out: list[Tensor]
    options: dict[str, Any]

    def refuse_other_outputs(self, part: Part, model: nn.Module) -> None:
        """See that the model computes what it computed when it was saved, up to rounding.

        Raises:
            StateFileError: If it does not.
        """
        changed = differences(self.options, options_of(model))
        outputs = pytree.tree_leaves(part.output(copy=False))
        self.checked.same(len(self.out), len(outputs), "number of outputs")
        for i, (then, now) in enumerate(zip(self.out, outputs, strict=True)):
            refuse_other(str(i), then, now, self.checked, changed)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What a rank owns now, of what it has found in all files."""
    first = parts[0]
    order = {k: torch.cat([p["ids"][k] for p in parts]).argsort() for k in first["ids"]}
    kinds = first["call"]["nodes"]
    return {
        "ids": {k: torch.cat([p["ids"][k] for p in parts])[at] for k, at in order.items()},
        "nodes": {
            k: torch.cat([p["nodes"][k] for p in parts])[order[kinds[k]]] for k in first["nodes"]
        },
        "edge_index": {
            k: torch.cat([p["edge_index"][k] for p in parts], 1) for k in first["edge_index"]
        },
        "edges": {
            graph: {k: torch.cat([p["edges"][graph][k] for p in parts]) for k in data}
            for graph, data in first["edges"].items()
        },
        "out": [
            torch.cat([p["out"][i] for p in parts])[order[kind]]
            for i, kind in enumerate(first["out_kinds"])
        ],
        "call": first["call"],
        "options": first["options"],
    }


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
        "out": [
            t[mine[kind]] for kind, t in zip(content["out_kinds"], content["out"], strict=True)
        ],
        **{key: content[key] for key in ("call", "options", "out_kinds")},
    }

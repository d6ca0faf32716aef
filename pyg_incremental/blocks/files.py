"""Rows and neighbour lists in a directory, and a manifest by which a killed evaluation goes on.

Every value is a `.npy` file, which NumPy reads, and which is removed when nobody reads it any more;
what stays are the outputs. The manifest is replaced as a whole after each block, when the rows of
the block are written: what it says is there is there, wherever the process was killed. It says of
each file which rows there are, and their checksum, which whoever goes on holds them against, so
that lost, cut off and changed files are refused; those of a machine that lost power, too.

One process at a time has a directory. Files that somebody may have mapped are not written to again:
new ones take their names.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.blocks.in_edges import InEdges
from pyg_incremental.blocks.kept import KeptRows, on_disk
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.schedule import Schedule
from pyg_incremental.encoding.whole_file import LockedFile, checksum_of
from pyg_incremental.errors import StateFileError
from pyg_incremental.program.steps import Domain, Program, Value
from pyg_incremental.session.options import differences, is_unknown

Ids = NDArray[np.int64]
MANIFEST = "manifest.json"
LOCK = "in_use.lock"
FORMAT = 2
_AT_ONCE = 1 << 24
_ADVICE = "choose another directory, or remove that one"


class _Written(NamedTuple):
    """What has been written to a file.

    Attributes:
        dtype: The dtype of the file, as NumPy calls it.
        shape: Its shape.
        rows: How many rows there are, in the order in which blocks take them.
        checksum: CRC-32 over these rows.
    """

    dtype: str
    shape: list[int]
    rows: int = 0
    checksum: int = 0


class Files(LayerStore):
    """Keeps rows and neighbour lists in a directory, which is this evaluation's until it leaves.

    Args:
        directory: The directory; it is made if it is not there.
        program: The program whose values are kept.
        about: What tells this evaluation from others, by name; one of the same may go on here.
        goes_on: Whether it goes on where one before was killed; else it begins anew, as it does if
            some step takes all rows, of which it is not known whether they are still there.

    Raises:
        StateFileError: If the directory holds another evaluation, one of which it cannot be told
            whether it is another, or is in use, or the manifest is damaged.
    """

    in_memory = False

    def __init__(
        self,
        directory: str | os.PathLike[str],
        program: Program,
        about: Mapping[str, Any],
        goes_on: bool,
    ) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._about = json.loads(json.dumps(about))
        self._layers = Schedule(program).layers
        self._names = {
            s.output: f"{i:03d}-{_plain(s.output.name)}.npy" for i, s in enumerate(program.steps)
        }
        outputs = program.outputs
        self._names |= {
            v: "out.npy" if len(outputs) == 1 else f"out_{i}.npy" for i, v in enumerate(outputs)
        }
        self._lists: list[Path] = []
        self._kept: dict[Value, KeptRows] = {}
        self._done: dict[str, int] = {}
        self._written: dict[str, _Written] = {}
        self._lock = LockedFile(self.directory / LOCK)
        if not self._lock.is_ours:
            raise StateFileError(
                f"'{self.directory}' is in use: another process or thread evaluates there; wait "
                "for it, or choose another directory"
            )
        try:
            whole = (v for layer in self._layers for s in layer.whole for v in s.inputs)
            self._begin(goes_on and all(v.domain is Domain.WHOLE for v in whole))
        except BaseException:
            self.leave()
            raise

    def _begin(self, goes_on: bool) -> None:
        """Take over what an evaluation before has left."""
        if (self.directory / MANIFEST).exists():
            held = _read(self.directory / MANIFEST)
            self._refuse_another(held["about"])
            if goes_on:
                self._done = held["rows"]
                self._written = {name: _Written(*w) for name, w in held["files"].items()}
        for name in {*self._names.values()} - self._written.keys():
            (self.directory / name).unlink(missing_ok=True)
        self._write()

    def _refuse_another(self, about: Mapping[str, Any]) -> None:
        unknown = [f"{name} {v}" for name, v in self._about.items() if is_unknown(v)]
        differ = differences(about, self._about) or unknown
        if not differ:
            return
        more = f"; and {len(differ) - 5} more" if len(differ) > 5 else ""
        hint = ""
        if any(d.startswith("order") for d in differ):
            hint = " (order='rcm' takes another one where memory= is too small for the graph)"
        raise StateFileError(
            f"'{self.directory}' holds another evaluation: {'; '.join(differ[:5])}{more}{hint}; "
            + _ADVICE
        )

    def _write(self) -> None:
        held = {
            "format": FORMAT, "about": self._about, "rows": self._done, "files": self._written,
        }  # fmt: skip
        beside = self.directory / f"{MANIFEST}.new"
        beside.write_text(json.dumps({**held, "checksum": checksum_of(held)}))
        os.replace(beside, self.directory / MANIFEST)

    def lists(self, key: Lists, make: Callable[[], InEdges]) -> InEdges:
        """Neighbour lists, written and read as they are."""
        made = make()
        parts = []
        for name in ("first", "neighbor", "edge"):
            path = self.directory / f"{_plain(key[0])}-{'out' if key[1] else 'in'}-{name}.npy"
            path.unlink(missing_ok=True)
            self._lists.append(path)
            np.save(path, getattr(made, name))
            parts.append(np.load(path, mmap_mode="r"))
        return InEdges(*parts)

    def held(self, edges: InEdges) -> int:
        """Nothing of them is in memory."""
        return 0

    def room(
        self, value: Value, like: Tensor, count: int, ids: Ids | None, at: Ids | None
    ) -> KeptRows:
        """A file with room for `count` rows of a value, of the dtype of `like`, `[n, ...]`.

        `ids` and `at`, int64 `[count]`, are as `KeptRows` takes them.

        Raises:
            OSError: If the disk is full.
        """
        path = self.directory / self._names[value]
        rows = on_disk(path, (count, *like.shape[1:]), like.dtype)
        self._written[path.name] = _Written(str(rows.numpy().dtype), list(rows.shape))
        self._kept[value] = KeptRows(rows, ids, path, at)
        return self._kept[value]

    def remove(self, value: Value, kept: KeptRows) -> None:
        """Let go of the rows of a value; first the manifest says so."""
        self._kept.pop(value, None)
        self._written.pop(self._names[value], None)
        self._write()
        super().remove(value, kept)

    def done(self, layer: int, kind: str) -> int | None:
        """How many rows an evaluation before has finished; None if there was none."""
        return self._done.get(_place(layer, kind))

    def found(self, value: Value, ids: Ids | None, at: Ids | None) -> KeptRows | None:
        """Rows that an evaluation before has left; None if nobody reads them any more.

        `ids` and `at`, int64 `[k]`, are as `KeptRows` takes them.

        Raises:
            StateFileError: If they are not as they were written.
        """
        path = self.directory / self._names[value]
        written = self._written.get(path.name)
        if written is None:
            return None
        kept = KeptRows(torch.from_numpy(_mapped(path, written)), ids, path, at)
        if _summed(kept, 0, written.rows, 0) != written.checksum:
            raise _damaged(path, "other rows than were written")
        self._kept[value] = kept
        return kept

    def finish(self, layer: int, kind: str, rows: int) -> None:
        """So many rows of a layer are there."""
        for value in self._layers[layer].kept:
            if value.kind != kind or value not in self._kept:
                continue
            before = self._written[self._names[value]]
            summed = _summed(self._kept[value], before.rows, rows, before.checksum)
            self._written[self._names[value]] = before._replace(rows=rows, checksum=summed)
        self._done[_place(layer, kind)] = rows
        self._write()

    def close(self) -> None:
        """All rows are there: only the outputs and the manifest stay."""
        for path in self._lists:
            path.unlink(missing_ok=True)
        self._lists.clear()

    def leave(self) -> None:
        """Nothing more is written, however it went; others may have the directory."""
        self._lock.release()


def _place(layer: int, kind: str) -> str:
    return f"{layer}/{kind}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def _read(manifest: Path) -> dict[str, Any]:
    """What a manifest says, held against its checksum."""
    try:
        held = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise StateFileError(
            f"'{manifest}' is not a manifest ({error}); remove the directory"
        ) from error
    if not isinstance(held, dict):
        raise StateFileError(f"'{manifest}' is not a manifest; remove the directory")
    if held.get("format") != FORMAT:
        raise StateFileError(
            f"'{manifest}' is of another version of this package, or damaged: {_ADVICE}"
        )
    if held.pop("checksum", None) != checksum_of(held):
        raise StateFileError(
            f"'{manifest}' is damaged: it does not match its checksum; remove the directory"
        )
    return held


def _mapped(path: Path, written: _Written) -> NDArray[Any]:
    """The array of a file, mapped into memory.

    Raises:
        StateFileError: If it is not the one that was made.
    """
    try:
        rows: NDArray[Any] = np.load(path, mmap_mode="r")
        rows = np.load(path, mmap_mode="r+") if rows.size else np.array(rows)
    except Exception as error:  # NumPy raises anything of what is no array
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    if (str(rows.dtype), list(rows.shape)) != (written.dtype, written.shape):
        raise _damaged(path, f"{rows.dtype} {list(rows.shape)}")
    return rows


def _summed(kept: KeptRows, first: int, last: int, checksum: int) -> int:
    """A checksum, carried on over rows in the order in which blocks take them."""
    for rows in _parts(kept, first, last):
        flat = rows.contiguous().reshape(-1)
        checksum = zlib.crc32(flat.view(torch.uint8).numpy().data, checksum)
    return checksum


def _parts(kept: KeptRows, first: int, last: int) -> Iterator[Tensor]:
    """Some rows, a few at a time."""
    wide = kept.rows.element_size() * kept.rows.shape[1:].numel()
    step = max(1, _AT_ONCE // max(wide, 1))
    for at in range(first, last, step) if wide else ():
        yield kept.written(at, min(at + step, last))


def _damaged(path: Path, how: str) -> StateFileError:
    return StateFileError(
        f"'{path}' is damaged since it was written ({how}); remove the directory '{path.parent}', "
        "and evaluate again"
    )

"""Rows and neighbour lists in a directory, and a manifest by which a killed evaluation goes on.

Every value is a `.npy` file, which NumPy reads, and which is removed when nobody reads it any more;
what stays are the outputs. The manifest is replaced as a whole after each block, when the rows of
the block are written: what it says is there is there, wherever the process was killed. A machine
that loses power may have written the one and not the other; evaluate anew then.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.blocks.in_edges import InEdges
from pyg_incremental.blocks.kept import Kept, on_disk
from pyg_incremental.blocks.shelf import Shelf
from pyg_incremental.errors import StateFileError
from pyg_incremental.program.steps import Program, Value

Ids = NDArray[np.int64]
MANIFEST = "manifest.json"
FORMAT = 1


class Files(Shelf):
    """Keeps rows and neighbour lists in a directory.

    Args:
        directory: The directory; it is made if it is not there.
        program: The program whose values are kept.
        about: What tells this evaluation from others; one of the same may go on here.
        goes_on: Whether it goes on where one before was killed; else it begins anew.

    Raises:
        StateFileError: If the directory holds another evaluation.
    """

    in_memory = False

    def __init__(
        self, directory: str | os.PathLike[str], program: Program, about: str, goes_on: bool
    ) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._about = about
        self._names = {
            s.output: f"{i:03d}-{_plain(s.output.name)}.npy" for i, s in enumerate(program.steps)
        }
        outputs = program.outputs
        self._names |= {
            v: "out.npy" if len(outputs) == 1 else f"out_{i}.npy" for i, v in enumerate(outputs)
        }
        self._lists: list[Path] = []
        self._done: dict[str, int] = {}
        manifest = self.directory / MANIFEST
        if manifest.exists():
            held = _read(manifest)
            if (held.get("format"), held.get("about")) != (FORMAT, about):
                raise StateFileError(
                    f"'{self.directory}' holds another evaluation (of other parameters, another "
                    "graph, other nodes, or another order of them, which order='rcm' takes where "
                    "memory= is too small for the graph); choose another directory, or remove that "
                    "one"
                )
            self._done = held["rows"] if goes_on else {}
        self._write()

    def _write(self) -> None:
        held = {"format": FORMAT, "about": self._about, "rows": self._done}
        beside = self.directory / f"{MANIFEST}.new"
        beside.write_text(json.dumps(held))
        os.replace(beside, self.directory / MANIFEST)

    def lists(self, key: Lists, make: Callable[[], InEdges]) -> InEdges:
        """Neighbour lists, written and read as they are."""
        made = make()
        parts = []
        for name in ("first", "neighbor", "edge"):
            path = self.directory / f"{_plain(key[0])}-{'out' if key[1] else 'in'}-{name}.npy"
            np.save(path, getattr(made, name))
            self._lists.append(path)
            parts.append(np.load(path, mmap_mode="r"))
        return InEdges(*parts)

    def held(self, edges: InEdges) -> int:
        """Nothing of them is in memory."""
        return 0

    def room(self, value: Value, like: Tensor, count: int, ids: Ids | None, at: Ids | None) -> Kept:
        """A file with room for `count` rows of a value, of the dtype of `like`, `[n, ...]`.

        `ids` and `at`, int64 `[count]`, are as `Kept` takes them.
        """
        path = self.directory / self._names[value]
        return Kept(on_disk(path, (count, *like.shape[1:]), like.dtype), ids, path, at)

    def done(self, layer: int, kind: str) -> int | None:
        """How many rows an evaluation before has finished; None if there was none."""
        return self._done.get(_place(layer, kind))

    def found(self, value: Value, ids: Ids | None, at: Ids | None) -> Kept | None:
        """Rows that an evaluation before has left; None if nobody reads them any more.

        `ids` and `at`, int64 `[k]`, are as `Kept` takes them.
        """
        path = self.directory / self._names[value]
        if not path.exists():
            return None
        rows = np.load(path, mmap_mode="r")
        rows = np.load(path, mmap_mode="r+") if rows.size else np.array(rows)
        return Kept(torch.from_numpy(rows), ids, path, at)

    def finish(self, layer: int, kind: str, rows: int) -> None:
        """So many rows of a layer are there."""
        self._done[_place(layer, kind)] = rows
        self._write()

    def close(self) -> None:
        """All rows are there: only the outputs and the manifest stay."""
        for path in self._lists:
            path.unlink(missing_ok=True)
        self._lists.clear()


def _place(layer: int, kind: str) -> str:
    return f"{layer}/{kind}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def _read(manifest: Path) -> dict[str, Any]:
    try:
        held: dict[str, Any] = json.loads(manifest.read_text())
    except ValueError as error:
        raise StateFileError(
            f"'{manifest}' is not a manifest ({error}); remove the directory"
        ) from error
    return held


def checksum(parts: Iterable[Any]) -> str:
    """A checksum of texts and of tensors, dtype, shape and bytes."""
    found = 0
    for part in parts:
        if isinstance(part, Tensor):
            found = zlib.crc32(f"{part.dtype}{list(part.shape)}".encode(), found)
            rows = part.detach().cpu().contiguous()
            line = rows.as_strided((rows.numel(),), (1,))  # of one or none the step may be zero
            found = zlib.crc32(line.view(torch.uint8).numpy().data, found)
        else:
            found = zlib.crc32(str(part).encode(), found)
    return f"{found:08x}"

"""Rows on disk, by table and node, in a RocksDB of their own (the `disk` extra)."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Bytes = NDArray[np.uint8]
PREFIX = "samples-"
"""How the names of folders for rows begin."""
_BUFFER = 4 << 20
"""Bytes that RocksDB gathers in memory before it writes a file."""


@dataclass
class DiskTraffic:
    """What went to the disk and came back: rows and their bytes."""

    rows_written: int = 0
    rows_read: int = 0
    bytes_written: int = 0
    bytes_read: int = 0


class DiskTable:
    """Rows of bytes on disk; they are gone with this object.

    Nothing is flushed for safety: what is here is a copy of what can be made again.

    Args:
        directory: The folder in which a folder is made for the rows; the system's for temporary
            files by default.

    Attributes:
        traffic: What was written and read so far.

    Raises:
        ImportError: If rocksdict is not installed.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        try:
            import rocksdict
        except ImportError as error:
            raise ImportError(
                "memory: rows beyond it go to disk by rocksdict, which is not installed; "
                "pip install 'pyg-incremental[disk]', or leave memory out"
            ) from error
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=directory)
        options = rocksdict.Options(raw_mode=True)  # bytes as they are: nothing is pickled
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER)
        self._rows: Any = rocksdict.Rdict(folder, options)
        unsafe: Any = rocksdict.WriteOptions()  # its stubs take the property for a method
        unsafe.disable_wal = True
        self._rows.set_write_options(unsafe)
        self._batch = rocksdict.WriteBatch
        self.traffic = DiskTraffic()
        self._gone = weakref.finalize(self, _remove, self._rows, folder)

    def write(self, table: int, nodes: Ids, rows: Bytes) -> None:
        """Store the rows of some nodes, uint8 `[k, row_bytes]`, in the place of those before."""
        batch = self._batch(raw_mode=True)
        for key, row in zip(_keys(table, nodes), rows, strict=True):
            batch.put(key, row.tobytes())
        self._rows.write(batch)
        self.traffic.rows_written += nodes.size
        self.traffic.bytes_written += rows.size

    def read(self, table: int, nodes: Ids) -> Bytes:
        """The rows of some nodes that are here, uint8 `[k, row_bytes]`."""
        found = np.frombuffer(b"".join(self._rows[_keys(table, nodes)]), np.uint8)
        self.traffic.rows_read += nodes.size
        self.traffic.bytes_read += found.size
        return found.reshape(nodes.size, found.size // max(1, nodes.size))

    def delete(self, table: int, nodes: Ids) -> None:
        """Forget the rows of some nodes, int64 `[k]`."""
        batch = self._batch(raw_mode=True)
        for key in _keys(table, nodes):
            batch.delete(key)
        self._rows.write(batch)

    def close(self) -> None:
        """Remove all rows from the disk."""
        self._gone()


def _keys(table: int, nodes: Ids) -> list[bytes]:
    head = bytes([table])
    return [head + node.to_bytes(8, "big") for node in nodes.tolist()]


def _remove(rows: Any, folder: str) -> None:
    rows.close()
    shutil.rmtree(folder, ignore_errors=True)

"""Files that are mapped into memory, and that have their room on the disk from the beginning.

A map of a file with holes is written to where the disk has no room: the system then ends the
process by a signal. What has its room raises when it is made.
"""

import errno
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_NOT_KNOWN = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def allocate(file: IO[bytes], size: int) -> None:
    """Give a file a size in bytes, all of it on the disk, where the system can do that.

    Raises:
        OSError: If the disk is full.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise
    file.truncate(size)


def new_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A memory map, `shape`, of a new `.npy` file of zeros.

    Whoever has a map of a file that was there keeps it: that file loses its name only.

    Raises:
        OSError: If the disk is full. The file is gone then.
    """
    path.unlink(missing_ok=True)
    made = np.dtype(dtype)
    header = {
        "descr": np.lib.format.dtype_to_descr(made), "fortran_order": False, "shape": shape,
    }  # fmt: skip
    size = made.itemsize
    for count in shape:
        size *= count
    try:
        with open(path, "xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
            allocate(file, file.tell() + size)
        if not size:
            return np.load(path)  # type: ignore[no-any-return]
        return np.lib.format.open_memmap(path, mode="r+")
    except OSError:
        path.unlink(missing_ok=True)
        raise

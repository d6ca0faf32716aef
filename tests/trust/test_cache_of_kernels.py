"""Compiled kernels are kept where that is possible, and only for sources that they come from."""

import os
import shutil
from pathlib import Path

import pytest

import pyg_incremental
from tests.processes import run_script

PACKAGE = Path(pyg_incremental.__file__).parent
SMALL = """
import warnings
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    import pyg_incremental
    from pyg_incremental.kernels import adjacency
import numpy as np
said = [str(w.message) for w in heard if "kept" in str(w.message)]
print(len(said), adjacency.out_of_range(np.arange(3), 2), adjacency.more_room(8))
print(dict(adjacency.more_room.stats.cache_hits), dict(adjacency.out_of_range.stats.cache_hits))
"""


def run(folder, **env):
    return run_script(SMALL, folder, folder.parent, **env)[0].splitlines()


@pytest.fixture
def copy(tmp_path):
    """The package in a folder of its own, nothing compiled yet."""
    target = tmp_path / "package"
    shutil.copytree(
        PACKAGE, target / "pyg_incremental", ignore=shutil.ignore_patterns("__pycache__")
    )
    return target


@pytest.mark.slow
def test_a_changed_source_makes_all_kernels_anew(copy):
    """`out_of_range` stands in another file than the one that changes."""
    first = run(copy)
    again = run(copy)
    assert first[0] == again[0] == "0 2 12"
    assert first[1].endswith("{}")
    assert not again[1].endswith("{}"), "nothing was kept"
    layout = copy / "pyg_incremental/kernels/compiled/layout.py"
    before = layout.stat()
    layout.write_text(layout.read_text() + "\n# another layout\n")
    os.utime(layout, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(copy)[1].endswith("{}"), "kernels of other sources were taken"
    kept = list(copy.rglob("adjacency.out_of_range*.nbi"))
    assert len(kept) == 1, "what was kept of other sources is still there"


@pytest.mark.slow
def test_without_a_folder_to_write_to(copy, tmp_path):
    """A file stands where each folder would be made; that stops even the superuser."""
    for folder in [p.parent for p in copy.rglob("*.py")]:
        (folder / "__pycache__").touch()
    nowhere = tmp_path / "nowhere"
    nowhere.touch()
    env = {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere / "cache"), "NUMBA_CACHE_DIR": ""}
    assert run(copy, **env)[0] == "1 2 12"

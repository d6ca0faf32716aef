"""Compiled kernels are kept where that is possible, and only for sources that they come from."""

import multiprocessing
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core.caching import IndexDataCacheFile

import pyg_incremental
from pyg_incremental.kernels import kept
from pyg_incremental.kernels.jit import njit
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
    env = {"NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(folder.parent / "cache"), **env}
    return run_script(SMALL, folder, folder.parent, **env)[0].splitlines()


@pytest.fixture
def copy(tmp_path):
    """The package in a folder of its own, nothing compiled yet."""
    return copied_to(tmp_path / "package")


def copied_to(target):
    shutil.copytree(
        PACKAGE, target / "pyg_incremental", ignore=shutil.ignore_patterns("__pycache__")
    )
    return target


@pytest.mark.slow
def test_a_changed_source_makes_all_kernels_anew(copy, tmp_path):
    """`out_of_range` stands in another file than the one that changes."""
    first = run(copy)
    again = run(copy)
    other = run(copied_to(tmp_path / "another environment"))
    assert first[0] == again[0] == other[0] == "0 2 12"
    assert first[1].endswith("{}")
    assert not again[1].endswith("{}"), "nothing was kept"
    assert again[1] == other[1], "the same package in another place has the same kernels"
    assert not [*copy.rglob("*.nb[ic]")], "they would outlive the package"
    layout = copy / "pyg_incremental/kernels/compiled/layout.py"
    before = layout.stat()
    layout.write_text(layout.read_text() + "\n# another layout\n")
    os.utime(layout, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run(copy)[1].endswith("{}"), "kernels of other sources were taken"
    layout.write_text(layout.read_text().removesuffix("\n# another layout\n"))
    assert run(copy) == again, "what was kept of other sources is theirs still"


def test_kernels_are_made_of_their_own_room_and_of_what_lies_below(copy, monkeypatch):
    package = copy / "pyg_incremental"
    monkeypatch.setattr(kept, "PACKAGE", package)
    places = ("kernels/adjacency.py", "distributed/placement/ldg.py", "sampling/kernels/rows.py")

    def of_each():
        kept._sources.cache_clear()
        return [kept.sources(package / place) for place in places]

    def changed_by(file):
        before = of_each()
        (package / file).write_text((package / file).read_text() + "\n")
        return [one != other for one, other in zip(before, of_each(), strict=True)]

    assert changed_by("kernels/pairs.py") == [True, True, True]
    assert changed_by("distributed/model.py") == [False, True, False]
    assert changed_by("sampling/kernels/keys.py") == [False, False, True]
    assert changed_by("sampling/sampler.py") == changed_by("model.py") == [False] * 3
    kept._sources.cache_clear()


def double(rows):
    return rows * 2


def compiled_for(dtype):
    """Compile `double`; what is on disk is read some time before it is written."""
    load = IndexDataCacheFile._load_index

    def load_slowly(self):
        found = load(self)
        time.sleep(0.2)
        return found

    IndexDataCacheFile._load_index = load_slowly
    njit()(double)(np.ones(1, dtype))


def test_two_processes_that_compile_one_kernel_keep_both(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "root", lambda: tmp_path)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=compiled_for, args=(d,)) for d in (np.float32, np.int64)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    for dtype in (np.float32, np.int64):
        again = njit()(double)
        assert again(np.full(1, 3, dtype)).dtype == dtype
        assert sum(again.stats.cache_hits.values()) == 1, "compiled again"


@pytest.mark.slow
def test_without_a_folder_to_write_to(copy, tmp_path):
    """A file stands where the folder would be made; that stops even the superuser."""
    nowhere = tmp_path / "nowhere"
    nowhere.touch()
    assert run(copy, XDG_CACHE_HOME=str(nowhere / "cache"))[0] == "1 2 12"

"""Directories of evaluations that were damaged, that two want at once, or whose disk is full."""

import copy
import errno
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from pyg_incremental import StateFileError, evaluate
from pyg_incremental.blocks.block import Block
from pyg_incremental.blocks.files import MANIFEST
from tests.blocks.test_evaluate import CHANNELS, GraphSAGE, full, graph, model_of
from tests.blocks.test_files import killed_after
from tests.closeness import assert_close
from tests.processes import ROOT, run_script


def run(model, data, directory):
    return evaluate(model, data, directory=directory, memory=60_000, progress=False)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 3] ^= 0x40
    path.write_bytes(data)


def flip_the_last(path):
    """The last byte that an evaluation has written: rows from there on are zeros."""
    data = bytearray(path.read_bytes())
    data[max(i for i, byte in enumerate(data) if byte)] ^= 0x40
    path.write_bytes(data)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def turn(path):
    """The same size and head; the rows have changed places."""
    rows = np.load(path)
    np.save(path, np.roll(rows, 1, axis=0))


DAMAGE = {
    "flipped": flip,
    "flipped at the end": flip_the_last,
    "cut": cut,
    "cut to the head": lambda path: os.truncate(path, 130),
    "empty": lambda path: path.write_bytes(b""),
    "lost": lambda path: path.unlink(),
    "of integers": lambda path: np.save(path, np.load(path).astype(np.int64)),
    "of other rows": lambda path: np.save(path, np.load(path)[1:]),
    "turned": turn,
    "no array": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + bytes(range(256)) * 9),
}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A model, a graph, and its evaluation: finished, and cut off after 3 and 12 blocks."""
    data, model = graph(0), model_of(GraphSAGE, 3)
    folder = tmp_path_factory.mktemp("evaluation")
    run(model, data, folder / "finished")
    for blocks in (3, 12):
        with pytest.MonkeyPatch.context() as patch:
            killed_after(
                blocks, patch, lambda blocks=blocks: run(model, data, folder / f"{blocks}")
            )
    return model, data, folder


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_result_is_refused(how, case, tmp_path):
    model, data, folder = case
    shutil.copytree(folder / "finished", tmp_path / "rows")
    DAMAGE[how](tmp_path / "rows" / "out.npy")
    with pytest.raises(StateFileError, match=r"out\.npy' is damaged since it was written"):
        run(model, data, tmp_path / "rows")


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("blocks", [3, 12])
def test_damaged_in_the_middle(blocks, how, case, tmp_path):
    """What is read again is refused, and what is not is of no effect."""
    model, data, folder = case
    done = json.loads((folder / f"{blocks}" / MANIFEST).read_text())["files"]
    assert done
    refused = 0
    for number, name in enumerate(done):
        rows = tmp_path / f"{number}"
        shutil.copytree(folder / f"{blocks}", rows)
        DAMAGE[how](rows / name)
        try:
            assert_close(run(model, data, rows), full(model, data))
        except StateFileError:
            refused += 1
    assert refused or "flipped" in how  # it may be behind the rows that are finished


@pytest.mark.parametrize(
    "text", ["[]", "{}", "null", "3", '"rows"', "", "{", "[[", '{"format": 2}', '{"format": 1}']
)
def test_what_is_no_manifest_is_refused(text, case, tmp_path):
    model, data, folder = case
    shutil.copytree(folder / "finished", tmp_path / "rows")
    (tmp_path / "rows" / MANIFEST).write_text(text)
    with pytest.raises(StateFileError, match="manifest"):
        run(model, data, tmp_path / "rows")


@pytest.mark.parametrize("blocks", ["finished", "12"])
def test_every_byte_of_a_manifest_counts(blocks, case, tmp_path):
    model, data, folder = case
    shutil.copytree(folder / blocks, tmp_path / "rows")
    path = tmp_path / "rows" / MANIFEST
    held = path.read_text()
    for old, new in (('"rows": {"', '"rows": {"9'), ('"format": 2', '"format": 2.5')):
        assert old in held
        path.write_text(held.replace(old, new, 1))
        with pytest.raises(StateFileError, match="damaged"):
            run(model, data, tmp_path / "rows")
    path.write_text(held)
    assert_close(run(model, data, tmp_path / "rows"), full(model, data))


# Two at once ######################################################################################


def test_one_at_a_time(seed, tmp_path, monkeypatch):
    """Another one is refused, of this process or of another; it goes on behind the first."""
    data, model, compute, said = graph(seed), model_of(GraphSAGE), Block.run, []

    def meanwhile(self, *args):
        if not said:
            with pytest.raises(StateFileError, match="in use: another process") as error:
                run(model, data, tmp_path)
            said.append(str(error.value))
            child = os.fork()
            if not child:
                try:
                    run(model, data, tmp_path)
                except StateFileError:
                    os._exit(7)
                finally:
                    os._exit(1)
            said.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return compute(self, *args)

    monkeypatch.setattr(Block, "run", meanwhile)
    assert_close(run(model, data, tmp_path), full(model, data))
    assert said[1:] == [7]
    assert_close(run(model, data, tmp_path), full(model, data))
    assert {path.name for path in tmp_path.iterdir()} == {"out.npy", MANIFEST}


def test_who_dies_lets_go(seed, tmp_path, monkeypatch):
    data, model = graph(seed), model_of(GraphSAGE)
    child = os.fork()
    if not child:
        with monkeypatch.context() as patch:
            patch.setattr(Block, "run", lambda *args: os.kill(os.getpid(), signal.SIGKILL))
            run(model, data, tmp_path)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (tmp_path / MANIFEST).exists()
    assert_close(run(model, data, tmp_path), full(model, data))


def test_an_error_lets_go(seed, tmp_path, monkeypatch):
    data, model = graph(seed), model_of(GraphSAGE)
    with monkeypatch.context() as patch:
        patch.setattr(Block, "run", lambda *args: 1 // 0)
        with pytest.raises(ZeroDivisionError) as error:
            run(model, data, tmp_path)
    assert_close(run(model, data, tmp_path), full(model, data))
    del error


def test_rows_that_somebody_reads_are_not_written_to(seed, tmp_path):
    """What begins anew, as a model does that takes all rows, makes new files."""
    data = graph(seed)
    order = data.edge_index[1].argsort(stable=True)
    data.edge_index = data.edge_index[:, order]
    model = SAGEConv(CHANNELS, 3, aggr="lstm").double().eval()
    before = run(model, data, tmp_path)
    want = before.clone()
    with open(tmp_path / "out.npy", "rb") as file:
        again = run(model, data, tmp_path)
        assert os.fstat(file.fileno()).st_nlink == 0
    before.zero_()
    assert_close(again, want)


# Full disks #######################################################################################


def test_rows_have_their_room_on_the_disk(seed, tmp_path, monkeypatch):
    """A file with holes is written to where there may be no room: the process dies of it."""
    data, model, compute, seen = graph(seed, 2000, 8000), model_of(GraphSAGE), Block.run, []

    def meanwhile(self, *args):
        for path in tmp_path.glob("*.npy"):
            about = path.stat()
            seen.append(about.st_blocks * 512 >= about.st_size)
        return compute(self, *args)

    monkeypatch.setattr(Block, "run", meanwhile)
    run(model, data, tmp_path)
    assert len(seen) > 20
    assert all(seen)


def test_on_a_full_disk_it_raises_and_goes_on_later(seed, tmp_path, monkeypatch):
    data, model, allocate = graph(seed), model_of(GraphSAGE, 3), os.posix_fallocate
    left = [120_000]

    def little(handle, offset, size):
        left[0] -= size
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(handle, offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", little)
        with pytest.raises(OSError, match="No space left") as error:
            run(model, data, tmp_path)
    assert error.value.errno == errno.ENOSPC
    done = json.loads((tmp_path / MANIFEST).read_text())["rows"]
    assert sum(done.values())
    assert_close(run(model, data, tmp_path), full(model, data))


ON_A_SMALL_DISK = """
import sys, torch
from pyg_incremental import evaluate
from tests.blocks.test_evaluate import graph, model_of
data, model = graph(0, 4000, 9000), model_of()
try:
    evaluate(model, data, directory=sys.argv[1], memory=600_000, progress=False)
except OSError as error:
    print(error.errno)
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid(), reason="root makes a small disk")
@pytest.mark.more
def test_a_disk_that_is_too_small(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.system(f"mount -t tmpfs -o size=400k tmpfs {folder}"):
        pytest.skip("nothing can be mounted here")
    try:
        out, err = run_script(ON_A_SMALL_DISK, ROOT, tmp_path, folder / "rows")
        assert int(out) == errno.ENOSPC, err
    finally:
        os.system(f"umount {folder}")


def test_a_result_that_was_written_to_is_refused(seed, tmp_path):
    """What is returned is a map of the file."""
    data, model = graph(seed), model_of(GraphSAGE)
    run(model, data, tmp_path)[3] += 1
    with pytest.raises(StateFileError, match="damaged"):
        run(copy.deepcopy(model), data, tmp_path)


def test_an_order_and_some_nodes(seed, tmp_path, monkeypatch):
    """Rows that are not written in the order of their ids have a checksum all the same."""
    data, model = graph(seed), model_of(GraphSAGE)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    nodes = torch.arange(0, data.num_nodes, 3)

    def ordered(directory):
        return evaluate(
            model, data, directory=directory, memory=60_000, order=order, nodes=nodes
        )  # fmt: skip

    killed_after(6, monkeypatch, lambda: ordered(tmp_path))
    assert_close(ordered(tmp_path), full(model, data)[nodes])
    assert_close(ordered(tmp_path), full(model, data)[nodes])
    flip(tmp_path / "out.npy")
    with pytest.raises(StateFileError, match="damaged"):
        ordered(tmp_path)

"""The first minute on a new machine: nothing waits for a compiler, and kernels are kept."""

import os
import threading
from pathlib import Path

import pytest

from pyg_incremental import __main__ as command
from pyg_incremental import kernels
from pyg_incremental.kernels import kept
from tests.processes import ROOT, run_script

FIRST_UPDATES = """
import torch
from numba.core import event
from torch_geometric.nn import GAT, GCN, GraphSAGE

from pyg_incremental import to_incremental
from pyg_incremental.kernels import adjacency, takeover


class Compiled(event.Listener):
    times = 0

    def on_start(self, event):
        Compiled.times += 1

    def on_end(self, event):
        pass


event.register("numba:compile", Compiled())
Process, takeover.Process = takeover.Process, takeover.Maker
torch.manual_seed(0)
torch.set_num_threads(1)
models = [GCN(8, 8, 2, 3), GraphSAGE(8, 8, 2, 3, aggr=["mean", "max"]), GAT(8, 8, 2, 4, heads=2)]
for model in models:
    inc = to_incremental(model.eval(), compile_after=2)
    edges = torch.randint(60, (2, 200))
    inc(torch.randn(60, 8), edges)
    inc.apply_delta(edge_index_add=torch.randint(60, (2, 3)), edge_index_del=edges[:, :40])
    inc.apply_delta(x_add=torch.randn(2, 8), edge_index_add=torch.tensor([[60, 1], [2, 61]]))
    inc.apply_delta(x_changes=(torch.arange(50), torch.randn(50, 8)))
    inc.apply_delta(nodes_del=torch.tensor([4, 7]))
    assert inc.verify() < 1e-5 and inc.backend == "reference", inc
print(Compiled.times, "compiled here")

kernel, process = adjacency.more_room, Process()
assert process.ask((kernel.py_func.__module__, "more_room", (takeover.typeof(3),)))
process.wait()
process.poll()
assert not process.failed and not process.asked
assert not process.ask(("float32", "loop")), "it has ended"
for _, found in process.made:
    for entry, code in found:
        takeover.put(entry, code)
print(kernel(8), Compiled.times, "compiled here,", len(kernel.overloads), "loaded")
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_no_update_compiles_anything(tmp_path):
    """With an empty folder for kernels; then another process compiles one, which is loaded."""
    kernels, printed = tmp_path / "kernels", tmp_path
    kernels.mkdir()
    out, err = run_script(FIRST_UPDATES, ROOT, printed, NUMBA_CACHE_DIR=str(kernels))
    assert out.splitlines() == ["0 compiled here", "12 0 compiled here, 1 loaded"]
    assert "plain torch kernels serve" in err


@pytest.fixture
def anew(monkeypatch):
    """Where kernels are kept is asked anew."""
    kept.root.cache_clear()
    yield
    monkeypatch.undo()
    kept.root.cache_clear()


def only(monkeypatch, *folders):
    """Nothing but these can be written to."""
    monkeypatch.setattr(kept, "_can_be_written", lambda folder: Path(folder) in folders)


def test_a_folder_of_the_user_and_nothing_beside_the_package(anew, monkeypatch, tmp_path):
    monkeypatch.setattr(kept.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept.root() == tmp_path / "pyg_incremental"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    kept.root.cache_clear()
    assert kept.root() == tmp_path / ".cache" / "pyg_incremental"


def test_a_named_folder_comes_first(anew, monkeypatch, tmp_path):
    monkeypatch.setattr(kept.config, "CACHE_DIR", str(tmp_path))
    assert kept.root() == tmp_path / "pyg_incremental"
    assert not kept.is_complete("float32")
    kept.folder_of(kept.__file__)
    for kind in kept.KINDS:
        assert not kept.is_complete("float32")
        kept.is_now_complete("float32", kind)
        assert kept.is_complete("float32", kind)
    assert kept.is_complete("float32")
    assert not kept.is_complete("float64")
    only(monkeypatch)
    kept.root.cache_clear()
    assert kept.root() == tmp_path / "pyg_incremental", (
        "it has all kernels, and cannot be written to any more"
    )


def test_two_processes_that_start_at_once_compile_once(anew, monkeypatch, tmp_path):
    """The second one waits for the first, and then finds everything there."""
    pytest.importorskip("fcntl")
    monkeypatch.setattr(kept.config, "CACHE_DIR", str(tmp_path))
    kept.folder_of(kept.__file__)
    order = []

    def second():
        with kept.alone("float32"):
            order.append("second")

    with kept.alone("float32"), kept.alone("float64"):  # each may be another one's
        other = threading.Thread(target=second)
        other.start()
        other.join(0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_the_command(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(kernels, "warm_up", lambda *dtypes: asked.append(dtypes) or 1.5)
    monkeypatch.setattr(kept, "is_complete", lambda dtype: True)
    assert command.main(["warm-up"]) == 0
    assert command.main(["warm-up", "--dtype", "float32"]) == 0
    assert asked == [("float32", "float64"), ("float32",)]
    assert "kernels for float32 ready" in capsys.readouterr().out
    monkeypatch.setattr(kept, "is_complete", lambda dtype: False)
    assert command.main(["warm-up"]) == 1
    assert "could not be kept" in capsys.readouterr().err


def test_the_command_clears_what_is_kept_and_nothing_else(anew, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(kept.config, "CACHE_DIR", str(tmp_path))
    of_others = tmp_path / "another_package" / "kernel.nbi"
    of_others.parent.mkdir()
    of_others.write_text("theirs")
    folder = kept.root()
    assert command.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: 0.0 MB kept\n"
    (folder / "kernels").mkdir()
    (folder / "kernels" / "of an earlier version.nbc").write_bytes(bytes(1_200_000))
    (folder / "README.md").write_text("a clone of the project stands in the folder that is named")
    assert command.main(["cache"]) == 0
    assert command.main(["cache", "--clear"]) == 0
    assert command.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}: {said}" for said in ("1.2 MB kept", "1.2 MB deleted", "0.0 MB deleted")
    ]
    assert {*tmp_path.iterdir()} == {of_others.parent, folder}
    assert of_others.exists()
    assert [*folder.iterdir()] == [folder / "README.md"]
    kept.folder_of(kept.__file__)
    assert folder.is_dir(), "what is compiled next is kept again"

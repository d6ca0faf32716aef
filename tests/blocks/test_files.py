"""Evaluation in a directory: what is in it, killed evaluations, and a limit of the system."""

import json
import sys

import numpy as np
import pytest
import torch

from pyg_incremental import StateFileError, evaluate
from pyg_incremental.blocks.block import Block
from pyg_incremental.blocks.files import MANIFEST, Files
from tests.blocks.test_evaluate import GAT, GCN, Data, GraphSAGE, full, graph, model_of
from tests.closeness import assert_close
from tests.processes import ROOT, run_script

MEMORY = 300_000


@pytest.mark.parametrize("make", [GCN, GAT, GraphSAGE])
def test_equal_to_the_model(make, seed, tmp_path):
    data, model = graph(seed, 1000, 6000), model_of(make)
    got = evaluate(model, data, directory=tmp_path, memory=MEMORY)
    assert_close(got, full(model, data))
    assert {path.name for path in tmp_path.iterdir()} == {"out.npy", MANIFEST}
    assert np.array_equal(np.load(tmp_path / "out.npy"), got.numpy())


def test_some_nodes(seed, tmp_path):
    data, model = graph(seed), model_of()
    ids = torch.tensor([7, 3, 7])
    got = evaluate(model, data, nodes=ids, directory=tmp_path)
    assert_close(got, full(model, data)[ids])
    assert len(np.load(tmp_path / "out.npy")) == 2


def test_no_nodes_at_all(seed, tmp_path):
    data, model = graph(seed), model_of()
    for _ in range(2):  # the second one reads what the first has left
        assert evaluate(model, data, nodes=[], directory=tmp_path).shape == (0, 3)


def test_features_in_a_memory_map(seed, tmp_path):
    data, model = graph(seed), model_of()
    np.save(tmp_path / "x.npy", data.x.numpy())
    np.save(tmp_path / "edge_index.npy", data.edge_index.numpy())
    mapped = Data(
        x=torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r+")),
        edge_index=torch.from_numpy(np.load(tmp_path / "edge_index.npy", mmap_mode="r+")),
    )
    assert_close(evaluate(model, mapped, directory=tmp_path / "rows"), full(model, data))


class Killed(BaseException):
    """Nothing of the package runs behind it."""


def killed_after(blocks, monkeypatch, call):
    """Run `call`, cut off at the end of the block behind so many; returns what was done."""
    done = {}

    def cut(self, layer, kind, rows):
        if blocks == cut.count:
            raise Killed
        cut.count += 1
        done[f"{layer}/{kind}"] = rows
        finish(self, layer, kind, rows)

    cut.count, finish = 0, Files.finish
    with monkeypatch.context() as patch:
        patch.setattr(Files, "finish", cut)
        with pytest.raises(Killed):
            call()
    return done


def rows_computed(monkeypatch, call):
    """How many rows of all layers a call computes, in how many blocks, and what it returns."""
    sizes, run = [], Block.run

    def counting(self, *args):
        sizes.append(len(self._ids))
        return run(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Block, "run", counting)
        result = call()
    return sum(sizes), len(sizes), result.clone()


def test_a_killed_evaluation_goes_on(seed, tmp_path, monkeypatch):
    """Wherever it is cut: of what was finished, nothing is computed again."""
    data, model = graph(seed, 1000, 6000), model_of(GraphSAGE)

    def run(directory):
        return evaluate(model, data, directory=tmp_path / directory, memory=120_000)

    rows, total, want = rows_computed(monkeypatch, lambda: run("whole"))
    assert total >= 8
    assert_close(want, full(model, data))
    for blocks in range(total):
        name = f"after-{blocks}"
        done = killed_after(blocks, monkeypatch, lambda name=name: run(name))
        assert json.loads((tmp_path / name / MANIFEST).read_text())["rows"] == done
        left, _, got = rows_computed(monkeypatch, lambda name=name: run(name))
        assert left == rows - sum(done.values())
        assert_close(got, want, 1e-12)
        assert {path.name for path in (tmp_path / name).iterdir()} == {"out.npy", MANIFEST}


def test_a_finished_evaluation_is_read(seed, tmp_path):
    data, model = graph(seed), model_of()
    want = evaluate(model, data, directory=tmp_path).clone()
    (tmp_path / "out.npy").touch()
    got = evaluate(model, data, directory=tmp_path)
    assert torch.equal(got, want)


def test_another_evaluation_is_refused(seed, tmp_path):
    data, model = graph(seed), model_of()
    evaluate(model, data, directory=tmp_path)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    with pytest.raises(StateFileError, match="holds another evaluation"):
        evaluate(model, data, directory=tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(StateFileError, match="is not a manifest"):
        evaluate(model, data, directory=tmp_path)


def test_what_does_not_fit_beside_a_directory_is_sent_to_none(seed, tmp_path):
    data = graph(seed)
    data.edge_index = torch.stack([torch.arange(400), torch.zeros(400, dtype=torch.long)])
    with pytest.raises(MemoryError, match="or a directory in which rows"):
        evaluate(model_of(), data, memory=10_000)
    with pytest.raises(MemoryError, match=r"are 8,400 left; give more$"):
        evaluate(model_of(), data, memory=10_000, directory=tmp_path)


LIMITED = """
import resource, sys
import numpy as np, torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from pyg_incremental import evaluate

folder, extra = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
model = GraphSAGE(64, 64, num_layers=2, out_channels=64).eval()
rows = [torch.from_numpy(np.load(f"{folder}/{n}.npy", mmap_mode="r+")) for n in ("x", "edge_index")]
data = Data(x=rows[0], edge_index=rows[1])
small = Data(x=torch.randn(50, 64), edge_index=torch.randint(50, (2, 99)))
evaluate(model, small, progress=False)  # what is loaded and compiled once
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + extra, used + extra))
try:
    with torch.no_grad():
        model(data.x, data.edge_index)
except (MemoryError, RuntimeError):
    print("refused")
evaluate(model, data, memory=extra // 4, directory=f"{folder}/rows", progress=False)
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is one of Linux")
@pytest.mark.unmeasured
def test_within_a_limit_of_the_system(tmp_path):
    """The system refuses more: a full pass fails under a limit in which ours runs."""
    rng = np.random.default_rng(0)
    nodes, edges, limit = 100_000, 300_000, 64 << 20
    np.save(tmp_path / "x.npy", rng.standard_normal((nodes, 64), np.float32))
    np.save(tmp_path / "edge_index.npy", rng.integers(0, nodes, (2, edges)))
    out, err = run_script(LIMITED, ROOT, tmp_path, tmp_path, limit)
    assert out.split() == ["refused", "done"], err
    assert np.load(tmp_path / "rows" / "out.npy", mmap_mode="r").shape == (nodes, 64)

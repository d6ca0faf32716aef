"""`pyg-incremental evaluate`: models and graphs from files, results into files."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

from pyg_incremental import evaluate
from pyg_incremental.__main__ import main
from pyg_incremental.blocks.files import MANIFEST
from pyg_incremental.blocks.order import ORDERS
from tests.blocks.test_evaluate import GCN, NODES, full, graph, model_of
from tests.closeness import assert_close

MAKING = """
import torch
from torch_geometric.nn import GCN

def make():
    torch.manual_seed(3)
    return GCN(6, 16, num_layers=2, out_channels=3).double()

class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = make()

    def forward(self, x, edge_index):
        out = self.one(x, edge_index)
        return out, out.relu()

ready = make()
number = 3
"""


@pytest.fixture
def folder(tmp_path, seed, monkeypatch):
    """A graph in every form, and what makes a model, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    data = graph(seed)
    arrays = {"x": data.x.numpy(), "edge_index": data.edge_index.numpy(), "y": data.y.numpy()}
    (tmp_path / "graph").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "graph" / f"{name}.npy", array)
    arrays["edge_index"] = arrays["edge_index"].astype(np.int32)
    np.savez(tmp_path / "graph.npz", **arrays)
    torch.save({"x": data.x, "edge_index": data.edge_index}, tmp_path / "graph.pt")
    torch.save(data, tmp_path / "object.pt")
    (tmp_path / "making.py").write_text(MAKING)
    yield tmp_path
    sys.modules.pop("making", None)


def run(*given):
    return main(["evaluate", "--quiet", *map(str, given)])


def want_of(seed, nodes=None):
    names = {}
    exec(MAKING, names)
    out = full(names["make"]().eval(), graph(seed))
    return out if nodes is None else out[nodes]


@pytest.mark.parametrize("data", ["graph", "graph.npz", "graph.pt"])
@pytest.mark.parametrize("model", ["making:make", "making.py:make", "making:ready"])
def test_a_model_by_name_on_a_graph_in_files(folder, seed, data, model, capsys):
    assert run("--model", model, "--data", data, "--out", "out.npy", "--memory", "200kB") == 0
    assert_close(torch.from_numpy(np.load("out.npy")), want_of(seed))
    printed = capsys.readouterr().out
    assert f"[{NODES}, 3] float64" in printed
    assert "written to out.npy" in printed


def test_a_saved_model_is_trusted_or_refused(folder, seed, capsys):
    torch.save(model_of(), "model.pt")
    given = ["--model", "model.pt", "--data", "object.pt", "--out", "out.pt"]
    assert run(*given) == 1
    assert "--model: 'model.pt' holds pickled objects" in capsys.readouterr().err
    assert run(*given, "--trust") == 0
    model = torch.load("model.pt", weights_only=False)
    assert_close(torch.load("out.pt"), full(model, graph(seed)))


def test_weights_are_loaded(folder, seed, capsys):
    model = model_of()
    torch.save(model.state_dict(), "weights.pt")
    given = ["--model", "making:make", "--data", "graph", "--out", "out.npy"]
    assert run(*given, "--weights", "weights.pt") == 0
    assert_close(torch.from_numpy(np.load("out.npy")), full(model, graph(seed)))
    torch.save(model_of(layers=3).state_dict(), "weights.pt")
    assert run(*given, "--weights", "weights.pt") == 1
    assert "does not fit the model" in capsys.readouterr().err


def test_some_nodes(folder, seed):
    given = ["--model", "making:make", "--data", "graph", "--out", "out.npy"]
    np.save("ids.npy", np.array([9, 2, 9]))
    for nodes in (["9", "2", "9"], ["ids.npy"]):
        assert run(*given, "--nodes", *nodes) == 0
        assert_close(torch.from_numpy(np.load("out.npy")), want_of(seed, [9, 2, 9]))


def test_an_order_by_name_or_in_a_file(folder, seed, capsys):
    given = ["--model", "making:make", "--data", "graph", "--out", "out.npy"]
    np.save("order.npy", np.random.default_rng(seed).permutation(NODES))
    for order in ("rcm", "order.npy"):
        assert run(*given, "--order", order, "--memory", "100kB") == 0
        assert_close(torch.from_numpy(np.load("out.npy")), want_of(seed))
    assert run(*given, "--order", "best") == 1
    assert "order must be one of rcm" in capsys.readouterr().err


def test_rows_in_a_directory(folder, seed):
    given = ["--model", "making:make", "--data", "graph", "--directory", "rows"]
    assert run(*given) == 0
    assert {path.name for path in (folder / "rows").iterdir()} == {"out.npy", MANIFEST}
    assert_close(torch.from_numpy(np.load("rows/out.npy")), want_of(seed))


def test_edges_are_drawn(folder, seed):
    given = ["--model", "making:make", "--data", "graph", "--out", "out.npy"]
    assert run(*given, "--num-neighbors", "2", "--seed", "5") == 0
    names = {}
    exec(MAKING, names)
    drawn = evaluate(names["make"]().eval(), graph(seed), num_neighbors=2, seed=5)
    assert_close(torch.from_numpy(np.load("out.npy")), drawn)


def test_several_outputs(folder, seed, capsys):
    given = ["--model", "making:Both", "--data", "graph"]
    assert run(*given, "--out", "out.npz") == 0
    with np.load("out.npz") as held:
        assert sorted(held) == ["out_0", "out_1"]
        assert_close(torch.from_numpy(held["out_1"]), want_of(seed).relu())
    assert run(*given, "--out", "out.npy") == 1
    assert "returns 2 tensors (out_0, out_1)" in capsys.readouterr().err


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.two(self.one(x, edge_index).relu(), edge_index)


def test_several_types(folder, seed, monkeypatch, capsys):
    torch.manual_seed(seed)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(9, 4), torch.randn(7, 5)
    data["user", "buys", "item"].edge_index = torch.randint(7, (2, 30))
    data["item", "bought_by", "user"].edge_index = torch.randint(7, (2, 30))
    for kind, store in (*data.node_items(), *data.edge_items()):
        name = "__".join(kind) if isinstance(kind, tuple) else kind
        (folder / "kinds" / name).mkdir(parents=True)
        for field, rows in store.items():
            np.save(folder / "kinds" / name / f"{field}.npy", rows.numpy())
    model = to_hetero(Two(), data.metadata()).eval()
    want = model(data.x_dict, data.edge_index_dict)
    monkeypatch.setattr("pyg_incremental.blocks.command.model_at", lambda *given: model)
    assert run("--model", "it", "--data", "kinds", "--out", "out.npz") == 0
    with np.load("out.npz") as held:
        for kind, rows in want.items():
            assert_close(torch.from_numpy(held[kind]), rows.detach())
    assert "user [9, 3] float32, item [7, 3] float32" in capsys.readouterr().out


WRONG = [
    ({"--out": None}, "say where the result goes"),
    ({"--out": "out.csv"}, "--out: expected .npy, .npz, .pt"),
    ({"--out": "nowhere/out.npy"}, "--out: there is no folder"),
    ({"--memory": "much"}, "memory: expected a number of bytes"),
    ({"--model": "making:nothing"}, "the module has no 'nothing'"),
    ({"--model": "nothing:make"}, "there is no module 'nothing'"),
    ({"--model": "nothing.py:make"}, "there is no file 'nothing.py'"),
    ({"--model": "nothing.pt"}, "--model: there is no file 'nothing.pt'"),
    ({"--model": "making:number"}, "is no torch.nn.Module (got int)"),
    ({"--data": "object.pt"}, "--data: 'object.pt' holds pickled objects"),
    ({"--data": "making.py"}, "--data: expected a folder, a .npz or a .pt file"),
    ({"--data": "empty"}, "--data: 'empty' has no 'edge_index' (it has nothing)"),
    ({"--data": "list.pt"}, "holds neither a Data object nor a dict (got list)"),
    ({"--nodes": "all"}, "--nodes: expected ids, or one .npy file (got all)"),
    ({"--nodes": str(NODES)}, f"node id {NODES} at position 0 is not in"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_said_in_one_line(folder, change, said, capsys):
    (folder / "empty").mkdir()
    torch.save([1], "list.pt")
    given = {"--model": "making:make", "--data": "graph", "--out": "out.npy"} | change
    assert run(*(text for pair in given.items() if pair[1] for text in pair)) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("pyg-incremental evaluate: ")
    assert said in printed.err
    assert not printed.out
    assert not (folder / "out.npy").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(folder, monkeypatch):
    """Rows per second and the time left; not where nobody looks at it."""
    given = ["--model", "making:make", "--data", "graph", "--out", "out.npy"]
    for stream, quiet, is_shown in (
        (Terminal(), [], True),
        (Terminal(), ["--quiet"], False),
        (io.StringIO(), [], False),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            assert main(["evaluate", *given, *quiet]) == 0
        last = stream.getvalue().split("\r")[-1]
        assert bool(re.search(r"100%.* \[00:0\d<00:00, .*\dk? rows/s\]", last)) == is_shown


def test_a_bar_counts_what_was_done_before_as_no_speed(seed, monkeypatch, tmp_path):
    """An evaluation that is there already has no speed."""
    data, model = graph(seed), model_of(GCN)
    evaluate(model, data, directory=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Terminal())
        evaluate(model, data, directory=tmp_path)
        last = sys.stderr.getvalue().split("\r")[-1]
    assert "100%" in last
    assert "? rows/s" in last


LIGHT = """
import sys
from pyg_incremental.__main__ import main
try:
    main(["evaluate", "--help"])
except SystemExit as done:
    print("left with", done.code)
print(sorted({"torch", "torch_geometric", "numba", "numpy"} & {*sys.modules}))
"""


def test_help_waits_for_neither_torch_nor_the_rest():
    """Four seconds, for a page of text."""
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert "--num-neighbors" in done.stdout
    assert "left with 0" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
    orders = ", ".join(ORDERS)
    assert orders in " ".join(done.stdout.split())

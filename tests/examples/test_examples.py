"""Every example, the notebook and every block of code in the documents runs."""

import ast
import importlib
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_incremental.conv import registry

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "source").rglob("*.md"))]
LAST_LINE = re.compile(r"demo ok: updates=(\d+) max_abs_diff=(\S+) speedup=(\S+)")


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Run a script of the examples in this process, in an empty folder; returns its exit code."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def run(name: str, *args: str) -> int | None:
        return runpy.run_path(str(EXAMPLES / name))["main"](list(args))

    yield run
    torch.set_num_threads(threads)


def last_line(text: str) -> re.Match[str]:
    match = LAST_LINE.fullmatch(text.strip().splitlines()[-1])
    assert match, f"unexpected last line: {text}"
    return match


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat"])
def test_quickstart(script, capsys, tmp_path, model):
    """As a script, it is run by `make demo-quick`."""
    plot = f"{model}/plot.png"
    args = ["--quick", "--model", model, "--updates", "40", "--plot", plot]
    assert script("quickstart.py", *args) == 0
    printed = capsys.readouterr().out
    assert "mode='incremental'" in printed  # a full pass per update would be exact as well
    kinds = re.findall(r"^(an? .+|features change) +[\d.]+ ms +\d+ ", printed, re.MULTILINE)
    assert len(kinds) == 5, "the table of the first scene"
    updates, difference, _ = last_line(printed).groups()
    assert updates == "40"
    assert 0 <= float(difference) <= 1e-4
    assert (tmp_path / plot).stat().st_size > 10_000


def test_recent_neighbors(script, capsys):
    assert script("recent_neighbors.py", "--events", "400", "--epochs", "1") == 0
    assert "predicted from 10 last neighbours" in capsys.readouterr().out


def test_quickstart_says_when_it_is_not_exact(script, capsys, monkeypatch):
    from pyg_incremental import IncrementalModel

    monkeypatch.setattr(IncrementalModel, "verify", lambda self, num_nodes=None: 0.5)
    assert script("quickstart.py", "--quick", "--updates", "8") == 1
    assert "demo FAILED" in capsys.readouterr().out


def test_a_small_graph_runs_out_of_changes(script):
    datasets = __import__("datasets")
    graph = datasets.digits(arrivals=10_000)
    assert len(graph.neighbours) == 449
    assert graph.num_start == 1348


@pytest.mark.parametrize("name", ["Cora", "ogbn-arxiv"])
def test_data_that_cannot_be_had(script, capsys, monkeypatch, tmp_path, name):
    """No network: an error that says what to do, and a second try says the same."""
    if name.startswith("ogbn"):
        pytest.importorskip("ogb")

    def no_network(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.datasets.planetoid.fs.cp", no_network, raising=False)
    monkeypatch.setattr(
        "torch_geometric.datasets.planetoid.download_url", no_network, raising=False
    )
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    for _ in range(2):
        assert script("quickstart.py", "--dataset", name, "--root", str(tmp_path)) == 2
        error = capsys.readouterr().err
        assert "no network" in error
        assert "--root" in error


@pytest.mark.data
def test_planetoid(script, capsys, planetoid_root, tmp_path):
    root = shutil.copytree(
        planetoid_root, tmp_path / "planetoid"
    )  # PyG writes beside the raw files
    args = ["--quick", "--dataset", "Cora", "--root", str(root), "--updates", "20"]
    assert script("quickstart.py", *args) == 0
    last_line(capsys.readouterr().out)


TASKS = {
    "nodes.py": ["--arrivals", "60", "--epochs", "20"],
    "links.py": ["--people", "600", "--links", "1500", "--coming", "60", "--pairs", "500",
                 "--epochs", "5"],
    "graphs.py": ["--graphs", "60", "--edits", "40", "--epochs", "5"],
    "edges.py": ["--accounts", "300", "--transfers", "900", "--rings", "12", "--epochs", "5"],
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_tasks(script, capsys, tmp_path, name):
    assert script(name, *TASKS[name], "--plot", "plot.png") == 0
    printed = capsys.readouterr().out
    assert re.search(r"^\w+, \d lines: \d incremental; no update yet$", printed, re.MULTILINE)
    of = re.search(r"(\d+) of ([\d,]+) \w+( another score)?, in ", printed)
    assert 0 < int(of[1]) < int(of[2].replace(",", "")) / 3, "an update reaches a part of the rows"
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_train_and_update(script, capsys):
    script("train_and_update.py", "--rounds", "2", "--epochs", "2", "--arrivals", "3")
    printed = capsys.readouterr().out
    assert "refresh()" in printed
    assert len(re.findall("^round", printed, re.MULTILINE)) == 2


def test_fraud(script, capsys, tmp_path):
    for again, applied in ((0, 400), (400, 400)):  # the second time all of them are known
        script("fraud.py", "--transfers", "400", "--folder", str(tmp_path))
        last = capsys.readouterr().out.splitlines()[-1]
        assert f"fraud ok: transfers={applied} again={again} " in last
        assert "left_out=0" in last
        assert float(last.rpartition("=")[2]) < 1e-4
    alerts = (tmp_path / "alerts.jsonl").read_text()
    assert all(f"collector {k}" in alerts for k in range(3))


def test_fraud_on_a_graph_in_a_file(script, capsys, tmp_path):
    rng = np.random.default_rng(0)
    pairs = rng.integers(60, size=(2, 400)) // rng.integers(1, 7, size=400)
    op = np.where(np.arange(400) % 9 == 8, -1, 1)
    pairs[:, 8::9] = pairs[:, 0:-8:9][:, : len(op[8::9])]  # what came is taken back
    np.savez(tmp_path / "graph.npz", edge_index=pairs, t=np.arange(400), op=op)
    args = ["--graph", str(tmp_path / "graph.npz"), "--transfers", "150"]
    script("fraud.py", *args)
    last = capsys.readouterr().out.splitlines()[-1]
    assert "fraud ok: transfers=150 again=0 " in last
    assert "left_out=0" in last
    assert float(last.rpartition("=")[2]) < 1e-4


def test_own_convs(script, capsys, monkeypatch):
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    # Imported and not run as a script: PyG looks for the module in which a conv is defined.
    monkeypatch.delitem(sys.modules, "own_convs", raising=False)
    own_convs = importlib.import_module("own_convs")
    assert own_convs.main(["--deltas", "12"]) == 0
    printed = capsys.readouterr().out
    found = re.findall(r"^(\w+) +incremental +\d+ +(\S+)$", printed, re.MULTILINE)
    assert [name for name, _ in found] == ["CommNet", "PinSAGE"]
    assert all(float(difference) <= 1e-9 for _, difference in found)
    kinds = re.findall(r"^(?:first|second)\.\w+ +(\w+) ", printed, re.MULTILINE)
    assert "sum" in kinds
    assert "rows" not in kinds


def test_ogbn_arxiv_synthetic(script, capsys):
    size = ["--nodes", "600", "--edges", "4000", "--seconds", "0.5"]
    assert script("ogbn_arxiv.py", "--synthetic", *size, "--batch", "1", "50") == 0
    assert len(re.findall("updates/s", capsys.readouterr().out)) == 2


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_notebook(name, tmp_path, monkeypatch):
    """Cell by cell, as a kernel runs it: what a cell ends in is shown."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / name).read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in code), "commit the notebook without outputs"
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in code:
        lines = ast.parse("".join(cell["source"])).body
        last = lines.pop() if isinstance(lines[-1], ast.Expr) else None
        exec(compile(ast.Module(lines, []), "cell", "exec"), names)
        if last is not None:
            repr(eval(compile(ast.Expression(last.value), "cell", "eval"), names))


@pytest.fixture
def outputs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("outputs")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_code_of_the_documents(outputs, page, tmp_path, monkeypatch):
    """The blocks of a page run in order, and print what stands behind them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    for block, printed in outputs.run(page):
        shown, wanted = block["output"] or "", outputs.expected(block, printed)
        assert outputs.alike(shown, wanted), f"run: make docs-outputs; it prints\n{wanted}"


def test_outputs_differ_by_times_and_rounding_alone(outputs):
    said = "update 1 took 1.104 ms\n[ 0.1234, 2e-08]   50 of 100 rows (a.md:7)"
    assert outputs.alike(said, "update 1 took 20 us\n[0.1235, 3e-08] 50 of 100 rows (a.md:19)")
    for other in (said.replace("50", "51"), said.replace("0.1234", "0.2"), said + " more", ""):
        assert not outputs.alike(said, other)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_between_the_documents(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""The benchmarks run at a tiny size, and read workload files as they are documented."""

import json

import numpy as np
import pytest
import torch

from benchmarks import workload
from benchmarks.__main__ import main


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def file(tmp_path):
    """A workload of 40 nodes: additions, deletions and feature changes in turn."""
    rng = np.random.default_rng(0)
    edges = np.stack(np.divmod(rng.permutation(1600)[:200], 40))
    kind, count = np.tile(np.arange(3, dtype=np.int8), 20), 20
    a, b = np.empty(60, np.int64), np.empty(60, np.int64)
    a[0::3], b[0::3] = edges[:, :count]
    a[1::3], b[1::3] = edges[:, count : 2 * count]
    a[2::3], b[2::3] = rng.integers(0, 3, count), -1
    path = tmp_path / "w.npz"
    np.savez(
        path, num_nodes=40, in_channels=128, edge_index=edges[:, count:], x_seed=1, rows_seed=2,
        kind=kind, a=a, b=b,
    )  # fmt: skip
    return path


def test_workload_file(file):
    work = workload.read(file)
    x = np.random.default_rng(1).standard_normal((40, 128), np.float32)
    rows = np.random.default_rng(2).standard_normal((20, 128), np.float32)
    assert np.array_equal(work.x, x)
    first, second = list(work.batches(30))
    assert first.edge_index_add.shape == second.edge_index_del.shape == (2, 10)
    assert np.array_equal(second.x_changes[1], rows[10:])
    assert len(list(work.batches(7))) == 8  # the rest of 4 fills no batch
    assert [d.edge_index_add is None for d in work.batches(1)][:3] == [False, True, True]


def test_not_a_workload_file(tmp_path):
    np.savez(tmp_path / "x.npz", kind=0)
    with pytest.raises(SystemExit, match="it has no a, b, edge_index"):
        workload.read(tmp_path / "x.npz")


def test_against_floor(file, tmp_path, capsys):
    floor = tmp_path / "floor.py"
    row = {"program": "floor", "batch": 1, "p50_ms": 0.01, "p99_ms": 0.02, "updates_per_s": 1e5}
    floor.write_text(f"print({json.dumps(json.dumps({**row, 'max_abs_error': 0.0}))})")
    out = tmp_path / "result.json"
    options = ["--workload", str(file), "--floor", str(floor), "--json", str(out)]
    main(["against-floor", *options, "--batch", "1", "--seconds", "1", "--rounds", "2"])
    result = json.loads(out.read_text())
    ours, other = result["times"]
    assert ours["program"] == "pyg_incremental"
    assert ours["off_by"] < 1e-4
    ratio = result["ratios"][0]["times_its_p50"]
    assert ratio == pytest.approx(ours["p50_ms"] / other["p50_ms"], rel=1e-6)
    assert str(tmp_path) not in out.read_text()
    assert "of_its_throughput" in capsys.readouterr().out


def test_full_pass(capsys):
    size = ["--nodes", "100", "--edges", "600", "--seconds", "0.2", "--batch", "1"]
    main(["full-pass", *size])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("gcn", "sage", "gin", "gat", "graph"))

"""The benchmarks run at a tiny size, and read workload files as they are documented."""

import json

import numpy as np
import pytest
import torch

from benchmarks import workload
from benchmarks.__main__ import main

pytestmark = [pytest.mark.bench, pytest.mark.unmeasured]


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


FLOOR = """
import beside_floor

class Sage:
    def __init__(self, arrays, hidden, out):
        self.updates = 0
        assert (int(arrays["num_nodes"]), hidden, out) == (40, 128, 40)

    def step_floor(self, added, deleted, nodes, rows):
        assert added.shape[0] == deleted.shape[0] == 2
        assert rows.shape == (len(nodes), 128)
        self.updates += added.shape[1] + deleted.shape[1] + len(nodes)

    def step_rc(self, added, deleted, nodes, rows):
        self.step_floor(added, deleted, nodes, rows)

    def error(self):
        return float(self.updates)
"""


def test_against_floor(file, tmp_path, capsys):
    floor, out = tmp_path / "floor.py", tmp_path / "result.json"
    floor.write_text(FLOOR)
    (tmp_path / "beside_floor.py").write_text("")
    options = ["--workload", str(file), "--floor", str(floor), "--json", str(out)]
    main(["against-floor", *options, "--model", "sage", "gcn", "--seconds", "0"])
    rows = json.loads(out.read_text())["ratios"]
    # the workload has 60 updates, so there is no batch of 100; others are held against the floor
    cells = [(row["model"], row["batch"], row["compared_with"]) for row in rows]
    sage = [("sage", batch, program) for batch in (1, 10) for program in ("floor", "rc")]
    assert cells == [*sage, ("gcn", 1, "floor")]
    for row in rows:
        assert row["off_by"] < 1e-4
        assert row["turns"] == 40
        assert row["times_its_p50"] == pytest.approx(row["p50_ms"] / row["its_p50_ms"])
        assert (row["times_its_edge"] is None) == (row["compared_with"] == "rc")
    assert rows[0]["it_is_off_by"] == 60  # every update of 20 turns that do not count and of 40
    assert rows[0]["its_edges"] <= rows[0]["edges"] < rows[-1]["edges"]
    assert str(tmp_path) not in out.read_text()
    assert "of_its_throughput" in capsys.readouterr().out


def test_a_file_without_programs(file, tmp_path):
    floor = tmp_path / "empty.py"
    floor.write_text("class Sage:\n    pass\n")
    with pytest.raises(SystemExit, match="no class Sage with methods step_NAME"):
        main(["against-floor", "--workload", str(file), "--floor", str(floor)])


def test_full_pass(capsys):
    size = ["--nodes", "100", "--edges", "600", "--seconds", "0.2", "--batch", "1"]
    main(["full-pass", *size])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("gcn", "sage", "gin", "gat", "graph"))


def test_all_nodes(capsys, tmp_path):
    main(["all-nodes", "--quick", "--model", "sage", "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "all-nodes.json").read_text())["results"]
    assert row["max_diff"] < 1e-4
    assert row["update_of_own"] > 0
    assert row["own_of_best"] > 0
    assert "coo_ms" in capsys.readouterr().out

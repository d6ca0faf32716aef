"""Every command of the benchmarks runs at a tiny size, and its tables hold together."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

from benchmarks import compare, convs, deadlines, report, sources, without
from benchmarks.__main__ import main
from benchmarks.conv_models import SAMPLES
from benchmarks.evaluation import worker
from benchmarks.peers import OURS
from benchmarks.ranks import launch
from pyg_incremental import supported_layers, to_incremental

pytestmark = [pytest.mark.bench, pytest.mark.unmeasured]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_side_by_side(tmp_path, capsys):
    programs = [OURS, "full-coo", "k-hop", "rc", "ripple", "inkstream"]
    main(["--quick", "--model", "sage", "--peer", *programs, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "peers.json").read_text())
    assert {row["program"] for row in result["results"]} == set(programs) - {"inkstream"}
    assert [row["program"] for row in result["skipped"]] == ["inkstream"]
    for row in result["results"]:
        assert row["off_by"] < 1e-4
        assert row["edges"] > 0
        assert row["loses"] == (row["p50_ratio"] < 1)
    batches = {row["batch"] for row in result["results"]}
    assert batches == {1, 10, "all"}
    assert len((tmp_path / "peers.md").read_text().splitlines()) == 2 + len(result["results"])
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "arxiv-times.png", "arxiv-ratios.png",
    }  # fmt: skip
    assert str(tmp_path) not in (tmp_path / "peers.json").read_text()
    assert "left out: inkstream: here for a maximum only (sage)" in printed
    assert "edges touched" in printed


@pytest.mark.parametrize("name", without.MECHANISMS)
def test_without(name, tmp_path):
    slow = name in ("locality prover", "sort support")  # a pass of the model itself, in turn
    sizes = ["--scale", "0.002" if slow else "0.02", "--most", "10" if slow else "1000"]
    main(["without", *sizes, "--only", name, "--turns", "2", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "without.json").read_text())["results"]
    assert rows
    for row in rows:
        assert row["relative_diff"] < 1e-4
        assert row["lines"] > 40
        if name == "minimal store":
            assert row["x memory"] > 1.25  # the switch is off where it should be
        if slow:
            assert row["x time"] > 2


def test_what_ifs(tmp_path):
    sizes = ["--nodes", "60", "--edges", "200", "--channels", "4", "--count", "5", "--turns", "1"]
    main(["what-ifs", *sizes, "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "what_ifs.json").read_text())["results"]
    assert min(row.values()) > 0


def test_on_demand(tmp_path):
    sizes = ["--scale", "0.002", "--hidden", "8", "--updates", "40", "--batch", "10"]
    sizes += ["--models", "gcn", "--asked", "1", "10", "--times", "3"]
    main(["on-demand", *sizes, "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "on_demand.json").read_text())["results"]
    assert [row["asked"] for row in rows] == ["1", "10", "all"]
    assert max(row["off"] for row in rows) < 1e-4
    assert (tmp_path / "on_demand.png").stat().st_size > 0


@pytest.mark.parametrize("clock", ["thread", "costs"])
def test_deadlines(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(deadlines, "SIZES", (1, 64))
    monkeypatch.setattr(deadlines, "RATES", (500, 1000))
    monkeypatch.setattr(deadlines, "BEFORE", 200)
    sizes = ["--scale", "0.002", "--hidden", "8", "--seconds", "0.05", "--deadline", "1000"]
    main(["deadlines", *sizes, "--rate", "500", "--clock", clock, "--out", str(tmp_path)])
    result = json.loads((tmp_path / "deadlines.json").read_text())
    (row,) = result["sustained"]
    assert row["by_deadline"] == row["best_fixed"] == 1000
    assert result["bursts"][0]["by_deadline_missed"] == 0
    assert (tmp_path / "deadlines.png").stat().st_size > 0


def test_time_goes_by_with_what_is_computed_and_skips_to_the_next_event():
    clock = deadlines.Clock()
    source = deadlines.Arrivals([{"n": 0}, {"n": 1}], clock)
    assert source.next_batch(9) == []
    source.offer(np.array([100.0, 100.0, 300.0]))
    first = source.next_batch(9)
    assert [event.value["n"] for event in first] == [0, 1]
    assert 100 <= clock() < 200
    assert [(e.value["n"], e.position, e.at) for e in source.next_batch(9)] == [(0, 3, 300.0)]
    assert clock() >= 300
    assert source.next_batch(9) == []


def test_time_goes_by_with_known_costs():
    clock = deadlines.CostClock(deadlines.Costs(batch=1.0, event=0.1, row=0.01))
    x, edges = torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])
    inc = to_incremental(SAGEConv(3, 2).eval())
    inc(x, edges)
    clock.applied(inc.apply_delta(edge_index_add=torch.tensor([[3, 4], [0, 0]])))
    assert clock() == pytest.approx(1.0 + 2 * 0.1 + 0.01)
    clock.skip_to(1.0)
    assert clock() > 1.2
    clock.skip_to(7.0)
    assert clock() == 7.0


def test_readers(tmp_path):
    sizes = ["--scale", "0.002", "--turns", "2", "--seconds", "0.2", "--readers", "2"]
    main(["readers", *sizes, "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "readers.json").read_text())["results"]
    assert row["reads"] > 2
    assert row["throughput"] > 0


def test_names(tmp_path):
    sizes = ["--scale", "0.002", "--updates", "20", "--events", "250"]
    main(["names", *sizes, "--out", str(tmp_path)])
    result = json.loads((tmp_path / "names.json").read_text())
    assert [row["by"] for row in result["results"]] == ["rows", "strings", "keys"]
    assert result["churn"]["new rows"] == 101
    assert result["churn"]["off_by"] < 1e-4


def test_convs(tmp_path, capsys):
    sizes = ["--scale", "0.002", "--updates", "16", "--channels", "8", "--busy", "1"]
    main(["convs", *sizes, "--conv", "GINEConv", "MFConv", "PDNConv", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "convs.json").read_text())
    rows = {row["conv"]: row for row in result["convs"]}
    assert list(rows) == ["GATConv", "GINEConv", "MFConv", "PDNConv"]
    assert rows["GATConv"]["x GATConv"] > 0
    for row in rows.values():
        assert row["rows"] >= 1
        assert row["relative_diff"] < 1e-5
    assert rows["GINEConv"]["leaves"] == rows["MFConv"]["leaves"] == ""
    assert "PDNConv leaves PDNConv.cat_loops" in capsys.readouterr().out
    main(["convs", *sizes, "--conv", "GATConv", "--changes", "sage", "--out", str(tmp_path)])
    changes = json.loads((tmp_path / "convs.json").read_text())["changes"]
    assert [row["change"] for row in changes] == list(convs.KINDS)
    assert changes[0]["x one edge"] == 1


def test_traced(tmp_path):
    sizes = ["--nodes", "60", "--edges", "200", "--channels", "8", "--updates", "4"]
    more = ["--batch", "1", "--rows", "1", "--out", str(tmp_path)]
    main(["traced", *sizes, *more, "--conv", "SimpleConv", "GCNConv"])
    simple, gcn = json.loads((tmp_path / "traced.json").read_text())["results"]
    assert simple["by hand"] == simple["traced"] == "sum"
    assert simple["ratio"] > 0
    assert simple["gap"] < 1e-5
    assert "whole" not in gcn["traced"]
    assert gcn["ratio"] > 0
    assert gcn["gap"] < 1e-5


def test_first_calls(tmp_path):
    main(
        ["traced", "--first-calls", "--channels", "4", "--conv", "GCNConv", "--out", str(tmp_path)]
    )
    (row,) = json.loads((tmp_path / "traced.json").read_text())["results"]
    assert row["conv"] == "GCNConv"
    assert min(row["ms"], row["traced, ms"]) > 0


def test_every_conv_has_a_sample():
    """But one whose kernels PyG may lack."""
    wanted = {
        one.name for one in supported_layers() if one.scheme in ("incremental", "constrained")
    }
    assert wanted - {"SplineConv"} == set(SAMPLES)


def test_evaluate(tmp_path):
    main(["evaluate", "--quick", "--model", "gcn", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "evaluate.json").read_text())["results"]
    ways = {row["way"]: row for row in rows}
    assert {"full pass of PyG", "evaluate", "evaluate, tight", "evaluate, directory"} <= set(ways)
    assert max(row.get("off_by", 0) for row in rows) < 1e-4
    for way in ("evaluate", "evaluate, tight"):
        assert ways[way]["MB"] <= ways[way]["memory_MB"]


def test_evaluation_order(tmp_path, monkeypatch, capsys):
    main(["evaluation", "order", "--quick", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "order.json").read_text())["results"]
    found = {(row["graph"], row["order"]): row for row in rows}
    assert len(found) == 2 * 6
    for (graph, order), row in found.items():
        given = found[graph, "given"]["rows_read"]
        assert row["saved_of_given"] == pytest.approx(1 - row["rows_read"] / given)
        assert 1 < row["read"] == row["rows_read"] / row["nodes"] / 3
        assert row["blocks"] > 3
        if order in ("communities", "rabbit") and graph == "drawn-in-groups":
            assert row["saved_of_random"] > 0.15
    assert (tmp_path / "orders.png").stat().st_size > 0
    monkeypatch.setenv("PYG_INCREMENTAL_DATA", str(tmp_path / "none"))
    main(["evaluation", "order", "--graph", "cora", "caida", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "cora: skipped" in printed
    assert "caida: skipped" in printed


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is one of Linux")
def test_evaluation_in_a_process_that_is_limited(tmp_path):
    main(["evaluation", "models", "--quick", "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "models.json").read_text())["results"]
    assert row["targets"] == 4
    assert row["limit_GB"] == pytest.approx(row["of_it_code_GB"] + 0.04)
    assert row["ratio"] == pytest.approx(row["node_wise_s"] / row["evaluate_s"])
    assert row["compared"] == 3
    assert row["largest difference"] < 1e-5 * row["largest value"]


def test_evaluation_tables(tmp_path, monkeypatch):
    """What is made of the measurements; here a second for each layer, row, or node."""

    def run(task):
        assert (Path(task["folder"]) / "x.npy").is_file()
        if task["way"] == "node-wise":
            tried = [{"batch": 1, "targets": 4, "price": 1.0}, {"batch": 4, "failed": "Memory"}]
            return {"price": 1.0, "batch": 1, "tried": tried}
        if task["way"] == "compare":
            return {"targets": 3, "off": 0.0, "largest": 1.0, "most_edges": 9}
        if task["way"] == "bootstrap":
            return {"first_s": 1.0, "update_ms": 2.0, "limit_GB": task["limit"] / 1e9}
        seconds = task["layers"] * (1 if task["num_neighbors"] is None else 0.5)
        return {"seconds": seconds, "wall": 9, "limit": task["limit"], "base": 0, "peak_rss": 0}

    monkeypatch.setattr(worker, "run", run)

    def rows_of(figure):
        main(["evaluation", figure, "--quick", "--out", str(tmp_path)])
        return json.loads((tmp_path / f"{figure}.json").read_text())["results"]

    (row,) = rows_of("models")
    assert (row["node_wise_s"], row["too_large"], row["batch"]) == (1693, 4, 1)
    assert [row["of_1"] for row in rows_of("layers")] == [1, 2, 3, 4]
    sampled = rows_of("sampled")
    assert [row["full_of_sampled"] for row in sampled] == [2, 2]
    assert all(row["edges_of_sampled"] > 1 for row in sampled)
    assert [row["targets"] for row in rows_of("partial")] == [2, 17, 169, 1693]
    assert (tmp_path / "partial.png").stat().st_size > 0
    stores = [(row["where"], row["limit_GB"]) for row in rows_of("bootstrap")]
    assert stores == [("memory", 0.04), ("files", 0.04)]


def test_memory(tmp_path, capsys):
    sizes = ["--scale", "0.0002", "--hidden", "8", "--batch", "20", "--updates", "4"]
    main(["memory", *sizes, "--peer", "rc", "ripple", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "memory.json").read_text())
    ours, rc, ripple = result["results"]
    assert [ours["program"], rc["program"], ripple["program"]] == [OURS, "rc", "ripple"]
    assert max(rc["off_by"], ripple["off_by"]) < 1e-4
    assert ours["ours_is_faster_by"] == 1
    assert rc["ours_is_faster_by"] == pytest.approx(ours["changes_per_s"] / rc["changes_per_s"])
    assert ours["peak_gib"] > 0
    assert sum(part["bytes"] for part in result["memory"]) > 0
    assert "bytes per node" in capsys.readouterr().out


@pytest.mark.slow
def test_threads(tmp_path):
    main(["threads", "--quick", "--model", "sage", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "threads.json").read_text())["results"]
    assert [(row["model"], row["batch"], row["updates"]) for row in rows] == [("sage", 10, 3)]
    assert min(rows[0][name] for name in ("one_ms", "several_ms", "speedup", "bound")) > 0


@pytest.mark.slow
def test_traffic(tmp_path, capsys):
    main(["traffic", "--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "traffic.json").read_text())
    assert [row["batch"] for row in result["results"]] == [10, 30]
    for row in result["results"]:
        assert row["counted"] == row["rows"]  # what ranks sent is what the graph tells
        assert row["rows"] < row["sent"] < row["pulls"] < row["pulls, edges"]
        assert row["x fewer rows"] == pytest.approx(row["pulls"] / row["rows"])
    assert result["off_by"] < 1e-4
    assert len(result["ghosts"]) == 2
    assert str(tmp_path) not in json.dumps(result)
    assert "metis: 2 parts" in capsys.readouterr().out


@pytest.mark.slow
def test_ranks(tmp_path, capsys):
    main(["ranks", "--quick", "--handed-in", "one", "--out", str(tmp_path)])
    (row,) = json.loads((tmp_path / "ranks.json").read_text())["results"]
    assert (row["model"], row["batch"], row["ranks"], row["updates"]) == ("sage", 10, 2, 6)
    assert row["bytes_sent"] > 0
    assert row["off_by"] < 1e-4
    assert len(row["turns"]) == 3
    for first, second in (delta for turn in row["turns"] for delta in turn):
        assert min(first["one"], first["one_rank"]) > 0
        assert not {"one", "one_rank"} & second.keys()  # they are the first rank's
        for rank in (first, second):
            parts = rank["computing"] + rank["waiting"] + rank["sending"]
            assert parts == pytest.approx(rank["ranks"])
    assert "slowest_computing_ms" in capsys.readouterr().out


@pytest.mark.slow
def test_a_rank_that_fails_is_reported(tmp_path):
    work = sources.load("arxiv", updates=30, scale=0.001)
    owner = torch.zeros(len(work.x), dtype=torch.int16)
    with pytest.raises(
        SystemExit, match=r"(?s)rank 0 of 1 ended with 1:.*KeyError: 'no such task'"
    ):
        launch.run("no such task", 1, work, owner, {})


def test_weak_scaling(tmp_path, capsys):
    main(["weak-scaling", "--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "weak_scaling.json").read_text())
    rows = {(row["batches"], row["ranks"]): row for row in result["results"]}
    assert [row["batch"] for row in rows.values()] == [20, 20, 20, 5, 10, 20]
    alone = rows["stay", 1]
    for (_, ranks), row in rows.items():
        if row["batches"] == "stay":  # the same work, shared
            assert row["edges, mean"] == pytest.approx(alone["edges, mean"] / ranks, abs=1)
        assert row["edges, most"] >= row["edges, mean"]
        assert (row["MB sent, mean"] > 0) == (row["edge cut"] > 0) == (ranks > 1)
        assert row["efficiency"] == pytest.approx(row["speedup"] / ranks)
    assert alone["speedup"] == 1
    assert alone["network ms"] == 0
    assert (tmp_path / "weak_scaling.png").stat().st_size > 0
    assert "grow" in capsys.readouterr().out


def test_a_table_marks_what_the_package_loses():
    rows = [
        {"batch": 1, "program": OURS, "p50_ms": 2.0, "p50_ratio": 1.0, "loses": False,
         "edges": 1234.4, "rows": 3.0, "ns_per_edge": 1.5},
        {"batch": 1, "program": "rc", "p50_ms": 1.0, "p50_ratio": 0.5, "loses": True},
        {"batch": 10, "program": "rc", "p50_ms": 4.0, "p50_ratio": 2.0, "loses": False},
    ]  # fmt: skip
    lines = [line.split() for line in report.pivot(rows)]
    assert lines[1] == [OURS, "2", "ms", "-"]
    assert lines[2] == ["rc", "*", "0.5", "x", "2", "x"]
    assert lines[3] == ["edges", "touched", "1,234", "-"]


def test_programs_are_compared_on_the_same_deltas():
    """A program that left after the dear stretch of a stream has seen nothing of the cheap one."""
    effort = compare.Effort(seconds=1.0, least=2, most=300, stretch=10)
    ours = compare.Contender(OURS, None, 0.0, took=[9.0] * 30, work=[(1, 1)] * 30)
    other = compare.Contender("rc", None, 0.0, took=[18.0] * 30 + [1.0] * 200)
    row = compare._row(other, [ours, other], 10, effort)
    assert (row["p50_ratio"], row["mean_ratio"], row["loses"]) == (2, 2, False)
    assert row["p50_ms"] == 1e3


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    commands = ("peers", "memory", "full-pass", "against-floor", "threads", "traffic", "ranks",
                "all-nodes", "weak-scaling", "evaluation")  # fmt: skip
    assert all(name in printed for name in commands)


def test_sampling(tmp_path, monkeypatch, capsys):
    main(["sampling", "--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "sampling.json").read_text())
    assert {row["strategy"] for row in result["ingestion"]} == {"random", "topk", "weight"}
    for row in result["queries"]:
        assert row["p50_ms"] <= row["p99_ms"]
        assert row["edges"] > 10
    exact, *sampled = result["accuracy"]
    assert exact["off_by"] == 0
    assert sampled[-1]["off_by"] < 1e-4  # all neighbours
    assert [row["off_by"] > 1e-2 for row in sampled[:-1]] == [True] * 3
    (streamed,) = result["service"]  # each answer was held against the sample of its time
    assert 0 <= streamed["updates_invisible"] < 1
    assert 0 < streamed["visible_p50_ms"] <= streamed["visible_p99_ms"]
    shares = [row["cached_by_each"] for row in result["shares"]]
    assert shares == sorted(shares, reverse=True)
    assert [row["serving_workers"] for row in result["shares"]] == [1, 2, 4]
    monkeypatch.setenv("PYG_INCREMENTAL_DATA", str(tmp_path / "none"))
    main(["sampling", "--strategy", "--only", "accuracy", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    for name in ("cora", "citeseer", "amazon_photo", "coauthor_phy", "arxivai"):
        assert f"{name}: skipped, there is no" in printed

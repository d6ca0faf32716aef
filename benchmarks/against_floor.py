"""One 2-layer GraphSAGE against a program that has every loop of it fused by hand.

The other program is run as `python FLOOR W.npz --batch ... --seconds S --threads 1` and prints
JSON lines with `program`, `batch`, `p50_ms`, `p99_ms`, `updates_per_s`. Both take turns for some
rounds, since a machine is not equally fast all the time; ratios are the median over the rounds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import torch
from torch_geometric.nn import GraphSAGE

from benchmarks import measure, workload
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up

Rows = dict[tuple[str, int], list[dict[str, float]]]  # (program, batch) -> one entry per round
OURS = "pyg_incremental"


def run(
    path: Path, floor: Path | None, batches: list[int], seconds: float, rounds: int
) -> dict[str, list[dict[str, object]]]:
    """Measure both programs in turns; a table of times and one of ratios."""
    torch.set_num_threads(1)
    work = workload.read(path)
    warm_up()
    rows: Rows = {}
    for _ in range(rounds):
        _run_ours(work, batches, seconds, rows)
        if floor is not None:
            _run_floor(path, floor, batches, seconds, rows)
    return {
        "times": [_medians(key, rows[key]) for key in rows],
        "ratios": [_ratios(key, rows) for key in rows if key[0] != OURS],
    }


def _run_ours(work: workload.Workload, batches: list[int], seconds: float, rows: Rows) -> None:
    torch.manual_seed(0)
    model = GraphSAGE(work.x.shape[1], 128, num_layers=2, out_channels=40).eval()
    for size in batches:
        inc = to_incremental(model)
        inc(work.x, work.edge_index)
        row = measure.stream(inc, work.batches(size), size, seconds)
        row["max_abs_diff"] = inc.verify()
        rows.setdefault((OURS, size), []).append(row)


def _run_floor(path: Path, floor: Path, batches: list[int], seconds: float, rows: Rows) -> None:
    command = [sys.executable, str(floor.resolve()), str(path.resolve()), "--threads", "1"]
    command += ["--seconds", str(seconds), "--batch", *map(str, batches)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{floor} failed ({done.returncode}):\n{done.stderr}")
    for line in done.stdout.splitlines():
        row = json.loads(line)
        rows.setdefault((row.pop("program"), row.pop("batch")), []).append(row)


def _medians(key: tuple[str, int], rounds: list[dict[str, float]]) -> dict[str, object]:
    """One row of the table of times."""
    row: dict[str, object] = {"program": key[0], "batch": key[1], "rounds": len(rounds)}
    for name in ("p50_ms", "p99_ms", "updates_per_s"):
        row[name] = median(one[name] for one in rounds)
    # each program names its own largest difference to a full pass
    row["off_by"] = max(v for one in rounds for k, v in one.items() if k.startswith("max_abs"))
    return row


def _ratios(other: tuple[str, int], rows: Rows) -> dict[str, object]:
    """This package against another program, each round by itself."""
    pairs = list(zip(rows[OURS, other[1]], rows[other], strict=True))
    return {
        "batch": other[1],
        "compared_with": other[0],
        "times_its_p50": median(our["p50_ms"] / their["p50_ms"] for our, their in pairs),
        "of_its_throughput": median(
            our["updates_per_s"] / their["updates_per_s"] for our, their in pairs
        ),
    }

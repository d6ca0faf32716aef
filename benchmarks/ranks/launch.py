"""Ranks that are processes of this machine: they meet in a file, so no port has to be free."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.workload import Workload

ROOT = Path(__file__).parents[2]
PATIENCE = 600.0  # seconds after which a rank that has not answered counts as dead


def run(
    task: str, ranks: int, work: Workload, owner: Tensor, job: dict[str, Any], threads: int = 1,
    engine: str = "torch",
) -> list[Any]:  # fmt: skip
    """Let ranks do one of the tasks of `worker.py`; returns the report of each.

    Args:
        task: Its name.
        ranks: How many processes to start.
        work: What all of them are given; they map it from one file.
        owner: The rank of every node, int16 `[nodes]`.
        job: The options of the task.
        threads: Of each process.
        engine: `'torch'` (gloo) or `'mpi'`, for which the `mpi` extra is needed.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    with TemporaryDirectory() as name:
        folder = Path(name)
        torch.save({"work": vars(work), "owner": owner}, folder / "graph.pt")
        (folder / "job.json").write_text(json.dumps({"task": task, "threads": threads, **job}))
        command = [sys.executable, "-m", "benchmarks.ranks.worker", name]
        commands = [[*command, str(rank), str(ranks)] for rank in range(ranks)]
        if engine == "mpi":
            commands = [[*_mpiexec(), "-n", str(ranks), *command]]
        running: list[subprocess.Popen[bytes]] = []
        with ExitStack() as files:
            try:
                for rank, started in enumerate(commands):
                    printed = files.enter_context((folder / f"printed-{rank}").open("w"))
                    running.append(
                        subprocess.Popen(
                            started,
                            cwd=ROOT,
                            env=environment,
                            stdout=printed,
                            stderr=subprocess.STDOUT,
                        )
                    )
                _wait(running, folder)
            finally:
                for process in running:
                    process.kill()
                    process.wait()
        return [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(ranks)]


def _mpiexec() -> list[str]:
    """The command that starts MPI processes: that beside Python, which the `mpi` extra brings."""
    beside = Path(sys.executable).parent / "mpiexec"
    command = str(beside) if beside.exists() else shutil.which("mpiexec")
    if command is None:
        raise SystemExit("there is no mpiexec: pip install 'pyg-incremental[mpi]'")
    # As root Open MPI wants to be told that this is meant.
    return [command, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def _wait(running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Until all have ended well; the first that has not ends the program."""
    while True:
        codes = [process.poll() for process in running]
        for rank, code in enumerate(codes):
            if code:
                printed = (folder / f"printed-{rank}").read_text()
                raise SystemExit(f"rank {rank} of {len(codes)} ended with {code}:\n{printed}")
        if all(code == 0 for code in codes):
            return
        time.sleep(0.05)

"""Starts ranks that are real processes, with torch.distributed or MPI, and reads their reports."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def mpiexec():
    """The command that starts MPI processes: that of the `openmpi` package, beside Python."""
    found = Path(sys.executable).parent / "mpiexec"
    command = str(found) if found.exists() else shutil.which("mpiexec")
    assert command is not None, "mpiexec is not there; install the mpi extra"
    # As root, and with more ranks than cores, Open MPI wants to be told that this is meant.
    return [command, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def start(engine, size, module, folder, *arguments, seconds=120):
    """Run `python -m module engine folder size ...` as `size` ranks; returns what each reported.

    mpiexec starts each of them. With torch.distributed the module forks them itself, after it has
    imported torch once; they meet in a file of `folder`, so that no port has to be free.
    """
    folder = Path(folder)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if engine == "mpi":
        environment |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        environment |= {"OMPI_MCA_btl": "self,sm", "TMPDIR": "/tmp"}
    command = [sys.executable, "-m", module, engine, str(folder), str(size), *arguments]
    if engine == "mpi":
        command = [*mpiexec(), "-n", str(size), *command]
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed = running.communicate(timeout=seconds)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):  # when all have ended
            os.killpg(running.pid, signal.SIGKILL)
    reports = []
    for rank in range(size):
        path = folder / f"report-{rank}.json"
        assert path.exists(), f"rank {rank} has reported nothing:\n{printed}"
        reports.append(json.loads(path.read_text()))
    for report in reports:
        assert not report["error"], report["error"]
    return reports

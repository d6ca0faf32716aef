"""Starts ranks that are real processes, with torch.distributed or MPI, and reads their reports."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINES = ("torch", "mpi")


def mpiexec():
    """The command that starts MPI processes: that of the `openmpi` package, beside Python."""
    found = Path(sys.executable).parent / "mpiexec"
    command = str(found) if found.exists() else shutil.which("mpiexec")
    assert command is not None, "mpiexec is not there; install the mpi extra"
    # As root, and with more ranks than cores, Open MPI wants to be told that this is meant.
    return [command, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def start(engine, size, module, folder, *arguments, seconds=120):
    """Run `python -m module engine folder ...` as `size` ranks; returns what each reported.

    torch.distributed meets in a file of `folder`, so that no port has to be free.
    """
    folder = Path(folder)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if engine == "mpi":
        environment |= {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        environment |= {"OMPI_MCA_btl": "self,sm", "TMPDIR": "/tmp"}
    command = [sys.executable, "-m", module, engine, str(folder), *arguments]
    if engine == "mpi":
        commands = [[*mpiexec(), "-n", str(size), *command]]
    else:
        commands = [[*command, str(rank), str(size)] for rank in range(size)]
    running = [
        subprocess.Popen(
            c,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for c in commands
    ]
    printed = []
    try:
        for process in running:
            printed.append(process.communicate(timeout=seconds)[0])
    finally:
        for process in running:
            process.kill()
    reports = []
    for rank in range(size):
        path = folder / f"report-{rank}.json"
        assert path.exists(), f"rank {rank} has reported nothing:\n" + "\n".join(printed)
        reports.append(json.loads(path.read_text()))
    for report in reports:
        assert not report["error"], report["error"]
    return reports

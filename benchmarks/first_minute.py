"""The first minute on a new machine, with an empty folder for compiled kernels.

A process runs the fifteen lines of the README and then `--updates` single changes: edges that come
and go, features, nodes that arrive. Compiled kernels are made beside it, and take over. The same
once more with the kernels that are there then. Seconds are counted from behind the import of torch
and PyG.

| column | what it is |
|---|---|
| `first_update_s` | until the first update has returned |
| `slowest_ms` | the slowest of the updates, each of which could have waited for a compiler |
| `slowest_after_ms` | of as many once the compiled kernels are there |
| `kernels_after_s` | until those of small updates are |
| `all_after_s` | until those of large ones are, too |
| `compiler_s`, `compiler_gb` | processor time of the process that makes them, and its peak |

Then the demo, with an empty folder again: seconds from its start to its last line. Where Python has
its own bytecode to write first, as right behind an installation, everything takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, report

ROOT = Path(__file__).parents[1]
OF_DEMO = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "17179869184")
"""What `make demo` sets."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: all of it, which takes two to four minutes."""
    add = parser.add_argument
    add("--updates", type=int, default=1000, help="single changes that are timed")
    add("--wait", type=float, default=400, help="seconds for the compiled kernels")
    add("--warm", action="store_true", help="with the kernels that are there on this machine")
    add("--no-demo", action="store_true", help="leave the demo out")
    add("--out", type=Path, default=Path("benchmarks/results/first_minute"), help="folder")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    rows: list[report.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for kernels in ("there",) if args.warm else ("none", "there"):
            env = _environment(None if args.warm else folder)
            found = subprocess.run(
                [
                    sys.executable, "-m", "benchmarks.first_updates", "--updates",
                    str(args.updates), "--wait", str(args.wait),
                ],
                cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True, text=True,
            )  # fmt: skip
            rows.append({"kernels": kernels, **json.loads(found.stdout)})
    report.print_table(rows)
    demo = [] if args.no_demo else [_demo(args.warm)]
    report.print_table(demo)
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "first_minute.json",
        {"options": options, "machine": machine.describe(), "results": rows, "demo": demo},
    )


def _demo(warm: bool) -> report.Row:
    """The demo, and what its last line says."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = subprocess.run(
            [sys.executable, "examples/quickstart.py", "--plot", str(Path(folder) / "plot.png")],
            cwd=ROOT, env=_environment(None if warm else folder) | OF_DEMO, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, check=True, text=True,
        )  # fmt: skip
        seconds = time.perf_counter() - began
    last = found.stdout.strip().splitlines()[-1]
    return {"demo_s": seconds, "last line": last}


def _environment(folder: str | None) -> dict[str, str]:
    """Variables of a process, with a folder for its kernels."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {} if folder is None else {"NUMBA_CACHE_DIR": folder}
    return {**os.environ, "PYTHONPATH": path, **own}

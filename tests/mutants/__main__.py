"""Makes every mistake of `mutations.py` in a copy of the package, and looks which tests notice.

    python -m tests.mutants                     # all of them, as a table
    python -m tests.mutants --only "ghosts" --also-all

A mistake in a kernel is looked for without Numba first, as `make test` does too, because compiled
code of other kernels may hold the kernel as it was. If nothing notices, all kernels compile again.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("pyg_incremental", "tests", "benchmarks", "examples", "docs", "README.md", "Makefile",
          "pyproject.toml", "constraints.txt")  # fmt: skip
FAILED = 1  # what pytest returns if tests have failed
SECONDS = 1800
REST = ("tests", "--ignore=tests/examples", "--ignore=tests/data", "-m", "not slow")


def copied(folder: Path) -> Path:
    """A copy of the project with the compiled kernels that are there."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("build"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def mutate(folder: Path, mutation: Mutation) -> None:
    """Make the mistake.

    Raises:
        SystemExit: If what it changes does not stand in the file exactly once.
    """
    path = folder / "pyg_incremental" / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(f"'{mutation.name}': expected its text in {mutation.file} once")
    path.write_text(text.replace(mutation.old, mutation.new))


def forget_compiled(folder: Path) -> None:
    """Delete all compiled kernels: each holds those that it calls."""
    for path in folder.glob("**/__pycache__/*.nb[ic]"):
        path.unlink()


def noticed(folder: Path, *arguments: str, jit: bool = True) -> str:
    """The first test that fails; an empty string if none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    if not jit:
        environment["NUMBA_DISABLE_JIT"] = "1"
        command += ["-m", "kernels"]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no end after {SECONDS} s"
    if done.returncode == 0 or "no tests ran" in done.stdout or done.returncode == 5:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != FAILED or found is None:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return found[1].removeprefix("tests/")


def stages(folder: Path, mutation: Mutation, also_all: bool):
    """What is run until something notices: (name, whether it belongs to the short suite, run)."""
    if mutation.is_compiled:
        yield "short", lambda: noticed(folder, *mutation.first, jit=False)
        yield "short", lambda: noticed(folder, jit=False)
        yield "short", lambda: forget_compiled(folder) or noticed(folder, *mutation.first)
    else:
        yield "short", lambda: noticed(folder, *mutation.first)
    yield "short", lambda: noticed(folder, *REST)
    if also_all:
        yield "all", lambda: noticed(folder, *REST, "--all-cases")


def tried(mutation: Mutation, also_all: bool) -> tuple[Mutation, str, str, float]:
    """Which suite notices, which test, and after how many seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name))
        mutate(folder, mutation)
        began = time.monotonic()
        found = ((suite, run()) for suite, run in stages(folder, mutation, also_all))
        suite, test = next(((suite, test) for suite, test in found if test), ("none", ""))
        return mutation, suite, test, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those whose name or file contains this")
    parser.add_argument("--also-all", action="store_true", help="survivors also with --all-cases")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    chosen = parser.parse_args()
    mutations = [m for m in MUTATIONS if chosen.only in m.name or chosen.only in m.file]
    print("| mistake | in | noticed by | after |\n|---|---|---|---|", flush=True)
    survived = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for m, suite, test, seconds in pool.map(lambda m: tried(m, chosen.also_all), mutations):
            survived += suite != "short"
            by = f"`{test.split('[')[0]}`" + (" (all cases only)" if suite == "all" else "")
            said = by if test else "**nothing**"
            print(f"| {m.name} | `{m.file}` | {said} | {seconds:.0f} s |", flush=True)
    print(f"\n{len(mutations) - survived} of {len(mutations)} are noticed by the short suite")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())

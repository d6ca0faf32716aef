"""Makes every mistake of `mutations.py` in a copy of the package, and looks which tests notice.

    python -m tests.mutants                     # all of them, as a table
    python -m tests.mutants --only "ghosts" --also-all

A mistake in a kernel is looked for without Numba first, as `make test` does too, because compiled
code of other kernels may hold the kernel as it was. If nothing notices, all kernels compile again.
"""

import argparse
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numba
import pytest
import torch_geometric.nn  # noqa: F401 (so that no child has to import it again)

from tests.mutants.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
COPIED = ("pyg_incremental", "tests", "benchmarks", "examples", "docs", "README.md", "Makefile",
          "pyproject.toml", "constraints.txt")  # fmt: skip
SECONDS = 900
KERNELS = "kernels-with-a-mistake"
"""The folder of a copy in which they are kept, and nobody else finds them."""
REST = ("tests", "--ignore=tests/examples", "--ignore=tests/data", "-m", "not slow")


def copied(folder: Path) -> Path:
    """A copy of the project."""
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


def noticed(folder: Path, *arguments: str, jit: bool = True) -> str:
    """The first test that fails; an empty string if none does."""
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *arguments,
        *([] if jit else ["-m", "kernels"]),
    ]
    log = folder / "log"
    child = multiprocessing.get_context("fork").Process(
        target=run_tests, args=(folder, options, jit, log)
    )
    child.start()
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
        return f"no end after {SECONDS} s"
    printed = log.read_text()
    if child.exitcode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    if child.exitcode != pytest.ExitCode.TESTS_FAILED or found is None:
        raise SystemExit(f"pytest ended with {child.exitcode}:\n{printed[-2000:]}")
    return found[1].removeprefix("tests/")


def run_tests(folder: Path, options: list[str], jit: bool, log: Path) -> None:
    """Run pytest on the copy, in a child that has imported nothing of the project but this."""
    with log.open("w") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(p for p in sys.path if Path(p).resolve() != ROOT)]
    os.chdir(folder)
    numba.config.DISABLE_JIT = 0 if jit else 1
    os.environ["NUMBA_DISABLE_JIT"] = "0" if jit else "1"
    if (kernels := folder / KERNELS).is_dir():
        os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(kernels)
    code = pytest.main(options)
    import pyg_incremental

    ours = Path(pyg_incremental.__file__).is_relative_to(folder)
    sys.stdout.flush()
    os._exit(int(code) if ours else 99)


def stages(folder: Path, mutation: Mutation, quick: bool, also_all: bool):
    """What is run until something notices: which suite that belongs to, and how to run it."""
    if mutation.is_compiled:
        yield "short", lambda: noticed(folder, *mutation.first, jit=False)
        yield "short", lambda: noticed(folder, jit=False)
        (folder / KERNELS).mkdir()
        yield "short", lambda: noticed(folder, *mutation.first)
    else:
        yield "short", lambda: noticed(folder, *mutation.first)
    if not quick:
        yield "short", lambda: noticed(folder, *REST)
    if also_all:
        yield "all", lambda: noticed(folder, *REST, "--all-cases")


def tried(mutation: Mutation, quick: bool, also_all: bool) -> tuple[str, str, float]:
    """Which suite notices, which test, and after how many seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name).resolve())
        mutate(folder, mutation)
        began = time.monotonic()
        found = ((suite, run()) for suite, run in stages(folder, mutation, quick, also_all))
        suite, test = next(((suite, test) for suite, test in found if test), ("none", ""))
        return suite, test, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", default=[""], help="those whose name or file contains one"
    )
    parser.add_argument("--also-all", action="store_true", help="survivors also with --all-cases")
    parser.add_argument("--from", dest="first", type=int, default=0, help="leave out so many")
    parser.add_argument(
        "--quick", action="store_true", help="ask only the tests that are likely to notice"
    )
    chosen = parser.parse_args()
    mutations = [
        m for m in MUTATIONS if any(word in m.name or word in m.file for word in chosen.only)
    ]
    mutations = mutations[chosen.first :]
    print("| mistake | in | noticed by | after |\n|---|---|---|---|", flush=True)
    survived = 0
    for m in mutations:
        suite, test, seconds = tried(m, chosen.quick, chosen.also_all)
        survived += suite != "short"
        by = f"`{test.split('[')[0]}`" + (" (all cases only)" if suite == "all" else "")
        said = by if test else "**nothing**"
        print(f"| {m.name} | `{m.file}` | {said} | {seconds:.0f} s |", flush=True)
    print(f"\n{len(mutations) - survived} of {len(mutations)} are noticed by the short suite")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())

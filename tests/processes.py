"""Fresh processes at the price of a fork: of one that has imported torch and PyG, and no more."""

import contextlib
import multiprocessing
import os
import sys
from multiprocessing import forkserver
from pathlib import Path

import numba

ROOT = Path(__file__).parents[1]
FRESH = multiprocessing.get_context("forkserver")
# The second is what PyTorch imports when it traces for the first time: a second by itself.
PRELOADED = ["torch_geometric.nn", "torch.export._trace"]
FRESH.set_forkserver_preload(PRELOADED)


def without_package():
    """See that the one process that all others fork from has not imported the package.

    Workers that sample fork from one that has, and who comes first starts it.
    """
    if forkserver._forkserver._preload_modules != PRELOADED:
        forkserver._forkserver._stop()
        FRESH.set_forkserver_preload(PRELOADED)


def run_script(text, folder, printed, *arguments, **environment):
    """Run a script that imports the package first; returns what it printed and said to stderr.

    Args:
        text: The script.
        folder: Where it runs and finds the package.
        printed: A folder for what it prints.
        arguments: What it is called with, behind its name.
        environment: What stands in its environment besides.
    """
    out, err = printed / "out", printed / "err"
    without_package()
    argv = ["<script>", *map(str, arguments)]
    given = (text, str(folder), str(out), str(err), argv, environment)
    process = FRESH.Process(target=_script, args=given)
    process.start()
    process.join(300)
    process.kill()
    assert process.exitcode == 0, err.read_text()[-3000:]
    return out.read_text(), err.read_text()


def _script(text, folder, out, err, argv, environment):
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    assert "pyg_incremental" not in sys.modules, "imported before the environment was set"
    os.environ.update(environment)
    numba.config.reload_config()  # PyG has imported it
    os.chdir(folder)
    sys.argv = argv
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    with contextlib.suppress(SystemExit):
        exec(compile(text, "<script>", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()
    sys.stderr.flush()

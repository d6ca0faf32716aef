"""Set-up for all tests: one thread, and the seed in every report."""

import collections
import contextlib
import gc
import importlib.util
import inspect
import os
import signal
import sys
import threading
from pathlib import Path

import coverage
import pytest
import torch
from torch_geometric import nn as gnn

from pyg_incremental.kernels import kept, warm_up
from pyg_incremental.kernels.takeover import KERNELS
from tests import strategies
from tests.signatures import is_drawn, representatives
from tests.unmeasured import unmeasured, without_arguments

REQUIRED = {
    "in_channels": 8, "out_channels": 8, "channels": 8, "K": 1, "alpha": 0.5, "num_layers": 1,
    "num_relations": 1, "edge_dim": 1, "hidden_channels": 1, "first_aggr": True, "dim": 1,
    "kernel_size": 2, "num_node_types": 1, "num_edge_types": 1, "edge_type_emb_dim": 1,
    "edge_attr_dim": 1, "edge_attr_emb_dim": 1, "nn": torch.nn.Identity(),
}  # fmt: skip

FIRST, EACH = 2, 16  # of the arguments of a test coverage sees the first two, then each 16th
IN_CHILDREN = "COVERAGE_PROCESS_CONFIG"  # where processes that a test starts see that they count
EACH_TEST = "COVERAGE_OF_EACH_TEST" in os.environ  # see tests/unmeasured.py
AS_PYTHON = os.environ.get("NUMBA_DISABLE_JIT") == "1"
SEED = int(os.environ.get("PYG_INCREMENTAL_SEED", "0"))


def pytest_addoption(parser):
    text = "long walks for all cases, where else some walk in place of others, and what is `more`"
    parser.addoption("--all-cases", action="store_true", help=text)


def pytest_configure(config):
    torch.set_num_threads(1)
    if hasattr(config, "workerinput"):
        gc.disable()  # until all is imported: nothing of that is garbage
    if config.getoption("all_cases"):
        strategies.some = strategies.EVERY
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for processes: threads that wait burn a core
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    KERNELS.wait()  # plain kernels stand in only where a test says so
    if AS_PYTHON:  # then hashes wrap and NaN spreads audibly
        config.addinivalue_line("filterwarnings", "ignore:.* encountered in .*:RuntimeWarning")
    make_each_conv_once()


def make_each_conv_once():
    # PyG writes `propagate` and `edge_updater` of a class for its first instance in a process: if
    # that one does not fuse (SAGEConv with aggr="std"), no later one runs on a sparse matrix, and
    # its flow is everyone's. So the plain ones come first, whatever the order of the tests.
    for name in gnn.conv.__all__[1:]:  # all but MessagePassing itself
        kind = getattr(gnn.conv, name)
        given = {p: REQUIRED[p] for p in inspect.signature(kind).parameters if p in REQUIRED}
        with contextlib.suppress(ImportError, TypeError, ValueError, AssertionError):
            kind(**given)


@pytest.hookimpl(tryfirst=True)  # xdist starts its workers in a hook that says `trylast`
def pytest_sessionstart(session):
    """Compile the kernels first: else plain ones would be tested until they are there."""
    if AS_PYTHON or all(map(kept.is_complete, kept.DTYPES)):
        return
    plugins = session.config.pluginmanager
    if (terminal := plugins.get_plugin("terminalreporter")) is not None:
        terminal.write_line("kernels are compiled, in two minutes on a new machine")
    warm_up()


def pytest_report_header(config):
    return f"seed: {SEED} (set PYG_INCREMENTAL_SEED to try another one)"


def pytest_collection_modifyitems(config, items):
    if not config.getoption("all_cases"):
        left_out = [item for item in items if is_left_out(item)]
        items[:] = [item for item in items if not is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
    leave_unmeasured(items)
    if AS_PYTHON and coverage.Coverage.current() is not None:
        # Kernels as plain Python are there to be counted; compiled, they go through all tests.
        unseen = [item for item in items if "unmeasured" in item.keywords]
        items[:] = [item for item in items if "unmeasured" not in item.keywords]
        config.hook.pytest_deselected(items=unseen)
    if importlib.util.find_spec("torch_sparse") is not None:
        return
    for item in items:
        if "sparse" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="torch_sparse is not installed"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    """Look for garbage among what tests make, not in the million objects that they start from."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def is_left_out(item):
    """Whether it is more of the same, or a walk of the matrix for whose case another one stands.

    Of the walks that are left, and of what has many of its kind, a part is drawn.
    """
    words = item.keywords
    if "more" in words:
        return True
    if "matrix" in words and str(item.callspec.params["case"]) not in representatives():
        return True
    return ("matrix" in words or "many" in words) and not is_drawn(item.nodeid, SEED)


def leave_unmeasured(items):
    """Most models lead along the same lines, which are traced for some of them.

    The table is of tests of compiled code: as Python, kernels have lines that only they run.
    """
    met = collections.Counter()
    for item in items:
        if "measured" in item.keywords:
            continue
        test = without_arguments(item.nodeid)
        known = test in unmeasured() and not (EACH_TEST or AS_PYTHON)
        if known or (met[test] >= FIRST and met[test] % EACH):
            item.add_marker("unmeasured")
        met[test] += 1


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Tracing makes a test last up to twice as long, so it pauses where few lines would be new."""
    measured = coverage.Coverage.current()
    if "unmeasured" not in item.keywords or measured is None:
        if EACH_TEST and measured is not None:
            measured.switch_context(item.nodeid)
        yield
        return
    asked, here, in_threads = (
        os.environ.pop(IN_CHILDREN, None),
        sys.gettrace(),
        threading.gettrace(),
    )
    sys.settrace(None)
    threading.settrace(None)
    yield
    threading.settrace(in_threads)
    sys.settrace(here)
    if asked is not None:
        os.environ[IN_CHILDREN] = asked


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.append(("seed", f"PYG_INCREMENTAL_SEED={SEED}"))


@pytest.fixture
def seed():
    return SEED


@pytest.fixture
def double():
    """What is made without a dtype is float64."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def planetoid_root():
    """The folder with raw Planetoid files, one folder per data set."""
    default = Path(__file__).parents[2] / "shared" / "data"
    root = Path(os.environ.get("PYG_INCREMENTAL_DATA", default)) / "planetoid"
    if not root.is_dir():
        pytest.skip(f"no Planetoid files in {root}")
    return root

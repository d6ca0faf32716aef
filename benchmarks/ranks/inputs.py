"""What the commands begin with: a workload, and its graph cut into parts."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import report, sources
from benchmarks.peers import Skipped
from benchmarks.workload import Workload
from pyg_incremental.distributed import Partition, partition

METHODS = ("metis", "ldg", "hash")
UPDATES = 180_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which workload, and how it is cut."""
    add_workload(parser)
    parser.add_argument("--method", choices=METHODS, default="metis", help="how the graph is cut")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Which workload."""
    add = parser.add_argument
    add("--workload", default="arxiv", metavar="NAME|FILE.npz",
        help=f"{', '.join(sources.NAMES)}, or a file (default: arxiv)")  # fmt: skip
    add("--scale", type=float, default=1.0, help="part of the published size of drawn graphs")
    add("--root", default="data", help="folder of downloads of OGB")
    add("--seed", type=int, default=0)


def load(args: argparse.Namespace) -> Workload:
    """The workload that the options name; batches that it is too short for are left out."""
    try:
        work = sources.load(
            args.workload, updates=UPDATES, scale=args.scale, root=args.root, seed=args.seed
        )
    except Skipped as reason:
        raise SystemExit(f"{args.workload}: {reason}") from reason
    args.batch = [batch for batch in args.batch if batch <= len(work.kind)]
    return work


def cut(work: Workload, parts: int, method: str, seed: int) -> Partition:
    """The parts, with their figures."""
    try:
        return partition(work.edge_index, len(work.x), parts, method, seed)
    except ImportError as error:
        raise SystemExit(str(error)) from error


def told(args: argparse.Namespace) -> dict[str, object]:
    """The options as they stand in a result: of files their names only."""
    options = {name: value for name, value in vars(args).items() if name not in ("out", "root")}
    if "workload" in options and options["workload"] not in sources.NAMES:
        options["workload"] = Path(args.workload)
    return report.plain(options)

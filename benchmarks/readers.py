"""A thread that writes, alone and beside threads that read, in turns.

The writer applies deltas of `--batch` updates as fast as it can. In every second turn `--readers`
threads read 100 rows `--rate` times a second each. `throughput` is the median, over neighbouring
turns, of the updates per second beside readers against those alone. In every read the version has
to be one that the writer has reached, and never an older one than in the read before.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.stream import Stream
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up

ROWS = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: one reader at 100 Hz on the drawn graph of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--model", choices=MODELS, default="sage")
    add("--batch", type=int, default=10)
    add("--readers", type=int, default=1)
    add("--rate", type=float, default=100, help="reads per second of each reader")
    add("--turns", type=int, default=10, help="pairs of turns")
    add("--seconds", type=float, default=2, help="length of a turn")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/readers"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    size = graphs.SIZES["arxiv"].scaled(args.scale)
    work = graphs.draw(size, 60 * args.batch, args.seed)
    warm_up()
    inc = to_incremental(build(args.model, size.channels, 128, size.classes, 2))
    inc(work.x, work.edge_index)
    stream, readers = Stream(work), _Readers(inc, len(work.x), args.readers, args.rate)

    def turn(is_read: bool) -> float:
        readers.wanted.set() if is_read else readers.wanted.clear()
        began, updates = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < args.seconds:
            inc.apply_delta(stream.take(args.batch))
            updates += 1
        return updates / took

    with readers:
        turn(True)
        alone, beside = zip(*((turn(False), turn(True)) for _ in range(args.turns)), strict=True)
    row: report.Row = {
        "readers": args.readers, "alone_per_s": median(alone), "beside_per_s": median(beside),
        "throughput": median(b / a for a, b in zip(alone, beside, strict=True)),
        "reads": readers.reads, "read_p50_ms": 1e3 * median(readers.took or [0.0]),
    }  # fmt: skip
    report.print_table([row])
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "readers.json",
        {"options": options, "machine": machine.describe(), "results": [row]},
    )
    if readers.errors:
        raise readers.errors[0]


class _Readers:
    """Threads that read while `wanted` is set."""

    def __init__(self, inc: object, num_nodes: int, count: int, rate: float) -> None:
        self.inc, self.num_nodes, self.rate = inc, num_nodes, rate
        self.wanted, self._end = threading.Event(), threading.Event()
        self.reads, self.took, self.errors = 0, [], []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(count)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        self.wanted.set()
        for thread in self._threads:
            thread.join()

    def _run(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        last = 0
        try:
            while self.wanted.wait() and not self._end.is_set():
                nodes = torch.randint(self.num_nodes, (ROWS,), generator=generator)
                began = time.perf_counter()
                version, rows = self.inc.read(nodes)
                self.took.append(time.perf_counter() - began)
                if not last <= version <= self.inc.version or len(rows) != ROWS:
                    raise AssertionError(f"version {version} was read after version {last}")
                last, self.reads = version, self.reads + 1
                time.sleep(1 / self.rate)
        except BaseException as error:
            self.errors.append(error)

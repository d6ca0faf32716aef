"""Throughput under a bound on latency: batches by deadline, and of fixed sizes.

The experiment is that of NeutronRT, Figure 12c. Edges of the drawn graph of ogbn-arxiv's size come
and go as events that arrive at a rate, and a stream has to answer each within a deadline.
`sustained` is the highest rate at which no more than `--missed` of the events are late, found by
halving. Batches by deadline (`max_latency`) are held against the best of the fixed sizes, each of
which takes what is there, up to that size. Which one is the best is known only afterwards; both are
then measured `--turns` times more, in turns, and the medians count. At last the rate is ten times
as high for a second, and late events are counted until all is as before.

The time is one of its own, so that other programs count less: where no event is there it skips to
the next one, and else it goes by with one of two things (`--clock`):

* `thread`: what the thread of the stream computes. Machines whose memory others share stand still
  for milliseconds nevertheless, many times a deadline of one. That only makes events later, so a
  rate is held if one of `--tries` runs holds it.
* `costs`: what batches cost, measured beforehand and once: so much for each one, each event and
  each row that it changes. The stream, the model and the graph are the same, and two ways to make
  batches differ by nothing else.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import QuantileRegressor
from torch import nn

from benchmarks import graphs, machine, report
from benchmarks.models import MODELS, build
from benchmarks.report import Row
from benchmarks.streams import SCHEMA, events_of, turned
from benchmarks.workload import Workload
from pyg_incremental import Update
from pyg_incremental.kernels import warm_up
from pyg_incremental.sources.event import Events
from pyg_incremental.stream import Stream

SIZES = (1, 4, 16, 64, 256, 1024, 4096)
RATES = tuple(int(1000 * 1.15**k) for k in range(40))
"""Events a second: 1,000 to 233,000."""
BEFORE = 3000
"""Events at each of three rates before anything is timed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: deadlines of 1, 10 and 100 ms."""
    add = parser.add_argument
    add("--model", choices=MODELS, default="sage")
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--hidden", type=int, default=128)
    add("--deadline", type=float, nargs="+", default=[1, 10, 100], help="milliseconds")
    add("--rate", type=int, nargs="+", default=[1000, 3000, 10_000], help="before and after bursts")
    add("--missed", type=float, default=0.001, help="part of the events that may be late")
    add("--turns", type=int, default=3, help="of batches by deadline and the best size, in turns")
    add("--tries", type=int, default=3, help="runs at a rate, of which one has to hold it")
    add("--clock", choices=("thread", "costs"), default="thread", help="what time goes by with")
    add("--seconds", type=float, default=1, help="of events in each run")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/deadlines"), help="folder of results")


def run(args: argparse.Namespace) -> None:
    """Measure, print, draw and write what came out."""
    machine.use_threads(1)
    warm_up()
    about = machine.describe()
    size = graphs.SIZES["arxiv"].scaled(args.scale)
    work = graphs.draw(size, 60_000, args.seed)
    model = build(args.model, size.channels, args.hidden, size.classes, 2)
    limits = [ms / 1000 for ms in args.deadline]
    once = events_of(work)
    events = [*once, *turned(once)]
    clock: Callable[[], Clock] = Clock
    if args.clock == "costs":
        costs = costs_of(Program(model, work, events, Clock(), max_size=RATES[-1]))
        print(costs)
        clock, args.tries, args.turns = partial(CostClock, costs), 1, 1
    fixed = {of: Program(model, work, events, clock(), max_size=of) for of in SIZES}
    rows, bursts = [], []
    for limit in limits:
        ours = Program(model, work, events, clock(), max_size=RATES[-1], max_latency=limit)
        best, size_of_best = 0, 0
        for of, program in fixed.items():
            rate = sustained(program, limit, args)
            best, size_of_best = max((best, size_of_best), (rate, of))
        # The luckiest of nine is not what that size does: both are measured anew, in turns.
        turns = [
            (sustained(ours, limit, args), sustained(fixed[size_of_best], limit, args))
            for _ in range(args.turns)
        ]
        rate, best = (int(median(rates)) for rates in zip(*turns, strict=True))
        rows.append({
            "deadline_ms": limit * 1e3, "by_deadline": rate, "best_fixed": best,
            "its_size": size_of_best, "of_best": rate / best if best else float("inf"),
        })  # fmt: skip
        bursts += [burst(ours, fixed[size_of_best], rate, limit, args) for rate in args.rate]
        off = float(ours.stream.inc.verify())
        if not off < 1e-4:
            raise SystemExit(f"the outputs are off by {off:.1e}")
    gc.unfreeze()
    report.print_table(rows)
    report.print_table(bursts)
    result = {"options": report.plain({k: v for k, v in vars(args).items() if k != "out"}),
              "machine": about, "sustained": rows, "bursts": bursts}  # fmt: skip
    report.write_json(args.out / "deadlines.json", result)
    print(f"written to {args.out}: deadlines.json", end="")
    if importlib.util.find_spec("matplotlib"):
        _plot(rows, args.out / "deadlines.png")
        print(", deadlines.png", end="")
    print()


class Costs(NamedTuple):
    """What a batch costs, each of its events, and each row of the output that it changes."""

    batch: float
    event: float
    row: float


class Clock:
    """Seconds, from zero on, that go by with what this thread computes and what is skipped."""

    def __init__(self) -> None:
        self._skipped = -time.thread_time()

    def __call__(self) -> float:
        return time.thread_time() + self._skipped

    def skip_to(self, moment: float) -> None:
        """Wait until a moment, if it is not over."""
        self._skipped += max(0.0, moment - self())

    def applied(self, update: Update[Any]) -> None:
        """An update of edges is done."""


class CostClock(Clock):
    """Seconds, from zero on, that go by with known costs of updates and what is skipped."""

    def __init__(self, costs: Costs) -> None:
        self._costs, self._now = costs, 0.0

    def __call__(self) -> float:
        return self._now

    def skip_to(self, moment: float) -> None:
        """Wait until a moment, if it is not over."""
        self._now = max(self._now, moment)

    def applied(self, update: Update[Any]) -> None:
        """An update of edges is done."""
        costs, events = self._costs, update.stats.edges_added + update.stats.edges_deleted
        self._now += costs.batch + costs.event * events + costs.row * len(update.changed)


class Arrivals:
    """A source whose events arrive at given moments."""

    def __init__(self, values: list[dict[str, Any]], clock: Clock) -> None:
        self._values, self._clock = values, clock
        self._given = self._until = 0
        self._moments = np.zeros(0)
        self._first = 0

    def offer(self, moments: np.ndarray) -> None:
        """Let one more event arrive at each of these moments, float64 `[k]`, in order."""
        self._first, self._until, self._moments = self._given, self._given + len(moments), moments

    def next_batch(self, max_events: int) -> Events:
        """See `Source`."""
        if self._given == self._until:
            return Events()
        waiting = self._moments[self._given - self._first :]
        self._clock.skip_to(float(waiting[0]))
        count = int(np.searchsorted(waiting[:max_events], self._clock(), side="right"))
        begin, n = self._given, len(self._values)
        self._given += max(count, 1)
        values = [self._values[at % n] for at in range(begin, self._given)]
        positions = range(begin + 1, self._given + 1)
        return Events(positions, values, at=waiting[: len(values)].tolist())

    def position(self) -> int:
        """See `Source`."""
        return self._given

    def open(self, position: int) -> None:
        """See `Source`."""
        self._given = position


class Program:
    """A stream of its own with batches of one kind.

    Args:
        model: The model.
        work: The graph.
        events: What arrives, again and again.
        clock: The time.
        options: Those of `Stream` that say how large batches are.
    """

    def __init__(
        self, model: nn.Module, work: Workload, events: list[dict[str, Any]], clock: Clock,
        **options: Any,
    ) -> None:  # fmt: skip
        self.clock = clock
        self._source = Arrivals(events, clock)
        self.stream = Stream(
            model, self._source, SCHEMA, first=(work.x, work.edge_index), clock=clock, **options
        )  # fmt: skip
        self.stream.inc.on_update(self._applied)
        for rate in (1000, 100_000, 5000):  # what updates of each size are to meet compiled
            self.late(np.arange(BEFORE) / rate, 1.0)
        gc.collect()
        gc.freeze()  # else a look at all events and graphs stops one of the programs for a while

    def _applied(self, update: Update[Any]) -> None:
        self._changed = len(update.changed)
        self.clock.applied(update)

    def steps(self, size: int, count: int) -> Iterator[tuple[int, int, float]]:
        """The events, changed rows and seconds of some batches of up to `size` events."""
        for _ in range(count):
            self._source.offer(np.zeros(size))
            began = self.clock()
            taken = self.stream.step()
            yield taken, self._changed, self.clock() - began

    def late(self, moments: np.ndarray, limit: float, most: float = 1.0) -> float:
        """Which part of events is answered too late; no more are taken once that is above `most`.

        Args:
            moments: When they arrive, float64 `[k]`, in seconds from now on.
            limit: Seconds after that.
            most: A part of the events.
        """
        moments = moments + self.clock()
        self._source.offer(moments)
        late = done = 0
        while late <= most * len(moments) and (count := self.stream.step()):
            late += int((self.clock() - moments[done : done + count] > limit).sum())
            done += count
        self._source.offer(moments[:0])  # those that are left do not come
        assert not self.stream.stats.dead
        return late / len(moments)


def costs_of(program: Program) -> Costs:
    """What batches cost: the least absolute errors, as a machine that stands still says nothing."""
    steps = np.array([
        step for _ in range(4) for size in SIZES[:-1] for step in program.steps(size, 100)
    ])  # fmt: skip
    # Relative errors, else the large batches decide alone.
    of_one = np.column_stack([np.ones(len(steps)), steps[:, :2]]) / steps[:, 2:]
    fit = QuantileRegressor(alpha=0.0, fit_intercept=False).fit(of_one, np.ones(len(steps)))
    return Costs(*fit.coef_.tolist())


def sustained(program: Program, limit: float, args: argparse.Namespace) -> int:
    """The highest of the rates at which few enough events are late; 0 if there is none."""
    low, high = -1, len(RATES)
    while high - low > 1:
        middle = (low + high) // 2
        rate = RATES[middle]
        moments = np.arange(int(rate * args.seconds)) / rate
        tries = (program.late(moments, limit, args.missed) for _ in range(args.tries))
        if any(late <= args.missed for late in tries):
            low = middle
        else:
            high = middle
    return RATES[low] if low >= 0 else 0


def burst(ours: Program, best: Program, rate: int, limit: float, args: argparse.Namespace) -> Row:
    """Late events around a second of ten times the rate, in the best of some tries."""
    moments = np.concatenate([
        np.arange(rate) / rate, 1 + np.arange(10 * rate) / (10 * rate),
        2 + np.arange(2 * rate) / rate,
    ])  # fmt: skip
    return {
        "deadline_ms": limit * 1e3, "rate": rate,
        "by_deadline_missed": min(ours.late(moments, limit) for _ in range(args.tries)),
        "best_fixed_missed": min(best.late(moments, limit) for _ in range(args.tries)),
    }  # fmt: skip


def _plot(rows: list[Row], path: Path) -> None:
    """Events a second over the deadline."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    figure, panel = plt.subplots(figsize=(5, 3.4), layout="constrained")
    deadlines = [row["deadline_ms"] for row in rows]
    for name, label in (("by_deadline", "batches by deadline"), ("best_fixed", "best fixed size")):
        panel.plot(deadlines, [row[name] for row in rows], marker="o", label=label)
    for row in rows:
        panel.annotate(f"{row['its_size']}", (row["deadline_ms"], row["best_fixed"]),
                       textcoords="offset points", xytext=(4, -12), fontsize=8)  # fmt: skip
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_xticks(deadlines, [f"{ms:g}" for ms in deadlines])
    panel.set_xlabel("deadline, milliseconds")
    panel.set_ylabel("events a second in time")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)

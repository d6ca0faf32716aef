"""Programs of convs that are written by hand against what the tracer finds, in turns.

Each conv class with a program of its own is wrapped twice: with it, and once more while the class
has none, so that its `forward` is looked into. On a drawn graph edges come and go, so many at once,
and nodes change their features; for each there is the median in microseconds, in turns. `ratio` is
the worst of traced by hand. A program is needless where both follow a change in the same way and no
ratio is above 1.1; where they do not, nothing is timed. One thread.

`--first-calls` measures first calls instead, of three layers each: milliseconds of processor, the
least of several models of a process that has seen one already. What a machine does beside makes no
call faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from unittest import mock

import torch
from torch import Tensor, nn
from tqdm import tqdm

from benchmarks import machine, report
from benchmarks.conv_models import SAMPLES, Sample
from benchmarks.convs import Delta, drawn, there_and_back
from pyg_incremental import IncrementalModel, to_incremental
from pyg_incremental.conv import registry
from pyg_incremental.kernels import warm_up
from pyg_incremental.trace.supported import scheme_of

WARM_UP = 10  # updates that are not counted: the plan is compiled after eight
TURNS = 3
NEEDLESS = 1.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: 20,000 nodes, 400,000 edges, 64 channels."""
    add = parser.add_argument
    add("--nodes", type=int, default=20_000)
    add("--edges", type=int, default=400_000)
    add("--channels", type=int, default=64, help="of rows, in and out")
    add("--batch", type=int, nargs="+", default=[1, 100, 1000], help="edges at once")
    add("--rows", type=int, nargs="*", default=[10], help="nodes at once that get other features")
    add("--conv", nargs="+", choices=[*SAMPLES], help="only these")
    add("--updates", type=int, default=20, help="updates for each figure and turn")
    add("--first-calls", action="store_true", help="measure these; 1,000 nodes and 4,000 edges")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/traced"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    warm_up("float32")
    rows = []
    for name in tqdm(args.conv or SAMPLES, disable=None):
        rows.append((_first_calls if args.first_calls else _compared)(name, args))
        tqdm.write("  ".join(map(str, rows[-1].values())))
    about = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "traced.json",
        {"options": about, "machine": machine.describe(), "results": rows},
    )


@contextmanager
def without_programs(model: nn.Module) -> Iterator[None]:
    """While this lasts, no conv in a model has a program that was written by hand."""
    kinds = {kind for m in model.modules() for kind in type(m).__mro__}
    left = {k: b for k, b in registry.builders().items() if k not in kinds}
    with mock.patch.object(registry, "_BUILDERS", left):
        yield


class _Layers(nn.Module):
    """Three layers of a class."""

    def __init__(self, sample: Sample, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([sample.make(channels) for _ in range(3)])

    def forward(self, x: Tensor, *rest: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *rest).relu()
        return x


def _first_calls(name: str, args: argparse.Namespace) -> report.Row:
    """One class: what a first call takes with its program, if it has one, and without."""
    sample, generator = SAMPLES[name], torch.Generator().manual_seed(args.seed)
    x = torch.randn(1000, args.channels, generator=generator)
    given = [x, torch.randint(1000, (2, 4000), generator=generator)]
    given += [torch.empty(2, 0, dtype=torch.int64)] * bool(sample.key)
    given += [drawn(d, 4000, generator) for d in sample.data]

    def least() -> float:
        took = []
        for _ in range(10):
            inc = to_incremental(_Layers(sample, args.channels).eval())
            began = time.thread_time()
            inc(*given)
            took.append(1e3 * (time.thread_time() - began))
        return min(took[1:])

    row: report.Row = {"conv": name, "ms": round(least(), 1)}
    with without_programs(sample.make(args.channels)):
        row["traced, ms"] = round(least(), 1)
    return row


def _compared(name: str, args: argparse.Namespace) -> report.Row:
    """One class: what either program is made of, and what changes cost."""
    sample = SAMPLES[name]
    by_hand = _wrapped(sample, args)
    with without_programs(sample.make(args.channels)):
        traced = _wrapped(sample, args)
    row: report.Row = {"conv": name, "by hand": _kinds(by_hand), "traced": _kinds(traced)}
    same, worst = scheme_of(by_hand.program) == scheme_of(traced.program), 0.0
    changes = [*(("edges", n) for n in args.batch), *(("rows", n) for n in args.rows)]
    for what, count in changes if same else ():  # else there is nothing to decide
        took: dict[str, list[float]] = {"by hand": [], "traced": []}
        for turn in range(TURNS):
            for side, inc in (("by hand", by_hand), ("traced", traced)):
                took[side].append(_timed(inc, sample, what, count, turn, args))
        hand, found = (median(took[side]) for side in ("by hand", "traced"))
        row |= {f"{count} {what}, hand": round(hand), f"{count} {what}, traced": round(found)}
        worst = max(worst, round(found / hand, 2))
    row["ratio"] = worst if same else None
    row["gap"] = float((by_hand.out - traced.out).abs().max() / by_hand.out.abs().max())
    row["needless"] = same and worst <= NEEDLESS
    return row


def _wrapped(sample: Sample, args: argparse.Namespace) -> IncrementalModel:
    """A model behind its first call."""
    generator = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    x = torch.randn(args.nodes, args.channels, generator=generator)
    edges = torch.randint(args.nodes, (2, args.edges), generator=generator)
    data = {d: drawn(d, args.edges, generator) for d in sample.data}
    none = [torch.empty(2, 0, dtype=torch.int64)] * bool(sample.key)
    inc = to_incremental(sample.make(args.channels).eval())
    inc(x, edges, *none, *data.values())
    return inc


def _timed(
    inc: IncrementalModel, sample: Sample, what: str, size: int, turn: int, args: argparse.Namespace
) -> float:
    """The median microseconds of an update of so many edges, or rows of features."""
    generator = torch.Generator().manual_seed(args.seed + 1 + turn)
    skipped = 0 if turn else WARM_UP
    took = []
    for delta in _deltas(what, size, args.updates + skipped, sample, args, generator):
        began = time.perf_counter()
        inc.apply_delta(**delta)
        took.append(1e6 * (time.perf_counter() - began))
    return median(took[skipped:])


def _deltas(
    what: str,
    size: int,
    count: int,
    sample: Sample,
    args: argparse.Namespace,
    generator: torch.Generator,
) -> Iterator[Delta]:
    """So many changes."""
    for _ in range(count // 2):
        if what == "edges":
            pair = torch.randint(args.nodes, (2, size), generator=generator)
            yield from there_and_back(pair, sample, generator)
        else:
            for _ in range(2):
                ids = torch.randperm(args.nodes, generator=generator)[:size]
                yield {"x_changes": (ids, torch.randn(size, args.channels, generator=generator))}


def _kinds(inc: IncrementalModel) -> str:
    """What a program is made of, but for inputs and row maps."""
    kinds = [s.kind for s in inc.program.steps if s.kind not in ("input", "map", "ones")]
    counted = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return " + ".join(f"{n} {kind}" if n > 1 else kind for kind, n in counted.items())

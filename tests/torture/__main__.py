"""Inject faults for some minutes, and say what came of them: `python -m tests.torture`.

Each piece of work runs in a process of its own. Nothing is caught there: a wrong answer, a crash or
a hang ends it, and the line that it leaves says how to do the same again (`--seed`, `--only`).
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import torch
from tqdm import tqdm

from pyg_incremental.kernels import warm_up
from tests.torture.apart import Lost, apart
from tests.torture.damaged import files
from tests.torture.evaluations import evaluations
from tests.torture.exceptions import batch
from tests.torture.forks import forks
from tests.torture.kills import kills
from tests.torture.services import services
from tests.torture.writes import writes

FAULTS, KILLS, FILES, FORKS, EVALUATIONS, LIVES, WRITES = 500, 20, 100, 250, 20, 8, 100
"""How many are in one piece of work."""
LIMIT = 300
"""Seconds without a word, after which a piece hangs."""
WORK = {
    "exceptions": (batch, FAULTS), "kills": (kills, KILLS), "files": (files, FILES),
    "forks": (forks, FORKS), "evaluate": (evaluations, EVALUATIONS),
    "services": (services, LIVES), "writes": (writes, WRITES),
}  # fmt: skip


def main():
    """Run all; the exit code says whether anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--forks", type=int, default=1000)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--services", type=int, default=40, help="coordinators of services")
    parser.add_argument("--writes", type=int, default=1000, help="to weights that are shared")
    parser.add_argument("--only", choices=WORK, help="only this kind, from the piece of --seed on")
    parser.add_argument("--pieces", type=int, default=1, help="so many, with --only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"compiling or loading kernels took {warm_up():.1f} s", flush=True)
    counts, lost = run(options)
    print()
    for name, count in sorted(counts.items()):
        print(f"{count:9,}  {name}")
    total = sum(n for name, n in counts.items() if name.startswith("exceptions"))
    print(f"{total:9,}  exceptions injected in all; {len(lost)} wrong answers, crashes or hangs")
    for what in lost:
        print(f"  {what}")
    return bool(lost)


def run(options):
    """Do all pieces of work that there is time for."""
    end = time.monotonic() + 60 * options.minutes
    counts, lost, running = Counter(), [], {}
    total = options.pieces if options.only else None
    with ThreadPoolExecutor(options.jobs) as pool, tqdm(total=total, disable=None) as bar:
        for kind, seed in pieces(options):
            work, size = WORK[kind]
            running[pool.submit(apart, work, LIMIT, seed, size)] = kind, seed
            while len(running) >= options.jobs:
                take(running, counts, lost, bar)
            if time.monotonic() > end:
                break
        while running:
            take(running, counts, lost, bar)
    return counts, lost


def take(running, counts, lost, bar):
    """Wait for a piece of work, and count what it has done."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        bar.update()
        kind, seed = running.pop(future)
        try:
            for name, count in future.result().items():
                counts[f"{kind}: {name}"] += count
        except Lost as error:
            lost.append(f"--only {kind} --seed {seed}: {error}")
            print(lost[-1], flush=True)


def pieces(options):
    """Kinds of work and their seeds: exceptions without end, after all others."""
    if options.only:
        for i in range(options.pieces):
            yield options.only, options.seed + i
        return
    first = options.seed * 1_000_000
    counts = {"kills": options.kills, "files": options.files, "forks": options.forks}
    counts |= {
        "evaluate": options.evaluations, "services": options.services, "writes": options.writes,
    }  # fmt: skip
    for kind, count in counts.items():
        for i in range(count // WORK[kind][1]):
            yield kind, first + i
    while True:
        yield "exceptions", first
        first += 1


if __name__ == "__main__":
    sys.exit(main())

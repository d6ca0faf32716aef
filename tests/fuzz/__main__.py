"""Random models and calls along random deltas, held against the original; see `--help`."""

import argparse
import itertools
import sys

from tqdm import tqdm

from tests.fuzz.calls.report import called
from tests.fuzz.draw import every_operation, operations
from tests.fuzz.report import Report
from tests.fuzz.search import search
from tests.fuzz.trial import draw_single, draw_trial


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so many minutes")
    parser.add_argument("--models", type=int, default=0, help="stop after so many draws")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first model")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--folder", default="build/fuzz", help="where scripts of failures go")
    parser.add_argument("--each", action="store_true", help="each operation by itself, once")
    parser.add_argument("--calls", type=int, default=0, help="so many calls on objects instead")
    given = parser.parse_args()
    if given.calls:
        seeds = range(given.seed, given.seed + given.calls)
        sys.exit(bool(called(seeds, given.workers, given.minutes).wrong))
    if given.each:
        given.models = len(every_operation())
    if not given.models and not given.minutes:
        given.minutes = 10.0
    stop = given.seed + given.models
    seeds = range(given.seed, stop) if given.models else itertools.count(given.seed)

    print(f"{len(operations())} operations in the grammar")
    report = Report()
    with tqdm(total=given.models or None, unit=" models", mininterval=1, disable=None) as bar:

        def progress(report):
            bar.set_postfix_str(f"{report.followed} deltas, {len(report.failures)} wrong")
            bar.update()

        draw = draw_single if given.each else draw_trial
        search(seeds, draw, given.workers, given.minutes, report, given.folder, progress)
    print(report)
    if given.each:
        print(report.by_operation())
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()

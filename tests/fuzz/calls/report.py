"""Many calls, and what has come of them."""

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import torch
from tqdm import tqdm

from tests.fuzz.calls.trial import run

BLOCK = 40


class Report:
    """What has come of calls.

    Attributes:
        kinds: How many were right, refused, wrong, or raise in the model itself.
        modes: How those that are right were computed.
        deltas: How many deltas were followed.
        wrong: The seed of each wrong one, and why.
        refused: What was said, and how often.
        raised: What models have raised by themselves, and how often.
    """

    def __init__(self):
        self.kinds, self.modes, self.refused = Counter(), Counter(), Counter()
        self.raised = Counter()
        self.deltas, self.wrong = 0, {}

    def take(self, seed, outcome):
        self.kinds[outcome.kind] += 1
        self.deltas += outcome.deltas
        if outcome.kind == "right":
            self.modes[outcome.mode] += 1
        elif outcome.kind == "wrong":
            self.wrong[seed] = outcome.why
        elif outcome.kind == "refused":
            self.refused[outcome.why] += 1
        else:
            self.raised[outcome.why] += 1

    def __str__(self):
        lines = [f"{dict(self.kinds)}, {self.deltas} deltas; {dict(self.modes)}"]
        lines += [f"refused {n} times: {why}" for why, n in self.refused.most_common()]
        lines += [f"the model raised {n} times: {why}" for why, n in self.raised.most_common()]
        lines += [f"WRONG, seed {seed}: {why}" for seed, why in self.wrong.items()]
        return "\n".join(lines)


def called(seeds, workers, minutes):
    """Try the calls of some seeds in several processes, and print what has come of them.

    Without a number of minutes, or with zero, all of them.
    """
    report, ends = Report(), time.monotonic() + 60 * minutes if minutes else float("inf")
    bar = tqdm(total=len(seeds), unit=" calls", disable=None)
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for first in range(0, len(seeds), BLOCK):
            if time.monotonic() > ends:
                break
            block = seeds[first : first + BLOCK]
            for seed, outcome in zip(block, pool.map(run, block, chunksize=5), strict=True):
                report.take(seed, outcome)
                bar.update()
    print(report)
    return report

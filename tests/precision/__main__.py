"""Long streams that are made to blur sums in float32: `python -m tests.precision --help`."""

import argparse
import itertools
import sys
import warnings

import torch
from tqdm import tqdm

from tests.precision.streams import BOUND, MODELS, STREAMS, worst_of


def main():
    """Print the worst error of a row of each stream and model; fail if one is above the bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.precision", description=__doc__)
    parser.add_argument("--deltas", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=2_000, help="edges of a hub or a window")
    parser.add_argument("--stream", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    failed = False
    pairs = [*itertools.product(given.stream, given.model)]
    for stream, model in tqdm(pairs, disable=None):
        worst = worst_of(
            stream, model, given.size, given.deltas, given.seed, compile_after=1,
            backend=given.backend,
        )  # fmt: skip
        failed |= not worst <= BOUND
        tqdm.write(f"{stream:20} {model:12} {worst:.1e}")
        sys.stdout.flush()
    sys.exit(failed)


if __name__ == "__main__":
    main()

"""The command line: `pyg-incremental --help`, or `python -m pyg_incremental --help`."""

import argparse
import sys
from collections.abc import Sequence

from pyg_incremental.blocks import command as evaluating
from pyg_incremental.kernels import kept, warm_up


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="pyg-incremental")
    commands = parser.add_subparsers(required=True)
    warm = commands.add_parser(
        "warm-up",
        help="compile all kernels and keep them, so that no process on this machine has to",
    )
    warm.add_argument(
        "--dtype", choices=kept.DTYPES, nargs="+", default=kept.DTYPES,
        help="of the features; float32 and float64 by default",
    )  # fmt: skip
    warm.set_defaults(run=_warm_up)
    evaluate = commands.add_parser(
        "evaluate",
        help="compute what a trained model returns, layer by layer, in a number of bytes",
        description=evaluating.DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    evaluating.add_options(evaluate)
    evaluate.set_defaults(run=evaluating.run)
    args = parser.parse_args(arguments)
    status: int = args.run(args)
    return status


def _warm_up(args: argparse.Namespace) -> int:
    """Compile all kernels ahead of time, as for an image."""
    seconds = warm_up(*args.dtype)
    root = kept.root()
    where = f"in {root}" if root is not None else "beside the package"
    is_kept = kept.is_kept_for_others() and all(map(kept.is_complete, args.dtype))
    if not is_kept:
        sys.stderr.write("the compiled kernels could not be kept; set NUMBA_CACHE_DIR\n")
        return 1
    sys.stdout.write(f"kernels for {' and '.join(args.dtype)} ready {where} ({seconds:.1f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`pyg-incremental warm-up`: compile all kernels ahead of time, as for an image."""

import argparse
import sys
from collections.abc import Sequence

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
    dtypes = parser.parse_args(arguments).dtype
    seconds = warm_up(*dtypes)
    root = kept.root()
    where = f"in {root}" if root is not None else "beside the package"
    is_kept = kept.is_kept_for_others() and all(map(kept.is_complete, dtypes))
    if not is_kept:
        sys.stderr.write("the compiled kernels could not be kept; set NUMBA_CACHE_DIR\n")
        return 1
    sys.stdout.write(f"kernels for {' and '.join(dtypes)} ready {where} ({seconds:.1f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `pyg-incremental --help`, or `python -m pyg_incremental --help`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

_DTYPES = ("float32", "float64")
_EVALUATE = """\
Compute what a trained model returns for all nodes of a graph, or for some, layer by layer, in
blocks of rows that fit in a number of bytes.

  pyg-incremental evaluate --model train.py:make --weights weights.pt --data graph.npz --out out.npy
  pyg-incremental evaluate --model model.pt --trust --data folder --directory rows --memory 4GB

--model   FILE.py:FUNCTION or MODULE:FUNCTION, which is called and returns the model (it may also
          name the model itself); or a file of torch.save(model), which needs --trust
--data    a folder of .npy files, which stay on disk; a .npz or .pt file. They hold what the model's
          forward takes by name (x.npy, edge_index.npy, edge_weight.npy); what it does not take is
          left. Of several types of nodes and edges: user/x.npy, user__buys__item/edge_index.npy
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="pyg-incremental")
    commands = parser.add_subparsers(required=True)
    warm = commands.add_parser(
        "warm-up",
        help="compile all kernels and keep them, so that no process on this machine has to",
    )
    warm.add_argument(
        "--dtype", choices=_DTYPES, nargs="+", default=_DTYPES,
        help="of the features; float32 and float64 by default",
    )  # fmt: skip
    warm.set_defaults(run=_warm_up)
    cache = commands.add_parser(
        "cache",
        help="say where compiled kernels are kept and how many bytes they take, or delete them",
    )
    cache.add_argument("--clear", action="store_true", help="delete those of all versions")
    cache.set_defaults(run=_cache)
    evaluate = commands.add_parser(
        "evaluate",
        help="compute what a trained model returns, layer by layer, in a number of bytes",
        description=_EVALUATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_options(evaluate)
    evaluate.set_defaults(run=_evaluate)
    args = parser.parse_args(arguments)
    status: int = args.run(args)
    return status


def _add_options(parser: argparse.ArgumentParser) -> None:
    """What `evaluate` takes."""
    add = parser.add_argument
    add("--model", required=True, help="where the model is; see above")
    add("--weights", type=Path, help="a file of torch.save(model.state_dict()), loaded into it")
    add("--data", required=True, type=Path, help="where the graph is; see above")
    add("--out", type=Path, help="a .npy, .npz or .pt file for the result")
    add("--memory", default="4GB", help="bytes that rows may take, such as 4GB (the default)")
    add("--directory", type=Path, help="keep rows in files there; a killed evaluation goes on")
    add("--nodes", nargs="+", metavar="ID", help="ids, or one .npy file of ids or of a mask")
    add("--num-neighbors", type=int, nargs="+", metavar="EDGES",
        help="edges that each node keeps, at most; several for the layers, the last one first"
    )  # fmt: skip
    add("--seed", type=int, default=0, help="of the edges that are drawn")
    add("--order", help="of the nodes in blocks: rcm, communities, degree, or a .npy file of ids")
    add("--device", help="where blocks are computed, such as cuda")
    add("--trust", action="store_true", help="read pickled objects, which can run any code")
    add("--quiet", action="store_true", help="no bar with rows per second and time left")


def _evaluate(args: argparse.Namespace) -> int:
    from pyg_incremental.blocks import command  # torch and PyG take seconds

    return command.run(args)


def _warm_up(args: argparse.Namespace) -> int:
    """Compile all kernels ahead of time, as for an image."""
    from pyg_incremental.kernels import kept, warm_up

    seconds = warm_up(*args.dtype)
    is_kept = kept.is_kept_for_others() and all(map(kept.is_complete, args.dtype))
    if not is_kept:
        sys.stderr.write("the compiled kernels could not be kept; set NUMBA_CACHE_DIR\n")
        return 1
    of = " and ".join(args.dtype)
    sys.stdout.write(f"kernels for {of} ready in {kept.root()} ({seconds:.1f} s)\n")
    return 0


def _cache(args: argparse.Namespace) -> int:
    from pyg_incremental.kernels import kept

    size = kept.clear() if args.clear else kept.num_bytes()
    done = "deleted" if args.clear else "kept"
    sys.stdout.write(f"{kept.root()}: {size / 1e6:.1f} MB {done}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

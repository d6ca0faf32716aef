"""`python -m pyg_incremental.distributed partition ...`: cut a graph into shards on disk."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.files.shards import write_shards
from pyg_incremental.distributed.placement.partition import METHODS, partition


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        edge_index, nodes, edges = _arrays(options)
        num_nodes = next(iter(nodes.values())).shape[0]
        chosen = partition(
            torch.from_numpy(edge_index), num_nodes, options.parts, options.method, options.seed
        )
        folder = write_shards(options.out, chosen, edge_index, nodes, edges)
    except (PartitionError, ImportError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{chosen}\nwritten to {folder}\n")
    return 0


def _arrays(options: argparse.Namespace) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The edges, node inputs and edge inputs; .npy files are memory-mapped."""
    if options.npz is not None:
        with np.load(options.npz, allow_pickle=False) as file:
            arrays = dict(file)
        if "edge_index" not in arrays:
            raise PartitionError(f"'{options.npz}' has no array 'edge_index'")
        edge_index = arrays.pop("edge_index").astype(np.int64)
        given = {n: a for n, a in arrays.items() if a.ndim > 0}
        edges = {n: a for n, a in given.items() if n.startswith("edge")}
        nodes = {n: a for n, a in given.items() if n not in edges}
    else:
        if options.edge_index is None:
            raise PartitionError("give either --npz or --edge-index and --node")
        edge_index = _load(options.edge_index)
        nodes, edges = _named(options.node), _named(options.edge)
    if not nodes:
        raise PartitionError("there are no node features; give --node x=FILE.npy")
    return edge_index, nodes, edges


def _named(given: Sequence[str]) -> dict[str, Any]:
    found = {}
    for item in given:
        name, _, path = item.partition("=")
        if not path:
            raise PartitionError(f"expected NAME=FILE.npy (got '{item}')")
        found[name] = _load(path)
    return found


def _load(path: str | Path) -> Any:
    return np.load(path, mmap_mode="c", allow_pickle=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyg_incremental.distributed")
    commands = parser.add_subparsers(required=True)
    cut = commands.add_parser("partition", help="cut a graph into one folder for each rank")
    cut.add_argument("--out", required=True, help="the folder to write")
    cut.add_argument("--parts", type=int, required=True, help="number of ranks")
    cut.add_argument("--method", choices=METHODS, default="metis")
    cut.add_argument("--seed", type=int, default=0)
    cut.add_argument(
        "--npz",
        help="one file with edge_index [2, E]; arrays whose name begins with 'edge' are edge "
        "inputs, all others node inputs",
    )
    cut.add_argument("--edge-index", help="edge_index.npy, int64 [2, E], memory-mapped")
    cut.add_argument("--node", action="append", default=[], metavar="NAME=FILE.npy")
    cut.add_argument("--edge", action="append", default=[], metavar="NAME=FILE.npy")
    return parser


if __name__ == "__main__":
    sys.exit(main())

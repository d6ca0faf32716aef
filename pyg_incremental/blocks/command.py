"""`pyg-incremental evaluate`: a trained model on a graph in files."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.blocks.evaluate import evaluate
from pyg_incremental.blocks.given import bytes_of
from pyg_incremental.blocks.sources import data_at, model_at
from pyg_incremental.errors import IncrementalError

WRITTEN = (".npy", ".npz", ".pt")


def run(args: argparse.Namespace) -> int:
    """Evaluate, write, and say what was done; returns the exit status."""
    try:
        _refuse(args)
        model = model_at(args.model, args.weights, args.trust).eval()
        if args.device is not None:
            model = model.to(args.device)
        began = time.perf_counter()
        result = evaluate(
            model,
            data_at(args.data, args.trust),
            nodes=_nodes(args.nodes),
            num_neighbors=_one_or_more(args.num_neighbors),
            memory=args.memory,
            directory=args.directory,
            device=args.device,
            progress=not args.quiet,
            seed=args.seed,
            order=_order(args.order),
        )
        seconds = time.perf_counter() - began
        if args.out is not None:
            write(args.out, result)
    except (IncrementalError, OSError, ValueError, MemoryError) as error:
        sys.stderr.write(f"pyg-incremental evaluate: {error}\n")
        return 1
    where = args.out if args.out is not None else args.directory
    sys.stdout.write(f"{_shapes(result)} in {seconds:.1f} s, written to {where}\n")
    return 0


def _refuse(args: argparse.Namespace) -> None:
    """What can be seen to be wrong before anything is computed."""
    if args.out is None and args.directory is None:
        raise ValueError("say where the result goes: --out FILE.npy, or --directory FOLDER")
    if args.out is not None:
        if args.out.suffix not in WRITTEN:
            raise ValueError(f"--out: expected {', '.join(WRITTEN)} (got '{args.out}')")
        if not args.out.absolute().parent.is_dir():
            raise ValueError(f"--out: there is no folder '{args.out.absolute().parent}'")
    bytes_of(args.memory)


def _nodes(given: list[str] | None) -> Any:
    """Ids, or what a file holds."""
    if given is None:
        return None
    if len(given) == 1 and given[0].endswith(".npy"):
        return torch.from_numpy(np.load(given[0], allow_pickle=False))
    try:
        return torch.tensor([int(text) for text in given])
    except ValueError as error:
        raise ValueError(
            f"--nodes: expected ids, or one .npy file (got {' '.join(given)})"
        ) from error


def _one_or_more(given: list[int] | None) -> int | list[int] | None:
    """One number for all layers, or one for each."""
    return given[0] if given is not None and len(given) == 1 else given


def _order(given: str | None) -> Any:
    """The name of an order, or what a file holds."""
    if given is None or not given.endswith(".npy"):
        return given
    return np.load(given, allow_pickle=False)


def write(path: Path, result: Any) -> None:
    """Write what a model returns: one tensor as `.npy`, named ones as `.npz`, anything as `.pt`.

    Raises:
        ValueError: If it cannot be written in such a file.
    """
    if path.suffix == ".pt":
        torch.save(result, path)
        return
    if isinstance(result, Tensor):
        parts = {"out": result}
    elif isinstance(result, Mapping):
        parts = {_named(key): rows for key, rows in result.items()}
    else:
        parts = {f"out_{i}": rows for i, rows in enumerate(result)}
    if not all(isinstance(rows, Tensor) for rows in parts.values()):
        raise ValueError("--out: the model returns more than tensors by name; write a .pt file")
    arrays = {key: rows.cpu().numpy() for key, rows in parts.items()}
    if path.suffix == ".npz":
        np.savez(path, allow_pickle=False, **arrays)
    elif len(arrays) == 1:
        np.save(path, next(iter(arrays.values())), allow_pickle=False)
    else:
        raise ValueError(
            f"--out: the model returns {len(arrays)} tensors ({', '.join(arrays)}), and a .npy "
            "file holds one; write a .npz or .pt file"
        )


def _named(key: Any) -> str:
    """A type of nodes, or of edges."""
    return "__".join(key) if isinstance(key, tuple) else str(key)


def _shapes(result: Any) -> str:
    """What came out, in a word."""
    if isinstance(result, Tensor):
        return f"{list(result.shape)} {str(result.dtype).removeprefix('torch.')}"
    if isinstance(result, Mapping):
        return ", ".join(f"{_named(key)} {_shapes(rows)}" for key, rows in result.items())
    if isinstance(result, (tuple, list)):
        return ", ".join(map(_shapes, result))
    return type(result).__name__

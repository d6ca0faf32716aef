"""A model and a graph, read from files.

Arrays are read as what they are. A pickle can run any code while it is read, so it is read only
where the user says that it is to be trusted.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData


def model_at(where: str, weights: Path | None = None, trust: bool = False) -> nn.Module:
    """A model by the name of what makes it, or from a file of `torch.save(model)`.

    Args:
        where: `MODULE:NAME`, `FILE.py:NAME`, or the path of a file.
        weights: A file of its `state_dict()`, or None.
        trust: Whether pickled objects may be read.

    Raises:
        ValueError: If there is no such model.
    """
    source, _, name = where.rpartition(":")
    if source and not Path(where).exists():
        model = _named(_module(source), name, where)
    else:
        model = _unpickled(Path(where), trust, "model", "name what makes it, as in train.py:make")
    if callable(model) and not isinstance(model, nn.Module):
        model = model()
    if not isinstance(model, nn.Module):
        raise ValueError(f"--model: '{where}' is no torch.nn.Module (got {type(model).__name__})")
    if weights is not None:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"--weights: '{weights}' does not fit the model: {error}") from error
    return model


def data_at(path: Path, trust: bool = False) -> Any:
    """A graph: from a folder of `.npy` files, which are mapped into memory, a `.npz` or `.pt` file.

    Args:
        path: The folder or file.
        trust: Whether pickled objects may be read.

    Returns:
        a `Data` or `HeteroData` object

    Raises:
        ValueError: If there is no such graph.
    """
    if path.is_dir():
        return _graph(dict(_mapped(path)), path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return _graph({name: torch.from_numpy(file[name]) for name in file.files}, path)
    if path.suffix != ".pt":
        raise ValueError(f"--data: expected a folder, a .npz or a .pt file (got '{path}')")
    held = _unpickled(path, trust, "data", "write a dict of tensors by name, or .npy files")
    if isinstance(held, (Data, HeteroData)):
        return held
    if not isinstance(held, dict):
        raise ValueError(
            f"--data: '{path}' holds neither a Data object nor a dict (got {type(held).__name__})"
        )
    return _graph(held, path)


def _module(source: str) -> ModuleType:
    """A module by its name, the current folder included, or a file of Python."""
    if not source.endswith(".py"):
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as error:
            raise ValueError(f"--model: there is no module '{source}' ({error})") from error
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    if spec is None or spec.loader is None or not Path(source).is_file():
        raise ValueError(f"--model: there is no file '{source}'")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # where classes of the file are looked up
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str, where: str) -> Any:
    found = getattr(module, name, None)
    if found is None:
        raise ValueError(f"--model: '{where}': the module has no '{name}'")
    return found


def _unpickled(path: Path, trust: bool, what: str, instead: str) -> Any:
    """What `torch.save` has written; objects only if they are trusted."""
    if not path.is_file():
        raise ValueError(f"--{what}: there is no file '{path}'")
    try:
        return torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        if trust:
            raise
        raise ValueError(
            f"--{what}: '{path}' holds pickled objects, which can run any code when they are read; "
            f"say --trust if you know where it comes from, or {instead}"
        ) from error


def _mapped(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The arrays of a folder and of the folders in it, by their paths, mapped into memory."""
    for path in sorted(folder.glob("**/*.npy")):
        rows: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if not rows.size:
            rows = np.array(rows)
        with warnings.catch_warnings():
            # Torch knows no tensors that cannot be written to. Nobody writes to these.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            yield path.relative_to(folder).with_suffix("").as_posix(), torch.from_numpy(rows)


def _graph(held: dict[str, Any], path: Path) -> Data | HeteroData:
    """Arrays by name as the object that PyG has for them.

    Of several types the names begin with that of a type of nodes, as in `user/x`, or of edges, as
    in `user__buys__item/edge_index`.
    """
    if not any("edge_index" in name or "adj" in name for name in held):
        raise ValueError(
            f"--data: '{path}' has no 'edge_index' (it has {sorted(held) or 'nothing'})"
        )
    for name, rows in held.items():
        if "edge_index" in name and isinstance(rows, Tensor) and rows.dtype != torch.int64:
            held[name] = rows.long()
    if not any("/" in name for name in held):
        return Data(**held)
    data = HeteroData()
    for name, rows in held.items():
        kind, _, field = name.rpartition("/")
        parts = tuple(kind.split("__"))
        data[parts if len(parts) == 3 else kind][field] = rows
    return data

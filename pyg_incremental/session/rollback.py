"""Everything that a session holds, remembered so that it can be put back bit by bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.fused import FastPath
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.kernels.lent import Lent
from pyg_incremental.program.steps import Program
from pyg_incremental.rows import Backend
from pyg_incremental.session.parameters import ParameterWatch

# What no update changes, what only counts on, and what compiled code has for itself.
_LEFT_ALONE = (nn.Module, CallPlan, Program, Backend, ParameterWatch, FastPath, Lent)


class Rollback:
    """What can be reached from an object: attributes, containers, and the bytes of all arrays.

    It costs a copy of them, or of the rows that may change. Objects of this package are looked
    into, whatever they are called, so that a new kind of step need not be known here.

    Args:
        root: The object; its own attributes are put back last.
        few: Of some arrays, by their address, the only rows that may be written to, int64 `[k]`.
        written: Whether arrays are written to; else they are replaced by others, and not copied.
    """

    def __init__(
        self, root: object, few: Mapping[int, Ids] | None = None, written: bool = True
    ) -> None:
        self._few, self._written = few or {}, written
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []
        self._attributes: list[tuple[Any, dict[str, Any]]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._arrays: dict[tuple[int, int], tuple[Any, Any]] = {}
        seen: dict[int, object] = {}  # held, so that no id is given away
        waiting: list[object] = [root]
        while waiting:
            found = waiting.pop()
            if id(found) not in seen:
                seen[id(found)] = found
                waiting += self._look_into(found)

    def _look_into(self, found: Any) -> list[object]:
        """Remember one object; what it leads to."""
        if isinstance(found, (Tensor, np.ndarray)):
            if self._written:
                self._copy(found)
        elif isinstance(found, (dict, list, set)):
            self._containers.append((found, found.copy()))
            return list(found.values() if isinstance(found, dict) else found)
        elif isinstance(found, tuple):
            return list(found)
        elif _may_change(found):
            attributes = dict(vars(found))
            self._attributes.append((found, attributes))
            return list(attributes.values())
        return []

    def _copy(self, array: Any) -> None:
        """Remember the bytes of an array, once for all views of the same ones."""
        is_tensor = isinstance(array, Tensor)
        if is_tensor and array.layout is not torch.strided:
            return
        place = array.data_ptr() if is_tensor else array.ctypes.data
        known, size = self._arrays, array.nbytes
        if not size or (place, size) in known:
            return
        if place not in self._few:
            array = _each_once(array) if is_tensor else array
            known[place, size] = array, array.clone() if is_tensor else array.copy()
        elif is_tensor:  # a view of the same rows for kernels comes with it
            ids = torch.from_numpy(self._few[place]).to(array.device)
            known[place, size] = array[:0], array[:0]
            self._rows.append((array, ids, array[ids]))

    def put_back(self) -> None:
        """Make everything as it was; may be done again if it was interrupted."""
        for rows, ids, old in self._rows:
            rows[ids] = old
        for array, copy in self._arrays.values():
            if isinstance(array, Tensor):
                array.copy_(copy)
            else:
                array[...] = copy
        for container, content in self._containers:
            container.clear()
            container.extend(content) if isinstance(container, list) else container.update(content)
        for owner, attributes in reversed(self._attributes):
            vars(owner).clear()
            vars(owner).update(attributes)


def _each_once(array: Tensor) -> Tensor:
    """A view of the elements of a tensor, each once, as those of an expanded one are not.

    Writing to it is none of anybody's business who counts that, as what is put back is what stands
    there: parameters of the model and tensors of the user may be among what a session holds.
    """
    array = array.data
    for dim, stride in enumerate(array.stride()):
        array = array if stride else array.narrow(dim, 0, 1)
    return array


def _may_change(found: object) -> bool:
    """Whether an object is one of this package whose attributes may be assigned to."""
    kind = type(found)
    return (
        kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        and hasattr(found, "__dict__")
        and not isinstance(found, (type, *_LEFT_ALONE))
        and not (is_dataclass(found) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    )

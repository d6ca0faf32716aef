"""Which line of a model calls something.

That is the innermost frame that is neither PyTorch's, PyG's nor ours. In a model that PyG itself
wrote there is none: then it is the line of that model's `forward`.
"""

import sys
from dataclasses import replace
from enum import Enum
from pathlib import Path
from tempfile import gettempdir
from types import FrameType, TracebackType

import torch
import torch_geometric

from pyg_incremental.call import bound_call
from pyg_incremental.program.origin import Place


class _Whose(Enum):
    """Whose code a file holds."""

    MODEL = "model"
    PYG = "pyg"
    CALL = "call"
    """Ours, from which the model is called: whoever is further out is no part of it."""
    OURS = "ours"
    TORCH = "torch"


_OURS = str(Path(__file__).parents[1])
_TORCH, _PYG = (str(Path(m.__file__ or "").parent) for m in (torch, torch_geometric))
_WRITTEN = ("_propagate", "_edge_updater")
"""How the names of modules end that PyG writes for a conv, to files of its own."""
_whose: dict[str, _Whose] = {bound_call.__file__: _Whose.CALL}


def here() -> Place | None:
    """The line of the model that is being run; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    last: FrameType | None = None
    while frame is not None:
        whose = _whose_is(frame)
        if whose is _Whose.MODEL:
            return Place(frame.f_code.co_filename, frame.f_lineno)
        if whose is _Whose.CALL:
            break
        if whose is _Whose.PYG:
            last = frame
        frame = frame.f_back
    return None if last is None else Place(last.f_code.co_filename, last.f_lineno)


def raised_at(error: BaseException) -> Place | None:
    """The line of a model from which something was raised; None if there is none."""
    found: Place | None = None
    seen: list[FrameType] = []  # by the line that was found
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        whose = _whose_is(frame)
        if whose is _Whose.MODEL or (whose is _Whose.PYG and found is None):
            found, seen = Place(frame.f_code.co_filename, trace.tb_lineno), []
        else:
            seen.append(frame)
        trace = trace.tb_next
    return None if found is None else replace(found, inside=_called(seen))


def _called(frames: list[FrameType]) -> str:
    """The function of PyG or PyTorch that a line has called."""
    for frame in frames:
        name, whose = frame.f_code.co_name, _whose_is(frame)
        if whose is _Whose.OURS:
            return ""
        if name == "forward":
            return type(frame.f_locals.get("self")).__name__
        if whose is _Whose.PYG or (whose is _Whose.TORCH and not name.startswith("_")):
            return name
    return ""


def _whose_is(frame: FrameType) -> _Whose:
    path = frame.f_code.co_filename
    whose = _whose.get(path)
    if whose is None:
        if path.startswith(_PYG) or _is_written_by_pyg(frame):
            whose = _Whose.PYG
        elif path.startswith((_TORCH, "<")) and not path.startswith("<ipython"):
            whose = _Whose.TORCH
        elif path.startswith(_OURS):
            whose = _Whose.OURS
        else:
            whose = _Whose.MODEL
        _whose[path] = whose
    return whose


def _is_written_by_pyg(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.endswith(_WRITTEN) and frame.f_code.co_filename.startswith(gettempdir())

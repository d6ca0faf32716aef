"""Every exception and warning of the package.

Each message says what went wrong, where, what was got, what was expected, and what to do next.
"""

import sys
import warnings
from collections.abc import Iterable


class IncrementalError(Exception):
    """Base class of every error raised by this package."""


class InvalidDeltaError(IncrementalError, ValueError):
    """A delta (or the input of the first pass) is malformed; nothing was changed.

    Attributes:
        what: The field with entries that do not fit, such as `'edge_index_add'`, or
            `"edge_index_add['cites']"`; an empty string if it is not about entries.
        positions: The places of these in what was listed there, ascending.
    """

    def __init__(self, message: str = "", *, what: str = "", positions: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.what = what
        self.positions = tuple(positions)


class UnsupportedModelError(IncrementalError, TypeError):
    """A model or one of its layers cannot be kept current, or not in the way that was asked for."""


class RowCountError(UnsupportedModelError):
    """A step that stands for one row per node made another number of them."""


class StaleStateError(IncrementalError, RuntimeError):
    """What is stored no longer belongs to the model, or an update was interrupted."""


class StateFileError(IncrementalError, ValueError):
    """A saved state is damaged, cut off, or belongs to another model."""


class IncrementalWarning(UserWarning):
    """Something runs exactly but slower than it could; said once, never silently."""


_OURS = ("pyg_incremental", "torch.utils._contextlib")


def warn(message: str) -> None:
    """Warn with `IncrementalWarning`, of the line from which the package was called."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, IncrementalWarning, stacklevel=level)

"""The result of an update that reached very many rows."""

from __future__ import annotations

from typing import Any

from pyg_incremental.rows.late import Late
from pyg_incremental.update import Update


class LateUpdate(Update):
    """An `Update` whose `out` is copied when it is read first, or when the next update begins.

    What it holds never changes, as that of any other; but if nobody holds it, nothing is copied.
    """

    __slots__ = ("_out",)
    _out: Any

    @property
    def out(self) -> Any:
        """The new values of the rows `changed`, `[k, out_channels]`, as a copy."""
        out = self._out  # which another thread may replace
        if type(out) is Late:
            self._out = out = out.rows()
        return out

    @out.setter
    def out(self, out: Any) -> None:
        self._out = out

    def __reduce__(self) -> Any:
        fields = self.changed, self.out, self.stats, self.version, self.repeated
        more = self.changed_edges, self.old, self.refused, self.undo
        return Update, (*fields, *more, self.may_be_probabilities, self.rows, self.is_preview)

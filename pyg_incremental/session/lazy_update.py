"""Results of updates whose rows are copied, or even computed, when somebody asks for them."""

from __future__ import annotations

from typing import Any

from pyg_incremental.errors import IncrementalError
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.update import Update


class LazyUpdate(Update):
    """An `Update` whose `out` is copied when it is read first, or when the next update begins.

    What it holds never changes, as that of any other; but if nobody holds it, nothing is copied.
    """

    __slots__ = ("_out",)
    _out: Any

    @property
    def out(self) -> Any:
        """The new values of the rows `changed`, `[k, out_channels]`, as a copy."""
        out = self._out  # which another thread may replace
        if type(out) is LazyRows:
            self._out = out = out.rows()
        return out

    @out.setter
    def out(self, out: Any) -> None:
        self._out = out

    def __reduce__(self) -> Any:
        fields = self.changed, self.out, self.stats, self.version, self.repeated
        more = self.changed_edges, self.old, self.refused, self._undo
        last = self.may_be_probabilities, self.rows, self.is_preview, self.changed_edge_ids
        return Update, (*fields, *more, *last)


class MarkedUpdate(Update):
    """An `Update` of a `lazy` model, of which nobody knows yet what has changed."""

    __slots__ = ()

    @property
    def changed(self) -> Any:
        """Not known.

        Raises:
            IncrementalError: Always; it says what to write.
        """
        raise _not_known("changed")

    @changed.setter
    def changed(self, changed: Any) -> None:
        pass

    @property
    def out(self) -> Any:
        """Not known.

        Raises:
            IncrementalError: Always; it says what to write.
        """
        raise _not_known("out")

    @out.setter
    def out(self, out: Any) -> None:
        pass

    def __repr__(self) -> str:
        took = f"{1e3 * self.stats.seconds:.3f} ms"
        return f"Update(version={self.version}, rows wait to be computed, {took})"


def _not_known(what: str) -> IncrementalError:
    return IncrementalError(
        f"update.{what}: the rows of a lazy model are computed when they are asked for, so it is "
        "not known which have changed. Write inc.read(nodes) for some, inc.out for all, or "
        "apply_delta(..., old=True), which computes them at once"
    )

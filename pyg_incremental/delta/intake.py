"""Entries of a delta that do not fit: all of it is refused, or they are left out and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.errors import InvalidDeltaError

_NONE = np.empty(0, np.int64)


class Refused(NamedTuple):
    """An entry of a delta that was left out.

    Attributes:
        what: The field, as in `edge_index_add`, or `edge_index_add['cites']` where it is a dict.
        position: Its place in what was listed there.
        reason: Why it does not fit.
    """

    what: str
    position: int
    reason: str


class Intake:
    """Takes a delta in.

    Args:
        skips: Whether entries that do not fit are left out. Else the first one is an error.

    Attributes:
        refused: What was left out.
    """

    def __init__(self, skips: bool = False) -> None:
        self.skips = skips
        self.refused: list[Refused] = []
        self._mirrored: dict[str, tuple[int, Ids]] = {}
        self._places: dict[str, Ids] = {}

    def mirrored(self, what: str, edges: Ids) -> None:
        """Take notice that edges of a field, int64 `[2, k]`, are taken in both directions."""
        self._mirrored[what] = edges.shape[1], np.flatnonzero(edges[0] != edges[1])

    def only(self, what: str, kept: Ids) -> None:
        """Take notice that only some entries of a field are left, those at places int64 `[n]`."""
        before = self._places.get(what)
        self._places[what] = kept if before is None else before[kept]

    def fitting(
        self, what: str, wrong: Ids, count: int, reason: Callable[[int, int], str]
    ) -> Ids | None:
        """The places of the entries that fit, int64 `[n]`; None if all do.

        Args:
            what: The field.
            wrong: The places of those that do not, int64 `[w]`.
            count: How many there are.
            reason: What is wrong with one, by its place here and by that where it was listed.

        Raises:
            InvalidDeltaError: If some do not fit, and they are not left out.
        """
        if not wrong.size:
            return None
        first = int(wrong[0])
        if not self.skips:
            places = sorted({self._listed(what, at) for at in wrong.tolist()})
            said = reason(first, self._listed(what, first))
            raise InvalidDeltaError(said, what=what, positions=places)
        for at in wrong.tolist():
            place = self._listed(what, at)
            if not any(r.what == what and r.position == place for r in self.refused):
                self.refused.append(Refused(what, place, reason(at, place)))
        kept = np.setdiff1d(np.arange(count), wrong)
        self.only(what, kept)
        return kept

    def _listed(self, what: str, at: int) -> int:
        """Where an entry stands in what was listed."""
        if what in self._places:
            at = int(self._places[what][at])
        count, again = self._mirrored.get(what, (at + 1, _NONE))
        return at if at < count else int(again[at - count])

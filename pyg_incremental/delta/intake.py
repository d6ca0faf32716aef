"""Entries of a delta that do not fit: all of it is refused, or they are left out and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyg_incremental.delta.given import Ids
from pyg_incremental.errors import InvalidDeltaError


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
        self._places: dict[str, Ids] = {}
        self._replaced: dict[str, dict[int, list[int]]] = {}

    def only(self, what: str, kept: Ids) -> None:
        """Take notice of which entries of a field are left, at places int64 `[n]`, in this order.

        A place that stands there twice is of an entry that is taken twice.
        """
        before = self._places.get(what)
        self._places[what] = kept if before is None else before[kept]

    def replaced(self, what: str, kept: Ids, count: int, by: Ids) -> None:
        """Take notice that entries of a field are left for the last ones that say the same thing.

        Args:
            what: The field.
            kept: The places of those that are left, int64 `[n]`.
            count: How many there were.
            by: Which of those that are left stands for each entry, int64 `[count]`.
        """
        of = self._replaced.setdefault(what, {})
        for at in np.setdiff1d(np.arange(count), kept).tolist():
            first, last = self._listed(what, at), self._listed(what, int(kept[by[at]]))
            of.setdefault(last, []).extend({first} - {last})
        self.only(what, kept)

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
            places = sorted({n for at in wrong.tolist() for n in self._every(what, at)})
            said = reason(first, self._listed(what, first))
            raise InvalidDeltaError(said, what=what, positions=places)
        for at in wrong.tolist():
            for place in self._every(what, at):
                if not any(r.what == what and r.position == place for r in self.refused):
                    self.refused.append(Refused(what, place, reason(at, place)))
        kept = np.setdiff1d(np.arange(count), wrong)
        self.only(what, kept)
        return kept

    def _listed(self, what: str, at: int) -> int:
        """Where an entry stands in what was listed."""
        return int(self._places[what][at]) if what in self._places else at

    def _every(self, what: str, at: int) -> list[int]:
        """The same, and where those stand for which it is left."""
        place = self._listed(what, at)
        return [*self._replaced.get(what, {}).get(place, ()), place]

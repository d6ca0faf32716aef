"""Many what-ifs at once, each judged alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, overload

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.session.preview import preview
from pyg_incremental.session.trial import Trials
from pyg_incremental.typing import Out
from pyg_incremental.update import Update


class Previews(Sequence[Update[Out]]):
    """What many deltas would change: an `Update` for each, made when somebody asks for it.

    Args:
        tells: What makes them.
    """

    def __init__(self, tells: Sequence[Callable[[], Update[Out]]]) -> None:
        self._tells = tells

    @classmethod
    def made(cls, updates: Iterable[Update[Out]]) -> Previews[Out]:
        """Updates that are made already."""
        return cls([partial(_as_is, update) for update in updates])

    @overload
    def __getitem__(self, index: int) -> Update[Out]: ...

    @overload
    def __getitem__(self, index: slice) -> Previews[Out]: ...

    def __getitem__(self, index: int | slice) -> Update[Out] | Previews[Out]:
        """That of one delta, or of some."""
        if isinstance(index, slice):
            return Previews(self._tells[index])
        found = self._tells[index]()
        found.is_preview = True
        return found

    def __len__(self) -> int:
        """How many there are."""
        return len(self._tells)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} deltas)"


def preview_many(trials: Trials, deltas: Iterable[GraphDelta]) -> Previews[Any]:
    """What each of some deltas would change on the state as it is; see `preview`.

    Args:
        trials: Tries deltas on the running state.
        deltas: The deltas.

    Raises:
        InvalidDeltaError: If one does not fit the graph; it says which.
    """
    given, plain_of = [*deltas], trials.session.plain_of
    plain = [plain_of(delta) for delta in given]
    at = [i for i, delta in enumerate(plain) if delta is not None]
    tells: list[Any] = [None] * len(given)
    if at:
        for i, told in zip(at, trials.all_tried([p for p in plain if p is not None]), strict=True):
            tells[i] = told
    for i, told in enumerate(tells):
        if told is None:
            try:
                update = preview(trials, given[i])
            except InvalidDeltaError as error:
                raise InvalidDeltaError(
                    f"deltas[{i}]: {error}", what=error.what, positions=error.positions
                ) from error
            tells[i] = partial(_as_is, update)
    return Previews(tells)


def _as_is(update: Update[Out]) -> Update[Out]:
    """An update that is made already."""
    return update

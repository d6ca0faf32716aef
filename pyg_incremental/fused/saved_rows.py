"""What stood in the rows to which edges lead that leave or come, where a sum tells what changed.

The machine adds messages to these rows before it comes to their sum, and notes them before that. If
it stops before the sum, the executor of that has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyg_incremental.kernels.address import address_of
from pyg_incremental.kernels.compiled import layout as m

AT_FIRST = 128
"""Rows for which there is room at first: the smallest deltas never need more."""


class SavedRows:
    """Room for such rows.

    Args:
        executors: Those of the plan.
        steps: Their table; says where the room is.
        width_of: How many elements a row of a step has.
        zeros: Makes memory.
    """

    def __init__(
        self,
        executors: Sequence[Any],
        steps: Any,
        width_of: Callable[[int], int],
        zeros: Callable[..., Any],
    ) -> None:
        self._executors, self._steps = executors, steps
        self._width_of, self._zeros = width_of, zeros
        sums = np.flatnonzero(steps[:, m.KIND] == m.TOTAL).tolist()
        self._rows: dict[int, Any] = {s: None for s in sums if executors[s].compares}
        self.make_room(AT_FIRST)

    def make_room(self, count: int) -> None:
        """See that there is room for `count` rows of each sum."""
        for s, rows in self._rows.items():
            if rows is None or len(rows) < count:
                like = self._executors[s].out.array.dtype
                self._rows[s] = self._zeros(like, 2 * count, self._width_of(s))
                self._steps[s, m.BEFORE] = address_of(self._rows[s])

    def hand_over(self, done: int, gone: Any, come: Any) -> None:
        """Tell the executors from `done` on.

        Args:
            done: The first step that the machine has not done.
            gone: Ends of the edges that left, int64 `[2, k]`.
            come: Ends of those that came.
        """
        for s in (s for s in self._rows if s >= done):
            e = self._executors[s]
            ids = np.concatenate([gone, come], 1)[0 if e.step.reverse else 1]
            e.note((ids, self._rows[s][: ids.size]))

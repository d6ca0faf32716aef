"""Maps of the compiled plan that are computed part by part of their rows, one behind the other.

A part of the rows that changed in one map is all that a map reads which depends on it alone; so
whoever computes a part goes on to the next map with it. The same holds for two maps of the same
values.
"""

from __future__ import annotations

from typing import NamedTuple

from pyg_incremental.fused.tables import Tables
from pyg_incremental.kernels.compiled import layout as m

GIVEN = -1


class ChainMap(NamedTuple):
    """A map of a chain.

    Attributes:
        step: The step of the plan.
        source: The place in the chain of the map whose changed rows it is computed at; `GIVEN` for
            the rows of the first one.
    """

    step: int
    source: int


Chain = list[ChainMap]


def chain_from(tables: Tables, first: int, count: int) -> Chain:
    """The maps that can be computed together with a step, and that come next.

    Args:
        tables: The plan, run up to `first`.
        first: A map, or an input whose new rows are given.
        count: At how many rows.
    """
    chain = [ChainMap(first, GIVEN)]
    made = {int(tables.steps[first, m.OUT]): 0}
    for step in range(first + 1, len(tables.executors)):
        kind = tables.steps[step, m.KIND]
        if kind in (m.NOTHING, m.ONES) or kind == tables.steps[first, m.KIND] == m.INPUT:
            continue  # behind a map, the new rows of an input may still have to be put
        if kind != m.MAP or tables.room_of(step) < count:
            break
        inputs = tables.inputs_of(step)
        dirty = [c for c in inputs if c in made or tables.cells[c, m.COUNT]]
        if not dirty:
            continue  # nothing to compute
        if len(dirty) == 1 and dirty[0] in made:
            source = made[dirty[0]]
        else:
            alike = [at for at in chain if tables.inputs_of(at.step) == inputs]
            if not alike:
                break
            source = alike[0].source
        made[int(tables.steps[step, m.OUT])] = len(chain)
        chain.append(ChainMap(step, source))
    return chain

"""Before a program runs: which of its maps run as one, and which of its values are stored."""

from collections.abc import Callable
from typing import Any

from pyg_incremental.program import Domain, Program, RowMap, Step, Value


def plan(program: Program) -> tuple[list[Step], set[Value]]:
    """The steps to run and the values to keep between updates.

    A value is stored if something reads it at rows where it is not itself dirty; the exception is
    what costs less to compute again than to keep: a cheap map that is read once becomes part of the
    map that reads it.
    """
    needed = _needed(program)
    steps = _merged(program, needed)
    stored = {v for v in needed if any(v is s.output for s in steps)}
    return steps, _with_origins(steps, stored)


def _needed(program: Program) -> set[Value]:
    """What is stored in any case.

    That is: messages (their OLD rows are retracted), edge values, what runs on all rows, what
    leaves, and what a costly map reads (rows that come out equal are then found before it runs).
    """
    needed = set(program.outputs)
    for s in program.steps:
        if not isinstance(s, RowMap) or s.output.domain is not Domain.NODE:
            needed.add(s.output)
        if not isinstance(s, RowMap) or s.costly:
            needed.update(s.inputs)
    return needed


def _with_origins(steps: list[Step], stored: set[Value]) -> set[Value]:
    """Add what is read at rows where it is not itself dirty.

    The dirty rows of a value are described by the set of its *origins*: a stored value is its own
    origin, because what comes out equal leaves its dirty set; any other value has the origins of
    its inputs. A map may read an input that is not stored only if both have the same origins.
    """
    while True:
        origins: dict[Value, frozenset[Value]] = {}
        more: set[Value] = set()
        for s in steps:
            union = frozenset[Value]().union(*(origins[v] for v in s.inputs))
            origins[s.output] = frozenset([s.output]) if s.output in stored else union
            if isinstance(s, RowMap):
                more.update(v for v in s.inputs if v not in stored and origins[v] != union)
        if not more:
            return stored
        stored = stored | more


def _merged(program: Program, needed: set[Value]) -> list[Step]:
    """The steps, with cheap maps merged into the map that reads them.

    Only a map that need not be stored and is read once is merged.
    """
    readers: dict[Value, int] = {}
    for s in program.steps:
        for v in s.inputs:
            readers[v] = readers.get(v, 0) + 1
    waiting: dict[Value, RowMap] = {}
    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, RowMap):
            for v in [v for v in s.inputs if v in waiting]:
                s = _merge(waiting.pop(v), s)
            if s.output not in needed and not s.costly and readers.get(s.output) == 1:
                waiting[s.output] = s
                continue
        steps.append(s)
    return steps


def _merge(first: RowMap, then: RowMap) -> RowMap:
    """One map that runs `first` and hands its result to `then`."""
    inputs = list(first.inputs)
    places: list[int | None] = []
    for v in then.inputs:
        if v is first.output:
            places.append(None)
            continue
        if v not in inputs:
            inputs.append(v)
        places.append(inputs.index(v))
    fn = _composed(first.fn, then.fn, len(first.inputs), places)
    return RowMap(then.output, tuple(inputs), fn, first.costly or then.costly)


def _composed(
    inner: Callable[..., Any], outer: Callable[..., Any], count: int, places: list[int | None]
) -> Callable[..., Any]:
    if places == [None]:
        return lambda *rows: outer(inner(*rows))
    if places == [None, *range(count, count + len(places) - 1)]:
        return lambda *rows: outer(inner(*rows[:count]), *rows[count:])

    def run(*rows: Any) -> Any:
        result = inner(*rows[:count])
        return outer(*[result if at is None else rows[at] for at in places])

    return run

"""Before a program runs: which of its values are stored, and which of its maps run as one."""

from collections.abc import Callable
from typing import Any

from pyg_incremental.program import Domain, Program, RowMap, Step, Value


def stored_values(program: Program) -> set[Value]:
    """Which values are kept between updates.

    A value is stored if something reads it at rows where it is not itself dirty. The dirty rows of a value are described by
    the set of its *origins*: a stored value is its own origin, because what comes out equal leaves its dirty set; any other value has
    the origins of its inputs. A map may read an input that is not stored only if both have the same origins. Besides: messages
    (their OLD rows are retracted), edge values, what runs on all rows, what leaves, and what a costly map reads.
    """
    stored = set(program.outputs)
    for s in program.steps:
        if not isinstance(s, RowMap) or s.output.domain is not Domain.NODE:
            stored.add(s.output)
        if not isinstance(s, RowMap) or s.costly:
            stored.update(s.inputs)
    while True:
        origins: dict[Value, frozenset[Value]] = {}
        more = set()
        for s in program.steps:
            union = frozenset[Value]().union(*(origins[v] for v in s.inputs))
            origins[s.output] = frozenset([s.output]) if s.output in stored else union
            if isinstance(s, RowMap):
                more.update(v for v in s.inputs if v not in stored and origins[v] != union)
        if not more:
            return stored
        stored |= more


def fused_steps(program: Program, stored: set[Value]) -> list[Step]:
    """The steps, with every map that is not stored and read once merged into the map that reads it."""
    readers: dict[Value, int] = {}
    for s in program.steps:
        for v in s.inputs:
            readers[v] = readers.get(v, 0) + 1
    merged: dict[Value, RowMap] = {}
    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, RowMap):
            for v in [v for v in s.inputs if v in merged]:
                s = _merge(merged.pop(v), s)
            if s.output not in stored and readers.get(s.output) == 1:
                merged[s.output] = s
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
    count, inner, outer = len(first.inputs), first.fn, then.fn
    return RowMap(then.output, tuple(inputs), _composed(inner, outer, count, places), first.costly or then.costly)


def _composed(
    inner: Callable[..., Any], outer: Callable[..., Any], count: int, places: list[int | None]
) -> Callable[..., Any]:
    if places == [None]:
        return lambda *rows: outer(inner(*rows))

    def run(*rows: Any) -> Any:
        result = inner(*rows[:count])
        return outer(*[result if at is None else rows[at] for at in places])

    return run

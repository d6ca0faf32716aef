"""Row maps behind each other as one: nothing is stored between them, and one step runs.

    eq(pow(degree)), masked_fill(pow, eq)  ->  one map of the degree

A map joins those that read it where these are all one map in the end, on the same rows. What passes
over a program know stays by itself, and so does a matrix product of node rows: where what it reads
comes out as it was, it does not run. Steps of programs that are written by hand stay as they are.
"""

from collections import Counter
from collections.abc import Container

from pyg_incremental.ops import Biased, Linear, OwnMessage, added, divided, scaled
from pyg_incremental.program.messages import composed, reads_nodes
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Domain, Program, RowMap, Step, Value
from pyg_incremental.trace.closures import beside

_WORDS = (added, divided, scaled, as_it_is, beside)
_LAYERS = (Biased, Linear, OwnMessage)


def with_joined_maps(program: Program, by_hand: Container[Value]) -> None:
    """Rewrite the steps of such maps, but for those that make what is written by hand."""

    def joins(step: Step) -> bool:
        return step.output not in by_hand and _joins(step)

    readers = Counter(v for s in program.steps for v in s.inputs)
    readers.update(program.outputs)
    places = {s.output: i for i, s in enumerate(program.steps)}
    gathering, gone = reads_nodes(program), set[Value]()
    made: dict[Value, Step] = {}
    for last in reversed(program.steps):
        if last.output in gone or last.output in gathering or not joins(last):
            continue
        group: dict[Value, RowMap] = {last.output: last}  # type: ignore[dict-item]
        read = Counter(last.inputs)
        while found := [
            program.steps[places[v]]
            for v in read
            if v not in group and read[v] == readers[v] and _is_on_rows(v, last.output)
            and joins(program.steps[places[v]])
        ]:  # fmt: skip
            for step in found:
                group[step.output] = step  # type: ignore[assignment]
                read.update(step.inputs)
        if len(group) == 1:
            continue
        order = sorted(group.values(), key=lambda s: places[s.output])
        inputs = tuple(dict.fromkeys(v for s in order for v in s.inputs if v not in group))
        at = {v: i for i, v in enumerate(inputs)}
        gone |= group.keys() - {last.output}
        costly = any(s.costly for s in order)
        made[last.output] = RowMap(last.output, inputs, composed(last.output, order, at), costly)
    program.steps[:] = [made.get(s.output, s) for s in program.steps if s.output not in gone]


def _joins(step: Step) -> bool:
    """Whether a step may be part of such a map."""
    fn = step.row_fn
    if fn is None or step.output.domain is Domain.WHOLE:
        return False
    if step.output.domain is Domain.NODE and step.costly:
        return False
    return fn not in _WORDS and not isinstance(fn, _LAYERS)


def _is_on_rows(one: Value, other: Value) -> bool:
    return (one.domain, one.kind) == (other.domain, other.kind)

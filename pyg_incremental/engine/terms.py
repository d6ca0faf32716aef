"""Which maps behind a sum become part of it.

    out = added(divided(Sum(source), degree), own)   ->   out = Sum(source; own, 1 / degree)
    out = added(scaled(Sum(source), factor), own)    ->   out = Sum(source; own, factor)

and `Sum(source; loop, factor)` where `own` is an `OwnMessage` of the source, read nowhere else.

A message then goes straight to the finished row. Else the sum would be stored beside it, and for
each row that a message reaches the sum, `own` and the degree would be read to make the row again.
"""

from dataclasses import replace

from torch import Tensor

from pyg_incremental.ops import OwnMessage, Sum, added, divided, plain_sum, scaled
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Program, RowMap, Step, Value, fn_of


def with_terms(program: Program) -> list[Step]:
    """The steps of a program; `added`, `divided` and `scaled` are terms of the sums before them."""
    readers: dict[Value, int] = dict.fromkeys(program.outputs, 2)  # nobody else may read a sum
    for s in program.steps:
        for v in s.inputs:
            readers[v] = readers.get(v, 0) + 1
    makers = {s.output: s for s in program.steps}
    gathered = {s.output for s in program.steps if s.gathers}
    read = {v for s in program.steps for v in s.inputs}
    retracted = {v for s in program.steps if not s.computes for v in s.inputs}
    gone: set[Value] = set()
    inverses: dict[Value, RowMap] = {}
    found: dict[Value, Sum] = {}
    copies: dict[Value, Step] = {}
    for s in program.steps:
        if fn_of(s) is not added:
            continue
        aggregated, own = s.inputs
        step, factor = makers[aggregated], None
        passed = [aggregated]
        if fn_of(step) in (divided, scaled):
            total, factor = step.inputs
            if fn_of(step) is divided:
                factor = inverses.setdefault(factor, _inverse(factor)).output
            step = makers[total]
            passed.append(total)
        plain = plain_sum(step)
        if plain is None or any(readers[v] > 1 for v in passed):
            continue
        loop = _loop(makers[own], plain, factor) if readers[own] == 1 else None
        if loop is not None:
            passed.append(own)
        terms = tuple(v for v in (None if loop else own, factor) if v is not None)
        # An aggregation does not say what its rows were, so a term may be none.
        if any(v is plain.source or v in gathered or v in found for v in terms):
            continue
        copied = s.output in retracted or (s.output in program.outputs and s.output in read)
        rows = replace(s.output, name=f"{s.output}_sum") if copied else s.output
        if copied:
            copies[s.output] = RowMap(s.output, (rows,), as_it_is, s.costly)
        found[s.output] = replace(
            plain, output=rows, inputs=(*plain.inputs, *terms), own=None if loop else own,
            factor=factor, loop=loop,
        )  # fmt: skip
        gone.update(passed)
    used = {step.factor for step in found.values()}
    steps: list[Step] = []
    for s in program.steps:
        if s.output not in gone:
            steps.append(found.get(s.output, s))
        if s.output in copies:
            steps.append(copies[s.output])
        if s.output in inverses and inverses[s.output].output in used:
            steps.append(inverses[s.output])
    return steps


def _loop(own: Step, total: Sum, factor: Value | None) -> OwnMessage | None:
    """What a row sends to itself, if that is what `own` is."""
    fn = fn_of(own)
    sent = (total.source,) if factor is None else (total.source, factor)
    return fn if isinstance(fn, OwnMessage) and own.inputs == sent else None


def _inverse(count: Value) -> RowMap:
    return RowMap(replace(count, name=f"{count}_inverse"), (count,), _one_over)


def _one_over(count: Tensor) -> Tensor:
    return count.clamp_min(1).reciprocal()

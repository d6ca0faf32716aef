"""Linear layers behind linear aggregations, which may as well stand in front of them.

    lin(scaled(Sum(source), factor))  ->  scaled(Sum(lin(source)), factor) + bias

The product then runs at the few rows that changed and not at the many that they reach. It moves
where that makes messages at most twice as wide (`conv.push_down`), and nothing else reads what lies
between.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyg_incremental.conv.push_down import pays
from pyg_incremental.ops import Biased, Linear, added, divided, plain_sum, scaled
from pyg_incremental.program.steps import Program, RowMap, Step, Value, fn_of


def with_pushed_down(program: Program) -> None:
    """Rewrite the steps of such layers."""
    for step in [*program.steps]:
        fn = fn_of(step)
        if isinstance(fn, Linear) and pays(fn.weight()):
            _move(program, step, fn)


def _move(program: Program, layer: Step, fn: Linear) -> None:
    """Move a linear layer in front of the sum behind which it stands, if it does."""
    passed = _passed(program, layer.inputs[0])
    if not any(map(plain_sum, passed)):
        return
    of, first = layer.output, passed[-1].inputs[0]
    rows = like(program, f"{of}_first", first, of)
    made: list[Step] = [RowMap(rows, (first,), replace(fn, bias=None), costly=True)]
    at = {first: rows}
    for step in reversed(passed):
        inputs = tuple(at.get(v, v) for v in step.inputs)
        out = step.output
        at[out] = rows = like(program, f"{out}_{of}", out, out)
        source = {"source": inputs[0]} if plain_sum(step) else {}
        made.append(replace(step, output=rows, inputs=inputs, **source))
    if fn.bias is None:
        made[-1] = replace(made[-1], output=of)
    else:
        made.append(RowMap(of, (rows,), Biased(fn.bias)))
    gone = {s.output for s in passed}
    program.steps[:] = [
        new
        for s in program.steps
        for new in (made if s is layer else () if s.output in gone else (s,))
    ]


def like(program: Program, name: str, rows: Value, origin: Value) -> Value:
    """A value with a row for each of these rows, which comes of the same line as another one."""
    made = program.value(name, rows.domain, rows.kind)
    known = [*program.origins.items()]
    program.origins.clear()
    for value, of in known:  # in the order of the model
        program.origins |= {value: of, made: of} if value is origin else {value: of}
    return made


def _passed(program: Program, rows: Value) -> Sequence[Step]:
    """The steps through which a layer that reads some rows may move, the last of them first."""
    found: list[Step] = []
    makers = {s.output: s for s in program.steps}
    readers = Counter(v for s in program.steps for v in s.inputs)
    readers.update(program.outputs)
    allowed = 1
    while readers[rows] == allowed and rows in makers:
        step = makers[rows]
        if not _is_linear(makers, step):
            break
        closed = bool(found) and fn_of(found[-1]) is added
        allowed = 1 + closed  # what a node sends to itself is read behind the sum, too
        found.append(step)
        rows = step.inputs[0]
    return found


def _is_linear(makers: Mapping[Value, Step], step: Step) -> bool:
    """Whether a step does the same before and after a linear layer of its rows."""
    if fn_of(step) is added:
        total = plain_sum(makers.get(step.inputs[0]))
        return total is not None and total.source is step.inputs[1]
    return fn_of(step) in (scaled, divided) or plain_sum(step) is not None

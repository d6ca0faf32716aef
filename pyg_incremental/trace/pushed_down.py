"""Linear layers behind linear aggregations, which may as well stand in front of them.

    lin(scaled(Sum(source), factor))          ->  scaled(Sum(lin(source)), factor) + bias
    lin(added(Sum(source), weight * source))  ->  added(Sum(lin(source)), weight * lin(source)) + bias

The product then runs at the few rows that changed and not at the many that they reach. It moves
where that makes messages at most twice as wide (`conv.linear.pays`), and nothing else reads what lies
between.
"""  # noqa: E501 - two lines of a kind

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace

from pyg_incremental.conv.linear import pays
from pyg_incremental.ops import Biased, Linear, OwnMessage, added, divided, plain_sum, scaled
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Program, RowMap, Step, Value, fn_of


def with_pushed_down(program: Program) -> None:
    """Rewrite the steps of such layers."""
    for step in [*program.steps]:
        fn = fn_of(step)
        if isinstance(fn, Linear) and pays(fn.weight()):
            _move(program, step, fn)


def _move(program: Program, layer: Step, fn: Linear) -> None:
    """Move a linear layer in front of the sums behind which it stands, if it does."""
    steps, first = passed(program, Counter(layer.inputs))
    if not any(map(plain_sum, steps)):
        return
    of, made, at = layer.output, list[Step](), dict[Value, Value]()
    for value in first:
        at[value] = like(program, f"{of}_first", value, of)
        made.append(RowMap(at[value], (value,), replace(fn, bias=None), costly=True))
    rows = repeated(program, steps, at, str(of), made)
    if fn.bias is None:
        made[-1] = replace(made[-1], output=of)
    else:
        made.append(RowMap(of, (rows,), Biased(fn.bias)))
    gone = {s.output for s in steps}
    program.steps[:] = [
        new
        for s in program.steps
        for new in (made if s is layer else () if s.output in gone else (s,))
    ]


def repeated(
    program: Program, steps: Sequence[Step], at: dict[Value, Value], of: str, made: list[Step]
) -> Value:
    """Steps once more, on other rows.

    Args:
        program: The program.
        steps: What `passed` found, the last first.
        at: What stands in the place of the rows that they begin with.
        of: What new names end in.
        made: The steps are put here.

    Returns:
        What the last one makes.
    """
    for step in reversed(steps):
        rows, out = _rows_of(step), step.output
        inputs = tuple(at[v] if v in rows else v for v in step.inputs)
        at[out] = like(program, f"{out}_{of}", out, out)
        source = {"source": inputs[0]} if plain_sum(step) else {}
        made.append(replace(step, output=at[out], inputs=inputs, **source))
    return at[steps[0].output]


def like(program: Program, name: str, rows: Value, origin: Value) -> Value:
    """A value with a row for each of these rows, which comes of the same line as another one."""
    made = program.value(name, rows.domain, rows.kind)
    if origin in program.origins:
        known = [*program.origins.items()]
        at = next(n for n, (value, _) in enumerate(known, 1) if value is origin)
        known.insert(at, (made, program.origins[origin]))  # in the order of the model
        program.origins.clear()
        program.origins.update(known)
    return made


def passed(
    program: Program, wanted: Counter[Value], stops: Container[Value] = ()
) -> tuple[list[Step], list[Value]]:
    """The steps through which a layer may move, the last first, and the rows in front of these.

    Args:
        program: The program.
        wanted: What the layer reads, and how often.
        stops: Rows through which it is not to move.
    """
    readers = Counter(v for s in program.steps for v in s.inputs)
    readers.update(program.outputs)
    found, first = list[Step](), list[Value]()
    for step in reversed(program.steps):
        out = step.output
        if out not in wanted:
            continue
        rows = _rows_of(step)
        if rows and wanted[out] == readers[out] and out not in stops:
            found.append(step)
            wanted.update(rows)
        else:
            first.append(out)
    return found, first


def _rows_of(step: Step) -> Sequence[Value]:
    """The rows in which a step is linear, so that it does the same before and after a layer."""
    fn = fn_of(step)
    if fn is added:
        return step.inputs
    one = fn in (scaled, divided, as_it_is) or plain_sum(step) is not None
    one = one or (isinstance(fn, OwnMessage) and fn.bias() is None)
    return step.inputs[:1] if one else ()

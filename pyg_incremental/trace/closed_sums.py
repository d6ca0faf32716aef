"""What comes behind sums, written so that an engine makes it part of them (see `engine.terms`).

    Sum(source) + bias + own  ->  added(Sum(source), own + bias)
    Sum(source) + own + bias  ->  added(Sum(source), own + bias)
    scaled(added(Sum(source), source), factor) + bias
        ->  added(scaled(Sum(source), factor), own(source, factor))

In the last each node is among its own in-neighbours, as `gcn_norm` makes it, and what it sends to
itself is an `OwnMessage`. Nothing else reads what lies between.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyg_incremental.ops import Biased, Linear, OwnMessage, added, divided, plain_sum, scaled
from pyg_incremental.program.steps import Program, RowMap, Step, Value, fn_of
from pyg_incremental.trace.pushed_down import like

Rewritten = Mapping[Value, Sequence[Step]]
"""Steps in the place of those that make some values."""


def with_closed_sums(program: Program) -> None:
    """Rewrite the steps of such sums."""
    for rewritten in (_closed, _bias_aside, _bias_inside):
        steps = _Steps.of(program)
        made: dict[Value, Sequence[Step]] = {}
        for step in program.steps:
            if fn_of(step) is added and step.output not in made:
                made |= rewritten(program, steps, step)
        program.steps[:] = [new for s in program.steps for new in made.get(s.output, (s,))]


@dataclass(frozen=True)
class _Steps:
    """The steps of a program.

    Attributes:
        makers: By what they make.
        alone: The only step that reads a value, if there is just one and the value does not leave;
            it is what that reads first.
        read_once: Values that are read once, in any place.
    """

    makers: Mapping[Value, Step]
    alone: Mapping[Value, Step]
    read_once: frozenset[Value]

    @classmethod
    def of(cls, program: Program) -> "_Steps":
        """Those of a program."""
        readers = Counter(v for s in program.steps for v in s.inputs)
        readers.update(program.outputs)
        alone = {v: s for s in program.steps for v in s.inputs[:1] if readers[v] == 1}
        once = frozenset(v for v, count in readers.items() if count == 1)
        return cls({s.output: s for s in program.steps}, alone, once)

    def is_sum(self, rows: Value) -> bool:
        """Whether rows are a sum, `scaled` or not, or a mean."""
        total = self.makers.get(rows)
        if total is not None and fn_of(total) in (scaled, divided):
            total = self.makers.get(total.inputs[0])
        return plain_sum(total) is not None


def _closed(program: Program, steps: _Steps, step: Step) -> Rewritten:
    """The steps in the place of a sum of what each node is sent, itself included."""
    rows, sent = step.inputs
    total, scales = plain_sum(steps.makers.get(rows)), steps.alone.get(step.output)
    closed = total is not None and total.source is sent and rows in steps.alone
    if not closed or scales is None or fn_of(scales) is not scaled:
        return {}
    biased = steps.alone.get(scales.output)
    bias = fn_of(biased)
    last = biased if isinstance(bias, Biased) and biased is not None else scales
    message = OwnMessage(bias=bias.bias) if isinstance(bias, Biased) else OwnMessage()
    out, factor = last.output, scales.inputs[1]
    apart, own = (like(program, f"{out}_{n}", out, out) for n in ("scaled", "own"))
    return {s.output: () for s in (step, scales, last)} | {
        out: (
            RowMap(apart, (rows, factor), scaled),
            RowMap(own, (sent, factor), message),
            RowMap(out, (apart, own), added),
        )
    }


def _bias_aside(program: Program, steps: _Steps, step: Step) -> Rewritten:
    """The steps in the place of a sum, a bias, and another row of each node."""
    rows, own = step.inputs
    biased = steps.makers.get(rows)
    bias = fn_of(biased)
    if biased is None or not isinstance(bias, Biased) or rows not in steps.alone:
        return {}
    if not steps.is_sum(biased.inputs[0]):
        return {}
    more, gone = _with_bias(steps, like(program, f"{own}_biased", own, rows), own, bias)
    made = more, replace(step, inputs=(biased.inputs[0], more.output))
    return {**gone, rows: (), step.output: made}


def _bias_inside(program: Program, steps: _Steps, step: Step) -> Rewritten:
    """The steps in the place of a sum, another row of each node, and a bias behind both."""
    (rows, own), biased = step.inputs, steps.alone.get(step.output)
    bias = fn_of(biased)
    if biased is None or not isinstance(bias, Biased) or not steps.is_sum(rows):
        return {}
    more, gone = _with_bias(steps, like(program, f"{own}_biased", own, own), own, bias)
    made = more, replace(step, output=biased.output, inputs=(rows, more.output))
    return {**gone, step.output: (), biased.output: made}


def _with_bias(
    steps: _Steps, output: Value, own: Value, bias: Biased
) -> tuple[RowMap, dict[Value, Sequence[Step]]]:
    """The map that makes rows and a bias, and what becomes of the one that makes the rows."""
    sent = steps.makers[own]
    rows, made = fn_of(sent), None
    if isinstance(rows, Linear) and rows.bias is None:
        made = RowMap(output, sent.inputs, replace(rows, bias=bias.bias), costly=True)
    elif isinstance(rows, OwnMessage) and rows.bias() is None:
        made = RowMap(output, sent.inputs, replace(rows, bias=bias.bias))
    if made is None or own not in steps.read_once:
        return RowMap(output, (own,), bias), {}
    return made, {own: ()}

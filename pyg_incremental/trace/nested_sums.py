"""Polynomials in a propagation, nested as Horner does.

    L_0 x + L_1 A x + L_2 A A x  ->  L_0 x + A (L_1 x + A L_2 x)

`A` is a chain of sums and of what commutes with layers, always the same, `L_k` a layer, a number or
nothing. Each sum is then read by one step, which an engine makes part of it; before, hops were read
twice. Powers beside each other travel together, and the columns of each leave where they arrive:

    [L_1 A x, L_2 A A x]  ->  [A L_1 x, A (A L_2 x)], with one A on the columns of both
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch

from pyg_incremental.conv.linear import pays
from pyg_incremental.ops import Linear, OwnMessage, added, plain_sum
from pyg_incremental.program.steps import Program, RowMap, Step, Value, fn_of
from pyg_incremental.trace.closures import Columns, beside
from pyg_incremental.trace.pushed_down import like, passed, repeated


def with_nested_sums(program: Program) -> None:
    """Rewrite the steps of such sums."""
    for step in [*program.steps]:
        if fn_of(step) is added and step in program.steps:
            _nest(program, step)
        elif fn_of(step) is beside:
            _travel_together(program, step)


def _travel_together(program: Program, joined: Step) -> None:
    """Let the powers of a propagation that stand beside each other be one."""
    makers = {s.output: s for s in program.steps}
    readers = Counter(v for s in program.steps for v in s.inputs)
    readers.update(program.outputs)
    at = {t.rows: t for t in (_term(makers[v], readers) for v in joined.inputs)}
    chain = _chain(program, at, readers) if len(at) == len(joined.inputs) else {}
    layers = [at[rows].layer for rows in chain]
    fns = [fn for layer in layers if isinstance(fn := fn_of(layer), Linear)]
    if len(chain) < 2 or len(fns) < len(layers):
        return
    widths = [fn.weight().shape[0] for fn in fns]
    if not pays(fns[0].weight().new_empty(sum(widths), fns[0].weight().shape[1])):
        return
    out, made = joined.output, list[Step]()
    start = next(iter(chain.values())).start
    rows = like(program, f"{out}_first", start, out)
    together = Linear(lambda: torch.cat([fn.weight() for fn in fns]), None)
    made.append(RowMap(rows, (start,), together, costly=True))
    for k, (hop, layer, width) in enumerate(zip(chain.values(), layers, widths, strict=True)):
        rows = repeated(program, hop.steps, {hop.start: rows}, f"{out}_{k}", made)
        assert layer is not None
        if k == len(widths) - 1:
            made[-1] = replace(made[-1], output=layer.output)
            continue
        made.append(RowMap(layer.output, (rows,), Columns(0, width)))
        further = like(program, f"{rows}_further", rows, out)
        made.append(RowMap(further, (rows,), Columns(width, None)))
        rows = further
    gone = {s.output for hop in chain.values() for s in hop.steps}
    gone |= {layer.output for layer in layers if layer is not None}
    program.steps[:] = [
        new
        for s in program.steps
        for new in ((*made, s) if s is joined else () if s.output in gone else (s,))
    ]


@dataclass(frozen=True)
class _Term:
    """A layer, a number or nothing on some rows; what makes it, or None for nothing."""

    layer: RowMap | None
    rows: Value


@dataclass(frozen=True)
class _Hop:
    """The steps that lead from some rows to others, the last first."""

    start: Value
    steps: list[Step]


def _nest(program: Program, root: Step) -> None:
    """Nest one sum, if its terms are those of such a polynomial of at least two hops."""
    makers = {s.output: s for s in program.steps}
    readers = Counter(v for s in program.steps for v in s.inputs)
    readers.update(program.outputs)
    sums = [root]
    for s in sums:
        parts = (makers[v] for v in s.inputs if readers[v] == 1)
        sums += [p for p in parts if fn_of(p) is added]
    if readers[root.output] == 1 and any(
        fn_of(s) is added and root.output in s.inputs for s in program.steps
    ):
        return  # part of a larger sum
    inner = {s.output for s in sums}
    terms = [_term(makers[v], readers) for s in sums for v in s.inputs if v not in inner]
    at = {t.rows: t for t in terms}
    if len(at) < len(terms):  # two of one power
        return
    chain = _chain(program, at, readers)
    if len(chain) < 2:
        return
    _rewrite(program, root, inner, at, chain)


def _term(step: Step, readers: Mapping[Value, int]) -> _Term:
    fn = fn_of(step)
    layer = isinstance(fn, Linear) and fn.bias is None and pays(fn.weight())
    number = isinstance(fn, OwnMessage) and fn.bias() is None and len(step.inputs) == 1
    if (layer or number) and readers[step.output] == 1:
        return _Term(step, step.inputs[0])  # type: ignore[arg-type]
    return _Term(None, step.output)


def _chain(
    program: Program, terms: Mapping[Value, _Term], readers: Mapping[Value, int]
) -> dict[Value, _Hop]:
    """By the rows to which each leads, the hops of the longest chain, the first one first."""
    hops: dict[Value, _Hop] = {}
    for rows in terms:
        found, first = passed(program, Counter({rows: readers[rows]}), terms.keys() - {rows})
        if len(first) == 1 and any(map(plain_sum, found)):
            hops[rows] = _Hop(first[0], found)
    best: dict[Value, _Hop] = {}
    for rows in hops:
        chain: dict[Value, _Hop] = {}
        while rows in hops and all(_are_alike(hops[rows], hop) for hop in chain.values()):
            chain, rows = {rows: hops[rows], **chain}, hops[rows].start
        if len(chain) > len(best) and _is_read_here(chain, terms, readers):
            best = chain
    return best


def _are_alike(one: _Hop, other: _Hop) -> bool:
    """Whether two hops are the same steps on other rows."""
    if len(one.steps) != len(other.steps):
        return False
    at = {one.start: other.start}
    for s, t in zip(reversed(one.steps), reversed(other.steps), strict=True):
        at[s.output] = t.output
        for field in fields(s):
            a, b = getattr(s, field.name), getattr(t, field.name)
            if isinstance(a, tuple):
                a = tuple(at.get(v, v) for v in a)
            if type(s) is not type(t) or (at.get(a, a) if isinstance(a, Value) else a) != b:
                return False
    return True


def _is_read_here(
    chain: Mapping[Value, _Hop], terms: Mapping[Value, _Term], readers: Mapping[Value, int]
) -> bool:
    """Whether nothing but the sum and the next hop reads what each hop leads to."""
    read = Counter(v for hop in chain.values() for s in hop.steps for v in s.inputs)
    return all(readers[rows] == read[rows] + (rows in terms) for rows in chain)


def _rewrite(
    program: Program,
    root: Step,
    inner: set[Value],
    terms: dict[Value, _Term],
    chain: dict[Value, _Hop],
) -> None:
    out, made = root.output, list[Step]()
    start = next(iter(chain.values())).start

    def term_on_start(rows: Value) -> Value:
        layer = terms[rows].layer
        if layer is None:
            return start
        at = layer.output if rows is start else like(program, f"{layer.output}_first", start, out)
        made.append(replace(layer, output=at, inputs=(start,)))
        return at

    *_, last = chain
    rows = term_on_start(last)
    for k, hop in reversed([*enumerate(chain.values())]):
        rows = repeated(program, hop.steps, {hop.start: rows}, f"{out}_{k}", made)
        if hop.start in terms:
            total = like(program, f"{out}_sum_{k}", rows, out)
            made.append(RowMap(total, (rows, term_on_start(hop.start)), added))
            rows = total
    for other, term in terms.items():
        if other not in chain and other is not start:
            total = like(program, f"{out}_sum", rows, out)
            more = other if term.layer is None else term.layer.output
            made.append(RowMap(total, (rows, more), added))
            rows = total
    made[-1] = replace(made[-1], output=out)
    gone = inner | {s.output for hop in chain.values() for s in hop.steps}
    moved = [terms[rows].layer for rows in (*chain, start) if rows in terms]
    gone |= {layer.output for layer in moved if layer is not None}
    program.steps[:] = [
        new
        for s in program.steps
        for new in (made if s is root else () if s.output in gone else (s,))
    ]

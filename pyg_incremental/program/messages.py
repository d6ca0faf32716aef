"""Edge rows as functions of what stands at the ends of an edge.

A model that passes messages by hand gathers node rows, computes edge rows of them, and adds these
up. Nothing of that has to be stored for each edge: the chain of gathers and row maps that leads to
some edge rows is one function `f(x_j, x_i, e)` of node rows and stored edge rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    Gather,
    NotIncremental,
    Pick,
    Program,
    RowMap,
    Step,
    Value,
)


@dataclass(frozen=True, eq=False)
class Message:
    """Edge rows as `fn(*source rows, *target rows, *picked, *edge rows)`, `[k, ...]` at k edges.

    Attributes:
        fn: The function.
        source: Node values read where an edge comes from.
        target: Node values read where it leads to.
        edges: Edge values that read no node, or values without rows.
        picked: Node values, and the edge values by whose ids they are read; see `Pick`.
    """

    fn: Callable[..., Any]
    source: tuple[Value, ...]
    target: tuple[Value, ...]
    edges: tuple[Value, ...]
    picked: tuple[tuple[Value, Value], ...] = ()


def reads_nodes(program: Program) -> set[Value]:
    """The edge values in which node rows are gathered, at once or by others that they read."""
    found: set[Value] = set()
    for s in program.steps:
        if s.output.domain is Domain.EDGE and (
            isinstance(s, (Gather, Pick)) or found.intersection(s.inputs)
        ):
            found.add(s.output)
    return found


def message_of(program: Program, rows: Value, alone: bool = False) -> Message:
    """The function that makes some edge rows.

    Args:
        program: The program with the steps that make them.
        rows: A value of domain `EDGE`.
        alone: Whether they are sent nowhere, so that they may read nodes that are at neither end of
            an edge, and what has no rows.

    Raises:
        NotIncremental: If something that is no row is read on the way.
    """
    makers = {s.output: s for s in program.steps}
    gathering = reads_nodes(program)
    ends: tuple[list[Value], list[Value]] = ([], [])
    stored: list[Value] = []
    picked: list[tuple[Value, Value]] = []
    order: list[RowMap] = []
    seen: set[Value] = set()

    def visit(value: Value) -> None:
        if value in seen:
            return
        seen.add(value)
        step = makers[value]
        if isinstance(step, Gather):
            rows_of = ends[step.at_target]
            rows_of.extend(v for v in step.inputs if v not in rows_of)
        elif isinstance(step, Pick) and alone:
            picked.append((step.inputs[0], step.inputs[1]))
        elif value not in gathering:
            if value.domain is not Domain.EDGE and not (alone and value.domain is Domain.WHOLE):
                raise NotIncremental(f"'{value}' has no row for each edge")
            stored.append(value)
        elif isinstance(step, RowMap):
            for v in step.inputs:
                visit(v)
            order.append(step)
        else:
            raise NotIncremental(f"'{value}' is not computed edge by edge")

    visit(rows)
    source, target = ends
    read = [*((v, False) for v in source), *((v, True) for v in target), *picked, *stored]
    index = {key: i for i, key in enumerate(read)}
    at = {v: index[_read_by(makers[v])] for v in seen if not isinstance(makers[v], RowMap)}
    at |= {v: index[v] for v in stored}
    fn = composed(rows, order, at)
    return Message(fn, tuple(source), tuple(target), tuple(stored), tuple(picked))


def with_others(program: Program, rows: Value, others: Mapping[Value, Value]) -> Value:
    """The same rows made of others: the row maps that lead to them run on these.

    Args:
        program: The program.
        rows: Rows of edges.
        others: What stands in the place of some values.
    """
    makers = {s.output: s for s in program.steps}
    made = dict(others)

    def of(value: Value) -> Value:
        step = makers[value]
        if value not in made and isinstance(step, RowMap):
            inputs = [of(v) for v in step.inputs]
            alike = all(a is b for a, b in zip(inputs, step.inputs, strict=True))
            made[value] = value if alike else program.map(
                value.name, step.fn, inputs, key=("as", value), costly=step.costly
            )  # fmt: skip
        return made.get(value, value)

    return of(rows)


def at_node(program: Program, rows: Value, at_target: bool) -> Value:
    """Rows of edges that are made of the node at one end alone, as rows of that node.

    Args:
        program: The program.
        rows: Rows of edges.
        at_target: Which end that is.
    """
    read = {
        s.output: s.inputs[0]
        for s in program.steps
        if isinstance(s, Gather) and s.output.kind == rows.kind and s.at_target is at_target
    }
    return with_others(program, rows, read)


def _read_by(step: Step) -> Any:
    """What a gather or a pick stands for among all that is read; else its value."""
    if isinstance(step, Gather):
        return step.inputs[0], step.at_target
    return step.inputs[:2] if isinstance(step, Pick) else step.output


def composed(
    rows: Value, order: Sequence[RowMap], places: Mapping[Value, int]
) -> Callable[..., Any]:
    """A function of the rows at some places that runs row maps one after the other.

    Args:
        rows: What it makes.
        order: The maps, in the order in which they run.
        places: Where each value stands that they read and do not make.
    """
    at = dict(places)
    count = max(places.values(), default=-1) + 1
    plan = []
    for i, step in enumerate(order):
        plan.append((step.fn, [at[v] for v in step.inputs]))
        at[step.output] = count + i
    last = at[rows]

    def run(*given: Any) -> Any:
        held = list(given)
        for fn, read in plan:
            held.append(fn(*(held[i] for i in read)))
        return held[last]

    return run

"""What derived graphs are made of, read off the steps of a program."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from pyg_incremental.program.derived import Compared, EdgeRows, of_parts
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    Gather,
    Input,
    NodeIds,
    NotIncremental,
    Program,
    Relation,
    RowMap,
    Value,
    Whole,
)


def edge_rows(program: Program, rows: Value) -> EdgeRows:
    """What edge rows are, as a function of the data and ids at the ends of an edge.

    Args:
        program: The program with the steps that make them.
        rows: A value of domain `EDGE`.

    Raises:
        NotIncremental: If they read anything else, such as rows of nodes.
    """
    makers = {s.output: s for s in program.steps}
    order: list[RowMap] = []
    data: dict[Value, str] = {}
    ends: dict[Value, bool] = {}

    def visit(value: Value) -> None:
        step = makers[value]
        if value in data or value in ends or step in order:
            return
        if isinstance(step, Gather) and isinstance(makers[step.inputs[0]], NodeIds):
            ends[value] = step.at_target
        elif isinstance(step, Input) and value.domain is Domain.EDGE:
            data[value] = value.name
        elif isinstance(step, RowMap) and value.domain is Domain.EDGE:
            for v in step.inputs:
                visit(v)
            order.append(step)
        else:
            raise NotIncremental(f"which edges there are depends on '{value}', no data of edges")

    visit(rows)

    def fn(given: Mapping[str, Tensor], src: Tensor, dst: Tensor) -> Tensor:
        held: dict[Value, Tensor] = {v: given[name] for v, name in data.items()}
        device = next((t.device for t in held.values()), src.device)
        held |= {v: (dst if at_target else src).to(device) for v, at_target in ends.items()}
        for step in order:
            held[step.output] = step.fn(*(held[v] for v in step.inputs))
        return held[rows]

    readers = [s.fn for s in order if ends.keys() & set(s.inputs)]
    compares = rows not in ends and all(isinstance(f, Compared) and f.of_ends for f in readers)
    return EdgeRows(rows.name, fn, frozenset(data.values()), compares)


def rows_of_part(program: Program, rows: Value, relation: Relation, k: int) -> Value:
    """Rows of the edges of a derived graph as rows of the edges that its k-th part is made of.

    Args:
        program: The program with the steps that make them, to which others are added.
        rows: A value of domain `EDGE`.
        relation: The derived graph.
        k: Which of its parts.

    Raises:
        NotIncremental: If they are made of anything but data of edges and rows at their ends.
    """
    makers = {s.output: s for s in program.steps}
    derived = relation.derived
    assert derived is not None
    part = derived.parts[k]

    def visit(value: Value) -> Value:
        step = makers[value]
        if value.domain is not Domain.EDGE:
            return value
        name = f"{value}_{k}"
        if isinstance(step, Gather):
            at_target = step.at_target != part.turned
            return program.gather(name, step.inputs[0], part.graph, at_target)
        if isinstance(step, RowMap) and step.fn is of_parts and step.inputs[0].name == derived.part:
            return visit(step.inputs[1 + k])
        if isinstance(step, RowMap):
            given = [visit(v) for v in step.inputs]
            return program.map(name, step.fn, given, costly=step.costly, key=("of part", value, k))
        column = derived.columns.get(value.name)
        if column is not None and column.graph == part.graph:
            return value_of(program, column.rows)
        if value.name != derived.part:
            raise NotIncremental(f"'{value}' is no row of an edge")
        ones = program.gather(name, program.ones(relation.target), part.graph, True)
        return program.map(name, partial(_all_are, k), [ones])

    return visit(rows)


def _all_are(number: int, rows: Tensor) -> Tensor:
    return torch.full((len(rows),), number, device=rows.device)


def value_of(program: Program, rows: EdgeRows) -> Value:
    """The value of a program that has these rows."""
    return next(s.output for s in program.steps if s.output.name == rows.name)


def run_over(program: Program) -> set[str]:
    """The graphs whose edges, or rows of these, steps read."""
    names = {r.graph for r in program.graphs.values()}
    read: set[str] = set()
    for s in program.steps:
        if not isinstance(s, Input):
            read |= {s.output.kind, *(() if s.over is None else s.over[:1])}
            read |= {of for v in s.inputs for of in (v.name, v.kind)}
    read |= {of for v in program.outputs for of in (v.name, v.kind)}
    return read & names


def in_use(program: Program) -> set[str]:
    """The derived graphs that steps run over, and those that these are made of."""
    derived = {r.graph: r.derived for r in program.graphs.values() if r.derived is not None}
    found, left = set[str](), [*run_over(program)]
    while left:
        name = left.pop()
        if name in derived and name not in found:
            found.add(name)
            left += derived[name].sources
    return found


def leave_out_unused(program: Program) -> None:
    """Forget the derived graphs that no step runs over, and their data."""
    used = in_use(program)
    gone = {r.graph for r in program.graphs.values() if r.derived is not None} - used
    out = {s.output for s in program.steps if isinstance(s, Input)}
    out = {v for v in out if v.name in gone or v.kind in gone}
    program.steps[:] = [s for s in program.steps if s.output not in out]
    program.inputs = {name: v for name, v in program.inputs.items() if v not in out}
    program.graphs = {v: r for v, r in program.graphs.items() if v not in out}


def asks_for_order(program: Program) -> bool:
    """Whether something depends on where in a derived graph an edge stands, which no delta keeps.

    Or on ids of nodes in another way than which edges there are.
    """
    derived = {r.graph for r in program.graphs.values() if r.derived is not None}
    used = in_use(program)
    if any(r.graph in used and r.format != "coo" for r in program.graphs.values()):
        return True  # entries of a matrix stand in an order of their own
    read = [v for s in program.steps if isinstance(s, Whole) for v in s.inputs]
    return any(isinstance(s, NodeIds) for s in program.steps) or any(
        v.name in derived or v.kind in derived for v in (*read, *program.outputs)
    )

"""Edge rows that leave a model, or that something on all rows reads."""

from dataclasses import replace

from pyg_incremental.ops.edge_map import EdgeMap
from pyg_incremental.program.messages import message_of, reads_nodes
from pyg_incremental.program.steps import Domain, Program, Step, Value


def keep_edge_rows(program: Program) -> None:
    """Let edge rows that leave, or that something on all rows reads, be kept current.

    They are no part of a message, so they are stored: see `EdgeMap`.
    """
    gathering = reads_nodes(program)
    kept: dict[Value, Value] = {}
    steps: list[Step] = []

    def rows_of(value: Value, leaves: bool = False) -> Value:
        if value not in gathering and not (leaves and value.domain is Domain.EDGE):
            return value
        if value not in kept:
            message = message_of(program, value, alone=True)
            kept[value] = program.value(f"{value.name}_rows", Domain.EDGE, value.kind)
            rows, ids = zip(*message.picked, strict=True) if message.picked else ((), ())
            inputs = (*message.source, *message.target, *rows, *ids, *message.edges)
            steps.append(EdgeMap(kept[value], inputs, message))
        return kept[value]

    for s in program.steps:
        if s.output not in gathering and gathering.intersection(s.inputs):
            s = replace(s, inputs=tuple(map(rows_of, s.inputs)))
        steps.append(s)
    program.outputs[:] = [rows_of(value, leaves=True) for value in program.outputs]
    program.steps[:] = steps

"""The grammar, one family of operations per file; importing it enters all of them."""

from tests.fuzz.grammar import (
    aggregations,
    control,
    convs,
    graph_wide,
    hooks,
    memory,
    outputs,
    pyg_modules,
    row_wise,
    shapes,
    sizes,
    writes,
)

__all__ = [
    "aggregations",
    "control",
    "convs",
    "graph_wide",
    "hooks",
    "memory",
    "outputs",
    "pyg_modules",
    "row_wise",
    "shapes",
    "sizes",
    "writes",
]

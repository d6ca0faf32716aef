"""The grammar, one part of it per file; importing this fills `FAMILIES` and `ROWS`."""

from tests.fuzz.grammar import (  # noqa: F401
    aggregations,
    control,
    convs,
    graph_wide,
    hooks,
    made_edges,
    memory,
    outputs,
    pyg_modules,
    row_wise,
    shapes,
    sizes,
    writes,
)
from tests.fuzz.operation import FAMILIES, ROWS

__all__ = ["FAMILIES", "ROWS"]

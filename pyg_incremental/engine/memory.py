"""How much memory a wrapped model holds, and for what."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyg_incremental.engine.loop import Engine
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.ops import Aggregator
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Cell, Rows
from pyg_incremental.telemetry.table import html_table


class MemoryUse(NamedTuple):
    """What one thing takes.

    Attributes:
        name: A value of `inc.program`, or a part of the graph.
        what: `'rows'` (the rows of a value), `'state'` (what an aggregation keeps beside them) or
            `'graph'`.
        bytes: Bytes allocated, room for growth included.
        each: Bytes for each node or, of a part of a graph, for each edge.
    """

    name: str
    what: str
    bytes: int
    each: float


@dataclass(frozen=True)
class MemoryReport:
    """What is held besides the model, in bytes.

    Attributes:
        parts: What each value, aggregation and graph takes, the largest first.
        num_nodes: Number of nodes of all kinds.
        num_edges: Number of edges of all graphs.
    """

    parts: tuple[MemoryUse, ...]
    num_nodes: int
    num_edges: int

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(p.bytes for p in self.parts)

    @property
    def bytes_per_node(self) -> float:
        """Bytes of stored rows and states for each node."""
        return sum(p.bytes for p in self.parts if p.what != "graph") / max(self.num_nodes, 1)

    @property
    def bytes_per_edge(self) -> float:
        """Bytes of neighbour lists and edge data for each edge."""
        return sum(p.bytes for p in self.parts if p.what == "graph") / max(self.num_edges, 1)

    def __str__(self) -> str:
        width = max([len(p.name) for p in self.parts] + [5])
        lines = [f"{'value':{width}}  what        MiB  bytes each"]
        lines += [
            f"{p.name:{width}}  {p.what:6}{p.bytes / 2**20:9.2f}{p.each:8.1f} per "
            f"{'edge' if p.what == 'graph' else 'node'}"
            for p in self.parts
        ]
        return "\n".join([*lines, self._head])

    @property
    def _head(self) -> str:
        return (
            f"{self.total / 2**20:.2f} MiB: {self.bytes_per_node:.0f} bytes per node in rows, "
            f"{self.bytes_per_edge:.0f} bytes per edge in the graph"
        )

    def _repr_html_(self) -> str:
        rows = ((p.name, p.what, f"{p.bytes / 2**20:.2f}", f"{p.each:.1f}") for p in self.parts)
        return html_table(self._head, ("value", "what", "MiB", "bytes each"), rows)


def memory_of(engine: Engine, num_nodes: int) -> MemoryReport:
    """The report of one engine and its graphs.

    Args:
        engine: The engine.
        num_nodes: Number of nodes of all kinds.
    """
    found: list[tuple[str, str, int]] = []
    for value, cell in engine.cells.items():
        if value.domain is Domain.EDGE and value.name in engine.inputs:
            continue  # the graph holds it
        if value.domain is not Domain.WHOLE:
            found.append((value.name, "rows", _bytes([cell])))
    for a in engine.aggregators:
        found.append((a.step.output.name, "state", _bytes(_kept(a))))
    for nodes in engine.nodes.values():
        marks = nodes.scratch.stamp, nodes.scratch.touched
        found.append(("marks", "state", sum(map(_size, marks))))
    for name, graph in engine.graphs.items():
        found += [(f"{name} {part}", "graph", size) for part, size in _parts_of(graph).items()]
    edges = sum(graph.num_edges for graph in engine.graphs.values())
    parts = [
        MemoryUse(name, what, size, size / max(edges if what == "graph" else num_nodes, 1))
        for name, what, size in sorted(found, key=lambda part: -part[2])
        if size
    ]
    return MemoryReport(tuple(parts), num_nodes, edges)


def _kept(aggregator: Aggregator) -> list[Rows]:
    found = vars(aggregator.unwrapped).values()
    return [r for r in found if isinstance(r, Rows) and not isinstance(r, Cell)]


def _bytes(held: Iterable[Rows]) -> int:
    return sum(_size(r.rows) for r in held if r.rows is not None)


def _size(array: Any) -> int:
    return int(array.nbytes)


def _parts_of(graph: DynamicGraph) -> dict[str, int]:
    """Bytes of a graph: its edges, the lists of both directions, the table of pairs, edge data."""
    parts = {
        "slots": graph.slots,
        "lists": (*graph.out, *graph.inn),
        "pairs": (graph._table,),
        **{name: (rows,) for name, rows in graph.edge_data.items()},
    }
    return {name: sum(map(_size, arrays)) for name, arrays in parts.items()}

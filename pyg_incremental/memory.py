"""How much memory a wrapped model holds, and for what."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyg_incremental.aggregate import Aggregator
from pyg_incremental.engine import Engine
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.program import Domain
from pyg_incremental.store import Cell, Rows


class Held(NamedTuple):
    """What one thing takes.

    Attributes:
        name: A value of `inc.program`, or a part of the graph.
        what: `'rows'` (the rows of a value), `'state'` (what an aggregation keeps beside them) or
            `'graph'`.
        bytes: Bytes allocated, room for growth included.
    """

    name: str
    what: str
    bytes: int


@dataclass(frozen=True)
class MemoryReport:
    """What is held besides the model, in bytes.

    Attributes:
        parts: What each value, aggregation and graph takes, the largest first.
        num_nodes: Number of nodes of all kinds.
        num_edges: Number of edges of all graphs.
    """

    parts: tuple[Held, ...]
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
        lines = [f"{'value':{width}}  what       MiB"]
        lines += [f"{p.name:{width}}  {p.what:6}{p.bytes / 2**20:8.2f}" for p in self.parts]
        lines.append(
            f"{self.total / 2**20:.2f} MiB: {self.bytes_per_node:.0f} bytes per node in rows, "
            f"{self.bytes_per_edge:.0f} bytes per edge in the graph"
        )
        return "\n".join(lines)


def memory_of(engine: Engine, num_nodes: int) -> MemoryReport:
    """The report of one engine and its graphs.

    Args:
        engine: The engine.
        num_nodes: Number of nodes of all kinds.
    """
    parts = []
    for value, cell in engine.cells.items():
        if value.domain is Domain.EDGE and value.name in engine.inputs:
            continue  # the graph holds it
        if value.domain is not Domain.WHOLE:
            parts.append(Held(value.name, "rows", _bytes([cell])))
    for a in engine.aggregators:
        parts.append(Held(a.step.output.name, "state", _bytes(_kept(a))))
    for nodes in engine.nodes.values():
        marks = nodes.scratch.stamp, nodes.scratch.touched
        parts.append(Held("marks", "state", sum(map(_size, marks))))
    for name, graph in engine.graphs.items():
        parts.append(Held(name or "graph", "graph", _graph_bytes(graph)))
    parts.sort(key=lambda p: -p.bytes)
    edges = sum(graph.num_edges for graph in engine.graphs.values())
    return MemoryReport(tuple(p for p in parts if p.bytes), num_nodes, edges)


def _kept(aggregator: Aggregator) -> list[Rows]:
    found = vars(aggregator).values()
    return [r for r in found if isinstance(r, Rows) and not isinstance(r, Cell)]


def _bytes(held: Iterable[Rows]) -> int:
    return sum(_size(r.rows) for r in held if r.rows is not None)


def _size(array: Any) -> int:
    return int(array.nbytes)


def _graph_bytes(graph: DynamicGraph) -> int:
    arrays = [*graph.slots, *graph.out, *graph.inn, graph._table, *graph.edge_data.values()]
    return sum(map(_size, arrays))

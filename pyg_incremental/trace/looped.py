"""Self-loops that a model adds by hand: rows of the edges, and behind them one for each node.

`add_self_loops(edge_index, num_nodes=n)` puts `[[0, 1, ...], [0, 1, ...]]` behind the edges. What
is computed along all of these is computed along the edges and, in the same way, at the nodes: a row
map becomes two, and a reduction takes in the node's own row at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.conv import ConvCall
from pyg_incremental.program.steps import Domain, Program, Returned, Value
from pyg_incremental.trace.names import name_of

_KEEPS_IDS = frozenset(["view", "reshape", "unsqueeze", "repeat", "expand", "stack"])


@dataclass(frozen=True)
class Looped:
    """Rows of the edges of a graph, and behind them rows of its nodes.

    Attributes:
        edges: A value of domain `EDGE`.
        nodes: A value of domain `NODE`, for the loop at each node.
        drops: Whether the rows of edges that are self-loops themselves are left out.
    """

    edges: Value
    nodes: Value
    drops: bool = False

    @property
    def parts(self) -> tuple[Value, ...]:
        """The rows of the edges, and those of the loops."""
        return self.edges, self.nodes

    def of(self, parts: Sequence[Value]) -> "Looped":
        """Other rows of the same edges and loops."""
        return Looped(parts[0], parts[1], self.drops)


@dataclass(frozen=True)
class CatRows:
    """Rows of several kinds, one behind the other: `cat([h[a], h[b]])`, or `h[cat([a, b])]`.

    Attributes:
        parts: Values of domain `NODE` or `EDGE`.
    """

    parts: tuple[Value, ...]

    def of(self, parts: Sequence[Value]) -> "CatRows":
        """Other rows of the same kinds."""
        return CatRows(tuple(parts))


def in_parts(held: Sequence[Any]) -> Looped | CatRows | None:
    """One of some rows, if all are in the same parts; None if they are not."""
    first = held[0]
    if not isinstance(first, Looped | CatRows):
        return None

    def places(rows: Any) -> Any:
        return type(rows), getattr(rows, "drops", None), [(v.domain, v.kind) for v in rows.parts]

    alike = all(isinstance(h, Looped | CatRows) and places(h) == places(first) for h in held)
    return first if alike else None


def joined_rows(program: Program, name: str, rows: CatRows) -> Value:
    """Rows of several kinds as they leave; nothing is computed."""
    out = program.value(f"{name}_out", Domain.WHOLE)
    return program.add(None, lambda: Returned(out, rows.parts, _cat, pure=True))


def _cat(*parts: Tensor) -> Tensor:
    return torch.cat(parts)


def lists_all(node: fx.Node, real: Any, known: set[fx.Node]) -> bool:
    """Whether a result holds the ids of all nodes, once or in several rows `[..., num_nodes]`.

    Args:
        node: Made by `torch.arange`, or of what was.
        real: The result on the probe.
        known: The nodes that are known to do so.
    """
    if node.op != "call_function" or not isinstance(real, Tensor) or real.dtype is not torch.int64:
        return False
    name = name_of(node.target)  # type: ignore[arg-type]
    made = name in _KEEPS_IDS and all(n in known for n in node.all_input_nodes if _is_tensor(n))
    if not real.dim() or not (name == "arange" or made):
        return False
    return torch.equal(real, torch.arange(real.shape[-1]).expand_as(real))


def listed(program: Program, name: str, rows: Looped | None, graph: Value, loops: Value) -> Value:
    """Edges without the self-loops among them, and loops at all nodes behind, as they leave.

    Args:
        program: The program.
        name: What it is called.
        rows: Rows of these edges that leave, `[n, ...]`; the edges, int64 `[2, n]`, if it is None.
        graph: The edges.
        loops: Rows of all nodes; only their number matters.
    """
    inputs = (graph, loops) if rows is None else (graph, *rows.parts)
    out = program.value(f"{name}_out", Domain.WHOLE)
    fn = _edges_listed if rows is None else _rows_listed
    return program.add(None, lambda: Returned(out, inputs, fn, pure=True))


def _edges_listed(edge_index: Tensor, loops: Tensor) -> Tensor:
    ids = torch.arange(len(loops), device=edge_index.device)
    return torch.cat([edge_index[:, edge_index[0] != edge_index[1]], torch.stack([ids, ids])], 1)


def _rows_listed(edge_index: Tensor, edges: Tensor, loops: Tensor) -> Tensor:
    return torch.cat([edges[(edge_index[0] != edge_index[1]).to(edges.device)], loops])


def _is_tensor(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") not in ("size_of", "size")


def with_own_row(
    call: ConvCall, program: Program, name: str, reduce: str, made: Value, own: Value
) -> Value:
    """A reduction over the in-edges of each node, and its own row taken in.

    Args:
        call: The words in which the reduction was written.
        program: The program.
        name: Name of the step.
        reduce: `sum`, `mean`, `amax` or `amin`.
        made: The reduction, `[num_nodes, channels]`; of `mean` the sum.
        own: The rows of the loops, `[num_nodes, channels]`.
    """
    if reduce == "sum":
        return program.map(name, torch.add, [made, own])
    count = call.degree()
    if reduce == "mean":
        return program.map(name, lambda t, x, n: (t + x) / (n + 1), [made, own, count])
    larger = torch.maximum if reduce == "amax" else torch.minimum
    return program.map(
        name, lambda m, x, n: torch.where(n > 0, larger(m, x), x), [made, own, count]
    )

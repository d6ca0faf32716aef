"""Products of what stands at one end of an edge: they run at that node, and not on every edge.

    lin(x[src])                        ->  lin(x)[src]
    lin(cat([x[src], x[dst], attr]))   ->  (W_1 x)[src] + (W_2 x + bias)[dst] + W_3 attr

A message then reads what was made of a node once, and a change of one end is no product again for
every edge of it. A product moves where what it makes is at most twice as wide as what it reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from pyg_incremental.call.roles import is_label
from pyg_incremental.ops import Linear
from pyg_incremental.program.messages import at_node, message_of
from pyg_incremental.program.steps import Domain, NotIncremental, Value
from pyg_incremental.trace.known import beside_each_other
from pyg_incremental.trace.written import Written

WIDER = 4
"""So many times as wide may be what is gathered in the place of what a product reads."""


def in_front(
    written: Written, name: str, fn: Callable[..., Tensor], rows: Sequence[Value], made: Tensor
) -> Value | None:
    """A product of rows of edges as one of rows of nodes, which are gathered then.

    Args:
        written: What is written so far.
        name: What the product is called.
        fn: What it does.
        rows: What it reads.
        made: What it makes on the probe, `[num_edges, ...]`.

    Returns:
        Rows of edges; None if they are not made of the node at one end alone.
    """
    ends = {_end_of(written, v) for v in rows}
    if len(ends) != 1 or None in ends:
        return None
    (at_target,) = ends
    program, examples = written.program, written.examples
    if _width(made) > WIDER * sum(_width(examples[v]) for v in rows):
        return None
    node = program.map(name, fn, [at_node(program, v, bool(at_target)) for v in rows], costly=True)
    examples.setdefault(node, made)
    return program.gather(f"{name}_gathered", node, rows[0].kind, bool(at_target))


def split(written: Written, node: fx.Node, layer: Linear, name: str) -> Value | None:
    """A linear layer on rows beside each other, `[num_edges, ...]`, as a sum of several.

    Args:
        written: What is written so far.
        node: The operation.
        layer: What it is.
        name: What it is called.

    Returns:
        Rows of edges, `[num_edges, out]`; None if no part of it is that of one end of the edge, or
        if all is.
    """
    at_ends: dict[bool, list[_Part]] = {}
    rest: list[_Part] = []
    for part in _beside_each_other(written, (*node.args, *node.kwargs.values())[0]):
        end = _end_of(written, part.rows)
        (rest if end is None else at_ends.setdefault(end, [])).append(part)
    out = written.recorded.real[node].shape[1]
    for end, some in [*at_ends.items()]:
        if out > WIDER * sum(part.last - part.first for part in some):
            rest += at_ends.pop(end)
    if not at_ends or len(at_ends) + bool(rest) < 2:
        return None
    program, biased = written.program, max(at_ends)
    gathered = []
    for end, some in at_ends.items():
        fn = OnColumns(layer, tuple((p.first, p.last) for p in some), end is biased)
        there = [at_node(program, p.rows, end) for p in some]
        at = program.map(f"{name}_{'target' if end else 'source'}", fn, there, costly=True)
        written.examples[at] = fn(*(p.example for p in some))
        gathered.append(program.gather(f"{at}_gathered", at, some[0].rows.kind, end))
    of_rest = OnColumns(layer, tuple((p.first, p.last) for p in rest), False)
    count = len(gathered)

    def total(*rows: Tensor) -> Tensor:
        found = sum(rows[1:count], rows[0])
        return found + of_rest(*rows[count:]) if rest else found

    return program.map(name, total, [*gathered, *(p.rows for p in rest)], costly=bool(rest))


@dataclass(frozen=True)
class OnColumns:
    """A linear layer on some columns of what it reads.

    Attributes:
        layer: The layer.
        columns: The first and the last but one of each of the parts that are read.
        biased: Whether its bias is added.
    """

    layer: Linear
    columns: tuple[tuple[int, int], ...]
    biased: bool

    def __call__(self, *rows: Tensor) -> Tensor:
        """Of the parts `[k, ...]`, in order, rows `[k, out]`."""
        weight, bias = self.layer.weight(), self.layer.bias
        some = [weight[:, first:last] for first, last in self.columns]
        added = bias() if self.biased and bias is not None else None
        if len(rows) == 1:
            return F.linear(rows[0], some[0], added)
        return F.linear(torch.cat(rows, 1), torch.cat(some, 1), added)


@dataclass(frozen=True)
class _Part:
    """Rows of edges, their columns among those beside them, and the rows on the probe."""

    rows: Value
    first: int
    last: int
    example: Tensor


def _beside_each_other(written: Written, node: Any) -> Sequence[_Part]:
    """What rows of edges, `[num_edges, channels]`, are put together of; nothing if they are not."""
    real, first, found = written.recorded.real, 0, list[_Part]()
    for part in beside_each_other(node) if isinstance(node, fx.Node) else ():
        held = written.env.get(part) if isinstance(part, fx.Node) else None
        if not isinstance(held, Value) or held.domain is not Domain.EDGE:
            return ()
        if real[part].dim() != 2:
            return ()
        width = real[part].shape[1]
        found.append(_Part(held, first, first + width, real[part]))
        first += width
    return found


def _end_of(written: Written, rows: Value) -> bool | None:
    """Whether rows of edges are made of the target alone, or of the source; None if of neither."""
    if rows.domain is not Domain.EDGE or is_label(rows.kind):  # few of all may be asked for
        return None
    try:
        read = message_of(written.program, rows)
    except NotIncremental:
        return None
    if read.edges or bool(read.source) == bool(read.target):
        return None
    return bool(read.target)


def _width(rows: Tensor) -> int:
    return rows.shape[1:].numel()

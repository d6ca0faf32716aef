"""Sums weighted by a softmax over in-edges: maximum, `exp`, sum and quotient as one step.

PyG's `softmax`, that of others, and one written by hand are all made of these. Each of them can be
followed by itself, but not as well: a row whose maximum moves would be read again, and every edge
would be looked at four times. So where the quotient is what a sum is weighted with, the sum
becomes the step that programs written by hand have for attention, and what led to it is not read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.conv import ConvCall
from pyg_incremental.conv.attend import finished
from pyg_incremental.ops import EdgeFunction
from pyg_incremental.program.messages import with_others
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace import operations
from pyg_incremental.trace.ids import End, EndIds, arguments_of
from pyg_incremental.trace.names import called
from pyg_incremental.trace.written import Written

_SHAPES = frozenset(
    ("view", "reshape", "unsqueeze", "squeeze", "flatten", "contiguous", "expand", "expand_as")
)
_GATHERS = frozenset(("index_select", "__getitem__"))
_TINY = 1e-15
"""What may be added to a sum of weights, the largest of which is one, and cannot be seen there."""


@dataclass(frozen=True)
class Reduced:
    """What an operation reduces at an end of edges.

    Attributes:
        end: Where.
        reduce: `sum`, `amax`, ...
        source: The rows, one for each edge.
    """

    end: End
    reduce: str
    source: fx.Node


@dataclass(frozen=True)
class WeightedBySoftmax:
    """Edge rows that are values times the softmax of their logits.

    Attributes:
        logits: `[num_edges, ...]`, one for each head.
        values: `[num_edges, ...]`, so many for each head.
        heads: The number of heads.
        wide: That of values of each head.
    """

    logits: Value
    values: Value
    heads: int
    wide: int


class Softmaxes:
    """Finds softmaxes in a recorded graph.

    Args:
        written: What is written so far.
        ids: Which nodes hold ids at the ends of edges.

    Attributes:
        reduced: What operations reduce at the ends of edges.
    """

    def __init__(self, written: Written, ids: EndIds) -> None:
        self._written, self._ids = written, ids
        self.reduced: dict[fx.Node, Reduced] = {}

    def read(self, rows: fx.Node, end: End) -> WeightedBySoftmax | None:
        """What edge rows, `[num_edges, ...]`, are that are added up at an end of the edges.

        None if they are not weighted by a softmax over the edges of that end.
        """
        weights = self._weights_in(rows, end)
        logits = None if weights is None else self._logits_of(weights, end)
        if weights is None or logits is None:
            return None
        env, real = self._written.env, self._written.recorded.real
        held = [env[n] for n in (rows, weights, logits)]
        graph = end.relation.graph
        if not all(
            isinstance(v, Value) and (v.domain, v.kind) == (Domain.EDGE, graph) for v in held
        ):
            return None
        heads = real[weights].shape[1:].numel()
        wide, left = divmod(real[rows].shape[1:].numel(), heads)
        if left or not self._are_heads(rows, weights, heads):
            return None
        ones = self._written.program.map(f"{weights.name}_ones", torch.ones_like, [held[2]])
        values = with_others(self._written.program, held[0], {held[1]: ones})
        return WeightedBySoftmax(held[2], values, heads, wide)

    # What is a softmax ---------------------------------------------------------------------------

    def _logits_of(self, node: fx.Node, end: End) -> fx.Node | None:
        """The rows of which an operation is the softmax at an end: `exp(x - max) / sum`."""
        if called(node) not in operations.QUOTIENTS or len(node.args) != 2 or node.kwargs:
            return None
        part, below = node.args
        whole = self._at_end(below, end)
        if not isinstance(part, fx.Node) or called(part) != "exp" or whole is None:
            return None
        if called(whole) == "add" and whole.args[1:] and _is_tiny(whole.args[1]):
            (whole,) = whole.all_input_nodes
        shifted = part.args[0]
        if self.reduced.get(whole) != Reduced(end, "sum", part) or not isinstance(shifted, fx.Node):
            return None
        if called(shifted) not in ("sub", "subtract") or len(shifted.args) != 2 or shifted.kwargs:
            return None
        logits = shifted.args[0]
        top = self._at_end(shifted.args[1], end)
        found = None if top is None else self.reduced.get(top)
        if found is None or (found.end, found.reduce) != (end, "amax"):
            return None
        return logits if _detached(found.source) is _detached(logits) else None  # type: ignore[return-value]

    def _at_end(self, node: Any, end: End) -> fx.Node | None:
        """The rows that an operation reads at an end of every edge."""
        if not isinstance(node, fx.Node) or called(node) not in _GATHERS:
            return None
        ids = arguments_of(node, ("input", "dim", "index")).get("index")
        if called(node) == "__getitem__":
            ids = node.args[1]
        if not isinstance(ids, fx.Node) or self._ids.of.get(ids) != end:
            return None
        rows = node.args[0]
        return rows if isinstance(rows, fx.Node) else None

    # What is weighted ----------------------------------------------------------------------------

    def _weights_in(self, node: fx.Node, end: End) -> fx.Node | None:
        """The softmax of which the rows of an operation are a multiple."""
        if self._logits_of(node, end) is not None:
            return node
        name = called(node)
        if node in self._written.recorded.writes or not node.args:
            return None
        same = name in _SHAPES or (
            name in operations.NOTHING and node.kwargs.get("training") is False
        )
        if same or name in operations.QUOTIENTS:
            parts = node.args[:1]
        else:
            parts = node.args if name in operations.PRODUCTS and not node.kwargs else ()
        for part in parts:
            found = self._weights_in(part, end) if isinstance(part, fx.Node) else None
            if found is not None:
                others = (n for n in node.all_input_nodes if n is not part)
                alone = node.args.count(part) == 1 and not any(_reads(n, found) for n in others)
                return found if alone else None
        return None

    def _are_heads(self, rows: fx.Node, weights: fx.Node, heads: int) -> bool:
        """Whether the columns of rows are those of one head after the other, as on the probe."""
        real = self._written.recorded.real
        alone = {weights: torch.ones_like(real[weights])}

        def value(node: fx.Node) -> Any:
            if node not in alone:
                if not _reads(node, weights):
                    return real[node]
                given = fx.node.map_arg((node.args, node.kwargs), value)
                alone[node] = node.target(*given[0], **given[1])  # type: ignore[operator]
            return alone[node]

        shape = (len(real[rows]), heads, -1)
        if not len(real[rows]):
            return False
        each = value(rows).reshape(shape) * real[weights].reshape(shape)
        return torch.allclose(each, real[rows].reshape(shape), equal_nan=True)


def attended(
    call: ConvCall,
    found: WeightedBySoftmax,
    moved: Callable[[Value], Value | None],
    function: Callable[[Value], EdgeFunction],
    by_pointer: bool,
) -> Value:
    """Sums of values weighted by the softmax of their logits, `[num_nodes, heads * channels]`.

    Args:
        call: The words over the edges.
        found: What is added up.
        moved: Edge rows as rows of the nodes where messages come from; None if they are no such.
        function: Edge rows as a function of rows.
        by_pointer: Whether it is over runs of sorted edges; see `conv.attend.has_pointer`.
    """
    part = "attention"
    heads, wide, rows = found.heads, found.wide, [found.values, found.logits]

    def beside(values: Tensor, logits: Tensor) -> Tensor:
        count = len(values)
        return torch.cat([values.reshape(count, heads * wide), logits.reshape(count, heads)], 1)

    def pair(values: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits.reshape(-1, heads), values.reshape(-1, heads, wide)

    source = moved(call.program.map(f"{part}_terms", beside, rows))
    if source is None:
        message = function(call.program.map(f"{part}_pair", pair, rows))
        state = call.softmax_of(message, None, f"{part}_softmax")
    else:  # the target has no part in the logits: a zero for each head
        ones, dtype = call.program.ones(call.target_kind), call.example(source).dtype
        none = call.map(
            f"{part}_none", lambda one: one.new_zeros(len(one), heads, dtype=dtype), ones
        )
        state = call.softmax(source, none, None, None, 1.0, part=f"{part}_softmax")
    return call.map(part, partial(finished, heads=heads, by_pointer=by_pointer), state)


def _is_tiny(number: Any) -> bool:
    return isinstance(number, (int, float)) and 0 <= number <= _TINY


def _detached(node: Any) -> Any:
    return node.args[0] if isinstance(node, fx.Node) and called(node) == "detach" else node


def _reads(node: fx.Node, other: fx.Node) -> bool:
    """Whether an operation reads another one, at once or by others."""
    seen, left = {node}, [node]
    while left:
        one = left.pop()
        if one is other:
            return True
        left += [n for n in one.all_input_nodes if n not in seen]
        seen.update(one.all_input_nodes)
    return False

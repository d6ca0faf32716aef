"""The steps that a conv may be written with: maps, messages and aggregations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pyg_incremental.conv.arguments import Arguments
from pyg_incremental.conv.linear import flat_weight
from pyg_incremental.ops import (  # fmt: skip
    EdgeFunction,
    Extremum,
    FunctionSoftmax,
    FunctionSum,
    Message,
    Neighborhood,
    NeighborhoodRows,
    PaddedRows,
    SoftmaxSum,
    Sum,
    Weighted,
    added,
    scaled,
)
from pyg_incremental.ops.base import Aggregate, Loops
from pyg_incremental.program.messages import message_of, reads_nodes
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Domain, NotIncremental, Value  # fmt: skip

C = TypeVar("C", bound="Primitives")


def _times(rows: Tensor, weight: Tensor) -> Tensor:
    return rows * weight.view(-1, *[1] * (rows.dim() - 1))


class Primitives(Arguments):
    """A conv called on values of a program, and the steps that it is made of."""

    def over(self: C, name: str) -> C:
        """The same call, with its aggregations over another graph among its arguments."""
        relation = self.program.graphs.get(self.args[name])
        if relation is None:
            raise NotIncremental(f"'{name}' is not one of the graphs handed in")
        return replace(self, relation=relation)

    def without_loops(self: C) -> C:
        """The same call, for which self-loops do not count as edges."""
        return replace(self, loops="drop")

    # Row maps ------------------------------------------------------------------------------------

    def map(
        self,
        part: str,
        fn: Callable[..., Any],
        *inputs: Value,
        shared: str = "",
        costly: bool = False,
    ) -> Value:
        """A row map.

        `shared` names a map that does not depend on this conv, so that all convs share it.
        """
        name = shared or f"{self.name}.{part}"
        key = shared or (id(self.conv), part)
        return self.program.map(name, fn, inputs, key=key, costly=costly)

    def weight(self, name: str = "edge_weight") -> Value | None:
        """The edge weights of a COO graph as one float per edge, or None."""
        value = self.edge(name)
        return None if value is None else flat_weight(self.program, value)

    def matrix_weights(self) -> Value | None:
        """The values of a sparse adjacency as one float per edge, or None."""
        return None if self.weights is None else flat_weight(self.program, self.weights)

    # Messages ------------------------------------------------------------------------------------

    def message(
        self,
        fn: Callable[..., Any],
        source: tuple[Value, ...] = (),
        target: tuple[Value, ...] = (),
        edges: tuple[Value | None, ...] = (),
        part: str = "message",
    ) -> EdgeFunction:
        """A message `fn(*source rows, *target rows, *edge rows)`, computed for k edges at a time.

        Args:
            fn: Takes rows `[k, ...]` of each value, in this order, and returns `[k, ...]`; each row
                of the result may depend on the same row of the arguments only.
            source: Values read where an edge comes from. A message changes along all out-edges of a
                node in which one of these changed.
            target: Values read where an edge leads to. A row in which one of these changed is made
                afresh over its in-edges.
            edges: Values read on the edge; those that are None are left out.
            part: Name of the steps.
        """
        there = tuple(e for e in edges if e is not None)
        if self.reads_ends(*there):
            fn, source, target, there = self._with_ends(fn, source, target, there)
        if len(source) < 2:
            return EdgeFunction(fn, tuple(map(self._sendable, source)), target, there)
        tails = [self.example(v).shape[1:] for v in source]
        widths = [t.numel() for t in tails]
        packed = self.map(
            f"{part}_packed",
            lambda *rows: torch.cat(
                [r.reshape(len(r), w) for r, w in zip(rows, widths, strict=True)], 1
            ),
            *source,
        )

        def unpack(rows: Tensor, *others: Tensor) -> Any:
            pieces = rows.split(widths, 1)
            return fn(*(p.reshape(-1, *t) for p, t in zip(pieces, tails, strict=True)), *others)

        return EdgeFunction(unpack, (packed,), target, there)

    def reads_ends(self, *edges: Value | None) -> bool:
        """Whether some edge rows are made of node rows: nothing stores these."""
        return bool(reads_nodes(self.program).intersection(edges))

    def _with_ends(
        self,
        fn: Callable[..., Any],
        source: tuple[Value, ...],
        target: tuple[Value, ...],
        edges: tuple[Value, ...],
    ) -> tuple[Callable[..., Any], tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
        """A message whose edge rows are made of rows at the ends of an edge: it reads these."""
        made = [message_of(self.program, v) for v in edges]
        order = (1, 0, 2) if self.reverse else (0, 1, 2)  # where messages come from, then lead to
        own = [*((0, v) for v in source), *((1, v) for v in target)]
        read = [
            [(p, v) for p, vs in zip(order, (m.source, m.target, m.edges), strict=True) for v in vs]
            for m in made
        ]
        every = dict.fromkeys((*own, *(place for places in read for place in places)))
        first, second, third = (tuple(v for p, v in every if p == part) for part in range(3))
        listed = [(p, v) for p, vs in enumerate((first, second, third)) for v in vs]
        at = {place: i for i, place in enumerate(listed)}

        def run(*rows: Tensor) -> Any:
            those = [
                m.fn(*(rows[at[place]] for place in places))
                for m, places in zip(made, read, strict=True)
            ]
            return fn(*(rows[at[place]] for place in own), *those)

        return run, first, second, third

    def _sendable(self, value: Value) -> Value:
        """A value whose OLD rows can be retracted: the result of a sum has to be written down."""
        step = next(s for s in self.program.steps if s.output is value)
        if step.gathers and not step.recomputes:
            return self.program.map(f"{value}_rows", as_it_is, [value], key="as_it_is")
        return value

    def weighted(self, source: Value, weight: Value | None) -> Message:
        """`weight * source`, with one number per edge."""
        if self.reads_ends(weight):
            return self.message(_times, (source,), (), (weight,))
        source = self._sendable(source)
        return source if weight is None else Weighted(source, weight)

    # Aggregations --------------------------------------------------------------------------------

    def total(self, message: Message, part: str = "sum") -> Value:
        """The sum of some messages over the in-edges."""
        if isinstance(message, EdgeFunction):
            return self._add(part, FunctionSum, message.inputs, message, key=("sum", id(message)))
        source, weight = (
            (message.source, message.weight) if isinstance(message, Weighted) else (message, None)
        )
        return self.sum(source, weight, part=part)

    def sum(
        self,
        source: Value,
        weight: Value | None,
        loops: Loops | None = None,
        part: str = "sum",
    ) -> Value:
        """Sum of `weight * source` over the in-edges."""
        source = self._sendable(source)
        inputs = (source,) if weight is None else (source, weight)
        key = ("sum", id(source), id(weight))
        return self._add(part, Sum, inputs, source, weight, key=key, loops=loops)

    def added(self, part: str, aggregated: Value, own: Value) -> Value:
        """`aggregated + own`; an engine makes that part of a sum if it can, see `engine.terms`."""
        shapes = [(rows.dtype, rows.shape[1:]) for rows in map(self.example, (aggregated, own))]
        return self.map(part, added if shapes[0] == shapes[1] else torch.add, aggregated, own)

    def scaled(self, part: str, aggregated: Value, factor: Value) -> Value:
        """`aggregated * factor`, where that is `[num_nodes, 1]`; like `added`."""
        return self.map(part, scaled, aggregated, factor)

    def degree(self, weight: Value | None = None, loops: Loops | None = None) -> Value:
        """Sum of the weights of the in-edges, or their number, `[num_nodes, 1]`."""
        ones = self.program.ones(self.source_kind)
        inputs = (ones,) if weight is None else (ones, weight)
        key = ("sum", id(ones), id(weight))
        return self._add("", Sum, inputs, ones, weight, key=key, loops=loops, name="degree")

    def out_degree(self, weight: Value | None = None) -> Value:
        """Sum of the weights of the out-edges, or their number, `[num_nodes, 1]`."""
        return replace(self, turned=not self.turned).degree(weight)

    def extremum(self, message: Message, largest: bool, part: str = "extremum") -> Value:
        """The largest or smallest message in each channel; zero where there is none."""
        if isinstance(message, EdgeFunction):
            return self._add(
                part, Extremum, message.inputs, largest, None, None, message,
                key=("extremum", largest, id(message)),
            )  # fmt: skip
        source, weight = (
            (message.source, message.weight) if isinstance(message, Weighted) else (message, None)
        )
        inputs = (source,) if weight is None else (source, weight)
        key = ("extremum", largest, id(source), id(weight))
        return self._add(part, Extremum, inputs, largest, source, weight, None, key=key)

    def softmax_of(self, message: EdgeFunction, loop: tuple[Value, ...] | None, part: str) -> Value:
        """Softmax-weighted sum of what a function gives; see `FunctionSoftmax`."""
        inputs = (*message.inputs, *(loop or ()))
        return self._add(part, FunctionSoftmax, inputs, message, loop, key=None)

    def softmax(
        self,
        source: Value,
        target: Value,
        edge: Value | None,
        loop: Value | None,
        slope: float,
        loops: Loops | None = None,
        part: str = "softmax",
    ) -> Value:
        """Softmax-weighted sum whose logits are sums of parts; see `SoftmaxSum`."""
        inputs = tuple(v for v in (source, target, edge, loop) if v is not None)
        parts = (source, target, edge, loop, slope)
        return self._add(part, SoftmaxSum, inputs, *parts, key=None, loops=loops)

    def rows(
        self,
        part: str,
        fn: Callable[[Neighborhood], Tensor],
        sources: tuple[Value, ...] = (),
        targets: tuple[Value, ...] = (),
        edges: tuple[Value, ...] = (),
        loops: Loops | None = None,
        reverse: bool | None = None,
    ) -> Value:
        """Anything that a row computes from its in-neighbourhood; `fn` gives `[num_rows, ...]`."""
        key = ("rows", id(self.conv), part, *map(id, (*sources, *targets, *edges)))
        inputs = (*sources, *targets, *edges)
        return self._add(
            part,
            NeighborhoodRows,
            inputs,
            fn,
            sources,
            targets,
            edges,
            key=key,
            loops=loops,
            reverse=reverse,
        )

    def padded_rows(
        self,
        part: str,
        fn: Callable[..., tuple[Tensor, Tensor]],
        sources: tuple[Value, ...] = (),
        targets: tuple[Value, ...] = (),
        edges: tuple[Value, ...] = (),
    ) -> Value:
        """The same of rows that all have one padding; see `PaddedRows`.

        `fn` is given the padding as well, float64 `[sorts, 2]` or None, and returns rows
        `[num_rows, ...]` with what is known of them, float64 `[num_rows, sorts * 4]`.
        """
        key = ("rows", id(self.conv), part, *map(id, (*sources, *targets, *edges)))
        inputs = (*sources, *targets, *edges)
        return self._add(part, PaddedRows, inputs, fn, sources, targets, edges, inputs, key=key)

    def _add(
        self,
        part: str,
        kind: type[Aggregate],
        inputs: tuple[Value, ...],
        *fields: Any,
        key: tuple[Any, ...] | None,
        loops: Loops | None = None,
        reverse: bool | None = None,
        name: str = "",
    ) -> Value:
        loops = loops or self.loops
        back = self.reverse if reverse is None else reverse
        end, graph = self.relation.source if back else self.relation.target, self.relation.graph
        return self.program.add(
            None if key is None else (*key, loops, back, graph),
            lambda: kind(
                self.program.value(name or f"{self.name}.{part}", Domain.NODE, end), inputs, loops,
                back, *fields, graph=graph,
            ),
        )  # fmt: skip

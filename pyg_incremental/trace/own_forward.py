"""A conv without a program: its own `forward`, run on the neighbourhoods of the rows to compute.

If a row depends on itself and its in-edges only, it may be computed on a small graph: the rows in
question, then one node for every distinct source of an edge into them, between two anchors. These
sources have no in-edges there, so what needs more than one hop comes out wrong; `locality` tries
whether it does.
"""

import inspect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.full_pass import plainly
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.registry import Builder, program_of
from pyg_incremental.conv.sorting import Sorting, sorts, with_stand_ins
from pyg_incremental.conv.watched import why_watched
from pyg_incremental.conv.with_weights import WithWeights
from pyg_incremental.ops import Neighborhood, NeighborhoodRows, PaddedRows
from pyg_incremental.program.steps import Domain, NotIncremental, Value
from pyg_incremental.trace.anchors import anchored
from pyg_incremental.trace.locality import why_not_local

_PLAIN = (bool, int, float, str, torch.dtype, torch.device, type(None))


@dataclass(frozen=True)
class OwnForward:
    """A conv's own `forward` with everything fixed but node rows, edge rows and the graph.

    Attributes:
        conv: The conv.
        args: Its arguments by name; tensors as values.
        graph: The value that is the graph.
        nodes: The node values among the arguments.
        edges: The edge values among them.
        reverse: Whether a row gathers over its out-edges, as the conv is given them.
    """

    conv: Any
    args: Mapping[str, Any]
    graph: Value
    nodes: tuple[Value, ...]
    edges: tuple[Value, ...]
    reverse: bool

    def __call__(self, nodes: Sequence[Tensor], edges: Sequence[Tensor], graph: Tensor) -> Any:
        """Run it.

        Args:
            nodes: NeighborhoodRows `[num_nodes, ...]` of each node value.
            edges: NeighborhoodRows `[num_edges, ...]` of each edge value.
            graph: int64 `[2, num_edges]`.
        """
        held = dict(zip((*self.nodes, *self.edges), (*nodes, *edges), strict=True))
        held[self.graph] = graph
        bound = inspect.BoundArguments(self._signature, OrderedDict())
        bound.arguments.update({name: _filled(arg, held) for name, arg in self.args.items()})
        with plainly(self.conv):
            return self.conv(*bound.args, **bound.kwargs)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.conv.forward)

    def on(self, conv: Any) -> "OwnForward":
        """The same of another conv."""
        return replace(self, conv=conv)

    def on_rows(self, around: Neighborhood) -> Tensor:
        """The result for some rows, from what they see, `[num_rows, ...]`."""
        return self._between_anchors(around)[1 : 1 + around.num_rows]

    def on_padded_rows(self, around: Neighborhood, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same where there is a `SortAggregation`; see `PaddedRows`.

        Args:
            around: What the rows see.
            padding: Float64 `[sorts, 2]`, or None.

        Returns:
            The rows, `[num_rows, ...]`, and what is known of them, float64 `[num_rows, sorts * 4]`.

        Raises:
            UnsupportedModelError: If a sort does not make one row for each node.
        """
        wanted = slice(1, 1 + around.num_rows)
        run = Sorting(wanted, padding)
        rows = self.on(with_stand_ins(self.conv, run))._between_anchors(around)
        return rows[wanted], run.known(len(rows))

    def _between_anchors(self, around: Neighborhood) -> Tensor:
        """The result for an anchor, the rows, those that they see, and an anchor."""
        at = around.by_age
        row = around.index[at]
        sources, place = around.neighbor[at].unique(return_inverse=True)
        an_edge = torch.empty_like(sources).scatter_(0, place, at)  # one of each source's
        source = torch.where(around.is_loop[at], row, place + around.num_rows)
        nodes = [(own, far[an_edge]) for own, far in zip(around.target, around.source, strict=True)]
        edges = [rows[at] for rows in around.edge]
        graph = torch.stack([row, source] if self.reverse else [source, row])
        out: Tensor = self(*anchored(nodes, edges, graph))
        return out


def own_forward(call: ConvCall) -> Value:
    """Any conv as one step that computes rows again.

    Raises:
        NotIncremental: If a row of it depends on more than itself and its in-edges, or if that
            cannot be found out.
    """
    graph = next(v for v, r in call.program.graphs.items() if r is call.relation)
    if call.relation.source != call.relation.target:
        raise NotIncremental("it is called with two sets of nodes")
    if not call.is_coo:
        raise NotIncremental("its sparse adjacency is not taken apart into neighbourhoods")
    found: list[Value] = []
    for name, argument in call.args.items():
        _find(name, argument, graph, found)
    nodes = tuple(v for v in found if v.domain is Domain.NODE)
    edges = tuple(v for v in found if v.domain is Domain.EDGE)
    if not nodes:
        raise NotIncremental("it is called without node features")
    rows_of_nodes, rows_of_edges = ([call.example(v) for v in vs] for vs in (nodes, edges))
    stand_in = with_stand_ins(call.conv, None)
    seen = []
    for reverse in (call.reverse != call.turned, call.reverse == call.turned):
        forward = OwnForward(call.conv, call.args, graph, nodes, edges, reverse)
        tried, by_target = forward.on(stand_in), call.relation.by_target and not reverse
        reason = why_not_local(tried, rows_of_nodes, rows_of_edges, by_target)
        if not reason:
            return _recomputed(call, forward)
        seen.append(reason)
    raise NotIncremental(seen[0])


def builder_of(conv: torch.nn.Module) -> Builder:
    """The builder for a conv: its program, or its own `forward` on the rows to compute.

    The latter serves a conv without a program, one that is not computed as its class says, and a
    call that its program does not cover.

    Raises:
        NotIncremental: If hooks watch the conv or a part of it, which then have to see all rows, or
            if a method was replaced.
    """
    watched = why_watched(conv)
    if watched:
        raise NotIncremental(watched)
    try:
        program = program_of(conv)
    except NotIncremental as error:
        return _by_rows(str(error))

    def build(call: ConvCall) -> Value | dict[str, Value] | WithWeights:
        steps = len(call.program.steps)
        try:
            return program(call)
        except NotIncremental as error:
            call.program.forget(steps)
            return _by_rows(str(error))(call)

    return build


def _by_rows(reason: str) -> Builder:
    """The conv's own `forward`, as there is no program for the given reason."""

    def build(call: ConvCall) -> Value:
        try:
            return own_forward(call)
        except NotIncremental as error:
            raise NotIncremental(f"{reason}, and {error}") from error

    return build


def _recomputed(call: ConvCall, forward: OwnForward) -> Value:
    nodes, edges, back = forward.nodes, forward.edges, forward.reverse != call.turned
    relation, read = call.relation, (*nodes, *edges)
    name = call.program.value(f"{call.name}.forward", Domain.NODE, relation.source)
    parts = (nodes, nodes, edges)
    graph = relation.graph
    step = (
        PaddedRows(name, read, call.loops, back, forward.on_padded_rows, *parts, read, graph=graph)
        if sorts(call.conv)
        else NeighborhoodRows(name, read, call.loops, back, forward.on_rows, *parts, graph=graph)
    )
    return call.program.add(None, lambda: step)


def _find(name: str, argument: Any, graph: Value, found: list[Value]) -> None:
    """Collect the node and edge values of an argument."""
    if isinstance(argument, (tuple, list, dict)):
        for part in argument.values() if isinstance(argument, dict) else argument:
            _find(name, part, graph, found)
    elif isinstance(argument, Value):
        if argument.domain is not Domain.WHOLE:
            if argument not in found:
                found.append(argument)
        elif argument is not graph:
            raise NotIncremental(f"'{name}' is computed from all rows")
    elif not isinstance(argument, _PLAIN):
        raise NotIncremental(f"'{name}' is a {type(argument).__name__}")


def _filled(argument: Any, held: Mapping[Value, Tensor]) -> Any:
    """An argument with tensors in place of values."""
    if isinstance(argument, Value):
        return held[argument]
    if isinstance(argument, (tuple, list)):
        return tuple(_filled(part, held) for part in argument)
    if isinstance(argument, dict):
        return {key: _filled(part, held) for key, part in argument.items()}
    return argument

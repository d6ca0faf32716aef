"""One propagation over a weighted graph: `t_i (sum_j w_ji s_j x_j + loop_i s_i x_i)`.

What only depends on the source is multiplied before the messages leave, what only depends on the
target after they were aggregated, so that a changed factor does not make a row be read again. That
is exact for every linear aggregation; for the others the messages are computed in full.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.own_loop import reduced_with_loop
from pyg_incremental.ops import OwnMessage
from pyg_incremental.program.steps import Value

_EXTREMA = (aggr.MaxAggregation, aggr.MinAggregation)


@dataclass(frozen=True)
class Hop:
    """A weighted graph: the message from j to i is `t_i * w_ji * s_j * x_j`.

    Attributes:
        call: The call; it says which self-loops count as edges.
        weight: `w`, one number per edge, or None for one.
        source: `s`, `[num_nodes, 1]`, or None for one.
        target: `t`, `[num_nodes, 1]`, or None for one. It has to be finite where a row has no
            message, and positive where it has some without weights.
        loop: The weight of a self-loop that every node gets, `[num_nodes, 1]` or a constant; zero
            for no such loop.
        module: What the messages are aggregated with; the conv's own by default.
    """

    call: ConvCall
    weight: Value | None
    source: Value | None = None
    target: Value | None = None
    loop: Value | float = 0.0
    module: torch.nn.Module | None = None

    def __call__(
        self,
        x: Value,
        part: str,
        first: Callable[[Tensor], Tensor] | None = None,
        biased: bool = False,
    ) -> Value:
        """One propagation, `[num_nodes, channels]`.

        Args:
            x: What is sent.
            part: Name of the steps.
            first: A costly row map of `x` before it is sent, such as a linear layer.
            biased: Whether the conv's bias is added, if it has one.
        """
        call, sent = self.call, self._sent(x, part, first)
        is_sum = type(self._module) is aggr.SumAggregation
        if is_sum and self.target is not None and self.loop and not isinstance(self.loop, Value):
            return self._with_terms(sent, part, biased)
        rows = self._apart(sent, part)
        return with_bias(call, rows) if biased else rows

    def _with_terms(self, sent: Value, part: str, biased: bool) -> Value:
        """A sum that an engine keeps as the finished rows: what each row adds is a row of its own.

        That is stored, which saves reading what was sent again wherever a message arrives.
        """
        call, conv, loop, target = self.call, self.call.conv, self.loop, self.target
        assert target is not None
        assert not isinstance(loop, Value)
        own = OwnMessage(lambda: loop, lambda: conv.bias if biased else None)
        message = call.weighted(sent, self.weight)
        rows = call.reduce(message, module=self._module, part=part)
        rows = call.scaled(f"{part}_scaled", rows, target)
        return call.added(f"{part}_out", rows, call.map(f"{part}_own", own, sent, target))

    def _apart(self, sent: Value, part: str) -> Value:
        """The same where rows are made of what arrived and what was sent, whenever they change."""
        call = self.call
        # Infinity times zero is NaN, which an extremum may hide; a factor of zero needs weights.
        if not (self._is_linear or (self.weight is None and type(self._module) in _EXTREMA)):
            return self._over_edges(part, lambda sent: sent, sent, ())
        own = self._own(part, lambda sent: sent, sent)
        message = call.weighted(sent, self.weight)
        return self._finished(part, reduced_with_loop(call, message, own, self._module, part))

    def with_own(self, x: Value, own: Value, part: str) -> Value:
        """Like a call without `loop`, where `own` is the message of each node to itself."""
        return self._over_edges(part, lambda sent: sent, self._sent(x, part), (), own)

    def gather(
        self,
        part: str,
        fn: Callable[..., Tensor],
        x: Value,
        source: tuple[Value, ...],
        target: tuple[Value, ...],
    ) -> Value:
        """Like a call, but what j sends to i is `fn(s_j * x_j, *source rows, *target rows)`.

        Args:
            part: Name of the steps.
            fn: Row by row, as in `ConvCall.message`, and linear in its first argument.
            x: What is sent, `[num_nodes, channels]`.
            source: Further values read where an edge comes from, `[num_nodes, channels]`.
            target: Values read where an edge leads to.
        """
        widths = [self.call.example(v).shape[1] for v in (x, *source)]
        values = (self._sent(x, part), *source)
        sent = self.call.map(f"{part}_packed", lambda *rows: torch.cat(rows, 1), *values)

        def unpacked(sent: Tensor, *targets: Tensor) -> Tensor:
            return fn(*sent.split(widths, 1), *targets)

        return self._over_edges(part, unpacked, sent, target)

    def _sent(self, x: Value, part: str, first: Callable[[Tensor], Tensor] | None = None) -> Value:
        """What leaves each node, `s_j * first(x_j)`."""
        call, name, source = self.call, f"{part}_sent", self.source
        if source is None:
            return x if first is None else call.map(name, first, x, costly=True)
        if first is None:
            return call.map(name, torch.mul, x, source)
        return call.map(name, lambda x, s: first(x) * s, x, source, costly=True)

    @property
    def _module(self) -> torch.nn.Module:
        module: torch.nn.Module = self.module or self.call.conv.aggr_module
        return module

    @property
    def _is_linear(self) -> bool:
        return type(self._module) in (aggr.SumAggregation, aggr.MeanAggregation)

    def _over_edges(
        self,
        part: str,
        fn: Callable[..., Tensor],
        sent: Value,
        target: tuple[Value, ...],
        own: Value | None = None,
    ) -> Value:
        """Messages that are computed edge by edge, in full if they are not added up."""
        late, count = self._is_linear and own is None, 1 + len(target)
        if self.target is not None and not late:
            target = (*target, self.target)

        def full(*rows: Tensor) -> Tensor:
            out = fn(*rows[:count])
            return out * rows[count] if len(target) == count else out

        def weighted(*rows: Tensor) -> Tensor:
            return full(*rows[:-1]) * rows[-1][:, None]

        message = self.call.message(
            full if self.weight is None else weighted, (sent,), target, (self.weight,), part
        )
        own = own or self._own(part, full, sent, *target)
        rows = reduced_with_loop(self.call, message, own, self._module, part)
        return self._finished(part, rows) if late else rows

    def _own(self, part: str, fn: Callable[..., Tensor], *values: Value) -> Value | None:
        """The message of each node to itself, where an edge without weight would carry `fn`."""
        loop, name = self.loop, f"{part}_own"
        if isinstance(loop, Value):
            return self.call.map(name, lambda w, *rows: w * fn(*rows), loop, *values)
        return self.call.map(name, lambda *rows: loop * fn(*rows), *values) if loop else None

    def _finished(self, part: str, rows: Value) -> Value:
        if self.target is None:
            return rows
        return self.call.map(f"{part}_out", torch.mul, rows, self.target)

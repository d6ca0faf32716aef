"""Sums weighted by a softmax over the in-edges: attention.

Per row and head three things are kept: a reference, the mass `sum exp(logit - reference)` and the
numerator `sum exp(logit - reference) * value` (the neighbourhood context of NeutronRT, Section 4).
A source that changed is retracted with its old logit and value and inserted with its new ones. A
row whose own term of the logits changed is made afresh, and so is one in which cancellation has
cost too many bits (see `kernels.compiled.softmax_push`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pyg_incremental.aggregate.base import Aggregate, Aggregator, channel_scale, drift_limit
from pyg_incremental.graph.edge_store import Edges
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Rows
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class SoftmaxSum(Aggregate):
    """`out[i]` stands for `sum_j softmax_j(leaky_relu(logit[j, i])) * value[j]`, per head.

    It holds `[numerator, mass, reference]` of that sum. The logit of an edge is
    `source part + target part + edge part`.

    Attributes:
        source: Node value `[num_nodes, heads * channels + heads]`: the values, then the source's
            logit parts.
        target: Node value `[num_nodes, heads]`: the target's logit parts.
        edge: Edge value `[num_edges, heads]`, or None.
        loop: Node value `[num_nodes, heads]`: logits (before leaky ReLU) of a self-loop that every
            node has, or None.
        slope: Negative slope of the leaky ReLU.
    """

    kind: ClassVar[str] = "softmax"
    source: Value
    target: Value
    edge: Value | None
    loop: Value | None
    slope: float

    @property
    def messages(self) -> tuple[Value, ...]:
        """The source: its values and logit parts are retracted together."""
        return (self.source,)

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "SoftmaxState":
        """The executor: it keeps numerator, mass and reference of every row."""
        return SoftmaxState(self, cell, context)


def softmax_result(state: Tensor, heads: int) -> Tensor:
    """Numerator over mass of state rows, `[k, heads * channels]`; zero in a row without edges."""
    channels = state.shape[1] // heads - 2
    numerator = state[:, : heads * channels].view(-1, heads, channels)
    mass = state[:, heads * channels : heads * channels + heads].unsqueeze(-1)
    return torch.where(mass == 0, 0.0, numerator / mass).flatten(1)


class SoftmaxState(Aggregator):
    """Keeps softmax-weighted sums current.

    `drift` is what has moved through each row's mass and through its numerator.
    """

    pulls = True

    def __init__(self, step: SoftmaxSum, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell(step.output), context)
        self.source = cell(step.source)
        self.target = cell(step.target)
        self.edge = None if step.edge is None else cell(step.edge)
        self.loop = None if step.loop is None else cell(step.loop)
        self.slope = step.slope
        self.drift = self.extra["drift"] = Rows(context.backend)

    def full(self) -> None:
        """Sum all rows, each with its largest logit as reference."""
        context, rows, heads = self.context, self.source.tensor, self.target.tensor.shape[1]
        self.limit = drift_limit(rows.dtype, rows.dtype)
        self.out.hold(context.backend.zeros(rows, context.capacity, rows.shape[1] + heads))
        self.drift.hold(context.backend.zeros(rows, context.capacity, 2))
        values = self.source.current()[:, : rows.shape[1] - heads]
        self.scale.hold(channel_scale(values))
        self._nothing: Array = context.backend.array(rows.new_empty(0, 1))
        context.kernels.softmax_rows(
            context.all_nodes.array, self.out.array, self.drift.array, self.source.array,
            self.target.array, self._edge(), self._loop(), self.slope, self._lists()[1], self.drop,
        )  # fmt: skip

    def _edge(self) -> Array:
        return self._nothing if self.edge is None else self.edge.array

    def _loop(self) -> Array:
        return self._nothing if self.loop is None else self.loop.array

    def edges_changed(self) -> None:
        """Retract and insert the terms of event edges, with the OLD values and logits."""
        edge = self.edge
        removed, added, changed, _ = self.context.events
        for edges, sign in ((removed, -1), (added, 1)):
            if len(edges.slots):
                self._add(edges, self._nothing if edge is None else edge.array[edges.slots], sign)
        if edge is not None and edge.old_changed is not None and len(changed.slots):
            self._add(changed, self.context.backend.array(edge.old_changed), -1)
            self._add(changed, edge.array[changed.slots], 1)

    def _add(self, edges: Edges, edge_rows: Array, sign: int) -> None:
        src, dst = self._ends(edges)
        self.context.kernels.softmax_edges(
            self.out.array, self.drift.array, self.scale.array, self.source.array,
            self.target.array, src, dst, edge_rows, self.slope, sign, self.drop,
        )  # fmt: skip

    def rows_changed(self) -> None:
        """Replace the terms of changed sources, and make rows afresh where that is due."""
        context, source, out = self.context, self.source, self.out
        scratch = context.scratch
        # Rows whose own part changed come first: the kernel makes them afresh.
        own = [self.target.ids, None if self.loop is None else self.loop.ids]
        own += [self._as_targets(source) if self.loop is not None else None]
        own += [context.backend.ids(context.renew) if len(context.renew) else None]
        with_changed = self.edge is not None and self.edge.old_changed is not None
        count, renewed, events, epoch = self._collect(
            with_changed, tuple(ids for ids in own if ids is not None)
        )
        if source.ids is None and not count:
            return
        ids, old, way = scratch.touched[:0], source.array[:0], "push"
        if source.ids is not None and self._pulls(source):
            count = renewed = self._reach(source, count, epoch)
            way = "pull"
        elif source.ids is not None:
            ids, old = source.ids.array, source.old
        pushed, inn = self._lists()
        count, edges, reread, read = context.kernels.softmax_push(
            out.array, self.drift.array, self.limit, self.scale.array, source.array,
            self.target.array, self._edge(), self._loop(), self.slope, ids, old, pushed, inn,
            self.drop, scratch.touched, count, renewed, scratch.stamp, epoch,
        )  # fmt: skip
        if count:
            out.ids = scratch.taken(count)
        self._report(count, count, events + edges + read, reread, way)

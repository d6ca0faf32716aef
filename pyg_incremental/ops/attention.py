"""Softmax over in-edges whose logits and values are computed edge by edge: any attention.

The state is that of `SoftmaxSum`: numerator, mass and reference per row and head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pyg_incremental.kernels.compiled import layout as m
from pyg_incremental.ops.edge_function import FunctionState, OfFunction
from pyg_incremental.ops.message import flat, flat_messages
from pyg_incremental.ops.softmax import SoftmaxRows
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context
from pyg_incremental.typing import Array


@dataclass(frozen=True, eq=False)
class FunctionSoftmax(OfFunction):
    """`out[i]` stands for `sum_j softmax_j(logit[j, i]) * value[j, i]`, per head.

    `message` gives (logits `[k, heads]`, values `[k, heads, channels]`) at k edges.

    Attributes:
        loop: None, or for every edge value of the message the row that a self-loop has which every
            node gets (an empty tuple if there are none).
    """

    kind: ClassVar[str] = "softmax"
    loop: tuple[Value, ...] | None

    @property
    def own_part(self) -> tuple[Value, ...]:
        """What the function reads there, and what a loop of its own is made of."""
        own = () if self.loop is None else (*self.loop, *self.message.source)
        return (*self.message.target, *own)

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "FunctionSoftmaxState":
        """The executor: it keeps numerator, mass and reference of every row."""
        return FunctionSoftmaxState(self, cell, context)


class FunctionSoftmaxState(SoftmaxRows, FunctionState):
    """Keeps softmax-weighted sums of edge functions current."""

    kernels = ("function", "softmaxes")

    kind_of_row = m.FUNCTION_SOFTMAX

    def __init__(
        self, step: FunctionSoftmax, cell: Callable[[Value], Cell], context: Context
    ) -> None:
        loop = None if step.loop is None else [cell(v) for v in step.loop]
        FunctionState.__init__(self, step, step.message, loop, cell, context)
        self.has_loops = loop is not None

    def _begin(self, sample: Any) -> None:
        logits, values = sample
        rows, context = flat(values), self.context
        self._hold_no_terms(rows, logits.shape[1])
        backend = context.backend
        self._nothing = backend.array(rows.new_empty(0, 1))
        # The kernel adds the target's part of a logit; here it is part of the function.
        self._no_part = backend.array(rows.new_zeros(context.capacity, self.heads))

    def _apply(self, messages: Any, dst: Array, sign: int) -> None:
        rows = flat_messages(messages)
        backend = self.context.backend
        if self._no_part.shape[0] < self.out.tensor.shape[0]:
            self._no_part = backend.array(rows.new_zeros(self.out.tensor.shape[0], self.heads))
        every = backend.array(torch.arange(len(rows)))
        self.context.kernels.softmax_edges(
            self.out.array, self.low.array, self.drift.array, self.scale.array,
            backend.array(rows), self._no_part, every, dst, self._nothing, 1.0, sign, False,
            self.unit,
        )  # fmt: skip

    def _renew(self, ids: Tensor, messages: Any, index: Tensor) -> None:
        """The largest logit of each row is its reference; if it is not finite, it spoils its head.

        Such a head is NaN. Its logits are hidden while the others are summed, because the kernel
        leaves a row alone in which it meets one that is out of reach. If its reference is minus
        infinity, the numerator is what it is for weights of zero (see `settled` in `conv.attend`).
        """
        (logits, values), heads, state = messages, self.heads, self.out.tensor
        index, ids = index.to(logits.device), ids.to(state.device)
        top = logits.new_zeros(len(ids), heads)
        at = index[:, None].expand(-1, heads)
        top.scatter_reduce_(0, at, logits, "amax", include_self=False)
        spoilt = ~top.isfinite()
        self._clear(ids)
        state[ids, -heads:] = top.masked_fill(spoilt, 0).to(state.dtype)
        if len(index):
            logits = logits.masked_fill(spoilt[index], 0)
            self.drift.tensor[ids] = 1  # these rows have their references
            self._apply((logits, values), self.context.backend.array(ids[index].cpu()), 1)
        if bool(spoilt.any()):
            rows = state[ids]
            numerator = rows[:, : -2 * heads].view(len(ids), heads, -1)
            numerator[top == -torch.inf] *= 0
            numerator[spoilt & (top != -torch.inf)] = torch.nan
            rows[:, -2 * heads : -heads][spoilt] = torch.nan
            rows[:, -heads:] = top.to(state.dtype)
            state[ids] = rows

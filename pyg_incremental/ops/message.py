"""What travels along an edge when it is more than the row of its source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell


@dataclass(frozen=True, eq=False)
class EdgeFunction:
    """`fn(*source rows, *target rows, *edge rows)`: a message `f(x_j, x_i, e)`.

    Attributes:
        fn: Takes, for each value below and in this order, its rows `[k, ...]` at k edges; returns
            `[k, ...]`, each row of which depends on the same row of the arguments only.
        source: Node values read where an edge comes from; at most one (see `ConvCall.message`,
            which packs several into one, so that their OLD rows are found together).
        target: Node values read where an edge leads to.
        edges: Edge values.
    """

    fn: Callable[..., Any]
    source: tuple[Value, ...]
    target: tuple[Value, ...]
    edges: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All values that are read."""
        return (*self.source, *self.target, *self.edges)

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor:
        """What it gives for an edge, flat, `[1, channels]`; `like` returns some rows of a value."""
        made: Tensor = self.fn(*(like(v)[:1] for v in self.inputs)).flatten(1)
        return made


@dataclass(frozen=True, eq=False)
class Weighted:
    """`weight[j, i] * source[j]`: a source row times one number per edge."""

    source: Value
    weight: Value


Message = Value | Weighted | EdgeFunction
"""What travels along an edge: the row of its source, that times a weight, or a function."""


class BoundFunction:
    """An edge function over stored rows.

    Attributes:
        source: The cell of the source rows, or None.
        target: The cells of target rows.
        edges: The cells of edge rows.
        loop: The cells that a self-loop has in the place of edge rows; None for no such loop.
    """

    def __init__(
        self,
        message: EdgeFunction,
        cell: Callable[[Value], Cell],
        loop: Sequence[Cell] | None = None,
    ) -> None:
        self.loop = loop
        self.fn = message.fn
        self.source = cell(message.source[0]) if message.source else None
        self.target = [cell(v) for v in message.target]
        self.edges = [cell(v) for v in message.edges]

    @property
    def cells(self) -> list[Cell]:
        """What the function takes, in order."""
        return [*([] if self.source is None else [self.source]), *self.target, *self.edges]

    def rows(self, *given: Tensor) -> Tensor:
        """Messages of given rows `[k, ...]`, as flat ones `[k, width]`; see `flat_messages`."""
        return flat_messages(self.fn(*given))

    def now(self, src: Tensor, dst: Tensor, slot: Tensor) -> Any:
        """Messages of some edges from what is stored now; ids are int64 `[k]`."""
        return self.given(self._source_rows(src), dst, [c.read(slot) for c in self.edges])

    def given(self, source: Sequence[Tensor], dst: Tensor, edge_rows: Sequence[Tensor]) -> Any:
        """Messages from given source and edge rows `[k, ...]`, and the target rows stored now."""
        return self.fn(*source, *(c.read(dst) for c in self.target), *edge_rows)

    def _source_rows(self, src: Tensor) -> list[Tensor]:
        return [] if self.source is None else [self.source.read(src)]

    def old_edge_rows(self, slot: Tensor) -> list[Tensor]:
        """The OLD edge rows, `[k, ...]`, of the running update's changed edges.

        `slot`, int64 `[k]`, are all of them.
        """
        return [c.read(slot) if c.old_changed is None else c.old_changed for c in self.edges]

    @property
    def edges_differ(self) -> bool:
        """Whether the running update has changed an edge row that is read."""
        return any(c.old_changed is not None for c in self.edges)

    @property
    def own(self) -> tuple[Any, ...]:
        """The sets of rows whose own (target) part changed in the running update."""
        return tuple(c.ids for c in self.target if c.ids is not None)


def flat_messages(messages: Any) -> Tensor:
    """Messages as flat rows `[k, width]`; of (logits, values) the values and then the logits."""
    if isinstance(messages, Tensor):
        return flat(messages)
    logits, values = messages
    return torch.cat([flat(values), logits], 1)


def flat(rows: Tensor) -> Tensor:
    """Rows `[k, ...]` as `[k, channels]`, contiguous."""
    return (
        rows if rows.dim() == 2 else rows.reshape(rows.shape[0], rows.shape[1:].numel())
    ).contiguous()

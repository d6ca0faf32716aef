"""Rows whose messages are padded to one length for all rows, with one number for all of them.

`SortAggregation` of PyG pads the messages of every row to the largest number that any row has, with
one less than the smallest of all, and then sorts. What a row comes out as shows its padding only if

* some of its messages tie: the sort is not stable, and in which order it leaves them depends on how
  much there is to sort;
* the smallest message is not a number, or so large that one less is the same: then the padding is
  taken for messages, in every row.

So a row is computed from its in-neighbourhood, as in `NeighborhoodRows`. Beside it stands what the
padding of all rows is made of, and rows that show theirs are computed once more with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pyg_incremental.ops.rows import NeighborhoodRows, NeighborhoodRowsState
from pyg_incremental.program.steps import Value
from pyg_incremental.rows import Cell, Context, Ids, Rows

ROOM = 1 << 20
"""Messages and padding computed at a time, 4 MB of float32 for each channel. Every row is as long
as the longest here, so fewer would be a row at a time in a graph with a hub."""
COUNT, LOW, FILL, SHOWS = range(4)
SEEN = 4
"""What is known of a row and one sort: its number of messages, the negative of the smallest one and
of one less than that, both minus infinity without messages, and whether the row shows its padding.
The largest of each over all rows is what all rows are padded with."""


@dataclass(frozen=True, eq=False)
class PaddedRows(NeighborhoodRows):
    """`out[rows] = fn(neighbourhood of rows, padding)[0]`.

    Attributes:
        fn: Takes what some rows see, and None or for each of its sorts the length of the padding
            and the smallest message of all, float64 `[sorts, 2]`. Returns rows `[num_rows, ...]`
            and what is known of them, float64 `[num_rows, sorts * 4]` (see `SEEN`). Given None it
            computes rows that do not show their padding.
        everywhere: Values whose rows at all nodes enter the padding.
    """

    kind: ClassVar[str] = "rows"
    takes_all: ClassVar[bool] = True
    is_local: ClassVar[bool] = False
    fn: Callable[..., Any]
    everywhere: tuple[Value, ...]

    def bind(self, cell: Callable[[Value], Cell], context: Context) -> "PaddedRowsState":
        """The executor: it computes rows again, and knows what they are padded with."""
        return PaddedRowsState(self, cell, context)


class PaddedRowsState(NeighborhoodRowsState):
    """Recomputes the rows whose neighbourhood, or visible padding, changed."""

    def __init__(self, step: PaddedRows, cell: Callable[[Value], Cell], context: Context) -> None:
        super().__init__(step, cell, context)
        self.seen = self.extra["seen"] = Rows(context.backend)
        self._most = torch.zeros(0, SEEN, dtype=torch.float64)

    def full(self) -> None:
        """Compute all rows, some at a time, and again those that show their padding."""
        context, out = self.context, self.out
        parts = [self._compute(some)[:2] for some in self._some(context.all_nodes)]
        rows, seen = (torch.cat(part) for part in zip(*parts, strict=True))
        out.put(rows, context.capacity)
        self.seen.put(seen, context.capacity)
        self._most = self._largest()
        again = self._showing(context.all_nodes.tensor)
        if len(again):
            out.tensor[again.to(out.tensor.device)] = self._padded(again)[0]

    def restored(self) -> None:
        """Take from the stored rows what all are padded with."""
        self._most = self._largest()

    def rows_changed(self) -> None:
        """Compute the rows again whose neighbourhood changed, then those whose padding did."""
        context, backend = self.context, self.context.backend
        ids, reached = self._touched()
        if not ids.count:
            return
        rows, seen, edges = self._compute(ids)
        self.seen.tensor[ids.tensor.to(seen.device)] = seen
        before, self._most = self._most, self._largest()
        again = self._again(ids.tensor, before)
        if len(again):
            shown = torch.zeros(context.num_nodes, dtype=torch.bool)
            shown[again] = True
            rest = ~shown[ids.tensor]
            padded, more = self._padded(again)
            rows = torch.cat([rows[rest.to(rows.device)], padded])
            ids = backend.ids(torch.cat([ids.tensor[rest], again]))
            edges += more
        changed = self.out.commit(ids, rows, context.first_new)
        self._report(ids.count, changed, reached + edges, ids.count, "pull")

    def _compute(self, ids: Ids, padding: Tensor | None = None) -> tuple[Tensor, Tensor, int]:
        """Some rows, what is known of them, and the number of edges that were read."""
        around, edges = self._around(ids)
        rows, seen = self.fn(around, padding)
        return rows, seen, edges

    def _largest(self) -> Tensor:
        """The largest of what is known of all rows, float64 `[sorts, 4]`; NaN if one is."""
        seen = self.seen.tensor[: self.context.num_nodes]
        most = seen.amax(0) if len(seen) else seen.new_zeros(seen.shape[1])
        return most.view(-1, SEEN).cpu()

    def _again(self, touched: Tensor, before: Tensor) -> Tensor:
        """The rows that have to be computed with their padding, int64 `[k]`."""
        now, everyone = self._most, self.context.all_nodes.tensor
        longer = not torch.equal(before[:, COUNT], now[:, COUNT])
        spoilt = bool(_spoils(now).any())
        if not _same(_taken_for_messages(before), _taken_for_messages(now)) or (spoilt and longer):
            return everyone
        return self._showing(everyone if longer else touched)

    def _showing(self, ids: Tensor) -> Tensor:
        """Those of some rows that show their padding."""
        if bool(_spoils(self._most).any()):
            return ids
        if not bool(self._most[:, SHOWS].any()):
            return ids[:0]
        seen = self.seen.tensor[ids.to(self.seen.tensor.device)].view(len(ids), -1, SEEN)
        return ids[seen[..., SHOWS].any(1).cpu()]

    def _padded(self, ids: Tensor) -> tuple[Tensor, int]:
        """Rows with their padding, and the number of edges that were read."""
        padding = torch.stack([self._most[:, COUNT], -self._most[:, LOW]], 1)
        size = max(1, ROOM // max(1, int(padding[:, 0].max())))
        parts = [self._compute(self.context.backend.ids(s), padding) for s in ids.split(size)]
        return torch.cat([rows for rows, _, _ in parts]), sum(edges for _, _, edges in parts)


def _spoils(most: Tensor) -> Tensor:
    """For each sort whether its padding is taken for messages, bool `[sorts]`."""
    return (most[:, COUNT] > 0) & ~(most[:, FILL] > most[:, LOW])


def _taken_for_messages(most: Tensor) -> Tensor:
    """The smallest message where it spoils the padding, else infinity, `[sorts]`."""
    return torch.where(_spoils(most), most[:, LOW], torch.inf)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())

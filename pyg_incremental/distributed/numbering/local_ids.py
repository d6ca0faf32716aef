"""The small ids under which a rank knows the nodes it owns, and ghosts of others.

Own nodes have the ids `0, 1, ...`; ghosts begin behind a gap that is kept for new nodes. Both are
nodes of one numbering, so a self-loop is an edge between equal ids. Where the gap is used up, own
ids go on behind the last ghost, with a new gap behind them: the ids between are holes, rows that
belong to nobody. A rank without nodes has one hole, because models may fail on no rows at all.
"""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.numbering.ids import Grown, IdTable

Ids = NDArray[np.int64]


def _gap(count: int) -> int:
    """How much room to leave for new nodes."""
    return count // 4 + 32


class Own:
    """The nodes of one kind that a rank owns.

    Args:
        ids: Their global ids, ascending, int64 `[n]`.

    Attributes:
        limit: Ids from here on are not free for new nodes.
        count: How many nodes there are.
    """

    def __init__(self, ids: Ids) -> None:
        self._table = IdTable()
        self._table.put(ids, np.arange(ids.size))
        self._globals = Grown(ids.astype(np.int64), -1)
        self._globals.grow(1)
        self.limit = self.end + _gap(self.end)
        self.count = ids.size

    @property
    def end(self) -> int:
        """Ids in use lie below; the engine's number of nodes."""
        return self._globals.size

    @property
    def globals(self) -> Ids:
        """The global id of each local one, int64 `[end]`; -1 for a hole."""
        return self._globals.array

    @property
    def has_holes(self) -> bool:
        """Whether some ids belong to nobody."""
        return self.count < self.end

    def real(self) -> Ids:
        """The local ids of nodes, ascending; all but holes."""
        return np.flatnonzero(self.globals >= 0)

    def at_ids(self, rows: Tensor) -> Tensor:
        """Rows of all nodes, `[n, ...]`, as rows of all ids, where there was no node yet."""
        if rows.shape[0] == self.end:
            return rows
        return torch.cat([rows, rows.new_zeros((self.end - rows.shape[0], *rows.shape[1:]))])

    def find(self, ids: Ids) -> Ids:
        """The local ids of some nodes, int64 `[k]`; -1 for those of other ranks."""
        return self._table.find(ids)

    def add(self, ids: Ids, first: int) -> None:
        """Take new nodes, int64 `[k]`, whose local ids follow each other from `first`."""
        local = np.arange(first, first + ids.size)
        self._globals.put(local, ids)
        self._table.put(ids, local)
        self.count += ids.size
        if first + ids.size > self.limit:
            self.limit = self.limit_after(first + ids.size)

    def put(self, ids: Ids, first: int) -> None:
        """Note the ids, int64 `[k]`, that `add` may have entered or not, to read them."""
        self._globals.put(np.arange(first, first + ids.size), ids)
        self.count = self.real().size

    def limit_after(self, end: int) -> int:
        """Where the gap ends if new nodes go on to `end`, beyond the gap that there is."""
        return end + _gap(end)


class Ghosts:
    """The nodes of other ranks at which edges of one graph start that lead to nodes of this one.

    Or, of a graph of out-edges, to which they lead.

    Args:
        own: The nodes of the same kind that this rank owns.

    Attributes:
        room: Ids below are those of far nodes to the engine, whether they are in use or not. So new
            ghosts are seldom new nodes to it.
    """

    def __init__(self, own: Own) -> None:
        self._table = IdTable()
        self._globals = Grown(np.full(own.limit, -1, np.int64), -1)
        self._free: list[int] = []
        self.room = self.end

    @property
    def end(self) -> int:
        """Ids in use lie below."""
        return self._globals.size

    @property
    def count(self) -> int:
        """Number of ghosts."""
        return int((self._globals.array >= 0).sum())

    def globals(self, local: Ids) -> Ids:
        """The global ids of some ghosts, int64 `[k]`."""
        found: Ids = self._globals.array[local]
        return found

    def is_ghost(self, local: Ids) -> NDArray[np.bool_]:
        """Which of some local ids, int64 `[k]`, are those of ghosts."""
        mask: NDArray[np.bool_] = self._globals.array[local] >= 0
        return mask

    def find(self, ids: Ids, found: Ids | None = None) -> Ids:
        """The local ids of some nodes, int64 `[k]`, if not `found` elsewhere; -1 for others."""
        return self._table.find(ids, found)

    def offer(self, count: int, limit: int) -> Ids:
        """Local ids that new ghosts may have, int64 `[count]`; nothing changes.

        Args:
            count: How many.
            limit: Ids from here on are not those of own nodes, nor of nodes that come now.
        """
        again = self._free[-count:] if count else []
        first = max(self.end, limit)
        fresh = np.arange(first, first + count - len(again))
        return np.concatenate([np.array(again, np.int64), fresh])

    def take(self, ids: Ids, local: Ids, offered: Ids, limit: int) -> None:
        """Enter ghosts under some of the ids that `offer` gave; the others are free then.

        Args:
            ids: Their global ids, int64 `[k]`.
            local: Their ids here, int64 `[k]`.
            offered: What `offer` gave.
            limit: What `offer` was given.
        """
        again = int((offered < self.end).sum())
        if again:
            del self._free[-again:]
        self._globals.grow(max(limit, int(offered.max()) + 1 if offered.size else 0))
        self._globals.put(local, ids)
        self._free += np.setdiff1d(offered, local).tolist()
        self._table.put(ids, local)
        if self.end > self.room:
            self.room = self.end + self.end // 16 + 32

    def put(self, ids: Ids, local: Ids) -> None:
        """Note ids of ghosts, int64 `[k]`, that `take` may have entered or not, to read them."""
        self._globals.put(local, ids)

    def leave(self, local: Ids) -> None:
        """Let go of ghosts, int64 `[k]`, that no edge needs any more; their ids are used again."""
        self._table.drop(self.globals(local))
        self._globals.put(local, np.full(local.size, -1, np.int64))
        self._free += local.tolist()


class NearIds:
    """The local ids of own nodes of one kind, and those that a delta brings; nothing changes yet.

    Args:
        own: The nodes that this rank owns.
        new: Global ids of new ones, ascending, int64 `[k]`.
        ends: Where the ids end under which ghosts of this kind are known.

    Attributes:
        new: The new nodes.
        first: The local id of the first of them.
        end: Ids in use lie below.
        limit: Where the gap behind them ends.
    """

    def __init__(self, own: Own, new: Ids, ends: Iterable[int]) -> None:
        self._own, self.new = own, new
        self.first, self.limit = own.end, own.limit
        if own.end + new.size > own.limit:
            self.first = max([own.end, *ends])
            self.limit = own.limit_after(self.first + new.size)
        self.end = self.first + new.size if new.size else own.end

    def find(self, ids: Ids) -> Ids:
        """The local ids of some nodes, int64 `[k]`; -1 for those of other ranks."""
        local = self._own.find(ids)
        if self.new.size:
            at = np.searchsorted(self.new, ids).clip(max=self.new.size - 1)
            local = np.where(self.new[at] == ids, self.first + at, local)
        return local

    def globals(self, local: Ids) -> Ids:
        """The global ids of some nodes, int64 `[k]`; -1 for ids that are none of theirs."""
        ids = np.full(local.size, -1, np.int64)
        old = local < self._own.end
        ids[old] = self._own.globals[local[old]]
        if self.new.size:
            come = (local >= self.first) & (local < self.end)
            ids[come] = self.new[local[come] - self.first]
        return ids


class FarIds:
    """The local ids of the far nodes of a graph, and of ghosts that a delta brings.

    Args:
        near: The own nodes among them.
        ghosts: The others.
        named: Far ends of edges that come, global ids, int64 `[k]`.

    Attributes:
        named: Their local ids.
        new: Nodes that are no ghosts yet, global ids, ascending.
        offered: The local ids that they may have.
        end: Ids in use lie below.
    """

    def __init__(self, near: NearIds, ghosts: Ghosts, named: Ids) -> None:
        self._near, self._ghosts = near, ghosts
        self.named = self._known(named)
        lost = np.flatnonzero(self.named < 0)
        self.new, which = np.unique(named[lost], return_inverse=True)
        self.offered = ghosts.offer(self.new.size, near.limit)
        self.named[lost] = self.offered[which]
        self.end = max([ghosts.end, near.limit, *(self.offered[-1:] + 1).tolist()])

    def find(self, ids: Ids) -> Ids:
        """The local ids of some nodes, int64 `[k]`; -1 for those that are not known here."""
        local = self._known(ids)
        if self.new.size:
            at = np.searchsorted(self.new, ids).clip(max=self.new.size - 1)
            local = np.where((local < 0) & (self.new[at] == ids), self.offered[at], local)
        return local

    def _known(self, ids: Ids) -> Ids:
        """The same without new ghosts."""
        return self._ghosts.find(ids, self._near.find(ids))

    def globals(self, local: Ids) -> Ids:
        """The global ids of some nodes, int64 `[k]`."""
        ids = self._near.globals(local)
        lost = np.flatnonzero(ids < 0)
        lost = lost[local[lost] < self._ghosts.end]
        ids[lost] = self._ghosts.globals(local[lost])
        come = np.flatnonzero(ids < 0)
        order = np.argsort(self.offered)
        ids[come] = self.new[order][np.searchsorted(self.offered[order], local[come])]
        return ids

"""The small ids under which a rank knows the nodes it owns, and ghosts of others.

Own nodes have the ids `0, 1, ...`; ghosts begin behind a gap that is kept for new nodes. Both are
nodes of one numbering, so a self-loop is an edge between equal ids. Where the gap is used up, own
ids go on behind the last ghost, with a new gap behind them: the ids between are holes, rows that
belong to nobody.
"""

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.distributed.ids import Grown, IdTable

Ids = NDArray[np.int64]


def _gap(count: int) -> int:
    """How much room to leave for new nodes."""
    return count // 4 + 32


class Own:
    """The nodes that a rank owns.

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
        self.limit = ids.size + _gap(ids.size)
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

    def find(self, ids: Ids) -> Ids:
        """The local ids of some nodes; -1 for those of other ranks."""
        return self._table.find(ids)

    def add(self, ids: Ids, first: int) -> None:
        """Take new nodes, whose local ids follow each other from `first`."""
        local = np.arange(first, first + ids.size)
        self._globals.put(local, ids)
        self._table.put(ids, local)
        self.count += ids.size
        if first + ids.size > self.limit:
            self.limit = self.limit_after(first + ids.size)

    def limit_after(self, end: int) -> int:
        """Where the gap ends if new nodes go on to `end`, beyond the gap that there is."""
        return end + _gap(end)


class Ghosts:
    """The nodes of other ranks at which edges start (or end) that lead to nodes of this one.

    Args:
        own: The nodes that this rank owns.

    Attributes:
        end: Ids in use lie below.
    """

    def __init__(self, own: Own) -> None:
        self._table = IdTable()
        self._globals = Grown(np.full(own.limit, -1, np.int64), -1)
        self._free: list[int] = []

    @property
    def end(self) -> int:
        """Ids in use lie below; the engine's number of nodes at the far end."""
        return self._globals.size

    @property
    def count(self) -> int:
        """Number of ghosts."""
        return int((self._globals.array >= 0).sum())

    def globals(self, local: Ids) -> Ids:
        """The global ids of some ghosts."""
        found: Ids = self._globals.array[local]
        return found

    def is_ghost(self, local: Ids) -> NDArray[np.bool_]:
        """Which of some local ids are those of ghosts."""
        mask: NDArray[np.bool_] = self._globals.array[local] >= 0
        return mask

    def find(self, ids: Ids) -> Ids:
        """The local ids of some nodes; -1 for those that are no ghosts here."""
        return self._table.find(ids)

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

    def leave(self, local: Ids) -> None:
        """Let go of ghosts that no edge needs any more; their ids are used again."""
        self._table.drop(self.globals(local))
        self._globals.put(local, np.full(local.size, -1, np.int64))
        self._free += local.tolist()

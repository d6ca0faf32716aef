"""What has come from another rank, looked at before anything is done with it.

Ranks run one program and trust each other's intentions; this is for what was garbled, or comes from
another version. Compiled code looks at no bounds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.read.reader import DeltaReader
from pyg_incremental.distributed.boundary.rewrite import Direction
from pyg_incremental.distributed.delta.parcel import Absent, EdgeParcel, Parcel
from pyg_incremental.distributed.errors import RankFailedError
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.program.steps import Relation
from pyg_incremental.typing import MAX_NODES

Ids = NDArray[np.int64]


class Arrived:
    """Looks at what one rank has sent.

    Args:
        rank: That rank.
        total: Ids of each kind of nodes lie below, those of new nodes included.
    """

    def __init__(self, rank: int, total: Mapping[str, int]) -> None:
        self.rank, self.total = rank, total

    def refuse(self, what: str) -> RankFailedError:
        """An error to raise."""
        return RankFailedError(
            f"rank {self.rank} has sent {what}; all ranks have to run the same version of this "
            "package. Restart them and load the last save"
        )

    def ids(self, ids: Any, limit: int, what: str, dims: int = 1) -> int:
        """See that something is int64 ids below a limit, `[k]` or `[2, k]`; returns how many."""
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != dims:
            raise self.refuse(f"no ids for {what}")
        flat = ids.reshape(-1)
        at = out_of_range(flat, limit)
        if at >= 0:
            raise self.refuse(f"id {flat[at]} for {what}, but ids lie in [0, {limit})")
        return int(ids.shape[-1])

    def pairs(self, pairs: Any, ends: tuple[int, int], what: str) -> int:
        """See that something is edges, int64 `[2, k]`; returns how many."""
        count = self.ids(pairs, max(ends), what, 2)
        if pairs.shape[0] != 2:
            raise self.refuse(f"no pairs for {what}")
        if ends[0] != ends[1]:
            for ids, limit in zip(pairs, ends, strict=True):
                self.ids(ids, limit, what)
        return count

    def rows(self, rows: Any, like: Tensor, count: int, what: str) -> None:
        """See that something is so many rows of a kind, `[count, ...]` as those of `like`."""
        if (
            not isinstance(rows, Tensor)
            or rows.dtype is not like.dtype
            or rows.shape != (count, *like.shape[1:])
        ):
            raise self.refuse(f"no {count} rows of '{what}'")

    # Deltas --------------------------------------------------------------------------------------

    def parcel(self, parcel: Any, reader: DeltaReader, relations: Mapping[str, Relation]) -> None:
        """See that a parcel can be opened.

        Args:
            parcel: What has come.
            reader: Knows the rows of nodes and edges.
            relations: The graphs.
        """
        if not isinstance(parcel, Parcel):
            raise self.refuse(f"a {type(parcel).__name__} in the place of a parcel")
        like = {n: t for kind in reader.nodes.values() for n, t in kind.like.items()}
        kinds = {n: k for k, nodes in reader.nodes.items() for n in nodes.like}
        for name in {*parcel.new_rows, *parcel.rows} - kinds.keys():
            raise self.refuse(f"rows of '{name}', which is no input of nodes")
        for kind in {*parcel.new, *parcel.removed} - self.total.keys():
            raise self.refuse(f"nodes of '{kind}', which is no kind of nodes")
        new = {k: self.ids(ids, self.total[k], "new nodes") for k, ids in parcel.new.items()}
        for name, rows in parcel.new_rows.items():
            self.rows(rows, like[name], new.get(kinds[name], 0), name)
        for name, (ids, rows) in parcel.rows.items():
            count = self.ids(ids, self.total[kinds[name]], f"'{name}'")
            self.rows(rows, like[name], count, name)
        for kind, ids in parcel.removed.items():
            self.ids(ids, self.total[kind], "removed nodes")
        for d, edges in parcel.edges.items():
            self._edges(d, edges, reader, relations)

    def _edges(
        self,
        d: Direction,
        parcel: EdgeParcel,
        reader: DeltaReader,
        relations: Mapping[str, Relation],
    ) -> None:
        relation = relations.get(d[0])
        if relation is None or not isinstance(parcel, EdgeParcel):
            raise self.refuse(f"edges of '{d[0]}', which is no graph")
        ends = self.total[relation.source], self.total[relation.target]
        given, like = parcel.given, reader.edges[d[0]].like
        deleted = self.pairs(given.deleted, ends, "deleted edges")
        added = self.pairs(given.added, ends, "added edges")
        changed = self.pairs(given.changed, ends, "changed edges")
        for data, count in ((given.added_data, added), (given.changed_data, changed)):
            for name, rows in data.items():
                if name not in like:
                    raise self.refuse(f"data '{name}' of edges, which have none of that name")
                self.rows(rows, like[name], count, name)
        for places, count in ((parcel.deleted_at, deleted), (parcel.changed_at, changed)):
            if self.ids(places, MAX_NODES, "places of edges") != count:
                raise self.refuse(f"{len(places)} places of {count} edges")

    # Boundaries ----------------------------------------------------------------------------------

    def asked(self, received: Any, kinds: Mapping[Direction, str]) -> None:
        """See that what `Region.tell` brings can be served.

        Args:
            received: For each direction ids here, ids there, and ids that are not needed any more;
                and a note.
            kinds: The kind of the far nodes in each direction.
        """
        asked, note = received
        for d, (ids, there, left) in asked.items():
            if d not in kinds:
                raise self.refuse(f"wishes for {d}, which is no boundary")
            count = self.ids(ids, self.total[kinds[d]], "rows that it needs")
            if self.ids(there, MAX_NODES, "its ghosts") != count:
                raise self.refuse(f"{len(there)} ids for {count} rows that it needs")
            self.ids(left, self.total[kinds[d]], "rows that it needs no more")
        if not isinstance(note, list) or not all(isinstance(n, Absent) for n in note):
            raise self.refuse("a note that cannot be read")

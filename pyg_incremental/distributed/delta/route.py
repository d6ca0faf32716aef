"""A delta in global ids, agreed upon by all ranks and taken apart: who has to be told what.

Any rank may hand in a delta, or a part of one; the parts count as one delta, in the order of the
ranks. They are read like the delta of a single process (see `pyg_incremental.delta.read`); whether
an edge is there at all, only its owner can tell.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.read.edges import GivenEdges
from pyg_incremental.delta.read.reader import Arrivals, DeltaReader, GivenDelta
from pyg_incremental.distributed.boundary.rewrite import Direction
from pyg_incremental.distributed.delta.arrived import Arrived
from pyg_incremental.distributed.delta.parcel import EdgeParcel, Parcel
from pyg_incremental.distributed.errors import on_all_ranks
from pyg_incremental.distributed.numbering.owners import Owners, Ranks, by_rank, load_of
from pyg_incremental.distributed.placement.place import GlobalNumbers, place_new
from pyg_incremental.distributed.wire.rounds import Rounds, raise_first
from pyg_incremental.encoding.framing import record
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.program.steps import Relation

Ids = NDArray[np.int64]
_NOTHING = Arrivals({}, {})
_NONE = np.empty(0, np.int64)


@record
class _Head(NamedTuple):
    """What a rank says of its part before anything else.

    Attributes:
        counts: How many new nodes of each kind bring their rows.
        named: For each kind whose nodes come with edges one more than the largest id named.
        missing: What to do about edges that are not there; None if there is no part.
        delta_id: How the caller calls the delta, or None.
        is_all: Whether nothing is left to say but the parcel that comes with it.
    """

    counts: dict[str, int]
    named: dict[str, int]
    missing: str | None
    delta_id: str | int | None
    is_all: bool


@record
class _Opening(NamedTuple):
    """What a rank is told first by another.

    Attributes:
        head: What all are told.
        parcel: What concerns this one, unless there are new nodes, which have to be counted first.
    """

    head: _Head
    parcel: Parcel | None


@dataclass
class Routed:
    """What a rank knows of a delta once all have told what concerns the others.

    Attributes:
        parcels: What each rank has told this one.
        new: The owners of the new nodes of each kind of which there are any, of all parts.
        missing: What to do about edges that are not there.
        delta_id: How the caller calls the delta, or None.
    """

    parcels: list[Parcel | None]
    new: dict[str, Ranks]
    missing: str
    delta_id: str | int | None = None


class Router:
    """Reads parts of deltas and takes them apart.

    Args:
        reader: Reads what they say.
        relations: The graphs.
        directions: The local graphs that ranks hold.
        owners: Who owns the nodes of each kind.
        rounds: The conversation with the other ranks.
    """

    def __init__(
        self,
        reader: DeltaReader,
        relations: Iterable[Relation],
        directions: Iterable[Direction],
        owners: Mapping[str, Owners],
        rounds: Rounds,
    ) -> None:
        self._reader, self._owners, self._rounds = reader, owners, rounds
        self._relations = {r.graph: r for r in relations}
        self._directions = list(directions)
        self._names = GlobalNumbers(owners)

    def route(
        self,
        delta: GraphDelta | Exception | None,
        wanted: bool,
        delta_id: str | int | None = None,
        known: Container[str | int] = (),
    ) -> Routed | None:
        """Agree on the parts, place new nodes, and hand every rank what concerns it; a collective.

        Args:
            delta: The part of this rank; or why there is none, which all ranks then raise.
            wanted: Whether this rank has something to do in any case.
            delta_id: How the caller calls the delta on this rank, or None.
            known: Ids of deltas that are in, the same on all ranks.

        Returns:
            What this rank has to do, which is nothing if the delta is known; None if no rank has
            anything to do.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit.
        """
        openings, arrivals = self._openings(delta, wanted, delta_id)
        received = self._rounds.swap(openings)
        raise_first(received)
        if all(t is None for t in received):
            return None
        heads = [self._head(rank, t) for rank, t in enumerate(received)]
        modes = {h.missing for h in heads if h is not None and h.missing is not None}
        names = {h.delta_id for h in heads if h is not None and h.delta_id is not None}
        for what, named in (("missing", modes), ("delta_id", names)):
            if len(named) > 1:
                raise on_all_ranks(
                    InvalidDeltaError(f"{what}: the ranks differ (got {sorted(map(repr, named))})")
                )
        name = next(iter(names), None)
        if not modes or (name is not None and name in known):
            return Routed([], {}, "error", name)
        if all(h is None or h.is_all for h in heads):
            held = [None if t is None else t.parcel for t in received]
            return Routed(self._opened(held, {}), {}, modes.pop(), name)
        spans = {kind: self._spans(kind, heads) for kind in self._owners}
        mine = {kind: ids[self._rounds.rank] for kind, ids in spans.items()}
        total = {
            kind: self._owners[kind].num_nodes + sum(map(len, ids)) for kind, ids in spans.items()
        }
        given: GivenDelta | None = None
        failure: Exception | None = None
        if isinstance(delta, GraphDelta):
            try:
                given = self._reader.read(delta, arrivals, total)
            except Exception as error:
                failure = error
        new: dict[str, Ranks] = {}
        if any(total[kind] > owners.num_nodes for kind, owners in self._owners.items()):
            here = None if given is None else self._placed(given, mine)
            placed = self._rounds.everywhere(failure if failure is not None else here)
            raise_first(placed)
            for kind in {kind: None for p in placed if p is not None for kind in p}:
                new[kind] = np.concatenate([p[kind] for p in placed if p and kind in p])
        parcels: list[Parcel | Exception | None] = [failure] * self._rounds.size
        if given is not None:
            parcels = list(self._parcels(given, mine, new))
        got = self._rounds.swap(parcels)
        raise_first(got)
        return Routed(self._opened(got, new), new, modes.pop(), name)

    def _head(self, rank: int, received: Any) -> _Head | None:
        """What a rank has said of its part; see that it is that."""
        if received is None or isinstance(received, _Opening):
            return None if received is None else received.head
        raise Arrived(rank, {}).refuse(f"a {type(received).__name__} in the place of a delta")

    def _opened(
        self, parcels: list[Parcel | None], new: Mapping[str, Ranks]
    ) -> list[Parcel | None]:
        """The parcels of all ranks; see that those of others can be opened."""
        total = {k: owners.num_nodes + len(new.get(k, ())) for k, owners in self._owners.items()}
        for rank, parcel in enumerate(parcels):
            if parcel is not None and rank != self._rounds.rank:
                Arrived(rank, total).parcel(parcel, self._reader, self._relations)
        return parcels

    def _openings(
        self, delta: GraphDelta | Exception | None, wanted: bool, delta_id: str | int | None
    ) -> tuple[list[_Opening | Exception | None], Arrivals]:
        """What this rank tells each rank first, and the new nodes of its part."""
        size = self._rounds.size
        if isinstance(delta, Exception):
            return [delta] * size, _NOTHING
        if delta is None:
            wanted = wanted or delta_id is not None
            given = _Opening(_Head({}, {}, None, delta_id, True), None) if wanted else None
            return [given] * size, _NOTHING
        try:
            arrivals = self._reader.arrivals(delta)
            counts = {kind: len(next(iter(r.values()))) for kind, r in arrivals.rows.items()}
        except Exception as error:
            return [error] * size, _NOTHING
        parcels = self._parcels_of_known(delta, arrivals)
        head = _Head(counts, arrivals.named, delta.missing, delta_id, parcels is not None)
        return [_Opening(head, p) for p in parcels or [None] * size], arrivals

    def _parcels_of_known(
        self, delta: GraphDelta, arrivals: Arrivals
    ) -> list[Parcel | None] | None:
        """What each rank is to be told of a part that names no new nodes; None if it may."""
        total = {kind: owners.num_nodes for kind, owners in self._owners.items()}
        if arrivals.rows or any(end > total[kind] for kind, end in arrivals.named.items()):
            return None
        try:
            given = self._reader.read(delta, arrivals, total)
        except Exception:  # it is read again: another rank may bring the nodes that it names
            return None
        return self._parcels(given, dict.fromkeys(total, range(0)), {})

    def _spans(self, kind: str, heads: list[_Head | None]) -> list[range]:
        """The ids of the new nodes of one kind that each rank brings, in the order of the ranks."""
        end = self._owners[kind].num_nodes
        spans = []
        for head in heads:
            more = 0
            if head is not None:
                more = head.counts.get(kind, 0) or max(0, head.named.get(kind, 0) - end)
            spans.append(range(end, end + more))
            end += more
        return spans

    def _placed(self, given: GivenDelta, mine: Mapping[str, range]) -> dict[str, Ranks] | None:
        """The owners of the new nodes that this rank brings, next to those their edges name."""
        coming = {kind: np.arange(ids.start, ids.stop) for kind, ids in mine.items() if len(ids)}
        if not coming:
            return None
        names = self._names
        nodes = np.concatenate([names.of(kind, ids) for kind, ids in coming.items()])
        edges = [
            np.stack([names.of(r.source, e.added[0]), names.of(r.target, e.added[1])])
            for r in self._relations.values()
            if (e := given.edges.get(r.graph)) is not None
        ]
        every = np.concatenate([np.empty((2, 0), np.int64), *edges], 1)
        ranks = place_new(nodes, every, names.owners, load_of(self._owners))
        ends = np.cumsum([ids.size for ids in coming.values()])[:-1]
        return dict(zip(coming, np.split(ranks, ends), strict=True))

    def _parcels(
        self, given: GivenDelta, mine: Mapping[str, range], new: Mapping[str, Ranks]
    ) -> list[Parcel | None]:
        """What each rank is to be told."""
        size = self._rounds.size
        found = [Parcel({}, {}, {}, {}) for _ in range(size)]
        says = [False] * size

        def parts(kind: str, ids: Ids) -> Iterable[tuple[int, Ids]]:
            """The places of some nodes, for each rank that owns any of them."""
            return by_rank(self._owners[kind].with_new(new.get(kind), ids), size).items()

        for kind, span in mine.items():
            ids = np.arange(span.start, span.stop)
            rows = given.nodes[kind].new if kind in given.nodes else {}
            for rank, at in parts(kind, ids):
                found[rank].new[kind] = ids[at]
                found[rank].new_rows |= {name: _taken(t, at) for name, t in rows.items()}
                says[rank] = True
        for kind, nodes in given.nodes.items():
            for name, (ids, values) in nodes.changed.items():
                for rank, at in parts(kind, ids):
                    found[rank].rows[name] = ids[at], _taken(values, at)
                    says[rank] = True
            if nodes.removed.size:
                for parcel in found:
                    parcel.removed[kind] = nodes.removed
                says = [True] * size
        listed = {g: (e.deleted.shape[1], e.changed.shape[1]) for g, e in given.edges.items()}
        for d in self._directions:
            if d[0] in given.edges:
                for rank, part in self._edge_parcels(d, given.edges[d[0]], new).items():
                    found[rank].edges[d] = part
                    says[rank] = True
        for parcel in found:
            parcel.listed = listed
        return [parcel if own else None for parcel, own in zip(found, says, strict=True)]

    def _edge_parcels(
        self, d: Direction, given: GivenEdges, new: Mapping[str, Ranks]
    ) -> dict[int, EdgeParcel]:
        """What is said of the edges of one graph, for each rank that holds any of them."""
        graph, out = d
        relation, end = self._relations[graph], 0 if out else 1
        kind = relation.source if out else relation.target
        owners, ranks = self._owners[kind], new.get(kind)
        gone, come, other = (
            by_rank(owners.with_new(ranks, edges[end]), self._rounds.size)
            for edges in (given.deleted, given.added, given.changed)
        )
        found = {}
        for rank in {**gone, **come, **other}:
            leave, enter, change = (at.get(rank, _NONE) for at in (gone, come, other))
            part = GivenEdges(
                given.deleted.take(leave, 1),
                given.added.take(enter, 1),
                {k: _taken(v, enter) for k, v in given.added_data.items()},
                given.changed.take(change, 1),
                {k: _taken(v, change) for k, v in given.changed_data.items()},
            )  # fmt: skip
            found[rank] = EdgeParcel(part, leave, change)
        return found


def _taken(rows: Tensor, at: Ids) -> Tensor:
    return rows.index_select(0, torch.from_numpy(at).to(rows.device))


def says_anything(delta: GraphDelta) -> bool:
    """Whether any field of a delta is given."""
    return any(
        getattr(delta, f.name) is not None
        for f in fields(delta)
        if f.name not in ("undirected", "missing", "which", "invalid")
    ) or delta.missing not in ("error", "ignore")

"""What ranks tell each other of a delta, in global ids."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.delta.read.edges import GivenEdges
from pyg_incremental.delta.resolve.edges import absent_text
from pyg_incremental.distributed.boundary.rewrite import Direction
from pyg_incremental.distributed.errors import on_all_ranks
from pyg_incremental.encoding.framing import record
from pyg_incremental.errors import InvalidDeltaError

Ids = NDArray[np.int64]


@record
@dataclass
class EdgeParcel:
    """What a rank is told of the edges of one of its graphs.

    Attributes:
        given: What is said of them.
        deleted_at: The places of the deleted edges in the list that was given.
        changed_at: Likewise of those that get new data.
    """

    given: GivenEdges
    deleted_at: Ids
    changed_at: Ids


@record
@dataclass
class Parcel:
    """What one rank is told by another of a delta.

    Attributes:
        new: For each kind the new nodes that it owns.
        new_rows: Their rows of each node input.
        rows: For each node input ids of nodes that it owns and their new rows.
        removed: All nodes that are removed, by kind, whoever owns them.
        edges: What happens to the edges of each of its graphs.
        listed: How many edges of each graph were listed to be deleted and changed, by all of it.
    """

    new: dict[str, Ids]
    new_rows: dict[str, Tensor]
    rows: dict[str, tuple[Ids, Tensor]]
    removed: dict[str, Ids]
    edges: dict[Direction, EdgeParcel] = field(default_factory=dict)
    listed: dict[str, tuple[int, int]] = field(default_factory=dict)


@record
@dataclass(frozen=True)
class Absent:
    """Edges that a delta names and that are not there.

    Attributes:
        field: The field of the delta.
        place: The place of the first of them in the list.
        pair: Its ends.
        count: How many.
        listed: How many edges were listed.
    """

    field: str
    place: int
    pair: tuple[int, int]
    count: int
    listed: int


def absent_everywhere(found: list[Absent]) -> InvalidDeltaError:
    """What to say of edges that are not there, put together from all ranks."""
    field = min((a.field for a in found), key=lambda f: (not f.startswith("edge_index_del"), f))
    same = [a for a in found if a.field == field]
    first = min(same, key=lambda a: a.place)
    count = sum(a.count for a in same)
    said = absent_text(field, first.pair, first.place, count, first.listed)
    return on_all_ranks(InvalidDeltaError(said))

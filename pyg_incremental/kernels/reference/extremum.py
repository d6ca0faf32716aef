"""Largest or smallest messages over in-edges; see `kernels.compiled.extremum`.

Here the total order of messages is that of integers: bits read as a sign and a magnitude.

Of `n` rows `state` is `[n, channels]`, `owner` int32 `[n, channels]`, and `stamp` int64 `[n]`;
`rows` are distinct, int64 `[k]`, and `before` is `[k, channels]`. Listed edges have `at`, `dst` (or
`index`, the place in `rows`) and `slot`, int64 `[m]`; `message` is `[num_messages, channels]` and
`weight` one number for each slot, `[slots]`, or empty.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.compiled.extremum import EMPTY, EXPOSED

_LAST = torch.iinfo(torch.int64)
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _places(rows: Tensor, largest: bool) -> Tensor:
    """int64 numbers in the order of floats, the largest or smallest of which comes last."""
    bits = rows.view(_BITS[rows.element_size()])
    top = torch.iinfo(bits.dtype).max
    places = torch.where(bits < 0, bits ^ top, bits).long()
    return (places if largest else ~places).masked_fill(rows.isnan(), _LAST.max)


def _floats(places: Tensor, largest: bool, like: Tensor) -> Tensor:
    """The floats at some places."""
    is_nan = places == _LAST.max
    bits = (places if largest else ~places).to(_BITS[like.element_size()])
    bits = torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)
    return bits.view(like.dtype).masked_fill(is_nan, torch.nan)


def _best(
    message: Tensor,
    at: Tensor,
    weight: Tensor,
    slot: Tensor,
    index: Tensor,
    count: int,
    largest: bool,
) -> tuple[Tensor, Tensor]:
    """For each of `count` rows the place of its first message, and the lowest slot that has it.

    Where there is none, the slot is larger than any.
    """
    rows = message[at]
    if weight.numel():
        rows = rows * weight[slot].to(rows.device).view(-1, *[1] * (rows.dim() - 1))
    places = _places(rows, largest)
    index, slot = index.to(rows.device), slot.to(rows.device)[:, None]
    into = index[:, None].expand_as(places)
    best = places.new_full((count, rows.shape[1]), _LAST.min)
    best.scatter_reduce_(0, into, places, "amax")
    owners = torch.where(places == best[index], slot, _LAST.max)
    first = torch.full_like(best, _LAST.max).scatter_reduce_(0, into, owners, "amin")
    return best, first


def extremum_retract(owner: Tensor, dst: Tensor, slot: Tensor, stamp: Tensor, lost: int) -> None:
    """Expose what the listed edges own; arrays as above."""
    owned = owner[dst] == slot[:, None].to(owner.device)
    edge, channel = owned.nonzero(as_tuple=True)
    owner[dst.to(owner.device)[edge], channel] = EXPOSED
    stamp[dst[owned.any(1).cpu()]] = lost


def extremum_insert(
    state: Tensor,
    owner: Tensor,
    message: Tensor,
    at: Tensor,
    weight: Tensor,
    dst: Tensor,
    slot: Tensor,
    largest: bool,
) -> None:
    """Offer messages to their targets; arrays as above."""
    rows, index = dst.unique(return_inverse=True)
    best, first = _best(message, at, weight, slot, index, len(rows), largest)
    now, o = state[rows], owner[rows]
    place = _places(now, largest)
    takes = (o == EMPTY) | (best > place) | ((best == place) & ((o == EXPOSED) | (first < o)))
    state[rows] = torch.where(takes, _floats(best, largest, state), now)
    owner[rows] = torch.where(takes, first, o).to(owner.dtype)


def extremum_exposed(owner: Tensor, rows: Tensor, stamp: Tensor, lost: int, found: Tensor) -> int:
    """Those of some rows that have an exposed channel, to `found`, int64 `[k]`; as above."""
    rows = rows[stamp[rows] == lost]
    rows = rows[(owner[rows] == EXPOSED).any(1).cpu()]
    found[: len(rows)] = rows
    return len(rows)


def extremum_fill(
    state: Tensor,
    owner: Tensor,
    message: Tensor,
    at: Tensor,
    weight: Tensor,
    rows: Tensor,
    index: Tensor,
    slot: Tensor,
    largest: bool,
    stamp: Tensor,
    read: int,
    afresh: bool,
) -> tuple[int, int]:
    """Make exposed channels afresh; arrays as above."""
    best, first = _best(message, at, weight, slot, index, len(rows), largest)
    now, o = state[rows], owner[rows]
    exposed, none = (o == EXPOSED) | afresh, first == _LAST.max
    fresh = _floats(best, largest, state).masked_fill(none, 0)
    state[rows] = torch.where(exposed, fresh, now)
    owner[rows] = torch.where(exposed, first.masked_fill(none, EMPTY), o).to(owner.dtype)
    has_edge = torch.zeros(len(rows), dtype=torch.bool)
    has_edge[index] = True
    stamp[rows[has_edge]] = read
    return int(has_edge.sum()), int(exposed[has_edge.to(exposed.device)].sum())


def extremum_settle(
    now: Tensor,
    before: Tensor,
    rows: Tensor,
    first_new: int,
    stamp: Tensor,
    lost: int,
    read: int,
    changed: Tensor,
) -> tuple[int, int, int, int]:
    """Which touched rows differ from what they were, and of which kind they are; as above."""
    after, stamps = now[rows], stamp[rows]
    same = ((after == before) | ((after != after) & (before != before))).all(1).cpu()
    kept = stamps != read
    resilient = int((kept & same).sum())
    covered = int((kept & ~same & (stamps == lost)).sum())
    at = (~same | (rows >= first_new)).nonzero().flatten()
    changed[: len(at)] = rows[at]
    before[: len(at)] = before[at.to(before.device)]
    return len(at), resilient, int(kept.sum()) - resilient - covered, covered

"""Sums over in-edges: from the start, edge by edge, and by pushing what changed.

Of `n` rows `state` is `[n, channels]`, `drift` is `[n]`, `stamp` and `touched` are int64 `[n]`;
`message` is `[num_messages, channels]`, `scale` `[channels]`, `weight` one number for each slot,
`[slots]`, or empty. A row is `own + factor * sum`: `own` is `[n, channels]`, or `[1, channels]` for
all of them, `factor` `[n]`, and either may be empty. If `loop` is not empty but `[1]`, each row has
that weight in its own sum. `ids` are distinct, int64 `[k]`, and `old` what was sent from them
before, `[k, channels]`; `again` takes ids, int64. Listed edges have ends, int64 `[m]`, and
`weights`, `[m]` or empty. `low` is as large as `state` or empty; see `kernels.compiled.sums`.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.reference.rows import edges_of, unite

GROWS = 16
"""How much larger the factor of a row may become without that the row is summed afresh."""


def wide(rows: Tensor, like: Tensor) -> Tensor:
    """Rows, `[k, ...]`, in the dtype that sums like `like` are added in: float64 for float32."""
    return rows.to(torch.float64 if like.dtype == torch.float32 else like.dtype)


def joined(state: Tensor, low: Tensor, ids: Tensor) -> Tensor:
    """Rows `ids` of a sum, int64 `[k]`, in the dtype that they are added in: `[k, channels]`."""
    rows = wide(state[ids], state)
    return rows + low[ids] if low.numel() else rows


def split(rows: Tensor, state: Tensor, low: Tensor, ids: Tensor) -> None:
    """Write distinct rows `ids` of a sum, int64 `[k]`, and what they lose to `low`.

    They are `[k, channels]`. What is infinite loses nothing.
    """
    high = rows.to(state.dtype)
    state[ids] = high
    if low.numel():
        rest = rows - high
        low[ids] = rest.masked_fill(~rest.isfinite(), 0).to(low.dtype)


def add_to(state: Tensor, low: Tensor, ids: Tensor, terms: Tensor) -> None:
    """Add `terms`, `[m, channels]`, to rows of a sum, int64 `[m]`, some of them perhaps twice."""
    rows, place = ids.unique(return_inverse=True)
    place = place.to(terms.device)
    split(joined(state, low, rows).index_add_(0, place, terms), state, low, rows)


def sum_rows(
    ids: Tensor,
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    message: Tensor,
    weight: Tensor,
    own: Tensor,
    factor: Tensor,
    inn: Adjacency,
    drop: bool,
    loop: Tensor,
) -> int:
    """Sum some rows afresh; arrays as above."""
    index, source, slot = edges_of(ids, inn, drop)
    terms = wide(message[source], state)
    if weight.numel():
        terms = terms * weight[slot, None]
    fresh = terms.new_zeros(len(ids), state.shape[1])
    fresh.index_add_(0, index.to(state.device), terms)
    if loop.numel():
        fresh += wide(message[ids], state) * loop
    if factor.numel():
        fresh *= factor[ids, None]
    if own.numel():
        fresh += _of(own, ids)
    split(fresh, state, low, ids)
    drift[ids] = 0
    return int(inn.degree[ids].sum())


def _of(own: Tensor, ids: Tensor) -> Tensor:
    return own[ids] if len(own) > 1 else own.expand(len(ids), -1)


def sum_edges(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    scale: Tensor,
    message: Tensor,
    src: Tensor,
    dst: Tensor,
    weights: Tensor,
    factor: Tensor,
    sign: int,
    drop: bool,
    unit: float,
) -> None:
    """Add or subtract the messages of listed edges; arrays as above."""
    w = wide(weights if weights.numel() else state.new_ones(len(src)), state) * sign
    if factor.numel():
        w = w * factor[dst.to(factor.device)]
    if drop:
        keep = src != dst
        src, dst, w = src[keep], dst[keep], w[keep.to(w.device)]
    terms, dst = w[:, None] * wide(message[src], state), dst.to(state.device)
    add_to(state, low, dst, terms)
    drift.index_add_(0, dst, unit * (terms.abs() * scale).sum(1).to(drift.dtype))


def sum_renew(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    scale: Tensor,
    own: Tensor,
    own_ids: Tensor,
    own_old: Tensor,
    factor: Tensor,
    factor_ids: Tensor,
    factor_old: Tensor,
    first_new: int,
    num_nodes: int,
    first: int,
    last: int,
) -> None:
    """Take rows from the own rows and factors that they had to those that they have.

    Of the rows from `first` to before `last`; `own_ids` and `factor_ids` are where these changed,
    and `own_old`, `[k, channels]`, and `factor_old`, `[k, 1]`, what they were. Rows from
    `first_new` on are new, and will be summed afresh.
    """
    was_there = (own_ids >= first) & (own_ids < min(last, first_new))
    ids, place = own_ids[was_there], was_there.nonzero().flatten()
    if len(ids):
        by = wide(own[ids], state) - wide(own_old[place], state)
        add_to(state, low, ids, by)
        drift[ids] += (by.abs() * scale).sum(1).to(drift.dtype)
    was_there = (factor_ids >= first) & (factor_ids < min(last, first_new))
    ids, place = factor_ids[was_there], was_there.nonzero().flatten()
    if len(ids):
        rows = joined(state, low, ids)
        term = wide(_of(own, ids), state) if own.numel() else torch.zeros_like(rows)
        by = wide(factor[ids], state) / wide(factor_old[place, 0], state)
        size = ((rows.abs() + term.abs()) * scale).sum(1)
        drift[ids] = ((drift[ids] + size) * by.abs().clamp(min=1)).to(drift.dtype)
        drift[ids[~(by.abs() <= GROWS).cpu()]] = torch.inf
        split((rows - term) * by[:, None] + term, state, low, ids)
    drift[max(first, first_new) : min(last, num_nodes)] = torch.inf


def sum_settle(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    limit: float,
    scale: Tensor,
    inn: Adjacency,
    touched: Tensor,
    count: int,
    again: Tensor,
) -> int:
    """Make empty rows zero, and name those that have lost bits; arrays as above."""
    rows = touched[:count]
    empty = inn.degree[rows] == 0
    split(torch.zeros_like(state[rows[empty]]), state, low, rows[empty])
    drift[rows[empty]] = 0
    return _lost(state, drift, limit, scale, rows[~empty], again)


def _lost(
    state: Tensor, drift: Tensor, limit: float, scale: Tensor, rows: Tensor, again: Tensor
) -> int:
    """Name those of the `rows`, int64 `[k]`, that have lost bits."""
    rows = rows[(drift[rows] != 0).cpu()]
    size = (state[rows].abs() * scale).sum(1)
    drift[rows] += size
    sound = (drift[rows] / limit <= size) & (size < torch.inf)
    rows = rows[~sound.cpu()]
    again[: len(rows)] = rows
    return len(rows)


def sum_push(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    limit: float,
    scale: Tensor,
    message: Tensor,
    weight: Tensor,
    own: Tensor,
    factor: Tensor,
    ids: Tensor,
    old: Tensor,
    out: Adjacency,
    inn: Adjacency,
    drop: bool,
    loop: Tensor,
    touched: Tensor,
    count: int,
    stamp: Tensor,
    epoch: int,
) -> tuple[int, int, Tensor]:
    """Push changed messages along out-edges, and settle what they reach; arrays as above."""
    diff = wide(message[ids], state) - wide(old[: len(ids)], state)
    moving = (diff != 0).any(1).nonzero().flatten().cpu()
    ids, diff = ids[moving], diff[moving.to(diff.device)]
    edges = int(out.degree[ids].sum())
    index, target, slot = edges_of(ids, out, drop)
    w = wide(weight[slot], state) if weight.numel() else diff.new_ones(len(slot))
    at, index = target.to(state.device), index.to(state.device)
    if factor.numel():
        w = w * factor[at]
    add_to(state, low, at, w[:, None] * diff[index])
    moved = (diff.abs() * scale).sum(1)
    drift.index_add_(0, at, (w.abs() * moved[index]).to(drift.dtype))
    count = unite(target, touched, count, stamp, epoch)
    if loop.numel():
        w = wide(loop, state).expand(len(ids))
        w = w * factor[ids] if factor.numel() else w
        add_to(state, low, ids, w[:, None] * diff)
        drift[ids] += (w.abs() * moved).to(drift.dtype)
        count = unite(ids, touched, count, stamp, epoch)
    rows, again = touched[:count], torch.empty(count, dtype=torch.int64)
    if not loop.numel():
        empty = inn.degree[rows] == 0
        only = _of(own, rows[empty]) if own.numel() else torch.zeros_like(state[rows[empty]])
        split(wide(only, state), state, low, rows[empty])
        drift[rows[empty]] = 0
        rows = rows[~empty]
    fresh = _lost(state, drift, limit, scale, rows, again)
    return count, edges, again[:fresh]

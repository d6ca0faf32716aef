"""Sums over in-edges: from the start, edge by edge, and by pushing what changed.

Of `n` rows `state` is `[n, channels]`, `drift` is `[n]`, `stamp` and `touched` are int64 `[n]`;
`message` is `[num_messages, channels]`, `scale` `[channels]`, `weight` one number for each slot,
`[slots]`, or empty. A row is `own + factor * sum`: `own` is `[n, channels]`, or `[1, channels]` for
all of them, `factor` `[n]`, and either may be empty. If `loop` is not empty but `[1]`, each row has
that weight in its own sum. `ids` are distinct, int64 `[k]`, and `old` what was sent from them
before, `[k, channels]`; `again` takes ids, int64. Listed edges have ends, int64 `[m]`, and
`weights`, `[m]` or empty.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.reference.rows import edges_of, unite

GROWS = 16
"""How much larger the factor of a row may become without that the row is summed afresh."""


def sum_rows(
    ids: Tensor,
    state: Tensor,
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
    terms = message[source].to(state.dtype)
    if weight.numel():
        terms = terms * weight[slot, None]
    fresh = state.new_zeros(len(ids), state.shape[1])
    fresh.index_add_(0, index.to(state.device), terms)
    if loop.numel():
        fresh += message[ids].to(state.dtype) * loop
    if factor.numel():
        fresh *= factor[ids, None]
    if own.numel():
        fresh += _of(own, ids)
    state[ids] = fresh
    drift[ids] = 0
    return int(inn.degree[ids].sum())


def _of(own: Tensor, ids: Tensor) -> Tensor:
    return own[ids] if len(own) > 1 else own.expand(len(ids), -1)


def sum_edges(
    state: Tensor,
    drift: Tensor,
    scale: Tensor,
    message: Tensor,
    src: Tensor,
    dst: Tensor,
    weights: Tensor,
    factor: Tensor,
    sign: int,
    drop: bool,
) -> None:
    """Add or subtract the messages of listed edges; arrays as above."""
    w = (weights if weights.numel() else state.new_ones(len(src))).to(state.dtype) * sign
    if factor.numel():
        w = w * factor[dst.to(factor.device)]
    if drop:
        keep = src != dst
        src, dst, w = src[keep], dst[keep], w[keep.to(w.device)]
    terms = w[:, None] * message[src].to(state.dtype)
    dst = dst.to(state.device)
    state.index_add_(0, dst, terms)
    drift.index_add_(0, dst, w.abs() * (message[src].abs().to(state.dtype) * scale).sum(1))


def sum_renew(
    state: Tensor,
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
    low: int,
    high: int,
) -> None:
    """Take rows from the own rows and factors that they had to those that they have.

    Of the rows from `low` to before `high`; `own_ids` and `factor_ids` are where these changed, and
    `own_old`, `[k, channels]`, and `factor_old`, `[k, 1]`, what they were. Rows from `first_new` on
    are new, and will be summed afresh.
    """
    was_there = (own_ids >= low) & (own_ids < min(high, first_new))
    ids, place = own_ids[was_there], was_there.nonzero().flatten()
    if len(ids):
        by = own[ids].to(state.dtype) - own_old[place].to(state.dtype)
        state[ids] += by
        drift[ids] += (by.abs() * scale).sum(1)
    was_there = (factor_ids >= low) & (factor_ids < min(high, first_new))
    ids, place = factor_ids[was_there], was_there.nonzero().flatten()
    if len(ids):
        term = _of(own, ids).to(state.dtype) if own.numel() else torch.zeros_like(state[ids])
        by = (factor[ids] / factor_old[place, 0]).to(state.dtype)
        size = ((state[ids].abs() + term.abs()) * scale).sum(1)
        drift[ids] = (drift[ids] + size) * by.abs().clamp(min=1)
        drift[ids[~(by.abs() <= GROWS).cpu()]] = torch.inf
        state[ids] = (state[ids] - term) * by[:, None] + term
    drift[max(low, first_new) : min(high, num_nodes)] = torch.inf


def sum_settle(
    state: Tensor,
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
    state[rows[empty]] = 0
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
    diff = message[ids].to(state.dtype) - old[: len(ids)].to(state.dtype)
    moving = (diff != 0).any(1).nonzero().flatten().cpu()
    ids, diff = ids[moving], diff[moving.to(diff.device)]
    edges = int(out.degree[ids].sum())
    index, target, slot = edges_of(ids, out, drop)
    w = weight[slot].to(state.dtype) if weight.numel() else state.new_ones(len(slot))
    at, index = target.to(state.device), index.to(state.device)
    if factor.numel():
        w = w * factor[at]
    state.index_add_(0, at, w[:, None] * diff[index])
    drift.index_add_(0, at, w.abs() * (diff.abs() * scale).sum(1)[index])
    count = unite(target, touched, count, stamp, epoch)
    if loop.numel():
        w = loop * factor[ids] if factor.numel() else loop.expand(len(ids))
        state[ids] += w[:, None] * diff
        drift[ids] += w.abs() * (diff.abs() * scale).sum(1)
        count = unite(ids, touched, count, stamp, epoch)
    rows, again = touched[:count], torch.empty(count, dtype=torch.int64)
    if not loop.numel():
        empty = inn.degree[rows] == 0
        state[rows[empty]] = _of(own, rows[empty]).to(state.dtype) if own.numel() else 0
        drift[rows[empty]] = 0
        rows = rows[~empty]
    fresh = _lost(state, drift, limit, scale, rows, again)
    return count, edges, again[:fresh]

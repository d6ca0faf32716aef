"""Sums over in-edges: from the start, edge by edge, and by pushing what changed.

Of `n` rows `state` is `[n, channels]`, `drift` is `[n]`, `stamp` and `touched` are int64 `[n]`;
`message` is `[num_messages, channels]`, `scale` `[channels]`, `weight` one number for each slot,
`[slots]`, or empty. `ids` are distinct, int64 `[k]`, and `old` what was sent from them before,
`[k, channels]`; `again` takes ids, int64. Listed edges have ends, int64 `[m]`, and a `factor`,
`[m]` or empty.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.reference.rows import edges_of, unite


def sum_rows(
    ids: Tensor,
    state: Tensor,
    drift: Tensor,
    message: Tensor,
    weight: Tensor,
    inn: Adjacency,
    drop: bool,
) -> int:
    """Sum some rows afresh; arrays as above."""
    index, source, slot = edges_of(ids, inn, drop)
    terms = message[source].to(state.dtype)
    if weight.numel():
        terms = terms * weight[slot, None]
    fresh = state.new_zeros(len(ids), state.shape[1])
    state[ids] = fresh.index_add_(0, index.to(state.device), terms)
    drift[ids] = 0
    return int(inn.degree[ids].sum())


def sum_edges(
    state: Tensor,
    drift: Tensor,
    scale: Tensor,
    message: Tensor,
    src: Tensor,
    dst: Tensor,
    factor: Tensor,
    sign: int,
    drop: bool,
) -> None:
    """Add or subtract the messages of listed edges; arrays as above."""
    w = (factor if factor.numel() else state.new_ones(len(src))).to(state.dtype) * sign
    if drop:
        keep = src != dst
        src, dst, w = src[keep], dst[keep], w[keep.to(w.device)]
    terms = w[:, None] * message[src].to(state.dtype)
    dst = dst.to(state.device)
    state.index_add_(0, dst, terms)
    drift.index_add_(0, dst, w.abs() * (message[src].abs().to(state.dtype) * scale).sum(1))


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
    """Make empty rows zero, and name those that have lost too many bits; arrays as above."""
    rows = touched[:count]
    empty = inn.degree[rows] == 0
    state[rows[empty]] = 0
    drift[rows[empty]] = 0
    rows = rows[~empty]
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
    ids: Tensor,
    old: Tensor,
    out: Adjacency,
    inn: Adjacency,
    drop: bool,
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
    state.index_add_(0, at, w[:, None] * diff[index])
    drift.index_add_(0, at, w.abs() * (diff.abs() * scale).sum(1)[index])
    count = unite(target, touched, count, stamp, epoch)
    again = torch.empty(count, dtype=torch.int64)
    return count, edges, again[: sum_settle(state, drift, limit, scale, inn, touched, count, again)]

"""Softmax-weighted sums over in-edges.

Of `n` rows `state` is `[n, heads * channels + 2 * heads]`, `target` `[n, heads]`, `drift` `[n, 2]`,
and `stamp` and `touched` are int64 `[n]`; `message` is `[num_messages, heads * channels + heads]`,
`scale` `[heads * channels]`. `edge`, `[slots, heads]`, and `loop`, `[n, heads]`, may be empty.
`ids` are distinct, int64 `[k]`, `old` are their messages from before; `again` takes ids, int64.
Listed edges have ends, int64 `[m]`, and `edge_rows`, `[m, heads]` or empty. What they mean is told
in `kernels.compiled.softmax`; `low` is as large as `state` or empty.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.compiled import REACH
from pyg_incremental.kernels.reference.rows import edges_of, unite
from pyg_incremental.kernels.reference.sums import add_to, split, wide


def _heads(message: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Values `[k, heads, channels]` and logit parts `[k, heads]` of message rows."""
    heads = target.shape[1]
    width = message.shape[1] - heads
    return message[:, :width].reshape(len(message), heads, width // heads), message[:, width:]


def softmax_rows(
    ids: Tensor,
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    message: Tensor,
    target: Tensor,
    edge: Tensor,
    loop: Tensor,
    slope: float,
    inn: Adjacency,
    drop: bool,
) -> int:
    """Make some softmax-weighted rows afresh; arrays as above."""
    heads = target.shape[1]
    index, source, slot = edges_of(ids, inn, drop)
    index = index.to(state.device)
    value, part = _heads(message[source], target)
    logit = part + target[ids][index]
    if edge.numel():
        logit = logit + edge[slot]
    if loop.numel():
        own, _ = _heads(message[ids], target)
        value = torch.cat([value, own])
        logit = torch.cat([logit, loop[ids]])
        index = torch.cat([index, torch.arange(len(ids), device=index.device)])
    logit = torch.nn.functional.leaky_relu(logit, slope)
    at = index[:, None].expand(-1, heads)
    top = torch.full((len(ids), heads), -torch.inf, dtype=logit.dtype, device=logit.device)
    top = top.scatter_reduce(0, at, logit, "amax")
    p = (wide(logit, state) - wide(top[index], state)).exp()
    mass = p.new_zeros(top.shape).index_add_(0, index, p)
    p = p.masked_fill(top[index] == -torch.inf, 0)  # see `add_below` in the compiled kernels
    numerator = p.new_zeros(len(ids), *value.shape[1:]).index_add_(0, index, p[..., None] * value)
    split(torch.cat([numerator.flatten(1), mass, top.to(p.dtype)], 1), state, low, ids)
    drift[ids] = 0
    return int(inn.degree[ids].sum())


def _softmax_terms(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    scale: Tensor,
    source: Tensor,
    target: Tensor,
    dst: Tensor,
    edge_rows: Tensor,
    slope: float,
    sign: int,
    unit: float = 1.0,
) -> None:
    heads = target.shape[1]
    dst = dst.to(state.device)
    value, part = _heads(source, target)
    logit = part + target[dst]
    if edge_rows.numel():
        logit = logit + edge_rows
    logit = torch.nn.functional.leaky_relu(logit, slope)
    shift = wide(logit, state) - wide(state[dst, -heads:], state)
    near = (shift <= REACH).all(1)
    if sign > 0:  # the first edge of an empty row finds no reference
        near &= (state[dst, -2 * heads : -heads] != 0).all(1) | (drift[dst, 0] != 0)
    drift[dst[~near], 0] = torch.inf
    weigh = scale.reshape(heads, -1)
    dst, value, p = dst[near], value[near], shift[near].exp()
    terms = sign * torch.cat([(p[..., None] * value).flatten(1), p, torch.zeros_like(p)], 1)
    add_to(state, low, dst, terms)
    moved = torch.stack([p.sum(1), (p * (value.abs() * weigh).sum(2)).sum(1)], 1)
    drift.index_add_(0, dst, unit * moved.to(drift.dtype))


def softmax_edges(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    scale: Tensor,
    message: Tensor,
    target: Tensor,
    src: Tensor,
    dst: Tensor,
    edge_rows: Tensor,
    slope: float,
    sign: int,
    drop: bool,
    unit: float,
) -> None:
    """Add or retract the terms of listed edges; arrays as above."""
    if drop:
        keep = src != dst
        src, dst = src[keep], dst[keep]
        edge_rows = edge_rows[keep] if edge_rows.numel() else edge_rows
    _softmax_terms(
        state, low, drift, scale, message[src], target, dst, edge_rows, slope, sign, unit
    )


def softmax_settle(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    limit: float,
    scale: Tensor,
    heads: int,
    inn: Adjacency,
    has_loop: bool,
    touched: Tensor,
    count: int,
    again: Tensor,
) -> int:
    """Make empty rows zero, and name those that have lost too many bits; arrays as above."""
    width = state.shape[1] - 2 * heads
    rows = touched[:count]
    if not has_loop:
        empty = inn.degree[rows] == 0
        split(torch.zeros_like(state[rows[empty]]), state, low, rows[empty])
        drift[rows[empty]] = 0
        rows = rows[~empty]
    rows = rows[(drift[rows] != 0).any(1).cpu()]
    mass = state[rows, width : width + heads]
    size = (state[rows, :width].abs() * scale).reshape(len(rows), heads, width // heads).sum(2)
    sound = (drift[rows, :1] / limit <= mass) & (drift[rows, 1:] / limit <= size)
    sound = (sound & (mass < torch.inf) & (size < torch.inf)).all(1)
    drift[rows] += torch.stack([mass.sum(1), size.sum(1)], 1)
    rows = rows[~sound.cpu()]
    again[: len(rows)] = rows
    return len(rows)


def softmax_push(
    state: Tensor,
    low: Tensor,
    drift: Tensor,
    scale: Tensor,
    message: Tensor,
    target: Tensor,
    edge: Tensor,
    slope: float,
    ids: Tensor,
    old: Tensor,
    out: Adjacency,
    drop: bool,
    touched: Tensor,
    count: int,
    stamp: Tensor,
    epoch: int,
) -> tuple[int, int]:
    """Replace the terms of changed sources along their out-edges; arrays as above."""
    edges = int(out.degree[ids].sum())
    index, at, slot = edges_of(ids, out, drop)
    count = unite(at, touched, count, stamp, epoch)
    near = (drift[at, 0] < torch.inf).cpu()
    index, at, slot = index[near], at[near], slot[near]
    edge_rows = edge[slot] if edge.numel() else edge
    _softmax_terms(state, low, drift, scale, old[index], target, at, edge_rows, slope, -1)
    _softmax_terms(state, low, drift, scale, message[ids[index]], target, at, edge_rows, slope, 1)
    return count, edges

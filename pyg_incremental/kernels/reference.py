"""The kernels of `compiled.py` in plain torch: same names, same arguments, any device, obviously right.

Neighbour lists are tensors on the host; indices travel to the device of the rows. See `compiled.py` for the conventions.
"""


import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.compiled import REACH


def commit(
    store: Tensor,
    ids: Tensor,
    new: Tensor,
    old: Tensor,
    first_new: int,
    changed: Tensor,
    where: Tensor,
) -> int:
    before = store[ids]
    same = (before == new) | ((before != before) & (new != new))
    differs = ~same.all(1) | (ids >= first_new).to(same.device)
    at = differs.nonzero().flatten().to(ids.device)
    if old.shape[0]:
        old[: len(at)] = before[at.to(before.device)]
    store[ids] = new
    changed[: len(at)] = ids[at]
    where[: len(at)] = at
    return len(at)


def unite(ids: Tensor, touched: Tensor, count: int, stamp: Tensor, epoch: int) -> int:
    fresh = ids[stamp[ids] != epoch].unique()
    stamp[fresh] = epoch
    touched[count : count + len(fresh)] = fresh
    return count + len(fresh)


def unite_ends(
    src: Tensor, dst: Tensor, drop: bool, touched: Tensor, count: int, stamp: Tensor, epoch: int
) -> int:
    return unite(dst[src != dst] if drop else dst, touched, count, stamp, epoch)


def last_of_each(ids: Tensor, stamp: Tensor, epoch: int, keep: Tensor) -> int:
    place = {int(v): i for i, v in enumerate(ids.tolist())}
    last = torch.tensor(sorted(place.values()), dtype=torch.int64)
    stamp[ids] = epoch
    if len(last):
        keep[-len(last) :] = last
    return len(last)


def _lists(ids: Tensor, adj: Adjacency) -> tuple[Tensor, Tensor, Tensor]:
    """Position in `ids`, neighbour and slot of every entry of their lists."""
    degree = adj.degree[ids].long()
    index = torch.repeat_interleave(torch.arange(len(ids)), degree)
    first = degree.cumsum(0) - degree
    at = adj.start[ids][index] + torch.arange(len(index)) - first[index]
    return index, adj.neighbor[at].long(), adj.edge[at].long()


def reach(
    ids: Tensor, out: Adjacency, drop: bool, touched: Tensor, count: int, stamp: Tensor, epoch: int
) -> tuple[int, int]:
    index, target, _ = _lists(ids, out)
    keep = target != ids[index] if drop else torch.ones_like(target, dtype=torch.bool)
    return unite(target[keep], touched, count, stamp, epoch), len(index)


def expand(
    ids: Tensor, adj: Adjacency, loops: int, index: Tensor, neighbor: Tensor, edge: Tensor
) -> int:
    i, u, slot = _lists(ids, adj)
    if loops:
        keep = (u != ids[i]) == (loops == 1)
        i, u, slot = i[keep], u[keep], slot[keep]
    index[: len(i)], neighbor[: len(i)], edge[: len(i)] = i, u, slot
    return len(i)


# Sums ----------------------------------------------------------------------------------------


def _edges(ids: Tensor, adj: Adjacency, drop: bool) -> tuple[Tensor, Tensor, Tensor]:
    index, neighbor, slot = _lists(ids, adj)
    if drop:
        keep = neighbor != ids[index]
        index, neighbor, slot = index[keep], neighbor[keep], slot[keep]
    return index, neighbor, slot


def sum_rows(
    ids: Tensor,
    state: Tensor,
    drift: Tensor,
    message: Tensor,
    weight: Tensor,
    inn: Adjacency,
    drop: bool,
) -> int:
    index, source, slot = _edges(ids, inn, drop)
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
    message: Tensor,
    src: Tensor,
    dst: Tensor,
    factor: Tensor,
    sign: int,
    drop: bool,
) -> None:
    w = (factor if factor.numel() else state.new_ones(len(src))).to(state.dtype) * sign
    if drop:
        keep = src != dst
        src, dst, w = src[keep], dst[keep], w[keep.to(w.device)]
    terms = w[:, None] * message[src].to(state.dtype)
    dst = dst.to(state.device)
    state.index_add_(0, dst, terms)
    drift.index_add_(0, dst, w.abs() * message[src].abs().sum(1).to(state.dtype))


def sum_push(
    state: Tensor,
    drift: Tensor,
    limit: float,
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
) -> tuple[int, int, int, int]:
    diff = message[ids].to(state.dtype) - old[: len(ids)].to(state.dtype)
    moving = (diff.abs().sum(1) != 0).nonzero().flatten().cpu()
    ids, diff = ids[moving], diff[moving.to(diff.device)]
    edges = int(out.degree[ids].sum())
    index, target, slot = _edges(ids, out, drop)
    w = weight[slot].to(state.dtype) if weight.numel() else state.new_ones(len(slot))
    at, index = target.to(state.device), index.to(state.device)
    state.index_add_(0, at, w[:, None] * diff[index])
    drift.index_add_(0, at, w.abs() * diff.abs().sum(1)[index])
    count = unite(target, touched, count, stamp, epoch)
    rows = touched[:count]
    empty = inn.degree[rows] == 0
    state[rows[empty]] = 0
    drift[rows[empty]] = 0
    rows = rows[~empty]
    rows = rows[(drift[rows] != 0).cpu()]
    size = state[rows].abs().sum(1)
    drift[rows] += size
    sound = (drift[rows] / limit <= size) & (size < torch.inf)
    rows = rows[~sound.cpu()]
    read = sum_rows(rows, state, drift, message, weight, inn, drop)
    return count, edges, len(rows), read


# Softmax-weighted sums -----------------------------------------------------------------------


def _heads(message: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Values `[k, heads, channels]` and logit parts `[k, heads]` of message rows."""
    heads = target.shape[1]
    width = message.shape[1] - heads
    return message[:, :width].reshape(len(message), heads, width // heads), message[:, width:]


def softmax_rows(
    ids: Tensor,
    state: Tensor,
    drift: Tensor,
    message: Tensor,
    target: Tensor,
    edge: Tensor,
    loop: Tensor,
    slope: float,
    inn: Adjacency,
    drop: bool,
) -> int:
    heads = target.shape[1]
    index, source, slot = _edges(ids, inn, drop)
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
    p = (logit - top[index]).exp()
    mass = torch.zeros_like(top).index_add_(0, index, p)
    numerator = value.new_zeros(len(ids), *value.shape[1:]).index_add_(
        0, index, p[..., None] * value
    )
    state[ids] = torch.cat([numerator.flatten(1), mass, top], 1)
    drift[ids] = 0
    return int(inn.degree[ids].sum())


def _softmax_terms(
    state: Tensor,
    drift: Tensor,
    source: Tensor,
    target: Tensor,
    dst: Tensor,
    edge_rows: Tensor,
    slope: float,
    sign: int,
) -> None:
    heads = target.shape[1]
    dst = dst.to(state.device)
    value, part = _heads(source, target)
    logit = part + target[dst]
    if edge_rows.numel():
        logit = logit + edge_rows
    shift = torch.nn.functional.leaky_relu(logit, slope) - state[dst, -heads:]
    near = (shift <= REACH).all(1)
    drift[dst[~near], 0] = torch.inf
    dst, value, p = dst[near], value[near], shift[near].exp()
    terms = sign * torch.cat([(p[..., None] * value).flatten(1), p, torch.zeros_like(p)], 1)
    state.index_add_(0, dst, terms)
    moved = torch.stack([p.sum(1), (p * value.abs().sum(2)).sum(1)], 1)
    drift.index_add_(0, dst, moved)


def softmax_edges(
    state: Tensor,
    drift: Tensor,
    message: Tensor,
    target: Tensor,
    src: Tensor,
    dst: Tensor,
    edge_rows: Tensor,
    slope: float,
    sign: int,
    drop: bool,
) -> None:
    if drop:
        keep = src != dst
        src, dst = src[keep], dst[keep]
        edge_rows = edge_rows[keep] if edge_rows.numel() else edge_rows
    _softmax_terms(state, drift, message[src], target, dst, edge_rows, slope, sign)


def softmax_push(
    state: Tensor,
    drift: Tensor,
    limit: float,
    message: Tensor,
    target: Tensor,
    edge: Tensor,
    loop: Tensor,
    slope: float,
    ids: Tensor,
    old: Tensor,
    out: Adjacency,
    inn: Adjacency,
    drop: bool,
    touched: Tensor,
    count: int,
    renewed: int,
    stamp: Tensor,
    epoch: int,
) -> tuple[int, int, int, int]:
    heads = target.shape[1]
    width = message.shape[1] - heads
    drift[touched[:renewed], 0] = torch.inf
    edges = int(out.degree[ids].sum())
    index, at, slot = _edges(ids, out, drop)
    count = unite(at, touched, count, stamp, epoch)
    near = (drift[at, 0] < torch.inf).cpu()
    index, at, slot = index[near], at[near], slot[near]
    edge_rows = edge[slot] if edge.numel() else edge
    _softmax_terms(state, drift, old[index], target, at, edge_rows, slope, -1)
    _softmax_terms(state, drift, message[ids[index]], target, at, edge_rows, slope, 1)
    rows = touched[:count]
    if not loop.numel():
        empty = inn.degree[rows] == 0
        state[rows[empty]] = 0
        drift[rows[empty]] = 0
        rows = rows[~empty]
    rows = rows[(drift[rows, 0] != 0).cpu()]
    mass = state[rows, width : width + heads]
    size = state[rows, :width].reshape(len(rows), heads, width // heads).abs().sum(2)
    sound = (drift[rows, :1] / limit <= mass) & (drift[rows, 1:] / limit <= size)
    sound = (sound & (mass < torch.inf) & (size < torch.inf)).all(1)
    drift[rows] += torch.stack([mass.sum(1), size.sum(1)], 1)
    rows = rows[~sound.cpu()]
    read = softmax_rows(rows, state, drift, message, target, edge, loop, slope, inn, drop)
    return count, edges, len(rows), read

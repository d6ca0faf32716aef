"""Several edges of one pair: all of them, and the oldest in place of the youngest."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.graph.edge_store import EdgeStore, Ids

_NONE = np.empty(0, np.int64)
LONG = 64
"""Edges of one pair from which on the neighbour list of an end is looked through for them. Until
then they are followed from one to the next, for all pairs together, one step of Python for each."""


def occurrences(graph: EdgeStore, src: Ids, dst: Ids) -> tuple[Ids, Ids]:
    """All edges of some distinct pairs.

    Args:
        graph: The edges.
        src: Sources, int64 `[k]`.
        dst: Targets, int64 `[k]`.

    Returns:
        Which of the pairs each edge is of, ascending, and its slot, the oldest of a pair first.
    """
    slots = graph.find(src, dst)
    at = np.flatnonzero(slots >= 0)
    left = slots[at]
    which, found = [at[:0]], [at[:0]]
    for _ in range(LONG):
        which.append(at)
        found.append(left)
        older = graph.slots.older[left].astype(np.int64)
        at, left = at[older >= 0], older[older >= 0]
        if not left.size:
            break
    of, every = np.concatenate(which), np.concatenate(found)
    if at.size:
        short = ~np.isin(of, at)
        long = [_in_list(graph, int(src[i]), int(dst[i])) for i in at]
        of = np.concatenate([of[short], np.repeat(at, [slots.size for slots in long])])
        every = np.concatenate([every[short], *long])
    order = np.lexsort((graph.slots.order[every], of))
    return of[order], every[order]


def _in_list(graph: EdgeStore, src: int, dst: int) -> Ids:
    """The slots of the edges of one pair, from the shorter neighbour list of its ends."""
    near, far, lists = dst, src, graph.inn
    # The source of an edge has an out-edge; where it has none, lists of these are not kept.
    if 0 < graph.out.degree[src] < graph.inn.degree[dst]:
        near, far, lists = src, dst, graph.out
    first = lists.start[near]
    part = slice(first, first + lists.degree[near])
    found: Ids = lists.edge[part][lists.neighbor[part] == far].astype(np.int64)
    return found


def find_removed(
    graph: EdgeStore, src: Ids, dst: Ids, gone: tuple[Ids, Ids], oldest: bool
) -> tuple[Ids, Ids]:
    """The slots that leave; see `EdgeStore.resolve_removal`.

    Args:
        graph: The edges.
        src: Sources of the edges to remove, int64 `[m]`.
        dst: Their targets, int64 `[m]`.
        gone: Nodes, int64 `[d]`, at sources and targets, of which every other edge leaves, too.
        oldest: Whether each listed pair removes its oldest edges, not its youngest.
    """
    listed, more = graph.resolve_removal(src, dst, *gone)
    at = np.flatnonzero(listed >= 0)
    if not oldest or not at.size:
        return listed, more
    keys, pair = np.unique((src[at] << 32) | dst[at], return_inverse=True)
    which, slots = occurrences(graph, keys >> 32, keys & 0xFFFFFFFF)
    # The first of them, as many as there are listed ones, in their place.
    rank = np.arange(which.size) - np.searchsorted(which, which)
    chosen = slots[rank < np.bincount(pair, minlength=keys.size)[which]]
    young = listed[at]
    listed[at[np.argsort(pair, kind="stable")]] = chosen
    if gone[0].size or gone[1].size:
        leaves = np.isin(src[at], gone[0]) | np.isin(dst[at], gone[1])
        more = np.setdiff1d(np.concatenate([more, young[leaves]]), chosen)
    return listed, more


def find_alike(
    graph: EdgeStore,
    src: Ids,
    dst: Ids,
    data: Mapping[str, Tensor],
    gone: tuple[Ids, Ids],
    oldest: bool,
) -> tuple[Ids, Ids]:
    """Like `find_removed`, of edges that have some data.

    Args:
        graph: The edges.
        src: Sources of the edges to remove, int64 `[m]`; each removes one occurrence.
        dst: Their targets, int64 `[m]`.
        data: What these edges have to have, `[m, ...]` by name; NaN equals NaN.
        gone: Nodes, int64 `[d]`, at sources and targets, of which every other edge leaves, too.
        oldest: Whether of several such edges the oldest leaves, not the youngest.
    """
    keys, pair = np.unique((src << 32) | dst, return_inverse=True)
    which, slots = occurrences(graph, keys >> 32, keys & 0xFFFFFFFF)
    if not oldest:
        which, slots = which[::-1], slots[::-1]
    at = torch.from_numpy(slots.copy())
    rows = [
        _codes(torch.cat([graph.edge_data[name][at].cpu(), of.cpu()])) for name, of in data.items()
    ]
    kinds = np.stack([np.concatenate([which, pair.reshape(-1)]), *rows], axis=1)
    kind = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)
    there, asked = (_nth_of(part) for part in np.split(kind, [slots.size]))
    # The n-th that is asked for is the n-th that is there.
    place = {k: int(slot) for k, slot in zip(there, slots, strict=True)}
    listed = np.array([place.get(k, -1) for k in asked], np.int64)
    _, more = graph.resolve_removal(_NONE, _NONE, *gone)
    return listed, np.setdiff1d(more, listed)


def _codes(rows: Tensor) -> Ids:
    """A number for each row, `[n, ...]`, equal for equal ones, int64 `[n]`."""
    rows = rows.detach().cpu().flatten(1) if rows.dim() > 1 else rows.detach().cpu()[:, None]
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    if rows.dtype.is_floating_point:  # zeros of either sign are equal, and so is what is no number
        rows = torch.where(rows.isnan(), torch.nan, rows + 0.0)
    if not rows.shape[1]:
        return np.zeros(rows.shape[0], np.int64)
    as_bytes = rows.contiguous().view(torch.uint8).numpy()
    found: Ids = np.unique(as_bytes, axis=0, return_inverse=True)[1].reshape(-1)
    return found


def _nth_of(kinds: Ids) -> list[tuple[int, int]]:
    """Each kind, int64 `[n]`, and how many of the same come before it."""
    order = np.argsort(kinds, kind="stable")
    ordered = kinds[order]
    nth = np.empty(kinds.size, np.int64)
    nth[order] = np.arange(kinds.size) - np.searchsorted(ordered, ordered)
    return list(zip(kinds.tolist(), nth.tolist(), strict=True))


def find_oldest(graph: EdgeStore, src: Ids, dst: Ids, removed: Ids) -> Ids:
    """The oldest slot of each distinct pair once `removed` is gone, -1 where none is left.

    Pairs and answer are int64 `[k]`, the slots `removed` `[m]`.
    """
    which, slots = occurrences(graph, src, dst)
    stays = ~np.isin(slots, removed)
    which, slots = which[stays], slots[stays]
    found = np.full(src.size, -1, np.int64)
    first = np.searchsorted(which, np.unique(which))
    found[which[first]] = slots[first]
    return found

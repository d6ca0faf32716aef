"""Writing rows, and collecting the rows that a change reaches.

Of `n` rows `store` is `[n, channels]`, `stamp` and `touched` are int64 `[n]`; `ids` are distinct,
int64 `[k]`, `new` and `old` `[k, channels]`, `changed` and `where` int64 `[k]`. Edges are listed by
their ends and places, int64 `[m]`.
"""

import torch
from torch import Tensor

from pyg_incremental.kernels.adjacency import Adjacency


def commit(
    store: Tensor,
    ids: Tensor,
    new: Tensor,
    old: Tensor,
    first_new: int,
    changed: Tensor,
    where: Tensor,
) -> int:
    """Write new rows, and note which of them differ from what was stored; arrays as above."""
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
    """Collect distinct ids; arrays as above."""
    fresh = ids[stamp[ids] != epoch].unique()
    stamp[fresh] = epoch
    touched[count : count + len(fresh)] = fresh
    return count + len(fresh)


def unite_ends(
    src: Tensor, dst: Tensor, drop: bool, touched: Tensor, count: int, stamp: Tensor, epoch: int
) -> int:
    """Collect the distinct targets of some edges; arrays as above."""
    return unite(dst[src != dst] if drop else dst, touched, count, stamp, epoch)


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
    """Collect the distinct targets of the out-edges of some rows; arrays as above."""
    index, target, _ = _lists(ids, out)
    keep = target != ids[index] if drop else torch.ones_like(target, dtype=torch.bool)
    return unite(target[keep], touched, count, stamp, epoch), len(index)


def expand(
    ids: Tensor, adj: Adjacency, loops: int, index: Tensor, neighbor: Tensor, edge: Tensor
) -> int:
    """Write out the lists of some rows, one behind the other; arrays as above."""
    i, u, slot = _lists(ids, adj)
    if loops:
        keep = (u != ids[i]) == (loops == 1)
        i, u, slot = i[keep], u[keep], slot[keep]
    index[: len(i)], neighbor[: len(i)], edge[: len(i)] = i, u, slot
    return len(i)


def edges_of(ids: Tensor, adj: Adjacency, drop: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Position in `ids`, neighbour and slot of every entry, without self-loops if `drop`.

    Arrays as above.
    """
    index, neighbor, slot = _lists(ids, adj)
    if drop:
        keep = neighbor != ids[index]
        index, neighbor, slot = index[keep], neighbor[keep], slot[keep]
    return index, neighbor, slot

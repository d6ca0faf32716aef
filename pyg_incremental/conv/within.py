"""A softmax over the in-edges of each kind of their own, added up.

There are heads for each kind. In those of another kind an edge is nothing: its value is zero and
its logit finite, but below any other, so that a row without edges of that kind comes out as zero.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.conv.by_relation import relations
from pyg_incremental.ops import softmax_result


def apart(
    terms: Callable[..., tuple[Tensor, Tensor]], kinds_at: int, count: int
) -> Callable[..., tuple[Tensor, Tensor]]:
    """The same terms with heads for each kind, `[k, count * heads]` and `[.., channels]`.

    Args:
        terms: Gives logits `[k, heads]` and values `[k, heads, channels]`.
        kinds_at: Which of its arguments is the kind of each edge, `[k]` below `count`.
        count: Number of kinds.
    """

    def run(*rows: Any) -> tuple[Tensor, Tensor]:
        logits, values = terms(*rows)
        nothing, lowest = _limits(logits)
        of_kind = relations(rows[kinds_at], count)[:, :, None]
        logits = torch.where(of_kind, logits.clamp(min=lowest)[:, None], nothing)
        values = torch.where(of_kind[..., None], values[:, None], 0.0)
        return logits.flatten(1), values.flatten(1, 2)

    return run


def added_up(state: Tensor, heads: int, count: int) -> Tensor:
    """The softmax of each kind from the state of all, added up, `[k, heads * channels]`."""
    every = heads * count
    rows = softmax_result(state, every).view(len(state), every, -1)
    lost = state[:, -every:] == _limits(state)[1]  # every logit of the kind is minus infinity
    rows = rows.masked_fill(lost.unsqueeze(-1), torch.nan)
    return rows.view(len(state), count, -1).sum(dim=1)


def _limits(rows: Tensor) -> tuple[float, float]:
    """Logits that stand for an edge of another kind, and for one of minus infinity."""
    most = torch.finfo(rows.dtype).max
    return -most / 4, -most / 16

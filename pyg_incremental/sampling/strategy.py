"""What makes an edge come before another one in the sample of their target."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.sampling.kernels import keys as kernel
from pyg_incremental.sampling.kernels.rows import COMPLETE

Ids = NDArray[np.int64]
StrategyName = Literal["random", "topk", "weight"]
_LEAST, _MOST = 1e-300, 1e280
"""Weights of which no waiting time, some 1e-16 to 37 over it, is infinite or loses its digits."""
_APART = 1 << 32
"""More than how often is ever sampled anew."""


class Strategy(Protocol):
    """Gives edges their keys; the edges of a node with the largest keys are its sample.

    Attributes:
        data: The name of the edge data that it reads, or an empty string.
    """

    data: str

    def keys(self, edges: Ids, data: Tensor | None, turn: int) -> Ids:
        """The keys of some edges, int64 `[k]`.

        Args:
            edges: Their ids, int64 `[k]`.
            data: Their data, `[k]`, if the strategy reads any.
            turn: How often was sampled anew.

        Raises:
            InvalidDeltaError: If the data are none to sample by.
        """
        ...


class Random:
    """Every subset of the in-edges is as likely as any other of its size.

    Each edge draws a number; the edges with the largest ones are the sample. So what takes the
    place of an edge that left is drawn uniformly from those that were not in the sample.
    """

    data = ""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def keys(self, edges: Ids, data: Tensor | None, turn: int) -> Ids:
        """See `Strategy.keys`."""
        keys = np.empty(edges.size, np.int64)
        kernel.uniform_keys(edges, _start(self._seed, turn), keys)
        return keys


class ByWeight:
    """In-edges drawn one after the other without replacement, each by its weight among the rest.

    Efraimidis and Spirakis 2006: the edge of weight `w` draws `u^(1/w)`, and the largest ones are
    the sample.
    """

    data = "edge_weight"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def keys(self, edges: Ids, data: Tensor | None, turn: int) -> Ids:
        """See `Strategy.keys`; weights have to be positive and finite."""
        assert data is not None
        weights = data.detach().cpu().to(torch.float64).contiguous().numpy()
        ok = (weights >= _LEAST) & (weights <= _MOST)
        if not ok.all():
            at = int(np.argmin(ok))
            raise InvalidDeltaError(
                f"edge_weight: expected positive, finite weights to sample by, from {_LEAST} to "
                f"{_MOST} (got {weights[at]} at position {at}); leave out edges that are never to "
                "be sampled"
            )
        times = np.empty(edges.size, np.float64)
        kernel.waiting_times(edges, weights, _start(self._seed, turn), times)
        # The bits of numbers that are not negative are in the order of the numbers.
        keys: Ids = -np.abs(times).view(np.int64)
        return keys


class Latest:
    """The in-edges with the largest times; of equal times the edge that was added later."""

    data = "time"

    def keys(self, edges: Ids, data: Tensor | None, turn: int) -> Ids:
        """See `Strategy.keys`; times are integers, or floats that are no NaN."""
        assert data is not None
        times = data.detach().cpu()
        if not times.dtype.is_floating_point:
            keys: Ids = times.to(torch.int64).contiguous().numpy().copy()
            if keys.size and keys.min() == COMPLETE:
                raise InvalidDeltaError("time: expected times above -2^63, which stands for none")
            return keys
        if times.isnan().any():
            raise InvalidDeltaError("time: expected numbers (got NaN)")
        bits = (times.to(torch.float64) + 0.0).contiguous().numpy().view(np.int64)
        # Negative floats are larger the smaller their bits are.
        found: Ids = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
        return found


def _start(seed: int, turn: int) -> np.uint64:
    start: np.uint64 = np.uint64(kernel.start_of(seed, turn))
    return start


def strategy_of(name: str, seed: int) -> Strategy:
    """The strategy of a name.

    Raises:
        ValueError: If there is none.
    """
    if name == "random":
        return Random(seed)
    if name == "weight":
        return ByWeight(seed)
    if name == "topk":
        return Latest()
    raise ValueError(f"strategy: expected 'random', 'topk' or 'weight' (got {name!r})")


def strategies_of(name: str, seed: int, count: int) -> list[Strategy]:
    """The same strategy for each of several edge types, which draw apart from each other.

    Edges of different types may have the same id, and would draw the same number else.

    Raises:
        ValueError: If there is none of this name.
    """
    seeds = [seed, *(int(_start(seed, _APART + kind)) >> 1 for kind in range(1, count))]
    return [strategy_of(name, own) for own in seeds]


def checked_seed(seed: Any) -> int:
    """A seed in [0, 2^63).

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: expected an integer in [0, 2^63) (got {seed!r})")
    return seed

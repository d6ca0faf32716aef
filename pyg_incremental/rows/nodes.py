"""The nodes of one kind, and room to collect some of them in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.kernels.compiled.machine import MANY
from pyg_incremental.rows.backend import NO_IDS, Backend, Ids


class Scratch:
    """Marks and room to collect distinct rows in; reused by every step."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.resize(0)

    def resize(self, rows: int) -> None:
        """Make room for ids below `rows`."""
        self.size = rows
        self.stamp = self._backend.host(np.zeros(rows, np.int64))
        self.touched = self._backend.room(rows)
        self.epoch = 0

    def parts(self) -> dict[str, Any]:
        """What `put_back` takes: all that there is, where it lies."""
        return dict(self.__dict__)

    def put_back(self, parts: dict[str, Any]) -> None:
        """Be as before; compiled code may know where the arrays are."""
        self.__dict__.update(parts)

    def next(self) -> int:
        """Forget all marks; returns the new epoch."""
        self.epoch += 1
        return self.epoch

    def taken(self, count: int) -> Ids:
        """The first `count` rows collected, as a set of their own."""
        rows = self.touched[:count]
        return self._backend.ids_from(rows.copy() if self._backend.is_compiled else rows.clone())


class NodeSet:
    """The nodes of one kind while an update runs.

    Attributes:
        scratch: Marks for their ids.
        num_nodes: Their number, those of the running delta included.
        first_new: Ids from here on were added by the running delta.
        renew_ids: The rows to be made afresh, or None.
    """

    def __init__(self, backend: Backend, num_nodes: int) -> None:
        self.backend = backend
        self.scratch = Scratch(backend)
        self.num_nodes = 0
        self._all_nodes = self._nobody = backend.ids(NO_IDS)
        self.begin(num_nodes, num_nodes, NO_IDS)

    def begin(self, num_nodes: int, first_new: int, renew: Tensor) -> None:
        """Start an update; `num_nodes` counts new nodes already.

        `renew`, int64 `[k]`, are nodes whose accumulated rows are made afresh.
        """
        backend = self.backend
        self.first_new = first_new
        if self.num_nodes != num_nodes:
            self.num_nodes = n = num_nodes
            self.make_room(n)
        self.renew_ids = backend.ids(renew) if renew.shape[0] else None
        self._settle = None if num_nodes > first_new or renew.shape[0] else self._nobody

    def make_room(self, num_nodes: int) -> None:
        """See that there is room for so many nodes, and for some more if it grows."""
        if self.scratch.size < num_nodes:
            self.scratch.resize(3 * num_nodes // 2 if self.scratch.size else num_nodes)

    @property
    def settle(self) -> Ids:
        """Rows that every aggregation settles, whatever changed: new ones and `renew_ids`.

        They are listed when somebody asks: compiled code doesn't.
        """
        if self._settle is None:
            renew = NO_IDS if self.renew_ids is None else self.renew_ids.tensor
            new = torch.arange(self.first_new, self.num_nodes)
            self._settle = self.backend.ids(torch.cat([renew, new]))
        return self._settle

    def begin_plain(self) -> None:
        """Start an update without new nodes."""
        if self._settle is not self._nobody or self.first_new != self.num_nodes:
            self.begin(self.num_nodes, self.num_nodes, NO_IDS)

    def are_most(self, count: int, part: float = 0.5) -> bool:
        """Whether so many nodes are more than a `part` of them."""
        return count > MANY and count > part * self.num_nodes

    @property
    def all_nodes(self) -> Ids:
        """`arange(num_nodes)`."""
        if self._all_nodes.count != self.num_nodes:
            self._all_nodes = self.backend.ids(torch.arange(self.num_nodes))
        return self._all_nodes

"""This package, as one of the programs compared."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor, nn

from pyg_incremental import GraphDelta, IncrementalWarning, UpdateStats, to_incremental


@dataclass
class Incremental:
    """`to_incremental(model)`, with what its updates counted."""

    model: nn.Module
    stats: UpdateStats | None = None

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        self.inc = to_incremental(self.model)
        with warnings.catch_warnings():
            # a full pass in disguise must not go unnoticed
            warnings.simplefilter("error", IncrementalWarning)
            self.inc(x, edge_index)

    def apply(self, delta: GraphDelta) -> None:
        self.stats = self.inc.apply_delta(delta).stats

    def output(self) -> Tensor:
        return self.inc.out

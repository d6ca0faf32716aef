"""Layer-wise recompute: the baseline RC of RIPPLE (Naman and Simmhan, ICDCS 2025).

Every row that a delta can reach is aggregated over its whole in-neighbourhood again, layer by
layer, from stored rows of the layer before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.peers.changes import Changes, Ids
from benchmarks.peers.layerwise import LayerWise


class Recompute(LayerWise):
    """All of the models."""

    def update(
        self, at: int, ids: Ids, rows: Tensor, changes: Changes, rescaled: Ids
    ) -> tuple[Ids, Tensor]:
        if ids.size:
            self.sent[at][torch.from_numpy(ids)] = self.messages(at, rows)
            self.keep(at, ids, rows)
        found = self.touched
        found.clear()
        found.add(ids)
        found.add(changes.added[1])
        found.add(changes.deleted[1])
        found.add_targets(ids, self.graph.out)
        found.add_targets(rescaled, self.graph.out)
        reached = found.ids()
        return reached, self.finish(at, reached, self.pull(at, reached))

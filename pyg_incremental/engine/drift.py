"""How far accumulated rows are from being summed afresh."""

import torch

from pyg_incremental.engine.loop import Engine


def drift_of(engine: Engine) -> float:
    """The most that has moved through an accumulated row since it was summed, as a share.

    It is measured in typical messages, and 1.0 is what a row of the size of one may take: that is
    when it is summed afresh, however little it was off. Rows that hold no sums count for nothing.
    """
    worst = 0.0
    for a in engine.aggregators:
        state = a.unwrapped
        drift, limit = state.extra.get("drift"), getattr(state, "limit", None)
        if drift is None or limit is None:
            continue
        moved = drift.tensor[: state.context.num_nodes]
        moved = torch.where(moved.isfinite(), moved, 0.0)  # infinite: its next change renews it
        worst = max(worst, float(moved.max()) / limit if moved.numel() else 0.0)
    return worst

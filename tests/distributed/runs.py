"""A small model that ranks run, and what it gives in one process."""

import copy

import numpy as np
import torch

from pyg_incremental import GraphDelta, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import small_call

MODEL, ARGS = small_call()


def on_ranks(size, work, **options):
    """Run `work(inc)` on every rank of a started model; nobody may raise."""

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        return work(inc(*ARGS, **options))

    return all_well(run_ranks(size, run))


def errors_on_ranks(size, work, **options):
    """The same, where every rank raises."""

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        return work(inc(*ARGS, **options))

    return run_ranks(size, run)


def expected(*deltas):
    inc = to_incremental(copy.deepcopy(MODEL))
    inc(*ARGS)
    for delta in deltas:
        inc.apply_delta(delta)
    return inc.out


ADD = GraphDelta(edge_index_add=torch.tensor([[0, 7], [5, 5]]))
BAD = GraphDelta(x_changes=(torch.tensor([99]), torch.ones(1, 6, dtype=torch.float64)))
SECOND = GraphDelta(
    nodes_del=[4], x_add=np.ones((2, 6)), edge_index_add=torch.tensor([[60, 0], [1, 61]])
)

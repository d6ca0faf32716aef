"""Compiled code frees what it makes: many kernels count no references, so they must make nothing.

Numba counts what it has made and freed. A kernel without counts that calls one which returns an
array would never free that one, and nothing else would show it.
"""

import gc

import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys
from torch_geometric.sampler import NodeSamplerInput

from pyg_incremental.sampling import StreamingSampler
from tests.side_by_side import SideBySide
from tests.strategies import DELTAS
from tests.zoo_all import PLAIN

NAMES = (
    "gcn-weights", "sage-mean", "sage-max", "sage-std", "gat-heads", "gat-attr-mean",
    "graph-max-weights", "transformer-beta", "supergat-mixed-heads", "agnn-plain",
    "gatv2-attr-mean", "gatv2-max", "fa-plain", "eg-symnorm",
)  # fmt: skip
KINDS = (
    "change_features",
    "add_edges",
    "delete_edges",
    "self_loops",
    "self_loops_leave",
    "grow_hub",
)
TURNS = 10


def held():
    """How many arrays compiled code has made that nobody has freed."""
    gc.collect()
    stats = rtsys.get_allocation_stats()
    return stats.mi_alloc - stats.mi_free


def left_behind(turn):
    """How many more there are after some turns, the first of which make what is kept."""
    for _ in range(3):
        turn()
    first = held()
    for _ in range(TURNS):
        turn()
    return held() - first


@pytest.fixture(autouse=True)
def counting():
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("compile_after", [1, None], ids=["loop", "step-by-step"])
@pytest.mark.parametrize("case", [c for c in PLAIN if c.name in NAMES], ids=str)
def test_updates_leave_nothing_behind(case, compile_after, dtype, seed):
    sides = SideBySide(case, dtype=dtype, seed=seed, compile_after=compile_after)

    def turn():
        for name in KINDS:
            delta = DELTAS[name](sides.world, sides.rng)
            sides.world.apply(**delta)
            sides.inc.apply_delta(**delta)

    assert left_behind(turn) < TURNS


@pytest.mark.parametrize("strategy", ["random", "topk", "weight"])
def test_samples_leave_nothing_behind(strategy, seed):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(40, (2, 300), generator=generator)
    named = {"topk": "edge_time", "weight": "edge_weight"}.get(strategy)
    data = {named: torch.rand(300, generator=generator) + 1} if named else {}
    sampler = StreamingSampler(edges, 40, [4, 3], strategy=strategy, seed=seed, **data)

    def turn():
        come = torch.randint(40, (2, 5), generator=generator)
        fresh = torch.rand(5, generator=generator) + 1
        more = {named.replace("edge_time", "time"): fresh} if named else None
        sampler.apply_delta(edge_index_add=come, edge_data_add=more)
        sampler.sample_from_nodes(
            NodeSamplerInput(None, torch.randint(40, (6,), generator=generator))
        )
        sampler.apply_delta(edge_index_del=come)

    assert left_behind(turn) < TURNS

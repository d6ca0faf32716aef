"""The compiled kernels, also as plain Python: these tests run once more with Numba's JIT off."""

import pytest
import torch

from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import SPOILERS, journey, node_rows
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES

pytestmark = pytest.mark.kernels

NAMES = (
    "gcn-plain", "gcn-weights", "gcn-backward-weights", "gcn-max", "sage-mean", "sage-median",
    "gin-two-linears", "gat-heads", "gat-no-loops", "gat-attr-mean", "gat-attr-no-loops",
    "gat-backward-attr", "graph-weights", "graph-backward",
)  # fmt: skip
CASES = [case for case in CONV_CASES if case.name in NAMES]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_kind_of_delta(case, dtype, seed):
    sides = SideBySide(case, dtype=dtype, seed=seed, backend="compiled")
    sides.walk()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_accumulated_and_scrubbed(case, seed):
    sides = SideBySide(
        case, seed=seed, dtype=torch.float32, accumulate_dtype=torch.float64, scrub_rows=3
    )
    sides.walk()


@pytest.mark.parametrize("name", ["gcn-weights", "sage-mean", "gat-heads", "graph-plain"])
def test_a_graph_that_grows_from_nothing_and_goes_again(name, seed):
    """Every list and table of the edge store moves to more room, several times."""
    case = next(case for case in CONV_CASES if case.name == name)
    data = {name: torch.zeros(0).double() for name, _ in case.data}
    sides = SideBySide(case, seed=seed, world=World(torch.ones(1, CHANNELS).double(), [], data))
    rng = sides.rng
    for _ in range(6):
        sides.step({"x_add": node_rows(rng, 7, CHANNELS, torch.float64)})
        sides.walk(["refill", "grow_hub", "duplicate_edges", "refill", "delete_edges"])
    calm = [name for name in journey(rng) if name not in (*SPOILERS, "all_edges_leave")]
    sides.walk(calm)
    while sides.world.edges:
        sides.walk(["remove_hub", "remove_hub", "delete_edges"])

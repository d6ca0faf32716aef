"""One pair of nodes with thousands of edges between them."""

import pytest
import torch

from tests.oracle import World
from tests.side_by_side import SideBySide
from tests.strategies import edge_rows, generator, index, node_rows
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES

COUNT = 2000
PAIR = (3, 1)
NAMES = ("gcn-weights", "graph-weights", "sage-mean")
CASES = [case for case in CONV_CASES if case.name in NAMES]


@pytest.fixture(params=CASES, ids=str)
def sides(request, seed):
    rng = generator(seed)
    pairs = [(0, 1), (3, 2), *[PAIR] * (COUNT // 2), (1, 1), *[PAIR] * (COUNT // 2), (1, 3), (2, 1)]
    case = request.param
    data = {n: edge_rows(rng, len(pairs), w, False, torch.float64) for n, w in case.data}
    world = World(node_rows(rng, 5, CHANNELS, torch.float64), pairs, data)
    return SideBySide(case, world=world, seed=seed)


def several(count):
    return index([PAIR] * count)


def new_rows(sides, count):
    """Data of new edges, or of edges that change."""
    return {n: torch.linspace(0.5, 2, count).double() for n in sides.world.names}


@pytest.mark.parametrize("count", [1, 700, COUNT - 1, COUNT])
def test_the_youngest_leave_and_change(sides, count):
    sides.step({"edge_index_del": several(count)}, f"{count} leave")
    if sides.world.names and count < COUNT:
        sides.step({"edge_changes": (several(1), new_rows(sides, 1))}, "the youngest left changes")
    added = {f"{name}_add": rows for name, rows in new_rows(sides, 50).items()}
    sides.step({"edge_index_add": several(50), **added}, "some come back")
    sides.step({"edge_index_del": several(30), "missing": "ignore"}, "some leave again")


def test_leaving_and_coming_in_one_delta(sides):
    added = {f"{name}_add": rows for name, rows in new_rows(sides, 50).items()}
    delta = {"edge_index_del": several(COUNT), "edge_index_add": several(50), **added}
    if sides.world.names:
        delta["edge_changes"] = (several(1), new_rows(sides, 1))
    sides.step(delta)
    sides.step({"edge_index_del": several(COUNT), "missing": "ignore"}, "more than there are")


@pytest.mark.parametrize("node", PAIR)
def test_their_endpoint_is_removed(sides, node):
    sides.step({"nodes_del": torch.tensor([node])})
    added = {f"{name}_add": rows for name, rows in new_rows(sides, 3).items()}
    sides.step({"edge_index_add": several(3), **added})

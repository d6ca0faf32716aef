"""Models and graphs that the faults are injected into, each beside the oracle's world."""

from tests.side_by_side import SideBySide
from tests.strategies import DELTAS
from tests.zoo_convs import CONV_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_models import BASIC_CASES, HAND_CASES

NAMES = (
    "gcn-plain", "gcn-weights-signed", "gcn-max", "sage-mean", "sage-max", "sage-std",
    "gin-two-linears", "gat-heads", "gat-attr-mean", "graph-weights-signed", "skips-weights",
    "GraphSAGE-max-norm-jk", "shared-gat", "edge-encoder", "pool-to-nodes",
)  # fmt: skip
CASES = [
    case for case in (*CONV_CASES, *BASIC_CASES, *HAND_CASES, *EDGE_CASES) if case.name in NAMES
]
KINDS = (
    "mixed", "undirected_mix", "change_features", "add_edges", "delete_edges", "delete_then_add",
    "new_nodes_with_edges", "remove_nodes", "remove_hub", "change_edge_data", "duplicate_edges",
    "change_of_a_new_edge",
)  # fmt: skip


def beside(case, seed, rng):
    """A case and its world after some deltas; every other one has its plan compiled."""
    options = {"compile_after": 1} if rng.integers(2) else {}
    if rng.integers(4) == 0:
        options = {"backend": "reference"}
    elif rng.integers(6) == 0:
        options["store"] = "minimal"
    sides = SideBySide(case, seed=seed, **options)
    for kind in rng.choice(KINDS, 3):
        delta = DELTAS[kind](sides.world, sides.rng)
        if delta:
            sides.step(delta, kind)
    return sides


def drawn(sides, rng):
    """A kind of delta, and a delta of it that says something."""
    while True:
        kind = rng.choice(KINDS)
        delta = DELTAS[kind](sides.world, sides.rng)
        if delta:
            return kind, delta

"""Hypergraphs that change, models on them, and the slow, obvious truth about both.

A `HyperWorld` holds plain Python lists; it imports nothing of the package under test.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric.nn import GCNConv, HypergraphConv

from tests import strategies
from tests.strategies import index, node_rows
from tests.zoo import CHANNELS

NODES, HYPEREDGES, OUT = 9, 14, 4
WEIGHT, ATTR = "hyperedge_weight", "hyperedge_attr"


class HyperWorld:
    """A hypergraph: features of nodes, who belongs to which hyperedge, and rows of hyperedges.

    Args:
        x: Node features.
        pairs: (node, hyperedge), in the order in which they were added.
        rows: What a model takes for each hyperedge, by name.
    """

    def __init__(self, x, pairs, rows):
        self.x, self.pairs, self.rows = x, list(pairs), dict(rows)

    def copy(self):
        return copy.deepcopy(self)

    @property
    def num_hyperedges(self):
        """How many there are; without rows one more than the largest id ever seen."""
        return len(next(iter(self.rows.values()))) if self.rows else self.seen

    @property
    def seen(self):
        return max((e for _, e in self.pairs), default=-1) + 1

    def apply(self, edge_index_add=None, edge_index_del=None, x_changes=None, x_add=None,
              nodes_del=None):  # fmt: skip
        """Apply one delta, in the documented order."""
        for name, rows in (x_add or {}).items():
            self._set(name, torch.cat([self._get(name), rows]))
        for u, e in [] if edge_index_del is None else edge_index_del.t().tolist():
            at = max(i for i, pair in enumerate(self.pairs) if pair == (u, e))
            del self.pairs[at]
        if edge_index_add is not None:
            self.pairs += [(u, e) for u, e in edge_index_add.t().tolist()]
        for name, (ids, rows) in (x_changes or {}).items():
            held = self._get(name).clone()
            for i, row in zip(ids, rows, strict=True):
                held[int(i)] = row
            self._set(name, held)
        for name, ids in (nodes_del or {}).items():
            end = int(name == "hyperedge")
            self.pairs = [pair for pair in self.pairs if pair[end] not in ids]
            for cleared in self.rows if end else ("x",):
                held = self._get(cleared).clone()
                held[ids] = 0
                self._set(cleared, held)

    def _get(self, name):
        return self.x if name == "x" else self.rows[name]

    def _set(self, name, rows):
        if name == "x":
            self.x = rows
        else:
            self.rows[name] = rows

    def edge_index(self):
        return index(self.pairs)

    def call(self, model):
        with torch.no_grad():
            return model(
                self.x.clone(), self.edge_index(), **{n: r.clone() for n, r in self.rows.items()}
            )


# Models ###########################################################################################


@dataclass(frozen=True)
class HyperCase:
    """One model of this zoo.

    Args:
        name: The id of the test.
        make: Makes the module.
        rows: What it takes for each hyperedge.
        scheme: What its program is to save.
        signed: Whether weights may be negative.
    """

    name: str
    make: Callable[[], nn.Module]
    rows: tuple = ()
    scheme: str = "incremental"
    signed: bool = False

    def __str__(self):
        return self.name


class TwoLayers(nn.Module):
    """Two convs, and a residual."""

    def __init__(self):
        super().__init__()
        self.first, self.second = HypergraphConv(CHANNELS, 6), HypergraphConv(6, CHANNELS)

    def forward(self, x, hyperedge_index, hyperedge_weight=None):
        h = self.first(x, hyperedge_index, hyperedge_weight).relu()
        return x + self.second(h, hyperedge_index, hyperedge_weight)


class Encoded(nn.Module):
    """The rows of the hyperedges are computed, and the graph has another name."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(CHANNELS, CHANNELS)
        self.conv = HypergraphConv(CHANNELS, OUT, use_attention=True, heads=2)

    def forward(self, x, edge_index, hyperedge_attr):
        return self.conv(x, edge_index, hyperedge_attr=self.encoder(hyperedge_attr).relu())


def conv(**options):
    return lambda: HypergraphConv(CHANNELS, OUT, **options)


def attention(**options):
    return conv(use_attention=True, heads=2, **options)


HYPER_CASES = [
    HyperCase("plain", conv()),
    HyperCase("no-bias", conv(bias=False)),
    HyperCase("weighted", conv(), (WEIGHT,)),
    HyperCase("signed", conv(), (WEIGHT,), signed=True),
    HyperCase("attr-ignored", conv(), (ATTR,)),
    *(HyperCase(f"plain-{aggr}", conv(aggr=aggr)) for aggr in ("mean", "max", "min")),
    HyperCase("plain-std", conv(aggr="std")),
    HyperCase("mean-weighted", conv(aggr="mean"), (WEIGHT,)),
    HyperCase("max-signed", conv(aggr="max"), (WEIGHT,), "constrained", signed=True),
    *(
        HyperCase(
            f"attention-{mode}{mark}", attention(attention_mode=mode, **options), rows,
            "constrained",
        )
        for mode in ("node", "edge")
        for mark, options, rows in (
            ("", {}, (ATTR,)),
            ("-weighted", {}, (WEIGHT, ATTR)),
            ("-averaged", {"concat": False, "negative_slope": 0.5}, (ATTR,)),
            ("-mean", {"aggr": "mean"}, (ATTR,)),
            ("-max", {"aggr": "max"}, (WEIGHT, ATTR)),
        )
    ),
    HyperCase("two-layers", TwoLayers),
    HyperCase("two-layers-weighted", TwoLayers, (WEIGHT,)),
    HyperCase("encoded", Encoded, (ATTR,), "constrained"),
]  # fmt: skip


# Deltas ###########################################################################################


def make_hyper(rng, case, dtype=torch.float64):
    """A random hypergraph with a duplicate, a hub at both ends, a lonely node and lonely ids."""
    pairs = some_pairs(rng, NODES - 1, HYPEREDGES - 1, 24)
    pairs += [(u, 0) for u in range(NODES // 2)] + [(0, e) for e in range(5)] + [pairs[0]]
    rows = {name: hyper_rows(rng, name, HYPEREDGES, case.signed, dtype) for name in case.rows}
    return HyperWorld(node_rows(rng, NODES, CHANNELS, dtype), pairs, rows)


def some_pairs(rng, nodes, hyperedges, count):
    ends = rng.integers(0, nodes, count), rng.integers(0, hyperedges, count)
    return [(int(u), int(e)) for u, e in zip(*ends, strict=True)]


def hyper_rows(rng, name, count, signed, dtype):
    if name == WEIGHT:
        return torch.from_numpy(rng.integers(-16 if signed else 1, 17, count) / 8).to(dtype)
    return node_rows(rng, count, CHANNELS, dtype)


def pick(rng, things, count):
    at = rng.choice(len(things), min(count, len(things)), replace=False) if things else []
    return [things[int(i)] for i in at]


def known(world):
    """How many ids of hyperedges a delta may name without making one."""
    return max(world.num_hyperedges, 1)


def add(world, rng):
    if not world.num_hyperedges and world.rows:
        return {}
    return {"edge_index_add": index(some_pairs(rng, len(world.x), known(world), 4))}


def delete(world, rng):
    return {"edge_index_del": index(pick(rng, world.pairs, 4))}


def delete_and_add(world, rng):
    gone = pick(rng, world.pairs, 3)
    return {"edge_index_del": index(gone), "edge_index_add": index(gone[:1] * 2)}


def last_pair_leaves(world, rng):
    """The largest hyperedge, or another one, loses all of its nodes."""
    which = {e for _, e in world.pairs}
    e = max(which, default=0) if rng.random() < 0.5 else next(iter(pick(rng, sorted(which), 1)), 0)
    return {"edge_index_del": index([pair for pair in world.pairs if pair[1] == e])}


def node_leaves_all(world, rng):
    u = int(rng.integers(len(world.x)))
    return {"edge_index_del": index([pair for pair in world.pairs if pair[0] == u])}


def change_features(world, rng):
    ids = pick(rng, list(range(len(world.x))), 2)
    return {"x_changes": {"x": (ids, node_rows(rng, len(ids), CHANNELS, world.x.dtype))}}


def change_rows(world, rng):
    changes = {}
    for name, rows in world.rows.items():
        ids = pick(rng, list(range(len(rows))), 2)
        signed = bool((world.rows.get(WEIGHT, torch.ones(1)) < 0).any())
        changes[name] = (ids, hyper_rows(rng, name, len(ids), signed, world.x.dtype))
    return {"x_changes": changes} if changes else {}


def new_nodes(world, rng):
    n = len(world.x)
    x_add = {"x": node_rows(rng, 2, CHANNELS, world.x.dtype)}
    return {"x_add": x_add, "edge_index_add": index([(n, 0), (n + 1, 0), (n, known(world) - 1)])}


def new_hyperedges(world, rng):
    m = world.num_hyperedges
    x_add = {name: hyper_rows(rng, name, 2, False, world.x.dtype) for name in world.rows}
    pairs = [(0, m + 1), (1, m), (2, m + 1)]
    return {**({"x_add": x_add} if x_add else {}), "edge_index_add": index(pairs)}


def remove_node(world, rng):
    return {"nodes_del": {"x": pick(rng, list(range(len(world.x))), 1)}}


def remove_hyperedge(world, rng):
    ids = pick(rng, list(range(world.seen)), 1)
    return {"nodes_del": {"hyperedge": ids}} if ids else {}


def all_leave(world, rng):
    return {"edge_index_del": index(world.pairs)}


def refill(world, rng):
    many = max(world.num_hyperedges, HYPEREDGES)
    return {"edge_index_add": index(some_pairs(rng, len(world.x), many, 30))}


def set_to(world, rng, value):
    ids, rows = change_features(world, rng)["x_changes"]["x"]
    rows[0, 0] = value
    return {"x_changes": {"x": (ids, rows)}}


def nan_comes(world, rng):
    return set_to(world, rng, float("nan"))


def infinity_comes(world, rng):
    return set_to(world, rng, float("inf"))


def not_finite_goes(world, rng):
    ids = (~world.x.isfinite()).any(1).nonzero().flatten().tolist()
    return {"x_changes": {"x": (ids, node_rows(rng, len(ids), CHANNELS, world.x.dtype))}}


def mixed(world, rng):
    """All kinds of change in one delta."""
    n, m = len(world.x), world.num_hyperedges
    gone = pick(rng, world.pairs, 3)
    delta = {
        "edge_index_del": index(gone),
        "edge_index_add": index([*some_pairs(rng, n + 1, m + 1, 4), (n, m)]),
        "x_add": {
            "x": node_rows(rng, 1, CHANNELS, world.x.dtype),
            **{name: hyper_rows(rng, name, 1, False, world.x.dtype) for name in world.rows},
        },
    }
    changes = change_features(world, rng)["x_changes"]
    delta["x_changes"] = {**changes, **change_rows(world, rng).get("x_changes", {})}
    delta["nodes_del"] = {"x": [int(rng.integers(n))], "hyperedge": [m]}
    return delta


CALM = (
    add, delete, delete_and_add, last_pair_leaves, node_leaves_all, change_features, change_rows,
    new_nodes, new_hyperedges, remove_node, remove_hyperedge, all_leave, mixed,
)  # fmt: skip
HYPER_DELTAS = {
    make.__name__: make for make in (*CALM, refill, nan_comes, infinity_comes, not_finite_goes)
}


def hyper_journey(rng, kinds=None):
    """Some kinds of delta in random order; what is not finite goes after a few steps."""
    plan = [make.__name__ for make in CALM] * 2
    rng.shuffle(plan)
    plan = plan[: kinds or strategies.some]
    for spoiler in ("nan_comes", "infinity_comes"):
        at = int(rng.integers(len(plan) - 3))
        plan[at:at] = [spoiler]
        plan[at + 3 : at + 3] = ["not_finite_goes"]
    steps = []
    for name in plan:
        steps += [str(name), "refill"] if name == "all_leave" else [str(name)]
    return steps


class GraphAndHypergraph(nn.Module):
    """A conv over a graph, and one over a hypergraph of the same nodes."""

    def __init__(self):
        super().__init__()
        self.near, self.far = GCNConv(CHANNELS, 6), HypergraphConv(6, OUT)

    def forward(self, x, edge_index, hyperedge_index):
        return self.far(self.near(x, edge_index).relu(), hyperedge_index)

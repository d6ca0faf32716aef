"""Makers of deltas on graphs with several types of nodes and edges.

Each takes a `HeteroWorld` and a NumPy generator and returns valid delta keywords.
"""

import torch

from tests import strategies
from tests.hetero_oracle import PAIR, HeteroWorld
from tests.strategies import index, node_rows

CHANNELS = {"user": 5, "item": 3, "tag": 4, "src": 5, "dst": 3}
RATES = ("user", "rates", "item")
BOUGHT = ("item", "bought_by", "user")
FOLLOWS = ("user", "follows", "user")
LABELS = ("tag", "labels", "item")
TYPES = (RATES, BOUGHT, FOLLOWS, LABELS)
"""The last one starts without an edge."""


def make_hetero(rng, *, types=TYPES, data=(), channels=None, dtype=torch.float64):
    """A random graph: a self-loop, a duplicate, isolated nodes, a hub, a relation without edges."""
    sizes = {"user": 11, "item": 8, "tag": 3, "src": 11, "dst": 8}
    channels = CHANNELS if channels is None else channels
    kinds = list(dict.fromkeys(kind for s, _, t in types for kind in (s, t)))
    x = {kind: node_rows(rng, sizes[kind], channels[kind], dtype) for kind in kinds}
    edges, rows = {}, {}
    for edge_type in types:
        source, _, target = edge_type
        pairs = random_pairs(rng, sizes[source] - 1, sizes[target] - 1, 2 * sizes[source])
        pairs += [(u, 0) for u in range(sizes[source] // 2)] + [pairs[0], pairs[0]]
        if source == target:
            pairs += [(2, 2)]
        edges[edge_type] = [] if edge_type == LABELS else pairs
        rows[edge_type] = {n: edge_rows(rng, len(edges[edge_type]), w, dtype) for n, w in data}
    return HeteroWorld(x, edges, rows)


# Building blocks ##################################################################################


def edge_rows(rng, count, width, dtype):
    """Edge data: weights when `width` is None, else that many columns."""
    if width is None:
        return torch.from_numpy(rng.integers(1, 17, count) / 8).to(dtype)
    return torch.from_numpy(rng.standard_normal((count, width))).to(dtype)


def random_pairs(rng, sources, targets, count):
    if not sources or not targets:
        return []
    ends = (rng.integers(0, sources, count), rng.integers(0, targets, count))
    return [(int(u), int(v)) for u, v in zip(*ends, strict=True)]


def pick(rng, values, count=1):
    count = min(count, len(values))
    return [values[i] for i in rng.choice(len(values), count, replace=False)] if count else []


def ends(world, edge_type):
    return world.num_nodes(edge_type[0]), world.num_nodes(edge_type[2])


def fresh_rows(world, rng, edge_type, count):
    made = {}
    for name, empty in world.empty[edge_type].items():
        width = None if empty.dim() == 1 else empty.size(1)
        made[name] = edge_rows(rng, count, width, empty.dtype)
    return made


def add(world, rng, pairs_by_type):
    """Keywords that add edges with fresh data."""
    delta = {"edge_index_add": {e: index(pairs) for e, pairs in pairs_by_type.items()}}
    for edge_type, pairs in pairs_by_type.items():
        for name, rows in fresh_rows(world, rng, edge_type, len(pairs)).items():
            delta.setdefault(f"{name}_add", {})[edge_type] = rows
    return delta


def change(world, rng, nodes_by_kind):
    x = world.x
    return {
        "x_changes": {
            kind: (torch.tensor(ids, dtype=torch.long),
                   node_rows(rng, len(ids), x[kind].size(1), x[kind].dtype))
            for kind, ids in nodes_by_kind.items()
        }
    }  # fmt: skip


def some_nodes(world, rng, count=2):
    return {kind: pick(rng, range(len(rows)), count) for kind, rows in world.x.items()}


def one_type(world, rng):
    return pick(rng, [e for e in world.edges if world.edges[e]] or list(world.edges))[0]


def loops(world):
    return [e for e in world.edges if e[0] == e[2]]


# Deltas by name ###################################################################################


def empty_delta(world, rng):
    return {}


def empty_arrays(world, rng):
    delta = add(world, rng, {e: [] for e in world.edges})
    delta["edge_index_del"] = {e: index([]) for e in world.edges}
    return {**delta, **change(world, rng, {kind: [] for kind in world.x})}


def change_one_kind(world, rng):
    kind = pick(rng, list(world.x))[0]
    return change(world, rng, {kind: pick(rng, range(world.num_nodes(kind)), 2)})


def change_every_kind(world, rng):
    return change(world, rng, some_nodes(world, rng))


def same_features(world, rng):
    kind = pick(rng, list(world.x))[0]
    return {"x_changes": {kind: (torch.tensor([0]), world.x[kind][:1].clone())}}


def add_in_one_type(world, rng):
    edge_type = one_type(world, rng)
    return add(world, rng, {edge_type: random_pairs(rng, *ends(world, edge_type), 3)})


def add_in_every_type(world, rng):
    return add(world, rng, {e: random_pairs(rng, *ends(world, e), 2) for e in world.edges})


def delete_in_one_type(world, rng):
    edge_type = one_type(world, rng)
    return {"edge_index_del": {edge_type: index(pick(rng, world.pairs(edge_type), 3))}}


def delete_in_every_type(world, rng):
    return {"edge_index_del": {e: index(pick(rng, world.pairs(e), 2)) for e in world.edges}}


def self_loops(world, rng):
    """Loops where both ends are of one type; elsewhere (i, i) is an edge like any other."""
    return add(world, rng, {e: [(1, 1), (0, 0)] for e in world.edges})


def self_loops_leave(world, rng):
    gone = {e: [(u, v) for u, v in world.pairs(e) if u == v] for e in world.edges}
    return {"edge_index_del": {e: index(pairs) for e, pairs in gone.items()}}


def duplicate_edges(world, rng):
    edge_type = one_type(world, rng)
    return add(world, rng, {edge_type: pick(rng, world.pairs(edge_type)) * 2})


def delete_then_add(world, rng):
    edge_type = one_type(world, rng)
    pairs = list(dict.fromkeys(pick(rng, world.pairs(edge_type), 2)))
    gone = {"edge_index_del": {edge_type: index(pairs)}}
    return {**gone, **add(world, rng, {edge_type: pairs})}


def last_neighbour_leaves(world, rng):
    """All edges into one node, over one relation only."""
    edge_type = one_type(world, rng)
    target = (pick(rng, world.pairs(edge_type)) or [(0, 0)])[0][1]
    pairs = [pair for pair in world.pairs(edge_type) if pair[1] == target]
    return {"edge_index_del": {edge_type: index(pairs)}}


def isolate_node(world, rng):
    """All edges of one node, at both ends and in every relation."""
    kind = pick(rng, list(world.x))[0]
    node = pick(rng, range(world.num_nodes(kind)))[0]
    gone = {}
    for edge_type in world.edges:
        source, _, target = edge_type
        gone[edge_type] = index(
            [
                (u, v)
                for u, v in world.pairs(edge_type)
                if (source == kind and u == node) or (target == kind and v == node)
            ]
        )
    return {"edge_index_del": gone}


def new_isolated_nodes(world, rng):
    kind = pick(rng, list(world.x))[0]
    rows = world.x[kind]
    return {"x_add": {kind: node_rows(rng, 2, rows.size(1), rows.dtype)}}


def new_nodes_with_edges(world, rng):
    """New nodes of every type, linked with old ones and with each other."""
    x = world.x
    pairs = {}
    for edge_type in world.edges:
        m, n = ends(world, edge_type)
        pairs[edge_type] = [(m, n), (m, int(rng.integers(n))), (int(rng.integers(m)), n)]
    x_add = {kind: node_rows(rng, 1, rows.size(1), rows.dtype) for kind, rows in x.items()}
    return {"x_add": x_add, **add(world, rng, pairs)}


def new_node_changed_and_removed(world, rng):
    new = {kind: [world.num_nodes(kind)] for kind in world.x}
    kind = pick(rng, list(world.x))[0]
    return {
        **new_nodes_with_edges(world, rng),
        **change(world, rng, new),
        "nodes_del": {kind: torch.tensor(new[kind])},
    }


def remove_node(world, rng):
    """Its edges leave in several relations, at both ends."""
    kind = pick(rng, list(world.x))[0]
    return {"nodes_del": {kind: torch.tensor(pick(rng, range(world.num_nodes(kind)), 1))}}


def remove_nodes_of_every_kind(world, rng):
    nodes = some_nodes(world, rng, 1)
    return {"nodes_del": {kind: torch.tensor(ids) for kind, ids in nodes.items()}}


def nan_comes(world, rng):
    delta = change_one_kind(world, rng)
    for _, rows in delta["x_changes"].values():
        rows[:1, 0] = float("nan")
    return delta


def infinity_comes(world, rng):
    delta = change_one_kind(world, rng)
    for _, rows in delta["x_changes"].values():
        rows[:1, 0] = float(rng.choice([-1.0, 1.0])) * float("inf")
    return delta


def not_finite_goes(world, rng):
    bad = {k: (~rows.isfinite()).any(1).nonzero().view(-1).tolist() for k, rows in world.x.items()}
    return change(world, rng, bad)


def change_edge_data(world, rng):
    changes = {}
    for edge_type, names in world.names.items():
        pairs = pick(rng, world.pairs(edge_type), 2)
        if names and pairs:
            changes[edge_type] = (index(pairs), fresh_rows(world, rng, edge_type, len(pairs)))
    return {"edge_changes": changes} if changes else {}


def undirected_mix(world, rng):
    """Both directions, in the relations that lead from a type to itself."""
    chosen = loops(world)
    if not chosen:
        return {}
    fresh = {e: random_pairs(rng, *ends(world, e), 2) for e in chosen}
    return {**add(world, rng, fresh), "undirected": True}


def missing_ignored(world, rng):
    gone = {e: random_pairs(rng, *ends(world, e), 5) + pick(rng, world.pairs(e)) * 3
            for e in world.edges}  # fmt: skip
    return {"edge_index_del": {e: index(p) for e, p in gone.items()}, "missing": "ignore"}


def a_relation_empties(world, rng):
    edge_type = one_type(world, rng)
    return {"edge_index_del": {edge_type: index(world.pairs(edge_type))}}


def all_edges_leave(world, rng):
    return {"edge_index_del": {e: index(world.pairs(e)) for e in world.edges}}


def refill(world, rng):
    fresh = {e: random_pairs(rng, *ends(world, e), 2 * sum(ends(world, e))) for e in world.edges}
    return add(world, rng, fresh)


def mixed(world, rng):
    """All kinds of change in one delta."""
    gone = {e: index(pick(rng, world.pairs(e), 2)) for e in world.edges}
    fresh = new_nodes_with_edges(world, rng)
    after = world.copy()
    after.apply(edge_index_del=gone, **fresh)
    return {
        "edge_index_del": gone,
        **fresh,
        **change(world, rng, some_nodes(world, rng)),
        **change_edge_data(after, rng),
        **remove_nodes_of_every_kind(after, rng),
    }


HETERO_DELTAS = {
    maker.__name__: maker
    for maker in (
        empty_delta, empty_arrays, change_one_kind, change_every_kind, same_features,
        add_in_one_type, add_in_every_type, delete_in_one_type, delete_in_every_type, self_loops,
        self_loops_leave, duplicate_edges, delete_then_add, last_neighbour_leaves, isolate_node,
        new_isolated_nodes, new_nodes_with_edges, new_node_changed_and_removed, remove_node,
        remove_nodes_of_every_kind, nan_comes, infinity_comes, not_finite_goes, change_edge_data,
        undirected_mix, missing_ignored, a_relation_empties, all_edges_leave, refill, mixed,
    )
}  # fmt: skip

SPOILERS = ("nan_comes", "infinity_comes", "not_finite_goes")


def hetero_journey(rng, kinds=None):
    """Some kinds of delta in random order; what is not finite goes again after a few steps."""
    plan = [name for name in HETERO_DELTAS if name not in (*SPOILERS, "refill")]
    rng.shuffle(plan)
    plan = plan[: kinds or strategies.some]
    for spoiler in ("nan_comes", "infinity_comes"):
        at = int(rng.integers(len(plan) - 3))
        plan[at:at] = [spoiler]
        plan[at + 3 : at + 3] = ["not_finite_goes"]
    if "all_edges_leave" in plan:
        plan.insert(plan.index("all_edges_leave") + 1, "refill")
    return [str(name) for name in plan]


def as_plain(delta, world):
    """A delta of a bipartite graph as it is written: edges without an edge type."""
    if list(world.edges) != [PAIR]:
        return delta
    return {
        field: value[PAIR] if isinstance(value, dict) and PAIR in value else value
        for field, value in delta.items()
    }

"""Makers of deltas: each takes a `World` and a NumPy generator and returns valid delta keywords.

Edge weights are multiples of 1/8, so that a sum of weights is exact in any order and a node whose
weights cancel has degree zero in every implementation, not a rounding error next to zero.
"""

import numpy as np
import torch

from tests.oracle import World

KINDS = 3  # relations of a graph with typed edges

# Building blocks ##################################################################################


def make_world(rng, *, nodes=12, edges=24, channels=5, data=(), fmt="coo", signed=False,
               dtype=torch.float64):  # fmt: skip
    """A random graph with a self-loop, a duplicate edge, an isolated node and a hub."""
    pairs = random_pairs(rng, nodes - 1, edges)
    pairs += [(v, 0) for v in range(1, nodes // 2)]
    pairs += [(2, 2), pairs[0], pairs[0]]
    if fmt in ("csr", "csc"):
        pairs = list(dict.fromkeys(pairs))
    values = {name: edge_rows(rng, len(pairs), width, signed, dtype) for name, width in data}
    x = node_rows(rng, nodes, channels, dtype)
    return World(x, pairs, values, fmt=fmt, signed=signed)


def random_pairs(rng, nodes, count):
    return [(int(u), int(v)) for u, v in rng.integers(0, nodes, (count, 2))]


def node_rows(rng, count, channels, dtype):
    return torch.from_numpy(rng.standard_normal((count, channels))).to(dtype)


def edge_rows(rng, count, width, signed, dtype):
    """Edge data: weights when `width` is None, types when it is "type", else that many columns."""
    if width == "type":
        return torch.from_numpy(rng.integers(0, KINDS, count))
    if width is None:
        low = -16 if signed else 1
        return torch.from_numpy(rng.integers(low, 17, count) / 8).to(dtype)
    return torch.from_numpy(rng.standard_normal((count, width))).to(dtype)


def index(pairs):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()


def new_data(world, rng, count):
    """Keywords with the data of `count` new edges."""
    return as_keywords(fresh_rows(world, rng, count))


def as_keywords(rows):
    """Data of new edges as keywords; what has no keyword of its own goes into `edge_data_add`."""
    own = {f"{name}_add": rows[name] for name in ("edge_weight", "edge_attr") if name in rows}
    if len(own) < len(rows):
        own["edge_data_add"] = {n: r for n, r in rows.items() if f"{n}_add" not in own}
    return own


def width_of(world, name):
    """What `edge_rows` is to make for the edge data `name` of a world."""
    empty = world.empty[name]
    if not empty.dtype.is_floating_point:
        return "type"
    return None if empty.dim() == 1 else empty.size(1)


def fresh_rows(world, rng, count):
    rows = {}
    for name in world.names:
        rows[name] = edge_rows(rng, count, width_of(world, name), world.signed, world.x.dtype)
    return rows


def add(world, rng, pairs, undirected=False):
    """Keywords that add `pairs`, without those a world may not hold twice."""
    if not world.multi:
        there = set(world.pairs())
        kept = []
        for u, v in pairs:
            if (u, v) not in there and not (undirected and (v, u) in there):
                kept.append((u, v))
                there |= {(u, v), (v, u)} if undirected else {(u, v)}
        pairs = kept
    return {"edge_index_add": index(pairs), **new_data(world, rng, len(pairs))}


def pick_edges(world, rng, count):
    """Some edges as pairs; a pair comes at most as often as it is there."""
    count = min(count, len(world.edges))
    at = rng.choice(len(world.edges), count, replace=False) if count else []
    return [world.edges[i]["pair"] for i in at]


def pick_nodes(world, rng, count):
    return rng.choice(world.num_nodes, min(count, world.num_nodes), replace=False).tolist()


def change_x(world, rng, nodes):
    rows = node_rows(rng, len(nodes), world.x.size(1), world.x.dtype)
    return {"x_changes": (torch.tensor(nodes, dtype=torch.long), rows)}


def in_edges(world, node):
    return [pair for pair in world.pairs() if pair[1] == node]


def hub_of(world):
    """The node with the most edges at its source end."""
    sources = [u for u, _ in world.pairs()] or [0]
    return max(set(sources), key=sources.count)


# Deltas by name ###################################################################################


def empty_delta(world, rng):
    return {}


def empty_arrays(world, rng):
    return {
        "edge_index_add": index([]),
        "edge_index_del": index([]),
        "x_changes": (torch.zeros(0, dtype=torch.long), world.x[:0].clone()),
        **new_data(world, rng, 0),
    }


def change_features(world, rng):
    return change_x(world, rng, pick_nodes(world, rng, 2))


def same_features(world, rng):
    node = pick_nodes(world, rng, 1)
    return {"x_changes": (torch.tensor(node), world.x[node].clone())}


def duplicate_ids_in_x(world, rng):
    node = pick_nodes(world, rng, 1)[0]
    return change_x(world, rng, [node, node, node])


def add_edges(world, rng):
    return add(world, rng, random_pairs(rng, world.num_nodes, 4))


def delete_edges(world, rng):
    return {"edge_index_del": index(pick_edges(world, rng, 4))}


def self_loops(world, rng):
    return add(world, rng, [(v, v) for v in pick_nodes(world, rng, 2)])


def self_loops_leave(world, rng):
    return {"edge_index_del": index([(u, v) for u, v in world.pairs() if u == v])}


def duplicate_edges(world, rng):
    pair = pick_edges(world, rng, 1)
    return add(world, rng, pair * 2)


def delete_then_add(world, rng):
    pairs = list(dict.fromkeys(pick_edges(world, rng, 2)))
    data = new_data(world, rng, len(pairs))
    return {"edge_index_del": index(pairs), "edge_index_add": index(pairs), **data}


def last_neighbour_leaves(world, rng):
    targets = [v for _, v in world.pairs()]
    if not targets:
        return {}
    return {"edge_index_del": index(in_edges(world, targets[int(rng.integers(len(targets)))]))}


def isolate_node(world, rng):
    node = pick_nodes(world, rng, 1)[0]
    return {"edge_index_del": index([pair for pair in world.pairs() if node in pair])}


def first_neighbour_comes(world, rng):
    targets = {v for _, v in world.pairs()}
    lonely = [v for v in range(world.num_nodes) if v not in targets]
    return add(world, rng, [(int(rng.integers(world.num_nodes)), v) for v in lonely[:2]])


def new_isolated_nodes(world, rng):
    return {"x_add": node_rows(rng, 2, world.x.size(1), world.x.dtype)}


def new_nodes_with_edges(world, rng):
    n = world.num_nodes
    pairs = [(n, n + 1), (n + 1, n), (n, int(rng.integers(n))), (int(rng.integers(n)), n + 1)]
    return {**new_isolated_nodes(world, rng), **add(world, rng, pairs)}


def new_node_changed_and_removed(world, rng):
    n = world.num_nodes
    return {
        **new_nodes_with_edges(world, rng),
        **change_x(world, rng, [n, n + 1]),
        "nodes_del": torch.tensor([n]),
    }


def remove_nodes(world, rng):
    return {"nodes_del": torch.tensor(pick_nodes(world, rng, 2), dtype=torch.long)}


def remove_hub(world, rng):
    return {"nodes_del": torch.tensor([hub_of(world)])}


def grow_hub(world, rng):
    hub = hub_of(world)
    return add(world, rng, [(hub, v) for v in range(world.num_nodes)])


def change_hub(world, rng):
    return change_x(world, rng, [hub_of(world)])


def ties(world, rng):
    """All in-neighbours of one node, and two more, get one and the same row."""
    if not world.edges:
        return {}
    target = world.edges[int(rng.integers(len(world.edges)))]["pair"][1]
    nodes = sorted({u for u, _ in in_edges(world, target)} | set(pick_nodes(world, rng, 2)))
    delta = change_x(world, rng, nodes)
    delta["x_changes"][1][:] = delta["x_changes"][1][0].clone()
    return delta


def ties_end(world, rng):
    """One of several equal in-neighbours leaves, another one drops below them."""
    return {**delete_edges(world, rng), **change_features(world, rng)}


def set_values(world, rng, value, nodes, columns=1):
    delta = change_x(world, rng, nodes)
    delta["x_changes"][1][:, :columns] = value
    return delta


def nan_comes(world, rng):
    return set_values(world, rng, float("nan"), pick_nodes(world, rng, 1))


def infinity_comes(world, rng):
    sign = float(rng.choice([-1.0, 1.0]))
    return set_values(world, rng, sign * float("inf"), pick_nodes(world, rng, 1))


def not_finite_goes(world, rng):
    nodes = (~world.x.isfinite()).any(1).nonzero().view(-1).tolist()
    return change_x(world, rng, nodes)


def negative_zero(world, rng):
    return set_values(world, rng, -0.0, pick_nodes(world, rng, 2), columns=world.x.size(1))


def positive_zero(world, rng):
    nodes = (world.x == 0).all(1).nonzero().view(-1).tolist()
    return set_values(world, rng, 0.0, nodes, columns=world.x.size(1))


def change_edge_data(world, rng):
    pairs = pick_edges(world, rng, 3)
    if not world.names or not pairs:
        return {}
    return {"edge_changes": (index(pairs), fresh_rows(world, rng, len(pairs)))}


def duplicate_edge_changes(world, rng):
    pairs = pick_edges(world, rng, 1) * 3
    if not world.names or not pairs:
        return {}
    return {"edge_changes": (index(pairs), fresh_rows(world, rng, len(pairs)))}


def change_of_a_new_edge(world, rng):
    delta = add(world, rng, random_pairs(rng, world.num_nodes, 2))
    count = delta["edge_index_add"].size(1)
    if not world.names or not count:
        return delta
    return {**delta, "edge_changes": (delta["edge_index_add"], fresh_rows(world, rng, count))}


def oldest_changes(world, rng):
    """The oldest of several edges of a pair gets other data, or leaves where there are none."""
    pairs = world.pairs()
    several = sorted({pair for pair in pairs if pairs.count(pair) > 1})
    if not several:
        return duplicate_edges(world, rng)
    some = [several[i] for i in rng.permutation(len(several))[:2]]
    if not world.names or rng.random() < 0.3:
        return {"edge_index_del": index(some), "which": "oldest"}
    return {"edge_changes": (index(some), fresh_rows(world, rng, len(some))), "which": "oldest"}


def zero_degree(world, rng):
    """The weights into one node come to zero (without weights: its edges leave)."""
    if "edge_weight" not in world.names or not world.edges:
        return last_neighbour_leaves(world, rng)
    target = world.edges[int(rng.integers(len(world.edges)))]["pair"][1]
    pairs = list(dict.fromkeys(in_edges(world, target)))
    weight = world.x.new_zeros(len(pairs))
    delta = {"edge_changes": (index(pairs), {"edge_weight": weight})}
    return delta


def undirected_mix(world, rng):
    both = [(u, v) for u, v in pick_edges(world, rng, 9) if (v, u) in set(world.pairs())]
    gone = list({tuple(sorted(pair)): pair for pair in both}.values())[:2]
    fresh = [(u, v) for u, v in random_pairs(rng, world.num_nodes, 3) if (v, u) not in gone]
    return {
        "edge_index_del": index(gone),
        **add(world, rng, fresh, undirected=True),
        "undirected": True,
    }


def missing_ignored(world, rng):
    pairs = random_pairs(rng, world.num_nodes, 6) + pick_edges(world, rng, 1) * 3
    delta = {"edge_index_del": index(pairs), "missing": "ignore"}
    if world.names:
        changed = random_pairs(rng, world.num_nodes, 3)
        delta["edge_changes"] = (index(changed), fresh_rows(world, rng, 3))
    return delta


def all_edges_leave(world, rng):
    return {"edge_index_del": index(world.pairs())}


def refill(world, rng):
    return add(world, rng, random_pairs(rng, world.num_nodes, 2 * world.num_nodes))


def mixed(world, rng):
    """All kinds of change in one delta."""
    n = world.num_nodes
    gone = pick_edges(world, rng, 3)
    fresh = add(world, rng, [*random_pairs(rng, n + 1, 5), (n, int(rng.integers(n)))])
    after = world.copy()
    x_add = node_rows(rng, 1, world.x.size(1), world.x.dtype)
    after.apply(edge_index_del=index(gone), x_add=x_add, **fresh)
    return {
        "edge_index_del": index(gone),
        **fresh,
        "x_add": x_add,
        **change_x(world, rng, pick_nodes(world, rng, 2)),
        **change_edge_data(after, rng),
        "nodes_del": torch.tensor(pick_nodes(after, rng, 1)),
    }


DELTAS = {
    maker.__name__: maker
    for maker in (
        empty_delta, empty_arrays, change_features, same_features, duplicate_ids_in_x, add_edges,
        delete_edges, self_loops, self_loops_leave, duplicate_edges, delete_then_add,
        last_neighbour_leaves, isolate_node, first_neighbour_comes, new_isolated_nodes,
        new_nodes_with_edges, new_node_changed_and_removed, remove_nodes, remove_hub, grow_hub,
        change_hub, ties, ties_end, nan_comes, infinity_comes, not_finite_goes, negative_zero,
        positive_zero, change_edge_data, duplicate_edge_changes, change_of_a_new_edge, zero_degree,
        undirected_mix, missing_ignored, all_edges_leave, refill, mixed,
    )
}  # fmt: skip
"""Kinds that may follow each other in one joined delta."""

SPOILERS = ("nan_comes", "infinity_comes", "not_finite_goes")


EVERY = len(DELTAS)
some = 6
"""How many kinds of delta a journey goes through if nobody says; `--all-cases`: all of them."""


def journey(rng, *, finite=False, rounds=1, kinds=None):
    """So many kinds of delta in random order; what is not finite goes again soon."""
    plan = []
    for _ in range(rounds):
        calm = [name for name in DELTAS if name not in SPOILERS]
        rng.shuffle(calm)
        calm = calm[: kinds or some]
        if not finite:
            for spoiler in ("nan_comes", "infinity_comes"):
                at = int(rng.integers(len(calm) - 3))
                calm[at:at] = [spoiler]
                calm[at + 3 : at + 3] = ["not_finite_goes"]
        # An empty graph must fill again, else all that follows says little.
        at = calm.index("all_edges_leave") if "all_edges_leave" in calm else None
        if "refill" in calm:
            calm.remove("refill")
        if at is not None:
            calm.insert(min(at + 2, len(calm)), "refill")
        plan += calm
    return [str(name) for name in plan]


def generator(seed):
    return np.random.default_rng(seed)

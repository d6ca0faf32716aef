"""The slow, obvious truth for models with any inputs: nodes, edges, pairs, graphs, several kinds.

A `Scene` holds what a model is called with as plain Python lists and tensors. It applies a change
one edge at a time, and answers with a full pass of the original model. It imports nothing of the
package under test.
"""

import copy
import warnings

import numpy as np
import torch

from tests.oracle import CACHES

RATES, RATED_BY = ("user", "rates", "item"), ("item", "rated_by", "user")
FOLLOWS = ("user", "follows", "user")
TYPES = (RATES, RATED_BY, FOLLOWS)
CHANNELS, KINDS, BARE = 5, 3, 16


class Scene:
    """What a model is called with.

    Args:
        nodes: Rows by name, for each kind of nodes; one kind, `""`, for a plain graph.
        edges: Lists of edges `{"pair": (u, v), name: row}` by graph: the name of the argument, or
            an edge type.
        empty: No rows of the edge data of each graph, by name.
        others: What no delta changes.

    Attributes:
        removed: Nodes of the only kind that were removed. Of graphs of several (`batch`) they have
            left theirs until a change puts them into one; else they are there again as soon as
            they are named.
    """

    def __init__(self, nodes, edges, empty, others=None):
        self.nodes, self.edges, self.empty, self.others = nodes, edges, empty, others or {}
        self.removed = frozenset()

    @property
    def is_plain(self):
        return list(self.nodes) == [""]

    def count(self, kind):
        """Number of nodes; a model without node inputs has a row of its own for each."""
        return len(next(iter(self.nodes[kind].values()), range(BARE)))

    def ends(self, graph):
        return (graph[0], graph[2]) if isinstance(graph, tuple) else ("", "")

    def pairs(self, graph):
        return [edge["pair"] for edge in self.edges[graph]]

    def left(self):
        """Whether each node of the only kind is there, bool `[num_nodes]`."""
        ids = torch.tensor(sorted(self.removed), dtype=torch.long)
        return torch.ones(self.count(""), dtype=torch.bool).index_fill(0, ids, False)

    # What a model is given #######################################################################

    def arguments(self):
        """Keywords of the model, tensors of their own."""
        index = {g: as_index(self.pairs(g)) for g in self.edges}
        data = {g: {n: self._data(g, n) for n in self.empty[g]} for g in self.edges}
        if self.is_plain:
            found = {n: rows.clone() for n, rows in self.nodes[""].items()}
            return {**found, **index, **{n: r for d in data.values() for n, r in d.items()},
                    **self.others}  # fmt: skip
        by_type = {g: i for g, i in index.items() if isinstance(g, tuple)}
        names = dict.fromkeys(n for d in data.values() for n in d)
        return {
            "x_dict": {kind: inputs["x"].clone() for kind, inputs in self.nodes.items()},
            "edge_index_dict": by_type,
            **{f"{n}_dict": {g: data[g][n] for g in by_type if n in data[g]} for n in names},
            **{g: i for g, i in index.items() if g not in by_type},
            **self.others,
        }

    def _data(self, graph, name):
        rows = [edge[name] for edge in self.edges[graph]]
        return torch.stack(rows) if rows else self.empty[graph][name].clone()

    def full(self, model, call):
        """The output of a copy of a model that has been called with nothing before."""
        return answer_of(model, call, self.arguments())

    def full_on_the_rest(self, model, call):
        """The same of a model that is given no removed node."""
        left, given = self.left(), self.arguments()
        place = left.cumsum(0) - 1
        given |= {name: rows[left] for name, rows in given.items() if name in self.nodes[""]}
        given |= {g: place[given[g]] for g in self.edges}
        return answer_of(model, call, given)

    # Changes #####################################################################################

    def apply(self, change):
        """This scene after a change, in the documented order; this one stays as it is."""
        after = copy.copy(self)
        after.nodes = {kind: dict(inputs) for kind, inputs in self.nodes.items()}
        after.edges = {graph: list(edges) for graph, edges in self.edges.items()}
        for kind, new in change.x_add.items():
            for name, rows in new.items():
                after.nodes[kind][name] = torch.cat([after.nodes[kind][name], rows])
        for graph, pairs in change.gone.items():
            for pair in pairs:
                del after.edges[graph][after._last(graph, pair)]
        for graph, (pairs, data) in change.added.items():
            for at, pair in enumerate(pairs):
                row = {n: rows[at] for n, rows in data.items()}
                after.edges[graph].append({"pair": pair, **row})
                if self.is_plain and "batch" not in self.nodes[""]:
                    after.removed -= {*pair}
        for kind, changed in change.x_changes.items():
            for name, (ids, rows) in changed.items():
                after.nodes[kind][name] = after.nodes[kind][name].index_copy(0, ids, rows)
                if name == "batch" or "batch" not in after.nodes[kind]:
                    after.removed -= {*ids.tolist()}
        for graph, (pairs, data) in change.other_data.items():
            for at, pair in enumerate(pairs):
                place = after._last(graph, pair)
                row = {n: rows[at] for n, rows in data.items()}
                after.edges[graph][place] = {**after.edges[graph][place], **row}
        for kind, ids in change.nodes_del.items():
            after._leave(kind, ids)
        return after

    def _last(self, graph, pair):
        return max(at for at, edge in enumerate(self.edges[graph]) if edge["pair"] == pair)

    def _leave(self, kind, ids):
        at = torch.tensor(ids, dtype=torch.long)
        for name, rows in self.nodes[kind].items():
            if name != "batch":  # it names graphs
                self.nodes[kind][name] = rows.index_fill(0, at, 0)
        if self.is_plain:
            self.removed |= {*ids}
        for graph, edges in self.edges.items():
            if "label" in graph:
                continue  # pairs that are watched stay
            own = [end == kind for end in self.ends(graph)]
            self.edges[graph] = [
                e for e in edges
                if not any(o and v in ids for o, v in zip(own, e["pair"], strict=True))
            ]  # fmt: skip


class Change:
    """One delta, as a `Scene` takes it, and as the package does (`keywords`)."""

    def __init__(self, x_add=None, gone=None, added=None, x_changes=None, other_data=None,
                 nodes_del=None):  # fmt: skip
        self.x_add, self.gone, self.added = x_add or {}, gone or {}, added or {}
        self.x_changes, self.other_data = x_changes or {}, other_data or {}
        self.nodes_del = nodes_del or {}

    def keywords(self, plain):
        """Keywords of `apply_delta`; of one kind of nodes (`plain`) by the names of arguments."""
        inputs = (lambda by_kind: by_kind.get("", {})) if plain else (
            lambda by_kind: {kind: named["x"] for kind, named in by_kind.items()}
        )  # fmt: skip
        found = {
            "x_add": inputs(self.x_add),
            "x_changes": inputs(self.x_changes),
            "nodes_del": {k: torch.tensor(ids) for k, ids in self.nodes_del.items()},
            "edge_index_del": {g: as_index(pairs) for g, pairs in self.gone.items()},
            "edge_index_add": {g: as_index(pairs) for g, (pairs, _) in self.added.items()},
            "edge_data_add": {g: data for g, (_, data) in self.added.items() if data},
            "edge_changes": {g: (as_index(p), data) for g, (p, data) in self.other_data.items()},
        }
        if plain and self.nodes_del:
            found["nodes_del"] = found["nodes_del"][""]
        return {name: value for name, value in found.items() if len(value)}


def set_apart(scene):
    """The same with removed nodes in one more graph, the last."""
    after = copy.copy(scene)
    batch = scene.nodes[""]["batch"]
    apart = torch.where(scene.left(), batch, batch[scene.left()].max() + 1)
    after.nodes = {"": {**scene.nodes[""], "batch": apart}}
    return after


def answer_of(model, call, arguments):
    model = without_caches(copy.deepcopy(model))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(model, arguments)


def as_index(pairs):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()


def without_caches(model):
    for module in model.modules():
        for name in CACHES:
            if hasattr(module, name):
                setattr(module, name, None)
    return model.eval()


# Rows #############################################################################################


def like(rng, rows, count):
    """Fresh rows in the manner of others: types for integers, coins for booleans."""
    shape = (count, *rows.shape[1:])
    if rows.dtype == torch.bool:
        return torch.from_numpy(rng.integers(0, 2, shape) > 0)
    if rows.dtype == torch.long:
        return torch.from_numpy(rng.integers(0, KINDS, shape))
    if rows.dim() == 1:  # weights: multiples of 1/8, whose sums are exact
        return torch.from_numpy(rng.integers(1, 17, count) / 8).to(rows.dtype)
    return torch.from_numpy(rng.standard_normal(shape)).to(rows.dtype)


def fresh(rng, empty, count):
    return {name: like(rng, rows, count) for name, rows in empty.items()}


def edges_of(rng, pairs, empty):
    data = fresh(rng, empty, len(pairs))
    return [{"pair": p, **{n: r[at] for n, r in data.items()}} for at, p in enumerate(pairs)]


def some(rng, values, count):
    values = list(values)
    at = rng.choice(len(values), min(count, len(values)), replace=False) if values else []
    return [values[i] for i in at]


# Changes by name ##################################################################################


class Changes:
    """Draws changes of a scene.

    Args:
        seed: Seed of the draw.
        fixed: Node inputs that never change, such as the number of a graph.
    """

    def __init__(self, seed, fixed=("batch",)):
        self.rng, self.fixed = np.random.default_rng(seed), fixed

    def pairs(self, scene, graph, count, more=0):
        """Random pairs, in one graph of a batch each; `more` new nodes are in reach of the rest."""
        source, target = scene.ends(graph)
        m, n = scene.count(source) + more, scene.count(target) + more
        batch = scene.nodes[source].get("batch")
        found = []
        for _ in range(count if m and n else 0):
            u, v = int(self.rng.integers(m)), int(self.rng.integers(n))
            if batch is not None:
                u = some(self.rng, scene.left().nonzero().view(-1).tolist(), 1)[0]
                peers = ((batch == batch[u]) & scene.left()).nonzero().view(-1)
                v = int(peers[int(self.rng.integers(len(peers)))])
            found.append((u, v))
        return found

    def added(self, scene, graphs, count=3, pairs=None):
        made = {}
        for g in graphs:
            own = self.pairs(scene, g, count) if pairs is None else pairs
            made[g] = (own, fresh(self.rng, scene.empty[g], len(own)))
        return made

    def features(self, scene):
        """Some rows of one input."""
        kind = some(self.rng, scene.nodes, 1)[0]
        names = [n for n in scene.nodes[kind] if n not in self.fixed]
        if not names or not scene.count(kind):
            return Change()
        name = some(self.rng, names, 1)[0]
        ids = some(self.rng, range(scene.count(kind)), 2)
        rows = like(self.rng, scene.nodes[kind][name], len(ids))
        return Change(x_changes={kind: {name: (torch.tensor(ids), rows)}})

    def add_edges(self, scene):
        return Change(added=self.added(scene, scene.edges))

    def delete_edges(self, scene):
        return Change(gone={g: some(self.rng, scene.pairs(g), 3) for g in scene.edges})

    def edge_data(self, scene):
        made = {}
        for g in scene.edges:
            pairs = list(dict.fromkeys(some(self.rng, scene.pairs(g), 2)))
            if pairs and scene.empty[g]:
                made[g] = (pairs, fresh(self.rng, scene.empty[g], len(pairs)))
        return Change(other_data=made)

    def new_nodes(self, scene):
        """Two nodes of every kind, and edges to and from them."""
        x_add = {}
        for kind, inputs in scene.nodes.items():
            x_add[kind] = {n: like(self.rng, rows, 2) for n, rows in inputs.items()}
            if "batch" in inputs:
                x_add[kind]["batch"] = inputs["batch"][[0, -1]]
        return self._linked(scene, x_add)

    def new_graph(self, scene):
        """Two nodes of a graph that is not there yet."""
        x_add = {"": {n: like(self.rng, rows, 2) for n, rows in scene.nodes[""].items()}}
        x_add[""]["batch"] = torch.full((2,), int(scene.nodes[""]["batch"].max()) + 1)
        return self._linked(scene, x_add)

    def other_graph(self, scene):
        """Two nodes go to another graph."""
        batch = scene.nodes[""]["batch"]
        ids = torch.tensor(some(self.rng, range(len(batch)), 2))
        return Change(x_changes={"": {"batch": (ids, batch[ids].flip(0))}})

    def _linked(self, scene, x_add):
        after, added = scene.apply(Change(x_add)), {}
        for g in scene.edges:
            source, target = scene.ends(g)
            m, n = scene.count(source), scene.count(target)
            pairs = [(m, n + 1), (m + 1, n), *self.pairs(after, g, 2)]
            if "batch" in x_add[source] and len(set(x_add[source]["batch"].tolist())) > 1:
                pairs = [(m, m), (m + 1, m + 1), *pairs[2:]]
            added[g] = (pairs, fresh(self.rng, scene.empty[g], len(pairs)))
        return Change(x_add, added=added)

    def remove_nodes(self, scene):
        return Change(nodes_del={k: some(self.rng, range(scene.count(k)), 2) for k in scene.nodes})

    def self_loops(self, scene):
        loops = [g for g in scene.edges if len(set(scene.ends(g))) == 1]
        a, b = [v for v in range(BARE) if v not in scene.removed][:2]
        return Change(added=self.added(scene, loops, pairs=[(b, b), (a, a), (b, b)]))

    def all_edges_leave(self, scene):
        return Change(gone={g: scene.pairs(g) for g in scene.edges})

    def refill(self, scene):
        return Change(added=self.added(scene, scene.edges, 25))

    def mixed(self, scene):
        """Features, new edges, edges that leave, other data."""
        gone = self.delete_edges(scene)
        added, rows = self.add_edges(scene), self.features(scene)
        data = self.edge_data(scene.apply(gone))
        return Change(gone=gone.gone, added=added.added, x_changes=rows.x_changes,
                      other_data=data.other_data)  # fmt: skip


EVERY = ("features", "add_edges", "mixed", "delete_edges", "edge_data", "new_nodes", "mixed",
         "remove_nodes", "self_loops", "all_edges_leave", "refill", "mixed")  # fmt: skip
SAME_NODES = tuple(name for name in EVERY if name not in ("new_nodes", "remove_nodes"))
OF_GRAPHS = ("features", "add_edges", "mixed", "delete_edges", "edge_data", "new_nodes",
             "new_graph", "remove_nodes", "other_graph", "self_loops", "all_edges_leave", "refill",
             "features", "mixed")  # fmt: skip


# Scenes ###########################################################################################


def a_graph(seed, *, nodes=16, edges=36, channels=CHANNELS, data=(), pairs=0, graphs=0, inputs=(),
            others=None):  # fmt: skip
    """One kind of nodes, with a self-loop, a duplicate edge and a node without edges.

    Args:
        seed: Seed of the draw.
        nodes: How many nodes.
        edges: How many edges.
        channels: Width of `x`; 0 for none.
        data: Names and widths of edge data: None for a weight, `"type"` for a type.
        pairs: How many pairs of an `edge_label_index` there are.
        graphs: How many graphs there are in `batch`; 0 for no batch.
        inputs: Names and widths of further node inputs: `"type"`, `"mask"`, or a number.
        others: Further arguments that no delta changes.
    """
    draw = Changes(seed)
    rows = {"x": torch.zeros(nodes, channels, dtype=torch.float64)} if channels else {}
    rows |= {name: empty_rows(width).expand(nodes, *empty_rows(width).shape[1:]).clone()
             if not isinstance(width, str) else empty_rows(width).new_zeros(nodes)
             for name, width in inputs}  # fmt: skip
    rows = {name: like(draw.rng, r, nodes) for name, r in rows.items()}
    if graphs:
        rows["batch"] = torch.arange(nodes) * graphs // nodes
    empty = {"edge_index": {name: empty_rows(width)[:0] for name, width in data}}
    if pairs:
        empty["edge_label_index"] = {}
    scene = Scene({"": rows}, {g: [] for g in empty}, empty, others)
    few = Scene({"": {n: r[: nodes - 1] for n, r in rows.items()}}, {}, {})
    listed = draw.pairs(few, "edge_index", edges)
    listed += [(2, 2), listed[0]]
    scene.edges["edge_index"] = edges_of(draw.rng, listed, empty["edge_index"])
    if pairs:
        scene.edges["edge_label_index"] = edges_of(
            draw.rng, draw.pairs(scene, "edge_label_index", pairs), {}
        )
    return scene


def empty_rows(width):
    """One row of an input of some width."""
    if width == "type":
        return torch.zeros(1, dtype=torch.long)
    if width == "mask":
        return torch.zeros(1, dtype=torch.bool)
    return torch.zeros(1, *([] if width is None else [width]), dtype=torch.float64)


def a_shop(seed, *, types=TYPES, data=(), pairs=0):
    """Users and items, and relations between them; `pairs` are of a user and an item."""
    draw = Changes(seed)
    kinds = list(dict.fromkeys(end for g in types for end in (g[0], g[2])))
    sizes, widths = {"user": 12, "item": 8}, {"user": CHANNELS, "item": 3}
    nodes = {k: {"x": like(draw.rng, torch.zeros(1, widths[k], dtype=torch.float64), sizes[k])}
             for k in kinds}  # fmt: skip
    empty = {g: {name: empty_rows(width)[:0] for name, width in data} for g in types}
    scene = Shop(nodes, {g: [] for g in types}, empty)
    if pairs:
        scene.edges["edge_label_index"], scene.empty["edge_label_index"] = [], {}
    for g in scene.edges:
        scene.edges[g] = edges_of(draw.rng, draw.pairs(scene, g, pairs or 25), scene.empty[g])
    return scene


class Shop(Scene):
    """A scene whose pairs are of a user and an item."""

    def ends(self, graph):
        return super().ends(graph) if isinstance(graph, tuple) else ("user", "item")

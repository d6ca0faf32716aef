"""Random objects of PyG, and how plain code keeps them current."""

import copy
import random
from dataclasses import dataclass, field

import torch
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

WRITES, REV = ("user", "writes", "post"), ("post", "rev", "user")
NODE_FIELDS = ("time", "age", "z", "pos", "node_weight", "h0", "mask_", "n_id", "Label", "y")
EDGE_FIELDS = ("rating", "edge_attr", "edge_weight", "edge_time", "w", "weight2", "msg_")
GRAPH_FIELDS = ("u", "temperature", "prototypes", "threshold")
PLAIN_FIELDS = ("scale", "flag", "name", "sizes", "count_", "kind_")
CHANNELS = 3


class Own(Data):
    """A user's own class, with a property and a method."""

    @property
    def doubled(self):
        return 2 * self.x

    def scaled(self, name):
        """Its features by a field, where that has a number or a row for each node."""
        held = self.get(name)
        if isinstance(held, torch.Tensor) and held.dim() and len(held) == len(self.x):
            return self.x * column(held)
        return self.x * held if isinstance(held, float) else self.x


def column(rows):
    """One number for each row, `[n, 1]`."""
    return rows.to(torch.float64).reshape(rows.shape[0], -1).sum(1, keepdim=True)


@dataclass
class World:
    """An object, and which of its fields have a row for each node or edge.

    Attributes:
        data: The object as it is now.
        nodes: The fields with a row for each node, by type (None where there is one only).
        edges: The fields with a row for each edge, likewise.
        removed: The nodes that were removed, by type.
    """

    data: object
    nodes: dict = field(default_factory=dict)
    edges: dict = field(default_factory=dict)
    removed: dict = field(default_factory=dict)

    def store(self, key):
        return self.data if key is None else self.data[key]

    def count(self, kind):
        return self.store(kind)["x"].shape[0]

    def ends(self, key):
        """The types of nodes that an edge type joins."""
        return (None, None) if key is None else (key[0], key[-1])

    def edge_index(self, key):
        if isinstance(self.data, TemporalData):
            return torch.stack([self.data.src, self.data.dst])
        return self.store(key)["edge_index"]

    def is_ours(self):
        return not isinstance(self.data, TemporalData)


def rows_of(draw, name, count):
    """Rows of a field: numbers, ids or truth values, one or two to each node or edge."""
    g = torch.Generator().manual_seed(draw.randrange(1 << 30))
    if name == "mask_":
        return torch.rand(count, generator=g) < 0.5
    if name in ("z", "n_id", "Label"):
        return torch.randint(5, (count,), generator=g)
    shape = (count, 2) if name in ("pos", "edge_attr", "h0") else (count,)
    return torch.rand(shape, generator=g, dtype=torch.float64) + 0.5


def features(draw, count):
    g = torch.Generator().manual_seed(draw.randrange(1 << 30))
    return torch.randn(count, CHANNELS, generator=g, dtype=torch.float64)


def edges_between(draw, source, target, count):
    g = torch.Generator().manual_seed(draw.randrange(1 << 30))
    ends = (torch.randint(n, (count,), generator=g) for n in (source, target))
    return torch.stack([*ends])


def extras(draw, put):
    """Fields of graph and plain kind."""
    for name in draw.sample(GRAPH_FIELDS, draw.randrange(3)):
        shape = {"u": (1, CHANNELS), "temperature": (), "prototypes": (4, CHANNELS)}.get(name, (1,))
        put(name, torch.full(shape, draw.uniform(0.5, 2), dtype=torch.float64))
    for name in draw.sample(PLAIN_FIELDS, draw.randrange(4)):
        values = {"scale": draw.uniform(0.5, 2), "flag": draw.random() < 0.5, "name": "graph"}
        more = {"sizes": [1, 2, draw.randrange(5)], "count_": draw.randrange(2, 6)}
        more["kind_"] = ("a", 1)
        put(name, {**values, **more}[name])


def homogeneous(draw, kind=Data, count=None):
    nodes, edges = count or draw.randrange(6, 14), draw.randrange(15, 30)
    data, fields = kind(), [("x", features(draw, nodes))]
    fields.append(("edge_index", edges_between(draw, nodes, nodes, edges)))
    names = draw.sample(NODE_FIELDS, draw.randrange(5)), draw.sample(EDGE_FIELDS, draw.randrange(4))
    fields += [(n, rows_of(draw, n, nodes)) for n in names[0]]
    fields += [(n, rows_of(draw, n, edges)) for n in names[1]]
    extras(draw, lambda name, value: fields.append((name, value)))
    if draw.random() < 0.3:
        fields.append(("num_nodes", nodes))
    draw.shuffle(fields)
    for name, value in fields:
        data[name] = value
    return World(data, {None: ["x", *names[0]]}, {None: list(names[1])})


def batched(draw):
    first = homogeneous(draw)
    worlds = [first]
    for _ in range(draw.randrange(1, 3)):
        other, count = copy.copy(first.data), draw.randrange(4, 9)
        edges = draw.randrange(9, 16)
        for name in list(other.keys()):
            if name in first.nodes[None]:
                made = features(draw, count) if name == "x" else rows_of(draw, name, count)
            elif name == "edge_index":
                made = edges_between(draw, count, count, edges)
            elif name == "num_nodes":
                made = count
            elif name in first.edges[None]:
                made = rows_of(draw, name, edges)
            else:
                continue
            other[name] = made
        worlds.append(World(other))
    data = Batch.from_data_list([w.data for w in worlds])
    return World(data, {None: [*first.nodes[None], "batch"]}, first.edges)


def heterogeneous(draw):
    data, world = HeteroData(), World(None)
    counts = {"user": draw.randrange(6, 14), "post": draw.randrange(5, 12)}
    extras(draw, lambda name, value: setattr(data, name, value))
    for kind in draw.sample([*counts], 2):
        names = draw.sample(NODE_FIELDS, draw.randrange(4))
        data[kind].x = features(draw, counts[kind])
        for name in names:
            data[kind][name] = rows_of(draw, name, counts[kind])
        if draw.random() < 0.3:
            data[kind].num_nodes = counts[kind]
        if draw.random() < 0.3:
            data[kind].batch_size = draw.randrange(2, 5)
        world.nodes[kind] = ["x", *names]
    for key in draw.sample([WRITES, REV], 2):
        edges = draw.randrange(15, 30)
        names = draw.sample(EDGE_FIELDS, draw.randrange(3))
        data[key].edge_index = edges_between(draw, counts[key[0]], counts[key[-1]], edges)
        for name in names:
            data[key][name] = rows_of(draw, name, edges)
        world.edges[key] = list(names)
    world.data = data
    return world


def temporal(draw):
    nodes, events = draw.randrange(6, 14), draw.randrange(15, 30)
    src, dst = edges_between(draw, nodes, nodes, events)
    more = draw.sample(EDGE_FIELDS, draw.randrange(3))
    fields = {n: rows_of(draw, n, events) for n in more}
    t = torch.arange(events, dtype=torch.float64)
    data = TemporalData(src=src, dst=dst, t=t, msg=rows_of(draw, "edge_attr", events), **fields)
    return World(data, {}, {None: ["t", "msg", *more]}), features(draw, nodes)


def draw_of(seed):
    return random.Random(seed)

"""Random models that take an object, and read it in random ways."""

import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.nn import GraphConv, HeteroConv, SAGEConv, global_add_pool

from tests.fuzz.calls.readers import COUNTS, STORE_WAYS, WAYS
from tests.fuzz.calls.world import (
    CHANNELS,
    EDGE_FIELDS,
    GRAPH_FIELDS,
    NODE_FIELDS,
    PLAIN_FIELDS,
    REV,
    WRITES,
    Own,
    column,
)

OUT = 4


def applied(rows, value):
    """Rows changed by whatever a field holds."""
    if value is None:
        return rows - 0.25
    if isinstance(value, torch.Tensor):
        if value.dim() and value.shape[0] == rows.shape[0] and value.dim() < 3:
            return rows * (1 + column(value))
        return rows + value.to(rows.dtype).sum()
    if isinstance(value, (bool, str)):
        return -rows if value in (True, "graph") else rows
    return rows * (value if isinstance(value, (int, float)) else 0.5 * len(value))


class Reader(nn.Module):
    """Reads fields of its object, convolves, and reads out or returns what it was drawn to.

    Attributes:
        reads: What it reads: the way, the type (None where there is one only), and the field.
        counts: Which numbers it asks for.
        weight: The field by which it weighs edges, and the way and type, or None.
        ends: What it returns.
    """

    def __init__(self, reads, counts, weight, ends):
        super().__init__()
        self.reads, self.counts, self.weight, self.ends = reads, counts, weight, ends
        self.conv, self.last = GraphConv(CHANNELS, OUT), SAGEConv(OUT, OUT)

    def weights(self, data, key=None):
        if self.weight is None or self.weight[1] != key:
            return None
        found = self.read(data, self.weight)
        return None if found is None else column(found).flatten()

    def read(self, data, how):
        way, key, name = how
        return WAYS[way](data, name) if key is None else STORE_WAYS[way](data, key, name)

    def features(self, data):
        x = data.x
        for how in self.reads:
            x = applied(x, self.read(data, how))
        for way in self.counts:
            x = x / (COUNTS[way](data) + 1)
        return x

    def answer(self, data):
        x = self.features(data)
        h = self.conv(x, data.edge_index, self.weights(data)).relu()
        h = self.last(h, data.edge_index)
        return self.returned(data, h)

    def returned(self, data, h):
        if self.ends == "object":
            data.x = h
            return data
        if self.ends == "tuple":
            return h, data.edge_index.shape[1] * h
        if self.ends == "dict":
            return {"rows": h, "x": data.x}
        if self.ends == "pool":
            return global_add_pool(h, data.batch, data.num_graphs)
        if self.ends == "pool by size":
            return global_add_pool(h, data.batch, size=data.batch_size)
        if self.ends == "pool by batch":
            return global_add_pool(h, data.batch)
        return h


class OwnReader(Reader):
    """Calls a property and a method of the user's own class."""

    def features(self, data):
        return super().features(data) + data.doubled + data.scaled(self.reads[0][2])


class EventReader(Reader):
    """Takes events, and features of the nodes beside them."""

    def answer(self, data, x):
        for way, _, name in self.reads:
            found = WAYS[way](data, name)
            if found is None or found.dim():  # a field of events
                x = x + (0 if found is None else column(found).mean())
        weights = data.t * column(data.msg).flatten()
        return self.last(self.conv(x, data.edge_index, weights).relu(), data.edge_index)


class TypedReader(Reader):
    """Takes several types of nodes and edges."""

    def __init__(self, *drawn):
        super().__init__(*drawn)
        self.conv = HeteroConv({t: GraphConv(CHANNELS, OUT) for t in (WRITES, REV)})

    def answer(self, data):
        x = dict(data.x_dict)
        for how in self.reads:
            kind = how[1] if isinstance(how[1], str) else "user"
            if isinstance(how[1], tuple):
                continue
            x[kind] = applied(x[kind], self.read(data, how))
        for way in self.counts:
            x["post"] = x["post"] / (COUNTS[way](data) + 1)
        weights = {t: self.weights(data, t) for t in (WRITES, REV)}
        weights = {t: w for t, w in weights.items() if w is not None}
        more = {"edge_weight_dict": weights} if weights else {}
        h = self.conv(x, data.edge_index_dict, **more)
        if self.ends == "seeds":
            return h["post"][: data["post"].get("batch_size")]
        if self.ends == "object":
            for kind, rows in h.items():
                data[kind].x = rows
            return data
        return h["post"] if self.ends == "one" else h


def signature(base, form):
    """The model with one of several forms of `forward`."""

    class Called(base):
        pass

    events = issubclass(base, EventReader)

    def plain(self, data):
        return self.answer(data)

    def batch(self, batch):
        return self.answer(batch)

    def graph(self, g):
        return self.answer(g)

    def hinted(self, batch: Data):
        return self.answer(batch)

    def hinted_widely(self, x: Data | HeteroData | Batch):
        return self.answer(x)

    def named_only(self, *, inputs):
        return self.answer(inputs)

    def with_more(self, data, scale=1.0, flag=None):
        return self.answer(data)

    def tensor_first(self, h, data):
        return self.answer(data, h) if events else self.answer(data)

    def event_first(self, events, x):
        return self.answer(events, x)

    forms = {f.__name__: f for f in (plain, batch, graph, hinted, hinted_widely, named_only,
                                     with_more, tensor_first, event_first)}  # fmt: skip
    Called.forward = forms[form]
    Called.__name__ = f"{base.__name__}_{form}"
    return Called


FORMS = {
    "plain": "data", "batch": "batch", "graph": "g", "hinted": "batch", "hinted_widely": "x",
    "named_only": "inputs", "with_more": "data",
}  # fmt: skip


def drawn(draw, world):
    """A model for an object, and how it is called."""
    data = world.data
    typed, events = isinstance(data, HeteroData), isinstance(data, TemporalData)
    base = TypedReader if typed else EventReader if events else Reader
    if type(data) is Own:
        base = OwnReader
    ways, reads = [*(STORE_WAYS if typed else WAYS)], []
    if events:
        ways = ["get", "in", "hasattr", "getattr", "to_dict", "stores", "copy", "try", "mapping"]
    names = (*NODE_FIELDS, *GRAPH_FIELDS, *PLAIN_FIELDS)
    for _ in range(draw.randrange(1, 5)):
        key = draw.choice(["user", "post"]) if typed else None
        reads.append((draw.choice(ways), key, draw.choice(EDGE_FIELDS if events else names)))
    weight = None
    if draw.random() < 0.5 and not events:
        weight = draw.choice(ways), draw.choice([WRITES, REV]) if typed else None, None
        weight = (*weight[:2], draw.choice(EDGE_FIELDS))
    counts = draw.sample([*COUNTS], draw.choice([0, 0, 1, 2])) if not events else []
    ends = ["rows", "rows", "tuple", "object", "dict"]
    if isinstance(data, Batch):
        ends = ["rows", "object", "pool", "pool by size", "pool by batch"]
    if typed:
        ends = ["one", "all", "seeds", "object"]
    form = draw.choice(["tensor_first", "event_first"]) if events else draw.choice([*FORMS])
    model = signature(base, form)(reads, counts, weight, draw.choice(ends))
    return model.double().eval(), form

"""One random call and its deltas, held against the model on the user's own object."""

import copy
import warnings
from typing import NamedTuple

import torch
from torch_geometric.data import Batch, Data, HeteroData, TemporalData

from pyg_incremental import to_incremental
from pyg_incremental.errors import IncrementalError
from tests.fuzz.calls import models
from tests.fuzz.calls import world as worlds
from tests.fuzz.calls.world import Own, World

DELTAS = 3


class Outcome(NamedTuple):
    """What has come of a call.

    Attributes:
        kind: `'right'`, `'refused'`, `'wrong'`, or `'raised'` where the model itself does.
        why: What was said, or differs.
        mode: How it was computed.
        deltas: How many deltas were followed.
    """

    kind: str
    why: str = ""
    mode: str = ""
    deltas: int = 0


class Call:
    """A model, and what it is called with."""

    def __init__(self, seed):
        self.draw = draw = worlds.draw_of(seed)
        kind = draw.choice(["Data", "Data", "Own", "Batch", "HeteroData", "HeteroData", "events"])
        self.x = None
        if kind == "events":
            self.world, self.x = worlds.temporal(draw)
        elif kind == "HeteroData":
            self.world = worlds.heterogeneous(draw)
        elif kind == "Batch":
            self.world = worlds.batched(draw)
        else:
            self.world = worlds.homogeneous(draw, Own if kind == "Own" else Data)
        torch.manual_seed(seed)
        self.model, self.form = models.drawn(draw, self.world)
        self.by_name = self.form == "named_only" or draw.random() < 0.3

    def arguments(self):
        data = self.world.data
        if self.form in ("tensor_first", "event_first"):
            return ((self.x, data) if self.form == "tensor_first" else (data, self.x)), {}
        if self.by_name:
            return (), {models.FORMS[self.form]: data}
        return (data,), {}

    def expected(self):
        """What the model says of the user's own object."""
        args, kwargs = self.arguments()
        args = [copy.copy(a) if not isinstance(a, torch.Tensor) else a for a in args]
        kwargs = {k: copy.copy(v) for k, v in kwargs.items()}
        with torch.no_grad():
            return self.model(*args, **kwargs)

    # Deltas --------------------------------------------------------------------------------------

    def delta(self):
        """A mixed delta, as keywords; the object is made current at once, by plain code."""
        world, draw, said = self.world, self.draw, {}
        data = copy.copy(world.data)
        for kind in self.kinds():
            if draw.random() < 0.5:
                self._nodes(data, kind, said)
        for key in world.edges:
            if draw.random() < 0.8:
                self._edges(data, key, said)
        self.world = World(data, world.nodes, world.edges, world.removed)
        if isinstance(data, Batch):
            sizes = torch.bincount(data.batch, minlength=data.num_graphs)
            data.ptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        return said

    def kinds(self):
        return [None] if self.x is not None else [*self.world.nodes]

    def _nodes(self, data, kind, said):
        draw = self.draw
        if self.x is not None:  # the features of events are an argument of their own
            at = draw.randrange(len(self.x))
            row = worlds.features(draw, 1)
            self.x = self.x.clone()
            self.x[at] = row[0]
            said["x_changes"] = ([at], row)
            return
        store, count = data if kind is None else data[kind], self.world.count(kind)
        fields = self.world.nodes[kind]
        name = draw.choice(fields)
        if name != "batch":
            at = draw.randrange(count)
            row = self._rows(name, 1, store)
            rows = store[name].clone()
            rows[at] = row[0]
            store[name] = rows
            part = said.setdefault("x_changes", {})
            part.setdefault(*((name, ([at], row)) if kind is None else (kind, {name: ([at], row)})))
        if draw.random() < 0.6:
            more = draw.randrange(1, 3)
            new = {name: self._rows(name, more, store) for name in fields}
            for name, rows in new.items():
                store[name] = torch.cat([store[name], rows])
            if "num_nodes" in store:
                store["num_nodes"] = count + more
            said.setdefault("x_add", {}).update(new if kind is None else {kind: new})

    def _rows(self, name, count, store):
        if name == "x":
            return worlds.features(self.draw, count)
        if name == "batch":
            most = int(store["batch"].max())
            return torch.tensor([self.draw.randrange(most + 1) for _ in range(count)])
        return worlds.rows_of(self.draw, name, count)

    def _edges(self, data, key, said):
        draw, world = self.draw, self.world
        store = data if key is None else data[key]
        edges, names = world.edge_index(key), world.edges[key]
        gone = edges[:, draw.sample(range(edges.shape[1]), draw.randrange(3))]
        stays = torch.ones(edges.shape[1], dtype=torch.bool)
        for pair in gone.t():
            at = ((edges == pair[:, None]).all(0) & stays).nonzero().flatten()
            stays[at[-1]] = False  # the newest of them
        source, target = (
            (len(self.x),) * 2 if self.x is not None else
            [self._total(data, kind) for kind in world.ends(key)]
        )  # fmt: skip
        new = worlds.edges_between(draw, source, target, draw.randrange(1, 3))
        rows = {n: self._edge_rows(n, new.shape[1]) for n in names}
        edges = torch.cat([edges[:, stays], new], 1)
        for name, more in rows.items():
            store[name] = torch.cat([store[name][stays], more])
        if isinstance(data, TemporalData):
            store.src, store.dst = edges
        else:
            store.edge_index = edges
        parts = {"edge_index_add": new, "edge_data_add": rows or None, "edge_index_del": gone}
        for field, part in parts.items():
            if part is None or (field == "edge_index_del" and not part.numel()):
                continue
            if key is None:
                said[field] = part
            else:
                said.setdefault(field, {})[key] = part

    def _edge_rows(self, name, count):
        if name == "t":
            return torch.full((count,), 50.0, dtype=torch.float64)
        return worlds.rows_of(self.draw, "edge_attr" if name == "msg" else name, count)

    def _total(self, data, kind):
        return (data if kind is None else data[kind])["x"].shape[0]


def difference(ours, theirs):
    """By how much two answers differ; a text where they are of two kinds."""
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, torch.Tensor) or ours.shape != theirs.shape:
            return f"{getattr(ours, 'shape', type(ours).__name__)} for {tuple(theirs.shape)}"
        if ours.dtype != theirs.dtype:
            return f"{ours.dtype} for {theirs.dtype}"
        both, scale = (ours.double() - theirs.double()).abs(), 1 + theirs.double().abs().max()
        return float((both / scale).max()) if both.numel() else 0.0
    if isinstance(theirs, (Data, HeteroData)):
        if type(ours) is not type(theirs):
            return f"{type(ours).__name__} for {type(theirs).__name__}"
        return difference(ours.to_dict(), theirs.to_dict())
    if isinstance(theirs, dict):
        if list(ours) != list(theirs):
            return f"{list(ours)} for {list(theirs)}"
        return worst(difference(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (tuple, list)):
        if len(ours) != len(theirs):
            return f"{len(ours)} parts for {len(theirs)}"
        return worst(difference(a, b) for a, b in zip(ours, theirs, strict=True))
    return 0.0 if ours == theirs else f"{ours!r} for {theirs!r}"


def worst(found):
    found = [*found]
    texts = [f for f in found if isinstance(f, str)]
    return texts[0] if texts else max(found, default=0.0)


def compared(call, inc, at):
    try:
        off = difference(inc.out, call.expected())
    except IncrementalError as error:  # a list in an object that is returned
        return Outcome("refused", f"{type(error).__name__}: {error}", inc.mode)
    if isinstance(off, str) or not off < 1e-9:
        return Outcome("wrong", f"{at}: off by {off}", inc.mode)
    checked = inc.verify()
    if not checked < 1e-9:
        return Outcome("wrong", f"{at}: verify() says {checked}", inc.mode)
    return None


def run(seed):
    """Draw a call by its seed, and follow it."""
    call = Call(seed)
    inc = to_incremental(call.model)
    args, kwargs = call.arguments()
    before = [copy.copy(a) for a in (*args, *kwargs.values()) if not isinstance(a, torch.Tensor)]
    try:
        call.expected()
    except Exception as error:
        return Outcome("raised", f"{type(error).__name__}: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            inc(*args, **kwargs)
        except IncrementalError as error:
            return Outcome("refused", f"{type(error).__name__}: {error}")
        except Exception as error:
            return Outcome("wrong", f"first call: {type(error).__name__}: {error}")
        if not untouched(before, args, kwargs):
            return Outcome("wrong", "the user's object was changed", inc.mode)
        bad = compared(call, inc, "first call")
        for number in range(DELTAS):
            if bad is not None:
                return bad
            said = call.delta()
            try:
                expected = call.expected()
            except Exception:  # the model cannot say it either
                return Outcome("right", "", inc.mode, number)
            del expected
            try:
                inc.apply_delta(**said)
            except IncrementalError as error:
                return Outcome("refused", f"{type(error).__name__}: {error}", inc.mode, number)
            except Exception as error:
                why = f"delta {number}: {type(error).__name__}: {error}"
                return Outcome("wrong", why, inc.mode, number)
            bad = compared(call, inc, f"after delta {number}")
    return bad or Outcome("right", "", inc.mode, DELTAS)


def untouched(before, args, kwargs):
    """Whether the objects hold what they held."""
    now = [a for a in (*args, *kwargs.values()) if not isinstance(a, torch.Tensor)]
    return all(
        a.keys() == b.keys() and difference(a.to_dict(), b.to_dict()) == 0.0
        for a, b in zip(before, now, strict=True)
    )

"""The edges that have come as events and are there, and the features of nodes made of them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.stream.by_type import ByType
from pyg_incremental.stream.changes import Changes
from pyg_incremental.stream.feature import Contribution, FeatureState
from pyg_incremental.stream.schema import AnySchema, Rows, Type, ends_of
from pyg_incremental.stream.window import Window, Windows

Node = tuple[Type, Any]
"""A node: its type, and its number or its name."""


class Edge(NamedTuple):
    """An edge that came as an event.

    Attributes:
        time: The event time; 0 where events have none.
        number: Which one it was.
        type: Its type.
        ends: Its nodes.
        values: The fields that features are made of, as in `Schema.fields`.
    """

    time: float
    number: int
    type: Type
    ends: tuple[Node, Node]
    values: tuple[float, ...]


class LiveEdges:
    """Follows the edges of events, and puts the features that they make into deltas.

    What `take` does is taken back by `take_back`, until `keep` says that the delta is in.

    Args:
        inc: The model.
        schema: Declares the features.
        windows: The windows over event times, by type of edges.
        view: The nodes of the model by type.
    """

    def __init__(
        self, inc: IncrementalModel, schema: AnySchema, windows: Windows, view: ByType
    ) -> None:
        self._inc, self._schema, self._view = inc, schema, view
        made = [(of, f) for of, own in schema.types.items() for f in own.features]
        self._types, self._features = [of for of, _ in made], [f for _, f in made]
        lengths = [f.within for f in self._features]
        self._windows = [None if length is None else Window(length) for length in lengths]
        of_edges = {of: window for of, window in windows.items() if of in self._types}
        self._types += of_edges
        self._windows += of_edges.values()  # behind those of features are those of the edges
        self._at = {of: [n for n, t in enumerate(self._types) if t == of] for of in schema.types}
        self._made: dict[Type, list[int]] = {}
        for n, (of, feature) in enumerate(made):
            for node in {*feature.ends(ends_of(of))}:
                self._made.setdefault(node, []).append(n)
        self._begins = [-math.inf] * len(self._windows)
        self._leaving: list[list[tuple[float, int]]] = [[] for _ in self._windows]
        self._edges: dict[int, Edge] = {}
        self._of_pair: dict[Any, list[int]] = {}
        self._pairs_at: dict[Node, dict[Any, None]] = {}
        self._kept: list[dict[Node, FeatureState]] = [{} for _ in self._features]
        self._base: dict[Node, list[float]] = {}
        self._next = 0
        self._undo: list[tuple[Callable[..., Any], Any]] = []
        self._touched: dict[Node, None] = {}
        self._version: int | None = None

    # Events --------------------------------------------------------------------------------------

    def take(self, changes: Changes, latest: float) -> Changes:
        """The same changes, with the features that follow from them.

        Args:
            changes: What events do.
            latest: The latest event time after them.

        Raises:
            IncrementalError: If the model took another delta, or was called or compacted, since.
        """
        if self._version not in (None, self._inc.version):
            raise IncrementalError(
                "Stream: features are made of its events alone, and stream.inc took something else "
                f"(expected version {self._version}, got {self._inc.version}); send all changes "
                "through the source, or begin another Stream"
            )
        self.take_back()
        self._touched = {}
        gone: list[Node] = []
        for _, kind, of, nodes, values in sorted(_events(changes), key=lambda event: event[0]):
            if kind == "node_del":
                gone += nodes
                self._leave(n for pair in [*self._pairs_at.get(nodes[0], ())]
                            for n in [*self._of_pair[pair]])  # fmt: skip
            elif kind == "node":
                self._touched[nodes[0]] = None
            elif of not in self._types:
                continue  # no feature is made of such edges
            elif kind == "edge_add":
                edge = Edge(values[0], self._next, of, (nodes[0], nodes[1]), (*values[1:],))
                self._come(edge)
                self._set(self, "_next", self._next + 1)
            elif found := self._of_pair.get(self._pair(of, nodes)):
                edge = self._edges[found[-1]]
                self._leave([edge.number])
                if kind == "edge_change":
                    self._come(edge._replace(time=values[0], values=(*values[1:],)))
        self._move(latest)
        for node in gone:
            self._touched.pop(node, None)
            if node in self._base:
                self._note(self._base.__setitem__, (node, self._base.pop(node)))
        return changes._replace(delta=self._written(changes))

    def take_back(self) -> None:
        """What was taken last is not in."""
        while self._undo:
            do, args = self._undo.pop()
            do(*args)

    def keep(self) -> None:
        """What was taken last is in, and the model is at the version that has it."""
        self._undo.clear()
        self._version = self._inc.version

    def _note(self, do: Callable[..., Any], args: Any) -> None:
        """How the last step is undone."""
        self._undo.append((do, args))

    def _set(self, of: Any, name: str, value: Any) -> None:
        self._note(setattr, (of, name, getattr(of, name)))
        setattr(of, name, value)

    def _pair(self, of: Type, ends: tuple[Node, ...]) -> Any:
        return of, frozenset(ends) if self._schema.types[of].undirected else ends

    def _come(self, edge: Edge) -> None:
        self._put(edge)
        self._note(self._drop, (edge,))

    def _leave(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            edge = self._edges[number]
            self._drop(edge)
            self._note(self._put, (edge,))

    def _put(self, edge: Edge) -> None:
        """Let an edge in, in its place among those of its pair."""
        pair = self._pair(edge.type, edge.ends)
        self._edges[edge.number] = edge
        listed = self._of_pair.setdefault(pair, [])
        listed.append(edge.number)
        if len(listed) > 1:
            listed.sort()
        for node in edge.ends:
            self._pairs_at.setdefault(node, {})[pair] = None
        for at in self._at[edge.type]:
            if edge.time < self._begins[at]:
                continue
            if self._windows[at] is not None:
                heappush(self._leaving[at], (edge.time, edge.number))
            if at < len(self._features):
                self._count(at, edge, comes=True)

    def _drop(self, edge: Edge) -> None:
        """Let an edge go; its places in the heaps stay, and are passed over."""
        pair = self._pair(edge.type, edge.ends)
        del self._edges[edge.number]
        listed = self._of_pair[pair]
        listed.remove(edge.number)
        if not listed:
            del self._of_pair[pair]
            for node in {*edge.ends}:
                del self._pairs_at[node][pair]
                if not self._pairs_at[node]:
                    del self._pairs_at[node]
        for at in self._at[edge.type]:
            if at < len(self._features) and edge.time >= self._begins[at]:
                self._count(at, edge, comes=False)

    def _count(self, at: int, edge: Edge, *, comes: bool) -> None:
        """An edge comes to a feature, or leaves it."""
        feature, kept = self._features[at], self._kept[at]
        value = 1.0
        if feature.of is not None:
            value = edge.values[self._schema.types[edge.type].fields.index(feature.of)]
        part = Contribution(edge.time, edge.number, value)
        for node in dict.fromkeys(feature.ends(edge.ends)):
            self._touched[node] = None
            of = kept.get(node)
            if of is None:
                of = kept[node] = feature.kept()
            if comes:
                of.add(part)
            else:
                of.take(part)
            if not of.count:
                del kept[node]

    def _move(self, latest: float) -> None:
        """Let leave what falls out of the windows."""
        for at, window in enumerate(self._windows):
            if window is None or (begins := window.begins(latest)) <= self._begins[at]:
                continue
            heap = self._leaving[at]
            out: list[Edge] = []
            while heap and heap[0][0] < begins:
                time, number = heappop(heap)
                edge = self._edges.get(number)
                if edge is not None and edge.time == time and edge not in out[-1:]:
                    out.append(edge)
            self._note(self._back, (at, self._begins[at], out))
            if at >= len(self._features):
                self._leave(edge.number for edge in out)
            else:
                for edge in out:
                    self._count(at, edge, comes=False)
            self._begins[at] = begins

    def _back(self, at: int, begins: float, out: list[Edge]) -> None:
        """A window begins earlier again."""
        self._begins[at] = begins
        for edge in out:
            heappush(self._leaving[at], (edge.time, edge.number))
            if at < len(self._features):
                self._count(at, edge, comes=True)

    # Rows ----------------------------------------------------------------------------------------

    def _written(self, changes: Changes) -> GraphDelta | None:
        """The delta, with the features of all nodes that were touched."""
        touched: dict[Type, list[Any]] = {}
        for of, node in self._touched:
            if of in self._made:
                touched.setdefault(of, []).append(node)
        delta = changes.delta
        for of, nodes in touched.items():
            delta = delta or GraphDelta()
            own = {name: _of_type(getattr(delta, name), of) for name in ("x_changes", "x_add")}
            for name, value in self._rows(of, nodes, changes, **own).items():
                if of is not None:
                    value = {**(getattr(delta, name) or {}), of: value}
                delta = replace(delta, **{name: value})
        return delta

    def _rows(
        self, of: Type, nodes: list[Any], changes: Changes, x_changes: Any, x_add: Any
    ) -> dict[str, Any]:
        """The rows of a delta for nodes of a type, with the features of some of them."""
        x = self._view.x(of)
        assert x is not None
        known, count, called = self._view.rows().get(of), len(x), changes.called.get(of)
        new = {} if called is None else {name: n for n, name in called.items()}
        fields: dict[str, Any] = {}
        given: Any = ((), x[:0]) if x_changes is None else x_changes
        listed = np.asarray(given[0]).tolist()  # such as are there by number or by name
        place = {node: at for at, node in enumerate(listed)}  # of several rows the last
        if x_add is not None:
            fields["x_add"] = torch.from_numpy(added := _copied(x_add, x))
        was: dict[Any, int] = {}
        for node in nodes:
            number = new[node] if node in new else node if known is None else known[node]
            if number >= count:
                born = np.asarray(changes.born[of][number - count])
                self._write((of, node), added[number - count], born)
            else:
                was[node] = number
        more = [node for node in was if node not in place]
        if was:
            place |= {node: at for at, node in enumerate(more, len(listed))}
            rows = np.concatenate([_copied(given[1], x), _rows_at(x, [was[node] for node in more])])
            for node, row in zip(was, _rows_at(x, [*was.values()]), strict=True):
                self._write((of, node), rows[place[node]], row)
            every: Any = [*listed, *more]
            if known is None:
                every = torch.tensor(every, dtype=torch.int64)
            fields["x_changes"] = every, torch.from_numpy(rows)
        return fields

    def _write(self, node: Node, row: Rows, was: Rows) -> None:
        """Put the features of a node into its row, `[channels]`, where another one was."""
        made = self._made[node[0]]
        if node not in self._base:
            self._base[node] = [float(was[self._features[n].channel]) for n in made]
            self._note(self._base.pop, (node,))
        for n, base in zip(made, self._base[node], strict=True):
            kept = self._kept[n].get(node)
            row[self._features[n].channel] = base if kept is None else kept.over(base)

    # Checkpoints ---------------------------------------------------------------------------------

    def check(self) -> None:
        """See that the features are channels of `x`.

        Raises:
            ValueError: If they are not.
        """
        for of, made in self._made.items():
            x = self._view.x(of)
            channels = 0 if x is None or x.dim() != 2 else x.shape[1]
            if wrong := [n for n in (self._features[m].channel for m in made) if n >= channels]:
                about = "" if of is None else f" of '{of}'"
                raise ValueError(
                    f"features: expected channels of x{about}, which has {channels} (got {wrong}); "
                    "give x a column for each feature"
                )

    def saved(self) -> dict[str, Any]:
        """What makes the same again; of nodes and edges without types as if there were none."""
        self.take_back()
        edges = [*self._edges.values()]
        width = max((len(own.fields) for own in self._schema.types.values()), default=0)
        made = max(map(len, self._made.values()), default=0)
        nodes = [node if of is None else (of, node) for of, node in self._base]
        return {
            "features": self._declared, "begins": [*self._begins], "next": self._next,
            "edges": [
                (e.number, *(node for _, node in e.ends), *([] if e.type is None else [e.type]))
                for e in edges
            ],
            "values": _padded([(e.time, *e.values) for e in edges], 1 + width),
            "nodes": nodes, "base": _padded([*self._base.values()], made),
        }  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was saved.

        Raises:
            IncrementalError: If it was saved with other features.
        """
        if saved.get("features") != self._declared:
            raise IncrementalError(
                "Stream: the checkpoint was written with other features (got "
                f"{self._declared}, but it has {saved.get('features')}); declare the same, or "
                "begin in an empty folder"
            )
        self._begins, self._next = [*saved["begins"]], saved["next"]
        for (number, src, dst, *typed), (time, *values) in zip(
            saved["edges"], saved["values"].tolist(), strict=True
        ):
            of = typed[0] if typed else None
            start, end = ends_of(of)
            self._put(Edge(time, number, of, ((start, src), (end, dst)), (*values,)))
        for node, base in zip(saved["nodes"], saved["base"].tolist(), strict=True):
            key = node if isinstance(node, tuple) else (None, node)
            self._base[key] = base[: len(self._made[key[0]])]

    @property
    def _declared(self) -> list[str]:
        made = zip(self._types, self._features, strict=False)
        return [repr(f) if of is None else f"{of}: {f!r}" for of, f in made]


def _events(changes: Changes) -> Iterator[tuple[int, str, Type, tuple[Node, ...], Any]]:
    """The events of a delta: place, kind, type, nodes, and time and fields."""
    for of, kinds in changes.of.items():
        ends = ends_of(of)
        called = [changes.called.get(node) for node in ends]
        for kind, own in kinds.items():
            nodes = [
                [(node, n if names is None else names[n]) for n in ids]
                for node, names, ids in zip(ends, called, own.ids.tolist(), strict=False)
            ]
            values: Any = own.at if own.values is None else own.values
            for at, said, *listed in zip(own.at.tolist(), values.tolist(), *nodes, strict=True):
                yield at, kind, of, tuple(listed), said


def _of_type(value: Any, of: Type) -> Any:
    """What a field of a delta says of a type."""
    return value if of is None or value is None else value.get(of)


def _padded(rows: list[Any], width: int) -> Tensor:
    """Lists of numbers as float64 `[k, width]`, with zeros behind the shorter ones."""
    found = torch.zeros(len(rows), width, dtype=torch.float64)
    for row, numbers in zip(found.numpy(), rows, strict=True):
        row[: len(numbers)] = numbers
    return found


def _copied(rows: Any, like: Tensor) -> Rows:
    """A copy of some rows, `[k, channels]`, in the data type of others."""
    return torch.as_tensor(rows).detach().to("cpu", like.dtype, copy=True).numpy()


def _rows_at(x: Tensor, numbers: list[int]) -> Rows:
    return _copied(x[torch.tensor(numbers, dtype=torch.int64, device=x.device)], x)

"""The edges that have come as events and are there, and the features of nodes made of them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import IncrementalError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.stream.changes import Changes
from pyg_incremental.stream.feature import Kept, Part
from pyg_incremental.stream.schema import Rows, Schema
from pyg_incremental.stream.window import Window


class Edge(NamedTuple):
    """An edge that came as an event.

    Attributes:
        time: The event time; 0 where events have none.
        number: Which one it was.
        ends: Its nodes, by number or by name.
        values: The fields that features are made of, as in `Schema.fields`.
    """

    time: float
    number: int
    ends: tuple[Any, Any]
    values: tuple[float, ...]


class LiveEdges:
    """Follows the edges of events, and puts the features that they make into deltas.

    What `take` does is taken back by `take_back`, until `keep` says that the delta is in.

    Args:
        inc: The model.
        schema: Declares the features.
        window: The window over event times, if there is one.
    """

    def __init__(self, inc: IncrementalModel, schema: Schema, window: Window | None) -> None:
        self._inc, self._schema, self._features = inc, schema, schema.features
        lengths = [f.within for f in self._features]
        self._windows = [None if of is None else Window(of) for of in lengths]
        self._windows.append(window)  # the last one is that of the edges
        self._begins = [-math.inf] * len(self._windows)
        self._leaving: list[list[tuple[float, int]]] = [[] for _ in self._windows]
        self._edges: dict[int, Edge] = {}
        self._of_pair: dict[Any, list[int]] = {}
        self._pairs_at: dict[Any, dict[Any, None]] = {}
        self._kept: list[dict[Any, Kept]] = [{} for _ in self._features]
        self._base: dict[Any, list[float]] = {}
        self._next = 0
        self._undo: list[tuple[Callable[..., Any], Any]] = []
        self._touched: dict[Any, None] = {}
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
        called = changes.called
        name = (lambda n: n) if called is None else called.__getitem__
        gone: list[Any] = []
        events = [
            (at, kind, tuple(map(name, ids)), values)
            for kind, own in changes.of.items()
            for at, ids, values in zip(
                own.at.tolist(), own.ids.T.tolist(),
                own.at if own.values is None else own.values.tolist(), strict=True,
            )
        ]  # fmt: skip
        for _, kind, nodes, values in sorted(events, key=lambda e: e[0]):
            if kind == "node_del":
                gone += nodes
                self._leave(n for pair in [*self._pairs_at.get(nodes[0], ())]
                            for n in [*self._of_pair[pair]])  # fmt: skip
            elif kind == "node":
                self._touched[nodes[0]] = None
            elif kind == "edge_add":
                self._come(Edge(values[0], self._next, nodes, (*values[1:],)))
                self._set(self, "_next", self._next + 1)
            elif found := self._of_pair.get(self._pair(nodes)):
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

    def _pair(self, ends: tuple[Any, Any]) -> Any:
        return frozenset(ends) if self._schema.undirected else ends

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
        pair = self._pair(edge.ends)
        self._edges[edge.number] = edge
        listed = self._of_pair.setdefault(pair, [])
        listed.append(edge.number)
        if len(listed) > 1:
            listed.sort()
        for node in edge.ends:
            self._pairs_at.setdefault(node, {})[pair] = None
        for at, window in enumerate(self._windows):
            if edge.time < self._begins[at]:
                continue
            if window is not None:
                heappush(self._leaving[at], (edge.time, edge.number))
            if at < len(self._features):
                self._count(at, edge, comes=True)

    def _drop(self, edge: Edge) -> None:
        """Let an edge go; its places in the heaps stay, and are passed over."""
        pair = self._pair(edge.ends)
        del self._edges[edge.number]
        listed = self._of_pair[pair]
        listed.remove(edge.number)
        if not listed:
            del self._of_pair[pair]
            for node in {*edge.ends}:
                del self._pairs_at[node][pair]
                if not self._pairs_at[node]:
                    del self._pairs_at[node]
        for at in range(len(self._features)):
            if edge.time >= self._begins[at]:
                self._count(at, edge, comes=False)

    def _count(self, at: int, edge: Edge, *, comes: bool) -> None:
        """An edge comes to a feature, or leaves it."""
        feature, kept = self._features[at], self._kept[at]
        value = 1.0 if feature.of is None else edge.values[self._schema.fields.index(feature.of)]
        part = Part(edge.time, edge.number, value)
        ends = {"src": edge.ends[:1], "dst": edge.ends[1:], "both": edge.ends}[feature.at]
        for node in dict.fromkeys(ends):
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
            if at == len(self._features):
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
        if not self._touched:
            return changes.delta
        delta, x = changes.delta or GraphDelta(), self._inc.x
        assert isinstance(x, Tensor)
        known, count, called = self._inc.node_rows, len(x), changes.called
        new = {} if called is None else {name: n for n, name in called.items()}
        fields: dict[str, Any] = {}
        given: Any = ((), x[:0]) if delta.x_changes is None else delta.x_changes
        listed = np.asarray(given[0]).tolist()  # such as are there by number or by name
        place = {node: at for at, node in enumerate(listed)}  # of several rows the last
        if delta.x_add is not None:
            fields["x_add"] = torch.from_numpy(added := _copied(delta.x_add, x))
        was: dict[Any, int] = {}
        for node in self._touched:
            number = new[node] if node in new else node if known is None else known[node]
            if number >= count:
                self._write(node, added[number - count], np.asarray(changes.born[number - count]))
            else:
                was[node] = number
        more = [node for node in was if node not in place]
        if was:
            place |= {node: at for at, node in enumerate(more, len(listed))}
            rows = np.concatenate([_copied(given[1], x), _rows_at(x, [was[node] for node in more])])
            for node, row in zip(was, _rows_at(x, [*was.values()]), strict=True):
                self._write(node, rows[place[node]], row)
            every: Any = [*listed, *more]
            if known is None:
                every = torch.tensor(every, dtype=torch.int64)
            fields["x_changes"] = every, torch.from_numpy(rows)
        return replace(delta, **fields)

    def _write(self, node: Any, row: Rows, was: Rows) -> None:
        """Put the features of a node into its row, `[channels]`, where another one was."""
        if node not in self._base:
            self._base[node] = [float(was[f.channel]) for f in self._features]
            self._note(self._base.pop, (node,))
        for feature, kept, base in zip(self._features, self._kept, self._base[node], strict=True):
            row[feature.channel] = kept[node].over(base) if node in kept else base

    # Checkpoints ---------------------------------------------------------------------------------

    def check(self) -> None:
        """See that the features are channels of `x`.

        Raises:
            ValueError: If they are not.
        """
        x = self._inc.x
        channels = x.shape[1] if isinstance(x, Tensor) and x.dim() == 2 else 0
        if wrong := [f.channel for f in self._features if f.channel >= channels]:
            raise ValueError(
                f"features: expected channels of x, which has {channels} (got {wrong}); give x a "
                "column for each feature"
            )

    def saved(self) -> dict[str, Any]:
        """What makes the same again."""
        self.take_back()
        edges = [*self._edges.values()]
        return {
            "features": self._declared, "begins": [*self._begins], "next": self._next,
            "edges": [(e.number, *e.ends) for e in edges],
            "values": torch.tensor([(e.time, *e.values) for e in edges], dtype=torch.float64),
            "nodes": [*self._base],
            "base": torch.tensor([*self._base.values()], dtype=torch.float64),
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
        for (number, src, dst), (time, *values) in zip(
            saved["edges"], saved["values"].tolist(), strict=True
        ):
            self._put(Edge(time, number, (src, dst), (*values,)))
        self._base = dict(zip(saved["nodes"], saved["base"].tolist(), strict=True))

    @property
    def _declared(self) -> list[str]:
        return [repr(feature) for feature in self._features]


def _copied(rows: Any, like: Tensor) -> Rows:
    """A copy of some rows, `[k, channels]`, in the data type of others."""
    return torch.as_tensor(rows).detach().to("cpu", like.dtype, copy=True).numpy()


def _rows_at(x: Tensor, numbers: list[int]) -> Rows:
    return _copied(x[torch.tensor(numbers, dtype=torch.int64, device=x.device)], x)

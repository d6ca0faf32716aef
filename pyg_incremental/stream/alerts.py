"""Alerts: rows of the output that changed much, crossed a threshold, or have another label."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.stream.sinks import Deliveries
from pyg_incremental.telemetry.work import UpdateStats
from pyg_incremental.update import Flips, Update

Found = Iterator[tuple[Any, Any, Any, Any, Any]]
"""Rows that an alert is about: their type, the node, what stood there and what stands there now,
and the edge, if it is the row of one."""


class Alert(NamedTuple):
    """A row of the output that somebody asked to hear of.

    It comes at least once: after a crash those since the last checkpoint come again, with the same
    `version` and `node`, and `node_type` where there are several.

    Attributes:
        version: The version that changed the row.
        node: The row: the id of a node, or of a graph; of an edge or a pair the number of its row,
            which is another one once edges before it have left.
        what: `'changed'`, `'crossed'` or `'flipped'`.
        old: The row before, `[out_channels]`; the value of the channel for `'crossed'`, the label
            for `'flipped'`.
        new: The same now.
        position: The position of the source behind the last event of the update.
        node_type: The type of the node, where the output is a dict by type.
        edge: The nodes at both ends, `(source, target)`, where rows are those of edges or pairs.
    """

    version: int
    node: int
    what: str
    old: Any
    new: Any
    position: Any
    node_type: Any = None
    edge: Any = None


class Watch:
    """One request to hear of rows: counts, an asynchronous iterator, and a way to end it.

    Made by `Stream.on`.

    Attributes:
        what: What is asked for.
        to: What the alerts are handed to; None for an iterator alone.
        missed: How many alerts an iterator that was too slow did not get.
    """

    def __init__(
        self,
        what: str,
        find: Callable[[Update], Found],
        to: Callable[[Alert], Any] | None,
        keep: int,
        end: Callable[["Watch"], None],
    ) -> None:
        self.what, self._find, self._end = what, find, end
        self.to = None if to is None else Deliveries(to)
        self._kept: deque[Alert] = deque(maxlen=keep)
        self._wakes: list[Callable[[], Any]] = []
        self.missed = 0

    @property
    def given(self) -> int:
        """How many alerts there were for the callback."""
        return 0 if self.to is None else self.to.given

    @property
    def failed(self) -> int:
        """How many of them the callback raised for."""
        return 0 if self.to is None else self.to.failed

    def tell(self, update: Update, position: Any) -> int:
        """Hand over what an update has for this request; how much that is."""
        alerts = [
            Alert(update.version, node, self.what, old, new, position, of, edge)
            for of, node, old, new, edge in self._find(update)
        ]
        if self.to is not None:
            self.to.give(alerts)
        if alerts and (self.to is None or self._wakes):
            room = (self._kept.maxlen or 0) - len(self._kept)
            self.missed += max(0, len(alerts) - room)
            self._kept.extend(alerts)
            for wake in self._wakes:
                wake()
        return len(alerts)

    def check(self, out: Any) -> None:
        """See that an output has what is asked for.

        Raises:
            ValueError: If alerts are not about such outputs.
            UnsupportedModelError: If it needs a channel, or cannot be told of such rows.
            IndexError: If there is no such channel.
        """
        none = pytree.tree_map_only(Tensor, lambda rows: rows[:0], out)
        ids = pytree.tree_map_only(Tensor, lambda rows: torch.zeros(0, dtype=torch.int64), out)
        for _ in self._find(Update(ids, none, UpdateStats("", 0, 0, 0.0, []), 0, old=none)):
            pass

    def remove(self) -> None:
        """Hear no more."""
        self._end(self)

    async def __aiter__(self) -> AsyncIterator[Alert]:
        """The alerts as they come; the stream runs in another thread meanwhile."""
        there, loop = asyncio.Event(), asyncio.get_running_loop()
        wake = partial(_wake, loop, there)
        self._wakes.append(wake)
        try:
            while True:
                there.clear()
                while self._kept:
                    yield self._kept.popleft()
                await there.wait()
        finally:
            self._wakes.remove(wake)


def _wake(loop: asyncio.AbstractEventLoop, there: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(there.set)


def finder(
    changed: float | None,
    crossed: float | None,
    flipped: bool,
    channel: int | None,
    nodes: Any,
    of: Any,
) -> tuple[str, Callable[[Update], Found]]:
    """What a request is called, and what finds its rows in an update.

    Args:
        changed: More than how much a number of the row has to change.
        crossed: A threshold.
        flipped: Whether labels are asked for.
        channel: The channel that is held against the threshold.
        nodes: The nodes that are asked for, int64 `[k]` or their names, and edges that begin or end
            there; None for all.
        of: The type that is asked for, of an output that is a dict; None for all.

    Raises:
        ValueError: If not exactly one of the three is given.
    """
    given = [changed is not None, crossed is not None, flipped]
    if sum(given) != 1:
        raise ValueError(
            "on: expected one of changed=eps, crossed=threshold and flipped=True (got "
            f"{sum(given)} of them); call it once for each"
        )
    only = None if nodes is None else _set_of(nodes)
    if only is not None and any(isinstance(node, float) for node in only):
        raise ValueError("on: nodes are ids, int64 [k], or names (got floating point numbers)")
    if changed is not None:
        eps = changed
        return "changed", lambda update: _rows(lambda one: _far(one, eps), update, of, only)
    if crossed is not None:
        threshold = crossed
        return "crossed", lambda update: _rows(
            lambda one: one.crossed(threshold, channel), update, of, only
        )
    return "flipped", lambda update: _rows(lambda one: one.flips, update, of, only)


def _set_of(nodes: Any) -> set[Any]:
    """Ids or names of nodes, as alerts have them."""
    given = nodes.tolist() if hasattr(nodes, "tolist") else nodes
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ValueError(f"on: expected a list of nodes (got {nodes!r}); write nodes=[{nodes!r}]")
    return {node.item() if hasattr(node, "item") else node for node in given}


def _rows(find: Callable[[Update], Any], update: Update, of: Any, only: set[Any] | None) -> Found:
    for key, one in _by_type(update, of):
        found = find(one)
        before, now = (t.tolist() if t.dim() == 1 else t.unbind() for t in (found.old, found.new))
        ids = found.ids.tolist()
        edges = [None] * len(ids) if one.changed_edges is None else _edges(one, ids)
        for node, old, new, edge in zip(ids, before, now, edges, strict=True):
            if only is None or not only.isdisjoint((node,) if edge is None else edge):
                yield key, node, old, new, edge


def _edges(update: Update, rows: list[int]) -> list[tuple[Any, Any]]:
    """The ends of the edges that have some of the rows that changed."""
    ends: Any = update.changed_edges
    of = dict(zip(update.changed.tolist(), zip(*ends.tolist(), strict=True), strict=True))
    return [of[row] for row in rows]


def _by_type(update: Update, of: Any) -> Iterator[tuple[Any, Update]]:
    """The update of each output of a dict by type, or of one of them; of a single one itself."""
    out: Any = update.out
    if isinstance(out, Tensor) and of is None:
        yield None, update
        return
    if not isinstance(out, dict) or not all(isinstance(rows, Tensor) for rows in out.values()):
        raise ValueError(
            "on: alerts are about a single output, or about a dict of outputs by type (got "
            f"{type(out).__name__}, and type={of!r})"
        )
    for key in out if of is None else [of]:
        names = ["changed", "old", "out"] + ["changed_edges"] * (update.changed_edges is not None)
        own = {name: getattr(update, name)[key] for name in names}
        yield key, replace(update, **own)


def _far(update: Update, eps: float) -> Flips:
    """The rows of which a number moved by more than `eps`."""
    ids, new = update.changed, update.out
    old: Any = update.old
    moved = (new - old).abs()[..., None].flatten(1)
    far = (~(moved <= eps)).any(1)  # so is a row of NaN, as that of a new node
    return Flips(ids[far if isinstance(ids, Tensor) else far.numpy()], old[far], new[far])

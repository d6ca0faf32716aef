"""Why a label flipped: the fewest events of an update without which it had not."""

import math
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.errors import IncrementalError, UnsupportedModelError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.event import Event
from pyg_incremental.stream.by_type import ByType
from pyg_incremental.stream.history import Past, by_type, rows_of
from pyg_incremental.stream.schema import AnySchema, Type
from pyg_incremental.update import labels_of

MOST = 8
"""So many pairs and nodes are taken back together at most."""
TRIED = 2000
"""So many sets are tried one by one; beyond it the search is a greedy one."""

Subject = Hashable
"""A type, and a pair of nodes or a node of it: what events are about."""


class Why(NamedTuple):
    """The events behind a flip.

    Attributes:
        node: The node, by number or by name.
        version: The version in which its label flipped.
        old: The label before.
        new: The label since.
        events: The fewest events without which it had kept the label; empty if no eight pairs and
            nodes were found that have this effect.
        is_smallest: Whether all smaller sets were tried. Else a greedy search has found this one,
            and it needs each of its pairs and nodes.
        tried: How many sets were tried.
    """

    node: Any
    version: int
    old: int
    new: int
    events: Sequence[Event]
    is_smallest: bool
    tried: int


class Search:
    """Takes parts of the last update back, by previews.

    What two events say of one pair, or of one node, is taken back together. Nodes that came stay.

    Args:
        inc: The model, at the version of the update.
        schema: Which field of an event is what.
        past: The update.
        node: The node whose label flipped.
        of: The output that has its row, by type; None for a single one.
        row: Its row there.

    Raises:
        IncrementalError: If its label did not flip in this update.
    """

    def __init__(
        self, inc: IncrementalModel, schema: AnySchema, past: Past, node: Any, of: Type, row: int
    ) -> None:
        self._inc, self._past, self._of, self._row = inc, past, of, row
        self._schema, self._names = schema, ByType(inc, schema).rows()
        self._now: Tensor = by_type(inc.out)[of][row].clone()
        at = (past.rows[of] == row).nonzero().flatten()
        self.old = int(labels_of(past.old[of][at])[0]) if len(at) else -1
        self.new = int(labels_of(self._now[None])[0])
        if not len(at) or self.old in (-1, self.new):
            raise IncrementalError(
                f"why: node {node} did not flip in version {past.version} (expected two labels, "
                f"got {self.old} before and {self.new} after it; -1 is that of a new node)"
            )
        self._node, self.tried = node, 0

    @staticmethod
    def check(schema: AnySchema) -> None:
        """See that events can be taken back.

        Raises:
            UnsupportedModelError: If features are made of the events, which change with each of
                them.
        """
        if any(own.features for own in schema.types.values()):
            raise UnsupportedModelError(
                "why: features are made of the events (Schema(features=)), so that none can be "
                "taken back alone; compare stream.inc.preview of deltas of your own"
            )

    def run(self) -> Why:
        """The fewest events."""
        found, is_smallest = self._fewest()
        events = [e for subject in found for e in self._about[subject]]
        events.sort(key=lambda event: self._past.events.index(event))
        return Why(
            self._node, self._past.version, self.old, self.new, events, is_smallest, self.tried
        )

    def _fewest(self) -> tuple[Sequence[Subject], bool]:
        self._about = _subjects(self._schema, self._past.events, self._names)
        every = [*self._about]
        alone, now = self._gaps([(subject,) for subject in every]), self._gap(self._now)
        order = sorted(range(len(every)), key=alone.__getitem__)
        if order and alone[order[0]] <= 0:
            return [every[order[0]]], True
        every, moving = [every[n] for n in order], [every[n] for n in order if alone[n] != now]
        is_smallest = True
        for size in range(2, min(MOST, len(every)) + 1):
            if self.tried + comb(len(every), size) > TRIED:
                # one that has no effect alone may have one together with others
                every, is_smallest = moving, False
            if self.tried + comb(len(every), size) > TRIED:
                return self._greedy(every), False
            sets = [*combinations(every, size)]
            gaps = self._gaps(sets) or [math.inf]
            if min(gaps) <= 0:
                return sets[int(np.argmin(gaps))], is_smallest
        return (), is_smallest

    def _greedy(self, able: Sequence[Subject]) -> Sequence[Subject]:
        """Add what brings the old label nearest, until it is there; then leave out what can be."""
        found: tuple[Subject, ...] = ()
        for _ in range(MOST):
            sets = [(*found, subject) for subject in able if subject not in found]
            if not sets:
                return ()
            gaps = self._gaps(sets)
            found = sets[int(np.argmin(gaps))]
            if min(gaps) <= 0:
                break
        else:
            return ()
        for subject in found:
            fewer = tuple(s for s in found if s != subject)
            if fewer and self._gaps([fewer])[0] <= 0:
                found = fewer
        return found

    def _gaps(self, sets: Sequence[tuple[Subject, ...]]) -> list[float]:
        """How far the node is from its old label without each set; not above 0 if it has it."""
        self.tried += len(sets)
        back = [part_of(self._past.undo, of) for of in sets]
        gaps = []
        for update in self._inc.preview_many(back):
            at = (rows_of(update)[self._of] == self._row).nonzero().flatten()
            new = by_type(update.out)[self._of]
            gaps.append(self._gap(new[at[0]] if len(at) else self._now))
        return gaps

    def _gap(self, row: Tensor) -> float:
        """By how much another label is ahead of the old one; above 0 wherever the row has another.

        A single logit is the score of label 1 beside that of label 0, which is zero. A row that is
        the label itself tells no more than whether it is the old one.
        """
        has_it = int(labels_of(row[None])[0]) == self.old
        if not row.dtype.is_floating_point:
            return float(not has_it)
        scores = row.flatten().double()
        if len(scores) == 1:
            scores = torch.cat([torch.zeros_like(scores), scores])
        others = torch.cat([scores[: self.old], scores[self.old + 1 :]])
        ahead = float(others.max() - scores[self.old])
        return min(ahead, 0.0) if has_it else max(ahead, sys.float_info.min)


def _subjects(
    schema: AnySchema, events: Sequence[Event], named: Container[Type]
) -> dict[Subject, list[Event]]:
    """What events are about that can be taken back, and the events."""
    found: dict[Subject, list[Event]] = {}
    if not events:
        return found
    for of, kinds in schema.read([event.value for event in events], {}, named).items():
        undirected = schema.types[of].undirected
        for kind, own in kinds.items():
            if kind == "node_del":
                continue
            for at, ids in zip(own.at.tolist(), own.ids.T.tolist(), strict=True):
                found.setdefault((of, _subject(ids, undirected)), []).append(events[at])
    return found


def _subject(ids: Sequence[Any], undirected: bool) -> Hashable:
    if len(ids) == 1:
        return ids[0]  # type: ignore[no-any-return]
    return frozenset(ids) if undirected else tuple(ids)


def part_of(delta: GraphDelta, subjects: Iterable[Subject]) -> GraphDelta:
    """The part of a delta that is about some pairs, ordered or not, and about some nodes.

    Args:
        delta: The delta. Rows of nodes may go by the name of the input that they are in, which
            begins with their type where there are several.
        subjects: The pairs and nodes.
    """
    wanted = {*subjects}
    fields: dict[str, Any] = {}

    def keep(name: str, part: Callable[[Type, Any], Any]) -> None:
        """Keep a part of a field, if it says something; with several types of each of them."""
        value = getattr(delta, name)
        if value is not None:
            typed = isinstance(value, Mapping) and name not in plain_dicts
            fields[name] = (
                {of: part(of, own) for of, own in value.items()} if typed else part(None, value)
            )

    def pairs(of: Type, edges: Any) -> Any:
        each = np.asarray(edges).T.tolist()
        return np.array(
            [(of, tuple(p)) in wanted or (of, frozenset(p)) in wanted for p in each], bool
        )

    def of_added(of: Type) -> Any:
        edges = delta.edge_index_add
        return pairs(of, edges if of is None else edges[of])  # type: ignore[index]

    def changed(of: Type, value: Any) -> Any:
        edges, data = value
        which = pairs(of, edges)
        return _some(edges, which, 1), {k: _some(rows, which) for k, rows in data.items()}

    def x(of: Type, value: Any) -> Any:
        ids, rows = value
        own = {None, of, of.partition("/")[0]} if isinstance(of, str) else {of}
        each = np.asarray(ids).tolist()
        which = np.array([any((kind, n) in wanted for kind in own) for n in each], bool)
        return _some(ids, which), _some(rows, which)

    # Data of the edges of a single type are a dict by name.
    plain_dicts = () if isinstance(delta.edge_index_add, Mapping) else ("edge_data_add",)
    for name in ("edge_index_del", "edge_index_add"):
        keep(name, lambda of, edges: _some(edges, pairs(of, edges), 1))
    for name in ("edge_weight_add", "edge_attr_add"):
        keep(name, lambda of, rows: _some(rows, of_added(of)))
    keep("edge_data_add", lambda of, data: {k: _some(v, of_added(of)) for k, v in data.items()})
    keep("edge_changes", changed)
    keep("x_changes", x)
    return GraphDelta(**fields, which=delta.which, missing=delta.missing)


def _some(values: Any, which: Any, dim: int = 0) -> Any:
    """Entries along a dimension, by a mask, of a tensor or an array."""
    mask = torch.from_numpy(which) if isinstance(values, Tensor) else which
    return values[:, mask] if dim else values[mask]

"""Why a label flipped: the fewest events of an update without which it had not."""

import math
import sys
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.given import edge_change_parts
from pyg_incremental.errors import IncrementalError, UnsupportedModelError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.sources.source import Event
from pyg_incremental.stream.history import Past
from pyg_incremental.stream.schema import AnySchema, HeteroSchema, Schema
from pyg_incremental.update import labels_of

MOST = 8
"""So many pairs and nodes are taken back together at most."""
TRIED = 2000
"""So many sets are tried one by one; beyond it the search is a greedy one."""

Subject = Hashable
"""A pair of nodes, or a node: what events are about."""


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
        row: Its row of the output.

    Raises:
        IncrementalError: If its label did not flip in this update.
    """

    def __init__(
        self, inc: IncrementalModel, schema: AnySchema, past: Past, node: Any, row: int
    ) -> None:
        self._inc, self._past, self._row = inc, past, row
        self._schema: Any = schema
        self._now: Tensor = inc.out[row].clone()
        at = (past.rows == row).nonzero().flatten()
        self.old = int(labels_of(past.old[at])[0]) if len(at) else -1
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
                them, or events are of several types.
        """
        if isinstance(schema, HeteroSchema):
            raise UnsupportedModelError(
                "why: events are of several types (HeteroSchema), of which parts are not taken "
                "back; compare stream.inc.preview of deltas of your own"
            )
        if schema.features:
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
        self._about = _subjects(self._schema, self._past.events, self._inc.node_rows is not None)
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
            rows = update.changed if update.rows is None else torch.as_tensor(update.rows)
            at = (rows == self._row).nonzero().flatten()
            gaps.append(self._gap(update.out[at[0]] if len(at) else self._now))
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


def _subjects(schema: Schema, events: Sequence[Event], by_name: bool) -> dict[Subject, list[Event]]:
    """What events are about that can be taken back, and the events."""
    found: dict[Subject, list[Event]] = {}
    if not events:
        return found
    named = (None,) if by_name else ()
    columns = schema.read([event.value for event in events], {}, named)
    for kind, own in columns[None].items():
        if kind == "node_del":
            continue
        for at, ids in zip(own.at.tolist(), own.ids.T.tolist(), strict=True):
            found.setdefault(_subject(ids, schema.undirected), []).append(events[at])
    return found


def _subject(ids: Sequence[Any], undirected: bool) -> Subject:
    if len(ids) == 1:
        return ids[0]  # type: ignore[no-any-return]
    return frozenset(ids) if undirected else tuple(ids)


def part_of(delta: GraphDelta, subjects: Iterable[Subject]) -> GraphDelta:
    """The part of a delta that is about some pairs, ordered or not, and about some nodes."""
    wanted = {*subjects}

    def pairs(edges: Any) -> Any:
        return np.array(
            [tuple(p) in wanted or frozenset(p) in wanted for p in np.asarray(edges).T.tolist()],
            bool,
        )

    fields: dict[str, Any] = {}
    if delta.edge_index_del is not None:
        fields["edge_index_del"] = _some(delta.edge_index_del, pairs(delta.edge_index_del), 1)
    if delta.edge_index_add is not None:
        which = pairs(delta.edge_index_add)
        fields["edge_index_add"] = _some(delta.edge_index_add, which, 1)
        for name in ("edge_weight_add", "edge_attr_add"):
            rows = getattr(delta, name)
            fields[name] = None if rows is None else _some(rows, which)
        data = delta.edge_data_add or {}
        fields["edge_data_add"] = {k: _some(rows, which) for k, rows in data.items()} or None
    if delta.edge_changes is not None:
        edges, data = edge_change_parts(delta.edge_changes)
        which = pairs(edges)
        fields["edge_changes"] = (
            _some(edges, which, 1),
            {k: _some(rows, which) for k, rows in data.items()},
        )
    if delta.x_changes is not None:
        ids, rows = delta.x_changes
        which = np.array([n in wanted for n in np.asarray(ids).tolist()], bool)
        fields["x_changes"] = _some(ids, which), _some(rows, which)
    return GraphDelta(**fields, which=delta.which, missing=delta.missing)


def _some(values: Any, which: Any, dim: int = 0) -> Any:
    """Entries along a dimension, by a mask, of a tensor or an array."""
    mask = torch.from_numpy(which) if isinstance(values, Tensor) else which
    return values[:, mask] if dim else values[mask]

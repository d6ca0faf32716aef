"""What would be: deltas that are tried, ids that are asked for, the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic

from typing_extensions import Unpack

from pyg_incremental.delta.describe import Fields, GraphDelta, with_fields_of
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.session.by_name import ByName
from pyg_incremental.session.guarded import Guarded
from pyg_incremental.session.many import Previews, preview_many
from pyg_incremental.session.parameters import refuse_autocast
from pyg_incremental.session.preview import preview
from pyg_incremental.session.session import Session
from pyg_incremental.session.update_trace import UpdateTrace, traced
from pyg_incremental.typing import Changes, Out, Pairs
from pyg_incremental.update import Update


class WhatIfs(ByName, Guarded, Generic[Out]):
    """The part of an `IncrementalModel` that says what would be."""

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state; see `GraphDelta.inverse`."""
        return self._rwlock.read(lambda: self._back(self._require(), delta))

    @with_fields_of(GraphDelta)
    def preview(
        self,
        edge_index_add: GraphDelta | Pairs | Mapping[Any, Pairs] | None = None,
        edge_index_del: Pairs | Mapping[Any, Pairs] | None = None,
        x_changes: Changes | Mapping[Any, Changes] | None = None,
        **fields: Unpack[Fields],
    ) -> Update[Out]:
        """What a delta would change, and what it would cost; nothing changes, not one bit.

        Where compiled code carries out the update alone, it costs that, and a copy of what it may
        write to. Else it costs a copy of all that is held, twice, and the work of the update step
        by step. Other threads wait meanwhile, but `out` and `x`, which are views, show the delta.

        It takes one `GraphDelta`, or its fields, as `apply_delta` does.

        Returns:
            What `apply_delta` would return, OLD rows included; `version` is the current one. Where
            one of the two goes step by step and the other in compiled code, numbers may differ by
            rounding, and a row that moves by no more may be named by one of them alone.

        Raises:
            InvalidDeltaError: If the delta does not fit the graph.
            StaleStateError: If the stored state is stale.
            Exception: Whatever the model itself raises on the changed graph.
        """
        delta = GraphDelta(edge_index_add, edge_index_del, x_changes, **fields).alone()
        return self._preview(lambda session: self._tried(session, delta))

    def trace_update(self, *changes: Any, **fields: Any) -> UpdateTrace:
        """What each step would do with a delta, and how long it takes; nothing changes.

        It goes step by step, so the times are those of the steps in plain Python. Where compiled
        code carries out an update, all of it together takes less. Costs what `preview` does.

        Args:
            *changes: One `GraphDelta`, or some of its fields.
            **fields: The fields of `GraphDelta`.

        Returns:
            The steps in the order in which they run; `print` shows a table.

        Raises:
            InvalidDeltaError: If the delta does not fit the graph.
            StaleStateError: If the stored state is stale.
            UnsupportedModelError: If the delta has `values`, with which whole steps run again.

        Example:
            >>> import torch
            >>> from torch_geometric.nn import SAGEConv
            >>> from pyg_incremental import to_incremental
            >>> inc = to_incremental(SAGEConv(4, 2).eval())
            >>> _ = inc(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]))
            >>> trace = inc.trace_update(edge_index_add=[[2], [0]])
            >>> [(s.name, s.rows_in, s.rows, s.changed, s.way) for s in trace if s.kind == "sum"]
            [('degree', 0, 1, 1, 'push'), ('SAGEConv.add', 0, 1, 1, 'push')]
        """
        delta = GraphDelta(*changes, **fields).alone()
        if delta.values is not None:
            raise UnsupportedModelError(
                "trace_update: a delta with values runs whole steps again, on all rows; leave them "
                "out, or read `stats` of the update"
            )

        def looked() -> UpdateTrace:
            self._refuse_stale()
            refuse_autocast()
            session = self._trials_now().session
            known, _ = self._tried(session, delta)
            return traced(session, known)

        return self._rwlock.alone("trace_update", looked)

    def _preview(self, tried: Callable[[Session], Any]) -> Update[Any]:
        """What a delta would do, which, with what tells of it, is made where nothing can change.

        `tried` may tell as well that all of the output is wanted.
        """

        def looked() -> Update[Any]:
            self._refuse_stale()
            refuse_autocast()
            trials = self._trials_now()
            delta, told, *whole = tried(trials.session)
            found: Update[Any] = told(preview(trials, delta, *whole))
            found.is_preview = True
            return found

        return self._rwlock.alone("preview", looked)

    def preview_many(self, deltas: Iterable[GraphDelta]) -> Previews[Out]:
        """What each of many deltas would change, such as transactions that wait for a decision.

        Each is judged alone, on the state as it is: none sees another one. Nothing changes, not one
        bit.

        Args:
            deltas: The deltas.

        Returns:
            What `preview` returns for each, in their order. The updates are made when they are
            asked for; what they hold stays as it is.

        Raises:
            InvalidDeltaError: If a delta does not fit the graph; it says which.
            StaleStateError: If the stored state is stale.
            Exception: Whatever the model itself raises on a changed graph.
        """
        given = [*map(_alone, deltas)]

        def looked() -> Previews[Out]:
            self._refuse_stale()
            refuse_autocast()
            trials = self._trials_now()
            if self._names is None:
                return preview_many(trials, given)
            tried = [self._tried(trials.session, delta) for delta in given]
            found = preview_many(trials, [delta for delta, _ in tried])
            return Previews.made(told(up) for (_, told), up in zip(tried, found, strict=True))

        return self._rwlock.alone("preview_many", looked)

    def query(self, *ids: Any, **named: Any) -> Any:
        """The rows of the output for other ids than those that are watched, on the current graph.

        Args:
            *ids: The ids that the model takes, in its order and form, int64 `[k]`, `[2, k]`, `[k,
                2]` or `[k, m]`; and what else it takes with a row for each of them.
            **named: The same by name.

        Returns:
            What the model returns for them. Nothing changes, and none is watched. It costs little
            where the output has a row for each of them, `[k, ...]`, and nothing else; else what
            `preview` costs.

        Raises:
            UnsupportedModelError: If none are watched, or there are steps that run on all rows.
            InvalidDeltaError: If an id is out of range, or arguments do not fit.
            StaleStateError: If the stored state is stale.
        """
        return self._preview(lambda session: self._asked(session, ids, named)).out


def _alone(delta: GraphDelta) -> GraphDelta:
    if not isinstance(delta, GraphDelta):
        raise InvalidDeltaError(
            f"preview_many: expected deltas (got {type(delta).__name__}); pass a list of "
            "GraphDelta(edge_index_add=..., ...)"
        )
    return delta.alone()

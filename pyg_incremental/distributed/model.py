"""A model whose graph and rows are spread over ranks, and whose output stays exact all the same."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pyg_incremental.call.agreement import Agreement, Gap
from pyg_incremental.delta.describe import GraphDelta, with_fields_of
from pyg_incremental.delta.journal import checked_id
from pyg_incremental.distributed import verify
from pyg_incremental.distributed.evaluation import Evaluating
from pyg_incremental.distributed.one_process import (  # fmt: skip
    APART,
    BY_ID,
    EDGE_NAMES,
    INVALID,
    NAMES,
    OLD,
    WHICH,
    OneProcessOnly,
)
from pyg_incremental.distributed.part.part import Happened, Part
from pyg_incremental.distributed.readings import collective
from pyg_incremental.distributed.update import DistributedStats
from pyg_incremental.distributed.wire.comm import Communicator, SingleProcess
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.model import IncrementalModel
from pyg_incremental.session.parameters import refuse_autocast
from pyg_incremental.session.settings import Settings
from pyg_incremental.typing import BackendName
from pyg_incremental.update import Update


class DistributedIncrementalModel(Evaluating, OneProcessOnly):
    """A model over several processes: each rank owns some nodes and the edges that lead to them.

    Every method is a collective, unless it says otherwise: all ranks call it, in the same order. If
    one rank raises because of what it was given, all ranks raise the same error, and nothing was
    changed.

    Args:
        model: A PyG model in eval mode, with the same parameters on every rank.
        comm: How ranks talk to each other: a `TorchCommunicator`, an `MPICommunicator`, or anything
            else that has the methods of `Communicator`; a single process by default.
        backend: As for `to_incremental`.
        accumulate_dtype: As for `to_incremental`.
        scrub_rows: As for `to_incremental`; so many on each rank.
        compile_after: As for `to_incremental`; where the model reads one graph, in one direction.
        check: As for `to_incremental`. The first rank runs the model, on what the checked nodes
            see. From shards models of several kinds of nodes are not checked, for which it would
            need the whole graph.

    Attributes:
        rank: The number of this rank.
        size: The number of ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        comm: Communicator | None = None,
        *,
        backend: BackendName = "auto",
        accumulate_dtype: torch.dtype | None = None,
        scrub_rows: int = 0,
        compile_after: int | None = 8,
        check: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UnsupportedModelError(
                "DistributedIncrementalModel: expected a torch.nn.Module (got "
                f"{type(model).__name__}); pass the trained model itself"
            )
        rounds = Rounds(SingleProcess() if comm is None else comm)
        settings = Settings(
            False, backend, accumulate_dtype, scrub_rows, compile_after, check=check
        )
        super().__init__(model, rounds, settings)
        self._scrub_next = 0

    @collective("refresh")
    @torch.no_grad()
    def refresh(self, nodes: Any = None) -> Update:
        """Recompute from the current graph, features and parameters, on all ranks.

        An update that was interrupted is finished if it is in on any rank, and dropped if it is in
        on none; `version` tells, and is the same on all ranks.

        Args:
            nodes: Global ids of the nodes whose accumulated rows are made afresh, int64 `[k]` or a
                dict by kind, alike on all ranks; everything by default. Everything is also what
                mends a stale state.

        Returns:
            The output rows of this rank's nodes that came out different: all of them if an update
            was interrupted.

        Raises:
            StaleStateError: Before the first pass, or if the model is in training mode.
            InvalidDeltaError: If an id is out of range.
        """
        began, before = time.perf_counter(), self._spent()
        part, call = self._require(), self._called()
        if nodes is not None:
            self._together(self._refuse_stale)
            happened = part.update(None, self._together(lambda: part.own_of(nodes)), counts=False)
            changed, out = part.nothing() if happened is None else part.changed()
        else:
            self._together(self._refuse_training)
            part.settle()
            was = None if part.interrupted else part.output(copy=True)
            part.interrupted = part.interrupted or "a refresh was interrupted"
            happened = None
            shard, settings = self._together(part.shard), part.session.settings
            self._start(call, shard, part.committed, settings)
            changed, out = self._require().changed_since(was)
        return self._updated(changed, out, happened, began, before)

    # Updates -------------------------------------------------------------------------------------

    @with_fields_of(IncrementalModel.apply_delta)
    @collective("apply_delta")
    @torch.no_grad()
    def apply_delta(
        self,
        *changes: Any,
        gather: bool = False,
        delta_id: str | int | None = None,
        old: bool = False,
        **fields: Any,
    ) -> Update:
        """Apply one group of changes, and bring the output up to date.

        One rank hands it in and all others call `apply_delta()` without arguments; or every rank
        hands in a part, and the parts count as one delta, in the order of the ranks. Ids are
        global. New nodes get the ids that follow, those of lower ranks first; the rank that hands
        them in chooses who owns them, by LDG over the edges that it hands in.

        Args:
            *changes: One `GraphDelta`, or some of its fields.
            gather: Return what changed on all ranks, on every rank.
            delta_id: A name of your own for this delta, a string or an integer; alike on all ranks
                that give one, and one rank is enough. One of the last 1,024 that were applied under
                a name is not applied again: the update says that it is `repeated`, and nothing
                changes.
                So a delta can be handed in again whenever it is not known whether it was applied.
            old: Refused on ranks.
            **fields: The fields of `GraphDelta`, but not `which='oldest'`; `missing` is alike on
                all ranks that hand in anything.

        Returns:
            The changed output rows of this rank's nodes (or of all), with global ids; `stats` is a
            `DistributedStats`.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit. Nothing was changed then.
            StaleStateError: On every rank, if what one of them stores is stale.
            RankFailedError: If a rank has died or raised in the middle.
            OutOfStepError: On every rank, if one has called something else. Nothing was changed
                then.

        Whatever is raised, the delta was applied if and only if `version` has moved; on a rank that
        was interrupted, once `refresh` has agreed on it with the others.
        """
        began, before = time.perf_counter(), self._spent()
        part = self._require()
        given = self._given(changes, fields, delta_id, old)
        happened = part.update(given, self._next_scrub(part), delta_id)
        is_new = happened is None or happened.is_new
        changed, out = part.changed() if happened is not None and is_new else part.nothing()
        if gather:
            changed, out = self._gathered(changed, out)
        return self._updated(changed, out, happened, began, before)

    def _updated(
        self,
        changed: Any,
        out: Any,
        happened: Happened | None,
        began: float,
        before: tuple[float, ...],
    ) -> Update:
        """What is reported; `before` is what `_spent` told when it began."""
        spent = [b - a for a, b in zip(before, self._spent(), strict=True)]
        done = Happened(0, 0, [], ()) if happened is None else happened
        stats = DistributedStats(
            "incremental", done.added, done.removed, time.perf_counter() - began, done.work,
            done.traffic, *spent,  # type: ignore[arg-type]
        )  # fmt: skip
        return Update(changed, out, stats, self.version, repeated=not done.is_new)

    @collective("inverse")
    def inverse(self, delta: GraphDelta | None = None) -> GraphDelta:
        """This rank's part of the delta that undoes another one, read off the current state.

        Nothing changes; see `GraphDelta.inverse`.

        Args:
            delta: What this rank is about to hand in.

        Returns:
            What this rank hands in, with all others, to undo what all of them hand in now. New
            nodes stay, without edges.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit.
        """
        given = () if delta is None else (delta,)
        return self._require().inverse(self._given(given, {}))

    def _given(
        self,
        changes: tuple[Any, ...],
        fields: dict[str, Any],
        delta_id: Any = None,
        old: bool = False,
    ) -> GraphDelta | Exception:
        """What this rank hands in, or why it cannot, which all ranks are to know."""
        try:
            self._refuse_stale()
            refuse_autocast()
            if old:
                raise UnsupportedModelError(OLD)
            if delta_id is not None:
                checked_id(delta_id)
            delta = GraphDelta(*changes, **fields).alone()
            _refuse_one_process(delta)
            return delta
        except Exception as error:
            return error

    def _spent(self) -> tuple[float, ...]:
        """Rounds, bytes and seconds so far."""
        r = self.rounds
        return r.count, r.bytes_sent, r.bytes_received, r.seconds_waiting, r.seconds_sending

    def _next_scrub(self, part: Part) -> dict[str, NDArray[np.int64]]:
        """Own nodes of each kind whose rows are made afresh, taking turns."""
        rows = self._settings.scrub_rows
        if not rows:
            return {}
        first, self._scrub_next = self._scrub_next, self._scrub_next + rows
        every = {kind: part.region.ids(kind) for kind in part.region.own}
        return {
            kind: ids[np.arange(first, first + min(rows, ids.size)) % max(1, ids.size)]
            for kind, ids in every.items()
        }

    @collective("verify")
    def verify(self, num_nodes: int | None = None, *, seed: int = 0) -> Agreement:
        """How closely the output agrees with a full pass of the original model; on all ranks.

        The first rank runs it: on the whole graph, which then has to fit there; or on the part of
        the graph that some nodes see.

        Args:
            num_nodes: Check about that many nodes, drawn at random; all by default, and always all
                if the model gathers against the edges, if there are several kinds of nodes, or if
                there can be no more of them.
            seed: Seed of the draw.

        Raises:
            StaleStateError: If what a rank stores is stale.
        """
        self._together(lambda: self._refuse_stale(exactly=True))
        self._together(refuse_autocast)
        part, call = self._require(), self._called()
        got = verify.gather(part, verify.sample_of(part, num_nodes, seed)) or []
        *gap, node = self._together(
            lambda: () if self.rank else verify.found(part, call.site, got), first=True
        )
        return Agreement(Gap(*gap), node)

    @classmethod
    @torch.no_grad()
    def load(
        cls,
        folder: str | os.PathLike[str],
        model: nn.Module,
        comm: Communicator | None = None,
        **settings: Any,
    ) -> DistributedIncrementalModel:
        """Continue from a save, on as many ranks as there are now.

        On another number of ranks the nodes are placed anew, by LDG, one file at a time. All rows
        are computed from the graph and the features that were saved.

        Args:
            folder: What `save` has written.
            model: The model that it belongs to, with the parameters it had.
            comm: How ranks talk to each other.
            **settings: As for the class.

        Raises:
            StateFileError: If a file is cut off or damaged, or belongs to another model, with other
                parameters, or one that computes other outputs on the saved graph.
        """
        loaded = cls(model, comm, **settings)
        loaded._load(folder)
        return loaded


def _refuse_one_process(delta: GraphDelta) -> None:
    """Refuse what a delta says that only one process knows.

    Raises:
        UnsupportedModelError: If it says something of that kind.
    """
    ids = delta.edge_ids_add
    for is_said, reason in (
        (delta.node_ids is not None, NAMES),
        (delta.edge_ids_del is not None, BY_ID),
        (isinstance(ids, (list, tuple)) and any(isinstance(i, str) for i in ids), EDGE_NAMES),
        (delta.which == "oldest", WHICH),
        (delta.tells_apart, APART),
        (delta.invalid != "error", INVALID),
    ):
        if is_said:
            raise UnsupportedModelError(reason)

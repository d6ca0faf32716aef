"""One rank's part of a model's state: a session of the single process, on local ids.

The engine, the kernels and the session are those of the single process; they run the partitioned
program on graphs that, seen from this rank, are bipartite.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.read.reader import DeltaReader
from pyg_incremental.delta.resolve.resolver import ResolvedDelta
from pyg_incremental.distributed.boundary.exchange import ExchangeExecutor
from pyg_incremental.distributed.boundary.link import Traffic
from pyg_incremental.distributed.boundary.rewrite import directions, name_of
from pyg_incremental.distributed.delta.parcel import absent_everywhere
from pyg_incremental.distributed.delta.route import Routed, Router, says_anything
from pyg_incremental.distributed.errors import RankFailedError, is_on_all_ranks, on_all_ranks
from pyg_incremental.distributed.part.journal import RankCommitted, RankJournal, journal_of
from pyg_incremental.distributed.part.local_plan import agree, local_plan
from pyg_incremental.distributed.part.merge import LocalDelta, Merger
from pyg_incremental.distributed.part.region import Region
from pyg_incremental.distributed.part.undo import undone
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.distributed.wire.rounds import Rounds, raise_first
from pyg_incremental.engine.memory import MemoryReport, memory_of
from pyg_incremental.rows.lazy_rows import LazyRows
from pyg_incremental.session.interrupted import finished
from pyg_incremental.session.outputs import changed_rows
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings
from pyg_incremental.telemetry.work import Work

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Happened:
    """What an update did on one rank.

    Attributes:
        added: Edges added, of those that lead to own nodes.
        removed: Edges removed, likewise.
        work: The work of each step.
        traffic: What each exchange has moved, in the order of the steps.
        is_new: Whether the delta was not in already.
    """

    added: int
    removed: int
    work: Work
    traffic: tuple[Traffic, ...]
    is_new: bool = True


class Part:
    """The running state of one rank.

    Args:
        plan: How the call is computed in one process; its roles hold no graph.
        shard: What this rank owns. Every rank makes its part at the same time.
        others: Tensors that are neither node rows nor edge rows, by name.
        rounds: The conversation with the other ranks.
        settings: What the user chose.
        committed: What the updates before have left.

    Attributes:
        region: The nodes and edges of this rank.
        session: The rows of its nodes, and of ghosts.
        committed: The version, and what goes with it.
        interrupted: Why the stored rows are not current, or an empty string.

    Raises:
        UnsupportedModelError: If some step needs all rows.
        PartitionError: If the ranks do not run the same model.
    """

    def __init__(
        self,
        plan: CallPlan,
        shard: Shard,
        others: dict[str, Any],
        rounds: Rounds,
        settings: Settings,
        committed: RankCommitted,
    ) -> None:
        agree(plan, rounds)
        self.plan, self.rounds, self.others = plan, rounds, others
        roles = plan.roles
        self.region = region = Region(
            roles.relations, directions(plan.program), shard, rounds, settings.storage
        )
        like = {name: rows[:0] for name, rows in shard.nodes.items()}
        edges = {g: {k: t[:0] for k, t in data.items()} for g, data in shard.edges.items()}
        self.reader = DeltaReader(roles, region.num_nodes, like, edges)
        self._router = Router(self.reader, roles.relations, region.links, region.owners, rounds)
        self._merger = Merger(region, self.reader)
        nodes = {n: region.own[roles.nodes[n]].at_ids(rows) for n, rows in shard.nodes.items()}
        self.session = self._session(settings, nodes)
        executors: list[Any] = self.session.engine.node_executors
        self._exchanges = [e for e in executors if isinstance(e, ExchangeExecutor)]
        self.committed, self.interrupted = committed, ""
        self._journal: RankJournal | None = None
        self.session.fill(nodes, others)
        region.traffic.clear()

    def _session(self, settings: Settings, nodes: dict[str, Tensor]) -> Session:
        """The session on local ids."""
        region, local = self.region, local_plan(self.plan, self.region)
        graphs = {name_of(d): graph for d, graph in region.graphs.items()}
        return Session(local, graphs, local.roles.num_nodes, nodes, self.others, settings)

    # Updates -------------------------------------------------------------------------------------

    def update(
        self,
        delta: GraphDelta | Exception | None,
        renew: Mapping[str, Ids],
        delta_id: str | int | None = None,
        *,
        counts: bool = True,
    ) -> Happened | None:
        """Take a delta, of which each rank hands in a part or None; a collective.

        It is in, on all ranks, when they have told each other that it fits; `committed` says so.

        Args:
            delta: The part of this rank; or why there is none, which all ranks then raise.
            renew: Global ids, int64 `[k]`, of own nodes whose accumulated rows are made afresh, by
                kind.
            delta_id: How the caller calls the delta, or None.
            counts: Whether the version moves.

        Returns:
            What happened here; None if no rank had anything to do.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit. Nothing was changed then.
        """
        try:
            return self._update(delta, renew, delta_id, counts)
        except BaseException as error:
            if not is_on_all_ranks(error):
                self.interrupted = "an update was interrupted"
            raise

    def _update(
        self,
        delta: GraphDelta | Exception | None,
        renew: Mapping[str, Ids],
        delta_id: str | int | None,
        counts: bool,
    ) -> Happened | None:
        wanted = any(ids.size for ids in renew.values())
        known = self.committed.deltas
        with self.rounds.held_back:
            routed, local = self._local(delta, wanted, delta_id, known)
            if routed is None and counts:
                self.committed = self.committed.next(None)
        if routed is None or local is None:
            return None
        if routed.delta_id in known:
            return Happened(0, 0, [], (), is_new=False)
        self._journal = journal_of(
            self.committed.version + counts, local, routed.new, self.region, self.session
        )
        with self.rounds.held_back:
            try:
                received = self._agreed(local, routed)
            except BaseException as error:
                if is_on_all_ranks(error):  # it is in nowhere
                    self._journal = None
                raise
            self.interrupted = "an update was interrupted"
            if counts:
                self.committed = self.committed.next(routed.delta_id)
        happened = self._commit(local, received, routed, renew)
        self.interrupted, self._journal = "", None
        return happened

    def _agreed(self, local: LocalDelta, routed: Routed) -> list[Any]:
        """Tell each other that the delta fits; what each rank has told this one."""
        received = self.region.tell(local.boundaries, local.absent, routed.new)
        absent = [a for t in received if t is not None for a in t[1]]
        if absent:
            raise absent_everywhere(absent)
        return received

    def inverse(self, delta: GraphDelta | Exception | None) -> GraphDelta:
        """This rank's part of the delta that undoes another one, of which each rank has a part.

        A collective; nothing changes.
        """
        _, local = self._local(delta, wanted=False)
        if local is None:
            return GraphDelta()
        received = self.rounds.everywhere(local.absent or None)
        raise_first(received)
        absent = [a for found in received for a in found or ()]
        if absent:
            raise absent_everywhere(absent)
        return undone(local, self.region, self.plan.roles, self.session.nodes())

    def _local(
        self,
        delta: GraphDelta | Exception | None,
        wanted: bool,
        delta_id: str | int | None = None,
        known: Container[str | int] = (),
    ) -> tuple[Routed | None, LocalDelta | None]:
        """What a delta means here; None if no rank has anything to do."""
        if isinstance(delta, GraphDelta) and not says_anything(delta):
            delta = None
        routed = self._router.route(delta, wanted, delta_id, known)
        if routed is None:
            return None, None
        try:
            return routed, self._merger.merge(routed.parcels, routed.missing)
        except Exception as error:
            raise_first(self.rounds.everywhere(error))
            raise

    def _commit(
        self, local: LocalDelta, received: list[Any], routed: Routed, renew: Mapping[str, Ids]
    ) -> Happened:
        """From here on things change."""
        region = self.region
        region.traffic.clear()
        more = region.take(local.near, local.boundaries, routed.new, received)
        for e in self._exchanges:
            if e.step.link.own.has_holes:
                e.part()
            for d, link in region.links.items():
                come = local.boundaries[d].come_local
                if link is e.step.link and come.size:
                    e.clear(torch.from_numpy(come))
        edges = {name_of(d): changes for d, changes in local.edges.items()}
        own = {kind: region.own[kind].find(ids) for kind, ids in renew.items() if ids.size}
        events, work = self.session.update(
            ResolvedDelta(more, edges, local.rows),
            {kind: torch.from_numpy(ids) for kind, ids in own.items()},
        )
        region.let_go(local.boundaries)
        here = [happened for name, happened in events.items() if name in region.relations]
        added = sum(len(happened.added.slots) for happened in here)
        removed = sum(len(happened.removed.slots) for happened in here)
        return Happened(added, removed, work, tuple(region.traffic))

    # Reading -------------------------------------------------------------------------------------

    def memory(self) -> MemoryReport:
        """What is held besides the model; rows that are shared are counted once."""
        owned = sum(own.count for own in self.region.own.values())
        report = memory_of(self.session.engine, owned)
        shared = {e.source.value.name for e in self._exchanges if e.is_shared}
        parts = tuple(p for p in report.parts if p.what != "rows" or p.name not in shared)
        return replace(report, parts=parts)

    def _real(self, kind: str, rows: Tensor) -> Tensor:
        """Rows of own nodes, without those of ids that belong to nobody."""
        own = self.region.own[kind]
        return rows[torch.from_numpy(own.real()).to(rows.device)] if own.has_holes else rows

    def own_of(self, nodes: Any) -> dict[str, Ids]:
        """Global ids by kind of those of some nodes that are own ones; all are checked."""
        given, own = self.reader.ids(nodes, "nodes"), self.region.own
        return {kind: np.unique(ids[own[kind].find(ids) >= 0]) for kind, ids in given.items()}

    def output(self, copy: bool) -> Any:
        """The output at own nodes, in the order of their ids."""
        return pytree.tree_map(
            self._real, self.session.outputs.kinds, self.session.outputs.now(copy)
        )

    def nodes(self) -> dict[str, Tensor]:
        """The node inputs at own nodes."""
        kinds = self.plan.roles.nodes
        return {name: self._real(kinds[name], t) for name, t in self.session.nodes().items()}

    def changed(self) -> tuple[Any, Any]:
        """Global ids and new rows of what the last update changed, in the output's structure."""
        outputs, own = self.session.outputs, self.region.own
        local, rows, _ = outputs.changed()
        rows = rows.rows() if type(rows) is LazyRows else rows
        kinds = outputs.kinds
        ids = pytree.tree_map(
            lambda k, at: torch.from_numpy(own[k].globals).index_select(0, at), kinds, local
        )
        if any(o.has_holes for o in own.values()):
            rows = pytree.tree_map(lambda i, r: r[(i >= 0).to(r.device)], ids, rows)
            ids = pytree.tree_map(lambda i: i[i >= 0], ids)
        return ids, rows

    def changed_since(self, before: Any) -> tuple[Any, Any]:
        """Global ids and new rows of what is not as it was; see `changed`.

        Args:
            before: The output as `output` told it, for the same nodes; None if nobody knows.
        """
        kinds, now = self.session.outputs.kinds, self.output(copy=False)
        if before is None:
            before = pytree.tree_map(lambda _: None, now)
        at = pytree.tree_map(lambda rows, was: changed_rows(was, rows), now, before)
        ids = pytree.tree_map(lambda k, p: torch.from_numpy(self.region.ids(k))[p], kinds, at)
        return ids, pytree.tree_map(lambda rows, p: rows[p.to(rows.device)], now, at)

    def nothing(self) -> tuple[Any, Any]:
        """What an update that did nothing has changed."""
        rows = pytree.tree_map(lambda t: t[:0].clone(), self.session.outputs.now(copy=False))
        return pytree.tree_map(lambda _: torch.empty(0, dtype=torch.int64), rows), rows

    def settle(self) -> None:
        """Agree on what is in, after an interrupt: what is in on one rank is in on all.

        Raises:
            RankFailedError: On every rank, if they have come too far apart for that.
        """
        every: list[RankCommitted] = self.rounds.everywhere(self.committed)
        last = max(every, key=lambda c: c.version)
        first = min(c.version for c in every)
        if last.version > first + 1:
            raise on_all_ranks(
                RankFailedError(
                    f"the ranks are at versions {first} to {last.version}. Restart them and load "
                    "the last save"
                )
            )
        if self._journal is not None and self._journal.version > last.version:
            self._journal = None  # it is in nowhere
        self.committed = last

    def shard(self) -> Shard:
        """What this rank owns now, an interrupted update applied."""
        region = self.region
        if self._journal is not None:
            region.graphs, nodes = self._journal.finished(region, self.session)
        else:
            graphs, _, nodes = finished(self.session, bool(self.interrupted))
            region.graphs = {d: graphs[name_of(d)] for d in region.links}
        kinds = self.plan.roles.nodes
        found = Shard(
            self.rounds.rank, self.rounds.size,
            {kind: owners.whole() for kind, owners in region.owners.items()},
            {kind: region.ids(kind) for kind in region.own},
            {name: self._real(kinds[name], rows) for name, rows in nodes.items()}, {}, {},
        )  # fmt: skip
        for name in region.relations:
            found.edge_index[name], found.edges[name] = region.edges(name)
        return found

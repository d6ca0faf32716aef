"""One rank's part of a model's state: a session of the single process, on local ids.

The engine, the kernels and the session are those of the single process; they run the partitioned
program on a graph that, seen from this rank, is bipartite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.aggregate import Aggregator
from pyg_incremental.call_plan import CallPlan
from pyg_incremental.delta import GraphDelta
from pyg_incremental.distributed.errors import PartitionError, RankFailedError
from pyg_incremental.distributed.exchange import ExchangeExecutor
from pyg_incremental.distributed.link import Link, Traffic
from pyg_incremental.distributed.local_delta import Boundary, LocalDelta, Merger
from pyg_incremental.distributed.local_ids import Ghosts, Own
from pyg_incremental.distributed.owners import Owners
from pyg_incremental.distributed.rewrite import (
    Direction,
    directions,
    name_of,
    partitioned,
    refuse_whole,
    relation_of,
    suffix_of,
)
from pyg_incremental.distributed.rounds import Rounds, raise_first
from pyg_incremental.distributed.route import Absent, Checked, Router, absent_error, says_anything
from pyg_incremental.distributed.shards import Shard
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph import DynamicGraph
from pyg_incremental.resolve import ResolvedDelta
from pyg_incremental.roles import Roles
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings
from pyg_incremental.store import Ids as RowIds
from pyg_incremental.traced import Traced
from pyg_incremental.update import Work

Ids = NDArray[np.int64]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Happened:
    """What an update did on one rank.

    Attributes:
        added: Edges added, of those that lead to own nodes.
        removed: Edges removed, likewise.
        work: The work of each step.
        traffic: What each exchange has moved.
    """

    added: int
    removed: int
    work: Work
    traffic: list[Traffic]


class Part:
    """The running state of one rank.

    Args:
        plan: How the call is computed in one process; its roles hold no graph.
        shard: What this rank owns. Every rank makes its part at the same time.
        others: Tensors that are neither node rows nor edge rows, by name.
        rounds: The conversation with the other ranks.
        settings: What the user chose.

    Attributes:
        interrupted: Why the stored rows are not current, or an empty string.

    Raises:
        UnsupportedModelError: If some step needs all rows, or there are several kinds of nodes.
        PartitionError: If the ranks do not run the same model.
    """

    def __init__(
        self,
        plan: CallPlan,
        shard: Shard,
        others: dict[str, Any],
        rounds: Rounds,
        settings: Settings,
    ) -> None:
        refuse_whole(plan.program, type(plan.site.model).__name__)
        programs = rounds.everywhere(str(plan.program))
        if any(p != programs[0] for p in programs):
            raise PartitionError("the ranks do not run the same model, or not with the same call")
        self.plan, self.rounds = plan, rounds
        self.others, self.by_target = others, shard.by_target
        self.owners = Owners(shard.owner, shard.size)
        self.kind = plan.roles.kinds[0]
        self.graph_name = plan.roles.relations[0].graph
        self.own = Own(shard.ids)
        self.links = {
            d: Link(f"{self.kind}@{name_of(d)}", self.own, Ghosts(self.own), rounds)
            for d in directions(plan.program)
        }
        graphs = {d: self._local_graph(d, shard) for d in self.links}
        self.graphs: Mapping[Direction, DynamicGraph] = graphs
        self.session = self._session(plan, graphs, settings, shard.nodes)
        self._exchanges: list[ExchangeExecutor] = [
            e for e in self.session.engine.node_executors if isinstance(e, ExchangeExecutor)
        ]
        for a in self.session.engine.aggregators:
            if getattr(a, "loop", None) is not None:
                _keep_to_targets(a)
        self._like = {name: rows[:0] for name, rows in shard.nodes.items()}
        edge_like = {name: rows[:0] for name, rows in shard.edges.items()}
        self._router = Router(plan.roles, self._like, edge_like, any(out for _, out in self.links))
        self._merger = Merger(self.own, self.links, graphs, self._like)
        self.interrupted = ""
        try:
            self.session.fill(dict(shard.nodes), others)
        except RankFailedError:
            raise
        except Exception:
            rounds.fail()
            raise
        for link in self.links.values():
            link.traffic = []

    def _session(
        self,
        plan: CallPlan,
        graphs: Mapping[Direction, DynamicGraph],
        settings: Settings,
        nodes: dict[str, Tensor],
    ) -> Session:
        by_name = {r.graph: r for r in plan.roles.relations}
        num_nodes = {self.kind: self.own.end}
        num_nodes |= {link.far: link.ghosts.end for link in self.links.values()}
        roles = Roles(
            tuple(relation_of(by_name[d[0]], d, link) for d, link in self.links.items()),
            plan.roles.nodes,
            {
                f"{name}{suffix_of(d)}": name_of(d)
                for name, graph in plan.roles.edges.items()
                for d in self.links
                if d[0] == graph
            },
            plan.roles.others,
            num_nodes,
        )
        program = partitioned(plan.program, self.links)
        local = replace(plan, roles=roles, traced=Traced(program, plan.traced.structure))
        by_graph = {name_of(d): g for d, g in graphs.items()}
        return Session(local, by_graph, num_nodes, nodes, self.others, settings)

    # Start ---------------------------------------------------------------------------------------

    def _local_graph(self, d: Direction, shard: Shard) -> DynamicGraph:
        """The edges that lead to own nodes, or start there, and the ghosts that this makes."""
        edge_index, data = shard.edge_index, dict(shard.edges)
        if d[1]:
            edge_index, data = self._turned(shard)
        link, far_end = self.links[d], 1 if d[1] else 0
        ends = edge_index.numpy()
        far = self.own.find(ends[far_end])
        ghosts = np.unique(ends[far_end][far < 0])
        offered = link.ghosts.offer(ghosts.size, self.own.limit)
        link.ghosts.take(ghosts, offered, offered, self.own.limit)
        lost = far < 0
        far[lost] = link.ghosts.find(ends[far_end][lost])
        near = self.own.find(ends[1 - far_end])
        if near.size and near.min() < 0:
            raise PartitionError("the shard holds edges of nodes that it does not own")
        local = np.stack([near, far] if d[1] else [far, near])
        boundary = Boundary(offered, ghosts, offered, _NONE, link.ghosts.end)
        self._serve(self._tell({d: boundary}, [], np.empty(0, np.int16)))
        link.newly = {}
        return DynamicGraph(
            torch.from_numpy(local), max(self.own.end, link.ghosts.end),
            {f"{k}{suffix_of(d)}": v for k, v in data.items()}, self.by_target,
        )  # fmt: skip

    def _turned(self, shard: Shard) -> tuple[Tensor, dict[str, Tensor]]:
        """The edges that start at own nodes, from those who hold them."""
        to = self.owners[shard.edge_index[0].numpy()]
        parts = []
        for rank in range(self.rounds.size):
            at = torch.from_numpy(np.flatnonzero(to == rank))
            parts.append(
                (shard.edge_index[:, at], {k: v[at] for k, v in shard.edges.items()})
                if len(at) else None
            )  # fmt: skip
        got = [p for p in self.rounds.swap(parts) if p is not None]
        edges = torch.cat([shard.edge_index[:, :0], *(e for e, _ in got)], 1)
        data = {k: torch.cat([v[:0], *(g[k] for _, g in got)]) for k, v in shard.edges.items()}
        return edges, data

    def _tell(
        self,
        boundaries: Mapping[Direction, Boundary],
        absent: list[Absent],
        new: NDArray[np.int16],
    ) -> list[Any]:
        """Tell the owners which ghosts come and leave, and all ranks which edges are not there.

        Returns:
            What each rank has told this one, for `_serve`; and the edges that are not there.
        """
        asked: list[dict[Direction, tuple[Ids, Ids, Ids]]] = [{} for _ in range(self.rounds.size)]
        for d, b in boundaries.items():
            left = self.links[d].ghosts.globals(b.leave)
            to, left_to = self.owners.with_new(new, b.come), self.owners[left]
            for rank in np.unique(np.concatenate([to, left_to])).tolist():
                at = to == rank
                asked[rank][d] = b.come[at], b.come_local[at], left[left_to == rank]
        return self.rounds.swap([(a, absent) if a or absent else None for a in asked])

    def _serve(self, told: list[Any]) -> None:
        """Note which rows of own nodes other ranks need from now on."""
        for link in self.links.values():
            link.newly = {}
        for rank, asked in enumerate(told):
            for d, (ids, there, left) in (asked[0] if asked is not None else {}).items():
                link = self.links[d]
                local = self.own.find(ids)
                link.unsubscribe(rank, self.own.find(left))
                link.subscribe(rank, local, there)
                if ids.size:
                    link.newly[rank] = local, there

    # Updates -------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all ranks, removed ones included."""
        return self.owners.num_nodes

    def update(self, delta: GraphDelta | Exception | None, renew: Ids) -> Happened | None:
        """Take a delta, of which each rank hands in a part or None; a collective.

        Args:
            delta: The part of this rank; or why there is none, which all ranks then raise.
            renew: Global ids of own nodes whose accumulated rows are made afresh.

        Returns:
            What happened here; None if no rank had anything to do.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit. Nothing was changed then.
        """
        if isinstance(delta, GraphDelta) and not says_anything(delta):
            delta = None
        parcels, new, missing, any_delta = self._route(delta, renew.size > 0)
        if not any_delta:
            return None
        try:
            local = self._merger.merge(parcels, missing)
        except Exception as error:
            raise_first(self.rounds.everywhere(error))
            raise
        told = self._tell(local.boundaries, local.absent, new)
        raise_first(told)
        absent = [a for t in told if t is not None for a in t[1]]
        if absent:
            raise absent_error(absent)
        self.interrupted = "an update was interrupted"
        try:
            happened = self._commit(local, told, new, renew)
        except RankFailedError:
            raise
        except Exception:
            self.rounds.fail()
            raise
        self.interrupted = ""
        return happened

    def _route(
        self, delta: GraphDelta | Exception | None, renews: bool
    ) -> tuple[list[Any], NDArray[np.int16], str, bool]:
        """Check the parts, place new nodes, and hand every rank what concerns it."""
        before, none = self.num_nodes, np.empty(0, np.int16)
        head: Any = None
        rows: dict[str, Tensor] = {}
        if isinstance(delta, Exception):
            head, delta = delta, None
        elif delta is not None or renews:
            try:
                rows = {} if delta is None else self._router.new_rows(delta, before)
                count = next((len(r) for r in rows.values()), 0)
                head = count, None if delta is None else delta.missing
            except Exception as error:
                head = error
        heads = self.rounds.everywhere(head)
        raise_first(heads)
        if all(h is None for h in heads):
            return [], none, "error", False
        counts = [0 if h is None else h[0] for h in heads]
        modes = {h[1] for h in heads if h is not None and h[1] is not None}
        if len(modes) > 1:
            raise InvalidDeltaError(f"missing: the ranks differ (got {sorted(modes)})")
        if not modes:
            return [], none, "error", True
        first = before + sum(counts[: self.rounds.rank])
        failure: Exception | None = None
        part: Checked | None = None
        if delta is not None:
            try:
                part = self._router.check(delta, rows, before, before + sum(counts))
            except Exception as error:
                failure = error
        new = none
        if sum(counts):
            mine = None if part is None else self._router.place(part, first, self.owners)
            placed = self.rounds.everywhere(failure if failure is not None else mine)
            raise_first(placed)
            new = np.concatenate([none, *(p for p in placed if p is not None)])
        told: list[Any] = [failure] * self.rounds.size
        if part is not None and failure is None:
            told = list(self._router.parcels(part, first, self.owners, new))
        got = self.rounds.swap(told)
        raise_first(got)
        return got, new, modes.pop(), True

    def _commit(
        self, local: LocalDelta, told: list[Any], new: NDArray[np.int16], renew: Ids
    ) -> Happened:
        """From here on things change."""
        before = {self.kind: self.own.end}
        before |= {link.far: link.ghosts.end for link in self.links.values()}
        if new.size:
            self.owners.add(new)
        if local.new_ids.size:
            self.own.add(local.new_ids, local.first)
        for d, link in self.links.items():
            b = local.boundaries[d]
            link.ghosts.take(b.come, b.come_local, b.offered, self.own.limit)
            link.traffic = []
        self._serve(told)
        for e in self._exchanges:
            come = next(
                local.boundaries[d].come_local
                for d, link in self.links.items()
                if link is e.step.link
            )
            if come.size:
                e.clear(torch.from_numpy(come))
        after = {self.kind: self.own.end}
        after |= {link.far: link.ghosts.end for link in self.links.values()}
        resolved = ResolvedDelta(
            {kind: n - before[kind] for kind, n in after.items() if n > before[kind]},
            {name_of(d): edges for d, edges in local.edges.items()},
            local.rows,
        )
        own = torch.from_numpy(self.own.find(renew))
        events, work = self.session.update(resolved, {self.kind: own} if len(own) else {})
        for d, link in self.links.items():
            if local.boundaries[d].leave.size:
                link.ghosts.leave(local.boundaries[d].leave)
        traffic = [t for link in self.links.values() for t in link.traffic]
        here = events.get(self.graph_name)
        counts = (0, 0) if here is None else (len(here.added.slots), len(here.removed.slots))
        return Happened(*counts, work, traffic)

    # Reading -------------------------------------------------------------------------------------

    def real(self) -> Ids:
        """The local ids of own nodes, ascending; all but holes."""
        return np.flatnonzero(self.own.globals >= 0)

    @property
    def ids(self) -> Ids:
        """The global ids of own nodes, ascending, int64 `[n]`."""
        ids: Ids = self.own.globals[self.real()] if self.own.has_holes else self.own.globals
        return ids

    def _without_holes(self, rows: Any) -> Any:
        if not self.own.has_holes:
            return rows
        real = torch.from_numpy(self.real())
        return pytree.tree_map(lambda t: t[real.to(t.device)], rows)

    def output(self, copy: bool) -> Any:
        """The output at own nodes, in the order of `ids`."""
        return self._without_holes(self.session.output(copy))

    def nodes(self) -> dict[str, Tensor]:
        """The node inputs at own nodes."""
        found: dict[str, Tensor] = self._without_holes(self.session.nodes())
        return found

    def changed(self) -> tuple[Any, Any]:
        """Global ids and new rows of what the last update changed, in the output's structure."""
        local, rows = self.session.changed()
        names = torch.from_numpy(self.own.globals)
        ids = pytree.tree_map(lambda t: names[t], local)
        if self.own.has_holes:
            rows = pytree.tree_map(lambda i, r: r[(i >= 0).to(r.device)], ids, rows)
            ids = pytree.tree_map(lambda i: i[i >= 0], ids)
        return ids, rows

    def nothing(self) -> tuple[Any, Any]:
        """What an update that did nothing has changed."""
        rows = pytree.tree_map(lambda t: t[:0].clone(), self.session.output(copy=False))
        return pytree.tree_map(lambda _: torch.empty(0, dtype=torch.int64), rows), rows

    def edges(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The in-edges of own nodes in global ids, int64 `[2, k]`, and their data."""
        state = self.graphs[self.graph_name, False].state()
        src, dst = state.pop("edge_index").numpy()
        return self._pairs(src, dst), state

    def edges_into(self, ids: Ids) -> tuple[Tensor, dict[str, Tensor]]:
        """The same of those of some nodes (int64 `[k]`, distinct) that are own ones."""
        graph, local = self.graphs[self.graph_name, False], self.own.find(ids)
        local = local[local >= 0]
        degree = graph.inn.degree[local].astype(np.int64)
        begins = np.repeat(graph.inn.start[local] - np.cumsum(degree) + degree, degree)
        slots = graph.inn.edge[begins + np.arange(begins.size)].astype(np.int64)
        slots = slots[np.argsort(graph.slots.order[slots], kind="stable")]
        at = torch.from_numpy(slots)
        edges = graph.edges(slots)
        return self._pairs(edges.src, edges.dst), {k: t[at] for k, t in graph.edge_data.items()}

    def _pairs(self, src: Ids, dst: Ids) -> Tensor:
        """Global ids of the ends of in-edges, int64 `[2, k]`."""
        own, ghosts = self.own.globals, self.links[self.graph_name, False].ghosts
        inside = src < own.size
        ids = np.where(inside, own[np.where(inside, src, 0)], -1)
        ids[ids < 0] = ghosts.globals(src[ids < 0])
        return torch.from_numpy(np.stack([ids, own[dst]]))

    def shard(self) -> Shard:
        """What this rank owns now, an interrupted update applied."""
        graphs, _, nodes = self.session.finished(bool(self.interrupted))
        d = (self.graph_name, False)
        self.graphs = {**self.graphs, d: graphs[name_of(d)]}
        edge_index, data = self.edges()
        return Shard(
            self.rounds.rank, self.rounds.size, self.owners.whole(), self.ids,
            self._without_holes(nodes), edge_index, data, self.by_target,
        )  # fmt: skip


def _keep_to_targets(aggregator: Aggregator) -> None:
    """A self-loop that an aggregation adds reads source rows at targets; ghosts are no targets."""
    collect, context = aggregator._collect, aggregator.context

    def within(with_changed: bool, first: tuple[RowIds, ...] = ()) -> tuple[int, int, int, int]:
        return collect(
            with_changed, tuple(_below(ids, context.num_nodes, context) for ids in first)
        )

    aggregator._collect = within  # type: ignore[method-assign]


def _below(ids: RowIds, end: int, context: Any) -> RowIds:
    inside = ids.array < end
    return ids if bool(inside.all()) else context.backend.ids_from(ids.array[inside])

"""The nodes and edges of one rank: who owns what, under which small ids, and who needs which rows.

A rank owns nodes of each kind and holds their in-edges, of every graph, in local ids. Where the
program reads against the edges, it holds the out-edges of its nodes as a second graph.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.distributed.boundary.link import Link, Traffic
from pyg_incremental.distributed.boundary.rewrite import Direction, name_of, suffix_of
from pyg_incremental.distributed.delta.arrived import Arrived
from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.numbering.local_ids import Ghosts, NearIds, Own
from pyg_incremental.distributed.numbering.owners import Owners, Ranks
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.distributed.wire.rounds import Rounds, raise_first
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.storage import Storage
from pyg_incremental.program.steps import Relation

Ids = NDArray[np.int64]


def _none() -> Ids:
    return np.empty(0, np.int64)


@dataclass
class Boundary:
    """What a delta does to the ghosts of one link.

    Attributes:
        offered: Local ids that new ghosts may have.
        end: Ids of far nodes lie below, once the delta is in.
        come: New ghosts: global ids, and their local ids among those offered.
        come_local: Likewise.
        leave: Local ids of ghosts that no edge needs any more.
    """

    offered: Ids
    end: int
    come: Ids = field(default_factory=_none)
    come_local: Ids = field(default_factory=_none)
    leave: Ids = field(default_factory=_none)


class Borders:
    """The nodes that one rank owns and sees; made by all ranks at the same time.

    Args:
        relations: The graphs.
        directions: The local graphs that the program needs.
        shard: What this rank owns.
        rounds: The conversation with the other ranks.

    Attributes:
        relations: The graphs by name.
        owners: Who owns the nodes of each kind.
        num_nodes: The number of nodes of each kind, on all ranks.
        own: The nodes of each kind that this rank owns.
        links: The boundary of each local graph.
        traffic: What exchanges have moved; who reads it clears it.
    """

    def __init__(
        self,
        relations: Iterable[Relation],
        directions: Iterable[Direction],
        shard: Shard,
        rounds: Rounds,
    ) -> None:
        self.relations = {r.graph: r for r in relations}
        self._rounds = rounds
        self.owners = {kind: Owners(ranks, shard.size) for kind, ranks in shard.owner.items()}
        self.num_nodes = {kind: owners.num_nodes for kind, owners in self.owners.items()}
        self.own = {kind: Own(ids) for kind, ids in shard.ids.items()}
        self.traffic: list[Traffic] = []
        self.links: dict[Direction, Link] = {}
        for d in directions:
            _, far = self.kinds(d)
            own = self.own[far]
            self.links[d] = Link(f"{far}@{name_of(d)}", own, Ghosts(own), rounds, self.traffic)

    def kinds(self, d: Direction) -> tuple[str, str]:
        """The kinds of the near nodes, all of them own ones, and of the far nodes of a graph."""
        relation = self.relations[d[0]]
        ends = relation.target, relation.source
        return ends[::-1] if d[1] else ends

    def local_edges(self, d: Direction, shard: Shard) -> tuple[Tensor, dict[str, Tensor]]:
        """The edges that lead to own nodes, or start there, and the ghosts that this makes.

        One or two rounds with the other ranks.

        Args:
            d: Which of the local graphs.
            shard: What this rank owns.

        Returns:
            Local ids of their ends, int64 `[2, k]`, sources first, and the data of the edges by the
            names that they have here, `[k, ...]`.

        Raises:
            PartitionError: If the shard holds edges of nodes that it does not own.
        """
        (name, out), (near_kind, _) = d, self.kinds(d)
        edge_index, data = shard.edge_index[name], dict(shard.edges[name])
        if out:
            edge_index, data = self._turned(name, edge_index, data)
        link, far_end = self.links[d], 1 if out else 0
        ends = edge_index.numpy()
        far = link.own.find(ends[far_end])
        ghosts = np.unique(ends[far_end][far < 0])
        offered = link.ghosts.offer(ghosts.size, link.own.limit)
        link.ghosts.take(ghosts, offered, offered, link.own.limit)
        lost = far < 0
        far[lost] = link.ghosts.find(ends[far_end][lost])
        near = self.own[near_kind].find(ends[1 - far_end])
        if near.size and near.min() < 0:
            raise PartitionError("the shard holds edges of nodes that it does not own")
        local = np.stack([near, far] if out else [far, near])
        boundary = Boundary(offered, link.ghosts.end, ghosts, offered)
        self.serve(self.tell({d: boundary}, [], {}))
        link.settle()
        return torch.from_numpy(local), {f"{k}{suffix_of(d)}": v for k, v in data.items()}

    def _turned(
        self, name: str, edge_index: Tensor, data: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The edges that start at own nodes, from those who hold them."""
        to = self.owners[self.relations[name].source][edge_index[0].numpy()]
        parts = []
        for rank in range(self._rounds.size):
            at = torch.from_numpy(np.flatnonzero(to == rank))
            parts.append(
                (edge_index[:, at], {k: v[at] for k, v in data.items()}) if len(at) else None
            )
        got = [p for p in self._rounds.swap(parts) if p is not None]
        edges = torch.cat([edge_index[:, :0], *(e for e, _ in got)], 1)
        return edges, {k: torch.cat([v[:0], *(g[k] for _, g in got)]) for k, v in data.items()}

    # Ghosts --------------------------------------------------------------------------------------

    def tell(
        self, boundaries: Mapping[Direction, Boundary], note: Any, new: Mapping[str, Ranks]
    ) -> list[Any]:
        """Tell the owners which ghosts come and leave, and all ranks a note; one round.

        Args:
            boundaries: What happens at each boundary.
            note: Whatever all ranks are to know; nothing if it is empty.
            new: The owners of new nodes that are not in yet, by kind.

        Returns:
            What each rank has told this one, for `serve`, and its note; None if it had nothing.
        """
        asked: list[dict[Direction, tuple[Ids, Ids, Ids]]] = [{} for _ in range(self._rounds.size)]
        for d, b in boundaries.items():
            far = self.kinds(d)[1]
            left = self.links[d].ghosts.globals(b.leave)
            to, left_to = self.owners[far].with_new(new.get(far), b.come), self.owners[far][left]
            for rank in np.unique(np.concatenate([to, left_to])).tolist():
                at = to == rank
                asked[rank][d] = b.come[at], b.come_local[at], left[left_to == rank]
        received = self._rounds.swap([(a, note) if a or note else None for a in asked])
        raise_first(received)
        total = {kind: n + len(new.get(kind, ())) for kind, n in self.num_nodes.items()}
        kinds = {d: self.kinds(d)[1] for d in self.links}
        for rank, wishes in enumerate(received):
            if wishes is not None and rank != self._rounds.rank:
                Arrived(rank, total).asked(wishes, kinds)
        return received

    def serve(self, received: list[Any]) -> None:
        """Note which rows of own nodes other ranks need from now on."""
        for rank, asked in enumerate(received):
            for d, (ids, there, left) in (asked[0] if asked is not None else {}).items():
                link = self.links[d]
                local = link.own.find(ids)
                link.unsubscribe(rank, link.own.find(left))
                link.subscribe(rank, local, there)

    def local_counts(self) -> dict[str, int]:
        """The number of nodes of each kind that the program knows: own ones, and far ones."""
        far = {link.far: link.ghosts.room for link in self.links.values()}
        return {kind: own.end for kind, own in self.own.items()} | far


class Region(Borders):
    """The part of the graphs that one rank holds; made by all ranks at the same time.

    Args:
        relations: The graphs.
        directions: The local graphs that the program needs.
        shard: What this rank owns.
        rounds: The conversation with the other ranks.
        storage: Where the local graphs lie.

    Attributes:
        graphs: The local graphs.

    Raises:
        PartitionError: If the shard holds edges of nodes that it does not own.
    """

    def __init__(
        self,
        relations: Iterable[Relation],
        directions: Iterable[Direction],
        shard: Shard,
        rounds: Rounds,
        storage: Storage,
    ) -> None:
        super().__init__(relations, directions, shard, rounds)
        self._storage = storage
        self.graphs: Mapping[Direction, DynamicGraph] = {
            d: self._local_graph(d, shard) for d in self.links
        }

    def _local_graph(self, d: Direction, shard: Shard) -> DynamicGraph:
        """The edges of a local graph, and the ghosts that this makes."""
        edges, data = self.local_edges(d, shard)
        near = self.own[self.kinds(d)[0]]
        count = max(near.end, self.links[d].ghosts.room)
        by_target = self.relations[d[0]].by_target
        return DynamicGraph(edges, count, data, by_target, self._storage)

    # Ghosts --------------------------------------------------------------------------------------

    def take(
        self,
        near: Mapping[str, NearIds],
        boundaries: Mapping[Direction, Boundary],
        new: Mapping[str, Ranks],
        received: list[Any],
    ) -> dict[str, int]:
        """Take the nodes of a delta, new ghosts among them.

        Args:
            near: New own nodes of each kind.
            boundaries: What happens at each boundary.
            new: The owners of all new nodes, by kind.
            received: What `tell` has returned.

        Returns:
            For each kind of nodes that the program knows how many more there are.
        """
        before = self.local_counts()
        for kind, ranks in new.items():
            self.owners[kind].add(ranks)
            self.num_nodes[kind] = self.owners[kind].num_nodes
        for kind, ids in near.items():
            if ids.new.size:
                self.own[kind].add(ids.new, ids.first)
        for d, link in self.links.items():
            b = boundaries[d]
            link.ghosts.take(b.come, b.come_local, b.offered, link.own.limit)
        self.serve(received)
        return {k: n - before[k] for k, n in self.local_counts().items() if n > before[k]}

    def take_again(
        self,
        near: Mapping[str, NearIds],
        boundaries: Mapping[Direction, Boundary],
        new: Mapping[str, Ranks],
        before: Mapping[str, int],
    ) -> None:
        """Enter the nodes of a delta wherever `take` was interrupted, to read ids and owners.

        Args:
            near: New own nodes of each kind.
            boundaries: What happens at each boundary.
            new: The owners of all new nodes, by kind.
            before: The number of nodes of each kind without them.
        """
        for kind, ranks in new.items():
            self.owners[kind].put(ranks, before[kind])
            self.num_nodes[kind] = self.owners[kind].num_nodes
        for kind, ids in near.items():
            if ids.new.size:
                self.own[kind].put(ids.new, ids.first)
        for d, link in self.links.items():
            link.ghosts.put(boundaries[d].come, boundaries[d].come_local)

    def let_go(self, boundaries: Mapping[Direction, Boundary]) -> None:
        """The update is through: forget the ghosts that no edge needs any more."""
        for d, link in self.links.items():
            link.settle()
            if boundaries[d].leave.size:
                link.ghosts.leave(boundaries[d].leave)

    # Reading -------------------------------------------------------------------------------------

    def ids(self, kind: str) -> Ids:
        """The global ids of own nodes, ascending, int64 `[n]`."""
        own = self.own[kind]
        return own.globals[own.real()] if own.has_holes else own.globals

    def edges(self, name: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The in-edges of own nodes in global ids, int64 `[2, k]`, and their data."""
        state = self.graphs[name, False].state()
        src, dst = state.pop("edge_index").numpy()
        return self.global_pairs(name, src, dst), state

    def edges_into(self, name: str, ids: Ids) -> tuple[Tensor, dict[str, Tensor]]:
        """The same of those of some nodes (int64 `[k]`, distinct) that are own ones."""
        graph = self.graphs[name, False]
        local = self.own[self.relations[name].target].find(ids)
        local = local[local >= 0]
        degree = graph.inn.degree[local].astype(np.int64)
        begins = np.repeat(graph.inn.start[local] - np.cumsum(degree) + degree, degree)
        slots = graph.inn.edge[begins + np.arange(begins.size)].astype(np.int64)
        slots = slots[np.argsort(graph.slots.order[slots], kind="stable")]
        at = torch.from_numpy(slots)
        edges = graph.edges(slots)
        data = {k: t[at] for k, t in graph.edge_data.items()}
        return self.global_pairs(name, edges.src, edges.dst), data

    def global_pairs(self, name: str, src: Ids, dst: Ids) -> Tensor:
        """Global ids of the ends of in-edges, int64 `[2, k]`."""
        link = self.links[name, False]
        far, near = link.own.globals, self.own[self.relations[name].target].globals
        inside = src < far.size
        ids = np.where(inside, far[np.where(inside, src, 0)], -1) if far.size else src * 0 - 1
        ids[ids < 0] = link.ghosts.globals(src[ids < 0])
        return torch.from_numpy(np.stack([ids, near[dst]]))

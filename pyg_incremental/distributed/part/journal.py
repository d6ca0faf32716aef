"""What an update is about to do on one rank, written down before it changes anything.

An update is in when all ranks have told each other that their parts of it fit (`Region.tell`):
`RankCommitted` moves then, and nowhere else. A rank that is interrupted after that has its journal,
and `refresh` finishes what is in on any rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_incremental.delta.journal import remembered
from pyg_incremental.distributed.boundary.rewrite import Direction, name_of
from pyg_incremental.distributed.numbering.owners import Ranks
from pyg_incremental.distributed.part.merge import LocalDelta
from pyg_incremental.distributed.part.region import Region
from pyg_incremental.encoding.framing import record
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.session.session import Session


@record
@dataclass(frozen=True)
class RankCommitted:
    """What the last update that is in has left; one assignment makes all of it hold.

    Attributes:
        version: How many updates are in since the first pass.
        deltas: The ids that callers gave to the last ones, each with the version it led to.
    """

    version: int = 0
    deltas: Mapping[str | int, int] = field(default_factory=dict)

    def next(self, delta_id: str | int | None) -> "RankCommitted":
        """What holds when one more update is in, which may have an id."""
        version = self.version + 1
        if delta_id is None:
            return RankCommitted(version, self.deltas)
        return RankCommitted(version, remembered(self.deltas, delta_id, version))


class RankJournal(NamedTuple):
    """How everything stands on one rank where an update is about to write, and what it will do.

    Attributes:
        version: The version that it leads to.
        local: What it is about to do.
        new: The owners of new nodes, by kind.
        num_nodes: The number of nodes of each kind, on all ranks.
        own: The number of ids of own nodes of each kind.
        orders: The age of the next edge of each local graph.
    """

    version: int
    local: LocalDelta
    new: Mapping[str, Ranks]
    num_nodes: dict[str, int]
    own: dict[str, int]
    orders: dict[str, int]

    def finished(
        self, region: Region, session: Session
    ) -> tuple[dict[Direction, DynamicGraph], dict[str, Tensor]]:
        """Local graphs and node inputs after the update, wherever it was interrupted.

        Ids of nodes that come are entered in `region`; this may be interrupted, too, and done
        again.
        """
        region.take_again(self.local.near, self.local.boundaries, self.new, self.num_nodes)
        graphs = {}
        for d, link in region.links.items():
            near, _ = region.kinds(d)
            room = max(region.own[near].end, link.ghosts.room, link.ghosts.end)
            graph, changes = session.graphs[name_of(d)], self.local.edges.get(d)
            graphs[d] = (
                graph.remade(room)
                if changes is None
                else changes.remade(graph, self.orders[name_of(d)], room)
            )
        nodes = {}
        for name, kind in session.plan.roles.nodes.items():
            cell = session.engine.cells[session.plan.program.inputs[name]]
            rows = cell.tensor[: self.own[kind]]
            more = region.own[kind].end - self.own[kind]
            nodes[name] = now = torch.cat([rows, rows.new_zeros((more, *rows.shape[1:]))])
            if name in self.local.rows:
                ids, given = self.local.rows[name]
                now[ids.to(now.device)] = given
        return graphs, nodes


def journal_of(
    version: int, local: LocalDelta, new: Mapping[str, Ranks], region: Region, session: Session
) -> RankJournal:
    """The journal of an update that has changed nothing yet."""
    own = {kind: own.end for kind, own in region.own.items()}
    orders = {name: graph.next_order for name, graph in session.graphs.items()}
    return RankJournal(version, local, new, dict(region.num_nodes), own, orders)

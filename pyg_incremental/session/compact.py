"""Ids of removed nodes given back: a state on the nodes that are left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import name_of_everyone
from pyg_incremental.delta.journal import State
from pyg_incremental.errors import warn
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.session.session import Session


class Removed:
    """The nodes that deltas have removed; some may have been given edges or features since."""

    def __init__(self) -> None:
        self._ids: dict[str, list[Ids]] = {}

    def note(self, removed: Mapping[str, Ids]) -> None:
        """Take note of removed nodes, int64 `[d]` for each kind of which there are any."""
        for kind, ids in removed.items():
            self._ids.setdefault(kind, []).append(ids)

    def forget(self, kinds: Iterable[str]) -> None:
        """Take no notice of those of some kinds, of which somebody else knows."""
        for kind in kinds:
            self._ids.pop(kind, None)

    def by_kind(self) -> dict[str, Ids]:
        """The distinct ids of each kind, ascending."""
        return {kind: np.unique(np.concatenate(ids)) for kind, ids in self._ids.items()}

    def still(self, session: Session) -> dict[str, Ids]:
        """Those that read as removed ones now: without edges, with inputs of zeros.

        Nodes whose number cannot change, because each has a learned row, are left out.
        """
        found = {}
        for kind, ids in self.by_kind().items():
            if session.roles.features(kind) is None or kind in session.roles.fixed:
                continue
            gone = ids
            for name, every in session.nodes().items():
                if session.roles.nodes[name] == kind and name not in session.naming:
                    rows = every[torch.from_numpy(gone)]
                    bare = (rows == 0).flatten(1).all(1) if rows.dim() > 1 else rows == 0
                    gone = gone[bare.cpu().numpy()]
            there = session.nodes().get(name_of_everyone(kind))
            if there is not None:
                gone = gone[there[torch.from_numpy(gone)].cpu().numpy() < 0]
            for r in session.roles.given:
                graph = session.graphs[r.graph]
                if r.source == kind:
                    gone = gone[graph.out.degree[gone] == 0]
                if r.target == kind:
                    gone = gone[graph.inn.degree[gone] == 0]
            if gone.size:
                found[kind] = gone
        return found


def say_what_counts(session: Session, removed: Mapping[str, Ids]) -> None:
    """Warn where removed nodes stay in a graph of several, as something else reads which one.

    `removed` are their ids by kind, int64 `[d]`.
    """
    roles, program = session.roles, session.plan.program
    found = {r.members: not r.leaves for r in roles.relations if r.members}
    for name, kind in roles.nodes.items():
        readers = [s for s in program.steps if program.inputs[name] in s.inputs]
        if kind in removed and found.get(name, name in session.naming):
            warn(
                f"{type(session.plan.site.model).__name__}: removed nodes still count in the "
                f"graphs that '{name}' names, as rows of zeros without edges: "
                f"'{readers[0].output.name}' reads it. compact() leaves them out"
            )


def new_ids(num_nodes: Mapping[str, int], gone: Mapping[str, Ids]) -> dict[str, Tensor]:
    """For each kind the id that every node will have, int64 `[num_nodes]`; -1 for those gone."""
    found = {}
    for kind, count in num_nodes.items():
        stays = np.ones(count, bool)
        stays[gone.get(kind, [])] = False
        found[kind] = torch.from_numpy(np.where(stays, np.cumsum(stays) - 1, -1))
    return found


def left_over(session: Session, state: State, ids: Mapping[str, Tensor]) -> State:
    """Graphs, numbers of nodes and node inputs of the nodes that are left, in their order.

    Args:
        session: Whose they are.
        state: The graphs, numbers of nodes and node inputs, of which nothing is shared.
        ids: What `new_ids` has found, int64 `[num_nodes]` by kind.
    """
    of_graphs, _, of_nodes = state
    counts = {kind: int((of >= 0).sum()) for kind, of in ids.items()}
    graphs = {}
    for r in session.roles.given:
        graph = of_graphs[r.graph]
        data = graph.state()
        src, dst = data.pop("edge_index")
        edges = torch.stack([ids[r.source][src], ids[r.target][dst]])
        room = max(counts[r.source], counts[r.target])
        graphs[r.graph] = DynamicGraph(edges, room, data, r.by_target, graph.storage)
    nodes = {
        name: rows[(ids[session.roles.nodes[name]] >= 0).to(rows.device)]
        for name, rows in of_nodes.items()
    }
    return graphs, counts, nodes

"""The part of the current graph on which a model gives some nodes the rows that they have."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data

from pyg_incremental.call.roles import is_everyone
from pyg_incremental.delta.read.edges import short_name
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.session.reach import is_local, listed
from pyg_incremental.session.session import Session


def subgraph(session: Session, nodes: Ids, hops: int | None) -> Data:
    """Nodes, int64 `[k]`, and all that reaches them in so many hops; see `Readings.subgraph`.

    Args:
        session: The running state.
        nodes: The nodes.
        hops: How many hops; as many as the program has aggregations on a path if None.

    Raises:
        UnsupportedModelError: If there are several types of nodes or several graphs, or it is not
            known how far a row depends on others.
    """
    roles, where = session.roles, f"subgraph of {type(session.plan.site.model).__name__}"
    (r,) = roles.given[:1]
    if len(roles.given) != 1 or len(session.num_nodes) != 1 or r.format != "coo":
        raise UnsupportedModelError(
            f"{where}: expected one type of nodes and one edge_index (got {len(roles.given)} "
            f"graphs of {len(session.num_nodes)} types); take the part with torch_geometric.utils."
            "k_hop_subgraph from inc.graph"
        )
    program = session.plan.program
    if hops is None and not (program.steps and all(is_local(s, session) for s in program.steps)):
        raise UnsupportedModelError(
            f"{where}: some step runs on all rows, so it is not known on how many hops a row "
            "depends; say it, as in inc.subgraph(nodes, hops=2), or see inc.explain()"
        )
    graph, near = session.graphs[r.graph], np.unique(nodes)
    both = bool(roles.derived) or program.goes_against_edges
    ways, new = [graph.inn, graph.out] if both else [graph.inn], near
    for _ in range(program.depth if hops is None else hops):
        beside = [listed(way, way.neighbor, new) for way in ways]
        new = np.setdiff1d(np.concatenate(beside), near)
        near = np.union1d(near, new)
    # Of edges to the last ones only those are there that lie between nodes of the part.
    slots = listed(graph.inn, graph.inn.edge, near)
    slots = slots[np.isin(graph.slots.src[slots], near)]
    every = graph.slots_for_model()
    places = np.flatnonzero(np.isin(every, slots))
    slots, at = every[places], torch.from_numpy(near)
    found = Data(edge_index=torch.from_numpy(np.searchsorted(near, graph.ends_of(slots))))
    for name, rows in session.nodes().items():
        if not is_everyone(name):
            found[short_name(name)] = rows[at.to(rows.device)].clone()
    for name, rows in graph.edge_data.items():
        found[short_name(name)] = rows[torch.from_numpy(slots).to(rows.device)].clone()
    found.edge_index = found.edge_index.to(next(iter(session.nodes().values())).device)
    found.n_id, found.e_id = at, torch.from_numpy(places)
    found.index = torch.from_numpy(np.searchsorted(near, nodes))
    return found

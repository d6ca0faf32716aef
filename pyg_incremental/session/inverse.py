"""The way back: the delta that undoes another one."""

from typing import Any

import torch

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.read.reader import written
from pyg_incremental.session.session import Session


def inverse(session: Session, delta: GraphDelta) -> GraphDelta:
    """The delta that undoes `delta`, read off the current state, which stays as it is."""
    roles, counts = session.roles, session.num_nodes
    resolved, nodes = session.resolver.resolve(delta), session.nodes()
    back: dict[str, Any] = {}
    for name, (ids, _) in resolved.rows.items():
        kept = ids[ids < counts[roles.nodes[name]]]
        if len(kept):
            back.setdefault("x_changes", {})[name] = (kept, nodes[name][kept].clone())
    for kind in roles.kinds:
        before, new = counts[kind], resolved.new_nodes.get(kind, 0)
        if new:
            back.setdefault("nodes_del", {})[kind] = torch.arange(before, before + new)
    for relation in roles.given:
        changes = resolved.edges.get(relation.graph)
        if changes is not None:
            ends = (counts[relation.source], counts[relation.target])
            graph = session.graphs[relation.graph]
            any_of_pair = delta.which == "oldest" or delta.tells_apart
            for field, value in changes.undone(graph, ends, any_of_pair).items():
                back.setdefault(field, {})[relation.key] = value
    return written(roles, back)

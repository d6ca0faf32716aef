"""The delta that undoes another one: of each rank the part that concerns its nodes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.read.reader import written
from pyg_incremental.distributed.part.merge import LocalDelta
from pyg_incremental.distributed.part.region import Region

_ALL = (1 << 62, 1 << 62)


def undone(
    local: LocalDelta, region: Region, roles: Roles, nodes: Mapping[str, Tensor]
) -> GraphDelta:
    """What this rank hands in to undo a delta, read off the state before it.

    The parts of all ranks together undo it; new nodes stay, without edges.

    Args:
        local: What the delta does here.
        region: The nodes and edges of this rank.
        roles: What the tensors of the call are.
        nodes: The node inputs, `[num_nodes, ...]`, by local ids.
    """
    back: dict[str, dict[Any, Any]] = {}
    for name, (ids, _) in local.rows.items():
        at = ids.numpy()
        own = region.own[roles.nodes[name]].globals
        at = at[at < own.size]
        at = at[own[at] >= 0]
        if at.size:
            rows = nodes[name][torch.from_numpy(at)]
            back.setdefault("x_changes", {})[name] = torch.from_numpy(own[at]), rows
    for kind, near in local.near.items():
        if near.new.size:
            back.setdefault("nodes_del", {})[kind] = torch.from_numpy(near.new)
    for d, changes in local.edges.items():
        if d[1]:
            continue
        relation = region.relations[d[0]]
        source, target = local.far[d], local.near[relation.target]
        limits = region.num_nodes[relation.source], region.num_nodes[relation.target]

        def named(pairs: Tensor, source: Any = source, target: Any = target) -> Tensor:
            src, dst = pairs.numpy()
            return torch.from_numpy(np.stack([source.globals(src), target.globals(dst)]))

        fields = changes.undone(region.graphs[d], _ALL)
        for field, value in fields.items():
            if field == "edge_data_add":
                made: Any = value
            elif field == "edge_changes":
                made = (named(value[0]), value[1])
            else:
                made = named(value)
            if field == "edge_index_del":  # edges at new nodes leave with them
                made = made[:, (made[0] < limits[0]) & (made[1] < limits[1])]
            back.setdefault(field, {})[relation.key] = made
    return written(roles, back)

"""A graph of which every node keeps some of its edges, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_incremental.blocks.kernels.choice import keep_some
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.ops import aggregations
from pyg_incremental.program.steps import Program

AT_ONCE = 1 << 20
"""Edges that are looked at at a time, which bounds what is held beside the sample."""


def sampled(site: BoundCall, roles: Roles, program: Program, most: int, seed: int) -> Roles:
    """The roles on a graph in which at most some edges are gathered at each node.

    One graph is drawn for all layers. So a degree, or the number by which a mean divides, is that
    of the edges that are summed, and what comes out is what the model says of this graph.

    Args:
        site: The call; its edge data is cut to that of the edges that stay.
        roles: What its tensors are, with the edges.
        program: Its program, which says at which end edges are gathered.
        most: How many edges each node keeps.
        seed: Of the draw.

    Raises:
        InvalidDeltaError: If `most` is no positive number.
    """
    refuse_number(most)
    rng = np.random.default_rng(seed)
    edge_index, values, tensors = dict(roles.edge_index), dict(roles.values), {}
    for relation in roles.relations:
        name = relation.graph
        over = {s.reverse for s in aggregations(program.steps) if s.graph == name}
        if not over:
            continue  # pairs that are looked at, say
        near = relation.source if over == {True} else relation.target
        gathered = edge_index[name].numpy()[0 if over == {True} else 1]
        stay = torch.from_numpy(drawn(gathered, roles.num_nodes[near], most, rng))
        edge_index[name] = edge_index[name][:, stay]
        if name in values:
            values[name] = values[name][stay.to(values[name].device)]
        for key, graph in roles.edges.items():
            if graph == name:
                rows = site.tensors[key]
                tensors[key] = rows[stay.to(rows.device)]
    site.tensors = {**site.tensors, **tensors}
    return replace(roles, edge_index=edge_index, values=values)


def refuse_number(most: int) -> None:
    """Refuse what is no number of edges.

    Raises:
        InvalidDeltaError: If it is none, or less than 1.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidDeltaError(
            "num_neighbors: expected a number of edges, 1 or more, or a list of them, one for each "
            f"layer (got {most!r})"
        )


def drawn(
    node: NDArray[np.int64], num_nodes: int, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """At most some edges of each node.

    Edges are read from front to back, a part at a time, so that they may lie on a disk.

    Args:
        node: The node of each edge, int64 `[num_edges]`.
        num_nodes: The number of nodes.
        most: How many edges each of them keeps.
        rng: Where chance comes from.

    Returns:
        Which edges are kept, int64 `[k]`, ascending.
    """
    size = max(AT_ONCE, num_nodes)
    left = np.zeros(num_nodes, np.int32)
    for first in range(0, len(node), size):
        left += np.bincount(node[first : first + size], minlength=num_nodes).astype(np.int32)
    need = np.minimum(left, most)
    kept, count = np.empty(int(need.sum(dtype=np.int64)), np.int64), 0
    stays = np.empty(min(AT_ONCE, len(node)), np.bool_)
    for first in range(0, len(node), AT_ONCE):
        part = node[first : first + AT_ONCE].astype(np.int32)
        more = keep_some(part, rng.random(len(part)), left, need, stays)
        kept[count : count + more] = first + np.flatnonzero(stays[: len(part)])
        count += more
    return kept

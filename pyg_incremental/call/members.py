"""Which graph of several a node belongs to: the `batch` of a call, as edges that lead there.

A readout adds up the rows of the nodes of each graph. To a program the graphs are nodes of a kind
of their own, and `batch` is one edge from each node to its graph; so a readout is an aggregation
like any other. No delta names these edges: they follow the rows of the input.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation


def membership(roles: Roles, name: str) -> Relation:
    """The edges that an input with an id for each node stands for."""
    return Relation(
        f"{name}/members", f"{name}/members", roles.nodes[name], f"{name}/graph", members=name
    )


def may_name_graphs(rows: object) -> bool:
    """Whether a tensor may say which graph each node belongs to: ids, `[num_nodes]` of int64."""
    return (
        isinstance(rows, Tensor)
        and rows.dtype is torch.int64
        and rows.dim() == 1
        and rows.shape[0] > 0
        and int(rows.min()) >= 0
        and int(rows.max()) < rows.shape[0]
    )


def edges_of(rows: Tensor) -> Tensor:
    """An edge from each node to its graph, int64 `[2, num_nodes]`, for its id in `rows`."""
    rows = rows.detach().cpu()
    return torch.stack([torch.arange(len(rows)), rows])


def count_of(rows: Tensor) -> int:
    """The number of graphs, as PyG takes it: one more than the largest id."""
    return int(rows.max()) + 1 if rows.numel() else 0


def counted(
    roles: Roles, num_nodes: Mapping[str, int], rows: Mapping[str, Tensor]
) -> dict[str, int]:
    """The number of nodes of each kind, graphs that inputs name included."""
    found = {r.target: count_of(rows[r.members]) for r in roles.relations if r.members}
    return {**found, **num_nodes}


def with_members(roles: Roles, found: list[Relation]) -> Roles:
    """The same roles with graphs that a trace has found; all relations of `found` that are new."""
    known = {r.graph for r in roles.relations}
    return replace(roles, relations=(*roles.relations, *(r for r in found if r.graph not in known)))

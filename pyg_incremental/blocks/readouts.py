"""The graphs that an input such as `batch` names: nodes of a kind of their own, as any others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyg_incremental.call.members import counted, edges_of
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Domain, Program


def with_readouts(roles: Roles, used: Roles, tensors: Mapping[str, Any]) -> Roles:
    """The roles of a call with the edges that lead from nodes to their graphs.

    Args:
        roles: The roles, with the edges of the graphs that are handed in.
        used: Those of the program of the call, which say what names graphs.
        tensors: The tensors of the call, `[num_nodes, ...]` and `[num_edges, ...]`; what names
            graphs is int64 `[num_nodes]`.
    """
    named = {r.graph: tensors[r.members] for r in used.relations if r.members}
    edges = {graph: edges_of(rows) for graph, rows in named.items()}
    return replace(
        roles,
        relations=used.relations,
        edge_index=roles.edge_index | edges,
        num_nodes=counted(used, roles.num_nodes, tensors),
    )


def has_node_rows(program: Program) -> bool:
    """Whether every output has a row for each node that is handed in."""
    graphs = {r.target for r in program.graphs.values() if r.members}
    return all(v.domain is Domain.NODE and v.kind not in graphs for v in program.outputs)

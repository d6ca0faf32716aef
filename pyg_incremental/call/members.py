"""Which graph of several a node belongs to: the `batch` of a call, as edges that lead there.

A readout adds up the rows of the nodes of each graph. To a program the graphs are nodes of a kind
of their own, and `batch` is one edge from each node to its graph; so a readout is an aggregation
like any other. No delta names these edges: they follow the rows of the input.

A node that was removed is in no graph. Its row is then `~g` where it was `g`: negative, and it is
still known where it was, should the model have to be run whole, which takes no such row.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Program, Relation


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
    """An edge from each node that is in a graph to that, int64 `[2, k]`, for its id in `rows`."""
    rows = rows.detach().cpu()
    edges = torch.stack([torch.arange(len(rows)), rows])
    return edges if all_in_graphs(rows) else edges[:, rows >= 0]


def all_in_graphs(rows: Tensor) -> bool:
    """Whether every node is in a graph."""
    return not rows.numel() or int(rows.min()) >= 0


def count_of(rows: Tensor) -> int:
    """The number of graphs, as PyG takes it: one more than the largest id."""
    return int(rows.max()) + 1 if rows.numel() else 0


def counted(
    roles: Roles, num_nodes: Mapping[str, int], rows: Mapping[str, Tensor]
) -> dict[str, int]:
    """The number of nodes of each kind, graphs that inputs name included."""
    found = {r.target: count_of(rows[r.members]) for r in roles.relations if r.members}
    return {**found, **num_nodes}


def with_members(roles: Roles, program: Program | None) -> Roles:
    """The same roles with the graphs that inputs of a program name, as far as it uses them.

    Args:
        roles: The roles, with what an earlier program used.
        program: The program; None if the model runs whole.
    """
    used = {} if program is None else {r.graph: r for r in program.graphs.values() if r.members}
    kept = [
        replace(r, leaves=False, read_back=False) if r.members else r
        for r in roles.relations
        if r.graph not in used
    ]
    found = [] if program is None else [_as_used(r, program) for r in used.values()]
    return replace(roles, relations=(*kept, *found))


def _as_used(relation: Relation, program: Program) -> Relation:
    rows, steps = program.inputs.get(relation.members), program.steps
    over = [s for s in steps if getattr(s, "graph", None) == relation.graph]
    return replace(
        relation,
        leaves=all(rows not in s.inputs for s in steps) and rows not in program.outputs,
        read_back=any(getattr(s, "reverse", False) for s in over),
    )


def leaving(roles: Roles) -> set[str]:
    """The inputs in which rows of removed nodes are negative."""
    return {r.members for r in roles.relations if r.leaves}


def put_back(names: Collection[str], nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Node inputs with every node in the graph where it was last."""
    return {k: torch.where(v < 0, ~v, v) if k in names else v for k, v in nodes.items()}


def set_apart(roles: Roles, nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Node inputs as a model takes them: those in no graph are in one of their own, the last."""
    found = dict(nodes)
    for name in leaving(roles):
        rows = nodes[name]
        if not all_in_graphs(rows):
            found[name] = torch.where(rows < 0, count_of(rows), rows)
    return found

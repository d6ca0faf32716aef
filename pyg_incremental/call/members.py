"""Which graph of several a node belongs to: the `batch` of a call, as edges that lead there.

A readout adds up the rows of the nodes of each graph. To a program the graphs are nodes of a kind
of their own, and `batch` is one edge from each node to its graph; so a readout is an aggregation
like any other. No delta names these edges: they follow the rows of the input.

A node that was removed is in no graph. Its row is then `~g` where it was `g`: negative, and it is
still known where it was, should the model have to be run whole, which takes no such row.

Where a model reads out all nodes together (`x.mean(0)`), they are one graph. The input with their
ids, all zero, is then one that nobody hands in.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pyg_incremental.call.roles import Roles, is_everyone, name_of_everyone
from pyg_incremental.program.steps import Program, Relation


def membership(roles: Roles, name: str) -> Relation:
    """The edges that an input with an id for each node stands for."""
    return _edges_by(name, roles.nodes[name])


def everyone(kind: str) -> Relation:
    """The edges from all nodes of a kind to the one graph that they are."""
    return _edges_by(name_of_everyone(kind), kind, every=True)


def _edges_by(name: str, kind: str, every: bool = False) -> Relation:
    graph = f"{name}/members"
    return Relation(graph, graph, kind, f"{name}/graph", members=name, every=every)


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


def naming_graphs(roles: Roles, program: Program, rows: Mapping[str, Tensor]) -> set[str]:
    """The node inputs, `[num_nodes, ...]`, that say which graph each node belongs to.

    Those that steps on all rows read may do so: `Program` does not know what for.
    """
    read = {v for s in program.whole_steps for v in s.inputs}
    found = {n for n in roles.nodes if program.inputs[n] in read and may_name_graphs(rows[n])}
    return found | {r.members for r in roles.relations if r.members}


def edges_of(rows: Tensor) -> Tensor:
    """An edge from each node that is in a graph to that, int64 `[2, k]`, for its id in `rows`."""
    rows = rows.detach().cpu()
    edges = torch.stack([torch.arange(len(rows)), rows])
    return edges if all_in_graphs(rows) else edges[:, rows >= 0]


def all_in_graphs(rows: Tensor) -> bool:
    """Whether every node is in a graph; `rows` name them, int64 `[num_nodes]`."""
    return not rows.numel() or int(rows.min()) >= 0


def count_of(rows: Tensor) -> int:
    """The number of graphs, as PyG takes it: one more than the largest of ids, int64 `[n]`."""
    return int(rows.max()) + 1 if rows.numel() else 0


def counted(
    roles: Roles, num_nodes: Mapping[str, int], rows: Mapping[str, Tensor]
) -> dict[str, int]:
    """The number of nodes of each kind, graphs that inputs, int64 `[num_nodes]`, name included."""
    found = {r.target: count_of(rows[r.members]) for r in roles.relations if r.members}
    ours = {r.target: 1 for r in roles.relations if r.every}
    return {**found, **num_nodes, **ours}


def with_everyone(
    roles: Roles, nodes: Mapping[str, Tensor], num_nodes: Mapping[str, int]
) -> dict[str, Tensor]:
    """The node inputs of some roles, with those that nobody hands in, `[num_nodes]` of int64.

    Args:
        roles: The roles.
        nodes: The inputs that there are; what was removed stays so.
        num_nodes: How many nodes there are of each kind.
    """
    found = {name: nodes[name] for name in roles.nodes if not is_everyone(name)}
    device = next((rows.device for rows in found.values()), None)
    for name, kind in roles.nodes.items():
        if is_everyone(name):
            before = nodes.get(name)
            new = torch.zeros(num_nodes[kind], dtype=torch.int64, device=device)
            found[name] = new if before is None else new - (before < 0).long()
    return found


def with_members(roles: Roles, program: Program | None) -> Roles:
    """The same roles with the graphs that a program makes of inputs, as far as it uses them.

    Those are graphs that `batch` names, and tables of edges that are derived from others.

    Args:
        roles: The roles, with what an earlier program used.
        program: The program; None if the model runs whole.
    """
    roles = roles.handed_in
    made = [] if program is None else [r for r in program.graphs.values() if r.derived is not None]
    used = {} if program is None else {r.graph: r for r in program.graphs.values() if r.members}
    kept = [
        replace(r, leaves=False, read_back=False) if r.members else r
        for r in roles.relations
        if r.graph not in used
    ]
    found = [] if program is None else [_as_used(r, program) for r in used.values()]
    ours = {r.members: r.source for r in found if r.every}
    return replace(roles, relations=(*kept, *found, *made), nodes=roles.nodes | ours)


def _as_used(relation: Relation, program: Program) -> Relation:
    rows, steps = program.inputs.get(relation.members), program.steps
    reverse = (relation.graph, True)
    return replace(
        relation,
        leaves=all(rows not in s.inputs for s in steps) and rows not in program.outputs,
        read_back=any(s.over == reverse for s in steps),
    )


def leaving(roles: Roles) -> set[str]:
    """The inputs in which rows of removed nodes are negative."""
    return {r.members for r in roles.relations if r.leaves}


def put_back(names: Collection[str], nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Node inputs, `[num_nodes, ...]`, with every node in the graph where it was last.

    `names` are those that name graphs, int64 `[num_nodes]`.
    """
    return {k: torch.where(v < 0, ~v, v) if k in names else v for k, v in nodes.items()}


def set_apart(roles: Roles, nodes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Node inputs, `[num_nodes, ...]`, as a model takes them.

    Those in no graph are in one of their own, the last.
    """
    found = dict(nodes)
    for name in leaving(roles):
        rows = nodes[name]
        if not is_everyone(name) and not all_in_graphs(rows):
            found[name] = torch.where(rows < 0, count_of(rows), rows)
    return found

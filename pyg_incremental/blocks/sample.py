"""A graph of which every node keeps some of its edges, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from pyg_incremental.aggregate import Aggregate
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.site import CallSite
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.program.steps import Program


def sampled(site: CallSite, roles: Roles, program: Program, most: int, seed: int) -> Roles:
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
        over = {s.reverse for s in program.steps if isinstance(s, Aggregate) and s.graph == name}
        gathered = edge_index[name].numpy()[0 if over == {True} else 1]
        stay = torch.from_numpy(drawn(gathered, most, rng))
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


def drawn(node: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """At most some edges of each node, in order: int64 `[k]`, of the edges `[num_edges]`."""
    stays = np.bincount(node)[node] <= most if len(node) else np.zeros(0, np.bool_)
    some = np.flatnonzero(~stays)
    some = some[rng.permutation(len(some))]
    some = some[np.argsort(node[some], kind="stable")]
    ends = node[some]
    first = np.searchsorted(ends, ends)  # where the edges of the same node begin
    stays[some[np.arange(len(some)) - first < most]] = True
    return np.flatnonzero(stays)

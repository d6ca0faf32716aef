"""In which order a model is given the edges: as they were added, or sorted by target."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch_geometric import EdgeIndex

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation
from pyg_incremental.trace.probe import probe_of


def settled(site: BoundCall, roles: Roles) -> Roles:
    """The roles, with edges sorted by target only where the model wants them so.

    Some aggregations fail on edges in any other order, and an `EdgeIndex` may say that it is
    sorted. Any other model gets its edges in the order in which they were added, also if the first
    ones happened to be sorted: what it returns for each edge is then in the order of
    `graph.to_edge_index()`.

    Args:
        site: The call; its model is copied before it runs.
        roles: What its tensors are; edges that came sorted by target are marked so.
    """
    loose = [r for r in roles.relations if _may_be_loose(site, r)]
    if not loose:
        return roles
    free = _with_loose(roles, loose)
    if runs(site, probe_of(site, free).arguments(site, free)):
        return free
    if not runs(site, probe_of(site, roles).arguments(site, roles)):
        # It runs on no small graph, so its own one has to tell.
        return free if runs(site, _turned_over(site, roles, loose)) else roles
    for relation in loose if len(loose) > 1 else ():  # only some of them are to be sorted
        free = _with_loose(roles, [relation])
        if runs(site, probe_of(site, free).arguments(site, free)):
            roles = free
    return roles


def _may_be_loose(site: BoundCall, relation: Relation) -> bool:
    graph = site.tensors[relation.graph]
    return relation.by_target and not (isinstance(graph, EdgeIndex) and graph.is_sorted_by_col)


def _with_loose(roles: Roles, loose: Sequence[Relation]) -> Roles:
    names = {r.graph for r in loose}
    relations = (
        replace(r, by_target=r.by_target and r.graph not in names) for r in roles.relations
    )
    return replace(roles, relations=tuple(relations))


def _turned_over(site: BoundCall, roles: Roles, loose: Sequence[Relation]) -> list[Any]:
    """The arguments of the call, with the last edges of some graphs first."""
    names = {r.graph for r in loose}
    given = dict(site.tensors)
    for name in names:
        given[name] = given[name].flip(1)
    for name, of in roles.edges.items():
        if of in names:
            given[name] = given[name].flip(0)
    return [given[name] for name in site.names]


def runs(site: BoundCall, arguments: list[Any]) -> bool:
    """Whether a copy of the model runs."""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        try:
            full_pass.run(site, arguments, fresh=True)
        except Exception:  # a user's model may raise anything
            return False
    return True

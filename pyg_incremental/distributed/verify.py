"""The output of all ranks held against the original model: everywhere, or around some nodes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental import full_pass
from pyg_incremental.call_site import CallSite
from pyg_incremental.distributed.ids import joined
from pyg_incremental.distributed.part import Part

Ids = NDArray[np.int64]


def sample_of(part: Part, num_nodes: int | None, seed: int) -> Ids | None:
    """The nodes to look at, the same on every rank; None for all."""
    turned = any(out for _, out in part.links)
    if num_nodes is None or num_nodes >= part.num_nodes or turned:
        return None
    rng = np.random.default_rng(seed)
    return np.unique(rng.integers(0, part.num_nodes, num_nodes))


def gather(part: Part, asked: Ids | None) -> list[Any]:
    """Bring what is needed to the first rank; a collective.

    Args:
        part: This rank's part.
        asked: The nodes to look at, or None for all.

    Returns:
        On the first rank for each rank: node ids and rows of the node inputs, in-edges and their
        data, ids of nodes to look at and their output rows. None on other ranks.
    """
    rounds = part.rounds
    out = pytree.tree_leaves(part.output(copy=False))
    if asked is None:
        mine: Any = (part.ids, part.nodes(), *part.edges(), part.ids, out)
    else:
        seen, edges = asked, [part.edges_into(asked)]
        for _ in range(part.plan.program.depth):
            # Everyone learns which nodes are one hop farther away; their owners know their edges.
            far = rounds.everywhere(np.unique(edges[-1][0][0].numpy()))
            more = np.setdiff1d(joined(far), seen)
            seen = np.union1d(seen, more)
            edges.append(part.edges_into(more))
        pairs = torch.cat([e for e, _ in edges], 1)
        data = {k: torch.cat([d[k] for _, d in edges]) for k in edges[0][1]}
        ids, at = _places(part, seen)
        own_asked, own_at = _places(part, asked)
        nodes = {k: rows[at] for k, rows in part.nodes().items()}
        mine = (ids, nodes, pairs, data, own_asked, [rows[own_at] for rows in out])
    to_first: list[Any] = [None] * rounds.size
    to_first[0] = mine
    return rounds.swap(to_first)


def _places(part: Part, ids: Ids) -> tuple[Ids, Tensor]:
    """Those of some nodes that are own ones, and where they stand among `part.ids`."""
    own = ids[part.own.find(ids) >= 0]
    return own, torch.from_numpy(np.searchsorted(part.ids, own))


def difference(part: Part, site: CallSite, got: list[Any]) -> float:
    """Run the original model on what `gather` has brought, and compare.

    Args:
        part: The part of the first rank.
        site: The call.
        got: What `gather` has returned.
    """
    ids, order = _sorted(np.concatenate([g[0] for g in got]))
    nodes = {k: torch.cat([g[1][k] for g in got])[order] for k in got[0][1]}
    pairs = torch.cat([g[2] for g in got], 1).numpy()
    state = {k: torch.cat([g[3][k] for g in got]) for k in got[0][3]}
    state["edge_index"] = torch.from_numpy(np.searchsorted(ids, pairs))
    if part.by_target:
        at = state["edge_index"][1].argsort(stable=True)
        state = {k: v[:, at] if k == "edge_index" else v[at] for k, v in state.items()}
    roles = part.plan.roles
    count = dict.fromkeys(roles.num_nodes, len(ids))
    tensors = full_pass.arguments(site, roles, nodes, {part.graph_name: state}, count, part.others)
    with torch.no_grad():
        theirs = pytree.tree_leaves(full_pass.run(site, tensors))
    asked, asked_order = _sorted(np.concatenate([g[4] for g in got]))
    place = torch.from_numpy(np.searchsorted(ids, asked))
    ours = [torch.cat([g[5][i] for g in got])[asked_order] for i in range(len(got[0][5]))]
    return full_pass.difference(ours, [t[place] for t in theirs])


def _sorted(ids: Ids) -> tuple[Ids, Tensor]:
    order = np.argsort(ids, kind="stable")
    return ids[order], torch.from_numpy(order)

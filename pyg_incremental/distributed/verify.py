"""The output of all ranks held against the original model: everywhere, or around some nodes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.call import full_pass
from pyg_incremental.call.agreement import gap_of
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.distributed.numbering.ids import joined
from pyg_incremental.distributed.part.part import Part
from pyg_incremental.encoding.framing import record

Ids = NDArray[np.int64]


@record
@dataclass
class Gathered:
    """What one rank has told the first one.

    Attributes:
        ids: Nodes of each kind, global ids.
        nodes: Their rows of each node input.
        edges: For each graph edges in global ids, and their data.
        asked: Nodes of each kind to look at.
        out: For each output its rows at those of its kind.
    """

    ids: dict[str, Ids]
    nodes: dict[str, Tensor]
    edges: dict[str, tuple[Tensor, dict[str, Tensor]]]
    asked: dict[str, Ids]
    out: list[Tensor]


def sample_of(part: Part, num_nodes: int | None, seed: int) -> Ids | None:
    """The nodes to look at, the same on every rank; None for all."""
    total, roles = sum(part.region.num_nodes.values()), part.plan.roles
    turned = any(out for _, out in part.region.links)
    plain = roles.is_plain and not roles.fixed and not turned
    if num_nodes is None or num_nodes >= total or not plain:
        return None
    rng = np.random.default_rng(seed)
    return np.unique(rng.integers(0, total, num_nodes))


def gather(part: Part, asked: Ids | None, most: int | None = None) -> list[Any] | None:
    """Bring what is needed to the first rank; a collective.

    Args:
        part: This rank's part.
        asked: The nodes to look at, int64 `[k]`, or None for all; a sample only where there is one
            kind.
        most: How many nodes and edges that may be, or None for any number.

    Returns:
        On the first rank what each rank has told it, `Gathered`; None in its place on other ranks.
        None in the place of all if that is too much.
    """
    if asked is not None:
        mine = _around(part, asked, most)
    elif most is None or _size(part) <= most:
        mine = _all_of(part)
    else:
        mine = None
    if mine is None:
        return None
    to_first: list[Any] = [None] * part.rounds.size
    to_first[0] = mine
    return part.rounds.swap(to_first)


def _all_of(part: Part) -> Gathered:
    region = part.region
    ids = {kind: region.ids(kind) for kind in region.own}
    edges = {name: region.edges(name) for name in region.relations}
    out = pytree.tree_leaves(part.output(copy=False))
    return Gathered(ids, part.nodes(), edges, ids, out)


def _size(part: Part) -> int:
    """How many nodes and edges all ranks own; a collective."""
    edges = sum(graph.num_edges for (_, out), graph in part.region.graphs.items() if not out)
    return sum([*part.region.num_nodes.values(), *part.rounds.everywhere(edges)])


def _around(part: Part, asked: Ids, most: int | None) -> Gathered | None:
    """What some nodes see; their owners know their edges, so hop after hop all have to be told.

    None where that are more than so many nodes and edges.
    """
    region, rounds = part.region, part.rounds
    (kind,), (name,) = region.own, region.relations
    seen, more, edges = asked, asked, [region.edges_into(name, asked)]
    for _ in range(part.plan.program.depth):
        far = rounds.everywhere(np.unique(edges[-1][0][0].numpy()))
        more = np.setdiff1d(joined(far), seen)
        seen = np.union1d(seen, more)
        count = sum(pairs.shape[1] for pairs, _ in edges)
        if most is not None and seen.size + sum(rounds.everywhere(count)) > most:
            return None
        edges.append(region.edges_into(name, more))
    edges[-1] = region.edges_into(name, more[:0])  # nobody asks what the last ones see
    pairs = torch.cat([e for e, _ in edges], 1)
    data = {k: torch.cat([d[k] for _, d in edges]) for k in edges[0][1]}
    own = region.ids(kind)
    mine, chosen = (ids[region.own[kind].find(ids) >= 0] for ids in (seen, asked))
    at, out_at = (torch.from_numpy(np.searchsorted(own, ids)) for ids in (mine, chosen))
    nodes = {k: rows[at] for k, rows in part.nodes().items()}
    out = [rows[out_at] for rows in pytree.tree_leaves(part.output(copy=False))]
    return Gathered({kind: mine}, nodes, {name: (pairs, data)}, {kind: chosen}, out)


def both(part: Part, site: BoundCall, got: list[Gathered]) -> tuple[list[Tensor], list[Tensor]]:
    """Run the original model on what `gather` has brought.

    Args:
        part: The part of the first rank.
        site: The call.
        got: What `gather` has returned.

    Returns:
        The rows of each output at the nodes that were asked for: ours, and the model's.
    """
    roles = part.plan.roles
    ids, orders = {}, {}
    for kind in got[0].ids:
        ids[kind], orders[kind] = _sorted(np.concatenate([g.ids[kind] for g in got]))
    nodes = {
        name: torch.cat([g.nodes[name] for g in got])[orders[kind]]
        for name, kind in roles.nodes.items()
    }
    graphs = {}
    for r in roles.relations:
        pairs = torch.cat([g.edges[r.graph][0] for g in got], 1).numpy()
        ends = np.searchsorted(ids[r.source], pairs[0]), np.searchsorted(ids[r.target], pairs[1])
        data = [g.edges[r.graph][1] for g in got]
        state = {k: torch.cat([d[k] for d in data]) for k in data[0]}
        state["edge_index"] = torch.from_numpy(np.stack(ends))
        if r.by_target:
            at = state["edge_index"][1].argsort(stable=True)
            state = {k: v[:, at] if k == "edge_index" else v[at] for k, v in state.items()}
        graphs[r.graph] = state
    count = {kind: len(some) for kind, some in ids.items()}
    tensors = full_pass.arguments(site, roles, nodes, graphs, count, part.others)
    theirs = pytree.tree_leaves(full_pass.run(site, tensors, fresh=True))
    ours, want = [], []
    for i, kind in enumerate(pytree.tree_leaves(part.session.outputs.kinds)):
        asked, order = _sorted(np.concatenate([g.asked[kind] for g in got]))
        ours.append(torch.cat([g.out[i] for g in got])[order])
        want.append(theirs[i][torch.from_numpy(np.searchsorted(ids[kind], asked))])
    return ours, want


def found(part: Part, site: BoundCall, got: list[Gathered]) -> tuple[Any, ...]:
    """How far both are apart, as `agreement.Gap` has it, and the node where that is, or None."""
    gap = gap_of(*both(part, site, got))
    if gap.row < 0:
        return (*gap, None)
    kind = pytree.tree_leaves(part.session.outputs.kinds)[gap.output]
    asked, _ = _sorted(np.concatenate([g.asked[kind] for g in got]))
    return (*gap, int(asked[gap.row]))


def _sorted(ids: Ids) -> tuple[Ids, Tensor]:
    order = np.argsort(ids, kind="stable")
    return ids[order], torch.from_numpy(order)

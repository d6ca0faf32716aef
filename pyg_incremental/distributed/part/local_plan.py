"""The plan of one rank: the program of the whole graph, over what the rank owns and sees."""

from dataclasses import replace

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import Traced
from pyg_incremental.distributed.boundary.rewrite import (
    name_of,
    partitioned,
    refuse_whole,
    relation_of,
    suffix_of,
)
from pyg_incremental.distributed.errors import PartitionError, on_all_ranks
from pyg_incremental.distributed.part.region import Borders
from pyg_incremental.distributed.wire.rounds import Rounds


def agree(plan: CallPlan, rounds: Rounds, instead: str = "to_incremental") -> None:
    """See that all ranks run one program, and that it can be run on parts of the graph.

    Args:
        plan: How the call is computed in one process.
        rounds: The conversation with the other ranks.
        instead: What does it in one process, for those who are refused.

    Raises:
        UnsupportedModelError: If some step needs all rows.
        PartitionError: If the ranks do not run the same model.
    """
    refuse_whole(plan.program, type(plan.site.model).__name__, instead)
    programs = rounds.everywhere(str(plan.program))
    if any(p != programs[0] for p in programs):
        raise on_all_ranks(
            PartitionError("the ranks do not run the same model, or not with the same call")
        )


def local_plan(plan: CallPlan, borders: Borders) -> CallPlan:
    """The plan of one rank, in local ids; its roles hold no graph.

    Args:
        plan: How the call is computed in one process.
        borders: The nodes that the rank owns and sees.
    """
    edges = {
        f"{name}{suffix_of(d)}": name_of(d)
        for name, graph in plan.roles.edges.items()
        for d in borders.links
        if d[0] == graph
    }
    relations = tuple(
        relation_of(borders.relations[d[0]], d, link) for d, link in borders.links.items()
    )
    num_nodes = borders.local_counts()
    roles = Roles(relations, plan.roles.nodes, edges, plan.roles.others, num_nodes)
    program = partitioned(plan.program, borders.links, borders.own)
    return replace(plan, roles=roles, traced=Traced(program, plan.traced.structure))

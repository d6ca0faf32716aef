"""The node at which an output differs most from that of the original model."""

from __future__ import annotations

from torch.utils import _pytree as pytree

from pyg_incremental.call.agreement import Gap
from pyg_incremental.session.against_model import sample
from pyg_incremental.session.session import Session


def worst_node(session: Session, gap: Gap, num_nodes: int | None, seed: int) -> int | None:
    """The node of the row that `gap` names; None if it is no row of a node.

    Args:
        session: The state that was compared.
        gap: What was found.
        num_nodes: At how many nodes it was; None for all.
        seed: Seed of the draw of these.
    """
    if gap.row < 0:
        return None
    kind = pytree.tree_leaves(session.outputs.kinds)[gap.output]
    if kind not in session.num_nodes:
        return None
    if gap.num_rows == session.num_nodes[kind]:
        return gap.row
    if num_nodes is None or gap.num_rows != num_nodes:
        return None  # nodes that were removed are left out
    return int(sample(session, num_nodes, seed)[kind][gap.row])

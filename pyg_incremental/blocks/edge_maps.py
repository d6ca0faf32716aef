"""Rows of edges, or of pairs of nodes, that a model returns or reads again: some at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.blocks.at_hand import AtHand
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.errors import RowCountError
from pyg_incremental.program.steps import Domain, Relation, Step, Value
from pyg_incremental.rows import AT_ONCE


def rows_of_edges(
    step: Step,
    relation: Relation,
    edge_index: Tensor,
    at_hand: AtHand,
    places: NodeOrder,
) -> Tensor:
    """The rows of all edges, `[num_edges, ...]`, in the order in which they are handed in.

    Args:
        step: What makes them.
        relation: The kinds of nodes that they join.
        edge_index: The edges, int64 `[2, num_edges]`.
        at_hand: The rows at their ends.
        places: The places of nodes.

    Raises:
        RowCountError: If there comes out no row for each edge.
    """
    count = edge_index.shape[1]

    def part(first: int, last: int) -> Tensor:
        ends: list[NDArray[np.int64]] = [*edge_index[:, first:last].numpy()]
        src, dst = (
            places.of(kind, ids)
            for kind, ids in zip((relation.source, relation.target), ends, strict=True)
        )

        def along(value: Value) -> Any:
            if value.domain is Domain.WHOLE:
                return at_hand.content(value)
            return at_hand.edge_rows(value, np.arange(first, last))

        def picked(rows: Value, ids: Value) -> Tensor:
            at = along(ids).cpu().numpy()
            found = at_hand.rows_at(rows, places.of(rows.kind, at.ravel()))
            return found.view(*at.shape, *found.shape[1:])

        rows: Tensor = step.on_edges(
            lambda v: at_hand.rows_at(v, src), lambda v: at_hand.rows_at(v, dst), picked, along
        )
        if len(rows) != last - first:
            raise RowCountError(
                f"step '{step.output}' made {len(rows)} rows for {last - first} edges; the model "
                "has to run whole"
            )
        return rows

    found = part(0, min(AT_ONCE, count))
    if count <= AT_ONCE:
        return found
    made = found.new_empty(count, *found.shape[1:])
    made[:AT_ONCE] = found
    for first in range(AT_ONCE, count, AT_ONCE):
        last = min(first + AT_ONCE, count)
        made[first:last] = part(first, last)
    return made

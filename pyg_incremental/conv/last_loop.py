"""What the last self-loop at a node carries, as PyG's helpers for self-loops ask."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.ops import Neighborhood, NeighborhoodRows
from pyg_incremental.program.derivations import rows_of_part, value_of
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Domain, NotIncremental, Program, Relation, Value


def last_loop(call: ConvCall, weight: Value, fill: float) -> Value:
    """The weight of the last self-loop at each node, `[num_nodes, 1]`; `fill` where there is none.

    In a table that the model has made of others, the last loop is that of the last part which has
    one, whenever it came. So the parts are looked through one behind the other.

    Raises:
        NotIncremental: If the model has put a loop at each node itself.
    """
    rows: Value | None = None
    for relation, read in _parts(call.program, call.relation, (weight,)):
        name = f"loop_{fill:g}" if rows is None else f"{rows}_{relation.graph}"
        fn = youngest_or_fill if rows is not None else partial(youngest_or_fill, fill=fill)
        targets = () if rows is None else (rows,)
        rows = replace(call, relation=relation).rows(name, fn, (), targets, read, loops="only")
    assert rows is not None
    return rows


def with_last_loops(program: Program, relation: Relation, rows: Value, fill: Value) -> Value:
    """The row of the last self-loop at each node, `[num_nodes, ...]`.

    Args:
        program: The program.
        relation: The graph.
        rows: Rows of its edges.
        fill: Node rows, where a node has no loop.

    Raises:
        NotIncremental: If loops are those that the model adds, or have rows of nodes.
    """
    for of, read in _parts(program, relation, (rows,)):
        if reads_nodes(program).intersection(read):
            raise NotIncremental("rows of loops are made of rows of nodes")
        made = program.value(f"{rows}_{of.graph}", Domain.NODE, of.source)
        step = NeighborhoodRows(
            made, (fill, *read), "only", False, youngest_or_fill, (), (fill,), read, graph=of.graph
        )
        fill = program.add(None, partial(as_it_is, step))
    return fill


def _parts(
    program: Program, relation: Relation, read: tuple[Value, ...]
) -> list[tuple[Relation, tuple[Value, ...]]]:
    """The graphs whose edges stand in the order in which they came, and what is read of them.

    Args:
        program: The program.
        relation: The graph that is made of these, or is one.
        read: Rows of its edges: a weight, and masks of those that count.
    """
    derived = relation.derived
    if derived is None or derived.merged:
        return [(relation, read)]
    if derived.loops:
        raise NotIncremental("the last loop of each node is one that the model has added")
    found = []
    for k, part in enumerate(derived.parts):
        if any(p.graph == part.graph and p.keep is None for p in derived.parts[k + 1 :]):
            continue  # the same loops once more
        of = next(r for r in program.graphs.values() if r.graph == part.graph)
        masks = [] if part.keep is None else [value_of(program, part.keep)]
        those = tuple(rows_of_part(program, v, relation, k) for v in read)
        found += _parts(program, of, (*those, *masks))
    return found


def youngest_or_fill(around: Neighborhood, fill: float = 0.0) -> Tensor:
    """The row of the youngest edge into each node, `[num_rows, ...]`; else what is filled in.

    Of equal indices the last one has to win, so all but the youngest of each row are left out.

    Args:
        around: Edges with rows, and masks of those that count; a target value is what is filled in.
        fill: What it is if there is no such value.
    """
    (rows, *masks), at = around.edge, around.by_age
    at = at[_all_of(masks, at)]
    for_row, places = around.index[at], torch.arange(len(at), device=at.device)
    youngest = places.new_full((around.num_rows,), -1).scatter_reduce_(0, for_row, places, "amax")
    there = youngest >= 0
    made = around.target[0].clone() if around.target else rows.new_full((around.num_rows, 1), fill)
    made[there] = rows[at[youngest[there]]].to(made.dtype).view(-1, *made.shape[1:])
    return made


def _all_of(masks: Sequence[Tensor], at: Tensor) -> Tensor:
    """Which edges all masks take, bool `[k]`."""
    taken = torch.ones(len(at), dtype=torch.bool, device=at.device)
    for mask in masks:
        taken &= mask[at]
    return taken

"""Whether all that is held fits together: what `IncrementalModel.check` finds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels import pairs
from pyg_incremental.program.steps import Domain
from pyg_incremental.rows import Cell
from pyg_incremental.session.session import Session

PLACES = 16
"""Units in the last place of a logit: what a linear map leaves that adds in another order."""
WHICH = 3
"""So many of those that do not fit are named."""


def problems(session: Session) -> list[str]:
    """What does not fit, a sentence each.

    Args:
        session: The running state; nothing of it changes.
    """
    found = []
    for name, graph in session.graphs.items():
        found += [f"graph '{name}': {what}" for what in problems_of_graph(graph)]
    if not found:  # rows are made afresh along the lists of the graph, which have to be in order
        found += _problems_of_rows(session)
    return found


# Graphs ------------------------------------------------------------------------------------------


def problems_of_graph(graph: DynamicGraph) -> list[str]:
    """What does not fit in a graph: slots, neighbour lists, the table of pairs, free slots."""
    end = graph._end
    live = np.flatnonzero(graph.slots.in_at >= 0)
    found = []
    if live.size != graph.num_edges:
        found.append(f"{live.size} slots hold edges, but there are {graph.num_edges} edges")
    if live.size and live[-1] >= end:
        found.append(f"slot {live[-1]} holds an edge, but slots from {end} on were never used")
    src, dst = graph.slots.src[live].astype(np.int64), graph.slots.dst[live].astype(np.int64)
    for ids, what in ((src, "source"), (dst, "target")):
        found += _wrong(live[(ids < 0) | (ids >= graph.num_nodes)], f"has no {what}", "slot")
    if found:
        return found
    found += _of_lists(graph, live, src, dst)
    found += _of_pairs(graph, live, src, dst)
    found += _of_free(graph, live)
    sizes = {name: rows.shape[0] for name, rows in graph.edge_data.items()}
    for name, size in sizes.items():
        if size != graph.slot_capacity:
            found.append(f"'{name}' has {size} rows for {graph.slot_capacity} slots")
    return found


def _of_lists(
    graph: DynamicGraph, live: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]
) -> Iterator[str]:
    """Every edge stands in the list of its source and in that of its target, and nothing else."""
    for side, (what, adj, key, other, positions) in enumerate(
        (
            ("out", graph.out, src, dst, graph.slots.out_at),
            ("in", graph.inn, dst, src, graph.slots.in_at),
        )
    ):
        degree, start = adj.degree.astype(np.int64), adj.start
        top = int(graph._tops[side])
        count = graph.num_nodes
        wrong = (degree[:count] < 0) | (degree[:count] > adj.capacity[:count])
        yield from _wrong(np.flatnonzero(wrong), f"has an {what}-list longer than its room", "node")
        if int(degree.sum()) != live.size or degree[count:].any():
            yield f"the {what}-degrees add up to {degree.sum()}, but there are {live.size} edges"
        held = np.flatnonzero(adj.capacity[:count] > 0)
        held = held[np.argsort(start[held], kind="stable")]
        ends = start[held] + adj.capacity[held]
        behind = np.append(start[held][1:], top)
        yield from _wrong(
            held[(ends > behind) | (start[held] < 0)],
            f"has an {what}-list that runs into another one or past the pool",
            "node",
        )
        at = positions[live].astype(np.int64)
        outside = (at < 0) | (at >= degree[key])
        yield from _wrong(live[outside], f"stands outside the {what}-list of its node", "slot")
        place = (start[key] + at)[~outside]
        if place.size and (place.min() < 0 or place.max() >= adj.edge.size):
            yield f"some {what}-lists lie outside their pool of {adj.edge.size}"
            continue
        differs = (adj.edge[place] != live[~outside]) | (adj.neighbor[place] != other[~outside])
        yield from _wrong(live[~outside][differs], f"is not where the {what}-list says", "slot")


def _of_pairs(
    graph: DynamicGraph, live: NDArray[np.int64], src: NDArray[np.int64], dst: NDArray[np.int64]
) -> Iterator[str]:
    """The table leads to the youngest slot of every pair, and each slot to the next older one."""
    table, slots, order = graph._table, graph.slots, graph.slots.order[live]
    if order.size and (order.max() >= graph.next_order or np.unique(order).size != order.size):
        yield "two edges are of one age, or older than the next one to come"
    if graph._ages_ascend and (np.diff(order) < 0).any():
        yield "ages do not ascend from slot to slot, which they are said to do"
    if graph._used != np.count_nonzero(table != pairs.EMPTY):
        used = np.count_nonzero(table != pairs.EMPTY)
        yield f"{used} places of the table of pairs are in use, but {graph._used} were counted"
    if not (table == pairs.EMPTY).any():
        yield "the table of pairs is full, so that looking for a pair would not end"
        return
    heads = table[table >= 0]
    yield from _wrong(np.setdiff1d(heads, live), "is in the table of pairs, but empty", "slot")
    by_age = np.lexsort((order, dst, src))
    keys = ((src << 32) | dst)[by_age]
    first = np.append(True, keys[1:] != keys[:-1]) if keys.size else np.empty(0, bool)
    youngest = np.append(keys[1:] != keys[:-1], True) if keys.size else np.empty(0, bool)
    aged = live[by_age]
    before = np.where(first, -1, np.roll(aged, 1))
    yield from _wrong(
        aged[slots.older[aged] != before], "does not lead to the next older edge", "slot"
    )
    if heads.size != np.count_nonzero(youngest):
        yield f"the table holds {heads.size} pairs, but there are {np.count_nonzero(youngest)}"
    found = graph.find(slots.src[aged[youngest]].astype(np.int64), keys[youngest] & 0xFFFFFFFF)
    yield from _wrong(aged[youngest][found != aged[youngest]], "is not found by its pair", "slot")


def _of_free(graph: DynamicGraph, live: NDArray[np.int64]) -> Iterator[str]:
    """Every slot that was used holds an edge, or waits to be used again."""
    free = graph._free[: graph._num_free]
    if np.unique(free).size != free.size:
        yield "a free slot is listed twice"
    yield from _wrong(np.intersect1d(free, live), "is listed as free, but holds an edge", "slot")
    if free.size and (free.min() < 0 or free.max() >= graph._end):
        yield "a slot that was never used is listed as free"
    if free.size + live.size != graph._end:
        yield f"of {graph._end} slots {live.size} hold edges and {free.size} are free"


def _wrong(which: NDArray[np.int64], what: str, kind: str) -> list[str]:
    """A sentence on some nodes or slots, if there are any."""
    if not which.size:
        return []
    named = ", ".join(map(str, which[:WHICH].tolist()))
    more = f" and {which.size - WHICH} more" if which.size > WHICH else ""
    return [f"{kind} {named}{more} {what}"]


# Rows --------------------------------------------------------------------------------------------


def _problems_of_rows(session: Session) -> list[str]:
    """Stored rows and states of aggregations against what comes of the features now."""
    found = []
    for kind, count in session.num_nodes.items():
        known = session.engine.nodes[kind].num_nodes
        if known != count:
            found.append(f"{known} nodes of kind '{kind}' have rows, but there are {count}")
    if found:
        return found
    fresh = session.on(session.graphs, dict(session.num_nodes), session.nodes())
    theirs = dict(zip(session.engine.cells, fresh.engine.cells.values(), strict=True))
    states = [a.unwrapped for a in session.engine.aggregators]
    softmaxes = {a.step.output: a.heads for a in states if a.heads}
    cells, coarsest = session.engine.cells, _coarsest(session)
    for value, cell in cells.items():
        if not cell.stored and cell.maker is None and value.domain is not Domain.WHOLE:
            continue
        heads = softmaxes.get(value, 0)
        found += _problems_of_cell(session, cell, theirs[value], heads, coarsest)
    for a in states:
        what = f"of '{a.step.output}' has a channel of an edge of another row"
        found += _wrong(a.of_other_edges(), what, "row")
    return found


def _coarsest(session: Session) -> torch.dtype:
    """The coarsest floating dtype among all values: moments of float32 rows are no better."""
    stored = [c for c in session.engine.cells.values() if c.rows is not None]
    found = {c.out_dtype or c.tensor.dtype for c in stored}
    floating = [dtype for dtype in found if dtype.is_floating_point]
    return max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float64)


def _problems_of_cell(
    session: Session, cell: Cell, fresh: Cell, heads: int, coarsest: torch.dtype
) -> Iterator[str]:
    """What a value holds against what it holds when it is made afresh.

    Args:
        session: The running state.
        cell: The value.
        fresh: The same value, made afresh.
        heads: Of how many heads it is the state of a softmax; none if it is not.
        coarsest: The dtype to whose accuracy it is held.
    """
    value = cell.value
    if value.domain is Domain.WHOLE:
        ours, made = cell.content, fresh.content
    elif cell.rows is None or fresh.rows is None:
        return
    elif value.domain is Domain.EDGE:
        slots = torch.from_numpy(session.graphs[value.kind].slots_in_order())
        ours, made = cell.tensor[slots], fresh.tensor[slots]
    else:
        count = session.num_nodes[value.kind]
        ours, made = cell.tensor[:count], fresh.tensor[:count]
    if not isinstance(ours, Tensor) or not isinstance(made, Tensor):
        return
    if ours.layout is not torch.strided:
        return
    slack = None
    if heads and ours.shape == made.shape:
        slack = _of_logits(made[:, -heads:], coarsest)
        ours, made = _at_one_reference(ours, made, heads)
    if ours.shape != made.shape:
        yield f"'{value}' is of shape {list(ours.shape)}, but made afresh {list(made.shape)}"
    elif ours.numel():
        far = _far(ours.cpu(), made.cpu(), coarsest, slack)
        rows = (
            np.flatnonzero(far.reshape(len(far), -1).any(1).numpy()) if far.dim() else far.numpy()
        )
        what = f"of '{value}' is another one when made afresh"
        yield from _wrong(np.flatnonzero(far) if not far.dim() else rows, what, "row")


def _at_one_reference(ours: Tensor, made: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Numerators and masses of two states of a softmax, which may refer to different logits."""
    parts = []
    for state in (ours, made):
        channels = state.shape[1] // heads - 2
        values, mass, reference = state.split([heads * channels, heads, heads], 1)
        parts.append(
            (torch.cat([values.view(-1, heads, channels), mass.unsqueeze(-1)], 2), reference)
        )
    (rows, of_rows), (others, of_others) = parts
    alike = (of_rows == of_others) | (of_others == -torch.inf)  # no edges: nothing to refer to
    gap = (of_rows - of_others).masked_fill(alike, 0).unsqueeze(-1)
    return (rows * gap.exp()).flatten(1), others.flatten(1)


def _of_logits(reference: Tensor, dtype: torch.dtype) -> Tensor:
    """What part of a softmax's weights rounding of the logits may be, `[n, 1]`.

    Logits are rows of maps, and those come out otherwise in the last places where few rows are
    computed. Weights are their exponentials: of a logit of 1e4 one unit is a thousandth of these.
    """
    size = reference.double().abs().masked_fill(~reference.isfinite(), 0).amax(1, keepdim=True)
    return (PLACES * torch.finfo(dtype).eps * size).cpu()


def _far(ours: Tensor, fresh: Tensor, dtype: torch.dtype, slack: Tensor | None = None) -> Tensor:
    """Where two tensors differ by more than what additions in another order may leave.

    `slack` is what part of its size each row may be off by beside that, `[n, 1]`.
    """
    if not ours.dtype.is_floating_point:
        return ours != fresh
    a, b = ours.double(), fresh.double()
    size = b.abs().masked_fill(~b.isfinite(), 0)
    # What moved through a row is of the size of its rows and of its channels; a variance is zero in
    # most rows where few have two in-edges.
    if b.dim():
        row = size.reshape(len(size), -1).amax(1).reshape(-1, *[1] * (b.dim() - 1))
        channel = size.masked_fill(size == 0, torch.nan).nanmedian(0).values
        size = torch.maximum(row, channel.nan_to_num(0))
    part = 4 * torch.finfo(dtype).eps ** 0.5 + (0 if slack is None else slack)
    allowed = part * (size + torch.finfo(dtype).eps)
    same = (a == b) | ((a != a) & (b != b))
    far: Tensor = ~(same | ((a - b).abs() <= allowed))
    return far

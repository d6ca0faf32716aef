"""Whether a row of a conv depends on itself and its in-edges only, found out by trying.

The conv runs on small random graphs with self-loops, parallel edges, a hub and isolated nodes.
What no row may notice is changed (far nodes, far edges, how many there are, what they are called),
and every row is computed again from its in-neighbourhood alone, by itself and together with others.
All of it is done in float64 where the conv allows it, and once more with shaken parameters, so that
neither a gate that is still at zero nor rounding can hide what a row reads.

A conv that fails on such a graph may still run where first and last rows have in-edges, or where
the edges are sorted by target. It is then tried on graphs of that form; and where it does run on
others, it has to compute the same.
"""

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.ops import Neighborhood
from pyg_incremental.trace.small_graphs import SIZES, Draw, Form, World

_PADDED = (aggr.LSTMAggregation, aggr.GRUAggregation, aggr.LCMAggregation)
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
_COARSE = 5e-2
_FEW = range(1)
_ALL = range(len(SIZES))


class Forward(Protocol):
    """A conv's own `forward`; see `own.OwnForward`."""

    @property
    def conv(self) -> Any:
        """The conv."""

    @property
    def reverse(self) -> bool:
        """Whether a row gathers over its out-edges."""

    def __call__(self, nodes: Sequence[Tensor], edges: Sequence[Tensor], graph: Tensor) -> Any:
        """Run it on a whole graph.

        Args:
            nodes: Rows of each node value, `[num_nodes, ...]`.
            edges: Rows of each edge value, `[num_edges, ...]`.
            graph: Sources and targets, int64 `[2, num_edges]`.
        """

    def on_rows(self, around: Neighborhood) -> Tensor:
        """Run it on what some rows see."""

    def on(self, conv: Any) -> "Forward":
        """The same of another conv."""


class _SeenError(Exception):
    """What a row has noticed, or why it cannot be told."""


class _FailedError(_SeenError):
    """The conv raised an error."""


def why_not_local(
    forward: Forward, nodes: Sequence[Tensor], edges: Sequence[Tensor], by_target: bool = False
) -> str:
    """Why a row may depend on more than its in-neighbourhood, or an empty string.

    Args:
        forward: The conv; copies of it are run, never itself.
        nodes: Example rows `[n, ...]` of each node value.
        edges: Example rows `[m, ...]` of each edge value.
        by_target: Whether its edges come sorted by target.
    """
    padded = next((m for m in forward.conv.modules() if isinstance(m, _PADDED)), None)
    if padded is not None:
        return f"{type(padded).__name__} pads all rows to the largest degree"
    nodes, edges = [rows.cpu() for rows in nodes], [rows.cpu() for rows in edges]
    failed: list[tuple[Form, str]] = []
    for sort in (False, True) if by_target else (False,):
        for form in (Form(False, sort), Form(True, sort)):
            chance = torch.Generator().manual_seed(0)
            draw = Draw(nodes, edges, chance, form=form, reverse=forward.reverse)
            try:
                _try_all(forward, draw, [other for other, _ in failed])
            except _FailedError as error:
                failed.append((form, str(error)))
            except _SeenError as seen:
                return str(seen)
            else:
                return ""
    return failed[0][1]


def _try_all(forward: Forward, draw: Draw, others: Sequence[Form]) -> None:
    """Try it on graphs of the form that `draw` says; on those of others it may fail."""
    _try(_copy(forward), draw, _FEW)
    fine, exact = _copy(forward), replace(draw, dtype=torch.float64)
    fine.conv.double()
    if not _runs(fine, exact):  # it insists on the dtype that it has
        fine, exact = _copy(forward), draw
    _try(fine, exact, _ALL)
    for form in others:
        _try_where_it_runs(fine, replace(exact, form=form))
    for _ in range(3):
        shaken = _shaken(fine, draw.chance)
        # Rows may be such that noise is none of them, as indices and probabilities are.
        kinds = (replace(exact, noise=(n, e)) for n in (True, False) for e in (True, False))
        kind = next((k for k in kinds if _runs(shaken, k)), exact)
        if kind.varies and _try(shaken, kind, _ALL):
            return
    raise _SeenError("all rows of a probe are equal, which tells nothing")


def _shaken(forward: Forward, chance: torch.Generator) -> Forward:
    """With other parameters."""
    forward = _copy(forward)
    for p in forward.conv.parameters():
        if p.dtype.is_floating_point and p.numel():
            size = 0.1 + p.detach().abs().mean().nan_to_num()
            p.data += size * torch.randn(p.shape, generator=chance).to(p)
    return forward


def _copy(forward: Forward) -> Forward:
    """Another one on the CPU: an index out of range is an error there; on a GPU it ends all."""
    try:
        return forward.on(copy.deepcopy(forward.conv).cpu())
    except Exception as error:  # whatever a user's module keeps
        raise _SeenError(f"it cannot be copied ({_line(error)})") from error


def _runs(forward: Forward, draw: Draw) -> bool:
    try:
        _answer(forward, draw.world(0))
    except _FailedError:
        return False
    return True


def _try(forward: Forward, draw: Draw, kinds: range) -> bool:
    """Hold one version of a conv against itself; returns whether its rows differ at all."""
    told = False
    for kind in kinds:
        world = draw.world(kind)
        fresh = forward if kind else _copy(forward)
        try:
            rows = _answer(forward, world)
        except _FailedError:
            if world.graph.shape[1]:
                raise
            continue  # without edges the conv itself does not run
        finite = rows.double().nan_to_num(0, 0, 0)
        told |= bool((finite != finite[:1]).any())
        if not kind:
            _try_again(forward, fresh, draw, world, rows)
            _try_far(forward, draw, world, rows)
        _try_rows(forward, draw, world, kind, rows)
    return told


def _try_where_it_runs(forward: Forward, draw: Draw) -> None:
    """Hold it against itself on graphs on which it may fail."""
    for kind in _ALL:
        world = draw.world(kind)
        try:
            rows = _answer(forward, world)
        except _FailedError:
            continue
        _try_rows(forward, draw, world, kind, rows)


def _try_rows(forward: Forward, draw: Draw, world: World, kind: int, rows: Tensor) -> None:
    """Each row, from what it sees alone, has to be that of a full pass."""
    for some in draw.subsets(kind):
        got = _run(forward.on_rows, world.seen_by(some, forward.reverse))
        _same(got, rows[some], "computed from its in-neighbours alone, a row differs")


def _try_again(forward: Forward, fresh: Forward, draw: Draw, world: World, rows: Tensor) -> None:
    """Neither chance nor an earlier call may matter; `fresh` has not seen this world yet."""
    _same(_answer(forward, world), rows, "two equal calls of it differ")
    _answer(fresh, draw.world(1))
    _same(_answer(fresh, world), rows, "it remembers earlier calls")


def _try_far(forward: Forward, draw: Draw, world: World, rows: Tensor) -> None:
    """Nothing far away may matter."""
    nodes, edges, graph, size = world.nodes, world.edges, world.graph, world.size
    more = [torch.cat(pair) for pair in zip(nodes, draw.rows(3), strict=True)]
    grown = _answer(forward, replace(world, nodes=more))
    _same(grown[:size], rows, "its rows change with the number of nodes")
    end = 0 if forward.reverse else 1
    for row in (0, 2, 5):
        into = graph[end] == row
        cut = replace(world, edges=[e[into] for e in edges], graph=graph[:, into])
        what = f"a row changes with edges that do not lead {'into' if end else 'out of'} it"
        _same(_answer(forward, cut)[row], rows[row], what)
        near = (torch.arange(size, device=graph.device) == row).index_fill(
            0, graph[1 - end][into], True
        )
        other = _elsewhere(nodes, near, draw.rows(size))
        what = "a row changes with nodes that are not its in-neighbours"
        _same(_answer(forward, replace(world, nodes=other))[row], rows[row], what)
        # NaN too: a product with a dense adjacency, say, brings it to every row.
        nowhere = [torch.full_like(t, torch.nan) if _is_float(t) else t for t in nodes]
        other = _elsewhere(nodes, near, nowhere)
        with contextlib.suppress(_FailedError):  # then there can be no NaN
            _same(_answer(forward, replace(world, nodes=other))[row], rows[row], what)
    name = draw.order(size).to(graph.device)
    renamed = [torch.empty_like(t).index_copy_(0, name, t) for t in nodes]
    got = _answer(forward, replace(world, nodes=renamed, graph=name[graph]))[name]
    _same(got, rows, "its rows depend on the ids of the nodes")


def _elsewhere(rows: Sequence[Tensor], here: Tensor, other: Sequence[Tensor]) -> list[Tensor]:
    """Rows with others in their place everywhere but `here`."""
    pairs = zip(rows, other, strict=True)
    return [torch.where(here.view(-1, *[1] * (r.dim() - 1)), r, o) for r, o in pairs]


def _is_float(rows: Tensor) -> bool:
    return rows.dtype.is_floating_point


def _answer(forward: Forward, world: World) -> Tensor:
    """One row for each node, from a full pass; the conv may write to its arguments."""
    given = world.given
    out = _run(forward, *given)
    if not isinstance(out, Tensor) or not out.dim() or out.shape[0] != given[0][0].shape[0]:
        raise _SeenError("it does not return one row for each node")
    return out[world.own]


def _run(fn: Any, *args: Any) -> Any:
    try:
        with torch.no_grad():
            return fn(*args)
    except Exception as error:  # a user's module may raise anything
        raise _FailedError(f"it fails on a small graph ({_line(error)})") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _same(got: Tensor, want: Tensor, what: str) -> None:
    if got.shape != want.shape or got.dtype is not want.dtype:
        raise _SeenError(what)
    limit = _TOLERANCE.get(want.dtype, _COARSE if want.dtype.is_floating_point else 0.0)
    got, want = got.double(), want.double()
    size = want.abs().clamp(min=1)
    if limit > _TOLERANCE[torch.float64] and want.numel():
        # In few bits a large row rounds away what is small beside it.
        size = size.clamp(min=float(want.nan_to_num(0, 0, 0).abs().max()))
    near = (got - want).abs() <= limit * size
    if not bool((near | (got == want) | (got.isnan() & want.isnan())).all()):
        raise _SeenError(what)

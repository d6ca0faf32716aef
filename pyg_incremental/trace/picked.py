"""Rows of some nodes: `rows[mask]`, and `rows[:k]` that leave a model.

Layers by type of node are written so: `h[mask] = lin(x[mask])` for each type. What is computed of
the rows that a mask picks is computed in the row of each node, and counts where the mask holds;
other rows are zeros before the first operation. What leaves is picked as it leaves.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.program.steps import Domain, Returned, Value
from pyg_incremental.trace.closures import Live
from pyg_incremental.trace.functions import set_item
from pyg_incremental.trace.sizes import same_size
from pyg_incremental.trace.written import Written


@dataclass(frozen=True, eq=False)
class Picked:
    """Rows of some nodes.

    Attributes:
        rows: The rows of all nodes, `[num_nodes, ...]`, a value of domain `NODE`.
        at: Which of them are picked where that is fixed; None where a mask says it.
        keep: The mask, bool `[num_nodes]`, a value of domain `NODE`, or None.
        meaning: Equal for equal masks.
    """

    rows: Value
    at: slice | int | None = None
    keep: Value | None = None
    meaning: Hashable = None


def picked(written: Written, node: fx.Node) -> Picked | Value | None:
    """The rows that an operation picks, all of them as they are; None if it is something else."""
    first = node.args[0]
    rows = written.env.get(first) if isinstance(first, fx.Node) else None
    if not isinstance(rows, Value) or rows.domain is not Domain.NODE or len(node.args) != 2:
        return None
    at = node.args[1]
    if isinstance(at, int | slice) and not isinstance(at, bool):
        if _is_all(written, first, at):
            return rows
        parts = (at.start, at.stop, at.step) if isinstance(at, slice) else (at,)
        return Picked(rows, at) if all(isinstance(p, int | None) for p in parts) else None
    keep = _mask(written, at, rows)
    if keep is None:
        return None
    held = written.program.map(f"{node.name}_all", _zeros_elsewhere, [rows, keep])
    written.examples.setdefault(held, written.examples[rows])
    return Picked(held, None, keep, written.recorded.meaning(at))


def _is_all(written: Written, rows: Any, at: int | slice) -> bool:
    """Whether an index is `[:n]`, with the number of rows."""
    stop = at.stop if isinstance(at, slice) and (at.start, at.step) == (None, None) else None
    if not isinstance(stop, fx.Node):
        return False
    return same_size(written.recorded.fake[stop], written.recorded.fake[rows].shape[0])


def put(written: Written, node: fx.Node) -> Value | None:
    """`rows[mask] = values`, with values of the nodes that the mask picks, or alike for all."""
    if node.target is not set_item:
        return None
    first, at, given = node.args
    base = written.env.get(first) if isinstance(first, fx.Node) else None
    if not isinstance(base, Value) or base.domain is not Domain.NODE:
        return None
    keep = _mask(written, at, base)
    if keep is None:
        return None
    if isinstance(given, fx.Node):
        given = written.env[given]
    if isinstance(given, Picked):
        alike = given.keep is not None and given.meaning == written.recorded.meaning(at)
        if not alike or written.examples[given.rows].shape[1:] != written.examples[base].shape[1:]:
            return None
        return written.program.map(node.name, _put, [base, keep, given.rows])
    if isinstance(given, (bool, int, float)):
        return written.program.map(node.name, partial(_filled, given), [base, keep])
    return None


def over_picked(written: Written, nodes: list[fx.Node]) -> dict[fx.Node, Picked] | None:
    """What an operation reads, if that is rows of the same picked nodes and no other rows."""
    held = {n: written.env[n] for n in nodes}
    found = {n: h for n, h in held.items() if isinstance(h, Picked) and h.keep is not None}
    others = [h for n, h in held.items() if n not in found]
    if not all(isinstance(h, Live) or _is_whole(h) for h in others):
        return None
    return found if found and len({p.meaning for p in found.values()}) == 1 else None


def with_rows(like: Picked, rows: Any) -> Any:
    """Rows, or several of them, of the same nodes."""
    if isinstance(rows, tuple):
        return tuple(replace(like, rows=part) for part in rows)
    return replace(like, rows=rows)


def leaving(written: Written, name: str, held: Picked) -> Value:
    """Picked rows that leave the model: they are copied with each update that changes any row."""
    out = written.program.value(f"{name}_out", Domain.WHOLE)
    inputs, fn = _taking(held)
    return written.program.add(None, lambda: Returned(out, inputs, fn, pure=True))


def as_picked(written: Written, name: str, held: Picked) -> Value:
    """Picked rows as the tensor that the model has, which is picked from all rows."""
    inputs, fn = _taking(held)
    reason = f"{name}: its result does not have one row for each input row"
    return written.program.whole(name, fn, inputs, Domain.WHOLE, reason, pure=True)


def _taking(held: Picked) -> tuple[tuple[Value, ...], Any]:
    """What picked rows are made of, and how."""
    if held.keep is None:
        return (held.rows,), partial(_taken, held.at)
    return (held.rows, held.keep), _kept


def _is_whole(held: Any) -> bool:
    return isinstance(held, Value) and held.domain is Domain.WHOLE


def _mask(written: Written, at: Any, rows: Value) -> Value | None:
    keep = written.env.get(at) if isinstance(at, fx.Node) else None
    if not isinstance(keep, Value) or (keep.domain, keep.kind) != (rows.domain, rows.kind):
        return None
    real = written.recorded.real[at]
    return keep if real.dtype is torch.bool and real.dim() == 1 else None


def _as_wide(mask: Tensor, rows: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (rows.dim() - 1))


def _zeros_elsewhere(rows: Tensor, keep: Tensor) -> Tensor:
    return torch.where(_as_wide(keep, rows), rows, torch.zeros_like(rows))


def _put(base: Tensor, keep: Tensor, rows: Tensor) -> Tensor:
    return torch.where(_as_wide(keep, base), rows.to(base.dtype), base)


def _filled(number: Any, base: Tensor, keep: Tensor) -> Tensor:
    return torch.where(_as_wide(keep, base), base.new_full((), number), base)


def _taken(at: Any, rows: Tensor) -> Tensor:
    return rows[at].clone()


def _kept(rows: Tensor, keep: Tensor) -> Tensor:
    return rows[keep]

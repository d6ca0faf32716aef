"""Rows of a saved state, held against those that the model computes on its graph now."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.call.full_pass import difference
from pyg_incremental.program.steps import Domain
from pyg_incremental.session.session import Session

_PART = 1 << 13
"""So many rows are compared at a time, in fast memory."""


def whole_outputs(session: Session) -> dict[str, Tensor]:
    """Outputs without a row per node, by name; those with one are among the stored rows."""
    cells, found = session.engine.cells, {}
    for value in session.plan.program.outputs:
        content = cells[value].content if value.domain is Domain.WHOLE else None
        if isinstance(content, Tensor):
            found[value.name] = content
    return found


def refuse_other_outputs(
    session: Session, content: Mapping[str, Any], checked: Checked, changed: list[str]
) -> None:
    """See that the model computes on a saved graph what it computed then, up to rounding.

    Only outputs are compared: other rows may be kept in more than one way.

    Args:
        session: The model on the saved graph, computed anew.
        content: The saved state.
        checked: What errors begin with.
        changed: How the model differs from that of the state, as far as it can be told.

    Raises:
        StateFileError: If it does not.
    """
    for name, then, now in _pairs(session, content, checked):
        refuse_other(name, then, now, checked, changed)


def refuse_other(
    name: str, then: Tensor, now: Tensor, checked: Checked, changed: list[str]
) -> None:
    """See that an output is what it was, up to rounding; see `refuse_other_outputs`.

    Args:
        name: Its name.
        then: As it was saved, of any shape, on the CPU.
        now: As it is computed now.
        checked: What errors begin with.
        changed: How the model differs, as far as it can be told.

    Raises:
        StateFileError: If it is not.
    """
    if then.shape != now.shape or then.dtype is not now.dtype:
        found = f"{list(then.shape)} of {then.dtype} then, {list(now.shape)} of {now.dtype} now"
    elif then.is_floating_point():
        gap, most = difference(then.to(now.device), now), _tolerance(then)
        if gap <= most:
            return
        found = f"the largest difference is {gap:.3g}, expected {most:.1e} at most"
    else:
        return
    why = f"; changed since: {'; '.join(changed[:5])}" if changed else ""
    raise checked.refuse(
        f"it was saved for another model: the output '{name}', computed again on the saved graph, "
        f"is not what it was then ({found}){why}",
        "Give the model the options and the code it had; to change them, load first, then change "
        "them, then refresh()",
    )


def _pairs(
    session: Session, content: Mapping[str, Any], checked: Checked
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Names of values, as they were saved, and as they are computed now."""
    program, cells = session.plan.program, session.engine.cells
    checked.same(len(content["outputs"]), len(program.outputs), "number of outputs")
    whole = whole_outputs(session)
    for name, value in zip(content["outputs"], program.outputs, strict=True):
        now = cells[value].current() if value.domain is Domain.NODE else whole.get(value.name)
        then = content["rows"].get(name, content["whole_outputs"].get(name))
        if (now is None) is not (then is None):
            raise checked.refuse(f"the output '{name}' is missing")
        if now is not None and then is not None:
            yield name, then, now


def restore(session: Session, content: Mapping[str, Any], checked: Checked) -> None:
    """Take the saved rows in the place of those that were computed, bit by bit.

    Raises:
        StateFileError: If a row is missing, of another shape or dtype, or not what it is when it is
            computed, up to rounding.
    """
    engine = session.engine
    stored = [c for c in engine.cells.values() if c.stored and c.domain is Domain.NODE]
    _same_names(checked, content["rows"], [c.value.name for c in stored], "rows")
    softmaxes = {a.step.output for a in engine.aggregators if a.unwrapped.heads}
    # What reads such a state may hand its references on, as attention over hyperedges does.
    for step in session.plan.program.steps:
        if step.computes and softmaxes.intersection(step.inputs):
            softmaxes.add(step.output)
    for cell in stored:
        name, count = cell.value.name, session.num_nodes[cell.value.kind]
        then, computed = content["rows"][name], cell.tensor[:count]
        _same_kind(checked, then, computed, f"'{name}'")
        then = then.to(computed.device)
        _refuse_other_rows(then, computed, name, checked, cell.value in softmaxes)
    names = [a.step.output.name for a in engine.aggregators]
    _same_names(checked, content["aggregators"], names, "aggregations")
    for a in engine.aggregators:
        kept = content["aggregators"][a.step.output.name]
        count = session.num_nodes[a.step.output.kind]
        now = {k: r.tensor[:count] for k, r in a.extra.items()}
        now |= {} if a.scale.rows is None else {"scale": a.scale.tensor}
        _same_names(checked, kept, list(now), f"parts of '{a.step.output.name}'")
        for name, rows in now.items():
            what = f"'{name}' of '{a.step.output.name}'"
            _same_kind(checked, kept[name], rows, what)
            has_nan = kept[name].is_floating_point() and bool(_largest(kept[name]).isnan())
            if has_nan and bool((kept[name].isnan() & ~rows.cpu().isnan()).any()):
                raise checked.refuse(f"{what} is NaN")
    engine.restore(content["rows"], content["aggregators"])


def _refuse_other_rows(
    then: Tensor, now: Tensor, name: str, checked: Checked, is_softmax: bool
) -> None:
    """See that saved rows, `[n, ...]`, are those that are computed, up to rounding.

    Rows that were corrected by many updates may be off by more than those of one pass. The state of
    a softmax refers to logits that may be others than those of a fresh one, so that only rows with
    NaN tell, wherever in the row it is.
    """
    if not then.is_floating_point():
        far = then != now
    elif not bool(_largest(then).isnan()) if is_softmax else _are_close(then, now):
        return
    else:
        same = (then == now) | (then.isnan() & now.isnan())
        close = (then - now).abs() <= 8 * _tolerance(now)
        nan = [t.reshape(len(t), -1).isnan().any(1) for t in (then, now)]
        far = nan[0] & ~nan[1] if is_softmax else ~(same | close)
    if bool(far.any()):
        row = int(far.reshape(len(far), -1).any(1).nonzero()[0])
        raise checked.refuse(
            f"row {row} of '{name}' is not what the model computes on the saved graph"
        )


def _are_close(then: Tensor, now: Tensor) -> bool:
    """Whether all rows, `[n, ...]`, are finite and near each other, as they are but for faults."""
    most = 8 * _tolerance(now)
    parts = zip(then.split(_PART), now.split(_PART), strict=True)
    return all(bool(_largest(a - b) <= most) for a, b in parts)


def _largest(rows: Tensor) -> Tensor:
    """The largest absolute value of some rows, `[]`; 0 of none, and NaN if there is one."""
    if not rows.numel():
        return rows.new_zeros(())
    low, high = rows.aminmax()
    return torch.maximum(-low, high)


def _same_kind(checked: Checked, got: Tensor, want: Tensor, what: str) -> None:
    """See that what was saved has the shape and the dtype of what is computed."""
    checked.same((list(got.shape), got.dtype), (list(want.shape), want.dtype), what)


def _same_names(checked: Checked, got: Mapping[str, Any], names: list[str], what: str) -> None:
    checked.same(sorted(got), sorted(names), f"names of {what}")


def _tolerance(rows: Tensor) -> float:
    """How far apart rows may be that were computed in another order, on another machine."""
    scale = float(_largest(rows))
    if not math.isfinite(scale):
        finite = rows[rows.isfinite()]
        scale = float(finite.abs().max()) if finite.numel() else 0.0
    return float(torch.finfo(rows.dtype).eps ** 0.5) * (1.0 + scale)

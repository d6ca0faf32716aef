"""Which step of a program goes wrong first.

After deltas each step is compared with itself made afresh. Where the first pass is wrong already,
the rows of each step are looked for among all that `forward` makes: a step may be arranged in
another way than `forward` is, so one whose rows stand nowhere there counts only if nothing that is
made of them stands there either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.traced import Traced
from pyg_incremental.program.origin import in_brackets
from pyg_incremental.program.row_wise import as_it_is
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.session.session import Session
from pyg_incremental.testing.compare import compared
from pyg_incremental.trace.names import shown
from pyg_incremental.trace.operations import FILLS
from pyg_incremental.trace.where import here

_LEFT_OUT = frozenset(("input", "learned", "ones", "softmax"))
"""What is handed in, and states that may differ and stand for the same rows."""
_COPIES = frozenset(("clone", "detach", "contiguous"))


@dataclass(frozen=True)
class WrongStep:
    """Where a program goes wrong first.

    Attributes:
        name: The value that the step makes, as in `print(inc.program)`.
        row: The node.
        channel: The place in its row, flat.
        got: What stands there.
        beside: What it was compared with.
        num_nodes: How many nodes the graph has on which that was found.
    """

    name: str
    row: int
    channel: int
    got: float
    beside: str
    num_nodes: int

    def __str__(self) -> str:
        return (
            f"step '{self.name}' is the first that differs: of {self.num_nodes} nodes in row "
            f"{self.row}, channel {self.channel}, it is {self.got:.4g}, {self.beside}"
        )


def with_all_rows(plan: CallPlan) -> CallPlan:
    """The same, with the rows of every step among what leaves, so that each of them is there."""
    program = replace(plan.program)
    nodes = [s.output for s in program.steps if s.output.domain is Domain.NODE]
    program.outputs = [*program.outputs, *(v for v in nodes if v not in program.outputs)]
    return replace(plan, traced=Traced(program, plan.traced.structure))


def differs_from_afresh(
    kept: Session, afresh: Session, tolerance: float | None
) -> WrongStep | None:
    """The first step whose rows are not those that it makes afresh; None if there is none.

    Args:
        kept: What deltas have led to, with the rows of all steps.
        afresh: The same graph in a first pass.
        tolerance: As for `check_conv`.
    """
    old, new = _rows_of(kept), _rows_of(afresh)
    for step in kept.plan.program.steps:
        if step.output in old and step.output in new:
            found = _gap(old[step.output], new[step.output], tolerance)
            if found is not None:
                row, channel, got, want = found
                beside = f"and {want:.4g} if it is made afresh"
                count = len(new[step.output])
                return WrongStep(str(step.output), row, channel, got, beside, count)
    return None


def differs_from_forward(
    session: Session, run: Callable[[], Any], outputs: Sequence[Value], tolerance: float | None
) -> WrongStep | None:
    """The first step whose rows `forward` does not make; None if there is none.

    Args:
        session: A first pass, with the rows of all steps.
        run: Calls the model on the same graph.
        outputs: The values that leave: they have to be what the model returns.
        tolerance: As for `check_conv`.
    """
    seen = _Seen()
    with torch.no_grad(), seen:
        returned = pytree.tree_leaves(run())
    rows = _rows_of(session)
    steps = session.plan.program.steps
    wanted = dict(zip(outputs, returned, strict=True)) if len(outputs) == len(returned) else {}
    fine: set[Value] = set()
    for step in reversed(steps):
        held, value = rows.get(step.output), step.output
        if held is not None and value in wanted:
            stands = not compared(held, wanted[value], tolerance).wrong
        else:
            stands = held is not None and seen.has(held, tolerance)
        if stands or value in fine:
            fine.update((value, *step.inputs))  # however these are arranged, they are right
    for step in steps:
        if step.output in rows and step.output not in fine:
            copied = step.row_fn is as_it_is
            name = str(step.inputs[0] if copied else step.output)
            if step.output in wanted:
                seen.only(wanted[step.output], "what forward returns")
            return seen.nearest(name, rows[step.output])
    return None


def _rows_of(session: Session) -> dict[Value, Tensor]:
    """The node rows of the steps, `[num_nodes, ...]`, but for inputs and states of softmaxes."""
    found: dict[Value, Tensor] = {}
    cells = session.engine.cells
    for step in session.plan.program.steps:
        cell = cells.get(step.output)
        if step.kind in _LEFT_OUT or cell is None or cell.nodes is None or cell.rows is None:
            continue
        found[step.output] = cell.whole(cell.nodes.num_nodes).clone()
    return found


def _gap(
    ours: Tensor, theirs: Tensor, tolerance: float | None
) -> tuple[int, int, float, float] | None:
    """Row, channel and what stands there on both sides, where rows differ most."""
    if not compared(ours, theirs, tolerance).wrong:
        return None
    if ours.shape != theirs.shape or not ours.numel():
        return None
    flat = [t.reshape(len(t), -1).double() for t in (ours, theirs)]
    off = (flat[0] - flat[1]).abs().nan_to_num(torch.inf, torch.inf)
    off[(flat[0] == flat[1]) | ((flat[0] != flat[0]) & (flat[1] != flat[1]))] = 0
    row, channel = divmod(int(off.argmax()), off.shape[1])
    return row, channel, float(flat[0][row, channel]), float(flat[1][row, channel])


class _Seen(TorchFunctionMode):
    """All tensors that a model makes, and the lines that make them."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[tuple[Tensor, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for rows in made if isinstance(made, (tuple, list)) else (made,):
            told = isinstance(rows, Tensor) and shown(func) not in _COPIES | FILLS
            if told and rows.dim() and rows.layout is torch.strided:
                what = f"what '{shown(func)}' makes in forward{in_brackets(here())}"
                self._made.append((rows.detach().clone(), what))
        return made

    def _like(self, rows: Tensor) -> list[tuple[Tensor, str]]:
        alike = [
            (made.reshape(rows.shape), what)
            for made, what in self._made
            if len(made) == len(rows) and made.numel() == rows.numel()
        ]
        return [(made, what) for made, what in alike if made.dtype.is_floating_point]

    def has(self, rows: Tensor, tolerance: float | None) -> bool:
        """Whether rows, `[num_nodes, ...]`, are among what was made."""
        return any(
            not compared(rows.to(made.dtype), made, tolerance).wrong for made, _ in self._like(rows)
        )

    def only(self, rows: Tensor, what: str) -> None:
        """Forget what was made but for these rows."""
        self._made = [(rows, what)]

    def nearest(self, name: str, rows: Tensor) -> WrongStep:
        """How the rows of a step, `[num_nodes, ...]`, differ from what is most like them."""
        alike = [(_gap(rows, made, 0.0), what) for made, what in self._like(rows)]
        known = [(gap, what) for gap, what in alike if gap is not None]
        if not known:
            beside = f"and forward makes no rows of its shape, {list(rows.shape)}"
            return WrongStep(name, 0, 0, float(rows.flatten()[0]), beside, len(rows))
        (row, channel, got, want), what = min(known, key=lambda one: abs(one[0][2] - one[0][3]))
        return WrongStep(name, row, channel, got, f"and {want:.4g} in {what}", len(rows))

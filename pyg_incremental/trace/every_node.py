"""Readouts of all nodes together, `x.mean(0)` or `global_mean_pool(x, None)`: a graph of their own.

All nodes of a kind are then in one graph, whose row is the aggregate of theirs, like that of any
graph of several (see `call.members`). It leaves as a value without rows, as the model makes it.
"""

import operator
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.call.members import everyone
from pyg_incremental.call.roles import Roles, is_label
from pyg_incremental.conv import ConvCall
from pyg_incremental.program.steps import Domain, NotIncremental, Only, Program, Value
from pyg_incremental.trace.ends import Ends
from pyg_incremental.trace.ids import End, arguments_of, is_fixed
from pyg_incremental.trace.names import called
from pyg_incremental.trace.written import Written

_REDUCES = {"sum": "sum", "mean": "mean", "amax": "max", "amin": "min", "max": "max", "min": "min"}
_WITH_PLACES = ("max", "min")


class EveryNode:
    """Finds readouts of all nodes in a recorded graph.

    Args:
        written: What is written so far.
        ends: Writes the aggregations.
        roles: What the tensors of the call are.

    Kinds of which there can be no more nodes, or that have no features, are left alone, as are
    models that watch pairs: nothing can leave these.
    """

    def __init__(self, written: Written, ends: Ends, roles: Roles) -> None:
        self._written, self._ends = written, ends
        watches = any(is_label(r.graph) for r in roles.given)
        self._kinds = [] if watches else [
            kind for kind in roles.kinds if kind not in roles.fixed and roles.features(kind)
        ]  # fmt: skip

    def read(self, node: fx.Node) -> Value | tuple[Value | None, ...] | None:
        """The value of an operation that reduces all rows of nodes to one; None if it does not."""
        name = called(node)
        if name not in _REDUCES:
            return None
        given = arguments_of(node, ("input", "dim", "keepdim"))
        if given.keys() - {"input", "dim", "keepdim"} or not isinstance(given["input"], fx.Node):
            return None
        rows, fake = self._written.env[given["input"]], self._written.recorded.fake[given["input"]]
        known = isinstance(rows, Value) and rows.domain is Domain.NODE and rows.kind in self._kinds
        if not known or not _is_over_rows(given.get("dim"), fake):
            return None
        result: Any = self._written.recorded.real[node]
        if name in _WITH_PLACES:
            if _is_read(node, 1):  # which node it is
                return None
            result = result[0]
        try:
            made = self._reduced(node, rows, _REDUCES[name])
        except NotIncremental:
            return None
        shape = result.shape
        program: Program = self._written.program

        def only(row: Tensor) -> Tensor:
            return row.reshape(shape)

        found = program.add(
            None, lambda: Only(program.value(node.name, Domain.WHOLE), (made,), only)
        )
        return (found, None) if name in _WITH_PLACES else found

    def _reduced(self, node: fx.Node, rows: Value, reduce: str) -> Value:
        """The row of the graph that all nodes are, `[1, channels]`."""
        program, relation = self._written.program, everyone(rows.kind)
        if relation.members not in program.inputs:
            program.input(relation.members, Domain.NODE, rows.kind)
            program.graph(relation)
        call: ConvCall = self._ends.call_over(node, End(relation, at_target=True))
        flat = self._ends.flat(rows)
        if reduce in ("max", "min"):
            return call.extremum(flat, reduce == "max")
        total = call.total(flat)
        if reduce == "sum":
            return total
        return program.map(f"{node.name}_row", torch.div, [total, call.degree()])


def _is_over_rows(dim: Any, fake: Any) -> bool:
    """Whether a reduction over `dim` leaves no dimension that depends on the graph."""
    if isinstance(dim, (list, tuple)) and len(dim) == 1:
        (dim,) = dim
    return (
        isinstance(fake, Tensor)
        and fake.is_floating_point()
        and fake.dim() > 1
        and type(dim) is int
        and dim in (0, -fake.dim())
        and is_fixed(fake.shape[1:])
    )


def _is_read(node: fx.Node, part: int) -> bool:
    """Whether anything reads one of several results, or all of them."""
    picks = [user for user in node.users if user.target is operator.getitem]
    return len(picks) < len(node.users) or any(p.args[1] == part and p.users for p in picks)

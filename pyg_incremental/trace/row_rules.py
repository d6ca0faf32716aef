"""Whether an operation of a traced model works row by row, and why it does not."""

from typing import Any

import torch
from torch import Tensor, fx
from torch_geometric.nn.conv.hetero_conv import group

from pyg_incremental.call.roles import is_label
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.row_wise import why_not_row_wise
from pyg_incremental.program.steps import Domain, Value
from pyg_incremental.trace import operations
from pyg_incremental.trace.functions import set_item
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.nested import rebuilt
from pyg_incremental.trace.sizes import is_fake, same_size
from pyg_incremental.trace.written import Written


def why_not_by_rows(written: Written, node: fx.Node, fn: Any) -> str:
    """Why an operation does not work row by row; empty if it does.

    Args:
        written: What is written so far.
        node: The operation.
        fn: The function or module that it calls.
    """
    values = written.values(node)
    if node.op == "call_function" and name_of(node.target) in operations.RESHAPES:  # type: ignore[arg-type]
        values = values[:1]  # the others are sizes, of which `_why_not_reshape` knows
    rowed = {(v.domain, v.kind) for v in values if v.domain is not Domain.WHOLE}
    if not rowed:
        return "it does not work on rows"
    if len(rowed) > 1:
        return "it mixes node rows and edge rows" if len({d for d, _ in rowed}) > 1 else (
            "it mixes rows of different kinds"
        )  # fmt: skip
    if any(map(written.is_graph, values)):
        return "it reads the graph"
    whole = [v for v in values if v.domain is Domain.WHOLE]
    if whole:
        if any(v.domain is Domain.EDGE for v in values) and not written.fixed.issuperset(whole):
            return "it combines edge rows with something computed from all rows"
        if written.program.read_out.intersection(whole):
            return "it combines each row with one that is made of all of them"
        gathered = reads_nodes(written.program).intersection(values)
        if not all(is_label(v.kind) for v in gathered):
            return "it combines rows gathered along edges with another tensor"
    rows = next(r for n in node.all_input_nodes if (r := rows_of(written, n)) is not None)
    result = written.recorded.real[node]
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    count = rows.shape[0]
    if not all(isinstance(r, Tensor) and r.dim() > 0 and r.shape[0] == count for r in results):
        return "its result does not have one row for each input row"
    if any(isinstance(d, torch.SymInt) for f in _fakes(written, node) for d in f.shape[1:]):
        return "its rows grow with the graph"
    if node.op == "call_module":
        if any(v.domain is Domain.WHOLE for v in values):
            return "it combines rows with something computed from all rows"
        return why_not_row_wise(fn, rows.dim())
    if fn is group:
        return ""
    if fn is set_item and _sets_masked(written, node):
        return ""
    call = operations.RowOperation(
        name_of(fn),
        _abstract(written, node.args),
        _abstract(written, node.kwargs),
        results[0].dim(),
    )
    if squeezes_all(node):
        return _why_not_reshape(written, node)
    reason = operations.why_not_row_function(call)
    if not reason and call.name.rstrip("_") in operations.RESHAPES:
        return _why_not_reshape(written, node)
    return reason


def _sets_masked(written: Written, node: fx.Node) -> bool:
    """Whether an operation is `rows[mask] = number`, with a mask of the shape of the rows."""
    rows, mask, number = node.args
    fakes = [written.recorded.fake[n] for n in (rows, mask) if isinstance(n, fx.Node)]
    alike = len(fakes) == 2 and all(map(is_fake, fakes)) and fakes[1].dtype is torch.bool
    return alike and fakes[0].dim() == fakes[1].dim() and isinstance(number, (int, float))


def _fakes(written: Written, node: fx.Node) -> list[Tensor]:
    """The results of a node that are tensors, without values."""
    result = written.recorded.fake[node]
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    return [part for part in parts if is_fake(part)]


def _why_not_reshape(written: Written, node: fx.Node) -> str:
    """The first dimension has to stay the rows, whatever their number."""
    before, after = written.recorded.fake[node.args[0]], written.recorded.fake[node]  # type: ignore[index]
    same = is_fake(before) and same_size(before.shape[0], after.shape[0])
    return "" if same else "it does not keep the rows"


def _abstract(written: Written, value: Any) -> Any:
    """Arguments as the rules of `operations` see them."""
    if not isinstance(value, fx.Node):
        return rebuilt(value, lambda part: _abstract(written, part))
    held, fake = written.env[value], written.recorded.fake[value]
    if isinstance(held, tuple):
        return [operations.RowArgument(part.dim()) for part in written.recorded.real[value]]
    if isinstance(held, Value) and held.domain is not Domain.WHOLE:
        return operations.RowArgument(written.recorded.real[value].dim())
    return operations.fixed(fake) if isinstance(fake, Tensor) else _OfSize()


def rows_of(written: Written, argument: Any) -> Tensor | None:
    """The probe's rows of an argument that has rows, or None."""
    if not isinstance(argument, fx.Node):
        return None
    held, result = written.env[argument], written.recorded.real[argument]
    if isinstance(held, tuple):
        held, result = held[0], result[0]
    has_rows = isinstance(held, Value) and held.domain is not Domain.WHOLE
    return result if has_rows and isinstance(result, Tensor) else None


def squeezes_all(node: fx.Node) -> bool:
    """Whether an operation is `rows.squeeze()`, which leaves the rows where there are several."""
    squeezes = node.op == "call_function" and name_of(node.target) == "squeeze"  # type: ignore[arg-type]
    return squeezes and len(node.args) == 1 and not node.kwargs


class _OfSize:
    """A number that depends on sizes, as the rules of `operations` see it."""

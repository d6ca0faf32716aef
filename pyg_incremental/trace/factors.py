"""Sums of products: what stands at one end of an edge alone is multiplied at that node.

    sum_j t_i w_ji s_j x_j          =  t_i sum_j w_ji (s_j x_j)
    sum_j t_i s_j f(x_j, x_i, e)    =  t_i sum_j s_j f(x_j, x_i, e)

A change of `s` or `t`, such as a degree, is then no change of messages that have to be computed
edge by edge; and one of `t` none of those that a function makes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from pyg_incremental.conv import ConvCall
from pyg_incremental.conv.linear import flat_weight
from pyg_incremental.ops import EdgeFunction, plain_sum, scaled
from pyg_incremental.program.messages import at_node, message_of
from pyg_incremental.program.steps import Domain, NotIncremental, Value
from pyg_incremental.trace import operations
from pyg_incremental.trace.closures import flattened
from pyg_incremental.trace.ids import End, EndIds
from pyg_incremental.trace.names import called
from pyg_incremental.trace.written import Written

_SHAPES = frozenset(["view", "reshape", "unsqueeze"])


@dataclass
class Factors:
    """What a product of edge rows is made of.

    Attributes:
        source: Edge values that are made of the node alone where an edge comes from.
        target: Those of the node to which it leads.
        weights: Those of the edge, `[num_edges]` or `[num_edges, 1]`.
        mixed: All others.
        wide: The channels of the widest that is not of the target.
    """

    source: list[Value] = field(default_factory=list)
    target: list[Value] = field(default_factory=list)
    weights: list[Value] = field(default_factory=list)
    mixed: list[Value] = field(default_factory=list)
    wide: int = 0


def total_of(
    call: ConvCall,
    written: Written,
    ids: EndIds,
    rows: fx.Node,
    end: End,
    function: Callable[[Value], EdgeFunction],
) -> Value | None:
    """The sum of products of edge rows, `[num_edges, channels]`, over the edges of an end.

    Args:
        call: The words over these edges.
        written: What is written so far.
        ids: Which nodes hold ids, and constants.
        rows: What is added up.
        end: Where.
        function: Edge rows as a function of rows.

    Returns:
        Its value, `[num_nodes, channels]`; None if the rows are no product that can be taken apart.
    """
    found = Factors()
    real = written.recorded.real
    if real[rows].dim() != 2 or not _collect(rows, found, written, ids, end, real[rows].dtype):
        return None
    width, program = real[rows].shape[1], written.program
    if found.mixed:
        if not found.target or found.wide < width:
            return None
        others = [*found.source, *found.weights, *found.mixed]
        apart = program.map(f"{rows.name}_apart", _product_of, others)
        return _scaled(call, written, call.total(function(apart)), found, rows, end)
    if not found.source or not (found.target or found.weights):
        return None
    sent = [_at_node(call, v, not end.at_target) for v in found.source]
    if not any(_width(call, v) == width for v in sent):
        return None
    source = _product(call, sent)
    weight = None
    if found.weights:
        flat = [flat_weight(program, v) for v in found.weights]
        weight = (
            flat[0]
            if len(flat) == 1
            else program.map(f"{rows.name}_weights", _times, flat, key="product")
        )
    return _scaled(call, written, call.sum(source, weight), found, rows, end)


def _scaled(
    call: ConvCall, written: Written, total: Value, found: Factors, rows: fx.Node, end: End
) -> Value:
    """A sum times what belongs to the node where it stands."""
    if not found.target:
        return total
    factors = [_at_node(call, v, end.at_target) for v in found.target]
    factor = _product(call, factors)
    derived = end.relation.derived
    every = derived is not None and derived.loops
    if not every and not _is_finite_without_edges(call, written, factor):
        both = [factor, call.degree()]
        factor = call.program.map(f"{rows.name}_factor", _where_any, both, key="any")
    return call.scaled("scaled", total, factor)


def _is_finite_without_edges(call: ConvCall, written: Written, factor: Value) -> bool:
    """Whether a factor is a finite number where no edge leads, whatever the parameters are."""
    makers = {s.output: s for s in written.program.steps}
    place = (call.relation.graph, call.reverse)

    def there(rows: Value) -> Tensor:
        step = makers[rows]
        total = plain_sum(step)
        if total is not None and (total.graph, total.reverse) == place:
            if total.loops not in (call.loops, "drop"):
                raise NotIncremental(f"'{rows}' is a sum over other edges")
            return torch.zeros_like(call.example(rows)[:1])
        if not step.computes or (rows not in written.plain and step.row_fn is not flattened):
            raise NotIncremental(f"'{rows}' is no function of sums")
        made: Tensor = step.compute(*map(there, step.inputs))
        return made

    try:
        return bool(there(factor).isfinite().all())
    except NotIncremental:
        return False


def _collect(
    node: fx.Node, found: Factors, written: Written, ids: EndIds, end: End, dtype: torch.dtype
) -> bool:
    """Sort the factors of a product; whether they are that."""
    name = called(node)
    real = written.recorded.real
    if ids.filled.get(node) == ("ones", ""):
        return True
    if node not in written.recorded.writes and not node.kwargs:
        if name in operations.PRODUCTS and all(isinstance(a, fx.Node) for a in node.args):
            return all(_collect(a, found, written, ids, end, dtype) for a in node.args)  # type: ignore[arg-type]
        first = node.args[0] if node.args else None
        if name in _SHAPES and isinstance(first, fx.Node) and real[first].dim() == 1:
            return _collect(first, found, written, ids, end, dtype)
    held = written.env[node]
    if not isinstance(held, Value) or (held.domain, held.kind) != (Domain.EDGE, end.relation.graph):
        return False
    if real[node].dim() not in (1, 2) or real[node].dtype != dtype:
        return False
    try:
        message = message_of(written.program, held)
    except NotIncremental:
        return False
    sent, own = message.source, message.target
    if not end.at_target:
        sent, own = own, sent
    wide = real[node].shape[1:].numel()
    mixed = bool(sent) + bool(own) + bool(message.edges) != 1 or (message.edges and wide != 1)
    if not own or mixed:
        found.wide = max(found.wide, wide)
    (
        found.mixed if mixed else found.source if sent else found.target if own else found.weights
    ).append(held)
    return True


def _at_node(call: ConvCall, rows: Value, at_target: bool) -> Value:
    """Edge rows that are made of the node at one end alone, as a matrix of rows of that node."""
    made = at_node(call.program, rows, at_target)
    if call.example(made).dim() == 2:
        return made
    return call.program.map(f"{made}_column", flattened, [made], key="flat")


def _product(call: ConvCall, factors: list[Value]) -> Value:
    """Rows that are multiplied with each other, the widest first."""
    rows, *others = sorted(factors, key=lambda v: -_width(call, v))
    for other in others:
        fn = scaled if _width(call, other) == 1 else torch.mul
        rows = call.program.map("product", fn, [rows, other], key="product")
    return rows


def _width(call: ConvCall, rows: Value) -> int:
    return call.example(rows).shape[1:].numel()


def _times(*rows: Tensor) -> Tensor:
    first, *more = rows
    for factor in more:
        first = first * factor
    return first


def _product_of(*rows: Tensor) -> Tensor:
    """Rows `[k]` and `[k, channels]` multiplied with each other."""
    return _times(*(r if r.dim() == 2 else r[:, None] for r in rows))


def _where_any(factor: Tensor, count: Tensor) -> Tensor:
    """Zero where there is no edge, and so nothing that the factor is one of."""
    return torch.where(count > 0, factor, 0)

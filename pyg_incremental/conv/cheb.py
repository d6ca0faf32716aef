"""ChebConv (Defferrard et al., 2016, Eq. 4): `sum_k T_k(L) x W_k`, L the scaled Laplacian.

For a sum the products come first, and the recurrence of the Chebyshev polynomials runs from the
last term to the first, as Clenshaw does:

    b_k = x W_k + 2 L b_(k+1) - b_(k+2)      out = x W_0 + L b_1 - b_2

PyG normalises by the first row of `edge_index`, which are the sources, whatever `flow` says.
"""

import torch
from torch import Tensor
from torch_geometric.nn import ChebConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.hop import Hop
from pyg_incremental.conv.inner import with_bias
from pyg_incremental.conv.linear import linear, pays
from pyg_incremental.conv.normalize import inverse, inverse_sqrt
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Domain, NotIncremental, Value


@register(ChebConv)
def cheb(call: ConvCall) -> Value:
    """`ChebConv` as steps: one product with the scaled Laplacian after the other."""
    conv = call.conv
    call.only("x", "edge_weight", "batch", "lambda_max")
    call.only_coo()
    x, lins = call.node(), [linear(lin) for lin in conv.lins]
    if len(lins) == 1:
        return with_bias(call, call.map("lin_0", lins[0], x, costly=True))
    hop, own = _scaled_laplacian(call)
    if not (call.is_sum and pays(conv.lins[0].weight)):
        return with_bias(call, _forwards(call, hop, own, x))
    terms = [call.map(f"lin_{k}", lin, x, costly=True) for k, lin in enumerate(lins)]
    rows, behind = terms[-1], None
    for k in range(len(terms) - 2, -1, -1):
        inputs = [hop(rows, f"hop_{k}"), rows, own, terms[k], *([] if behind is None else [behind])]
        times = 2.0 if k else 1.0

        def step(
            s: Tensor, b: Tensor, o: Tensor, x: Tensor, c: Tensor | None = None, t: float = times
        ) -> Tensor:
            out = x + t * (s + o * b)
            return out if c is None else out - c

        rows, behind = call.map(f"sum_{k}", step, *inputs), rows
    return with_bias(call, rows)


def _forwards(call: ConvCall, hop: Hop, own: Value, x: Value) -> Value:
    """`T_0 x`, `T_1 x`, ... and then the products, for any aggregation."""
    states = [x]
    for k in range(1, len(call.conv.lins)):
        x, name = states[-1], f"product_{k}"
        if call.is_sum:
            product = call.map(name, lambda s, x, o: s + o * x, hop(x, f"hop_{k}"), x, own)
        else:  # the Laplacian's entry at a node is a message like others
            product = hop.with_own(x, call.map(f"own_{k}", torch.mul, x, own), name)
        if k > 1:
            product = call.map(f"state_{k}", lambda p, x: 2.0 * p - x, product, states[-2])
        states.append(product)

    maps = [linear(lin) for lin in call.conv.lins]

    def out(*rows: Tensor) -> Tensor:
        first, *more = (fn(row) for fn, row in zip(maps, rows, strict=True))
        return sum(more, first)

    return call.map("lins", out, *states, costly=True)


def _scaled_laplacian(call: ConvCall) -> tuple[Hop, Value]:
    """Its entries between nodes as a hop, and those at nodes, `[num_nodes, 1]`.

    `2 L / lambda_max - I`, where L is `D - A`, `I - D^-1/2 A D^-1/2` ('sym') or `I - D^-1 A`
    ('rw'), and self-loops are left out.
    """
    conv, kind = call.conv, call.conv.normalization
    call = call.without_loops()
    weight = call.weight()
    forward = conv.flow == "source_to_target"
    degree = call.out_degree(weight) if forward else call.degree(weight)
    scale = _scale(call, degree, weight)

    def at_node(degree: Tensor, scale: Tensor) -> Tensor:
        entry = scale if kind else degree * scale
        return entry.masked_fill(entry == torch.inf, 0.0) - 1

    own = call.map("own", at_node, degree, scale)
    if kind == "sym":
        dinv = call.map("", inverse_sqrt, degree, shared="dinv_0")
        first = call.map("first", lambda d, s: -s * d, dinv, scale)
        if not forward:
            return Hop(call, weight, dinv, first), own
        # A negative degree gives NaN, but not to a row that gets no message.
        last = call.map("last", lambda d, n: torch.where(n == 0, 0.0, d), dinv, call.degree())
        return Hop(call, weight, first, dinv if weight is None else last), own
    if kind == "rw":
        first = call.map("first", lambda d, s: -s * inverse(d), degree, scale)
    else:
        first = call.map("first", torch.neg, scale)
    return Hop(call, weight, *((first, None) if forward else (None, first))), own


def _scale(call: ConvCall, degree: Value, weight: Value | None) -> Value:
    """`2 / lambda_max` at every node, `[num_nodes, 1]`; with `batch`, of the graph it is in."""
    largest, kind = call.args.get("lambda_max"), call.conv.normalization
    if largest is None:
        if kind is None or weight is not None:
            raise NotIncremental(
                "without lambda_max it is scaled by the largest entry of its Laplacian, which is a "
                "maximum over all edges; pass lambda_max"
            )
        # Without weights that entry is the one at every node, and PyG takes twice of it.
        return call.map("scale", torch.ones_like, degree)
    if isinstance(largest, Value):
        if largest.domain is not Domain.WHOLE:
            raise NotIncremental("'lambda_max' has one row per node or edge")
        batch = () if call.args.get("batch") is None else (call.node("batch"),)
        return call.map("scale", _of_each, degree, largest, *batch)
    if not isinstance(largest, (int, float)) or not largest:
        raise NotIncremental(f"'lambda_max' is {largest!r}")
    return call.map("scale", lambda d: torch.full_like(d, 2.0 / largest), degree)


def _of_each(degree: Tensor, largest: Tensor, batch: Tensor | None = None) -> Tensor:
    if batch is not None and largest.numel() > 1:
        largest = largest[batch].view(-1, 1)
    return (2.0 / largest.to(degree.dtype)).expand_as(degree)

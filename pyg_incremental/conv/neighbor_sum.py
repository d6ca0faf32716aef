"""Convs that sum up neighbours, weighted by the edges or by degrees, without `gcn_norm`.

| conv | result |
|---|---|
| LEConv (Ranjan et al., 2020, Eq. 9) | `sum w (lin1(x_j) - lin2(x_i)) + lin3(x_i)` |
| ClusterGCNConv (Chiang et al., 2019, Eq. 11) | `lin_out(A x + lambda diag(A) x) + lin_root(x)` |
"""

import torch
from torch import Tensor
from torch_geometric.nn import ClusterGCNConv, LEConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.hop import Hop
from pyg_incremental.conv.linear import linear, pays
from pyg_incremental.conv.normalize import plain_hop
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(LEConv)
def le(call: ConvCall) -> Value:
    """`LEConv` as steps: `sum w a_j - b_i sum w` where it sums, so that no row is re-read."""
    conv = call.conv
    call.only("x", "edge_weight")
    source, target = call.both_ends()
    weight = plain_hop(call).weight
    a = call.map("lin1", linear(conv.lin1), source, costly=True)
    b = call.map("lin2", linear(conv.lin2), target, costly=True)
    root = call.map("lin3", linear(conv.lin3), target, costly=True)
    if not call.is_sum:
        rows = call.reduce(call.message(_weighed, (a,), (b,), (weight,)))
        return call.map("out", torch.add, rows, root)
    total = call.sum(a, weight)
    if weight is None:
        return call.map(
            "out", lambda s, b, n, r: torch.where(n == 0, s, s - b * n) + r,
            total, b, call.degree(), root,
        )  # fmt: skip
    # An infinite b_i gives NaN where weights cancel, and nothing where there are none.
    up, down = (
        call.degree(call.map(name, fn, weight))
        for name, fn in (("up", lambda w: (w >= 0).to(w)), ("down", lambda w: (w <= 0).to(w)))
    )

    def out(s: Tensor, b: Tensor, w: Tensor, up: Tensor, down: Tensor, r: Tensor) -> Tensor:
        rows = s - b * w
        rows = torch.where((up > 0) & (down > 0) & b.isinf(), torch.nan, rows)
        return torch.where(up + down == 0, s, rows) + r

    return call.map("out", out, total, b, call.degree(weight), up, down, root)


def _weighed(a: Tensor, b: Tensor, weight: Tensor | None = None) -> Tensor:
    return a - b if weight is None else (a - b) * weight[:, None]


@register(ClusterGCNConv)
def cluster_gcn(call: ConvCall) -> Value:
    """`ClusterGCNConv` as steps: a mean over in-edges and the node itself, which counts more."""
    conv = call.conv
    call.only("x")
    if not conv.add_self_loops:
        raise NotIncremental("PyG lines up self-loops with nodes, which is right for added ones")
    if call.format not in ("coo", "csr"):
        call.only_coo()
    x, call = call.node(), call.without_loops()
    # PyG divides by the degree at the second row of `edge_index`, whatever `flow` says, and in the
    # default dtype, whatever that of the features is.
    forward, extra = conv.flow == "source_to_target", conv.diag_lambda

    def share(count: Tensor) -> Tensor:
        return (count + 1).to(torch.get_default_dtype()).reciprocal()

    def loop(count: Tensor) -> Tensor:
        own = share(count)
        return torch.div((own + extra * own).to(count.dtype), own.to(count.dtype))

    degree = call.degree() if forward else call.out_degree()
    each = call.map("", lambda n: share(n).to(n.dtype), degree, shared="share_with_own")
    more = call.map("loop", loop, degree) if extra else 1.0
    hop = Hop(call, None, None, each, more) if forward else Hop(call, None, each, None, more)
    lin = conv.lin_out
    root = call.map("root", linear(conv.lin_root, bias_of=lin), x, costly=True)
    if call.is_linear and pays(lin.weight):
        return call.map("out", torch.add, hop(x, "hop", linear(lin, bias=False)), root)
    rel = linear(lin, bias=False)
    return call.map("out", lambda h, r: rel(h) + r, hop(x, "hop"), root, costly=True)

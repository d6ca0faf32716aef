"""HypergraphConv (Bai et al., 2021, Eq. 5 and 11): to the hyperedges, and back to the nodes.

    out_e = B_e^-1 sum over nodes v of e:      alpha_ve lin(x_v)
    out_v = D_v^-1 sum over hyperedges e of v: alpha_ve out_e, plus bias

`B` counts the nodes of a hyperedge, `D` adds up the weights of the hyperedges of a node. Both hops
run over one graph, which leads from the nodes to the hyperedges; the second one runs against it.

With attention `alpha_ve = exp(l_ve) / sum exp(l)`, where `l_ve = leaky_relu(p_v + q_e)` and the
sum runs over the nodes of `e` (`attention_mode='node'`) or the hyperedges of `v`. Both hops need
it: each row of the side over which the softmax runs tells its sum, as mass and reference.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import HypergraphConv

from pyg_incremental.conv.attend import joined, settled
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.hop import Hop
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.normalize import inverse
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import NotIncremental, Value


@register(HypergraphConv)
def hypergraph(call: ConvCall) -> Value:
    """`HypergraphConv` as steps: a normalised sum over the nodes of a hyperedge, and one back."""
    conv = call.conv
    call.only("x", "hyperedge_weight", "hyperedge_attr", "num_edges")
    call.only_coo()
    x = call.node()
    if x.kind != call.source_kind:
        raise NotIncremental("'x' does not belong to the nodes of the hyperedges")
    back = replace(call, turned=not call.turned)
    weight = _rows_of(call, "hyperedge_weight")
    if weight is not None and call.example(weight).dtype != call.dtype:
        raise NotIncremental("'hyperedge_weight' is of another dtype than 'x'")
    column = None if weight is None else call.map("weight", lambda w: w.reshape(-1, 1), weight)
    total = back.degree() if column is None else back.sum(column, None, part="weights")
    share = call.map("", inverse, call.degree(), shared="inverse_degree")
    shares = call.map("shares", inverse, total)
    if conv.use_attention:
        rows = _attended(call, back, x, share, shares)
    else:
        inner = Hop(call, None, None, share)(x, "nodes", linear(conv.lin))
        if weight is None or call.is_linear:
            rows = Hop(back, None, None, shares)(inner, "hyperedges")
        else:  # a share may be negative here
            rows = back.reduce(back.message(torch.mul, (inner,), (shares,)))
    return joined(call, rows, x)


def _rows_of(call: ConvCall, name: str) -> Value | None:
    """What is handed in for each hyperedge, or None."""
    if call.args.get(name) is None:
        return None
    value = call.node(name)
    if value.kind != call.target_kind:
        raise NotIncremental(f"'{name}' has no row for each hyperedge")
    return value


def _attended(call: ConvCall, back: ConvCall, x: Value, share: Value, shares: Value) -> Value:
    """Both hops with attention, `[num_nodes, heads * out_channels]`."""
    conv, heads, width = call.conv, call.conv.heads, call.conv.out_channels
    attr = _rows_of(call, "hyperedge_attr")
    if attr is None:
        raise NotIncremental("it is called without 'hyperedge_attr'")
    lin = linear(conv.lin)

    def logit(rows: Tensor, first: int) -> Tensor:
        part: Tensor = rows.view(-1, heads, width) * conv.att[..., first : first + width]
        return part.sum(-1)

    z = call.map("z", lin, x, costly=True)
    p = call.map("p", lambda z: logit(z, 0), z)
    q = call.map("q", lambda a: logit(lin(a), width), attr, costly=True)
    there = _Half(call, p, q, share)
    home = _Half(back, q, p, shares)
    if conv.attention_mode == "node":
        inner, total = there.softmax(z, "nodes")
        return home.with_known(inner, "hyperedges", source_total=total)
    nothing = call.map("nothing", torch.ones_like, q)
    _, total = home.softmax(nothing, "weighing")
    inner = there.with_known(z, "nodes", source_total=total)
    if not call.is_linear:
        return home.with_known(inner, "hyperedges", target_total=total)
    return home.softmax(inner, "hyperedges")[0]


@dataclass(frozen=True)
class _Half:
    """One of the two hops: parts of the logits at both ends, and what sums are multiplied with."""

    call: ConvCall
    source: Value
    target: Value
    share: Value

    def softmax(self, sent: Value, part: str) -> tuple[Value, Value]:
        """The hop with a softmax over the messages to a row, and the sums of that softmax."""
        call, heads = self.call, self.call.conv.heads
        packed = call.map(f"{part}_sent", lambda x, s: torch.cat([x, s], 1), sent, self.source)
        slope = call.conv.negative_slope
        state = call.softmax(packed, self.target, None, None, slope, part=f"{part}_softmax")
        total = call.map(f"{part}_total", lambda s: s[:, -2 * heads :], state)
        if not call.is_linear:
            return self.with_known(sent, part, target_total=total), total
        rows = settled(call, call.conv.aggr_module, state, heads, False, part)
        return call.map(f"{part}_shared", torch.mul, rows, self.share), total

    def with_known(
        self,
        sent: Value,
        part: str,
        source_total: Value | None = None,
        target_total: Value | None = None,
    ) -> Value:
        """The hop with a softmax whose sums are known, at one end of the edge."""
        call, conv, late = self.call, self.call.conv, self.call.is_linear
        sources = tuple(v for v in (sent, self.source, source_total) if v is not None)
        targets = tuple(v for v in (target_total, self.target) if v is not None)

        def message(sent: Tensor, s: Tensor, total: Tensor, t: Tensor, *share: Tensor) -> Tensor:
            mass, reference = total.chunk(2, 1)
            alpha = (F.leaky_relu(s + t, conv.negative_slope) - reference).exp() / mass
            for factor in share:
                alpha = alpha * factor
            sent = sent.view(len(sent), conv.heads, sent.shape[1] // conv.heads)
            return (alpha[..., None] * sent).flatten(1)

        ends = sources, targets if late else (*targets, self.share)
        rows = call.reduce(call.message(message, *ends, part=part), part=f"{part}_sum")
        return call.map(f"{part}_shared", torch.mul, rows, self.share) if late else rows

"""SignedConv (Derr et al., 2018, Eq. 3 to 6): friends and foes, each over edges of their own.

    out = [lin_pos_l(A_pos) + lin_pos_r(x_pos), lin_neg_l(A_neg) + lin_neg_r(x_neg)]

In a first layer A_pos and A_neg gather the same features over one graph each. Later the friends of
friends and the foes of foes are friends: A_pos = [Aggr_pos(x_pos), Aggr_neg(x_neg)] and A_neg =
[Aggr_pos(x_neg), Aggr_neg(x_pos)]. For sum and mean the linear layers move in front of the
aggregations, each with its own columns of the weight.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SignedConv

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.push_down import pays
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value

_ALL = slice(None)


@register(SignedConv)
def signed(call: ConvCall) -> Value:
    """`SignedConv` as steps: aggregates over two graphs, and a root term for each sign."""
    conv, width = call.conv, call.conv.in_channels
    call.only("x")
    over = {sign: call.over(f"{sign}_edge_index") for sign in ("pos", "neg")}
    for graph in over.values():
        graph.only_coo()
    source, target = over["pos"].both_ends()
    over["neg"].both_ends()  # both graphs have to connect these nodes
    halves = {"pos": slice(width), "neg": slice(width, None)}
    inputs: list[Value] = []
    for sign, other in (("pos", "neg"), ("neg", "pos")):
        lin, own = getattr(conv, f"lin_{sign}_l"), linear(getattr(conv, f"lin_{sign}_r"))
        columns = _ALL if conv.first_aggr else halves[sign]
        root = call.map(f"{sign}.root", partial(_root, own, columns), target, costly=True)
        # Which graph, which columns of the features, and which columns of the weight read them.
        terms = [(sign, _ALL, _ALL)]
        if not conv.first_aggr:
            terms = [
                ("pos", halves[sign], slice(width)),
                ("neg", halves[other], slice(width, None)),
            ]
        linear(lin)  # refuses what is not a plain linear layer
        gathered = [_term(call, over[g], f"{sign}.{g}", source, lin, *at) for g, *at in terms]
        inputs.append(call.map(f"{sign}.out", _added, root, *gathered))
    return call.map("out", lambda *rows: torch.cat(rows, dim=-1), *inputs)


def _term(
    call: ConvCall,
    over: ConvCall,
    part: str,
    x: Value,
    lin: torch.nn.Module,
    read: slice,
    at: slice,
) -> Value:
    """`lin` of some features aggregated over one graph, `[num_nodes, out_channels]`."""

    def moved(rows: Tensor, read: slice) -> Tensor:
        return F.linear(rows[:, read], lin.weight[:, at])  # type: ignore[index]

    weight: Tensor = lin.weight[:, at]  # type: ignore[index]
    if call.is_linear and pays(weight):
        return over.reduce(call.map(f"{part}.lin", partial(moved, read=read), x, costly=True),
                           part=f"{part}.aggr")  # fmt: skip
    rows = x if read == _ALL else call.map(f"{part}.half", lambda rows: rows[:, read], x)
    gathered = over.reduce(rows, part=f"{part}.aggr")
    return call.map(f"{part}.lin", partial(moved, read=_ALL), gathered, costly=True)


def _root(own: object, columns: slice, rows: Tensor) -> Tensor:
    made: Tensor = own(rows[:, columns])  # type: ignore[operator]
    return made


def _added(*rows: Tensor) -> Tensor:
    total, *others = rows
    for term in others:
        total = total + term
    return total

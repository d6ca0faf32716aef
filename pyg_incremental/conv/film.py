"""FiLMConv (Brockschmidt, 2020, Eq. 3).

    beta, gamma = film_r(x)     z = lin_r(x)     h_r = Aggr(act(gamma_i z_j + beta_i))
    out = act(gamma_s lin_s(x) + beta_s) + Sum_r(h_r)

The modulation is a row of the target, so a row whose own features changed is made afresh.
"""

import torch
from torch import Tensor
from torch_geometric.nn import FiLMConv

from pyg_incremental.conv.by_relation import reduced_by_relation, typed
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.inner import row_wise
from pyg_incremental.conv.linear import linear
from pyg_incremental.conv.registry import register
from pyg_incremental.program.steps import Value


@register(FiLMConv)
def film(call: ConvCall) -> Value:
    """`FiLMConv` as steps: modulated neighbours of each relation, and a modulated skip."""
    conv, count, width = call.conv, call.conv.num_relations, call.conv.out_channels
    call.only("x", "edge_type")
    source, target = call.both_ends()
    act = row_wise(conv.act, "act")
    lins = [linear(lin) for lin in conv.lins]
    films = [row_wise(each, "film") for each in conv.films]
    lin_skip, film_skip = linear(conv.lin_skip), row_wise(conv.film_skip, "film")

    def skipped(x: Tensor) -> Tensor:
        beta, gamma = film_skip(x).split(width, dim=-1)
        rows: Tensor = act(gamma * lin_skip(x) + beta)
        return rows

    def modulated(z: Tensor, film: Tensor) -> Tensor:
        beta, gamma = film.unflatten(1, (count, -1)).split(width, dim=-1)
        rows: Tensor = act(gamma * z.unflatten(1, (count, -1)) + beta)
        return rows

    z = call.map("z", lambda x: torch.cat([lin(x) for lin in lins], 1), source, costly=True)
    by = call.map("film", lambda x: torch.cat([each(x) for each in films], 1), target, costly=True)
    message = call.message(modulated, (z,), (by,))
    inputs = [call.map("skip", skipped, target, costly=True)]
    if count > 1:
        rows = reduced_by_relation(call, message, typed(call), count)
        return call.map("out", lambda own, rows: own + rows.sum(1), *inputs, rows)
    return call.map("out", torch.add, *inputs, call.reduce(message))

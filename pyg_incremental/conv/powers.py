"""Powers of a propagation, and polynomials in it.

The state of every hop is kept. Where the aggregation is linear, linear layers come before the hops
if that pays (see `linear.pays`), and polynomials are nested as Horner does:
`x_0 + A x_1 + A^2 x_2 = x_0 + A (x_1 + A x_2)`; what comes out then reads one sum only.
"""

from typing import Any

import torch
from torch import Tensor

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.hop import Hop
from pyg_incremental.conv.linear import linear, pays
from pyg_incremental.program.steps import Value


def comes_first(call: ConvCall, lin: Any, hops: int) -> bool:
    """Whether a linear layer comes before so many hops."""
    return hops > 0 and call.is_linear and pays(lin.weight)


def powers(hop: Hop, x: Value, count: int) -> list[Value]:
    """`x`, `A x`, ..., `A^count x`."""
    found = [x]
    for k in range(count):
        found.append(hop(found[-1], f"hop_{k + 1}"))
    return found


def nested(hop: Hop, terms: list[Value]) -> Value:
    """`sum_k A^k terms[k]` for a linear aggregation."""
    rows = terms[-1]
    for k in range(len(terms) - 2, -1, -1):
        rows = hop.call.map(f"sum_{k}", torch.add, hop(rows, f"hop_{k + 1}"), terms[k])
    return rows


def mapped_sum(call: ConvCall, lins: list[torch.nn.Module], states: list[Value]) -> Value:
    """`sum_k lins[k](states[k])`."""
    maps = [linear(lin) for lin in lins]

    def out(*rows: Tensor) -> Tensor:
        total = maps[0](rows[0])
        for fn, row in zip(maps[1:], rows[1:], strict=True):
            total = total + fn(row)
        return total

    return call.map("lins", out, *states, costly=True)

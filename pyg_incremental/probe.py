"""A small call of the same kind.

It tells the shape of every intermediate result, and whether a program says what its model says.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from pyg_incremental.call_site import CallSite, Roles, to_format

_SIZES = (23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


def probe_graph(site: CallSite, roles: Roles) -> tuple[dict[str, Tensor], Tensor]:
    """Tensors by name, and edges, of a graph with a few dozen nodes.

    Its numbers of nodes and of edges occur nowhere in the model, so that a first dimension can be
    told from its size. Feature rows and edge rows are those of the call, as far as there are any.
    """
    taken = {
        d
        for t in site.model.state_dict().values()
        if isinstance(t, Tensor) and not is_lazy(t)
        for d in t.shape
    }
    taken |= {d for t in site.tensors.values() if isinstance(t, Tensor) for d in t.shape[1:]}
    n = next(size for size in _SIZES if size not in taken)
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randperm(n * n, generator=generator)
    count = next(c for c in range(3 * n, 6 * n) if c not in taken and c not in _SIZES)
    edge_index = torch.stack([pairs[:count] // n, pairs[:count] % n])
    tensors = {}
    for name in roles.nodes:
        tensors[name] = _some_rows(site.tensors[name], n, generator)
    for name in roles.edges:
        tensors[name] = _some_rows(site.tensors[name], count, generator)
    if roles.values is not None:
        tensors["edge_weight"] = _some_rows(roles.values, count, generator)
    for name in roles.others:
        tensors[name] = site.tensors[name]
    return tensors, edge_index


def _some_rows(like: Tensor, count: int, generator: torch.Generator) -> Tensor:
    if like.shape[0]:
        rows = like.detach()[
            torch.randint(like.shape[0], (count,), generator=generator).to(like.device)
        ]
        return rows
    shape = (count, *like.shape[1:])
    if like.dtype.is_floating_point:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(
            like.device, like.dtype
        )
    return torch.zeros(shape, dtype=like.dtype, device=like.device)


def probe_arguments(
    site: CallSite, roles: Roles, tensors: dict[str, Tensor], edge_index: Tensor
) -> list[Any]:
    """The probe as arguments, in the order of `site.names`."""
    x = tensors[roles.x]
    values = tensors.get("edge_weight") if roles.format != "coo" else None
    graph = to_format(roles.format, edge_index, values, x.shape[0], x.device)
    return [graph if name == roles.graph else tensors[name] for name in site.names]

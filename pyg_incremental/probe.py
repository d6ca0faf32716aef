"""A small call of the same kind.

It tells the shape of every intermediate result, and whether a program says what its model says.
"""

from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from pyg_incremental.call_site import CallSite
from pyg_incremental.formats import to_format
from pyg_incremental.roles import Roles


@dataclass(frozen=True)
class Probe:
    """A small call.

    Attributes:
        tensors: Node rows, edge rows and other tensors by name.
        edge_index: The edges of each graph, int64 `[2, num_edges]`.
        num_nodes: Number of nodes of each kind.
    """

    tensors: dict[str, Tensor]
    edge_index: dict[str, Tensor]
    num_nodes: dict[str, int]

    def arguments(self, site: CallSite, roles: Roles) -> list[Any]:
        """The tensors of the call, in the order of `site.names`."""
        given: dict[str, Any] = dict(self.tensors)
        device = next(self.tensors[n] for n in roles.nodes).device
        for relation in roles.relations:
            values = self.tensors.get(relation.values) if relation.format != "coo" else None
            sizes = self.num_nodes[relation.source], self.num_nodes[relation.target]
            edges = self.edge_index[relation.graph]
            given[relation.graph] = to_format(relation.format, edges, values, sizes, device)
        return [given[name] for name in site.names]


def probe_of(site: CallSite, roles: Roles) -> Probe:
    """A call on graphs with a few dozen nodes.

    Its numbers of nodes and of edges differ from each other and occur nowhere in the model, so that
    a first dimension can be told from its size. Feature rows and edge rows are those of the call,
    as far as there are any.
    """
    taken = {
        d
        for t in site.model.state_dict(keep_vars=True).values()
        if isinstance(t, Tensor) and not is_lazy(t)
        for d in t.shape
    }
    taken |= {d for t in site.tensors.values() if isinstance(t, Tensor) for d in t.shape[1:]}
    generator = torch.Generator().manual_seed(0)
    sizes = (size for size in count(23, 2) if size not in taken)
    num_nodes = dict(zip(roles.kinds, sizes, strict=False))
    taken |= set(num_nodes.values())
    tensors = {}
    edge_index = {}
    for name, kind in roles.nodes.items():
        tensors[name] = _some_rows(site.tensors[name], num_nodes[kind], generator)
    for relation in roles.relations:
        m, n = num_nodes[relation.source], num_nodes[relation.target]
        size = next(c for c in count(3 * max(m, n)) if c not in taken)
        taken.add(size)
        pairs = torch.randperm(m * n, generator=generator)[:size]
        edges = torch.stack([pairs // n, pairs % n])
        if relation.by_target:
            edges = edges[:, edges[1].argsort()]
        edge_index[relation.graph] = edges
        data = roles.data_of(relation, site.tensors)
        tensors |= {name: _some_rows(rows, size, generator) for name, rows in data.items()}
    tensors |= {name: site.tensors[name] for name in roles.others}
    return Probe(tensors, edge_index, num_nodes)


def _some_rows(like: Tensor, size: int, generator: torch.Generator) -> Tensor:
    if like.shape[0]:
        at = torch.randint(like.shape[0], (size,), generator=generator)
        return like.detach()[at.to(like.device)]
    shape = (size, *like.shape[1:])
    if like.dtype.is_floating_point:
        rows = torch.rand(shape, generator=generator, dtype=torch.float64)
        return rows.to(like.device, like.dtype)
    return torch.zeros(shape, dtype=like.dtype, device=like.device)

"""A small call of the same kind.

It tells the shape of every intermediate result, and whether a program says what its model says.
"""

from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from pyg_incremental.call.bound_call import BoundCall, device_of
from pyg_incremental.call.formats import to_format
from pyg_incremental.call.members import counted, edges_of, may_name_graphs, with_everyone
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation

_EDGES = 200  # of a graph whose number of nodes cannot be chosen, at most about as many
_PAIRS = 1 << 20


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

    def arguments(self, site: BoundCall, roles: Roles) -> list[Any]:
        """The tensors of the call, in the order of `site.names`."""
        given: dict[str, Any] = dict(self.tensors)
        device = device_of(site.model, [self.tensors[n] for n in roles.nodes])
        for relation in roles.given:
            values = self.tensors.get(relation.values) if relation.format != "coo" else None
            sizes = self.num_nodes[relation.source], self.num_nodes[relation.target]
            edges = self.edge_index[relation.graph]
            given[relation.graph] = to_format(relation.format, edges, values, sizes, device)
        return [given[name] for name in site.names]


def probe_of(site: BoundCall, roles: Roles) -> Probe:
    """A call on graphs with a few dozen nodes.

    Its numbers of nodes and of edges differ from each other and occur nowhere in the model, so that
    a first dimension can be told from its size. Feature rows and edge rows are those of the call,
    as far as there are any; those of one node or edge are of one node or edge there. Of a kind of
    which there can be no more nodes all are there, as in the call: the model, which has learned
    rows of them, would not run on fewer.
    """
    taken = {
        d
        for t in site.model.state_dict(keep_vars=True).values()
        if isinstance(t, Tensor) and not is_lazy(t)
        for d in t.shape
    }
    taken |= {d for t in site.tensors.values() if isinstance(t, Tensor) for d in t.shape[1:]}
    generator = torch.Generator().manual_seed(0)
    own = {kind: roles.num_nodes[kind] for kind in roles.fixed}
    taken |= set(own.values())
    sizes = (size for size in count(23, 2) if size not in taken)
    num_nodes = {kind: own[kind] if kind in own else next(sizes) for kind in roles.kinds}
    taken |= set(num_nodes.values())
    tensors, edge_index = {}, {}
    drawn: dict[tuple[str, int], Tensor] = {}
    for name, kind in roles.nodes.items():
        rows = site.tensors[name]
        held = (
            rows.detach()
            if kind in own
            else _some_rows(rows, num_nodes[kind], kind, drawn, generator)
        )
        tensors[name] = held if kind in own else _named_alike(held, rows)
    for relation in roles.given:
        edges = _some_edges(relation, num_nodes, taken, generator)
        edge_index[relation.graph] = edges
        taken.add(size := edges.shape[1])
        data = roles.data_of(relation, site.tensors)
        tensors |= {
            name: _some_rows(rows, size, f"edges of {relation.graph}", drawn, generator)
            for name, rows in data.items()
        }
    tensors |= {name: site.tensors[name] for name in roles.others}
    for name in roles.ids:  # columns of a table may be of any kind
        held = tensors[name] if name in tensors else site.tensors[name]
        tensors[name] = held % min(num_nodes.values())
    return edged(Probe(tensors, edge_index, num_nodes), roles)


def edged(probe: Probe, roles: Roles) -> Probe:
    """The same probe with the edges that inputs such as `batch` stand for."""
    edge_index = dict(probe.edge_index)
    tensors = probe.tensors | with_everyone(roles, probe.tensors, probe.num_nodes)
    for relation in roles.relations:
        if relation.members:
            edge_index[relation.graph] = edges_of(tensors[relation.members])
    return Probe(tensors, edge_index, counted(roles, probe.num_nodes, tensors))


def _named_alike(held: Tensor, rows: Tensor) -> Tensor:
    """Ids drawn from `rows` that name graphs in the same way: sorted, and none left out."""
    if not may_name_graphs(rows):
        return held
    ids: Tensor = held.unique(return_inverse=True)[1]
    return ids.sort().values if bool((rows.diff() >= 0).all()) else ids


def _some_edges(
    relation: Relation, num_nodes: dict[str, int], taken: set[int], generator: torch.Generator
) -> Tensor:
    """Edges of a number that is not taken; no two are alike, if there are nodes enough."""
    m, n = num_nodes[relation.source], num_nodes[relation.target]
    size = next(c for c in count(min(3 * max(m, n), _EDGES)) if c not in taken)
    if m * n > _PAIRS:
        pairs = torch.randint(m * n, (2 * size,), generator=generator)
        pairs = pairs.unique()
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:size]]
    elif m * n >= size or relation.format in ("csr", "csc"):
        pairs = torch.randperm(m * n, generator=generator)[:size]
    else:
        pairs = torch.randint(m * n, (size,), generator=generator)
    edges = torch.stack([pairs // n, pairs % n])
    return edges[:, edges[1].argsort()] if relation.by_target else edges


def _some_rows(
    like: Tensor,
    size: int,
    of: str,
    drawn: dict[tuple[str, int], Tensor],
    generator: torch.Generator,
) -> Tensor:
    """Rows of the call, `[size, ...]`, at the places that are `drawn` for what has them."""
    if like.shape[0]:
        key = of, like.shape[0]
        if key not in drawn:
            drawn[key] = torch.randint(like.shape[0], (size,), generator=generator)
        at = drawn[key]
        return like.detach()[at.to(like.device)]
    shape = (size, *like.shape[1:])
    if like.dtype.is_floating_point:
        rows = torch.rand(shape, generator=generator, dtype=torch.float64)
        return rows.to(like.device, like.dtype)
    return torch.zeros(shape, dtype=like.dtype, device=like.device)

"""A small model on a small graph, as the tests of this folder need it again and again."""

import torch
from torch_geometric.nn import GraphSAGE

from pyg_incremental import to_incremental

CHANNELS = 6


def drawn(nodes=40, edges=120, seed=0):
    """Features `[nodes, CHANNELS]` and edges `[2, edges]`."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, CHANNELS, generator=rng)
    return x, torch.randint(nodes, (2, edges), generator=rng)


def sage(layers=2):
    torch.manual_seed(1)
    return GraphSAGE(CHANNELS, 8, layers, 5).eval()


def wrapped(model=None, nodes=40, edges=120, warm=False, **options):
    """A wrapped model that was called; `warm` if small updates run in one call of compiled code."""
    inc = to_incremental(sage() if model is None else model, **options)
    x, edge_index = drawn(nodes, edges)
    inc(x, edge_index)
    for i in range(12 if warm else 0):
        inc.apply_delta(edge_index_add=torch.tensor([[i % nodes], [(3 * i) % nodes]]))
    return inc


def edge(u, v):
    return torch.tensor([[u], [v]])

"""Which tensors of a call are graphs."""

from collections.abc import Mapping

import torch
from torch_geometric import EdgeIndex

from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.call.said import Role
from pyg_incremental.call.site import CallSite


def graphs_of(site: CallSite, said: Mapping[str, Role] | None = None) -> list[str]:
    """The names of the tensors of a call that are graphs; `said` goes before their looks."""
    told = {name: role.what == "graph" for name, role in (said or {}).items()}
    return [n for n in site.names if told.get(n, is_graph(n, site))]


def is_graph(name: str, site: CallSite) -> bool:
    """Whether a tensor of a call is a graph, by its type, name or shape."""
    keys, value = site.keys, site.tensors[name]
    if name in site.levels:
        return False
    if is_sparse_tensor(value) or isinstance(value, EdgeIndex):
        return True
    if value.layout is not torch.strided:
        return True
    argument = name.rpartition("/")[2].removesuffix("_dict")
    if isinstance(keys.get(name), str):
        return False
    named = argument in ("edge_index", "adj", "adj_t") or argument.endswith("edge_index")
    return named or (not value.dtype.is_floating_point and value.dim() == 2 and value.shape[0] == 2)

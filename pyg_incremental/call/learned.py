"""Models that have learned one row for each node: an embedding in the place of features.

Their graph may change, but the number of their nodes cannot.
"""

from collections.abc import Mapping
from itertools import combinations, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.misgiven import misgiven
from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.errors import UnsupportedModelError


def why_fixed(model: nn.Module, count: int) -> str | None:
    """Which parameters or buffers have one row for each of so many nodes, as a reason; or None.

    It is one of them, or several of equal width that have as many together: tables of users and of
    items, which a model stacks.
    """
    held = model.state_dict(keep_vars=True).items()
    tables = {n: t for n, t in held if isinstance(t, Tensor) and not is_lazy(t) and t.dim() > 1}
    names = [[n] for n, t in tables.items() if t.shape[0] == count]
    names += [several for several in _stacks(tables) if _height(tables, several) == count]
    if not names:
        return None
    said = " and ".join(f"'{n}'" for n in names[0])
    return (
        f"the model has learned one row for each of its {count} nodes ({said}); make a model of "
        "more nodes and call that"
    )


def _stacks(tables: Mapping[str, Tensor]) -> list[list[str]]:
    """Tables, `[rows, width]` of numbers, that may be stacked: two or more of equal width."""
    flat = {n: t for n, t in tables.items() if t.dim() == 2 and t.is_floating_point()}
    return [
        list(names)
        for several in range(2, min(len(flat), _MOST_TABLES) + 1)
        for names in islice(combinations(flat, several), _MOST_STACKS)
        if len({flat[n].shape[1] for n in names}) == 1
    ]


def _height(tables: Mapping[str, Tensor], names: list[str]) -> int:
    """The rows of several tables, `[rows, width]`, together."""
    return sum(tables[n].shape[0] for n in names)


_MOST_TABLES, _MOST_STACKS = 4, 64
"""How many tables are taken to be stacked, and how many such stacks are looked at, at most."""


def count_told(site: BoundCall, least: int = 0) -> int | None:
    """The number of nodes that a call says, at least `least`; None if it says none."""
    told = site.constants.get("num_nodes")
    return told if type(told) is int and told >= least else None


def learned_count(site: BoundCall, graphs: list[str], where: str) -> int:
    """The number of nodes of a call without node features.

    Raises:
        UnsupportedModelError: If it is not clear, or no parameter has a row for each node.
    """
    least = max((ids_in(site.tensors[name]) for name in graphs), default=0)
    if (told := count_told(site, least)) is not None:
        return told
    found = {site.learned} if site.learned else learned_counts(site, graphs)
    if len(found) == 1:
        (count,) = found
        if why_fixed(site.model, count) is not None:
            return count
    given = misgiven(site.constants) or _no_graphs(site, graphs)
    cure = "" if given else (
        "; pass features, or pass the graph as EdgeIndex(edge_index, sparse_size=(num_nodes, "
        "num_nodes)) to say how many nodes there are, or take an argument num_nodes in forward"
    )  # fmt: skip
    raise UnsupportedModelError(
        f"{where}: expected node features among its arguments, or a parameter of the model with a "
        f"row for each node (got {site.names}, and {_written(found)}){given}{cure}"
    )


def learned_counts(site: BoundCall, graphs: list[str]) -> set[int]:
    """The numbers of nodes that a call without node features may have.

    Graphs that know their size tell it; else the model does: its `num_nodes`, or its embedding, or
    several of these together, as far as there are ids that high.
    """
    modules = list(site.model.modules())
    least = max((ids_in(site.tensors[name]) for name in graphs), default=0)
    return (
        {n for name in graphs for n in _sizes(site.tensors[name])}
        or {n for m in modules if type(n := vars(m).get("num_nodes")) is int}
        or _counted_by_tables([m for m in modules if isinstance(m, nn.Embedding)], least)
    )


def heights(site: BoundCall, graphs: list[str]) -> set[int]:
    """The numbers of rows of parameters, `[rows, width]`, as far as there are ids that high."""
    least = max((ids_in(site.tensors[name]) for name in graphs), default=0)
    held = (p for p in site.model.parameters() if not is_lazy(p) and p.dim() == 2)
    return {p.shape[0] for p in held if p.shape[0] >= least}


def _no_graphs(site: BoundCall, graphs: list[str]) -> str:
    """What was taken for a graph, though it hardly is one."""
    for name in graphs:
        value, is_x = site.tensors[name], name.rpartition("/")[2] == "x"
        if isinstance(value, Tensor) and value.layout is torch.strided:
            if value.is_floating_point():
                return (
                    f": '{name}' is {value.dtype} {list(value.shape)}, which is no graph; pass "
                    "features and graph each in its place, as in inc(x, edge_index)"
                )
        elif is_x and isinstance(value, Tensor):
            return f": '{name}' has layout {value.layout}, as a graph has; pass {name}.to_dense()"
    return ""


def _counted_by_tables(tables: list[nn.Embedding], least: int) -> set[int]:
    """The numbers of nodes, at least `least`, of which tables may hold the rows."""
    sizes = [table.num_embeddings for table in tables]
    alike = len({table.embedding_dim for table in tables}) == 1 and len(tables) > 1
    return {n for n in (*sizes, *([sum(sizes)] if alike else [])) if n >= least}


def ids_in(graph: Any) -> int:
    """One more than the largest id in an edge_index, `[2, num_edges]`; 0 for any other graph."""
    plain = isinstance(graph, Tensor) and graph.layout is torch.strided and graph.numel() > 0
    return int(graph.max()) + 1 if plain else 0


def _sizes(graph: Any) -> list[int]:
    """The numbers of nodes that a graph tells."""
    if is_sparse_tensor(graph):
        return list(graph.sizes())
    if isinstance(graph, EdgeIndex):
        return [n for n in graph.sparse_size() if n is not None]
    return [] if graph.layout is torch.strided else list(graph.shape[:2])


def _written(found: set[int]) -> str:
    if not found:
        return "no number of nodes"
    numbers = " or ".join(map(str, sorted(found)))
    return f"{numbers} nodes" if len(found) > 1 else f"no parameter with {numbers} rows"

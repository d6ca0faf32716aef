"""Hyperedges among the arguments of a call: nodes of a kind of their own, without features.

A `hyperedge_index` `[2, num_incidences]` says which node (first row) belongs to which hyperedge
(second row). To a program that is a graph like any other, from the nodes to nodes of the kind
'hyperedge'. Of these there are as many as ids were seen, unless something is handed in for each of
them (`hyperedge_weight`, `hyperedge_attr`) or the call says how many there are (`num_edges`).
"""

import inspect
from dataclasses import dataclass, field

from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.objects import is_sparse_tensor
from pyg_incremental.errors import InvalidDeltaError

HYPEREDGE = "hyperedge"
HYPER_INDEX = "hyperedge_index"
_COUNTS = ("num_edges", "num_hyperedges")


@dataclass(frozen=True)
class Hyperedges:
    """What a call says of hyperedges; all empty if nothing.

    Attributes:
        kind: The kind of nodes at the targets of each graph that leads to hyperedges.
        inputs: The kind of each argument with one row per hyperedge.
        count: The number of hyperedges of each kind.
        fixed: The kinds of which there can be no more, and why.
    """

    kind: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, str] = field(default_factory=dict)


def hyperedges_of(site: BoundCall, graphs: list[str], rest: list[str], where: str) -> Hyperedges:
    """The hyperedges of a call.

    A graph leads to hyperedges if its name says so, or if every message passing layer of the model
    takes a `hyperedge_index`.

    Args:
        site: The call.
        graphs: Names of the arguments that are graphs.
        rest: Names of the other tensors.
        where: How messages begin.

    Raises:
        InvalidDeltaError: If its parts do not fit together.
    """
    every = _takes_only_hyperedges(site)
    plain = [n for n in graphs if n not in site.keys and not is_sparse_tensor(site.tensors[n])]
    named = [n for n in plain if every or HYPEREDGE in n]
    if not named or len(named) > 1:
        return Hyperedges()
    (name,) = named
    index: Tensor = site.tensors[name]
    seen = _ids_seen(index)
    inputs = {
        n: site.tensors[n].shape[0]
        for n in rest
        if isinstance(site.tensors[n], Tensor)
        and site.tensors[n].dim() > 0
        and (HYPEREDGE in n or (every and n.startswith("edge") and _fits(n, site, index, seen)))
    }
    told = {n: site.constants[n] for n in _COUNTS if type(site.constants.get(n)) is int}
    sizes = {**inputs, **told}
    if len(set(sizes.values())) > 1:
        raise InvalidDeltaError(
            f"{where}: expected one number of hyperedges (got {sizes}); pass as many rows of each"
        )
    count = next(iter(sizes.values()), seen)
    fixed = {}
    if told:
        said = " and ".join(f"{n}={c}" for n, c in told.items())
        fixed[HYPEREDGE] = f"the model is called with {said}; call it again with more or without"
    return Hyperedges(
        {name: HYPEREDGE}, dict.fromkeys(inputs, HYPEREDGE), {HYPEREDGE: count}, fixed
    )


def _takes_only_hyperedges(site: BoundCall) -> bool:
    """Whether every message passing layer of the model takes a `hyperedge_index`."""
    layers = [m for m in site.model.modules() if isinstance(m, MessagePassing)]
    return bool(layers) and all(
        HYPER_INDEX in inspect.signature(m.forward).parameters for m in layers
    )


def _ids_seen(index: Tensor) -> int:
    """One more than the largest id in the second row."""
    if isinstance(index, EdgeIndex):
        index = index.as_tensor()
    is_index = index.dim() == 2 and index.shape[0] == 2 and index.shape[1] > 0
    return max(int(index[1].max()) + 1, 0) if is_index else 0


def _fits(name: str, site: BoundCall, index: Tensor, seen: int) -> bool:
    """Whether an edge argument has a row for each hyperedge, and not for each incidence."""
    rows: int = site.tensors[name].shape[0]
    return rows >= seen and (rows != index.shape[1] or rows == seen)

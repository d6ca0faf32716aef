"""What files say of the part of one rank, checked before anything is made of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.distributed.placement.shard import Shard
from pyg_incremental.kernels.adjacency import out_of_range
from pyg_incremental.program.steps import Relation
from pyg_incremental.typing import MAX_NODES

CHUNK = 1 << 22
"""So many entries of a file that need not fit into memory are looked at together: 64 MB of ends of
edges, so that reading them does not wait for Python."""


def owners_fit(checked: Checked, kind: str, ranks: Any, size: int) -> None:
    """See that the owner of each node is one of so many ranks, int16 `[num_nodes]`."""
    if not isinstance(ranks, np.ndarray) or ranks.dtype != np.int16 or ranks.ndim != 1:
        raise checked.refuse(f"there are no owners of the nodes '{kind}'")
    if ranks.size > MAX_NODES:
        raise checked.refuse(f"there are {ranks.size} nodes '{kind}'")
    for first in range(0, ranks.size, CHUNK):
        at = out_of_range(ranks[first : first + CHUNK], size)
        if at >= 0:
            raise checked.refuse(
                f"node {first + at} of '{kind}' belongs to rank {ranks[first + at]} of {size}"
            )


def shard_fits(
    checked: Checked, shard: Shard, relations: Iterable[Relation], content: Mapping[str, Any]
) -> None:
    """See that what one rank owns hangs together.

    Args:
        checked: What errors begin with.
        shard: What it owns.
        relations: The graphs.
        content: The call: the kind of each node input (`nodes`), the graph of each edge input
            (`edges`), and graphs with values (`matrices`).
    """
    for kind, ranks in shard.owner.items():
        owners_fit(checked, kind, ranks, shard.size)
        ids = shard.ids.get(kind)
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
            raise checked.refuse(f"there are no ids of nodes '{kind}'")
        at = out_of_range(ids, ranks.size)
        if at >= 0:
            raise checked.refuse(f"it names node {ids[at]} of '{kind}', of {ranks.size}")
        if ids.size and not bool((np.diff(ids) > 0).all()):
            raise checked.refuse(f"the ids of nodes '{kind}' do not ascend")
        theirs = sum(
            int((ranks[first : first + CHUNK] == shard.rank).sum())
            for first in range(0, ranks.size, CHUNK)
        )
        if theirs != ids.size or not bool((ranks[ids] == shard.rank).all()):
            raise checked.refuse(f"these are not the nodes '{kind}' that rank {shard.rank} owns")
    checked.same(sorted(shard.nodes), sorted(content["nodes"]), "inputs of nodes")
    for name, kind in content["nodes"].items():
        checked.rows(shard.nodes[name], shard.ids[kind].size, f"'{name}'")
    graphs = {r.graph: r for r in relations}
    checked.same(sorted(shard.edge_index), sorted(graphs), "graphs")
    for name, r in graphs.items():
        edges, owner = shard.edge_index[name], shard.owner[r.target]
        counts = shard.owner[r.source].size, owner.size
        checked.graph(r, content, edges, shard.edges.get(name), counts)
        for first in range(0, edges.shape[1], CHUNK):
            if not bool((owner[edges[1, first : first + CHUNK].numpy()] == shard.rank).all()):
                raise checked.refuse(f"'{name}' has edges to nodes of another rank")


def sample_fits(checked: Checked, sample: Any, content: Mapping[str, Any]) -> None:
    """See that a sample of a call has rows of each of its inputs; see `distributed.call.Sample`."""
    checked.fits(
        sample,
        {"nodes": {str: Tensor}, "edges": {str: {str: Tensor}}, "others": {str: Tensor}},
        "sample",
    )
    checked.same(sorted(sample["nodes"]), sorted(content["nodes"]), "sampled inputs of nodes")
    for rows in (
        *sample["nodes"].values(),
        *(t for d in sample["edges"].values() for t in d.values()),
    ):
        if rows.dim() < 1:
            raise checked.refuse("a sample has no rows")


def alike(checked: Checked, rows: Tensor, sample: Tensor, name: str) -> None:
    """See that rows, `[n, ...]`, are of the shape and dtype of those of the other ranks."""
    found, expected = (rows.shape[1:], rows.dtype), (sample.shape[1:], sample.dtype)
    checked.same(found, expected, f"rows of '{name}'")


def as_arrays(checked: Checked, tensors: Any, dtype: torch.dtype, what: str) -> dict[str, Any]:
    """Tensors of one dtype by kind as arrays, `[n]`."""
    checked.fits(tensors, {str: Tensor}, what)
    for kind, ids in tensors.items():
        if ids.dtype is not dtype or ids.dim() != 1:
            raise checked.refuse(f"{what} of '{kind}' are {ids.dtype} {list(ids.shape)}")
    return {kind: ids.numpy() for kind, ids in tensors.items()}

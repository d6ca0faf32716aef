"""What workers say to each other, in the form in which ranks and files have values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pyg_incremental.encoding.framing import record

Ids = NDArray[np.int64]
Counts = tuple[Ids, Ids]
"""Distinct nodes and how much is added to a count of each, int64 `[k]`."""
NO_IDS = np.empty(0, np.int64)
NO_COUNTS: Counts = (NO_IDS, NO_IDS)


@record
class SampleQuery(NamedTuple):
    """The query that is kept ready, as the coordinator registers it.

    Attributes:
        num_neighbors: How many in-edges are sampled in each hop.
        strategy: Which ones.
        seed: What samples are drawn from.
        data: What edges come with, by name: tensors of their dtype, `[0]`.
        x: Features of their kind, `[0, num_features]`.
        memory: How many bytes of rows a serving worker has in memory; None for no limit.
        owners: The part of each of the first nodes, int64 `[n]`, see `owners.owner_of`.
    """

    num_neighbors: list[int]
    strategy: str
    seed: int
    data: dict[str, Tensor]
    x: Tensor
    memory: int | None
    owners: Ids = NO_IDS


@record
class Part(NamedTuple):
    """What one delta says to one sampling worker.

    Attributes:
        added: Edges to nodes of the worker, int64 `[2, k]`.
        ids: Their ids, int64 `[k]`, ascending.
        data: What they come with.
        gone: Edges to nodes of the worker that leave, int64 `[2, m]`.
        oldest: Whether the oldest edge of a pair leaves, and not the newest.
        removed: Nodes of which all edges leave, of all workers, int64 `[d]`.
        nodes: Nodes of the worker with new features, int64 `[r]`.
        x: Their features, `[r, num_features]`.
        num_nodes: Number of nodes from here on.
        before: Edges with times below this one leave; None for none.
    """

    added: Ids
    ids: Ids
    data: dict[str, Tensor]
    gone: Ids
    oldest: bool
    removed: Ids
    nodes: Ids
    x: Tensor
    num_nodes: int
    before: float | None = None


@record
class HopRows(NamedTuple):
    """Samples of one hop for a serving worker.

    Attributes:
        nodes: Whose they are, int64 `[k]`.
        held: How many edges each has, int64 `[k]`.
        edges: Ids and sources of the edges, int64 `[e, 2]`.
        gone: Nodes whose samples nobody needs there any more, int64 `[m]`.
    """

    nodes: Ids
    held: Ids
    edges: Ids
    gone: Ids


@record
class Publication(NamedTuple):
    """What one sampling worker sends one serving worker in a round.

    Attributes:
        hops: The samples of each hop.
        nodes: Nodes with features that are new there, int64 `[r]`.
        x: The features, `[r, num_features]`.
        gone: Nodes whose features nobody needs there any more, int64 `[m]`.
        num_nodes: Number of nodes.
    """

    hops: list[HopRows]
    nodes: Ids
    x: Tensor
    gone: Ids
    num_nodes: int


@record
class Answer(NamedTuple):
    """The sample of some seeds, as `SamplerOutput` has it, with features and its round.

    Attributes:
        node: Node ids, int64 `[n]`, hop by hop.
        edge_index: Edges as places in `node`, int64 `[2, e]`, hop by hop.
        edge: Edge ids, int64 `[e]`.
        x: Features, `[n, num_features]`.
        num_sampled_nodes: How many nodes there are in each hop.
        num_sampled_edges: How many edges.
        round: The round whose changes are all in it.
    """

    node: Tensor
    edge_index: Tensor
    edge: Tensor
    x: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    round: int


def summed(counts: list[Counts]) -> Counts:
    """Counts of several workers as one."""
    if len(counts) == 1:
        return counts[0]
    ids, at = np.unique(np.concatenate([ids for ids, _ in counts]), return_inverse=True)
    total = np.zeros(ids.size, np.int64)
    np.add.at(total, at, np.concatenate([count for _, count in counts]))
    return ids, total

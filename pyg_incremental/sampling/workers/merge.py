"""Answers of several serving workers as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_incremental.sampling.read import NodeType, ends_of
from pyg_incremental.sampling.workers.messages import Answer, EdgeAnswer, NodeAnswer

Ids = NDArray[np.int64]


class _Nodes:
    """The nodes of one type in several answers, hop by hop, with the seeds in their order.

    Args:
        answers: The nodes that each worker has found.
        places: Where the seeds of each stand among all, int64 `[k]`.
        count: How many seeds of this type there are.
    """

    def __init__(self, answers: Sequence[NodeAnswer], places: Sequence[Ids], count: int) -> None:
        self._answers = answers
        hop = torch.cat([_hops(a.counts) for a in answers])
        rank = torch.argsort(hop, stable=True)
        seeds = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *places]))
        rank[:count] = rank[:count][torch.argsort(seeds)]
        self._rank = rank
        self.where = torch.empty_like(rank)
        self.where[rank] = torch.arange(rank.numel())
        self.starts = np.cumsum([0, *(a.node.numel() for a in answers)]).tolist()

    @property
    def x(self) -> Tensor:
        """The features."""
        return torch.cat([a.x for a in self._answers])[self._rank]

    @property
    def ids(self) -> Tensor:
        """The ids."""
        return torch.cat([a.node for a in self._answers])[self._rank]

    @property
    def counts(self) -> list[int]:
        """How many there are in each hop."""
        return _added([a.counts for a in self._answers])


def merged(
    answers: list[Answer], places: list[Mapping[NodeType, Ids]], counts: Mapping[NodeType, int]
) -> Data | HeteroData:
    """One batch, hop by hop, with the seeds first and in the order in which they were asked for.

    A node that two workers have found is in it twice, once for the seeds of each, so every seed has
    the subgraph that its worker gave.

    Args:
        answers: One for each worker that was asked.
        places: Where the seeds of each stand among all of their type, int64 `[k]`.
        counts: How many seeds there are of each type.
    """
    none = np.empty(0, np.int64)
    nodes = {
        kind: _Nodes(
            [a.nodes[kind] for a in answers],
            [at.get(kind, none) for at in places],
            counts.get(kind, 0),
        )
        for kind in answers[0].nodes
    }
    is_hetero = None not in nodes
    data = HeteroData() if is_hetero else Data()
    for name, own in nodes.items():
        of = data[name] if is_hetero else data
        of.x, of.n_id, of.num_sampled_nodes = own.x, own.ids, own.counts
        if not is_hetero or name in counts:
            of.batch_size = counts[name]
    for kind in answers[0].edges:
        source, target = (nodes[end] for end in ends_of(kind))
        found = _edges([a.edges[kind] for a in answers], source, target)
        of = data[kind] if is_hetero else data
        of.edge_index, of.e_id, of.num_sampled_edges = found
    return data


def _edges(
    answers: list[EdgeAnswer], source: _Nodes, target: _Nodes
) -> tuple[Tensor, Tensor, list[int]]:
    """The edges of one type as places in the batch, their ids, and how many there are by hop."""
    order = torch.argsort(torch.cat([_hops(a.counts) for a in answers]), stable=True)
    ends = [
        nodes.where[torch.cat([a.edge_index[side] + at for a, at in _with(answers, nodes.starts)])]
        for side, nodes in enumerate((source, target))
    ]
    edge = torch.cat([a.edge for a in answers])[order]
    return torch.stack(ends)[:, order], edge, _added([a.counts for a in answers])


def _with(answers: list[EdgeAnswer], starts: list[int]) -> list[tuple[EdgeAnswer, int]]:
    return list(zip(answers, starts, strict=False))


def _hops(counts: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def _added(counts: list[list[int]]) -> list[int]:
    return [sum(of_hop) for of_hop in zip(*counts, strict=True)]

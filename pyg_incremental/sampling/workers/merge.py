"""Answers of several serving workers as one batch."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from pyg_incremental.sampling.workers.messages import Answer

Ids = NDArray[np.int64]


def merged(answers: list[Answer], places: list[Ids], count: int) -> Data:
    """One batch, hop by hop, with the seeds first and in the order in which they were asked for.

    A node that two workers have found is in it twice, once for the seeds of each, so every seed has
    the subgraph that its worker gave.

    Args:
        answers: One for each worker that was asked.
        places: Where the seeds of each stand among all, int64 `[k]`.
        count: How many seeds there are.
    """
    hop = torch.cat([_hops(a.num_sampled_nodes) for a in answers])
    rank = torch.argsort(hop, stable=True)
    seeds = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *places]))
    rank[:count] = rank[:count][torch.argsort(seeds)]
    where = torch.empty_like(rank)
    where[rank] = torch.arange(rank.numel())
    starts = np.cumsum([0, *(a.node.numel() for a in answers)]).tolist()
    edges = torch.cat([a.edge_index + s for a, s in zip(answers, starts, strict=False)], 1)
    order = torch.argsort(torch.cat([_hops(a.num_sampled_edges) for a in answers]), stable=True)
    return Data(
        x=torch.cat([a.x for a in answers])[rank],
        edge_index=where[edges[:, order]],
        n_id=torch.cat([a.node for a in answers])[rank],
        e_id=torch.cat([a.edge for a in answers])[order],
        num_sampled_nodes=_added([a.num_sampled_nodes for a in answers]),
        num_sampled_edges=_added([a.num_sampled_edges for a in answers]),
        batch_size=count,
    )


def _hops(counts: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def _added(counts: list[list[int]]) -> list[int]:
    return [sum(of_hop) for of_hop in zip(*counts, strict=True)]

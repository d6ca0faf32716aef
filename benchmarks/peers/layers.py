"""The layers of the compared models as what is sent, how it is aggregated and what follows.

A row of the next layer is `finish(Aggr over in-edges of send(h), keep(h))`, with a ReLU behind it
unless it is the last. There are two ways to write a layer whose aggregation is linear:

- as in the papers: `send` is the row itself, and the products run at every touched target;
- products first: `send` is a product, which then runs at the changed sources only, and an edge
  carries as many channels as come out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv

from benchmarks.peers.protocol import Skipped

RowMap = Callable[[Tensor], Tensor]


class Aggr(IntEnum):
    """How messages are aggregated."""

    SUM = 0
    MEAN = 1
    GCN = 2  # weighted by 1 / sqrt(degrees), a self-loop counted in both
    MAX = 3
    ATTENTION = 4  # see `attention`

    @property
    def linear(self) -> bool:
        """Whether it can be told what changed of a message."""
        return self <= Aggr.GCN


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        aggr: The aggregation.
        send: From a row to its message; None if the message is the row.
        keep: From a row to what `finish` reads of the node itself; None if that is its message.
        finish: From aggregated rows and kept rows to the rows that come out, before the ReLU.
        reads_kept: Whether `finish` reads kept rows at all.
        heads: Attention heads, and the slope of their leaky ReLU.
    """

    aggr: Aggr
    send: RowMap | None
    keep: RowMap | None
    finish: Callable[[Tensor, Tensor], Tensor]
    reads_kept: bool = True
    heads: int = 0
    slope: float = 0.0


def layers_of(model: nn.Module, products_first: bool = False) -> list[Layer]:
    """The layers of a model made of one kind of conv with ReLUs between."""
    write = _products_first if products_first else _as_in_papers
    return [write(conv) for conv in model.convs]


def _as_in_papers(conv: nn.Module) -> Layer:
    if isinstance(conv, GCNConv):
        finish = lambda a, _: F.linear(a, conv.lin.weight, conv.bias)  # noqa: E731
        return Layer(Aggr.GCN, None, None, finish, reads_kept=False)
    if isinstance(conv, SAGEConv):
        kind = Aggr.MAX if conv.aggr == "max" else Aggr.MEAN
        both = _side_by_side(conv.lin_l.weight, conv.lin_r.weight)
        return Layer(kind, None, None, _one_product(both, conv.lin_l.bias))
    if isinstance(conv, GraphConv):
        both = _side_by_side(conv.lin_rel.weight, conv.lin_root.weight)
        return Layer(Aggr.SUM, None, None, _one_product(both, conv.lin_rel.bias))
    if isinstance(conv, GINConv):
        return Layer(Aggr.SUM, None, None, lambda a, h: conv.nn(a.add_(h, alpha=_own(conv))))
    if isinstance(conv, GATConv):
        return _attention(conv)
    raise Skipped(f"no way to write {type(conv).__name__}")


def _products_first(conv: nn.Module) -> Layer:
    if isinstance(conv, GCNConv):
        biased = lambda a, _: a.add_(conv.bias)  # noqa: E731
        return Layer(Aggr.GCN, _times(conv.lin.weight), None, biased, reads_kept=False)
    if isinstance(conv, SAGEConv) and conv.aggr != "max":
        root = lambda h: F.linear(h, conv.lin_r.weight, conv.lin_l.bias)  # noqa: E731
        return Layer(Aggr.MEAN, _times(conv.lin_l.weight), root, Tensor.add_)
    if isinstance(conv, GraphConv):
        root = lambda h: F.linear(h, conv.lin_root.weight, conv.lin_rel.bias)  # noqa: E731
        return Layer(Aggr.SUM, _times(conv.lin_rel.weight), root, Tensor.add_)
    if isinstance(conv, GINConv):
        first, second = conv.nn.lins

        def finish(a: Tensor, z: Tensor) -> Tensor:
            return second(a.add_(z, alpha=_own(conv)).add_(first.bias).relu_())

        return Layer(Aggr.SUM, _times(first.weight), None, finish)
    raise Skipped("its products cannot run before its aggregation")


def _attention(conv: nn.Module) -> Layer:
    """A message holds the source's part of the logits, the target's part, and the values."""
    heads, channels = conv.heads, conv.out_channels

    def send(h: Tensor) -> Tensor:
        z = conv.lin(h).view(-1, heads, channels)
        parts = (z * conv.att_src).sum(-1), (z * conv.att_dst).sum(-1)
        return torch.cat([*parts, z.view(-1, heads * channels)], 1)

    def finish(a: Tensor, _: Tensor) -> Tensor:
        if not conv.concat:
            a = a.view(-1, heads, channels).mean(1)
        return a.add_(conv.bias)

    return Layer(Aggr.ATTENTION, send, None, finish, False, heads, conv.negative_slope)


def _own(conv: nn.Module) -> float:
    """How often GIN adds a node's own row."""
    return 1.0 + float(conv.eps)


def _times(weight: Tensor) -> RowMap:
    return lambda h: F.linear(h, weight)


def _side_by_side(left: Tensor, right: Tensor) -> Tensor:
    return torch.cat([left, right], 1)


def _one_product(both: Tensor, bias: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """`left a + right h + bias` as one product: half as many calls for small deltas."""
    return lambda a, h: F.linear(torch.cat([a, h], 1), both, bias)

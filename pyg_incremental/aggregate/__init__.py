"""Aggregations: how a node gathers over its in-edges, and how that is kept current.

| kind | insert | retract | when a row is made afresh |
|---|---|---|---|
| `Sum`, `FunctionSum` | add | subtract | too many bits were lost |
| `SoftmaxSum`, `FunctionSoftmax` | add | subtract | too many bits were lost |
| `Extremum` | compare | compare owners | only channels that lost their owner, uncovered |
| `NeighborhoodRows`, `PaddedRows` | - | - | always: the exact fallback |

A row is also made afresh when its own (target) part of the messages changed.
"""

from pyg_incremental.aggregate.attention import FunctionSoftmax
from pyg_incremental.aggregate.base import Aggregate, Aggregator
from pyg_incremental.aggregate.edge_function import FunctionSum
from pyg_incremental.aggregate.extremum import Extremum
from pyg_incremental.aggregate.message import EdgeFunction, Message, Weighted
from pyg_incremental.aggregate.padded import PaddedRows
from pyg_incremental.aggregate.rows import Neighborhood, NeighborhoodRows
from pyg_incremental.aggregate.softmax import SoftmaxSum, softmax_result
from pyg_incremental.aggregate.sum import OwnMessage, Sum, added, divided, scaled

__all__ = [
    "Aggregate",
    "Aggregator",
    "EdgeFunction",
    "Extremum",
    "FunctionSoftmax",
    "FunctionSum",
    "Message",
    "Neighborhood",
    "NeighborhoodRows",
    "OwnMessage",
    "PaddedRows",
    "SoftmaxSum",
    "Sum",
    "Weighted",
    "added",
    "divided",
    "scaled",
    "softmax_result",
]

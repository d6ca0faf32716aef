"""Operators: a file for each kind of step, how it runs on all rows and where something changed.

Row maps, inputs and steps on all rows are in `maps`, maps of edges in `edge_map`. Aggregations are:

| kind | insert | retract | when a row is made afresh |
|---|---|---|---|
| `Sum`, `FunctionSum` | add | subtract | too many bits were lost |
| `SoftmaxSum`, `FunctionSoftmax` | add | subtract | too many bits were lost |
| `Extremum` | compare | compare owners | only channels that lost their owner, uncovered |
| `NeighborhoodRows`, `PaddedRows` | - | - | always: the exact fallback |

A row is also made afresh when its own (target) part of the messages changed.
"""

from pyg_incremental.ops.attention import FunctionSoftmax
from pyg_incremental.ops.base import Aggregate, Aggregator, aggregations
from pyg_incremental.ops.edge_function import FunctionSum
from pyg_incremental.ops.extremum import Extremum
from pyg_incremental.ops.message import EdgeFunction, Message, Weighted
from pyg_incremental.ops.padded import PaddedRows
from pyg_incremental.ops.rows import Neighborhood, NeighborhoodRows
from pyg_incremental.ops.softmax import SoftmaxSum, softmax_result
from pyg_incremental.ops.sum import (
    Biased,
    Linear,
    OwnMessage,
    Sum,
    added,
    divided,
    plain_sum,
    scaled,
)

__all__ = [
    "Aggregate",
    "Aggregator",
    "Biased",
    "EdgeFunction",
    "Extremum",
    "FunctionSoftmax",
    "FunctionSum",
    "Linear",
    "Message",
    "Neighborhood",
    "NeighborhoodRows",
    "OwnMessage",
    "PaddedRows",
    "SoftmaxSum",
    "Sum",
    "Weighted",
    "added",
    "aggregations",
    "divided",
    "plain_sum",
    "scaled",
    "softmax_result",
]

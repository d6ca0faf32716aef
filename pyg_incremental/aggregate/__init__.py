"""Aggregations: how a node gathers over its in-edges, and how that is kept current.

| kind | insert | retract | when a row is made afresh |
|---|---|---|---|
| `Sum` | add | subtract | when additions have cost it too many bits |
| `SoftmaxSum` | add | subtract | its own part of the logits changed, or too many bits were lost |
| `Rows` | - | - | always: the exact fallback |
"""

from pyg_incremental.aggregate.base import Aggregate, Aggregator
from pyg_incremental.aggregate.rows import Neighborhood, Rows
from pyg_incremental.aggregate.softmax import SoftmaxSum, softmax_result
from pyg_incremental.aggregate.sum import Sum

__all__ = ["Aggregate", "Aggregator", "Neighborhood", "Rows", "SoftmaxSum", "Sum", "softmax_result"]

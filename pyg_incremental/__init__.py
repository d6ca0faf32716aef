"""Exact incremental inference for PyTorch Geometric models on graphs that keep changing."""

from typing import Any

from pyg_incremental import layers
from pyg_incremental.blocks import evaluate
from pyg_incremental.conv import register_conv
from pyg_incremental.conv.supported import supported_layers
from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.entry import load, to_incremental
from pyg_incremental.errors import (
    IncrementalError,
    IncrementalWarning,
    InvalidDeltaError,
    StaleStateError,
    StateFileError,
    UnsupportedModelError,
)
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.layers import (
    IncrementalConv,
    IncrementalGATConv,
    IncrementalGCNConv,
    IncrementalGINConv,
    IncrementalGraphConv,
    IncrementalSAGEConv,
)
from pyg_incremental.model import IncrementalModel
from pyg_incremental.testing import check_conv
from pyg_incremental.update import StepStats, Update, UpdateStats

__version__ = "0.1.0"

__all__ = [
    "DynamicGraph",
    "GraphDelta",
    "IncrementalConv",
    "IncrementalError",
    "IncrementalGATConv",
    "IncrementalGCNConv",
    "IncrementalGINConv",
    "IncrementalGraphConv",
    "IncrementalModel",
    "IncrementalSAGEConv",
    "IncrementalWarning",
    "InvalidDeltaError",
    "StaleStateError",
    "StateFileError",
    "StepStats",
    "UnsupportedModelError",
    "Update",
    "UpdateStats",
    "check_conv",
    "evaluate",
    "load",
    "register_conv",
    "supported_layers",
    "to_incremental",
]


def __getattr__(name: str) -> Any:
    """The drop-in version of any other conv: `Incremental` before its name."""
    return getattr(layers, name)

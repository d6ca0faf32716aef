"""Exact incremental inference for PyTorch Geometric models on graphs that keep changing.

What is named here is imported when it is first asked for: torch and PyG take seconds, which
`pyg-incremental --help` need not.
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyg_incremental.blocks.evaluate import evaluate
    from pyg_incremental.call.said import Role
    from pyg_incremental.conv import register_conv
    from pyg_incremental.delta.describe import GraphDelta
    from pyg_incremental.errors import (
        IncrementalError,
        IncrementalWarning,
        InvalidDeltaError,
        StaleStateError,
        StateFileError,
        UnsupportedModelError,
    )
    from pyg_incremental.files.opened import SavedState, read_state
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
    from pyg_incremental.telemetry.work import StepStats, UpdateStats
    from pyg_incremental.testing import check_conv
    from pyg_incremental.trace.supported import supported_layers
    from pyg_incremental.update import Update
    from pyg_incremental.wrap import load, to_incremental

logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever wants to hear it

__version__ = "0.4.0"

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
    "Role",
    "SavedState",
    "StaleStateError",
    "StateFileError",
    "StepStats",
    "UnsupportedModelError",
    "Update",
    "UpdateStats",
    "check_conv",
    "evaluate",
    "load",
    "read_state",
    "register_conv",
    "supported_layers",
    "to_incremental",
]

_HOMES = {
    "pyg_incremental.blocks.evaluate": ("evaluate",),
    "pyg_incremental.call.said": ("Role",),
    "pyg_incremental.conv": ("register_conv",),
    "pyg_incremental.trace.supported": ("supported_layers",),
    "pyg_incremental.delta.describe": ("GraphDelta",),
    "pyg_incremental.errors": (
        "IncrementalError",
        "IncrementalWarning",
        "InvalidDeltaError",
        "StaleStateError",
        "StateFileError",
        "UnsupportedModelError",
    ),
    "pyg_incremental.files.opened": ("SavedState", "read_state"),
    "pyg_incremental.graph.dynamic": ("DynamicGraph",),
    "pyg_incremental.layers": (
        "IncrementalConv",
        "IncrementalGATConv",
        "IncrementalGCNConv",
        "IncrementalGINConv",
        "IncrementalGraphConv",
        "IncrementalSAGEConv",
    ),
    "pyg_incremental.model": ("IncrementalModel",),
    "pyg_incremental.telemetry.work": ("StepStats", "UpdateStats"),
    "pyg_incremental.testing": ("check_conv",),
    "pyg_incremental.update": ("Update",),
    "pyg_incremental.wrap": ("load", "to_incremental"),
}
"""The module of each name."""
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """What is named above, a module, or the drop-in version of a conv: `Incremental` and its name.

    Raises:
        AttributeError: If there is nothing of that name.
    """
    if name in _HOME:
        found = getattr(import_module(_HOME[name]), name)
    elif name.startswith("Incremental"):
        return getattr(import_module("pyg_incremental.layers"), name)
    elif not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})

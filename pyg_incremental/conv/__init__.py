"""Convs as programs, one file per family.

A conv knows nothing about deltas, and the engine knows no conv. Every file here is imported, so a
family registers its convs by being there.
"""

from importlib import import_module
from pkgutil import iter_modules

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.registry import (
    has_program,
    register,
    register_conv,
    registered,
)
from pyg_incremental.program.steps import NotIncremental

__all__ = [
    "ConvCall",
    "NotIncremental",
    "has_program",
    "register",
    "register_conv",
    "registered",
]

for file in iter_modules(__path__, f"{__name__}."):
    import_module(file.name)

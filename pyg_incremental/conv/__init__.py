"""Convs as programs, one file per family.

A conv knows nothing about deltas, and the engine knows no conv.
"""

from pyg_incremental.conv import (
    edge_kernel,
    film,
    gat,
    gated,
    gcn,
    gin,
    graph_conv,
    pna,
    point,
    rgcn,
    sage,
)
from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.registry import builder_of, register, register_conv, registered
from pyg_incremental.program import NotIncremental

__all__ = [
    "ConvCall",
    "NotIncremental",
    "builder_of",
    "edge_kernel",
    "film",
    "gat",
    "gated",
    "gcn",
    "gin",
    "graph_conv",
    "pna",
    "point",
    "register",
    "register_conv",
    "registered",
    "rgcn",
    "sage",
]

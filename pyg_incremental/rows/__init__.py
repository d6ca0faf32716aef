"""The stored rows of one model, and what one update does to them."""

from pyg_incremental.rows.backend import NO_IDS, Backend, Ids, ascending
from pyg_incremental.rows.cell import Cell, RowMaker
from pyg_incremental.rows.context import AT_ONCE, NO_EDGES, NO_EVENTS, Context
from pyg_incremental.rows.growing import Rows
from pyg_incremental.rows.nodes import NodeSet, Scratch

__all__ = [
    "AT_ONCE",
    "NO_EDGES",
    "NO_EVENTS",
    "NO_IDS",
    "Backend",
    "Cell",
    "Context",
    "Ids",
    "NodeSet",
    "RowMaker",
    "Rows",
    "Scratch",
    "ascending",
]  # fmt: skip

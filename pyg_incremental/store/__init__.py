"""The stored rows of one model, and what one update does to them."""

from pyg_incremental.store.backend import NO_IDS, Backend, Ids, ascending
from pyg_incremental.store.cell import Cell, Maker
from pyg_incremental.store.context import NO_EDGES, NO_EVENTS, Context
from pyg_incremental.store.nodes import NodeSet, Scratch
from pyg_incremental.store.rows import Rows

__all__ = [
    "NO_EDGES", "NO_EVENTS", "NO_IDS", "Backend", "Cell", "Context", "Ids", "Maker", "NodeSet",
    "Rows", "Scratch", "ascending",
]  # fmt: skip

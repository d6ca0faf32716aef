"""What a set of kernels is: the loops over rows and edges that aggregations ask for.

There are two, `kernels.compiled` (Numba, NumPy arrays) and `kernels.reference` (plain torch,
tensors on any device); each is a module of these functions. What arguments mean, and their shapes,
stands in the files of the reference. A third set, for another device, has the same functions and is
chosen in `rows.backend`.
"""

from typing import Protocol

from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.typing import Array


class Kernels(Protocol):
    """A set of kernels."""

    # Rows -----------------------------------------------------------------------------------------

    def commit(
        self,
        store: Array,
        ids: Array,
        new: Array,
        old: Array,
        first_new: int,
        changed: Array,
        where: Array,
    ) -> int:
        """Write `new` to rows; returns how many differ, `changed`, at places `where` of `ids`."""
        ...

    def unite(self, ids: Array, touched: Array, count: int, stamp: Array, epoch: int) -> int:
        """Collect distinct ids; returns how many rows are collected then."""
        ...

    def unite_ends(
        self,
        src: Array,
        dst: Array,
        drop: bool,
        touched: Array,
        count: int,
        stamp: Array,
        epoch: int,
    ) -> int:
        """Collect the targets of listed edges; returns how many rows are collected then."""
        ...

    def reach(
        self,
        ids: Array,
        out: Adjacency,
        drop: bool,
        touched: Array,
        count: int,
        stamp: Array,
        epoch: int,
    ) -> tuple[int, int]:
        """Collect the targets of out-edges; returns (rows collected, edges read)."""
        ...

    def expand(
        self, ids: Array, adj: Adjacency, loops: int, index: Array, neighbor: Array, edge: Array
    ) -> int:
        """Write out the lists of some rows; returns how many entries count."""
        ...

    # Sums -----------------------------------------------------------------------------------------

    def sum_rows(
        self,
        ids: Array,
        state: Array,
        drift: Array,
        message: Array,
        weight: Array,
        inn: Adjacency,
        drop: bool,
    ) -> int:
        """Sum rows afresh; returns the edges read."""
        ...

    def sum_edges(
        self,
        state: Array,
        drift: Array,
        scale: Array,
        message: Array,
        src: Array,
        dst: Array,
        factor: Array,
        sign: int,
        drop: bool,
    ) -> None:
        """Add or take back the messages of listed edges."""
        ...

    def sum_settle(
        self,
        state: Array,
        drift: Array,
        limit: float,
        scale: Array,
        inn: Adjacency,
        touched: Array,
        count: int,
        again: Array,
    ) -> int:
        """Settle the first `count` touched rows; returns how many go to `again`."""
        ...

    def sum_push(
        self,
        state: Array,
        drift: Array,
        scale: Array,
        message: Array,
        weight: Array,
        ids: Array,
        old: Array,
        out: Adjacency,
        drop: bool,
        touched: Array,
        count: int,
        stamp: Array,
        epoch: int,
    ) -> tuple[int, int]:
        """Add `message - old` along out-edges; returns (rows collected, edges pushed)."""
        ...

    # Softmaxes ------------------------------------------------------------------------------------

    def softmax_rows(
        self,
        ids: Array,
        state: Array,
        drift: Array,
        message: Array,
        target: Array,
        edge: Array,
        loop: Array,
        slope: float,
        inn: Adjacency,
        drop: bool,
    ) -> int:
        """Make rows afresh; returns the edges read."""
        ...

    def softmax_edges(
        self,
        state: Array,
        drift: Array,
        scale: Array,
        message: Array,
        target: Array,
        src: Array,
        dst: Array,
        edge_rows: Array,
        slope: float,
        sign: int,
        drop: bool,
    ) -> None:
        """Add or take back the terms of listed edges."""
        ...

    def softmax_settle(
        self,
        state: Array,
        drift: Array,
        limit: float,
        scale: Array,
        heads: int,
        inn: Adjacency,
        has_loop: bool,
        touched: Array,
        count: int,
        again: Array,
    ) -> int:
        """Settle the first `count` touched rows; returns how many go to `again`."""
        ...

    def softmax_push(
        self,
        state: Array,
        drift: Array,
        scale: Array,
        message: Array,
        target: Array,
        edge: Array,
        slope: float,
        ids: Array,
        old: Array,
        out: Adjacency,
        drop: bool,
        touched: Array,
        count: int,
        stamp: Array,
        epoch: int,
    ) -> tuple[int, int]:
        """Replace terms along out-edges; returns (rows collected, edges pushed)."""
        ...

    # Extrema --------------------------------------------------------------------------------------

    def extremum_retract(
        self, owner: Array, dst: Array, slot: Array, stamp: Array, lost: int
    ) -> None:
        """Expose the channels that listed edges own."""
        ...

    def extremum_insert(
        self,
        state: Array,
        owner: Array,
        message: Array,
        at: Array,
        weight: Array,
        dst: Array,
        slot: Array,
        largest: bool,
    ) -> None:
        """Offer the messages of listed edges to their targets."""
        ...

    def extremum_exposed(
        self, owner: Array, rows: Array, stamp: Array, lost: int, found: Array
    ) -> int:
        """Rows with an exposed channel go to `found`; returns how many."""
        ...

    def extremum_fill(
        self,
        state: Array,
        owner: Array,
        message: Array,
        at: Array,
        weight: Array,
        rows: Array,
        index: Array,
        slot: Array,
        largest: bool,
        stamp: Array,
        read: int,
        afresh: bool,
    ) -> tuple[int, int]:
        """Make exposed channels, or whole rows, afresh; returns (rows, channels)."""
        ...

    def extremum_settle(
        self,
        now: Array,
        before: Array,
        rows: Array,
        first_new: int,
        stamp: Array,
        lost: int,
        read: int,
        changed: Array,
    ) -> tuple[int, int, int, int]:
        """Rows that differ go to `changed`; returns how many, and three of InkStream's classes."""
        ...

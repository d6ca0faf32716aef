"""What a set of kernels is: the loops over rows and edges that aggregations ask for.

There are two, `kernels.compiled` (Numba, NumPy arrays) and `kernels.reference` (plain torch,
tensors on any device); each is a module of these functions. A third set, for another device, has
the same functions and is chosen in `rows.backend`.

Stored rows and messages are `[num_rows, channels]`, ids and slots int64 `[k]`, weights `[slots]`,
and `stamp` and `touched` int64 `[num_nodes]`. Each file of the reference says it of its own.
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
        """Write `new` to rows.

        Returns how many differ, `changed`, at places `where` of `ids`; arrays as above.
        """
        ...

    def unite(self, ids: Array, touched: Array, count: int, stamp: Array, epoch: int) -> int:
        """Collect distinct ids; returns how many rows are collected then; arrays as above."""
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
        """Collect the targets of listed edges.

        Returns how many rows are collected then; arrays as above.
        """
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
        """Collect the targets of out-edges.

        Returns (rows collected, edges read); arrays as above.
        """
        ...

    def expand(
        self, ids: Array, adj: Adjacency, loops: int, index: Array, neighbor: Array, edge: Array
    ) -> int:
        """Write out the lists of some rows; returns how many entries count; arrays as above."""
        ...

    # Sums -----------------------------------------------------------------------------------------

    def sum_rows(
        self,
        ids: Array,
        state: Array,
        low: Array,
        drift: Array,
        message: Array,
        weight: Array,
        own: Array,
        factor: Array,
        inn: Adjacency,
        drop: bool,
        loop: Array,
    ) -> int:
        """Make rows `own + factor * sum` afresh; returns the edges read; arrays as above."""
        ...

    def sum_edges(
        self,
        state: Array,
        low: Array,
        drift: Array,
        scale: Array,
        message: Array,
        src: Array,
        dst: Array,
        weights: Array,
        factor: Array,
        sign: int,
        drop: bool,
        unit: float,
    ) -> None:
        """Add or take back the messages of listed edges; arrays as above."""
        ...

    def sum_renew(
        self,
        state: Array,
        low: Array,
        drift: Array,
        scale: Array,
        own: Array,
        own_ids: Array,
        own_old: Array,
        factor: Array,
        factor_ids: Array,
        factor_old: Array,
        first_new: int,
        num_nodes: int,
        first: int,
        last: int,
    ) -> None:
        """Take rows from the own rows and factors that they had to those that they have.

        Those from `first` to before `last`; arrays as above.
        """
        ...

    def sum_settle(
        self,
        state: Array,
        low: Array,
        drift: Array,
        limit: float,
        scale: Array,
        inn: Adjacency,
        touched: Array,
        count: int,
        again: Array,
    ) -> int:
        """Settle the first `count` touched rows.

        Returns how many go to `again`; arrays as above.
        """
        ...

    def sum_push(
        self,
        state: Array,
        low: Array,
        drift: Array,
        limit: float,
        scale: Array,
        message: Array,
        weight: Array,
        own: Array,
        factor: Array,
        ids: Array,
        old: Array,
        out: Adjacency,
        inn: Adjacency,
        drop: bool,
        loop: Array,
        touched: Array,
        count: int,
        stamp: Array,
        epoch: int,
    ) -> tuple[int, int, Array]:
        """Add `message - old` along out-edges, and settle the rows collected.

        Returns (rows collected, edges pushed, rows to be summed afresh); arrays as above.
        """
        ...

    # Softmaxes ------------------------------------------------------------------------------------

    def softmax_rows(
        self,
        ids: Array,
        state: Array,
        low: Array,
        drift: Array,
        message: Array,
        target: Array,
        edge: Array,
        loop: Array,
        slope: float,
        inn: Adjacency,
        drop: bool,
    ) -> int:
        """Make rows afresh; returns the edges read; arrays as above."""
        ...

    def softmax_edges(
        self,
        state: Array,
        low: Array,
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
        unit: float,
    ) -> None:
        """Add or take back the terms of listed edges; arrays as above."""
        ...

    def softmax_settle(
        self,
        state: Array,
        low: Array,
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
        """Settle the first `count` touched rows.

        Returns how many go to `again`; arrays as above.
        """
        ...

    def softmax_push(
        self,
        state: Array,
        low: Array,
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
        """Replace terms along out-edges.

        Returns (rows collected, edges pushed); arrays as above.
        """
        ...

    # Extrema --------------------------------------------------------------------------------------

    def extremum_retract(
        self, owner: Array, dst: Array, slot: Array, stamp: Array, lost: int
    ) -> None:
        """Expose the channels that listed edges own; arrays as above."""
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
        """Offer the messages of listed edges to their targets; arrays as above."""
        ...

    def extremum_exposed(
        self, owner: Array, rows: Array, stamp: Array, lost: int, found: Array
    ) -> int:
        """Rows with an exposed channel go to `found`; returns how many; arrays as above."""
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
        """Make exposed channels, or whole rows, afresh.

        Returns (rows, channels); arrays as above.
        """
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
        """Rows that differ go to `changed`.

        Returns how many, and three of InkStream's classes; arrays as above.
        """
        ...

"""What every program that is compared can do."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from pyg_incremental import GraphDelta


class Skipped(Exception):
    """A peer cannot run here, or not this model; the message is the reason."""


class Peer(Protocol):
    """A program that keeps the output of one model while its graph changes.

    It is made from the model alone, and raises `Skipped` if it cannot serve it. Each peer has its
    own state and leaves its arguments as they are. Graphs have no self-loops and a fixed number of
    nodes, deltas name no node twice and delete only edges that are there. Callers turn gradients
    off.
    """

    def bootstrap(self, x: Tensor, edge_index: Tensor) -> None:
        """Take the graph at the start: features `[nodes, channels]`, edges int64 `[2, edges]`."""

    def apply(self, delta: GraphDelta) -> None:
        """Bring the output up to date."""

    def output(self) -> Tensor:
        """The output of all nodes."""

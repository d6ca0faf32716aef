"""Variances over in-edges: the mean of squares less the square of the mean, as one step.

PyG's aggregations, `EGConv`, and a variance written by hand are all made of these two means.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from pyg_incremental.trace import operations
from pyg_incremental.trace.ids import EndIds
from pyg_incremental.trace.names import called
from pyg_incremental.trace.softmax import Reduced

_SHAPES = frozenset(("view", "reshape", "unsqueeze", "expand", "expand_as"))


@dataclass(frozen=True)
class Variances:
    """Finds variances in a recorded graph.

    Args:
        ids: Which nodes hold ids, and constants.
        reduced: The operations that reduce something at an end of edges.
    """

    ids: EndIds
    reduced: Mapping[fx.Node, Reduced]

    def read(self, node: fx.Node) -> Reduced | None:
        """The mean of what a difference is the variance of; None if it is another one."""
        if len(node.args) != 2 or node.kwargs:
            return None
        squares, mean = self._mean(node.args[0]), self._mean(_squared(node.args[1]))
        if squares is None or mean is None or squares.end != mean.end:
            return None
        return mean if _squared(squares.source) is mean.source else None

    def _mean(self, node: object) -> Reduced | None:
        """What is a mean over the edges at an end, of which one without edges counts as one."""
        if not isinstance(node, fx.Node):
            return None
        own = self.reduced.get(node)
        if own is not None and own.reduce == "mean":
            return own
        if called(node) not in operations.QUOTIENTS or len(node.args) != 2 or node.kwargs:
            return None
        total = self._reduced(node.args[0])
        if total is None or total.reduce != "sum" or not self._counts(node.args[1], total):
            return None
        return Reduced(total.end, "mean", total.source)

    def _reduced(self, node: object) -> Reduced | None:
        return self.reduced.get(node) if isinstance(node, fx.Node) else None

    def _counts(self, node: object, total: Reduced) -> bool:
        """Whether a divisor is the number of rows that were added up, and at least one."""
        while isinstance(node, fx.Node) and called(node) in _SHAPES:
            node = node.args[0]  # as wide as the rows
        if not isinstance(node, fx.Node) or called(node).removesuffix("_") != "clamp":
            return False
        at_least = node.kwargs.get("min", node.args[1] if len(node.args) == 2 else None)
        others = {"max"} & node.kwargs.keys() or len(node.args) > 2
        count = self._reduced(node.args[0])
        if at_least != 1 or others or count is None or count.reduce != "sum":
            return False
        return count.end == total.end and self.ids.filled.get(count.source) == ("ones", "")


def _squared(node: object) -> fx.Node | None:
    """What a node is the square of."""
    if not isinstance(node, fx.Node) or node.kwargs or len(node.args) != 2:
        return None
    first, second = node.args
    twice = first is second and called(node) in operations.PRODUCTS
    power = called(node) == "pow" and second == 2
    return first if (twice or power) and isinstance(first, fx.Node) else None

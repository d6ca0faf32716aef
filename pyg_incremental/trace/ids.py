"""Ids of nodes at the ends of edges, and constants, as they go through a recorded graph."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.call.members import membership
from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Domain, Relation, Value
from pyg_incremental.trace.looped import Looped
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.sizes import is_fake, same_size
from pyg_incremental.trace.written import Written

_KEEPS_IDS = frozenset(
    [
        "view", "reshape", "unsqueeze", "expand", "expand_as", "flatten", "contiguous", "clone",
        "detach", "repeat", "long", "view_as", "reshape_as", "broadcast_to",
    ]
)  # fmt: skip
"""Operations after which ids still stand one behind the other in the first dimension, if there are
still as many: they are only repeated in others."""
_ZEROS = frozenset(["zeros", "new_zeros", "zeros_like"])
_ONES = frozenset(["ones", "new_ones", "ones_like"])


@dataclass(frozen=True)
class End:
    """The ids of the nodes at one end of every edge, in order of the edges.

    With loops, the ids of all nodes come behind them.
    """

    relation: Relation
    at_target: bool
    with_loops: bool = False

    @property
    def kind(self) -> str:
        """The nodes."""
        return self.relation.target if self.at_target else self.relation.source


class EndIds:
    """Notes which nodes of a graph hold ids at the ends of edges, or constants that count.

    Args:
        written: What is written so far.

    Attributes:
        of: The ends whose ids nodes hold.
        filled: Zeros for every node of a kind, and ones for every edge.
        every: The ids of all nodes.
        pairs: The two ends whose ids nodes hold beside each other, a row for each edge.
    """

    def __init__(self, written: Written) -> None:
        self._written = written
        self.of: dict[fx.Node, End] = {}
        self.filled: dict[fx.Node, tuple[str, str]] = {}
        self.every: set[fx.Node] = set()
        self.looped: dict[fx.Node, Relation] = {}  # edges, and behind them a loop at each node
        self.pairs: dict[fx.Node, tuple[End, End]] = {}
        self._graphs: dict[fx.Node, Value] = {}

    def note_members(self, node: fx.Node, name: str, roles: Roles) -> None:
        """An input that names graphs holds the ids at one end of the edges that it stands for."""
        relation = membership(roles, name) if name in roles.nodes else None
        if relation is not None and relation.graph in self._written.recorded.sizes.edges:
            self.of[node] = End(relation, at_target=True)

    def end_of(self, node: fx.Node, name: str) -> End | None:
        """The end whose ids an operation gives, if it gives such."""
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node):
            return None
        fake = self.fake(node)
        if first in self.of:
            end = self.of[first]
            kept = name in _KEEPS_IDS and fake is not None and self.per_edge(fake, end)
            return end if kept or _adds_dimensions(node, name) else None
        if first in self.pairs:
            return self._of_pairs(node, name, self.pairs[first])
        at: Any = None
        if name == "__getitem__" or node.target is operator.getitem:
            at = node.args[1]
            if first.op == "call_function" and name_of(first.target) == "unbind":  # type: ignore[arg-type]
                rows = arguments_of(first, ("input", "dim"))
                if rows["input"] in self.pairs and type(at) is int:
                    return self.pairs[rows["input"]][at] if rows.get("dim", 0) in (1, -1) else None
                first = rows["input"] if rows.get("dim", 0) == 0 else None
        elif name == "select":
            given = arguments_of(node, ("input", "dim", "index"))
            at = given.get("index") if given.get("dim") == 0 else None
        graph: Any = self._written.env.get(first) if isinstance(first, fx.Node) else None
        loops = first in self.looped
        if isinstance(at, tuple) and at[1:] == (slice(None),):
            at = at[0]
        if type(at) is not int or at not in (0, 1, -1, -2) or not isinstance(graph, Value):
            return None
        turned = graph in self._written.turned
        relation = self._written.program.graphs.get(self._written.turned.get(graph, graph))
        if isinstance(first, fx.Node) and loops:
            relation = self.looped[first]
        if relation is None:
            return None
        return End(relation, (at % 2 == 1) != turned, loops)

    def _of_pairs(self, node: fx.Node, name: str, ends: tuple[End, End]) -> End | None:
        """One column of pairs, `pairs[:, 0]`, if an operation picks that."""
        given = arguments_of(node, ("input", "dim", "index"))
        at = given.get("index") if given.get("dim") in (1, -1) and name == "select" else None
        if name == "__getitem__":
            whole = isinstance(node.args[1], tuple) and len(node.args[1]) == 2
            at = node.args[1][1] if whole and node.args[1][0] == slice(None) else None  # type: ignore[index]
        return ends[at] if type(at) is int and at in (0, 1, -1, -2) else None

    def turned_back(self, node: fx.Node, name: str) -> Value | None:
        """The graph of which an operation is `edge_index.T.T`."""
        first = node.args[0] if node.args else None
        return self._graphs.get(first) if swaps(node, name) else None  # type: ignore[arg-type]

    def note_pairs(self, node: fx.Node, name: str) -> bool:
        """Whether an operation is `edge_index.T`, of which note is taken."""
        first = node.args[0] if node.args else None
        graph: Any = self._written.env.get(first) if isinstance(first, fx.Node) else None
        if not isinstance(graph, Value) or not swaps(node, name):
            return False
        relation = self._written.program.graphs.get(graph)
        if relation is None:
            return False
        self._graphs[node] = graph
        self.pairs[node] = End(relation, False), End(relation, True)
        return True

    def note_constant(self, node: fx.Node, name: str) -> None:
        """Zeros for every node, and ones for every edge, are known when something is added up."""
        fake = self.fake(node)
        if fake is None or name not in _ZEROS | _ONES:
            return
        kind = self._written.recorded.sizes.kind_of(fake.shape)
        if name in _ZEROS and kind is not None:
            self.filled[node] = ("zeros", kind)
        if name in _ONES and is_fixed(fake.shape[1:]):
            self.filled[node] = ("ones", "")

    def joined(self, node: fx.Node) -> Looped | None:
        """`cat` of edges and a loop at each node, or of rows that belong to these."""
        given = arguments_of(node, ("tensors", "dim"))
        parts, dim, sizes = given["tensors"], given.get("dim", 0), self._written.recorded.sizes
        if not isinstance(parts, (list, tuple)) or len(parts) != 2:
            return None
        first, second = (
            self._written.env.get(p) if isinstance(p, fx.Node) else None for p in parts
        )
        relation = self._written.program.graphs.get(first)  # type: ignore[arg-type]
        fake = self.fake(parts[1]) if isinstance(parts[1], fx.Node) else None
        if relation is not None and parts[1] in self.every:
            beside = dim in (1, -1) and fake is not None and fake.dim() == 2
            at_home = relation.source == relation.target
            if beside and at_home and same_size(fake.shape[1], sizes.nodes[relation.source]):  # type: ignore[union-attr]
                self.looped[node] = relation
        elif isinstance(first, Value) and isinstance(second, Value) and fake is not None:
            over = [r for r in self._written.program.graphs.values() if r.graph == first.kind]
            alike = first.domain is Domain.EDGE and second.domain is Domain.NODE and over
            if alike and dim in (0, -fake.dim()) and second.kind == over[0].source:
                return Looped(first, second) if over[0].source == over[0].target else None
        return None

    def per_edge(self, fake: Tensor, end: End) -> bool:
        """Whether `fake`, `[n, ...]`, has a row for each edge of an end, and each of its loops."""
        relation, sizes = end.relation, self._written.recorded.sizes
        count = sizes.edges[relation.graph]
        if end.with_loops:
            count = count + sizes.nodes[relation.source]
        return fake.dim() > 0 and same_size(fake.shape[0], count)

    def fake(self, node: fx.Node) -> Tensor | None:
        """What a node gives, without values, if that is a tensor."""
        fake = self._written.recorded.fake.get(node)
        return fake if is_fake(fake) else None


def arguments_of(node: fx.Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call by name."""
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def flat_arguments(node: fx.Node) -> list[Any]:
    """The arguments of a call behind the first, those in a tuple one by one."""
    found: list[Any] = []
    for given in (*node.args[1:], *node.kwargs.values()):
        found += given if isinstance(given, (tuple, list)) else [given]
    return found


def swaps(node: fx.Node, name: str) -> bool:
    """Whether an operation exchanges the two dimensions of a matrix."""
    if name in ("t", "get T", "get mT"):
        return True
    dims = [d % 2 for d in flat_arguments(node) if isinstance(d, int)]
    return dims in ([1, 0], [0, 1]) if name == "transpose" else name == "permute" and dims == [1, 0]


def _adds_dimensions(node: fx.Node, name: str) -> bool:
    """Whether it is `ids[:, None]`."""
    at = node.args[1] if name == "__getitem__" and len(node.args) > 1 else None
    return (
        isinstance(at, tuple)
        and bool(at)
        and at[0] == slice(None)
        and all(part is None for part in at[1:])
    )


def same_shape(a: Any, b: Any) -> bool:
    """Whether two shapes are equal whatever the graph."""
    return len(a) == len(b) and all(map(same_size, a, b))


def is_fixed(shape: Any) -> bool:
    """Whether no size depends on the graph."""
    return not any(isinstance(size, torch.SymInt) for size in shape)

"""The numbers of nodes and edges as symbols, and tensors of such sizes that hold no values.

What a model computes from them cannot depend on how large a graph is, or on what its rows hold,
unless it says so: a size is `u0`, not 23, and asking for a value raises an error. This is PyTorch's
own machinery for that (`FakeTensorMode`, and sizes without a backing number in its `ShapeEnv`).
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import SymInt, Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (  # fmt: skip
    ShapeEnv,
    _constrain_range_for_size,
    statically_known_true,
)

from pyg_incremental.call.roles import Roles
from pyg_incremental.program.steps import Relation
from pyg_incremental.trace.probe import Probe

Size = int | SymInt
_LOGGERS = [
    logging.getLogger(name)
    for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
]
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _without_cache(method: Any) -> Any:
    while hasattr(method, "cache_clear"):
        method = method.__wrapped__
    return method


_OwnEnv: Any = type(
    "_OwnEnv",
    (ShapeEnv,),
    {
        name: _without_cache(method)
        for name, method in vars(ShapeEnv).items()
        if hasattr(method, "cache_clear")
    },
)
"""A `ShapeEnv` that goes with its call.

PyTorch keeps results of its methods by the object that they were asked of, for all of these
together and for ever, so that every call that was traced would stay with all of its symbols. What
is asked of ours is asked about once.
"""


class Sizes:
    """The symbols of one call.

    Args:
        roles: What its tensors are.
        probe: A small call; its numbers are what the symbols stand for while a model is tried.
        edges: How many edges each graph has at least.

    Attributes:
        nodes: The number of nodes of each kind: a symbol, or a number where it is fixed.
        edges: The number of edges of each graph.
    """

    def __init__(self, roles: Roles, probe: Probe, edges: int) -> None:
        self._env = _OwnEnv()
        self._mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        # What it keeps of an operation goes by its symbols, which no other call has.
        self._mode.cache_enabled = False
        self._numbers: dict[Any, int] = {}
        self._empty: dict[Any, Tensor] = {}
        self._made: dict[Any, Size] = {}
        self.nodes: dict[str, Size] = {
            kind: count
            if kind in roles.fixed
            else self.symbol(count, least=2 if roles.num_nodes.get(kind, 0) > 1 else 1)
            for kind, count in probe.num_nodes.items()
        }
        self.edges: dict[str, Size] = {
            r.graph: self.nodes[r.source]
            if r.members
            else self.symbol(probe.edge_index[r.graph].shape[1], least=edges)
            for r in roles.relations
        }
        self._kinds = {_key(size): kind for kind, size in self.nodes.items()}

    @contextlib.contextmanager
    def without_values(self) -> Iterator[None]:
        """Let operations compute shapes and nothing else.

        Where one of them cannot, it raises; PyTorch would log it as well.
        """
        with _quiet(), self._mode:
            yield

    def symbol(self, number: int, least: int = 0) -> SymInt:
        """A new symbol, at least `least`, which stands for `number` on the probe."""
        made: SymInt = self._env.create_unbacked_symint()
        _constrain_range_for_size(made, min=least)
        self._numbers[_key(made)] = number
        return made

    def of_members(self, relation: Relation, number: int) -> Size:
        """How many graphs an input names; on the probe they are `number`."""
        if relation.target not in self.nodes:
            made = self.nodes[relation.target] = self.symbol(number, least=1)
            self.edges[relation.graph] = self.nodes[relation.source]
            self._kinds[_key(made)] = relation.target
        return self.nodes[relation.target]

    def fake(self, real: Tensor, sizes: Sequence[Size]) -> Tensor:
        """A tensor like `real`, `[*sizes]`, without values.

        Made by hand, as `FakeTensorMode` itself does: `torch.empty` under it takes seven times as
        long, since it first looks for the operation and its symbols among those it knows.
        """
        return self.like(real.dtype, real.device, sizes)

    def like(
        self,
        dtype: torch.dtype,
        device: torch.device,
        sizes: Sequence[Size],
        stride: Sequence[Size] | None = None,
    ) -> Tensor:
        """A tensor `[*sizes]` of a dtype, as if on a device, without values."""
        key = dtype, tuple(map(_key, sizes)), stride and tuple(map(_key, stride))
        if key not in self._empty:
            # PyTorch works out in Python what symbols say of its layout.
            self._empty[key] = (
                torch.empty(tuple(sizes), dtype=dtype, device="meta")
                if stride is None
                else torch.empty_strided(tuple(sizes), tuple(stride), dtype=dtype, device="meta")
            )
        return FakeTensor(self._mode, self._empty[key], device)

    def size(self, expression: Any) -> Size:
        """What is computed from symbols, as a size."""
        if expression not in self._made:
            self._made[expression] = self._env.create_symintnode(expression, hint=None)
        return self._made[expression]

    def bounds(self, symbol: Any) -> tuple[Any, Any]:
        """The least and the largest that a symbol can be."""
        within = self._env.var_to_range[symbol]
        return within.lower, within.upper

    def has_learned(self) -> bool:
        """Whether more is known of the symbols than the bounds of each."""
        return bool(self._env.replacements or self._env.num_deferred_runtime_asserts)

    def unknown(self, real: Tensor) -> Tensor:
        """A tensor like `real`, of any shape, of whose sizes nothing is known."""
        return self.fake(real, [self.symbol(n) for n in real.shape])

    def learn(self, fake: Tensor, real: Tensor) -> None:
        """Note what symbols in the shape of a result, any shape, stand for on the probe."""
        sizes: Sequence[Size] = fake.shape
        for size, number in zip(sizes, real.shape, strict=True):
            if is_symbolic(size):
                self._numbers.setdefault(_key(size), number)

    def may_be(self, size: Size, number: int) -> bool:
        """Whether a size may be that number on the probe."""
        if not isinstance(size, SymInt):
            return bool(size == number)
        known = size.node.expr.free_symbols <= self._numbers.keys()
        return not known or self.number(size) == number

    def number(self, size: Any) -> Any:
        """What a symbol, or something computed from symbols, is on the probe."""
        expression = size.node.expr
        return _plain(size, expression.xreplace(self._numbers))

    def number_of(self, kind: str) -> int:
        """How many nodes of a kind the probe has."""
        size = self.nodes[kind]
        return int(self.number(size)) if is_symbolic(size) else int(size)

    def symbols_in(self, size: Any) -> list[Any]:
        """The symbols that something was computed from, in a fixed order."""
        return sorted(size.node.expr.free_symbols, key=str)

    def kind_of(self, shape: Sequence[Size]) -> str | None:
        """The nodes that a tensor of that shape has one row for, of a width that does not grow."""
        if not shape or any(isinstance(d, SymInt) for d in shape[1:]):
            return None
        return self._kinds.get(_key(shape[0]))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what PyTorch logs in this thread about shapes from the user."""
    thread = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for logger in _LOGGERS:
        logger.addFilter(elsewhere)
    try:
        yield
    finally:
        for logger in _LOGGERS:
            logger.removeFilter(elsewhere)


def is_symbolic(size: object) -> bool:
    """Whether a size depends on the graph."""
    return isinstance(size, SymInt)


def is_fake(value: Any) -> bool:
    """Whether a value is a tensor without values."""
    return isinstance(value, FakeTensor)


def may_be_one(size: Size) -> bool:
    """Whether a size that depends on the graph can be one."""
    return isinstance(size, SymInt) and not statically_known_true(size > 1)


def same_size(a: Size, b: Size) -> bool:
    """Whether two sizes are equal whatever the graph."""
    return bool(_key(a) == _key(b))


def evaluated(size: Any, numbers: Mapping[Any, Any]) -> Any:
    """What something computed from symbols is if the symbols are these numbers."""
    return _plain(size, size.node.expr.xreplace(dict(numbers)))


def _key(size: Any) -> Any:
    """An int, or what a symbolic size is computed from."""
    return size.node.expr if isinstance(size, SYMBOLIC) else size


def _plain(size: Any, expression: Any) -> Any:
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(size)]
    return kind(expression)

"""The shapes that calls of torch return, each kind of call asked of PyTorch once.

PyTorch answers in Python for tensors without values: 1 to 10 ms a call, most of what a trace takes
that looks into a conv. The answer is the same for the next call that is alike up to the names of
its symbols, and for most calls it is plain: an elementwise one has the shape of its arguments.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import SymInt, Tensor, nn

from pyg_incremental.trace.called import Call
from pyg_incremental.trace.operations import is_elementwise
from pyg_incremental.trace.sizes import Size, Sizes, is_fake, same_size

_MOST = 4096
"""So many answers are kept; the oldest goes."""
PLAIN = (
    bool, int, float, str, type(None), type(Ellipsis),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""What is told by its value."""


def _dtypes() -> tuple[Any, ...]:
    """What the dtypes of results depend on beside those of arguments."""
    cast = (torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in ("cpu", "cuda"))
    return torch.get_default_dtype(), *cast


class _NotDescribed(Exception):
    """What a call returns may depend on more than shapes."""


class KnownShapes:
    """What calls returned that are alike up to the names of symbols, whichever model made them."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def question(self, sizes: Sizes, call: Call) -> "Question | None":
        """What to ask for a call; None if another one that is alike may return other shapes.

        That is where it is no function of torch, where it is given something else than tensors and
        plain values, or where the symbols are known to be more than numbers within bounds.
        """
        if call.op != "call_function" or call.name.startswith(("<", "get ")) or sizes.has_learned():
            return None
        symbols: dict[Any, Any] = {}
        try:
            asked = _described((call.args, call.kwargs), symbols)
        except _NotDescribed:
            return None
        bounds = tuple(map(sizes.bounds, symbols))
        return Question((call.target, asked, bounds, *_dtypes()), symbols)

    def answer(self, sizes: Sizes, question: "Question") -> Any:
        """The tensors without values that such a call returns; None if it is not known."""
        told = self._known.get(question.key)
        if told is None:
            return None
        return _made(sizes, told, {own: symbol for symbol, own in question.symbols.items()})

    def tell(self, question: "Question", fakes: Any) -> None:
        """Keep what a call returned, unless it has sizes that its arguments do not tell."""
        symbols = dict(question.symbols)
        try:
            told = _described(fakes, symbols)
        except _NotDescribed:
            return
        if len(symbols) == len(question.symbols):
            while len(self._known) >= _MOST:
                self._known.pop(next(iter(self._known)), None)
            self._known[question.key] = told


class Question:
    """A call up to the names of its symbols, and those names.

    Args:
        key: Equal for calls that return the same.
        symbols: What stands in the key for each symbol.
    """

    def __init__(self, key: Any, symbols: dict[Any, Any]) -> None:
        self.key, self.symbols = key, symbols


KNOWN_SHAPES = KnownShapes()


def elementwise(sizes: Sizes, call: Call, real: Any) -> Tensor | None:
    """What an elementwise call returns, without values; None if it is another, or sizes differ.

    Args:
        sizes: The symbols.
        call: The call.
        real: What it gave on the probe.
    """
    plain = isinstance(real, Tensor) and real.layout is torch.strided and real.is_contiguous()
    if not plain or call.op != "call_function" or not is_elementwise(call.name):
        return None
    shape = broadcast([v.shape for v in call.leaves if isinstance(v, Tensor)])
    if shape is None or len(shape) != real.dim():
        return None
    return sizes.fake(real, shape) if all(map(sizes.may_be, shape, real.shape)) else None


def keeps_shape(call: Call, written: Tensor) -> bool:
    """Whether an elementwise call leaves a tensor of any shape, which it writes to, as large."""
    if call.op != "call_function" or not is_elementwise(call.name.removesuffix("_")):
        return False
    shape = broadcast([v.shape for v in call.leaves if isinstance(v, Tensor)])
    return shape is not None and len(shape) == written.dim() and all(
        map(same_size, shape, written.shape)
    )  # fmt: skip


def broadcast(shapes: Sequence[Sequence[Size]]) -> list[Size] | None:
    """The shape of tensors that meet element by element; None if it depends on sizes."""
    made: list[Size] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for place, size in enumerate(shape, len(made) - len(shape)):
            if same_size(made[place], 1):
                made[place] = size
            elif not same_size(size, 1) and not same_size(size, made[place]):
                return None
    return made


def _described(value: Any, symbols: dict[Any, Any]) -> Any:
    """A value up to the names of symbols.

    Raises:
        _NotDescribed: If it is neither a tensor nor plain.
    """
    if isinstance(value, Tensor):
        # What a tensor with values holds may tell a shape, as a mask does; floats never do.
        known = type(value) in (Tensor, nn.Parameter) and value.is_floating_point()
        if value.layout is not torch.strided or not (is_fake(value) or known):
            raise _NotDescribed
        of = functools.partial(_size, symbols=symbols)
        shape, stride = tuple(map(of, value.shape)), tuple(map(of, value.stride()))
        packed = None if stride == _packed(shape) else stride
        return Tensor, is_fake(value), value.dtype, value.device, shape, packed
    if isinstance(value, SymInt):
        return SymInt, _size(value, symbols)
    if type(value) in (tuple, list, torch.Size):
        return type(value), *(_described(part, symbols) for part in value)
    if type(value) is dict:
        return dict, *((key, _described(part, symbols)) for key, part in value.items())
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return slice, *(_described(part, symbols) for part in parts)
    if isinstance(value, PLAIN):
        return type(value), value
    raise _NotDescribed


def _packed(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """The strides of a tensor without gaps, which PyTorch makes three times as fast if not told."""
    strides: list[Any] = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[: len(shape)]))


def _size(size: Size, symbols: dict[Any, Any]) -> Any:
    if not isinstance(size, SymInt):
        return size
    expression = size.node.expr
    for symbol in sorted(expression.free_symbols - symbols.keys(), key=str):
        symbols[symbol] = type(symbol)(f"s{len(symbols)}", integer=True)
    return _renamed(expression, symbols)


def _renamed(expression: Any, symbols: dict[Any, Any]) -> Any:
    """What is computed from symbols, with others for them."""
    if expression in symbols:
        return symbols[expression]
    return _replaced(expression, tuple((own, symbols[own]) for own in expression.free_symbols))


@functools.lru_cache(_MOST)
def _replaced(expression: Any, pairs: tuple[tuple[Any, Any], ...]) -> Any:
    """The same expression with others in place of symbols, which SymPy works out anew each time."""
    return expression.xreplace(dict(pairs))


def _made(sizes: Sizes, told: Any, symbols: dict[Any, Any]) -> Any:
    """What `_described` tells of, with other symbols."""
    kind, *parts = told
    if kind is Tensor:
        _, dtype, device, shape, stride = parts
        of = functools.partial(_named, sizes, symbols=symbols)
        return sizes.like(dtype, device, list(map(of, shape)), stride and list(map(of, stride)))
    if kind is SymInt:
        return _named(sizes, parts[0], symbols)
    if kind in (tuple, list):
        return kind(_made(sizes, part, symbols) for part in parts)
    return parts[0]


def _named(sizes: Sizes, size: Any, symbols: dict[Any, Any]) -> Size:
    return size if isinstance(size, int) else sizes.size(_renamed(size, symbols))

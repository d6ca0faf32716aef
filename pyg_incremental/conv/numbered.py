"""Linear layers of one shape, of which each row has the one with its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.conv.linear import linear
from pyg_incremental.program.steps import NotIncremental, Value

FEW = 8
"""Rows up to which each has its matrix looked up, which compiled code can do too. Of more of them
the matrices would be as many times as large as all rows, so each number is a product of its own."""
SOME = 64
"""Numbers that are looked through one by one: for so few that is done before `unique` has begun."""


class Numbered:
    """Such layers, as parts of the map of some call.

    Args:
        call: The call.
        layers: The layers in order of their numbers, for each of the inputs that are added up.
        parts: What the inputs are called.

    Attributes:
        tables: What `__call__` is given behind the inputs.

    Raises:
        NotIncremental: If they are no linear layers, or only some have a bias.
    """

    def __init__(
        self, call: ConvCall, layers: Sequence[Sequence[nn.Module]], parts: Sequence[str]
    ) -> None:
        self._layers = [[linear(layer) for layer in some] for some in layers]
        self._count, tables = len(layers), list[Value]()
        self._has_bias: list[bool] = []
        for some, part in zip(layers, parts, strict=True):
            biased = {layer._parameters.get("bias") is not None for layer in some}
            if len(biased) > 1:
                raise NotIncremental("some of its layers have a bias, and others have none")
            self._has_bias += biased
            tables.append(call.map(f"{part}_weights", _stacked(some, "weight")))
            if True in biased:
                tables.append(call.map(f"{part}_biases", _stacked(some, "bias")))
        self.tables = tuple(tables)

    def __call__(self, number: Tensor, *given: Tensor) -> Tensor:
        """The sum of the products, `[k, out]`.

        Args:
            number: Which layer each row has, int64 `[k]`.
            given: The rows `[k, in]` of each input, and the contents of `tables`.
        """
        rows, tables = given[: self._count], given[self._count :]
        if len(number) <= FEW:
            return self._looked_up(number, rows, tables)
        found = {*number.tolist()} if len(number) <= SOME else number.unique().tolist()
        if len(found) == 1:
            return self._with(next(iter(found)), rows)
        made: Tensor | None = None
        for n in found:
            at = (number == n).nonzero().view(-1)
            some = self._with(n, tuple(r[at] for r in rows))
            made = some.new_empty(len(number), some.shape[1]) if made is None else made
            made[at] = some
        assert made is not None
        return made

    def _with(self, number: int, rows: Sequence[Tensor]) -> Tensor:
        first, *more = (every[number](r) for every, r in zip(self._layers, rows, strict=True))
        for one in more:
            first = first + one
        return first

    def _looked_up(
        self, number: Tensor, rows: Sequence[Tensor], tables: Sequence[Tensor]
    ) -> Tensor:
        """The same with the matrices of all rows beside each other."""
        left, total = iter(tables), None
        for some, has_bias in zip(rows, self._has_bias, strict=True):
            made = torch.bmm(some.unsqueeze(1), next(left)[number]).squeeze(1)
            made = made + next(left)[number] if has_bias else made
            total = made if total is None else total + made
        assert total is not None
        return total


def _stacked(layers: Sequence[nn.Module], name: str) -> Callable[[], Tensor]:
    """A parameter of all layers, `[count, ...]`; of weights the transposes."""
    return lambda: torch.stack([layer.get_parameter(name).t() for layer in layers]).detach()


def bucket(rows: Tensor, count: int) -> Tensor:
    """Numbers of things `[k]` or `[k, 1]` as integers from 0 to `count - 1`, int64 `[k]`.

    More count like the last one. That they lie in this range tells compiled code that it may look
    up what has such a number.
    """
    bounds = torch.arange(1, count, dtype=rows.dtype, device=rows.device)
    return torch.bucketize(rows.view(-1), bounds, right=True)

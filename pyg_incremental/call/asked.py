"""Ids of nodes whose rows a model is asked for, as pairs of nodes that are watched.

`idx` `[k]`, `src` and `dst`, or pairs `[k, 2]` are all one thing: an edge for each row that is
asked for, along which nothing is sent. So they are taken as such, `[2, k]`, and handed to the model
in the form in which it was called. A delta names them like an `edge_label_index` (`pairs_add`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

IdsForm = Literal["one", "two", "rows", "columns"]
IDS = "ids"
"""How the name of pairs ends that stand for ids."""


@dataclass(frozen=True)
class Asked:
    """Arguments with ids.

    Attributes:
        names: The arguments.
        form: `'one'` and `'two'` of `[k]`; or one with pairs in its `'rows'`, `[2, k]`, or
            `'columns'`, `[k, 2]`.
    """

    names: tuple[str, ...]
    form: IdsForm

    @property
    def name(self) -> str:
        """The name of the pairs that stand for them."""
        return f"{'+'.join(self.names)}/{IDS}"

    @property
    def key(self) -> str:
        """How a delta names them."""
        return ", ".join(self.names)

    def pairs(self, given: Mapping[str, Any]) -> Tensor:
        """The pairs that arguments are, integers `[2, k]`."""
        first: Tensor = given[self.names[0]]
        if self.form == "one":
            return torch.stack([first, first])
        if self.form == "two":
            return torch.stack([first, given[self.names[1]]])
        return first if self.form == "rows" else first.t()

    def handed(self, pairs: Tensor) -> dict[str, Tensor]:
        """The arguments that pairs, integers `[2, k]`, are."""
        if self.form in ("one", "two"):
            return {name: pairs[i] for i, name in enumerate(self.names)}
        return {self.names[0]: pairs if self.form == "rows" else pairs.t()}


def grouped(ids: Sequence[str], tensors: Mapping[str, Any]) -> list[Asked]:
    """Which arguments with ids are taken together: two of as many ids are both ends of pairs.

    Left out are those that are no pairs: three of one length, or of another shape, such as `[k, m]`
    candidates for each of `[k]`.

    Args:
        ids: Their names.
        tensors: The tensors of the call by name.
    """
    found: list[Asked] = []
    plain: dict[int, list[str]] = {}
    beside: set[int] = set()
    for name in ids:
        shape = tuple(tensors[name].shape)
        if len(shape) == 1:
            plain.setdefault(shape[0], []).append(name)
        elif len(shape) == 2 and (shape[0] == 2) != (shape[1] == 2):
            found.append(Asked((name,), "rows" if shape[0] == 2 else "columns"))
        else:
            beside.add(shape[0])
    for count, names in plain.items():
        if len(names) <= 2 and count not in beside:
            found.append(Asked(tuple(names), "one" if len(names) == 1 else "two"))
    return found

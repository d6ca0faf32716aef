"""Ids of nodes whose rows a model is asked for, as pairs of nodes that are watched.

`idx` `[k]`, `src` and `dst`, or pairs `[k, 2]` are all one thing: an edge for each row that is
asked for, along which nothing is sent. So they are taken as such, `[2, k]`, and handed to the model
in the form in which it was called. A delta names them like an `edge_label_index` (`pairs_add`).

More ids for each row, as three of a triple or `[k, m]` candidates, are data of that edge: it starts
and ends at the first of them, and the model picks rows by all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

IdsForm = Literal["one", "two", "rows", "columns", "table", "turned"]
IDS = "ids"
"""How the name of pairs ends that stand for ids."""


@dataclass(frozen=True)
class Asked:
    """Arguments with ids.

    Attributes:
        names: The arguments.
        form: `'one'` and `'two'` of `[k]`; or one with pairs in its `'rows'`, `[2, k]`, or
            `'columns'`, `[k, 2]`. A `'table'` of any number of `[k]` and `[k, m]`, which are data
            of the edges; or one that is `'turned'`, `[m, k]`.
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
        if self.is_table:
            first = self.rows(first).reshape(first.shape[self.form == "turned"], -1)[:, 0]
        if self.form == "one" or self.is_table:
            return torch.stack([first, first])
        if self.form == "two":
            return torch.stack([first, given[self.names[1]]])
        return first if self.form == "rows" else first.t()

    @property
    def is_table(self) -> bool:
        """Whether the ids are data of the edges."""
        return self.form in ("table", "turned")

    def rows(self, ids: Tensor) -> Tensor:
        """Ids as data of the edges, integers `[k, ...]`, or the other way round."""
        return ids.t() if self.form == "turned" else ids

    def handed(self, pairs: Tensor, given: Mapping[str, Any]) -> dict[str, Tensor]:
        """The arguments that pairs, integers `[2, k]`, are, or the data of theirs in `given`."""
        if self.is_table:
            return {name: self.rows(given[name]) for name in self.names}
        if self.form in ("one", "two"):
            return {name: pairs[i] for i, name in enumerate(self.names)}
        return {self.names[0]: pairs if self.form == "rows" else pairs.t()}


def grouped(
    ids: Sequence[str],
    tensors: Mapping[str, Any],
    shifted: Collection[str] = (),
    turned: Collection[str] = (),
) -> list[Asked]:
    """Which arguments with ids are taken together: two of as many ids are both ends of pairs.

    What is no pairs is a table, with all that has as many rows.

    Args:
        ids: Their names.
        tensors: The tensors of the call by name.
        shifted: Those that are not the ids themselves, but that something is added to.
        turned: Those with a column for each row that is asked for.
    """
    found: list[Asked] = []
    rows: dict[int, list[str]] = {}
    for name in ids:
        shape = tuple(tensors[name].shape)
        if len(shape) == 2 and (shape[0] == 2) != (shape[1] == 2):
            found.append(Asked((name,), "rows" if shape[0] == 2 else "columns"))
        elif name in turned:
            found.append(Asked((name,), "turned"))
        else:
            rows.setdefault(shape[0], []).append(name)
    for names in rows.values():
        is_table = len(names) > 2 or any(tensors[n].dim() > 1 or n in shifted for n in names)
        form: IdsForm = "table" if is_table else "one" if len(names) == 1 else "two"
        found.append(Asked(tuple(names), form))
    return found

"""What users say of the arguments of a model: which of them are nodes, edges, ids, or neither."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from pyg_incremental.errors import UnsupportedModelError


@dataclass(frozen=True)
class Role:
    """What an argument of a model is; written as text as well, `'ids'` or `'ids(user, item)'`.

    Attributes:
        what: `'node'`: one row for each node. `'edge'`: one row for each edge. `'ids'`: ids of
            nodes whose rows are asked for, `[k]`, `[2, k]` or `[k, 2]`. `'graph'`: an edge_index.
            `'constant'`: none of these; it stays as it was in the first call. `'value'`: the same,
            but deltas may give another one (`values=`).
        of: The kinds of nodes of `'node'` and `'ids'` (one, or those of both columns), and of both
            ends of a `'graph'`, or the argument with the graph of `'edge'`. Empty where there is
            only one.

    Use it in the place of a hint, `users: Annotated[Tensor, Role('ids', ('user',))]`, or give it to
    `to_incremental(model, roles={'users': 'ids(user)'})`.

    Raises:
        UnsupportedModelError: If there is no such role.
    """

    what: str
    of: tuple[str, ...] = ()

    known: ClassVar[tuple[str, ...]] = ("node", "edge", "ids", "graph", "constant", "value")

    def __post_init__(self) -> None:
        if self.what not in self.known:
            raise UnsupportedModelError(
                f"roles: expected one of {list(self.known)} (got {self.what!r}); write such as "
                "'node', 'edge', 'ids' or 'ids(user, item)'"
            )

    def __str__(self) -> str:
        return f"{self.what}({', '.join(self.of)})" if self.of else self.what

    @classmethod
    def read(cls, value: Any) -> Role:
        """A role, or the text of one.

        Raises:
            UnsupportedModelError: If it is neither.
        """
        if isinstance(value, Role):
            return value
        found = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", value or "") if (
            isinstance(value, str)
        ) else None  # fmt: skip
        if found is None:
            raise UnsupportedModelError(
                f"roles: expected a role such as 'node' or 'ids(user)' (got {value!r}); give the "
                f"text, or a Role of {list(cls.known)}"
            )
        parts = [part.strip() for part in (found[2] or "").split(",")]
        return cls(found[1], tuple(part for part in parts if part))


def said_of(model: nn.Module, roles: Mapping[str, Any] | None) -> dict[str, Role]:
    """The roles that hints on `forward` name, and those that are given, which go before.

    Args:
        model: The model.
        roles: Roles by the names of arguments.

    Raises:
        UnsupportedModelError: If one of them is no role.
    """
    try:
        hints = typing.get_type_hints(model.forward, include_extras=True)
    except Exception:  # hints may be anything, and name what is not there
        hints = {}
    hinted = {
        name: role
        for name, hint in hints.items()
        for role in getattr(hint, "__metadata__", ())
        if isinstance(role, Role)
    }
    return hinted | {name: Role.read(role) for name, role in (roles or {}).items()}

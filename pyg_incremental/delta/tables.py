"""Edges in a table with named columns, such as a data frame."""

from __future__ import annotations

from typing import Any

from pyg_incremental.errors import InvalidDeltaError

_COLUMNS = (("src", "dst"), ("source", "target"), ("from", "to"), ("u", "v"))


def is_table(value: object) -> bool:
    """Whether a value has named columns, as a data frame has."""
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def ends_of_table(table: Any, name: str) -> tuple[str, str]:
    """The columns of sources and of targets of a table.

    Raises:
        InvalidDeltaError: If no columns have such names.
    """
    columns = list(table.columns)
    for ends in _COLUMNS:
        if ends[0] in columns and ends[1] in columns:
            return ends
    raise InvalidDeltaError(
        f"{name}: expected a table with columns "
        f"{' or '.join(f'{s!r} and {t!r}' for s, t in _COLUMNS)} (got {columns}); rename them, or "
        "pass torch.tensor([sources, targets])"
    )


def has_more_columns(value: Any, name: str) -> bool:
    """Whether a value is a table with columns besides those of its ends."""
    return is_table(value) and len(value.columns) > len(ends_of_table(value, name))


def refuse_more_columns(value: Any, name: str) -> None:
    """See that a table has no columns but those of its ends, where nobody would read them.

    Raises:
        InvalidDeltaError: If it has.
    """
    if is_table(value):
        ends = ends_of_table(value, name)
        more = [c for c in value.columns if c not in ends]
        if more:
            raise InvalidDeltaError(
                f"{name}: what the columns {more} hold is only known to the model; give data of "
                "edges by name, as in edge_weight_add=table['edge_weight'] or "
                f"edge_data_del={{'edge_weight': ...}}, and edges as table[{list(ends)}]"
            )

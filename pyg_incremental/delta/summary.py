"""The fields of a delta in a few words: how many edges, nodes or rows they name."""

from collections.abc import Mapping
from typing import Any

_EDGES = ("edge_index_add", "edge_index_del", "pairs_add", "pairs_del")


def summary(field: str, value: Any) -> str:
    """A field and how much it holds; never an error, whatever a user has put there.

    Args:
        field: The name of the field.
        value: What it holds.
    """
    if isinstance(value, (bool, str)):
        return f"{field}={value!r}"
    try:
        return f"{field}={_counted(field, value)}"
    except Exception:  # it is no delta that anybody could apply, and that is said elsewhere
        return f"{field}=..."


def _counted(field: str, value: Any) -> str:
    if isinstance(value, Mapping):
        by_key = (f"{key!r}: {_counted(field, of)}" for key, of in value.items())
        return f"{{{', '.join(by_key)}}}"
    if field in ("x_changes", "edge_changes") and isinstance(value, tuple):
        return _counted("nodes_del" if field == "x_changes" else _EDGES[0], value[0])
    if field in _EDGES:
        return _words(_edges(value), "edge")
    if field in ("nodes_del", "x_add"):
        flat = field == "x_add" and getattr(value, "ndim", 2) == 1
        return _words(1 if flat or isinstance(value, int) else len(value), "node")
    return _words(len(value), "row")


def _edges(value: Any) -> int:
    """The number of edges that are given as `[2, k]`, or as rows of a table."""
    if hasattr(value, "columns"):
        return len(value)
    shape = getattr(value, "shape", None)
    return int(shape[1]) if shape is not None else len(value[0])


def _words(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"

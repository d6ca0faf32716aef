"""What a user hands in, read: edges, ids and rows in any form that people have them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData

from pyg_incremental.delta.tables import ends_of_table, is_table
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.kernels.adjacency import out_of_range

Ids = NDArray[np.int64]
ADVICE = "add nodes with x_add"
EDGE_DATA = {
    "edge_weight_add": "edge_weight", "edge_attr_add": "edge_attr", "edge_ids_add": "edge_ids",
}  # fmt: skip


def refuse_data(value: object, name: str) -> None:
    """A whole graph is not a delta."""
    if type(value).__module__.partition(".")[0] == "networkx":
        raise InvalidDeltaError(
            f"{name} got a {type(value).__name__} of networkx; a delta has ids: pass "
            "torch.tensor(list(graph.edges)).t(), where nodes are called by their numbers"
        )
    if isinstance(value, (Data, HeteroData)):
        raise InvalidDeltaError(
            f"{name} got a {type(value).__name__} object, which is a whole graph; a delta names "
            "only what changes: pass edge_index_add=..., edge_index_del=... or x_changes=(ids, "
            "rows), or call the model on the new graph"
        )


def as_rows(value: Any, name: str) -> Any:
    """A tensor as it is; anything else as an array, which is later converted to the right dtype."""
    if isinstance(value, Tensor):
        return value.detach()
    refuse_data(value, name)
    try:
        rows = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise _not_numbers(value, name, error) from error
    return rows if rows.flags.writeable else rows.copy()  # torch takes no others, as of pandas


def as_tensor(value: Any, name: str) -> Tensor:
    """A tensor, from a tensor, an array or nested lists."""
    rows = as_rows(value, name)
    try:
        return torch.as_tensor(rows)
    except (TypeError, ValueError) as error:
        raise _not_numbers(value, name, error) from error


def _not_numbers(value: Any, name: str, error: Exception) -> InvalidDeltaError:
    if isinstance(value, Mapping):
        what, cure = f"a mapping with the keys {[*value][:3]}", "give its parts"
    elif isinstance(value, Iterable) and not isinstance(value, (Sized, str)):
        what, cure = f"a {type(value).__name__}, which can be read once", f"pass list({name})"
    elif isinstance(value, (set, frozenset)):
        what, cure = f"a {type(value).__name__}, which has no order", "pass a list"
    else:
        what, cure = _held_by(value, str(error))
    return InvalidDeltaError(
        f"{name}: expected a tensor, an array or a list of numbers (got {what}); {cure}"
    )


def _held_by(value: Any, error: str) -> tuple[str, str]:
    """What is in a value of which no tensor can be made, and what to do about it."""
    kind, every = type(value).__name__, [*_flat(value)]
    words = next((v for v in every if isinstance(v, str)), None)
    if words is not None:
        return f"{kind} with the text {words!r}", (
            "numbers as text are read by int() or float(); names of nodes have to be given in the "
            "first call, as in inc(x, edge_index, node_ids=[...])"
        )
    if any(v is None for v in every):
        return f"{kind} with None in it", "leave such entries out, or give them a number"
    if "inhomogeneous" in error:
        more = ", and no ids beside new rows, which get the next numbers"
        return f"{kind} of rows of different lengths", f"give rows of one length{more}"
    strange = next((type(v).__name__ for v in every if not isinstance(v, (int, float))), kind)
    if strange == "GraphDelta":
        return f"{kind} of GraphDelta", "apply one after the other, or their sum, d1 + d2"
    return f"{kind} of {strange}" if strange != kind else kind, "pass numbers, as a tensor"


def _flat(value: Any) -> Iterator[Any]:
    """What is in nested lists and arrays."""
    table = getattr(value, "to_numpy", None)
    value = table() if callable(table) else value
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def added_data(value: Any) -> Mapping[str, Any]:
    """The entries of `edge_data_add`."""
    return _by_name(value, "edge_data_add")


def deleted_data(value: Any) -> Mapping[str, Any]:
    """The entries of `edge_data_del`."""
    return _by_name(value, "edge_data_del")


def _by_name(value: Any, field: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidDeltaError(
            f"{field}: expected a mapping from the name of an edge input to its rows, as in "
            f"{{'edge_type': [k]}} (got {_describe(value)})"
        )
    return value


def _integers(value: Any, name: str, empty: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    if (
        type(value) is Tensor
        and value.dtype is torch.int64
        and value.dim() == len(empty)
        and value.is_cpu
        and value.layout is torch.strided
    ):
        return value.contiguous().numpy()
    t = as_tensor(value, name)
    if isinstance(t, EdgeIndex):
        t = t.as_tensor()
    if t.numel() == 0 and (t.dim() == 1 or t.shape == empty):
        return np.empty(empty, np.int64)
    if t.is_meta or t.layout is not torch.strided:
        raise InvalidDeltaError(
            f"{name}: expected a dense tensor on device 'cpu' (got device '{t.device}', layout "
            f"{t.layout}); pass ids, int64: of a sparse tensor .coalesce().indices()"
        )
    if t.dtype.is_floating_point or t.dtype.is_complex or t.dtype is torch.bool:
        cure = "ids are int64: pass .long() of them, once no NaN is among them"
        if t.dtype is torch.bool:
            cure = "ids are int64: of a mask pass mask.nonzero().flatten()"
        raise InvalidDeltaError(f"{name}: expected integers (got {t.dtype}); {cure}")
    return t.cpu().contiguous().to(torch.int64).numpy()


def as_edges(value: Any, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Edges as int64 `[2, k]`, from a tensor, an array, two lists, or a table with named columns.

    Raises:
        InvalidDeltaError: If it is something else, or does not say which ids are the sources.
    """
    if isinstance(value, Tensor):
        pass
    elif is_table(value):
        ends = ends_of_table(value, name)
        value = np.stack([np.asarray(value[end]) for end in ends])
    elif is_square(value):
        edges = np.asarray(value)
        if edges[0, 1] != edges[1, 0]:
            raise _ambiguous(value, name)
    edges = _integers(value, name, (2, 0))
    if edges.ndim != 2 or edges.shape[0] != 2:
        turned = edges.ndim == 2 and edges.shape[1] == 2
        hint = "pass its transpose" if turned else "write torch.tensor([sources, targets])"
        raise InvalidDeltaError(
            f"{name}: expected shape [2, num_edges], sources above targets (got "
            f"{list(edges.shape)}); {hint}"
        )
    return edges


def is_square(value: object) -> bool:
    """Whether a value is two lists of two ids, which may be two pairs, or sources above targets."""
    return isinstance(value, (list, tuple)) and np.shape(_plain(value)) == (2, 2)


def square_as_edges(value: Any, name: str, could_be: Callable[[Ids], bool]) -> Any:
    """Two lists of two ids as sources above targets, which three ids in each would be.

    Args:
        value: The lists.
        name: What messages call them.
        could_be: Whether edges, int64 `[2, 2]`, could be meant.

    Raises:
        InvalidDeltaError: If they could as well be two pairs.
    """
    edges = np.asarray(value)
    if edges.dtype.kind == "i" and edges[0, 1] != edges[1, 0] and could_be(edges.T):
        raise _ambiguous(value, name)
    return edges


def _ambiguous(value: Any, name: str) -> InvalidDeltaError:
    (a, b), (c, d) = value
    return InvalidDeltaError(
        f"{name}: {value} may be the edges {a} -> {c} and {b} -> {d}, or {a} -> {b} and {c} -> "
        f"{d}; write torch.tensor({value}) for the first, or torch.tensor({value}).t()"
    )


def _plain(value: Any) -> Any:
    """Nested lists as they are; nothing where their shape cannot be told."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return None


def as_ids(value: Any, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Node ids as int64 `[k]`."""
    ids = _integers(value, name, (0,))
    if ids.ndim == 0:
        ids = ids.reshape(1)
    if ids.ndim != 1:
        raise InvalidDeltaError(
            f"{name}: expected a list of node ids, shape [k] (got {list(ids.shape)})"
        )
    return ids


def x_change_parts(
    value: Any, field: str = "x_changes"
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Any]:
    """Ids and rows of `x_changes`, or of the part of it that is called `field`."""
    refuse_data(value, field)
    if isinstance(value, Mapping) or not isinstance(value, (tuple, list)) or len(value) != 2:
        raise InvalidDeltaError(
            f"{field}: expected a pair (ids [c], rows [c, in_channels]) (got "
            f"{_describe(value)}); write x_changes=(ids, rows), where all rows are new "
            "(torch.arange(num_nodes), x)"
        )
    return as_ids(value[0], f"{field}[0]"), value[1]


def edge_change_parts(value: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Mapping[str, Any]]:
    """Edges and data of `edge_changes`."""
    refuse_data(value, "edge_changes")
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[1], Mapping):
        raise InvalidDeltaError(
            "edge_changes: expected a pair (edge_index [2, r], {'edge_weight': [r], 'edge_attr': "
            f"[r, edge_dim]}}) (got {_describe(value)}); write edge_changes=(edge_index, "
            "{'edge_weight': values})"
        )
    return as_edges(value[0], "edge_changes[0]"), value[1]


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} items"
    return type(value).__name__


# Small algebra on ids and pairs --------------------------------------------------------------


def pair_keys(edges: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One int64 per edge, equal for equal pairs."""
    keys: np.ndarray[Any, np.dtype[np.int64]] = (edges[0] << 32) | edges[1]
    return keys


def last_of_each(keys: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Positions of the last occurrence of every key, ascending."""
    if keys.size < 2 or np.all(keys[1:] > keys[:-1]):
        return np.arange(keys.size)
    _, at = np.unique(keys[::-1], return_index=True)
    return np.sort(keys.size - 1 - at)


def mirrored(edges: Ids, in_turn: bool = False) -> tuple[Tensor, Ids]:
    """Edges in both directions, and which of the listed ones each of them is, int64 `[n]`.

    Args:
        edges: Those that are listed, `[2, k]`; loops have one direction.
        in_turn: Whether each is followed by its other direction at once. So what is listed last
            is the last in either direction. By default other directions come behind all.
    """
    again = np.flatnonzero(edges[0] != edges[1])
    listed = np.concatenate([np.arange(edges.shape[1]), again])
    both = np.concatenate([edges, edges[::-1, again]], axis=1)
    if in_turn:
        order = np.argsort(listed, kind="stable")
        listed, both = listed[order], both[:, order]
    return torch.from_numpy(both), listed


def repeated(rows: Any, listed: Ids, name: str) -> Any:
    """The rows, `[n, ...]`, of edges in both directions; `mirrored` has said which these are.

    Args:
        rows: A row for each edge that is listed, `[k, ...]` of any dtype.
        listed: Which of them each edge is, int64 `[n]`.
        name: What errors call them.

    Raises:
        InvalidDeltaError: If there are not as many rows as listed edges.
    """
    count = np.unique(listed).size
    if not rows.ndim or rows.shape[0] != count:
        raise InvalidDeltaError(
            f"{name}: expected one row for each of the {count} listed edges (got shape "
            f"{list(rows.shape)})"
        )
    return rows[torch.from_numpy(listed) if isinstance(rows, Tensor) else listed]


def without_common(
    a: np.ndarray[Any, np.dtype[np.int64]], b: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Masks that leave out, pair by pair, what occurs on both sides."""

    def rank(keys: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        order = np.argsort(keys, kind="stable")
        grouped = keys[order]
        first = np.searchsorted(grouped, grouped, side="left")
        out = np.empty(keys.size, np.int64)
        out[order] = np.arange(keys.size) - first
        return out

    left = np.stack([a, rank(a)], axis=1)
    right = np.stack([b, rank(b)], axis=1)
    common = {tuple(k) for k in left.tolist()} & {tuple(k) for k in right.tolist()}
    return (
        np.array([tuple(k) not in common for k in left.tolist()], bool),
        np.array([tuple(k) not in common for k in right.tolist()], bool),
    )


# Held against what is there ----------------------------------------------------------------------


def checked_ids(value: Any, name: str, limit: int, advice: str = ADVICE) -> Ids:
    """Node ids, int64 `[k]`.

    Raises:
        InvalidDeltaError: If they are no integers, or not in `[0, limit)`.
    """
    ids = as_ids(value, name)
    check_ids(ids, name, limit, advice)
    return ids


def chosen_ids(value: Any, name: str, limit: int, advice: str = ADVICE) -> Ids:
    """Nodes that somebody asks for, int64 `[k]`: given as ids, or as a mask, bool `[limit]`.

    Everything in the package that is asked for some nodes reads them here.

    Raises:
        InvalidDeltaError: If they are neither, or an id is not in `[0, limit)`.
    """
    if type(value) is not Tensor or value.dtype is not torch.int64:
        value = as_tensor(value, name)
        if value.dtype is torch.bool:
            if value.shape != (limit,):
                raise InvalidDeltaError(
                    f"{name}: a mask of nodes has an entry for each of them, shape [{limit}] (got "
                    f"{list(value.shape)}); or pass ids, int64 [k]"
                )
            value = value.nonzero().flatten()
    return checked_ids(value, name, limit, advice)


def check_ids(ids: Ids, name: str, limit: int, advice: str = ADVICE) -> None:
    """See that node ids, int64 `[k]`, lie in `[0, limit)`.

    Raises:
        InvalidDeltaError: If one does not.
    """
    wrong = strangers(ids, limit)
    if wrong.size:
        at = int(wrong[0])
        message = stranger(int(ids[at]), at, name, limit, advice)
        raise InvalidDeltaError(message, what=field_of(name), positions=wrong.tolist())


def strangers(ids: Ids, limit: int) -> Ids:
    """The places of ids, int64 `[k]`, that are not in `[0, limit)`, int64 `[w]`."""
    if not ids.size or out_of_range(ids, limit) < 0:
        return np.empty(0, np.int64)
    return np.flatnonzero((ids < 0) | (ids >= limit))


def stranger(node: int, at: int, name: str, limit: int, advice: str) -> str:
    """What is wrong with an id at some position that is not in `[0, limit)`."""
    more = ", those of x_add included" if node >= limit and "x_add" in advice else ""
    return (
        f"{name}: node id {node} at position {at} is not in [0, {limit}); the graph has "
        f"{limit} nodes{more}: {advice}"
    )


def field_of(name: str) -> str:
    """The field that a message is about, such as `x_changes` where it says `x_changes[0]`."""
    return name.removesuffix("[0]").removesuffix("[1]")


def rows_like(value: Any, name: str, like: Tensor) -> Tensor:
    """A tensor of any shape, of the dtype and device of `like`.

    Whether it comes as a tensor, an array or a list, numbers of another dtype of the same kind are
    rounded, such as float64 to float32, and those of another kind are refused, such as floats in
    the place of integers. A tensor has to be on the right device.

    Raises:
        InvalidDeltaError: If it does not fit.
    """
    t = as_tensor(value, name)
    if not isinstance(value, Tensor):
        return _of_dtype(t.to(like.device), name, like.dtype)
    if t.is_sparse or t.layout is not torch.strided:
        raise InvalidDeltaError(
            f"{name}: expected a dense tensor (got layout {t.layout}); use .to_dense()"
        )
    if t.device != like.device:
        raise InvalidDeltaError(
            f"{name}: expected device '{like.device}', that of the first pass (got "
            f"'{t.device}'); use .to('{like.device}')"
        )
    return _of_dtype(t, name, like.dtype)


def _of_dtype(t: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """Numbers of the dtype of the first pass, rounded where that is all it takes."""
    if t.dtype == dtype or not t.numel():
        return t.to(dtype)
    if not torch.can_cast(t.dtype, dtype):
        raise InvalidDeltaError(
            f"{name}: expected dtype {dtype}, that of the first pass (got {t.dtype}, which would "
            f"lose more than digits); use .to({dtype}) if that is meant"
        )
    made = t.to(dtype)
    floats = dtype.is_floating_point or dtype.is_complex
    lost = made.isinf() & ~t.isinf() if floats else made.to(t.dtype) != t
    if lost.any():
        first = t[lost].flatten()[0].item()
        raise InvalidDeltaError(
            f"{name}: {first} does not fit into {dtype}, that of the first pass"
        )
    return made

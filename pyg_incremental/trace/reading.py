"""What a model does with integers that it is given: whether they pick rows of nodes.

A copy of the model runs once on a probe, on tensors with values, and it is noted of each of them
from which arguments it comes. So ids are known by what is done with them, and not by a name or a
length.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.full_pass import plainly
from pyg_incremental.call.roles import Roles, is_label
from pyg_incremental.trace.copies import ModelCopy
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.nested import leaves
from pyg_incremental.trace.probe import probe_of

_SAME = frozenset(
    [
        "view", "reshape", "flatten", "squeeze", "unsqueeze", "select", "unbind", "t", "get T",
        "transpose", "permute", "contiguous", "clone", "detach", "to", "long", "int", "add", "sub",
        "cat", "stack", "chunk", "split", "expand", "repeat", "cpu", "get data", "view_as",
        "expand_as", "tensor_split", "narrow", "hstack", "vstack",
    ]
)  # fmt: skip
"""Operations whose results still are the integers that went in."""
_PICKS = {"index_select": (0, 2), "gather": (0, 2), "embedding": (1, 0), "torch.embedding": (0, 1)}
"""Where rows and ids stand in the arguments of functions that pick rows."""
_SORTS = ("scatter", "index_add", "index_reduce", "index_copy", "bincount", "one_hot")


@dataclass(frozen=True)
class Reads:
    """What a model did with arguments that are integers.

    Attributes:
        picked: Of which kinds of nodes each of them has picked rows that come from node inputs or
            from graphs; graphs also those that are learned.
        sorted: Those by which rows were sorted into others, as by `batch`.
        shifted: Those that something was added to before they picked rows: `items + num_users`.
    """

    picked: dict[str, set[str]] = field(default_factory=dict)
    sorted: set[str] = field(default_factory=set)
    shifted: set[str] = field(default_factory=set)


def reads_of(site: BoundCall, roles: Roles, on_probe: bool = True) -> Reads | None:
    """What a copy of the model does with integers; None if it does not run.

    Args:
        site: The call; its model is not touched.
        roles: What its tensors are, or may be.
        on_probe: Whether it runs on a small graph, and not on that of the call.
    """
    try:
        copied = ModelCopy(site.model).model
        given, counts = list(site.tensors.values()), roles.num_nodes
        if on_probe:
            probe = probe_of(site, roles)
            given, counts = probe.arguments(site, roles), probe.num_nodes
    except Exception:  # whatever a user's module holds
        return None
    given = [t.clone() if isinstance(t, Tensor) else t for t in given]
    # A table that is learned has as many rows as the call has nodes, whatever the probe has.
    kinds = {c[kind]: kind for c in (roles.num_nodes, counts) for kind in roles.kinds}
    graphs = {r.graph for r in roles.given if not is_label(r.graph)}
    watch = _Watch(kinds, dict(zip(site.names, given, strict=True)), set(roles.nodes), graphs)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            on_copy = site.on(copied)
            on_copy.returned = []  # that of a reading that may be none
            with plainly(copied), watch:
                on_copy(*given)
        except Exception:  # a user's model may raise anything
            return None
    return watch.reads


class _Watch(TorchFunctionMode):
    """Follows tensors from the arguments on.

    Args:
        counts: The kinds of nodes by their numbers.
        given: The arguments by name.
        rows: The names of node inputs.
        graphs: Those of graphs.
    """

    def __init__(
        self, counts: dict[int, str], given: Mapping[str, Any], rows: set[str], graphs: set[str]
    ) -> None:
        super().__init__()
        self.reads, self._graphs = Reads(), graphs
        self._counts = counts
        self._alive = [t for t in given.values() if isinstance(t, Tensor)]
        ints = {n: t for n, t in given.items() if isinstance(t, Tensor) and _is_int(t)}
        self._ids = {id(t): frozenset([n]) for n, t in ints.items()}
        self._made = {
            id(t)
            for n, t in given.items()
            if isinstance(t, Tensor) and (n in rows or n not in ints)
        }
        self._shifted: set[int] = set()
        self._busy = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A function of torch, or a method or property of a tensor."""
        kwargs = kwargs or {}
        unpacks = func is Tensor.__iter__
        func = Tensor.unbind if unpacks else func
        result = func(*args, **kwargs)
        if not self._busy:
            self._busy = True
            try:
                self._note(name_of(func).rstrip("_"), args, kwargs, result)
            finally:
                self._busy = False
        return iter(result) if unpacks else result

    def _note(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        given = [v for v in leaves((args, kwargs)) if isinstance(v, Tensor)]
        found = [v for v in leaves(result) if isinstance(v, Tensor)]
        self._alive += found
        if any(id(v) in self._made or id(v) in self._ids for v in given):
            self._made.update(id(v) for v in found if not _is_int(v))
        rows, ids = self._picking(name, args, kwargs)
        for index in ids:
            self._note_picked(rows, index)
        if name.startswith(_SORTS) or "__setitem" in name:
            for v in given:
                self.reads.sorted.update(self._ids.get(id(v), ()))
        kept = name in _SAME or (name == "__getitem" and not ids)
        from_ids = frozenset().union(*(self._ids.get(id(v), frozenset()) for v in given))
        if name in ("add", "sub") or any(id(v) in self._shifted for v in given):
            self._shifted.update(id(v) for v in found if _is_int(v))
        if kept and from_ids:
            self._ids.update((id(v), from_ids) for v in found if _is_int(v))

    def _picking(self, name: str, args: Any, kwargs: Any) -> tuple[Any, list[Tensor]]:
        """The rows that are picked from, and by which integers."""
        if name == "__getitem":
            at = args[1]
            first = at[0] if isinstance(at, tuple) and at else at
            picks = isinstance(first, Tensor) and id(first) in self._ids
            return args[0], [first] if picks else []
        if name not in _PICKS:
            return None, []
        keys = {"index_select": ("input", "index"), "gather": ("input", "index")}.get(
            name, ("weight", "input") if name == "embedding" else ("weight", "indices")
        )
        rows, ids = (
            args[at] if at < len(args) else kwargs.get(key)
            for at, key in zip(_PICKS[name], keys, strict=True)
        )
        return rows, [ids] if isinstance(ids, Tensor) and id(ids) in self._ids else []

    def _note_picked(self, rows: Any, ids: Tensor) -> None:
        kind = self._counts.get(rows.shape[0]) if isinstance(rows, Tensor) and rows.dim() else None
        if kind is not None:
            by = self._ids[id(ids)]
            self.reads.shifted.update(by if id(ids) in self._shifted else ())
            for name in by if id(rows) in self._made else by & self._graphs:
                self.reads.picked.setdefault(name, set()).add(kind)


def _is_int(value: Tensor) -> bool:
    return value.dtype in (torch.int64, torch.int32, torch.int16, torch.uint8)

"""What is wrong with a call on which the model itself fails.

Nothing is guessed: an argument is named if the model fails on a small call of the same kind, and
runs on that call with this argument changed. What remains is the model's own error.
"""

import contextlib
import inspect
import io
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.misgiven import types_taken
from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.trace.probe import probe_of

_NO_FIELD = re.compile(r"'(?:\w*Data|\w*Storage|Batch)'(?: object)? has no attribute '(\w+)'")
_WIDTHS = ("in_channels", "in_features", "edge_dim", "num_features")
_MOST = 48
"""Changes of one argument that are tried at most."""

Changed = Iterator[tuple[str, BoundCall, dict[str, Any]]]
"""What was wrong and what to pass, the call, and its tensors by name."""


def refuse_mistaken(site: BoundCall, roles: Roles, error: Exception) -> None:
    """Say which argument of a call is wrong, if one is.

    Args:
        site: The call.
        roles: What its tensors are.
        error: What the model has raised on it.

    Raises:
        InvalidDeltaError: If an argument is wrong.
    """
    if full_pass.lacks_memory(error):
        return
    with contextlib.redirect_stderr(io.StringIO()):  # a module of torch.fx prints what it raises
        told = _missing(site, error) or _found(site, roles)
    if told:
        raise InvalidDeltaError(f"call of {type(site.model).__name__}: {told}") from error


def _missing(site: BoundCall, error: Exception) -> str:
    """Weights, a field or a type that the model reads, and that are not there."""
    empty = next((name for name, p in site.model.named_parameters() if p.is_meta), None)
    if empty is not None:
        return (
            f"the parameter '{empty}' is on 'meta' and holds no values; load the weights, as by "
            "model.to_empty(device='cpu') and model.load_state_dict(...)"
        )
    found = _NO_FIELD.search(str(error)) if isinstance(error, AttributeError) else None
    for name, held in site.objects.items():
        if found is not None:
            return (
                f"the model reads '{found[1]}' of '{name}', and there is none in a "
                f"{type(held.template).__name__} like this one; pass an object of the class and "
                "with the fields that the model was written for"
            )
    for name, (kind, _) in site.lists.items():
        if isinstance(kind, type) and f"'{kind.__name__}' object has no attribute" in str(error):
            return (
                f"'{name}' is a {kind.__name__} of objects, and the model reads fields of one; "
                f"pass the graph as Batch.from_data_list({name}), or a single object"
            )
    for argument, types in types_taken(site.model).items():
        given = site.packed.get(argument, site.packed.get(f"{argument}_dict"))
        lost = [t for t in types if given is not None and given.get(t) is None]
        if lost and argument in ("x", "edge_index"):
            return (
                f"'{argument}' has nothing for {lost[0]!r}, which the model reads; pass a tensor "
                "for each type, of no rows or edges where there are none"
            )
    return ""


def _found(site: BoundCall, roles: Roles) -> str:
    """What is wrong with the argument that lets the model run if it is changed."""
    try:
        probe = probe_of(site, roles).arguments(site, roles)
    except Exception:  # then it cannot be tried
        return ""
    given = dict(zip(site.names, probe, strict=True))
    if _runs(site, given):
        return ""
    changes = islice(_changes(site, roles, given), _MOST)
    return next((told for told, call, changed in changes if _runs(call, changed)), "")


def _runs(site: BoundCall, given: dict[str, Any]) -> bool:
    try:
        full_pass.run(site, [given[name] for name in site.names], fresh=True)
    except Exception:  # whatever a user's model raises
        return False
    return True


def _changes(site: BoundCall, roles: Roles, given: dict[str, Any]) -> Changed:
    """The call with what is likely wrong changed, the likeliest first."""
    rows = {**dict.fromkeys(roles.nodes, "num_nodes"), **dict.fromkeys(roles.edges, "num_edges")}
    rows = {n: count for n, count in rows.items() if n in given}
    yield from _elsewhere(site, roles, given)
    dtype = _dtype(site.model)
    casts = _casts(rows, given, dtype)
    for told, changed in casts:
        yield told, site, {**given, **changed}
    for name in rows:
        if given[name].dtype.is_floating_point:
            told = f"'{name}' is {given[name].dtype}, but the model takes integers; pass "
            yield f"{told}{_word(name)}.long()", site, {**given, name: given[name].long()}
    starts = [("", given), *((f"{told}; and ", {**given, **c}) for told, c in casts[:1])]
    for told, start in starts:
        for more, changed in _widths(site, rows, start, dtype):
            yield told + more, site, changed
    yield from _not_given(site, roles, given, dtype)
    yield from _lengths(site, roles, given)
    for name, rows_of in given.items():
        plain = isinstance(rows_of, Tensor) and rows_of.layout is torch.strided
        graphs = {r.graph for r in roles.given}
        if plain and name not in graphs and not rows_of.is_floating_point() and rows_of.numel():
            low, high = int(rows_of.min()), int(rows_of.max())
            told = (
                f"'{name}' holds numbers from {low} to {high}, on which the model fails, and not "
                "on zeros; pass numbers from 0 on, below the count that the model was made for"
            )
            yield told, site, {**given, name: torch.zeros_like(rows_of)}
    if site.packed and len(roles.kinds) > 1:
        yield from _homogeneous(site, roles, given)


def _dtype(model: nn.Module) -> torch.dtype | None:
    """The dtype of the parameters, if they have one."""
    found = {p.dtype for p in model.parameters() if p.dtype.is_floating_point}
    return found.pop() if len(found) == 1 else None


def _elsewhere(site: BoundCall, roles: Roles, given: dict[str, Any]) -> Changed:
    """Tensors on another device than the parameters."""
    devices = {p.device for p in site.model.parameters()}
    if len(devices) != 1:
        return
    device = devices.pop()
    told = [n for n, t in given.items() if isinstance(t, Tensor) and t.device != device]
    if not told:
        return
    name = next((n for n in told if n not in {r.graph for r in roles.given}), told[0])
    where = given[name].device
    said = f"'{name}' is on '{where}', but the parameters are on '{device}'; "
    if "meta" in (where.type, device.type):
        said += "'meta' holds no values: pass tensors and a model that have some"
    else:
        said += f"pass {_word(name)}.to('{device}')"
    moved = {n: torch.zeros_like(t, device=device) for n, t in given.items() if n in told}
    yield said, site, {**given, **moved}


def _casts(
    rows: dict[str, str], given: dict[str, Any], dtype: torch.dtype | None
) -> list[tuple[str, dict[str, Tensor]]]:
    """Arguments with rows in the dtype of the parameters: floats, then others, then all."""
    if dtype is None:
        return []
    others = {n: given[n].real if given[n].is_complex() else given[n] for n in rows}
    cast = {n: t.to(dtype) for n, t in others.items() if given[n].dtype is not dtype}
    floats = {n: t for n, t in cast.items() if given[n].dtype.is_floating_point}
    found = [floats] if floats else []
    found += [{n: t} for n, t in cast.items() if n not in floats]
    found += [{**floats, n: t} for n, t in cast.items() if n not in floats and floats]
    found += [cast] if len(cast) > 1 else []
    short = str(dtype).removeprefix("torch.")
    word = {"float32": "float", "float64": "double", "float16": "half"}.get(short, short)
    made = []
    for group in found:
        name = next(iter(group))
        more = f" (so is {', '.join(repr(n) for n in [*group][1:])})" if len(group) > 1 else ""
        is_float = given[name].dtype.is_floating_point
        made.append((
            f"'{name}' is {given[name].dtype}{more}, but the parameters of the model are {dtype}; "
            f"pass {_word(name)}{'.real' if given[name].is_complex() else ''}.{word}()"
            + (f", or model.{_method(given[name].dtype)} first" if is_float else ""),
            group,
        ))  # fmt: skip
    return made


def _method(dtype: torch.dtype) -> str:
    return {
        torch.float64: "double()", torch.float32: "float()", torch.float16: "half()",
    }.get(dtype, f"to({dtype})")  # fmt: skip


def _widths(
    site: BoundCall, rows: dict[str, str], given: dict[str, Any], dtype: torch.dtype | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments with rows of another width, as some part of the model takes it."""
    wide = [n for n in rows if given[n].dim() in (1, 2) and given[n].dtype.is_floating_point]
    groups = [[n] for n in wide]
    nodes = [n for n in wide if rows[n] == "num_nodes"]
    groups += [nodes] if len(nodes) > 1 else []
    for width, part in _taken(site.model).items():
        for group in groups:
            new = {n: given[n].new_ones(given[n].shape[0], width) for n in group}
            if dtype is None or all(t.shape == given[n].shape for n, t in new.items()):
                continue
            name = group[0]
            held, count = site.tensors[name], rows[name]
            had = held.shape[1] if held.dim() == 2 else None
            is_turned = held.dim() == 2 and held.shape[0] == width
            cure = f"pass [{count}, {width}]" + (f", as {_word(name)}.t() is" if is_turned else "")
            got = f"{had} channels" if had is not None else "no channels"
            told = (
                f"'{name}' is {list(held.shape)}, with {got}, but {part} takes {width}; {cure} "
                "like the rows of training, or a model made for that width"
            )
            yield told, {**given, **new}


def _lengths(site: BoundCall, roles: Roles, given: dict[str, Any]) -> Changed:
    """Arguments with a number for each row: of another length, or in columns."""
    nodes = next((given[n].shape[0] for n in roles.nodes if n in given), None)
    for name, rows in given.items():
        if not isinstance(rows, Tensor) or rows.layout is not torch.strided:
            continue
        shape = list(site.tensors[name].shape)
        if name in roles.edges and rows.dim() == 2:
            told = (
                f"'{name}' is {shape}, and the model takes a number for each edge; pass [num_edges]"
            )
            yield told, site, {**given, name: rows[:, 0]}
        if name in roles.others and rows.dim() == 1 and nodes is not None:
            count = next(iter(roles.num_nodes.values()))
            told = f"'{name}' has {shape[0]} rows, but there are {count} nodes; pass a row for each"
            yield told, site, {**given, name: rows.new_zeros(nodes)}


def _taken(model: nn.Module) -> dict[int, str]:
    """Widths that parts of a model take, and a part that does, the first ones first."""
    found: dict[int, str] = {}
    for name, part in model.named_modules():
        held = [getattr(part, w, None) for w in _WIDTHS]
        weight = getattr(part, "weight", None)
        if isinstance(part, nn.Linear) and isinstance(weight, Tensor) and not is_lazy(weight):
            held.append(weight.shape[-1])
        for value in held:
            for width in value if isinstance(value, tuple) else (value,):
                if type(width) is int and width > 0:
                    found.setdefault(width, f"'{name}'" if name else "the model")
    return found


def _not_given(
    site: BoundCall, roles: Roles, given: dict[str, Any], dtype: torch.dtype | None
) -> Changed:
    """Arguments that the model could do without, as its signature says."""
    if len(roles.given) != 1 or site.objects:
        return
    edges = given[roles.given[0].graph]
    if edges.layout is not torch.strided:
        return
    count = edges.shape[1]
    floats = dtype or torch.get_default_dtype()
    whole, shapes = torch.zeros(count, dtype=torch.int64), "int64 [num_edges]"
    names = inspect.signature(site.model.forward).parameters
    for name in ("edge_type", "edge_weight", "edge_attr"):
        if name not in names or site.constants.get(name, given.get(name)) is not None:
            continue
        tried = [(whole, shapes)] if name == "edge_type" else []
        if name == "edge_weight":
            tried.append((torch.ones(count, dtype=floats), "[num_edges]"))
        if name == "edge_attr":
            tried += [(torch.ones(count, w, dtype=floats), f"[num_edges, {w}]")
                      for w in _taken(site.model)]  # fmt: skip
        call = site.on(site.model)
        call.names = [*site.names, name]
        call.constants = {k: v for k, v in site.constants.items() if k != name}
        for rows, shape in tried:
            told = f"'{name}' was not given, and the model needs it; pass {name}=..., {shape}"
            yield told, call, {**given, name: rows}


def _homogeneous(site: BoundCall, roles: Roles, given: dict[str, Any]) -> Changed:
    """Dicts by type, for a model of one type of nodes and edges."""
    rows, edges = next(iter(roles.nodes)), roles.given[0].graph
    plain = {"x": given[rows], "edge_index": given[edges].clamp(max=0)}
    call = BoundCall(site.model, dict(zip(site.packed, plain.values(), strict=False)))
    argument = next(iter(site.packed))
    told = (
        f"'{argument}' is a dict by type, but the model takes one type of nodes; wrap "
        "to_hetero(model, data.metadata()), or pass data.to_homogeneous()"
    )
    yield told, call, dict(zip(call.names, plain.values(), strict=False))


def _word(name: str) -> str:
    """How a user writes an argument."""
    return name if name.isidentifier() else name.rpartition("/")[2]

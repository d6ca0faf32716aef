"""What a file holds of a wrapped model, and whose it is."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pyg_incremental.call.checked import CALL, Checked
from pyg_incremental.call.roles import is_everyone
from pyg_incremental.call.state import constants_of
from pyg_incremental.delta.names import NameTable
from pyg_incremental.errors import (
    IncrementalError,
    InvalidDeltaError,
    StateFileError,
    UnsupportedModelError,
)
from pyg_incremental.files import earlier, snapshot
from pyg_incremental.files.restoring import refuse_other_outputs, restore, whole_outputs
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.session import start
from pyg_incremental.session.edge_ids import holds_ids
from pyg_incremental.session.options import differences, options_of
from pyg_incremental.session.parameters import fingerprint
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings
from pyg_incremental.session.stored import stored

_STATE = {
    **CALL, "model": str, "options": {str: object}, "version": int,
    "deltas": {(str, int): int}, "scrub_next": int, "extra": object,
    "removed": {str: Tensor}, "node_ids": {str: {str: Tensor}},
    "numbered": [str], "edge_ids": {str: {str: Tensor}},
    "accumulate_dtype": str, "store": str, "graphs": {str: {str: Tensor}},
    "others": {str: Tensor}, "rows": {str: Tensor}, "outputs": [str],
    "whole_outputs": {str: Tensor}, "aggregators": {str: {str: Tensor}}, "program": str,
}  # fmt: skip
_SUMS = {"None": None, "torch.float32": torch.float32, "torch.float64": torch.float64}


class Saved(NamedTuple):
    """A copy of a state.

    Attributes:
        constants: The arguments of the call that are no tensors.
        content: Everything else.
    """

    constants: dict[str, Any]
    content: dict[str, Any]


def copied(
    session: Session,
    scrub_next: int,
    removed: Mapping[str, Ids],
    names: Sequence[Mapping[str, dict[str, Tensor]]],
    extra: Any = None,
    copy: bool = True,
) -> Saved:
    """What is to be saved of a session; nothing of it changes with the session.

    Args:
        session: The state.
        scrub_next: The row that is scrubbed next.
        removed: Ids of removed nodes by kind, int64 `[d]`.
        names: The names of nodes by kind, `[num_nodes]` each, and ids of edges, as `Names.saved`
            has them.
        extra: What the caller keeps with it.
        copy: Whether rows are copied; else the session must not change before they are written.
    """
    committed = session.committed
    content = {
        "extra": extra,
        "version": committed.version,
        "deltas": dict(committed.deltas),
        "scrub_next": scrub_next,
        "removed": {kind: torch.from_numpy(ids) for kind, ids in removed.items()},
        "node_ids": dict(names[0]),
        "numbered": [*filter(holds_ids, session.roles.edges)],
        "edge_ids": dict(names[1]),
        "outputs": [value.name for value in session.plan.program.outputs],
        "whole_outputs": {name: t.clone() for name, t in whole_outputs(session).items()},
        **stored(session, exact=False, copy=copy),
    }
    return Saved(constants_of(session.plan.site), content)


def save(path: str | os.PathLike[str], model: nn.Module, settings: Settings, saved: Saved) -> None:
    """Write a state; see `IncrementalModel.save`.

    Args:
        path: The file.
        model: The model, of which only a fingerprint is written.
        settings: What the user chose.
        saved: The state.

    Raises:
        UnsupportedModelError: If the model was called with what cannot be saved without code.
        OSError: If the file cannot be written. What was there is as it was then.
    """
    if not snapshot.is_plain(saved.constants):
        raise UnsupportedModelError(
            f"save: the model was called with {saved.constants}, which cannot be saved without code"
        )
    snapshot.write(
        path,
        {
            "model": fingerprint(model),
            "options": options_of(model),
            "accumulate_dtype": str(settings.accumulate_dtype),
            "store": settings.store,
            **saved.content,
        },
    )


def read(path: str | os.PathLike[str], model: nn.Module) -> dict[str, Any]:
    """Read a state of `model`; everything that it says of itself is checked.

    Raises:
        StateFileError: If the file is cut off or damaged, does not hang together, or belongs to
            another model.
    """
    form, content = snapshot.read_any(path)
    content, checked = earlier.as_today(path, content), Checked(str(path))
    content["rows_are_kept"] = form == snapshot.FORMAT
    checked.fits(content.get("model"), str, "model")
    if content["model"] != fingerprint(model):
        raise StateFileError(
            f"'{path}' was saved for another model (or other parameters) than this "
            f"{type(model).__name__}; load the parameters that the model had, or call "
            "to_incremental and run a full pass; read_state(path) opens its graph and features "
            "without a model"
        )
    checked.fits(content, _STATE, "")
    for name in ("version", "scrub_next"):
        if content[name] < 0:
            raise checked.refuse(f"{name} is {content[name]}")
    if content["accumulate_dtype"] not in _SUMS or content["store"] not in ("fast", "minimal"):
        raise checked.refuse(f"{content['accumulate_dtype']} or {content['store']!r} is unknown")
    _tensors_fit(content, checked)
    return content


def _tensors_fit(content: dict[str, Any], checked: Checked) -> None:
    """See that all tensors that are read before a full pass fit."""
    relations, num_nodes = checked.call(content), content["num_nodes"]
    checked.same(sorted(content["graphs"]), sorted(r.graph for r in relations), "graphs")
    for r in relations:
        data = dict(content["graphs"][r.graph])
        counts = num_nodes[r.source], num_nodes[r.target]
        checked.graph(r, content, data.pop("edge_index", None), data, counts)
    for kind, ids in content["removed"].items():
        if ids.dtype != torch.int64 or ids.dim() != 1 or kind not in num_nodes:
            raise checked.refuse(f"removed nodes of kind '{kind}' are no ids")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes[kind]:
            raise checked.refuse(f"removed nodes of kind '{kind}' are none of those that there are")
    for kind, names in content["node_ids"].items():
        what = f"names of nodes of kind '{kind}'"
        _are_names(names, num_nodes.get(kind, -1), what, checked)
    keys = {name: data for held in content["graphs"].values() for name, data in held.items()}
    if not content["edge_ids"].keys() <= {*content["numbered"]} <= keys.keys():
        raise checked.refuse(f"ids of edges are {content['numbered']}, which edges do not have")
    for name, ids in content["edge_ids"].items():
        count = keys[name].unique().numel() if name in keys else -1
        _are_names(ids, count, f"ids of edges '{name}'", checked)
    for name, kind in content["nodes"].items():
        rows, ours = content["rows"].get(name), is_everyone(name)
        checked.rows(rows, num_nodes[kind], f"'{name}'", torch.int64 if ours else None)
        if ours and rows.dim() > 1:
            raise checked.refuse(f"'{name}' has shape {list(rows.shape)}, expected one dimension")
    nodes = [name for name in content["nodes"] if not is_everyone(name)]
    given = {*nodes, *content["edges"], *content["others"], *content["graphs"]}
    checked.same(sorted(set(content["names"])), sorted(given), "tensors of the call")


def _are_names(names: Mapping[str, Tensor], count: int, what: str, checked: Checked) -> None:
    """See that tensors are names, and so many; see `names_to_tensors`."""
    sizes = {name: tuple(t.shape) for name, t in names.items()}
    if sizes.keys() != {"kinds", "sizes", "bytes"} or sizes["kinds"] != (count,) or (
        sizes["sizes"] != (count,) or names["sizes"].dtype != torch.int64
        or sizes["bytes"] != (int(names["sizes"].sum()),) or (names["sizes"] < 0).any()
    ):  # fmt: skip
        raise checked.refuse(f"{what} are none")
    try:
        NameTable.restored(names)
    except ValueError as error:
        raise checked.refuse(f"{what} are none ({error})") from error


def sums_of(content: dict[str, Any]) -> torch.dtype | None:
    """The dtype in which the sums of a saved state are kept, if it was chosen."""
    return _SUMS[content["accumulate_dtype"]]


def restored(
    path: str | os.PathLike[str], content: dict[str, Any], model: nn.Module, settings: Settings
) -> Session:
    """The session that was saved: computed anew, held against the saved rows, which it then takes.

    Args:
        path: The file.
        content: What `read` has read.
        model: The model.
        settings: What the user chose.

    Raises:
        StateFileError: If the model is not the one that was saved: it fails on the saved graph, or
            computes something else.
    """
    checked = Checked(str(path))
    changed = differences(content["options"], options_of(model))
    try:
        session = start.from_state(content, model, settings)
    except IncrementalError as error:
        if isinstance(error, InvalidDeltaError):  # what was saved, not what a user calls it with
            raise checked.refuse(f"what was saved does not fit the model: {error}") from error
        raise
    except Exception as error:  # a model may raise anything on what it was not made for
        raise checked.refuse(
            f"{type(model).__name__} fails on the saved graph ({type(error).__name__}: {error}); "
            f"changed since it was saved: {'; '.join(changed[:5]) or 'nothing that could be told'}",
            "Give the model the options and the code it had",
        ) from error
    refuse_other_outputs(session, content, checked, changed)
    # Messages that are not stored have to be those that the sums were made of, bit by bit.
    stored = settings.store == content["store"] == "fast"
    alike = not changed and str(session.plan.program) == content["program"]
    same_sums = settings.accumulate_dtype == sums_of(content)
    kept = content["rows_are_kept"]
    if kept and stored and alike and same_sums and session.plan.mode == "incremental":
        restore(session, content, checked)
    return session

"""What the user chose, checked."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

import torch

from pyg_incremental.call.said import Role
from pyg_incremental.graph.storage import Storage
from pyg_incremental.typing import BackendName, StoreName

F = TypeVar("F", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The keywords of `to_incremental`, for type checkers and editors."""

    strict: bool
    backend: BackendName
    accumulate_dtype: torch.dtype | None
    scrub_rows: int
    compile_after: int | None
    store: StoreName
    check: bool
    roles: Mapping[str, Any] | None
    progress: bool
    lazy: bool


@dataclass(frozen=True)
class Settings:
    """The arguments of `to_incremental`, which documents them, and where a store lies.

    Raises:
        ValueError: If one of them is not among what it can be.
        UnsupportedModelError: If a role is none.
    """

    strict: bool = False
    backend: BackendName = "auto"
    accumulate_dtype: torch.dtype | None = None
    scrub_rows: int = 0
    compile_after: int | None = 8
    store: StoreName = "fast"
    check: bool = True
    storage: Storage = field(default_factory=Storage)
    roles: Mapping[str, Any] | None = None
    progress: bool = True
    lazy: bool = False

    def __post_init__(self) -> None:
        for role in (self.roles or {}).values():
            Role.read(role)
        if self.accumulate_dtype not in (None, torch.float32, torch.float64):
            raise ValueError(
                "accumulate_dtype: expected torch.float32, torch.float64 or None (got "
                f"{self.accumulate_dtype})"
            )
        if self.backend not in ("auto", "compiled", "reference"):
            raise ValueError(
                f"backend: expected 'auto', 'compiled' or 'reference' (got {self.backend!r})"
            )
        if self.store not in ("fast", "minimal"):
            raise ValueError(f"store: expected 'fast' or 'minimal' (got {self.store!r})")
        if self.lazy and (self.store != "fast" or self.scrub_rows):
            raise ValueError(
                "lazy=True: rows are computed from what is stored, when they are asked for, so it "
                "goes with store='fast' and scrub_rows=0 (got "
                f"store={self.store!r}, scrub_rows={self.scrub_rows})"
            )
        if self.scrub_rows < 0:
            raise ValueError(
                f"scrub_rows: expected a number of rows, 0 or more (got {self.scrub_rows})"
            )
        if self.compile_after is not None and self.compile_after < 1:
            raise ValueError(
                "compile_after: expected a number of updates, 1 or more, or None (got "
                f"{self.compile_after})"
            )


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Settings of the keywords that a user gave.

    Raises:
        TypeError: If there is no such option; what `Settings` raises besides.
    """
    for name in options:
        if name not in Options.__annotations__:
            near = difflib.get_close_matches(name, Options.__annotations__, 1)
            cure = {
                "device": "the model runs where its parameters are: model.to(device) first",
                "threads": "torch.set_num_threads(n) says how many threads serve",
            }.get(name) or (
                f"write {near[0]}=..." if near else f"they are {', '.join(Options.__annotations__)}"
            )
            raise TypeError(f"to_incremental has no option '{name}' (got {name}=...); {cure}")
    return Settings(**options)


def shows_options(function: F) -> F:
    """Show each of `Options`, with its default, in the signature of what takes them by `**`."""
    own, known = inspect.signature(function), inspect.signature(Settings).parameters
    plain = inspect.Parameter.KEYWORD_ONLY
    named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [known[name].replace(kind=plain) for name in Options.__annotations__]
    named = sorted([*named, *options], key=lambda p: p.kind)
    function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
    return function

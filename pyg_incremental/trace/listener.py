"""What a model calls, seen as it runs: functions of torch, and modules that count as one call."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import nn
from torch.overrides import TorchFunctionMode

from pyg_incremental.trace.names import either_way, name_of
from pyg_incremental.trace.nested import holds_tensors
from pyg_incremental.trace.sealed import Matrix, as_given


class Observer(Protocol):
    """Who is told of calls; see `Listener` and `recorder.Recorder`.

    Attributes:
        inside: The path of the conv that is looked into while it runs, or an empty string.
    """

    inside: str

    @property
    def is_busy(self) -> bool:
        """Whether a call is running; what that calls is no matter of the model's."""

    def module(self, path: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A module that counts as one call."""

    def function(self, func: Callable[..., Any], *args: Any) -> Any:
        """A Python function that counts as one call."""

    def repeatable(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A Python function that gives the same for the same and writes to nothing."""

    def __enter__(self) -> Any:
        """Begin to be told."""

    def __exit__(self, *raised: Any) -> Any:
        """Stop being told."""


class Listener(TorchFunctionMode):
    """Notes what is called while it is active, on tensors as they are.

    Attributes:
        calls: The names of what was called that gave tensors, in order.
        is_busy: Whether a call is running; what that calls is not noted.
        inside: The path of the conv that is looked into while it runs, or an empty string.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inside = ""
        self.calls: list[str] = []
        self.is_busy = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A function of torch, or a method or property of a tensor."""
        if self.is_busy:
            return func(*args, **(kwargs or {}))
        if args and type(args[0]) is Matrix:
            with self:  # what that does is seen
                return Matrix.__torch_function__(func, types, args, kwargs)
        return self._call(name_of(func), func, args, kwargs or {})

    def module(self, path: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A module that counts as one call."""
        return self._call(f"<{path}>", run, args, kwargs)

    def function(self, func: Callable[..., Any], *args: Any) -> Any:
        """A Python function that counts as one call."""
        return self._call(f"<{func.__name__}>", func, args, {})

    def repeatable(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A Python function that gives the same for the same; what it calls is noted."""
        return func(*args, **kwargs)

    def _call(self, name: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.is_busy = True
        try:
            result = run(*as_given(args), **as_given(kwargs))
            if gives_tensors(name, result):
                self.calls.append(either_way(name))
        finally:
            self.is_busy = False
        return result


@contextlib.contextmanager
def recorded_modules(
    observer: Observer,
    leaves: dict[str, nn.Module],
    opens: Callable[[nn.Module, Any, Any], bool],
) -> Iterator[None]:
    """Let calls of these modules be written down as one; they are of a copy of the model.

    Args:
        observer: Who is told.
        leaves: The modules, by their paths.
        opens: Whether one call counts as what it does inside, by the module, `args` and `kwargs`.
    """
    with _as_kinds(leaves, lambda path, kind: _recorded(kind, observer, path, opens)):
        yield


@contextlib.contextmanager
def opened_modules(observer: Observer, convs: dict[str, nn.Module]) -> Iterator[None]:
    """Let it be seen what these modules do inside, and that it is they who do it.

    Args:
        observer: Who is told.
        convs: The modules, by their paths.
    """
    with _as_kinds(convs, lambda path, kind: _opened(kind, observer, path)):
        yield


@contextlib.contextmanager
def _as_kinds(
    modules: dict[str, nn.Module], instead: Callable[[str, type[nn.Module]], type[nn.Module]]
) -> Iterator[None]:
    kinds = {path: type(module) for path, module in modules.items()}
    for path, module in modules.items():
        module.__class__ = instead(path, kinds[path])
    try:
        yield
    finally:
        for path, module in modules.items():
            module.__class__ = kinds[path]


def _opened(kind: type[nn.Module], observer: Observer, path: str) -> type[nn.Module]:
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        around, observer.inside = observer.inside, path
        try:
            return kind.__call__(self, *args, **kwargs)
        except Exception as error:
            if not hasattr(error, "conv"):
                error.conv = path  # type: ignore[attr-defined]
            raise
        finally:
            observer.inside = around

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _recorded(
    kind: type[nn.Module],
    observer: Observer,
    path: str,
    opens: Callable[[nn.Module, Any, Any], bool],
) -> type[nn.Module]:
    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if observer.is_busy or opens(self, args, kwargs):
            return kind.__call__(self, *args, **kwargs)
        return observer.module(path, lambda *a, **k: kind.__call__(self, *a, **k), args, kwargs)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def gives_tensors(name: str, result: Any) -> bool:
    """Whether a call counts: one that gives tensors, or writes to one."""
    return name == "__setitem__" or holds_tensors(result)

"""What a model sees of a graph that is no plain tensor while it is recorded."""

from collections.abc import Callable
from typing import Any


class Sealed:
    """Stands for a graph that is no plain tensor: it can be handed on, and nothing else."""

    def __init__(self, real: Any, refuse: Callable[[str], Any]) -> None:
        self.__dict__.update(real=real, refuse=refuse)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of what it stands for: `isinstance` says what it would say of that."""
        return type(self.__dict__["real"])

    def __getattr__(self, name: str) -> Any:
        kind = type(self.__dict__["real"]).__name__
        return self.__dict__["refuse"](f"it asks its {kind} for '{name}' in forward")

    def __getitem__(self, index: Any) -> Any:
        return self.__getattr__("__getitem__")

"""What tracing a model yields: a program and the structure of its output, or a reason why not."""

from dataclasses import dataclass
from typing import Any

from pyg_incremental.program.origin import Place
from pyg_incremental.program.steps import Program


class NotTraceable(Exception):
    """The model as a whole cannot be written as a program.

    Args:
        reason: The reason.
        place: The line of the model that it is about, if there is one; the reason names it.
    """

    def __init__(self, reason: str, place: Place | None = None) -> None:
        super().__init__(reason)
        self.place = place


@dataclass(frozen=True)
class Traced:
    """A program and how its outputs are put together.

    Attributes:
        program: The program.
        structure: The output of the model with an `Output` in place of each tensor.
    """

    program: Program
    structure: Any


@dataclass(frozen=True)
class Output:
    """Stands for output number `index` of a program."""

    index: int

"""Where a step comes from: the operation of a model, and the line that calls it."""

import linecache
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """A line of somebody's code.

    Attributes:
        path: The file.
        line: Its number in the file, from 1.
        inside: What that line had called, where something went wrong in there; may be empty.
    """

    path: str
    line: int
    inside: str = ""

    @property
    def code(self) -> str:
        """What is written there; empty if the file is not there any more."""
        return linecache.getline(self.path, self.line).strip()

    def __str__(self) -> str:
        inside = f", in '{self.inside}'" if self.inside else ""
        return f"{Path(self.path).name}:{self.line}{inside}"


def in_brackets(place: Place | None) -> str:
    """A place at the end of a sentence."""
    return "" if place is None else f" ({place})"


@dataclass(frozen=True)
class Origin:
    """An operation of a model.

    Attributes:
        what: The path of a module, or the name of a function.
        place: The line that calls it; None where no line does, as in a model that is one conv.
        conv: The path of the conv that does it, where that is looked into; else empty.
    """

    what: str
    place: Place | None
    conv: str = ""

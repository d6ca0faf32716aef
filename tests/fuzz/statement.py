"""A drawn model as a list of statements, and its source text.

A model is kept as statements and not as text, so that the minimiser can leave some of them out.
"""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple

HEAD = """\
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
import torch_geometric.utils as pyg
from torch import Tensor, nn
"""


class Type(NamedTuple):
    """What a variable holds.

    Attributes:
        rows: "n" one row per node, "e" one row per edge, "g" edges and their weights, "-" neither.
        width: Columns of a row; 0 for a vector `[num_rows]` (without rows: for a scalar).
    """

    rows: str
    width: int


@dataclass
class Variable:
    """A name in `forward`; `exact` says that its values are inputs, bit by bit.

    Only what is exact may be compared for equality, sorted or counted: of other values the last bit
    depends on the order of a sum, and a model that turns this bit into 1 has no exact answer.
    """

    name: str
    type: Type
    exact: bool = False


@dataclass(frozen=True)
class Statement:
    """Some lines of `forward`, with what they need outside of it.

    Attributes:
        op: The operation of the grammar that it is an example of.
        family: The part of the grammar that the operation is from.
        lines: Lines of `forward`.
        init: Lines of `__init__`.
        top: Lines above the class.
        out: Name that is bound, "" if none.
        stands_in: Name of a variable of the same type as `out`; it takes the place of `out` where
            the statement is left out. "" if there is none.
    """

    op: str
    family: str
    lines: tuple[str, ...]
    init: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    out: str = ""
    stands_in: str = ""

    @property
    def reads_itself(self):
        """Whether the old value under the name that is bound is an operand."""
        return bool(self.out) and self.out == self.stands_in

    def renamed(self, old, new):
        def change(lines):
            return tuple(re.sub(rf"\b{old}\b", new, line) for line in lines)

        out = new if self.out == old else self.out
        stands_in = new if self.stands_in == old else self.stands_in
        return replace(self, lines=change(self.lines), out=out, stands_in=stands_in)


@dataclass(frozen=True)
class Drawn:
    """A drawn model: its edge inputs, its statements, and what it returns (the last one).

    `casts` names inputs that are stored in another dtype: `forward` casts them first.
    """

    data: tuple[str, ...]
    statements: tuple[Statement, ...] = field(default=())
    casts: tuple[str, ...] = ()

    def source(self):
        """The text of the class `Model`."""
        arguments = ", ".join(["self", "x", "edge_index", *self.data])
        top = [line for s in self.statements for line in s.top]
        init = [line for s in self.statements for line in s.init]
        body = [f"{name} = {name}.double()" for name in self.casts]
        body += [line for s in self.statements for line in s.lines]
        lines = [*top, *(["", ""] if top else []), "class Model(nn.Module):"]
        if init:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [*_indented(init), ""]
        lines += [f"    def forward({arguments}):", *_indented(body)]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def live(self, effects):
        """The same model without statements whose result nothing reads.

        Args:
            effects: Families of statements that do more than bind a name; these stay.
        """
        read, kept = set(), []
        for s in reversed(self.statements):
            if s.out and s.out not in read and s.family not in effects:
                continue
            kept.append(s)
            read.discard(s.out)
            read |= {word for line in s.lines for word in re.findall(r"\w+", line)} - {s.out}
            read |= {s.out} if s.reads_itself else set()
        return replace(self, statements=tuple(reversed(kept)))

    def without(self, at):
        """The same model without one statement; None where nothing can stand in for its result."""
        gone, later = self.statements[at], self.statements[at + 1 :]
        if gone.out and gone.out != gone.stands_in:
            read = any(re.search(rf"\b{gone.out}\b", line) for s in later for line in s.lines)
            if read and not gone.stands_in:
                return None
            if read:
                later = tuple(s.renamed(gone.out, gone.stands_in) for s in later)
        return replace(self, statements=(*self.statements[:at], *later))


def _indented(lines):
    return ["        " + line for line in lines]

"""What an operation of the grammar is: a template of code with slots for variables.

Slots: `{h}` rows of nodes or edges, `{g}` rows of the same type, `{n}` node rows, `{e}` edge rows,
`{v}` a vector with one number per row, `{m}` one number per column of `{h}`, `{s}` a scalar, `{r}`
values that are inputs bit by bit (safe to sort or compare), `{q}` and `{p}` edges that the model
made, with their weights. `{w}` is the width of the first
of these, `{o}` a new width, `{k}` a number of its own for names on `self`, `{i}` a column,
`{c}` a constant, `{size}` a number of rows, `{t:NAME}` a row-wise expression of NAME, and `{out}`
the name to bind.
"""

import re
from dataclasses import dataclass

ROWS, FAMILIES = {}, {}


@dataclass(frozen=True)
class Operation:
    """A template.

    Attributes:
        name: Its name in the documentation of torch or PyG, or what it is about.
        lines: Lines of `forward`.
        init: Lines of `__init__`.
        top: Lines above the class.
        gives: Type of `{out}`: "=" that of the first slot, "" nothing is bound, or rows and width
            as in "n:o", "e:w", "v" (a vector of the first slot's rows), "m", "s".
        needs: Edge inputs that it reads.
    """

    name: str
    lines: str
    init: str = ""
    top: str = ""
    gives: str = "="
    needs: tuple[str, ...] = ()


def family(name, *groups):
    """Enter operations under the name of a family; each group is a list, or a table of text."""
    found = FAMILIES.setdefault(name, [])
    for group in groups:
        found += expressions(group) if isinstance(group, str) else group
    return found


def expressions(table, gives="="):
    """Operations from lines `name | expression`, or `name | expression | line of __init__`."""
    found = []
    for line in table.strip().splitlines():
        name, expression, *init = (part.strip() for part in line.split(" | "))
        found.append(Operation(name, f"{{out}} = {expression}", "\n".join(init), gives=gives))
    return found


def blocks(text, gives="=", needs=()):
    """Operations from blocks `== name`, then lines of `forward`.

    A line that begins with `top|`, `init|`, `gives|` or `needs|` belongs there instead.
    """
    found = []
    for block in re.split(r"^== ", text.strip(), flags=re.MULTILINE)[1:]:
        name, *lines = block.rstrip().splitlines()
        parts = {"top": [], "init": [], "gives": [], "needs": [], "": []}
        for line in lines:
            mark, bar, rest = line.partition("|")
            where, kept = (mark, rest[1:]) if bar and mark in parts else ("", line)
            parts[where].append(kept)
        found.append(
            Operation(
                name.strip(),
                "\n".join(parts[""]),
                "\n".join(parts["init"]),
                "\n".join(parts["top"]),
                gives=parts["gives"][0].strip() if parts["gives"] else gives,
                needs=tuple(" ".join(parts["needs"]).split()) or needs,
            )
        )
    return found

"""Tables as notebooks show them."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    above: str, names: Sequence[str], rows: Iterable[Sequence[object]], below: Sequence[str] = ()
) -> str:
    """A table with a line of text above it, and lines below.

    Args:
        above: The line above it.
        names: The names of its columns.
        rows: What stands in them, row by row.
        below: The lines below it.
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    cells = (
        "".join(f"<td style='text-align:left'>{escape(str(cell))}</td>" for cell in row)
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = "".join(f"<p>{escape(line)}</p>" for line in below)
    return f"<p>{escape(above)}</p><table><tr>{head}</tr>{body}</table>{more}"

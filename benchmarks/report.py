"""Results as text: short tables for the screen, one long table for the record, and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import OURS

Row = dict[str, Any]
CELL = ("workload", "model", "layers")


def print_table(rows: list[Row]) -> None:
    """All columns of all rows."""
    if rows:
        print("\n" + "\n".join(aligned([list(rows[0]), *(_cells(row) for row in rows)])))


def pivot(rows: list[Row]) -> list[str]:
    """One model on one workload: our medians, and the others as multiples of them.

    A program that is faster than this package is marked with an asterisk.
    """
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    programs = dict.fromkeys(row["program"] for row in rows)
    at = {(row["program"], row["batch"]): row for row in rows}
    table = [["changes in one delta", *(_cell(b) for b in batches)]]
    for program in programs:
        cells = [_against_ours(at.get((program, batch))) for batch in batches]
        table.append([str(program), *cells])
    if OURS in programs:
        ours = [at.get((OURS, batch), {}) for batch in batches]
        table.append(["edges touched", *(_cell(_rounded(row.get("edges"))) for row in ours)])
        table.append(["rows computed", *(_cell(_rounded(row.get("rows"))) for row in ours)])
        table.append(["ns per edge touched", *(_cell(row.get("ns_per_edge")) for row in ours)])
    return aligned(table)


def markdown(rows: list[Row]) -> str:
    """The long table."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, ["---"] * len(names), *([_cell(row.get(n)) for n in names] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_json(path: Path, result: Mapping[str, object]) -> None:
    """Options without the folders they name, the machine, and the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


def plain(options: Mapping[str, object]) -> dict[str, object]:
    """Options as they may stand in a file that is passed on: of a path the name only."""
    return {key: _named(value) for key, value in options.items()}


def _named(value: object) -> object:
    if isinstance(value, list):
        return [_named(item) for item in value]
    return value.name if isinstance(value, Path) else value


def groups(rows: list[Row]) -> dict[tuple[object, ...], list[Row]]:
    """Rows by workload, model and number of layers."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in CELL), []).append(row)
    return found


def aligned(table: list[list[str]]) -> list[str]:
    """Lines of columns, flush right but for the first."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def _against_ours(row: Row | None) -> str:
    if row is None:
        return "-"
    if row["program"] == OURS or "p50_ratio" not in row:
        return f"{_cell(row['p50_ms'])} ms"
    return f"{'* ' if row['loses'] else ''}{_cell(row['p50_ratio'])} x"


def _rounded(value: object) -> object:
    return round(value) if isinstance(value, float) else value


def _cells(row: Row) -> list[str]:
    return [_cell(value) for value in row.values()]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

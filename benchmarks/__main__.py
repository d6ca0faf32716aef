"""The command line of the benchmarks: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import against_floor, full_pass, machine


def main(argv: list[str] | None = None) -> None:
    """Run one benchmark, print its table and, if asked to, write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    floor = commands.add_parser(
        "against-floor",
        help="GraphSAGE 128-128-40, one thread, against a hand-fused program",
        description=against_floor.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    floor.add_argument("--workload", type=Path, required=True, help="see benchmarks/workload.py")
    floor.add_argument("--floor", type=Path, help="the program to compare with")
    floor.add_argument("--rounds", type=int, default=3, help="turns of each program")

    full = commands.add_parser(
        "full-pass",
        help="one update of each conv against a full pass of PyG",
        description=full_pass.__doc__,
    )
    full.add_argument("--nodes", type=int, default=169_343)
    full.add_argument("--edges", type=int, default=1_166_243)
    full.add_argument("--threads", type=int, default=1, help="threads of torch")

    for command in (floor, full):
        command.add_argument("--batch", type=int, nargs="+", default=[1, 1000])
        command.add_argument("--seconds", type=float, default=5, help="time limit per measurement")
        command.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args(argv)

    if args.command == "against-floor":
        tables = against_floor.run(args.workload, args.floor, args.batch, args.seconds, args.rounds)
    else:
        tables = full_pass.run(args.nodes, args.edges, args.batch, args.seconds, args.threads)
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    for rows in tables.values():
        _print_table(rows)
    if args.json:
        options = {
            key: value.name if isinstance(value, Path) else value
            for key, value in vars(args).items()
            if key != "json"
        }
        result = {"options": options, "machine": about, **tables}
        args.json.write_text(json.dumps(result, indent=2) + "\n")


def _print_table(rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    print()
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()

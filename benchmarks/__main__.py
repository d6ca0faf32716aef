"""The command line of the benchmarks: `python -m benchmarks --help`.

Without a command it compares the package with its peers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    against_floor,
    all_nodes,
    bound,
    by_name,
    convs,
    deadlines,
    evaluate,
    first_minute,
    full_pass,
    machine,
    memory,
    on_demand,
    readers,
    report,
    side_by_side,
    streams,
    tasks,
    threads,
    traced,
    what_ifs,
    without,
)
from benchmarks.evaluation import command as evaluation
from benchmarks.ranks import speed, traffic, weak_scaling
from benchmarks.sampling import command as sampling

# commands that print and write by themselves
WHOLE: dict[str, Callable[[argparse.Namespace], None]] = {
    "peers": side_by_side.run,
    "memory": memory.run,
    "all-nodes": all_nodes.run,
    "convs": convs.run,
    "bound": bound.run,
    "first-minute": first_minute.run,
    "tasks": tasks.run,
    "evaluate": evaluate.run,
    "evaluation": evaluation.run,
    "threads": threads.run,
    "traced": traced.run,
    "without": without.run,
    "readers": readers.run,
    "what-ifs": what_ifs.run,
    "names": by_name.run,
    "on-demand": on_demand.run,
    "stream": streams.run,
    "deadlines": deadlines.run,
    "sampling": sampling.run,
    "traffic": traffic.run,
    "ranks": speed.run,
    "weak-scaling": weak_scaling.run,
}


def main(argv: list[str] | None = None) -> None:
    """Run one benchmark, print its table and write what it measured as JSON."""
    given = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    raw = argparse.RawDescriptionHelpFormatter

    peers = commands.add_parser(
        "peers", help="the package and its peers on the same deltas (the default)",
        description=side_by_side.DESCRIPTION, formatter_class=raw,
    )  # fmt: skip
    side_by_side.add_options(peers)

    large = commands.add_parser(
        "memory", help="a graph of the size of ogbn-products: memory, and updates per second",
        description=memory.__doc__, formatter_class=raw,
    )  # fmt: skip
    memory.add_options(large)

    named = commands.add_parser(
        "names", help="edges by the names of nodes, against rows; memory under churn",
        description=by_name.__doc__, formatter_class=raw,
    )  # fmt: skip
    by_name.add_options(named)

    every = commands.add_parser(
        "all-nodes", help="a change of every node against full passes, in turns",
        description=all_nodes.__doc__, formatter_class=raw,
    )  # fmt: skip
    all_nodes.add_options(every)

    classes = commands.add_parser(
        "convs", help="one edge for every conv class, and every kind of change",
        description=convs.__doc__, formatter_class=raw,
    )  # fmt: skip
    convs.add_options(classes)

    least = commands.add_parser(
        "bound", help="an update against a bare loop over the cache lines that it has to touch",
        description=bound.__doc__, formatter_class=raw,
    )  # fmt: skip
    bound.add_options(least)

    written = commands.add_parser(
        "traced", help="programs of convs that are written by hand against what the tracer finds",
        description=traced.__doc__, formatter_class=raw,
    )  # fmt: skip
    traced.add_options(written)

    worth = commands.add_parser(
        "without", help="what some mechanisms are worth: updates with and without them",
        description=without.__doc__, formatter_class=raw,
    )  # fmt: skip
    without.add_options(worth)

    first = commands.add_parser(
        "first-minute", help="an empty folder for kernels: the first updates, and the demo",
        description=first_minute.__doc__, formatter_class=raw,
    )  # fmt: skip
    first_minute.add_options(first)

    outputs = commands.add_parser(
        "tasks", help="one edge for models with outputs for nodes, pairs, edges and graphs",
        description=tasks.__doc__, formatter_class=raw,
    )  # fmt: skip
    tasks.add_options(outputs)

    layer_wise = commands.add_parser(
        "evaluate", help="a whole graph in a number of bytes, against full passes and node-wise",
        description=evaluate.__doc__, formatter_class=raw,
    )  # fmt: skip
    evaluate.add_options(layer_wise)

    figures = commands.add_parser(
        "evaluation", help="layer-wise evaluation: orders of nodes, sizes, parts of the nodes",
        description=evaluation.__doc__, formatter_class=raw,
    )  # fmt: skip
    evaluation.add_options(figures)

    full = commands.add_parser(
        "full-pass", help="one update of each conv against a full pass of PyG",
        description=full_pass.__doc__,
    )  # fmt: skip
    full.add_argument("--nodes", type=int, default=169_343)
    full.add_argument("--edges", type=int, default=1_166_243)
    full.add_argument("--threads", type=int, default=1, help="threads of torch")
    full.add_argument("--batch", type=int, nargs="+", default=[1, 1000])
    full.add_argument("--seconds", type=float, default=5, help="time limit per measurement")
    full.add_argument("--json", type=Path, help="also write the results to this file")

    floor = commands.add_parser(
        "against-floor", help="in turns with programs that are fused by hand, one thread",
        description=against_floor.__doc__, formatter_class=raw,
    )  # fmt: skip
    against_floor.add_options(floor)

    shared = commands.add_parser(
        "threads", help="several threads against one, in turns",
        description=threads.__doc__, formatter_class=raw,
    )  # fmt: skip
    threads.add_options(shared)

    reading = commands.add_parser(
        "readers", help="a thread that writes, alone and beside threads that read, in turns",
        description=readers.__doc__, formatter_class=raw,
    )  # fmt: skip
    readers.add_options(reading)
    trying = commands.add_parser(
        "what-ifs", help="an update, the preview of one, and many previews at once",
        description=what_ifs.__doc__, formatter_class=raw,
    )  # fmt: skip
    what_ifs.add_options(trying)

    asking = commands.add_parser(
        "on-demand", help="rows that are asked for while many changes wait",
        description=on_demand.__doc__, formatter_class=raw,
    )  # fmt: skip
    on_demand.add_options(asking)

    streaming = commands.add_parser(
        "stream", help="a stream beside bare updates, from event to alert, after a kill",
        description=streams.__doc__, formatter_class=raw,
    )  # fmt: skip
    streams.add_options(streaming)

    in_time = commands.add_parser(
        "deadlines", help="a stream under a bound on latency: by deadline, and of fixed sizes",
        description=deadlines.__doc__, formatter_class=raw,
    )  # fmt: skip
    deadlines.add_options(in_time)

    samples = commands.add_parser(
        "sampling", help="samples kept by events: ingestion, queries, accuracy",
        description=sampling.__doc__, formatter_class=raw,
    )  # fmt: skip
    sampling.add_options(samples)

    sent = commands.add_parser(
        "traffic", help="bytes that ranks send for an update, counted",
        description=traffic.__doc__, formatter_class=raw,
    )  # fmt: skip
    traffic.add_options(sent)

    several = commands.add_parser(
        "ranks", help="several ranks against one process, in turns",
        description=speed.__doc__, formatter_class=raw,
    )  # fmt: skip
    speed.add_options(several)

    scaling = commands.add_parser(
        "weak-scaling", help="work and bytes of each of 2 to 64 ranks, simulated",
        description=weak_scaling.__doc__, formatter_class=raw,
    )  # fmt: skip
    weak_scaling.add_options(scaling)

    needs_default = not given or (given[0].startswith("-") and given[0] not in ("-h", "--help"))
    args = parser.parse_args(["peers", *given] if needs_default else given)
    command = args.command
    del args.command

    if command == "full-pass":
        tables = full_pass.run(args.nodes, args.edges, args.batch, args.seconds, args.threads)
        _show(args, command, tables)
    elif command == "against-floor":
        _show(args, command, against_floor.run(args))
    else:
        WHOLE[command](args)


def _show(
    args: argparse.Namespace, command: str, tables: dict[str, list[dict[str, object]]]
) -> None:
    about = machine.describe()
    print(" ".join(f"{key}={value}" for key, value in about.items()))
    for rows in tables.values():
        report.print_table(rows)
    if args.json:
        options = {"command": command, **{k: v for k, v in vars(args).items() if k != "json"}}
        report.write_json(args.json, {"options": report.plain(options), "machine": about, **tables})


if __name__ == "__main__":
    main()

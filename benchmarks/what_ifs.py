"""What-ifs: an update, the preview of one, and many previews at once.

An edge between two drawn nodes is put in, or only tried. `update_ms` and `preview_ms` are medians
over drawn edges, in turns; `many_ms` is what one of `--count` costs in `preview_many`, and
`alone_ms` one of the same previewed one by one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import torch
from torch_geometric.nn import GraphSAGE

from benchmarks import machine, report
from pyg_incremental import GraphDelta, to_incremental
from pyg_incremental.kernels import warm_up


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: 1,000 what-ifs on 100,000 nodes and 800,000 edges."""
    add = parser.add_argument
    add("--nodes", type=int, default=100_000)
    add("--edges", type=int, default=800_000)
    add("--channels", type=int, default=32)
    add("--count", type=int, default=1000)
    add("--turns", type=int, default=5)
    add("--seed", type=int, default=0)
    add(
        "--out", type=Path, default=Path("benchmarks/results/what_ifs"), help="folder of the result"
    )


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    rng = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    nodes, channels = args.nodes, args.channels
    warm_up()
    inc = to_incremental(GraphSAGE(channels, channels, 2, 2).eval(), compile_after=1)
    inc(
        torch.randn(nodes, channels, generator=rng),
        torch.randint(nodes, (2, args.edges), generator=rng),
    )
    deltas = [
        GraphDelta(edge_index_add=torch.randint(nodes, (2, 1), generator=rng))
        for _ in range(args.count)
    ]
    inc.apply_delta(deltas[0])
    inc.preview_many(deltas[:2])
    updates, previews, alone, many = list[float](), list[float](), list[float](), list[float]()
    for _ in range(args.turns):
        for delta in deltas[:200]:
            previews.append(_took(lambda delta=delta: inc.preview(delta)))
            updates.append(_took(lambda delta=delta: inc.apply_delta(delta)))
        alone.append(_took(lambda: [inc.preview(delta) for delta in deltas]) / args.count)
        many.append(_took(lambda: inc.preview_many(deltas)) / args.count)
    row: report.Row = {
        "update_ms": median(updates), "preview_ms": median(previews),
        "preview_in_updates": median(previews) / median(updates),
        "alone_ms": median(alone), "many_ms": median(many),
        "many_faster": median(alone) / median(many),
    }  # fmt: skip
    report.print_table([row])
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "what_ifs.json",
        {"options": options, "machine": machine.describe(), "results": [row]},
    )


def _took(work: object) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)

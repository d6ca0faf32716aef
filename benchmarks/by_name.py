"""Deltas that call nodes by their names, against the same by rows; and memory under churn.

Three models take the same edges, one at a time: by rows, by names that are strings, and by integer
keys. `x rows` is the median of the time by name against that by rows. Then three others take edges
with ids, and delete them again: ids that are integers and strings, of which a deletion gives the id
alone, against deletions by both ends of models without ids. Then `--events` nodes come
and go by name, one of each with every delta. `growth` is how much more memory the process has at
the end than after a tenth of them, as a part of that.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks import graphs, machine, report
from benchmarks.measure import resident_bytes
from benchmarks.models import MODELS, build
from pyg_incremental import to_incremental
from pyg_incremental.kernels import warm_up


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults: one edge at a time on the drawn graph of ogbn-arxiv's size."""
    add = parser.add_argument
    add("--scale", type=float, default=1.0, help="part of the size of ogbn-arxiv")
    add("--model", choices=MODELS, default="sage")
    add("--updates", type=int, default=3000, help="edges, each by rows and by names")
    add("--events", type=int, default=100_000, help="nodes that come and go by name")
    add("--seed", type=int, default=0)
    add("--out", type=Path, default=Path("benchmarks/results/names"), help="folder of the result")


def run(args: argparse.Namespace) -> None:
    """Measure, print and write what came out."""
    machine.use_threads(1)
    size = graphs.SIZES["arxiv"].scaled(args.scale)
    work = graphs.draw(size, 60, args.seed)
    warm_up()
    model = build(args.model, size.channels, 128, size.classes, 2)
    count = len(work.x)
    texts = np.array([f"account-{i:09d}" for i in range(count)], object)
    keys = np.random.default_rng(args.seed).permutation(10 * count)[:count] + 2**40
    names = {"rows": None, "strings": texts, "keys": keys}
    models = {}
    for way, given in names.items():
        models[way] = to_incremental(model)
        models[way](work.x, work.edge_index, **({} if given is None else {"node_ids": given}))
    took: dict[str, list[float]] = {way: [] for way in names}
    generator = torch.Generator().manual_seed(args.seed)
    for _ in range(args.updates):
        edge = torch.randint(count, (2, 1), generator=generator)
        for way, given in names.items():
            named = edge if given is None else given[edge.numpy()].tolist()
            began = time.perf_counter()
            models[way].apply_delta(edge_index_add=named)
            took[way].append(time.perf_counter() - began)
    times = {way: of[len(of) // 5 :] for way, of in took.items()}  # what is compiled, compiled
    rows: list[report.Row] = [
        {
            "by": way, "p50_us": 1e6 * median(of),
            "x rows": median(a / b for a, b in zip(of, times["rows"], strict=True)),
        }
        for way, of in times.items()
    ]  # fmt: skip
    report.print_table(rows)
    inc = models["strings"]
    models.clear()
    by_id = edge_ids(model, work, args.updates, args.seed)
    report.print_table(by_id)
    churned = churn(inc, texts, args.events, args.seed)
    report.print_table([churned])
    options = report.plain({k: v for k, v in vars(args).items() if k != "out"})
    report.write_json(
        args.out / "names.json",
        {
            "options": options,
            "machine": machine.describe(),
            "results": rows,
            "edge_ids": by_id,
            "churn": churned,
        },
    )


def edge_ids(model: object, work: object, updates: int, seed: int) -> list[report.Row]:
    """An edge comes, and the one before it leaves: by both ends, and by ids alone."""
    count, edges = len(work.x), work.edge_index.shape[1]
    spell = {"ends": None, "integer ids": lambda i: 2**40 + i, "string ids": "transfer-{}".format}
    models, took = {}, {way: ([], []) for way in spell}
    for way, of in spell.items():
        ids = None if of is None else [of(i) for i in range(edges)]
        models[way] = to_incremental(model)
        models[way](work.x, work.edge_index, **({} if ids is None else {"edge_ids": ids}))
    generator = torch.Generator().manual_seed(seed)
    for i in range(edges, edges + updates):
        edge = torch.randint(count, (2, 1), generator=generator)
        for way, of in spell.items():
            come = {"edge_index_add": edge} | ({} if of is None else {"edge_ids_add": [of(i)]})
            leave = {"edge_index_del": edge} if of is None else {"edge_ids_del": [of(i)]}
            for kept, fields in zip(took[way], (come, leave), strict=True):
                began = time.perf_counter()
                models[way].apply_delta(**fields)
                kept.append(time.perf_counter() - began)
    late = {way: [part[updates // 5 :] for part in parts] for way, parts in took.items()}
    return [
        {
            "edges by": way, "come_p50_us": 1e6 * median(come), "leave_p50_us": 1e6 * median(leave),
            "x come": median(a / b for a, b in zip(come, late["ends"][0], strict=True)),
            "x leave": median(a / b for a, b in zip(leave, late["ends"][1], strict=True)),
            "off_by": float(models[way].verify(32)),
        }
        for way, (come, leave) in late.items()
    ]  # fmt: skip


def churn(inc: object, texts: np.ndarray, events: int, seed: int) -> report.Row:
    """Nodes come, each with two edges, and the oldest that came leave again."""
    rng, queue = np.random.default_rng(seed), deque()
    features = torch.zeros(1, inc.x.shape[1])
    nodes, sizes, began = inc.num_nodes, [], time.perf_counter()
    for i in range(events):
        if i in (events // 10, events // 2):
            sizes.append(resident_bytes())
        name = f"guest-{seed}-{i}"
        queue.append(name)
        others = texts[rng.integers(len(texts), size=2)].tolist()
        fields = {"edge_index_add": [[name, others[0]], [others[1], name]]}
        fields["edge_index_add"] = np.array(fields["edge_index_add"], object)
        inc.apply_delta(x_add=features, node_ids=[name], **fields)
        if len(queue) > 100:
            inc.apply_delta(nodes_del=[queue.popleft()])
    seconds = time.perf_counter() - began
    sizes.append(resident_bytes())
    return {
        "events": events, "per_s": events / seconds, "new rows": inc.num_nodes - nodes,
        "mb_early": sizes[0] / 1e6, "mb_end": sizes[-1] / 1e6,
        "growth": sizes[-1] / sizes[0] - 1, "off_by": float(inc.verify(32)),
    }  # fmt: skip

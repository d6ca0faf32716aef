"""What a new user runs first: the fifteen lines of the README, and the updates behind them.

A process of its own, because what it imports is a part of what is timed. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

Delta = dict[str, Any]


def main() -> None:
    """Run, and print what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--wait", type=float, required=True, help="seconds for compiled kernels")
    args = parser.parse_args()
    began = time.perf_counter()
    import torch
    from torch_geometric.nn import GraphSAGE

    imported = time.perf_counter()
    from pyg_incremental import to_incremental
    from pyg_incremental.kernels.takeover import KERNELS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GraphSAGE(16, 64, num_layers=2, out_channels=7).eval()
    x, edge_index = torch.randn(1000, 16), torch.randint(1000, (2, 4000))
    inc = to_incremental(model)
    inc(x, edge_index)
    inc.apply_delta(
        edge_index_add=torch.tensor([[3, 8], [5, 5]]),
        edge_index_del=edge_index[:, :1],
        x_changes=(torch.tensor([12]), torch.zeros(1, 16)),
    )
    there = time.perf_counter()
    off = [inc.verify()]
    took, plain = [], []
    deltas = _deltas(inc)
    for at in range(args.updates):
        took.append(_timed(inc, next(deltas)))
        if inc.backend != "compiled":
            plain.append(took[-1])
        if at % 100 == 99:
            off.append(inc.verify())
    until = time.perf_counter() + args.wait
    while inc.backend != "compiled" and time.perf_counter() < until:
        plain.append(_timed(inc, next(deltas)))
        time.sleep(0.05)
    kernels = time.perf_counter() - imported if inc.backend == "compiled" else None
    while KERNELS.is_making and time.perf_counter() < until:
        inc.apply_delta(**next(deltas))
        time.sleep(0.05)
    every = time.perf_counter() - imported if kernels and not KERNELS.is_making else None
    after = [_timed(inc, next(deltas)) for _ in range(args.updates)]
    off.append(inc.verify())
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "import_s": imported - began, "first_update_s": there - imported,
        "slowest_ms": 1e3 * max(took), "slowest_after_ms": 1e3 * max(after),
        "p50_plain_us": 1e6 * median(plain) if plain else None, "p50_us": 1e6 * median(after),
        "kernels_after_s": kernels, "all_after_s": every,
        "compiler_s": spent.ru_utime + spent.ru_stime,
        "compiler_gb": spent.ru_maxrss * 1024 / 1e9, "max_abs_diff": max(off),
    }  # fmt: skip
    json.dump(result, sys.stdout)


def _timed(inc: Any, delta: Delta) -> float:
    began = time.perf_counter()
    inc.apply_delta(**delta)
    return time.perf_counter() - began


def _deltas(inc: Any) -> Iterator[Delta]:
    """Edges that come and go, features, nodes that arrive with edges, in turns."""
    import torch

    while True:
        pair = torch.randint(inc.num_nodes, (2, 1))
        yield {"edge_index_add": pair}
        yield {"x_changes": (torch.randint(inc.num_nodes, (1,)), torch.randn(1, 16))}
        yield {"edge_index_del": pair}
        new = torch.full((3,), inc.num_nodes)
        edges = torch.stack([new, torch.randint(inc.num_nodes, (3,))])
        yield {"x_add": torch.randn(1, 16), "edge_index_add": edges}


if __name__ == "__main__":
    main()

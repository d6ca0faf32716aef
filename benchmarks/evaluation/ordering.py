"""Orders of nodes: how much of the rows is read, with a model of three GCN layers from disk.

`read` says how often each row is read in a layer, on the mean: a block reads the rows of its nodes
and of their neighbours, each once. `MB` are all rows that were read from memory maps; `saved` is
how much fewer rows are read than in the order as given, or in a random one. A block may take
`--share` of what the rows of one layer take. `order_s` is the time that ordering takes.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from benchmarks.evaluation.rabbit import rabbit
from benchmarks.evaluation.real import edges_of
from benchmarks.models import build
from benchmarks.peers.protocol import Skipped
from benchmarks.report import Row
from pyg_incremental.blocks.evaluate import evaluator_of
from pyg_incremental.blocks.files import Files
from pyg_incremental.blocks.given import call_of
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.order import ORDERS, orders_of
from pyg_incremental.call.roles import classify
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.settings import Settings

ALL = ("given", "random", *ORDERS, "rabbit")


def measure(args: argparse.Namespace) -> list[Row]:
    """A row for each graph and order."""
    rows: list[Row] = []
    for name in args.graph:
        try:
            edges, nodes = edges_of(name, args.scale)
        except Skipped as why:
            print(f"{name}: skipped, {why}")
            continue
        mine = [_row(name, edges, nodes, order, args) for order in args.order]
        for against in ("given", "random"):
            base = [row["rows_read"] for row in mine if row["order"] == against]
            for row in mine:
                row[f"saved_of_{against}"] = 1 - row["rows_read"] / base[0] if base else None
        rows += mine
    return rows


def _row(name: str, edges: Tensor, nodes: int, order: str, args: argparse.Namespace) -> Row:
    x = torch.randn(nodes, args.hidden, generator=torch.Generator().manual_seed(0))
    model = build("gcn", args.hidden, args.hidden, args.hidden, args.layers)
    site = call_of(model, {"x": x, "edge_index": edges})
    roles = classify(site)
    plan = prepare(site, roles, Settings())
    began = time.perf_counter()
    if order == "rabbit":
        found = {"": rabbit(_both_ways(edges, nodes))}
    elif order == "random":
        found = {"": np.random.default_rng(0).permutation(nodes)}
    else:
        found = orders_of(None if order == "given" else order, roles, 1 << 40)
    ordered = time.perf_counter()
    memory = int(args.share * x.nbytes) + 64 * nodes
    with tempfile.TemporaryDirectory() as folder:
        store = Files(folder, plan.program, {}, goes_on=False)
        evaluator = evaluator_of(plan, roles, memory, store, places=NodeOrder(found))
        began_blocks = time.perf_counter()
        evaluator.run(lambda rows: None)
        seconds = time.perf_counter() - began_blocks
        store.leave()
    return {
        "graph": name, "nodes": nodes, "edges": edges.shape[1], "order": order,
        "order_s": ordered - began, "evaluate_s": seconds, "blocks": evaluator.blocks,
        "rows_read": evaluator.read, "read": evaluator.read / nodes / args.layers,
        "MB": evaluator.gathered / 1e6,
    }  # fmt: skip


def _both_ways(edges: Tensor, nodes: int) -> csr_matrix:
    src, dst = edges.numpy()
    graph = csr_matrix((np.ones(len(src), np.bool_), (src, dst)), (nodes, nodes))
    return (graph + graph.T).tocsr()

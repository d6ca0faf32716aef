"""Transfers come in, and an alert goes out when an account begins to look like a collector.

    python examples/fraud.py
    python examples/fraud.py --graph transfers.npz --transfers 20000

The graph network is trained on drawn accounts, of which some collect money from many others. Then
transfers are appended to a log, as a server would do it, and a stream takes them in: accounts are
called by name, and new ones come with their first transfer. The program is `watch`; all else draws,
trains and checks. Run it again with the same --folder: it goes on where it was.

With --graph the transfers are those of a file of edges in the order in which they came: the array
`edge_index` [2, E], and `op` [E], where -1 takes an edge back, if there are such. The first half is
there from the start, and who has the most partners in it is a collector.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import GraphSAGE

from pyg_incremental.sources import SqliteLog
from pyg_incremental.stream import Alert, JsonLines, Schema, Stream

NEW = [1.0, 0.0]  # what is known of an account that has just come
SCHEMA = Schema(
    src="from", dst="to", kind="op", kinds={1: "edge_add", -1: "edge_del"}, event_id="id", new_x=NEW
)


def watch(model: torch.nn.Module, first: dict[str, Any], log: SqliteLog, folder: Path) -> Stream:
    """The whole program: who collects money?"""
    stream = Stream(
        model, log, SCHEMA, first=first, directory=folder / "state", max_size=50,
        dead_letters=JsonLines(folder / "left_out.jsonl"),
    )  # fmt: skip
    stream.on(JsonLines(folder / "alerts.jsonl"), crossed=0.0)
    stream.on(show, crossed=0.0)
    stream.drain()  # a server calls stream.run()
    return stream


def show(alert: Alert) -> None:
    """Tell of an account."""
    if alert.new >= 0:
        print(f"  {alert.node} looks like a collector ({alert.new:.2f}), version {alert.version}")


def drawn(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Accounts, their transfers so far, and which of them collect."""
    torch.manual_seed(seed)
    accounts, collectors = 300, torch.arange(15)
    to = torch.cat([torch.randint(15, 300, (400,)), collectors.repeat_interleave(12)])
    edge_index = torch.stack([torch.randint(15, 300, to.shape), to])
    x = torch.stack([torch.ones(accounts), 0.1 * torch.randn(accounts)], 1)
    return x, edge_index, torch.zeros(accounts).index_fill(0, collectors, 1.0)


def train(x: Tensor, edge_index: Tensor, label: Tensor) -> torch.nn.Module:
    """A network that has learned what a collector is."""
    model = GraphSAGE(2, 16, num_layers=2, out_channels=1, aggr="sum")
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        score = model(x, edge_index).flatten()
        torch.nn.functional.binary_cross_entropy_with_logits(score, label).backward()
        optimizer.step()
    return model.eval()


def transfers(count: int, seed: int) -> list[dict[str, Any]]:
    """Transfers between accounts old and new, of which three begin to collect."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        name = [f"account {rng.randrange(15, 300 + n // 4)}" for _ in range(2)]
        if rng.random() < 0.1:
            name[1] = f"collector {rng.randrange(3)}"
        found.append({"id": n, "op": 1, "from": name[0], "to": name[1]})
    return found


def read(path: Path, count: int) -> tuple[Tensor, Tensor, Tensor, list[Any], list[dict[str, Any]]]:
    """A graph in a file: as `drawn` has it, the names, and what comes in its second half."""
    with np.load(path) as arrays:
        pairs = arrays["edge_index"].T.tolist()
        ops = arrays["op"].tolist() if "op" in arrays else [1] * len(pairs)
    half, there = len(pairs) // 2, Counter[tuple[int, int]]()
    for pair, op in zip(pairs[:half], ops, strict=False):
        there[pair[0], pair[1]] += op
    known = {node: n for n, node in enumerate(dict.fromkeys(u for pair in there for u in pair))}
    edges = torch.tensor([[known[u], known[v]] for u, v in there.elements()]).t()
    partners = torch.zeros(len(known)).index_add(0, edges[1], torch.ones(edges.shape[1])).log1p()
    label = (partners > partners.quantile(0.95)).float()
    events = [
        {"id": half + n, "op": op, "from": f"account {u}", "to": f"account {v}"}
        for n, ((u, v), op) in enumerate(zip(pairs[half:][:count], ops[half:], strict=False))
    ]
    x = torch.tensor(NEW).repeat(len(known), 1)
    return x, edges, label, [f"account {node}" for node in known], events


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transfers", type=int, default=600)
    parser.add_argument("--folder", type=Path, help="where log, state and alerts are kept")
    parser.add_argument(
        "--graph", type=Path, help="a file of timed edges, in the place of drawn ones"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.graph is None:
        x, edge_index, label = drawn(args.seed)
        names, events = (
            [f"account {n}" for n in range(len(x))],
            transfers(args.transfers, args.seed),
        )
    else:
        x, edge_index, label, names, events = read(args.graph, args.transfers)
    torch.manual_seed(args.seed)
    model = train(x, edge_index, label)
    if args.graph is not None:  # sums over thousands of partners
        model, x = model.double(), x.double()
    first = {"x": x, "edge_index": edge_index, "node_ids": names}
    with tempfile.TemporaryDirectory() as other:
        folder = args.folder or Path(other)
        folder.mkdir(parents=True, exist_ok=True)
        log = SqliteLog(folder / "transfers.db", wait=0)
        log.append(*events)  # again, they are known by their ids
        with watch(model, first, log, folder) as stream:
            off, stats = float(stream.inc.verify()), stream.stats
            accounts = sum(name is not None for name in stream.inc.node_ids)
        log.close()
        print(f"fraud ok: transfers={stats.applied} again={stats.repeated} accounts={accounts} "
              f"alerts={stats.alerts} left_out={stats.dead} off={off:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()

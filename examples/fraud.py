"""Transfers come in, and an alert goes out when an account begins to look like a collector.

    python examples/fraud.py

The graph network is trained on drawn accounts, of which some collect money from many others. Then
transfers are appended to a log, as a server would do it, and a stream takes them in: accounts are
called by name, and new ones come with their first transfer. The program is `watch`; all else draws,
trains and checks. Run it again with the same --folder: it goes on where it was.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GraphSAGE

from pyg_incremental.sources import SqliteLog
from pyg_incremental.stream import Alert, JsonLines, Schema, Stream

NEW = [1.0, 0.0]  # what is known of an account that has just come


def watch(model: torch.nn.Module, first: dict[str, Any], log: SqliteLog, folder: Path) -> Stream:
    """The whole program: who collects money?"""
    schema = Schema(src="from", dst="to", event_id="id", new_x=NEW)
    stream = Stream(
        model, log, schema, first=first, directory=folder / "state", max_size=50,
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


def train(seed: int) -> tuple[torch.nn.Module, Tensor, Tensor]:
    """A network that has learned what a collector is, accounts, and their transfers so far."""
    torch.manual_seed(seed)
    accounts, collectors = 300, torch.arange(15)
    to = torch.cat([torch.randint(15, 300, (400,)), collectors.repeat_interleave(12)])
    edge_index = torch.stack([torch.randint(15, 300, to.shape), to])
    x = torch.stack([torch.ones(accounts), 0.1 * torch.randn(accounts)], 1)
    label = torch.zeros(accounts).index_fill(0, collectors, 1.0)
    model = GraphSAGE(2, 16, num_layers=2, out_channels=1, aggr="sum")
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        score = model(x, edge_index).flatten()
        torch.nn.functional.binary_cross_entropy_with_logits(score, label).backward()
        optimizer.step()
    return model.eval(), x, edge_index


def transfers(count: int, seed: int) -> list[dict[str, Any]]:
    """Transfers between accounts old and new, of which three begin to collect."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        name = [f"account {rng.randrange(15, 300 + n // 4)}" for _ in range(2)]
        if rng.random() < 0.1:
            name[1] = f"collector {rng.randrange(3)}"
        found.append({"id": n, "from": name[0], "to": name[1]})
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transfers", type=int, default=600)
    parser.add_argument("--folder", type=Path, help="where log, state and alerts are kept")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    model, x, edge_index = train(args.seed)
    names = [f"account {n}" for n in range(len(x))]
    first = {"x": x, "edge_index": edge_index, "node_ids": names}
    with tempfile.TemporaryDirectory() as other:
        folder = args.folder or Path(other)
        folder.mkdir(parents=True, exist_ok=True)
        log = SqliteLog(folder / "transfers.db", wait=0)
        log.append(*transfers(args.transfers, args.seed))  # again, they are known by their ids
        with watch(model, first, log, folder) as stream:
            off, stats = float(stream.inc.verify()), stream.stats
            accounts = sum(name is not None for name in stream.inc.node_ids)
        log.close()
        print(f"fraud ok: transfers={stats.applied} again={stats.repeated} accounts={accounts} "
              f"alerts={stats.alerts} left_out={stats.dead} off={off:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()

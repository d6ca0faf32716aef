"""The fraud example beside a program without the package: the same alerts, event for event."""

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch

from pyg_incremental.sources import SqliteLog
from pyg_incremental.stream import Stream

FRAUD = Path(__file__).parents[2] / "examples" / "fraud.py"


@pytest.fixture(scope="module")
def fraud():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("fraud", FRAUD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def by_hand(model, x, edge_index, new, events, size):
    """What a program has to tell that runs the model anew after every so many events.

    Yields for each alert how many events there were, the account, and its scores.
    """
    rows = {f"account {n}": n for n in range(len(x))}
    seen, before = set(), model(x, edge_index)
    for begin in range(0, len(events), size):
        for event in events[begin : begin + size]:
            if event["id"] in seen:
                continue
            seen.add(event["id"])
            pair = []
            for name in (event["from"], event["to"]):
                if name not in rows:
                    rows[name] = len(rows)
                    x = torch.cat([x, torch.tensor([new], dtype=x.dtype)])
                pair.append(rows[name])
            edge_index = torch.cat([edge_index, torch.tensor(pair)[:, None]], 1)
        after = model(x, edge_index)
        names = [*rows]
        for n, now in enumerate(after.flatten().tolist()):
            old = float(before[n]) if n < len(before) else math.nan
            if (old >= 0) != (now >= 0):
                yield begin + len(events[begin : begin + size]), names[n], old, now
        before = after


@pytest.mark.parametrize("size", [1, 50])
def test_the_fraud_program(fraud, tmp_path, monkeypatch, size):
    torch.set_num_threads(1)
    x, edge_index, label = fraud.drawn(0)
    model, x = fraud.train(x, edge_index, label).double(), x.double()
    with torch.no_grad():  # many cross a threshold between two middling accounts, on none of them
        scores = model(x, edge_index).unique()
        model.convs[-1].lin_l.bias -= scores[len(scores) // 2 - 1 :][:2].mean()
    events = fraud.transfers(150, 0)
    events[100:100] = events[:7]  # sent twice
    names = [f"account {n}" for n in range(len(x))]
    monkeypatch.setattr(fraud, "Stream", lambda *a, **of: Stream(*a, **of | {"max_size": size}))
    log = SqliteLog(tmp_path / "transfers.db", wait=0)
    log.append(*events)
    first = {"x": x, "edge_index": edge_index, "node_ids": names}
    with fraud.watch(model, first, log, tmp_path) as stream:
        assert stream.stats.dead == 0
    log.close()
    lines = (tmp_path / "alerts.jsonl").read_text().splitlines()
    found = [(a["position"], a["node"], a["old"], a["new"]) for a in map(json.loads, lines)]
    expected = [*by_hand(model, x, edge_index, fraud.NEW, events, size)]
    assert len(expected) > 20
    assert [alert[:2] for alert in sorted(found)] == [alert[:2] for alert in sorted(expected)]
    for ours, theirs in zip(sorted(found), sorted(expected), strict=True):
        assert ours[2:] == pytest.approx(theirs[2:], abs=1e-9, nan_ok=True)

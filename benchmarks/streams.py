"""A stream beside bare updates, from event to alert, beside its checkpoints, and after a kill.

The graph is drawn, in the size of arXiv. Seven measurements, and one line at the end:

* runtime: events of a list, as mappings, in batches of 1,000, with a folder for checkpoints, beside
  `apply_delta` on the same deltas made before, in turns;
* alerts: events are pushed at a rate, and it is measured when their alerts are handed over;
* checkpoints: how long a stream waits for one in the background, by fork and by copy, in turns, and
  what the batches after it take, beside those with none at work;
* readers: what a stream does a second beside threads that read 100 rows, `--reads` times a second
  each, against what it does alone, in turns; each read is held against the rows of its version;
* window: edges between named nodes, of which the last `--held` stay; memory and times in the first
  quarter after the window is full, and in the last one;
* restart: a stream is left after many events and no checkpoint, and made again;
* exactness: the output beside a full pass of the model, and each event counted.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.graphs import SIZES, draw
from benchmarks.measure import resident_bytes
from benchmarks.models import build
from benchmarks.stream import Stream as Updates
from benchmarks.workload import ADD, DELETE, Workload
from pyg_incremental import to_incremental
from pyg_incremental.files import keeping
from pyg_incremental.sources import IterableSource, JsonLinesSource, QueueSource
from pyg_incremental.stream import Schema, Stream, Window

SCHEMA = Schema(kind="kind")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, default=1000, help="events in a batch")
    parser.add_argument("--rate", type=int, default=10_000, help="events a second for alerts")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each part takes")
    parser.add_argument("--restart", type=int, default=100_000, help="events since a checkpoint")
    parser.add_argument("--held", type=int, default=50_000, help="edges in the window")
    parser.add_argument("--through", type=int, default=1_000_000, help="events that go through it")
    parser.add_argument("--checkpoints", type=int, default=7, help="checkpoints in each way")
    parser.add_argument("--readers", type=int, default=8, help="threads that read beside it")
    parser.add_argument("--reads", type=float, default=100, help="reads a second of each")
    parser.add_argument("--turns", type=int, default=7, help="pairs of turns of a second")
    parser.add_argument("--max-latency", type=float, default=0.005, help="seconds to answer in")
    parser.add_argument("--quick", action="store_true", help="a tiny graph: whether it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="of the nodes of arXiv")


def events_of(work: Workload) -> list[dict[str, Any]]:
    """The edges of a workload as they come and go, again and again the other way round."""
    found = []
    for kind, a, b in zip(work.kind.tolist(), work.a.tolist(), work.b.tolist(), strict=True):
        if kind in (ADD, DELETE):
            found.append({"kind": "edge_add" if kind == ADD else "edge_del", "src": a, "dst": b})
    return found


def turned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What takes events back."""
    other = {"edge_add": "edge_del", "edge_del": "edge_add"}
    return [{**event, "kind": other[event["kind"]]} for event in reversed(events)]


def forth_and_back(events: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """As many events as asked for."""
    both = [*events, *turned(events)]
    return (both * -(-count // len(both)))[:count]


def ratio(work: Workload, batch: int, seconds: float, folder: Path) -> dict[str, float]:
    """Events a second of a stream and of bare updates; batches take turns."""
    model = build("sage", work.x.shape[1], 128, work.classes, 2)
    only_edges = events_of(work)
    bare = to_incremental(model)
    bare(work.x, work.edge_index)
    with Stream(
        model, IterableSource(lambda: cycle([*only_edges, *turned(only_edges)])), SCHEMA,
        first=(work.x, work.edge_index), directory=folder, max_size=batch,
    ) as stream:  # fmt: skip
        deltas = Updates(_edges_only(work))
        took: dict[str, list[float]] = {"stream": [], "bare": []}
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends or len(took["bare"]) < 12:
            delta = deltas.take(batch)
            began = time.perf_counter()
            bare.apply_delta(delta)
            between = time.perf_counter()
            count = stream.step()
            took["stream"].append((time.perf_counter() - between) / count)
            took["bare"].append((between - began) / batch)
        means = {name: float(np.mean(values[5:])) for name, values in took.items()}
        return {
            "stream_per_s": 1 / means["stream"], "bare_per_s": 1 / means["bare"],
            "ratio": means["bare"] / means["stream"], "off": float(stream.inc.verify()),
            "events": stream.stats.events, "dead": stream.stats.dead,
        }  # fmt: skip


def _edges_only(work: Workload) -> Workload:
    keep = (work.kind == ADD) | (work.kind == DELETE)
    return Workload(
        work.x, work.edge_index, work.kind[keep], work.a[keep], work.b[keep], work.rows[:1]
    )


def checkpoints(work: Workload, batch: int, times: int, folder: Path) -> dict[str, float]:
    """What a checkpoint in the background costs the thread of a stream, in its processor time."""
    model, events = build("sage", work.x.shape[1], 128, work.classes, 2), events_of(work)
    source = IterableSource(lambda: cycle([*events, *turned(events)]))
    stalls: dict[bool, list[float]] = {True: [], False: []}
    firsts: dict[bool, list[float]] = {True: [], False: []}
    steps: dict[bool | None, list[float]] = {True: [], False: [], None: []}
    with Stream(
        model, source, SCHEMA, first=(work.x, work.edge_index), directory=folder, max_size=batch
    ) as stream:

        def timed(by: bool | None) -> float:
            began = time.thread_time()
            stream.step()
            steps[by].append(time.thread_time() - began)
            return steps[by][-1]

        for _ in range(20):
            stream.step()
        by_fork, keeping.SMALL = keeping.CAN_FORK, 0
        for n in range(2 * times):
            keeping.CAN_FORK = by_fork and n % 2 == 0
            for _ in range(20):
                timed(None)
            began = time.thread_time()
            stream.checkpoint(wait=False)
            stalls[keeping.CAN_FORK].append(time.thread_time() - began)
            firsts[keeping.CAN_FORK].append(timed(keeping.CAN_FORK))
            while stream.is_saving:
                timed(keeping.CAN_FORK)
        keeping.CAN_FORK = by_fork
        found = {"batch_ms": 1e3 * float(np.median(steps[None]))}
        for by, name in ((True, "fork"), (False, "copy")):
            if stalls[by]:
                found |= {
                    f"{name}_ms": 1e3 * float(np.median(stalls[by])),
                    f"{name}_first_batch_ms": 1e3 * float(np.median(firsts[by])),
                    f"{name}_batch_ms": 1e3 * float(np.median(steps[by])),
                }
        return found | {
            "off": float(stream.inc.verify()), "events": stream.stats.events,
            "dead": stream.stats.dead,
        }  # fmt: skip


def readers(work: Workload, batch: int, threads: int, reads: float, turns: int) -> dict[str, float]:
    """A stream beside threads that read, and whether they have read half an update."""
    model, events = build("sage", work.x.shape[1], 128, work.classes, 2), events_of(work)
    source = IterableSource(lambda: cycle([*events, *turned(events)]))
    stream = Stream(model, source, SCHEMA, first=(work.x, work.edge_index), max_size=batch)
    inc, nodes = stream.inc, torch.linspace(0, len(work.x) - 1, 100).long()
    rows = {0: inc.out[nodes].clone()}
    wanted, end = threading.Event(), threading.Event()
    found: list[Any] = []

    def read() -> None:
        while wanted.wait() and not end.is_set():
            began = time.perf_counter()
            found.append((*inc.read(nodes), time.perf_counter() - began))
            time.sleep(1 / reads)

    def turn(is_read: bool) -> float:
        wanted.set() if is_read else wanted.clear()
        began, before = time.perf_counter(), stream.stats.events
        while (took := time.perf_counter() - began) < 1:
            stream.step()
            rows[inc.version] = inc.out[nodes].clone()
        return (stream.stats.events - before) / took

    every = [threading.Thread(target=read) for _ in range(threads)]
    for thread in every:
        thread.start()
    turn(True)
    beside = [(turn(False), turn(True)) for _ in range(turns)]
    end.set()
    wanted.set()
    for thread in every:
        thread.join()
    torn = sum(not torch.equal(rows[version], out) for version, out, _ in found)
    return {
        "readers": threads, "alone_per_s": float(np.median([a for a, _ in beside])),
        "throughput": float(np.median([b / a for a, b in beside])),
        "reads": len(found), "read_p50_ms": 1e3 * float(np.median([t for *_, t in found])),
        "torn": torn, "off": float(inc.verify()), "events": stream.stats.events,
        "dead": stream.stats.dead,
    }  # fmt: skip


def alerts(work: Workload, rate: int, seconds: float, max_latency: float) -> dict[str, float]:
    """From the moment at which an event is pushed to that at which its alerts are handed over."""
    model = build("sage", work.x.shape[1], 128, work.classes, 2)
    source = QueueSource()
    stream = Stream(model, source, SCHEMA, first=(work.x, work.edge_index), max_latency=max_latency)
    events = forth_and_back(events_of(work), int(rate * (seconds + 1)))
    for _ in range(2):  # compiled code for small and large updates
        source.push(*events[:500], *turned(events[:500]))
        while stream.step():
            pass
    watch = stream.on(lambda alert: None, flipped=True)
    for n in range(10):  # the first updates with OLD rows
        source.push(*events[: 10 * (n + 1)], *turned(events[: 10 * (n + 1)]))
        while stream.step():
            pass
    stream.stats.missed = 0
    stream.stats._waited.clear()
    before = stream.stats.events

    def offer() -> None:
        began, given = time.perf_counter(), 0
        while given < rate * seconds:
            due = min(int(rate * (time.perf_counter() - began)), int(rate * seconds))
            source.push(*events[given:due])
            given = due
            time.sleep(0.0005)

    gc.collect()
    gc.freeze()  # as the docs advise where milliseconds count
    producer = threading.Thread(target=offer)
    producer.start()
    while producer.is_alive():
        stream.step()
    producer.join()
    stream.drain()
    gc.unfreeze()
    count = stream.stats.events - before
    return {
        "offered_per_s": rate, "events": count, "alerts": watch.given,
        "p50_ms": 1e3 * stream.stats.latency(0.5), "p99_ms": 1e3 * stream.stats.latency(0.99),
        "missed": stream.stats.missed / count, "dead": stream.stats.dead,
        "off": float(stream.inc.verify()),
    }  # fmt: skip


def window(work: Workload, held: int, through: int, batch: int) -> dict[str, float]:
    """What memory and batches are like when the window has just been filled, and in the end."""
    rng, count = np.random.default_rng(0), len(work.x)
    names = [f"node {n}" for n in range(count)]
    schema = Schema(time="at", edge_data={"edge_time": "at"})
    first = {
        "x": work.x, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "node_ids": names,
        "edge_time": torch.zeros(0, dtype=torch.float64),
    }  # fmt: skip

    def events() -> Iterator[dict[str, Any]]:
        for begin in range(0, through, 1000):
            ends = (rng.random((1000, 2)) ** 2 * count).astype(int).tolist()
            for at, (src, dst) in enumerate(ends, begin):
                yield {"src": names[src], "dst": names[dst], "at": float(at)}

    took, kept = [], []
    model = build("sage", work.x.shape[1], 32, work.classes, 2)
    with Stream(
        model, IterableSource(events()), schema, first=first, window=Window(float(held)),
        max_size=batch,
    ) as stream:  # fmt: skip
        while True:
            began = time.process_time()
            if not stream.step():
                break
            took.append(time.process_time() - began)
            if len(took) % 8 == 1:
                kept.append(resident_bytes())
        full = -(-held // batch)
        times, sizes = np.array(took[full:]), np.array(kept[-(-full // 8) :])
        part, some = max(len(times) // 4, 1), max(len(sizes) // 4, 1)
        return {
            "events": stream.stats.events, "held": stream.inc.num_edges,
            "expired": stream.stats.expired, "dead": stream.stats.dead,
            "memory": float(np.median(sizes[-some:]) / np.median(sizes[:some])),
            "p99_ms": 1e3 * float(np.quantile(times[-part:], 0.99)),
            "p99": float(np.quantile(times[-part:], 0.99) / np.quantile(times[:part], 0.99)),
            "off": float(stream.inc.verify()),
        }  # fmt: skip


def restart(work: Workload, count: int, batch: int, folder: Path) -> dict[str, float]:
    """How long a stream takes that was left so many events after its checkpoint."""
    model = build("sage", work.x.shape[1], 128, work.classes, 2)
    events = forth_and_back(events_of(work), count)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))

    def opened() -> Stream:
        return Stream(
            model, JsonLinesSource(folder / "events.jsonl"), SCHEMA, max_size=batch,
            first=(work.x, work.edge_index), directory=folder / "state",
        )  # fmt: skip

    stream = opened()
    stream.drain()
    version, out = stream.inc.version, stream.inc.out.clone()
    stream._let_go()  # as a kill does
    began = time.perf_counter()
    with opened() as again:
        loaded = time.perf_counter()
        again.drain()
        ended = time.perf_counter()
        return {
            "events": count, "load_s": loaded - began, "replay_s": ended - loaded,
            "lost": count - again.stats.events, "twice": max(0, again.stats.events - count),
            "versions": again.inc.version - version,
            "off": float((again.inc.out - out).abs().max()), "dead": again.stats.dead,
        }  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Print what was measured, part by part, and the line at the end."""
    size = SIZES["arxiv"].scaled(args.scale)
    if args.quick:
        size = SIZES["arxiv"].scaled(0.005)
        args.seconds, args.restart, args.batch = 0.3, 2000, 100
        args.held, args.through = 1000, 8000
        args.checkpoints, args.turns = 1, 1
    work = draw(size, 60_000, args.seed)
    print(f"{len(work.x):,} nodes, {work.edge_index.shape[1]:,} edges, {args.batch} events a batch")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed = ratio(work, args.batch, args.seconds, folder / "ratio")
        _show("runtime", speed)
        saved = checkpoints(work, args.batch, args.checkpoints, folder / "checkpoints")
        _show("checkpoints", saved)
        beside = readers(work, args.batch, args.readers, args.reads, args.turns)
        _show("readers", beside)
        told = alerts(work, args.rate, args.seconds, args.max_latency)
        _show("alerts", told)
        slid = window(work, args.held, args.through, args.batch)
        _show("window", slid)
        again = restart(work, args.restart, args.batch, folder)
        _show("restart", again)
    parts = (speed, saved, beside, told, slid, again)
    off = max(part["off"] for part in parts)
    dead = sum(part["dead"] for part in parts)
    events = sum(part["events"] for part in parts)
    wrong = beside["torn"] or again["lost"] or again["twice"] or again["versions"] or dead
    is_ok = not wrong and off < 1e-3
    print(
        f"stream {'ok' if is_ok else 'WRONG'}: events={events:.0f} "
        f"events_per_s={speed['stream_per_s']:.0f} p99_ms={told['p99_ms']:.2f} "
        f"missed={told['missed']:.4f} lost={again['lost']:.0f} twice={again['twice']:.0f} "
        f"off={off:.1e}"
    )
    if not is_ok:
        raise SystemExit(1)


def _show(name: str, found: dict[str, float]) -> None:
    print(f"{name:8}", "  ".join(f"{k}={v:.6g}" for k, v in found.items()))

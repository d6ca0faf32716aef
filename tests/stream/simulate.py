"""A stream in a simulated world: one process, one seed, and every fault that can be thought of.

    python -m tests.stream.simulate --seeds 1000

Source, clock, log and sinks are of this process, and so are crashes: before and after an update,
in the midst of a line of the journal, before, in and after a checkpoint, before and after an alert,
while the source is read. After each the stream is made again from what is on the disk; with a loss
of power, from what was flushed. Producers send events twice, and out of order. In the end state and
keys have to be those of a world without faults. One model is in all worlds, and what it computes is
read off it once for each way in which it is called: that was three fifths of the time.
"""

import argparse
import contextlib
import functools
import os
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

from pyg_incremental import to_incremental
from pyg_incremental.session import start
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Feature, Schema, Stream, Window, checkpoint, line_file
from tests.stream import scene


class Crash(BaseException):
    """The end of a process."""


class World:
    """What there is, and when it ends."""

    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(seed), folder
        rng = self.rng
        self.durability = rng.choice(["process", "power"])
        self.power_fails = rng.random() < 0.5
        self.has_window = rng.random() < 0.5
        self.backend = rng.choice(["compiled", "compiled", "compiled", "reference"])
        self.size, self.every = rng.choice([1, 3, 8, 40]), rng.choice([5, 17, 1000])
        self.events = self._events(seed, rng.choice([20, 60]))
        self.left = 0  # how many points until the end; 0 for none
        self.synced = {}
        self.heard, self.letters, self.crashes = [], [], 0
        self.entries = {}  # what went into each version that somebody may have heard of
        self.groups = None  # where batches end, if that is said
        self.now = 0.0
        self.ticks = self._ticks()
        self.features = [
            Feature(0, "sum", of="at", at="both"), Feature(1, "decayed", of="at", half_life=3.0),
            Feature(2, "count", within=7.0),
        ][: rng.choice([0, 0, 3])]  # fmt: skip

    def _events(self, seed, count):
        rng = self.rng
        kinds = ["edge_add"] * 4 + ["node"]
        kinds += [] if self.has_window else ["edge_del", "edge_del", "node_del"]
        events = [
            {**event, "id": k, "at": k + rng.uniform(-3.0, 0.0)}
            for k, event in enumerate(scene.events(seed, count, kinds=kinds))
        ]
        for _ in range(count // 6):  # sent twice
            events.insert(rng.randrange(len(events)), rng.choice(events))
        return events

    def _ticks(self):
        """Where time goes on without an event, and to what."""
        if not self.has_window:
            return {}
        places = self.rng.sample(range(1, len(self.events) + 1), len(self.events) // 8)
        latest = {p: max(event["at"] for event in self.events[:p]) for p in places}
        return {p: at + self.rng.uniform(-2.0, 6.0) for p, at in latest.items()}

    def clock(self):
        self.now += 1e-3
        return self.now

    def point(self):
        """A moment at which it may end."""
        if self.left:
            self.left -= 1
            if not self.left:
                raise Crash

    def opened(self):
        model = scene.sage()
        inc = to_incremental(model, backend=self.backend, check=False, compile_after=4)
        x, edges = scene.graph()
        first, edge_data, window = {"x": x, "edge_index": edges}, {}, None
        if self.has_window:
            first["edge_time"] = torch.zeros(edges.shape[1]).double()
            edge_data, window = {"edge_time": "at"}, Window(9.0, lateness=1.0, every=2.0)
        schema = Schema(
            kind="kind", event_id="id", time="at", edge_data=edge_data, features=self.features
        )
        apply = inc.apply_delta

        def applied(*args, **kwargs):
            self.point()
            update = apply(*args, **kwargs)
            self.point()
            return update

        inc.apply_delta = applied
        stream = Stream(
            inc, Source(self), schema, first=first, directory=self.folder, max_size=self.size,
            durability=self.durability, checkpoint_events=self.every, window=window,
            dead_letters=self._sink(self.letters, lambda letter: letter.position),
            clock=self.clock,
        )  # fmt: skip
        stream.on(
            self._sink(self.heard, lambda a: (a.version, a.node, *a.old.tolist(), *a.new.tolist())),
            changed=1e-9,
        )
        return stream

    def _sink(self, kept, key):
        def sink(record):
            self.point()
            kept.append(key(record))
            self.point()

        return sink

    def run(self, crashes):
        """Until all events are in, through so many crashes."""
        while True:
            self.left = self.rng.randrange(1, 60) if crashes > self.crashes else 0
            stream = None
            try:
                with self._faults():
                    stream = self.opened()
                    self._drain(stream)
                    stream.checkpoint()
                stream._let_go()
                return stream
            except Crash:
                self.crashes += 1
                self.left = 0
                self._end(stream)

    def _drain(self, stream):
        while True:
            if stream.position in self.ticks:
                stream.advance(self.ticks[stream.position])
            if not stream.step():
                return

    def _end(self, stream):
        """What is left of a process: files, and of those after a loss of power what was flushed."""
        if stream is not None:
            with contextlib.suppress(OSError):
                stream._let_go()
        if self.power_fails:
            for file in self.folder.glob("updates-*.jsonl"):
                size, kept = file.stat().st_size, self.synced.get(file.name, 0)
                os.truncate(file, self.rng.randint(min(kept, size), size))

    @contextlib.contextmanager
    def _faults(self):
        write, flush = line_file.LineFile.write, line_file.LineFile.flush
        to_disk, in_place = checkpoint.Folder._write, checkpoint.Folder.write
        note = checkpoint.Folder.note

        def written(file, line):
            self.point()
            if self.left == 1:  # it ends in the midst of the line
                self.left = 0
                os.write(file._handle, line[: self.rng.randrange(len(line) + 1)])
                raise Crash
            write(file, line)
            self.point()

        def flushed(file):
            flush(file)
            name = Path(os.readlink(f"/proc/self/fd/{file._handle}")).name
            self.synced[name] = file._end
            self.point()

        def saved(folder, save, version):
            self.point()
            if self.left == 1:  # it ends in the midst of the file
                self.left = 0
                end = self.rng.choice([".part", ".next", ".next.0123456789abcdef.part"])
                (self.folder / f"state.0123456789abcdef{end}").write_bytes(b"PYGINCR")
                raise Crash
            save()
            self.point()
            to_disk(folder, lambda: None, version)
            self.point()

        def noted(folder, entry):
            self.entries[entry.version] = entry  # another one takes its place if this one is torn
            note(folder, entry)

        def at_once(folder, inc, extra, wait):
            return in_place(folder, inc, extra, True)

        with (
            mock.patch.object(line_file.LineFile, "write", written),
            mock.patch.object(line_file.LineFile, "flush", flushed),
            mock.patch.object(checkpoint.Folder, "_write", saved),
            mock.patch.object(checkpoint.Folder, "write", at_once),
            mock.patch.object(checkpoint.Folder, "note", noted),
        ):
            yield


class Source(IterableSource):
    """The log: it ends with the process, too, and gives fewer events than are asked for."""

    def __init__(self, world):
        super().__init__(world.events)
        self._world = world

    def next_batch(self, max_events):
        world = self._world
        world.point()
        ends = [*world.ticks, len(world.events), *(world.groups or ())]
        left = min((end for end in ends if end > self.position()), default=0) - self.position()
        if world.groups is None:
            left = min(left, world.rng.randint(1, max_events))
        return super().next_batch(max(left, 0))


def edges_of(stream):
    pairs = stream.inc.graph.to_edge_index().t().tolist()
    return sorted(map(tuple, pairs))


def case(seed, folder, crashes=4):
    """One seed, held against a world without faults; how often it ended."""
    worlds = []
    for name, faults in (("whole", 0), ("torn", crashes)):
        (folder / name).mkdir()
        world = World(seed, folder / name)
        worlds.append((world, world.run(faults)))
    (plain, expected), (world, found) = worlds
    assert found.position == expected.position == len(world.events)
    assert edges_of(found) == edges_of(expected)
    assert torch.equal(found.inc.x, expected.inc.x)
    assert (found.inc.out - expected.inc.out).abs().max() < 1e-9
    counts = [s.stats.saved() for s in (found, expected)]
    for name in ("events", "applied", "dead", "repeated", "expired"):
        assert counts[0][name] == counts[1][name], name
    assert set(world.letters) == set(plain.letters)
    if not world.power_fails or world.durability == "power":
        (folder / "grouped").mkdir()
        same_alerts(world, World(seed, folder / "grouped"), found.inc.version)
    return world.crashes


def same_alerts(world, grouped, last):
    """A key stands for one change of one row: that of a world without faults in the same groups."""
    grouped.groups = [
        end for entry in world.entries.values() for end in (*entry.parts, entry.position)
        if entry.version <= last
    ]  # fmt: skip
    grouped.run(0)
    expected = {alert[:2]: alert[2:] for alert in grouped.heard}
    assert len(expected) == len(grouped.heard)
    assert {alert[:2] for alert in world.heard} == expected.keys()
    for alert in world.heard:
        rows = torch.tensor([alert[2:], expected[alert[:2]]], dtype=torch.float64)
        assert torch.allclose(*rows, rtol=0.0, atol=1e-9, equal_nan=True), alert[:2]


def prepared_once(prepare):
    """What a call of the model becomes, which no world changes, for any number of them."""
    known = {}

    def prepared(site, roles, settings):
        call = (
            site.model,
            *site.names,
            *roles.nodes.items(),
            *roles.edges.items(),
            settings.backend,
        )
        if call not in known:
            known[call] = prepare(site, roles, settings), site.keeps
        plan, site.keeps = known[call]
        return replace(plan, site=site, roles=replace(plan.roles, num_nodes=roles.num_nodes))

    return prepared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    args = parser.parse_args()
    torch.set_num_threads(1)
    began, crashes = time.perf_counter(), 0
    scene.sage = functools.cache(scene.sage)
    start.prepare = prepared_once(start.prepare)
    for seed in range(args.seed, args.seed + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            try:
                crashes += case(seed, Path(folder))
            except Exception as error:
                told = f"python -m tests.stream.simulate --seeds 1 --seed {seed}"
                raise AssertionError(told) from error
    print(f"simulate ok: seeds={args.seeds} crashes={crashes} lost=0 twice=0 "
          f"seconds={time.perf_counter() - began:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()

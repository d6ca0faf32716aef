"""A stream that ends anywhere goes on as if it had not."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.nn import GraphConv

from pyg_incremental import IncrementalError, to_incremental
from pyg_incremental.errors import StateFileError
from pyg_incremental.sources import IterableSource, SqliteLog
from pyg_incremental.stream import Schema, Stream
from tests.sources.test_logs import Kafka
from tests.stream import scene

SCHEMA = Schema(kind="kind", event_id="id")
EVENTS = [{**event, "id": k % 70} for k, event in enumerate(scene.events(3, 80))]


def opened(folder, heard, letters=None, size=7, **how):
    stream = Stream(
        to_incremental(scene.sage(), backend="reference", check=False),
        IterableSource(EVENTS), SCHEMA, first=scene.graph(), directory=folder, max_size=size,
        dead_letters=None if letters is None else letters.append, **how,
    )  # fmt: skip
    stream.on(lambda alert: heard.append((alert.version, alert.node)), changed=0.0)
    return stream


def left(stream):
    """The end of a process, which writes nothing more."""
    stream._let_go()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without an end on the way."""
    heard, letters = [], []
    with opened(tmp_path_factory.mktemp("whole"), heard, letters) as stream:
        stream.drain()
        out = stream.inc.out.clone()
    return out, heard, [letter.position for letter in letters], stream.stats.saved()


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
@pytest.mark.parametrize("checkpoint", [None, 2, 5])
def test_it_ends_between_two_batches(steps, checkpoint, whole, tmp_path):
    out, heard, letters, stats = whole
    again, dead = [], []
    stream = opened(tmp_path, again, dead)
    for step in range(steps):
        if step == checkpoint:
            stream.checkpoint()
        stream.step()
    left(stream)
    before = [*again]
    # Batches of another size, which go on where those of before were.
    with opened(tmp_path, again, dead, size=5 if steps == 6 else 7) as stream:
        stream.drain()
        assert torch.equal(stream.inc.out, out) or (stream.inc.out - out).abs().max() < 1e-10
        assert stream.inc.verify() < 1e-10
        if steps < 6:
            assert stream.stats.saved() == stats | {"alerts": stream.stats.alerts}
    # At least once, and a repeat has the key of the first.
    assert list(dict.fromkeys(letter.position for letter in dead)) == letters
    if steps < 6:
        assert list(dict.fromkeys(again)) == heard
    else:
        last = max(version for version, _ in before)
        assert {key for key in again[len(before) :] if key[0] <= last} <= {*before}


def test_keys_come_again_with_other_batches_behind(whole, tmp_path):
    again = []
    stream = opened(tmp_path, again, size=7)
    for _ in range(4):
        stream.step()
    first = [*again]
    left(stream)
    stream = opened(tmp_path, again, size=80)
    stream.step()
    stream.step()
    stream.step()
    stream.step()
    assert again[len(first) :] == first
    left(stream)


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_a_torn_journal(cut, whole, tmp_path):
    again = []
    stream = opened(tmp_path, again)
    for _ in range(6):
        stream.step()
    left(stream)
    (file,) = tmp_path.glob("updates-*.jsonl")
    file.write_bytes(file.read_bytes()[:-cut])
    with opened(tmp_path, []) as stream:
        stream.drain()
        assert (stream.inc.out - whole[0]).abs().max() < 1e-10
        assert stream.stats.applied == whole[3]["applied"]


def test_checkpoints_in_the_background(tmp_path, whole):
    with opened(tmp_path, [], checkpoint_events=10) as stream:
        stream.drain()
        assert stream.stats.checkpoints > 4
    assert [f.name for f in sorted(tmp_path.iterdir())] == [
        "state", f"updates-{stream.inc.version}.jsonl",
    ]  # fmt: skip
    assert stream.inc.version == whole[3]["updates"]


def test_a_checkpoint_that_cannot_be_written(tmp_path, whole, monkeypatch):
    stream = opened(tmp_path, [], checkpoint_events=10)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("pyg_incremental.files.saving.save", full)
    with pytest.raises(OSError, match="no space left"):
        stream.drain()
    monkeypatch.undo()
    with stream:
        stream.drain()
        assert (stream.inc.out - whole[0]).abs().max() < 1e-10


def test_a_sink_that_keeps_nothing_keeps_no_checkpoint(tmp_path):
    class Sink:
        def __call__(self, alert):
            pass

        def flush(self):
            raise OSError("the sink is gone")

    stream = opened(tmp_path, [])
    stream.on(Sink(), changed=0.0)
    stream.step()
    with pytest.raises(OSError, match="the sink is gone"):
        stream.checkpoint()
    left(stream)
    stream = opened(tmp_path, [])
    assert stream.position == 0  # they come again
    left(stream)


def test_partitions_come_in_another_order_after_a_restart(tmp_path):
    kafka = Kafka()
    for n, event in enumerate(EVENTS):
        value = json.dumps(event).encode()
        kafka.producer.produce(kafka.topic, value, partition=n % 3 if n < 60 else 0)
    kafka.producer.flush(10)
    heard, letters = [], []

    def begun():
        source = kafka.source(partition=[0, 1, 2], decode=json.loads)
        stream = Stream(
            to_incremental(scene.sage(), backend="reference", check=False), source, SCHEMA,
            first=scene.graph(), directory=tmp_path, max_size=9,
            dead_letters=lambda letter: letters.append((tuple(letter.position), letter.reason)),
        )  # fmt: skip
        stream.on(lambda alert: heard.append((alert.version, alert.node, *alert.new)), changed=0.0)
        return stream

    stream = begun()
    while stream.stats.events < len(EVENTS):
        stream.step()
    out, version, first, dead = stream.inc.out.clone(), stream.inc.version, [*heard], [*letters]
    edges = stream.inc.num_edges
    assert dead
    left(stream)
    heard.clear()
    letters.clear()
    stream = begun()
    while stream.inc.version < version and stream.stats.events < len(EVENTS):
        stream.step()
    assert (stream.inc.version, stream.inc.num_edges) == (version, edges)
    assert (stream.inc.out - out).abs().max() < 1e-10
    assert [key[:2] for key in heard] == [key[:2] for key in first]
    assert letters == dead[: len(letters)]  # the others came after the last update
    left(stream)
    kafka.end()


def test_one_stream_has_a_folder(tmp_path):
    stream = opened(tmp_path, [])
    with pytest.raises(IncrementalError, match="belongs to a stream that runs"):
        opened(tmp_path, [])
    stream.close()
    with opened(tmp_path, []):
        pass
    with pytest.raises(ValueError, match="'process' or 'power'"):
        opened(tmp_path, [], durability="never")
    with pytest.raises(IncrementalError, match="directory="):
        Stream(scene.called(), IterableSource([])).checkpoint()


def test_a_state_of_another_model_is_refused(tmp_path):
    opened(tmp_path, []).close()
    with pytest.raises(StateFileError):
        Stream(scene.sage(1), IterableSource([]), directory=tmp_path)
    opened(tmp_path, []).close()  # the folder was let go


def test_a_log_that_lost_its_end(tmp_path, monkeypatch):
    """As it may be when power is lost, and the log is not as durable as the journal."""
    monkeypatch.setattr("pyg_incremental.stream.runtime._PATIENCE", 0.0)
    log = SqliteLog(tmp_path / "log.db", wait=0)
    edges = [{"src": k, "dst": 0} for k in range(9)]
    log.append(*edges)
    stream = Stream(scene.called(), log, directory=tmp_path / "state", max_size=3)
    before = stream.inc.num_edges
    stream.drain()
    left(stream)
    log._connection.execute("DELETE FROM events WHERE id > 5")
    stream = Stream(scene.sage(), log, directory=tmp_path / "state", max_size=3)
    stream.drain()
    assert stream.inc.num_edges == before + 5
    log.append(*edges[5:])
    stream.drain()
    assert stream.inc.num_edges == before + 9
    assert stream.inc.verify() < 1e-10
    stream.close()
    log.close()


@pytest.mark.parametrize("durability", ["process", "power"])
def test_the_journal_says_where_each_update_ends(durability, tmp_path):
    stream = opened(tmp_path, [], durability=durability)
    stream.step()
    stream.step()
    (file,) = tmp_path.glob("updates-*.jsonl")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert [entry[:2] for entry in entries][-1] == [stream.inc.version, stream.position]
    left(stream)


def test_extra_is_saved_with_a_state(tmp_path):
    inc = scene.called()
    extra = {"position": [1, "a"], "window": {"time": torch.arange(3.0)}}
    inc.save(tmp_path / "state", extra=extra)
    loaded = type(inc).load(tmp_path / "state", inc.model)
    assert loaded.extra["position"] == [1, "a"]
    assert torch.equal(loaded.extra["window"]["time"], torch.arange(3.0))
    inc.apply_delta(edge_index_add=[[1], [2]])
    write = inc.copied()
    inc.apply_delta(edge_index_add=[[1], [2]])
    write(tmp_path / "state")  # what was copied, not what is there now
    inc.restore(tmp_path / "state")
    assert inc.version == 1
    assert inc.extra is None
    assert inc.verify() < 1e-10


class Elsewhere(IterableSource):
    """A source whose positions are no plain values."""

    def __init__(self, made):
        super().__init__([{"src": 1, "dst": 2}])
        self._made, self.is_known = made, True

    def position(self):
        return 0 if self.is_known else self._made(super().position())

    def next_batch(self, max_events):
        batch = super().next_batch(max_events)
        return [event._replace(position=self._made(event.position)) for event in batch]


@pytest.mark.parametrize("made", [lambda n: (n, "x"), np.int64, lambda n: {n: 0}, lambda n: {n}])
def test_a_position_that_cannot_be_kept_is_refused_before_anything_is_taken(tmp_path, made):
    first = torch.ones(4, 3), torch.ones(2, 1, dtype=torch.int64)
    source = Elsewhere(made)
    stream = Stream(GraphConv(3, 2).eval(), source, first=first, directory=tmp_path / "a")
    for _ in range(2):
        with pytest.raises(IncrementalError, match="a plain value as in JSON"):
            stream.step()
    assert stream.inc.version == stream.stats.events == 0
    stream.close()
    source.is_known = False
    with pytest.raises(IncrementalError, match="a plain value as in JSON"):
        Stream(GraphConv(3, 2).eval(), source, first=first, directory=tmp_path / "b")
    assert Stream(GraphConv(3, 2).eval(), Elsewhere(made), first=first).step() == 1

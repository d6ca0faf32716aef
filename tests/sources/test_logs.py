"""Logs of Redis and Kafka are sources as any: the same events from every position."""

import builtins
import uuid

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.encoding.framing import FrameError
from pyg_incremental.sources import IterableSource, KafkaSource, RedisSource
from pyg_incremental.sources.encoded import decoded, encoded
from pyg_incremental.sources.source import num_events

EDGES = [torch.randint(50, (2, k)) for k in (3, 1, 1, 7, 2)]
DELTAS = [
    GraphDelta(edge_index_add=e, edge_data_add={"time": torch.arange(e.shape[1])}) for e in EDGES
]


class Redis:
    """A stream of a server in this process."""

    position = "0-0"

    def __init__(self):
        self.client = pytest.importorskip("fakeredis").FakeRedis()

    def source(self, **how):
        return RedisSource(self.client, "edges", **{"wait": 0.01, **how})

    def write(self, deltas):
        for delta in deltas:
            self.source().write(delta)

    def spoil(self):
        self.client.xadd("edges", {b"delta": b"x"})


class Kafka:
    """A topic of librdkafka's own mock cluster, which lives in the producer."""

    position = -2

    def __init__(self):
        kafka = pytest.importorskip("confluent_kafka")
        config = {"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 2}
        self.producer = kafka.Producer(config)
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self.topic = uuid.uuid4().hex

    def source(self, **how):
        config = {"bootstrap.servers": self.servers, "log_level": 2}
        return KafkaSource(config, self.topic, **{"wait": 10.0, **how})

    def write(self, deltas):
        for delta in deltas:
            self.producer.produce(self.topic, encoded(delta), partition=0)
        self.producer.flush(10)

    def spoil(self):
        self.producer.produce(self.topic, b"x", partition=0)
        self.producer.flush(10)


@pytest.fixture(params=[Redis, Kafka], ids=["redis", "kafka"])
def log(request):
    return request.param()


def sizes(batch):
    return [num_events(event.value) for event in batch]


def same(batch, deltas):
    assert len(batch) == len(deltas)
    for (_, found, error, _), delta in zip(batch, deltas, strict=True):
        assert error is None
        assert torch.equal(found.edge_index_add, delta.edge_index_add)
        assert torch.equal(found.edge_data_add["time"], delta.edge_data_add["time"])


def test_as_any_source(log):
    log.write(DELTAS)
    source = log.source()
    assert source.position() == log.position
    given, places = [], [(0, source.position())]
    while len(given) < len(DELTAS):
        batch = source.next_batch(4)
        # All that are there at once, of a log whose records may still be on their way fewer.
        expected = sizes(IterableSource(DELTAS[len(given) :]).next_batch(4))
        assert batch
        assert sizes(batch) == expected[: len(batch)]
        assert isinstance(log, Kafka) or len(batch) == len(expected)
        given += batch
        places += [(len(given), source.position())]
    same(given, DELTAS)
    for first, at in places[:-1]:
        source.open(at)  # what was read ahead is forgotten
        assert source.position() == at
        same(read(source, len(DELTAS) - first), DELTAS[first:])
    (first, at), (_, last) = places[-2:]
    other = log.source(start=at, wait=10.0 if isinstance(log, Kafka) else 0.01)
    same(read(other, len(DELTAS) - first), DELTAS[first:])
    assert repr(other) == f"{type(other).__name__}(at {last!r})"


def read(source, count):
    """So many deltas, in batches."""
    found = []
    while len(found) < count:
        found += source.next_batch(7)
    return found


def test_nothing_now_and_more_later(log):
    log.write(DELTAS[:1])
    source = log.source()
    same(source.next_batch(10), DELTAS[:1])
    source._wait = 0.01
    assert source.next_batch(10) == []
    before = source.position()
    log.write(DELTAS[1:])
    source._wait = 10.0 if isinstance(log, Kafka) else 0.01
    given = []
    while len(given) < 4:
        given += source.next_batch(10)
    same(given, DELTAS[1:])
    assert source.position() != before


def test_a_record_that_is_no_delta(log):
    log.write(DELTAS[:1])
    log.spoil()
    log.write(DELTAS[1:2])
    source = log.source()
    before, spoiled, behind = read(source, 3)
    same([before, behind], DELTAS[:2])
    assert spoiled.value == b"x"
    assert isinstance(spoiled.error, FrameError)
    source.open(spoiled.position)
    same(source.next_batch(10), DELTAS[1:2])


def test_every_field_goes_there_and_back():
    delta = GraphDelta(
        edge_index_del=[[0, 1], [1, 2]], x_changes=(np.array([3]), torch.ones(1, 2)),
        x_add=torch.zeros(1, 2), nodes_del=[1], undirected=True, missing="ignore", which="oldest",
    )  # fmt: skip
    found = decoded(encoded(delta))
    assert found.edge_index_del == delta.edge_index_del
    assert (found.undirected, found.missing, found.which) == (True, "ignore", "oldest")
    assert np.array_equal(found.x_changes[0], delta.x_changes[0])
    assert torch.equal(found.x_changes[1], delta.x_changes[1])
    assert found.edge_index_add is None
    assert encoded(GraphDelta()) == encoded(decoded(encoded(GraphDelta())))


@pytest.mark.parametrize("data", [b"", b"x" * 7, b"\0" * 64, encoded(GraphDelta())[:-1]])
def test_bytes_that_say_nothing(data):
    with pytest.raises(FrameError):
        decoded(data)


def test_without_confluent_kafka(monkeypatch):
    imported = builtins.__import__

    def without(name, *rest):
        if name == "confluent_kafka":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pyg-incremental\[kafka\]"):
        KafkaSource({}, "edges")

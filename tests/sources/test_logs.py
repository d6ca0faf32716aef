"""Logs of Redis, Kafka, NATS and PostgreSQL are sources as any: the same events from each position.

Servers are those that answer on this machine; tests for which there is none are skipped.
"""

import asyncio
import builtins
import json
import re
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.encoding.framing import FrameError
from pyg_incremental.sources import (
    IterableSource,
    KafkaSource,
    NatsSource,
    PostgresSource,
    RedisSource,
)
from pyg_incremental.sources.encoded import decoded, encoded
from pyg_incremental.sources.event import num_events
from pyg_incremental.sources.json_lines import json_value

EDGES = [torch.randint(50, (2, k)) for k in (3, 1, 1, 7, 2)]
DELTAS = [
    GraphDelta(edge_index_add=e, edge_data_add={"time": torch.arange(e.shape[1])}) for e in EDGES
]


class Redis:
    """A stream of a server in this process."""

    position = "0-0"

    def __init__(self):
        self.client = pytest.importorskip("fakeredis").FakeRedis()

    def end(self):
        self.client.close()

    def source(self, **how):
        return RedisSource(self.client, "edges", **{"wait": 0.01, **how})

    def write(self, deltas):
        for delta in deltas:
            self.source().write(delta)

    def spoil(self):
        self.client.xadd("edges", {b"delta": b"x"})


class RealRedis(Redis):
    """A stream of a server on this machine."""

    def __init__(self):
        redis = pytest.importorskip("redis")
        self.client = redis.Redis(socket_connect_timeout=1.0)
        try:
            self.client.ping()
        except redis.ConnectionError as error:
            pytest.skip(f"no Redis answers on this machine: {error}")
        self.stream = f"pyg-incremental-{uuid.uuid4().hex}"

    def source(self, **how):
        return RedisSource(self.client, self.stream, **{"wait": 0.01, **how})

    def spoil(self):
        self.client.xadd(self.stream, {b"delta": b"x"})

    def end(self):
        self.client.delete(self.stream)
        self.client.close()


class Nats:
    """A stream of JetStream on this machine."""

    position = 0
    servers = "nats://127.0.0.1:4222"

    def __init__(self):
        nats = pytest.importorskip("nats")
        self.stream, self.sources = uuid.uuid4().hex, []
        self.loop = asyncio.new_event_loop()
        try:
            self.client = self.run(nats.connect(
                self.servers, connect_timeout=1, allow_reconnect=False, error_cb=self.told
            ))  # fmt: skip
        except (OSError, nats.errors.Error) as error:
            self.loop.close()
            pytest.skip(f"no NATS answers on this machine: {error}")
        self.js = self.client.jetstream()
        self.run(self.js.add_stream(name=self.stream, subjects=[f"{self.stream}.*"]))

    async def told(self, error):
        """What the client says is raised, too."""

    def run(self, work):
        return self.loop.run_until_complete(work)

    def source(self, **how):
        source = NatsSource(self.servers, self.stream, **{"wait": 2.0, **how})
        self.sources.append(source)
        return source

    def write(self, deltas, subject="a"):
        for delta in deltas:
            self.run(self.js.publish(f"{self.stream}.{subject}", encoded(delta)))

    def spoil(self):
        self.run(self.js.publish(f"{self.stream}.a", b"x"))

    def end(self):
        for source in self.sources:
            source.close()
        self.run(self.js.delete_stream(self.stream))
        self.run(self.client.close())
        self.loop.close()


class Postgres:
    """A table of a server on this machine."""

    position = 0
    how = "host=127.0.0.1 user=postgres dbname=postgres connect_timeout=2"

    def __init__(self):
        psycopg = pytest.importorskip("psycopg")
        self.table, self.sources = f"events-{uuid.uuid4().hex}", []
        try:
            self.client = psycopg.connect(self.how, autocommit=True)
        except psycopg.OperationalError as error:
            pytest.skip(f"no PostgreSQL answers on this machine: {error}")
        self.client.execute(f'CREATE TABLE "{self.table}" (id bigserial PRIMARY KEY, data bytea)')

    def source(self, **how):
        how = {"columns": ["data"], "decode": lambda row: decoded(row["data"]), **how}
        source = PostgresSource(self.how, self.table, **how)
        self.sources.append(source)
        return source

    def insert(self, data, client=None):
        (client or self.client).execute(f'INSERT INTO "{self.table}" (data) VALUES (%s)', (data,))

    def write(self, deltas):
        for delta in deltas:
            self.insert(encoded(delta))

    def spoil(self):
        self.insert(b"x")

    def end(self):
        for source in self.sources:
            source.close()
        self.client.execute(f'DROP TABLE "{self.table}"')
        self.client.close()


class Kafka:
    """A topic of librdkafka's own mock cluster, which lives in the producer."""

    position = -2

    def __init__(self):
        kafka = pytest.importorskip("confluent_kafka")
        config = {"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 2}
        self.producer = kafka.Producer(config)
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self.topic, self.sources = uuid.uuid4().hex, []

    def source(self, **how):
        config = {"bootstrap.servers": self.servers, "log_level": 2, "fetch.wait.max.ms": 10}
        source = KafkaSource(config, self.topic, **{"wait": 10.0, **how})
        self.sources.append(source)
        return source

    def end(self):
        for source in self.sources:
            source.close()

    def write(self, deltas):
        for delta in deltas:
            self.producer.produce(self.topic, encoded(delta), partition=0)
        self.producer.flush(10)

    def spoil(self):
        self.producer.produce(self.topic, b"x", partition=0)
        self.producer.flush(10)


@pytest.fixture(params=[Redis, RealRedis, Kafka, Nats, Postgres], ids=lambda one: one.__name__)
def log(request):
    log = request.param()
    yield log
    log.end()


@pytest.fixture
def postgres():
    log = Postgres()
    yield log
    log.end()


@pytest.fixture
def nats():
    log = Nats()
    yield log
    log.end()


@pytest.fixture
def kafka():
    log = Kafka()
    yield log
    log.end()


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


def test_an_event_has_the_time_at_which_the_log_took_it(log):
    """The same whenever it is read; of a table it is a column as any."""
    if isinstance(log, Postgres):
        pytest.skip("a table has a column for it")
    began = time.time()
    log.write(DELTAS[:2])
    source = log.source(decode=lambda data: {"size": len(data)}, time_field="at")
    (first, second) = read(source, 2)
    assert began - 5.0 < first.value["at"] <= second.value["at"] < time.time() + 5.0
    assert first.value["size"] > 0
    again = log.source(decode=lambda data: {"size": len(data)}, time_field="at")
    assert [event.value for event in read(again, 2)] == [first.value, second.value]


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
    assert spoiled.value in (b"x", {"data": b"x"})
    assert isinstance(spoiled.error, FrameError)
    source.open(spoiled.position)
    same(source.next_batch(10), DELTAS[1:2])


def test_who_writes_to_postgres_at_the_same_time_is_waited_for(postgres):
    import psycopg

    source = postgres.source(wait=0.0, decode=lambda row: row["data"])
    with psycopg.connect(postgres.how) as early, psycopg.connect(postgres.how) as late:
        postgres.insert(b"1", early)  # the smallest key, and the last one to be committed
        postgres.insert(b"2", late)
        postgres.insert(b"3")
        assert source.next_batch(9) == []
        late.commit()
        postgres.insert(b"4", late)  # it goes on writing: it is not waited for again
        assert source.next_batch(9) == []
        early.rollback()
        assert [event.value for event in source.next_batch(9)] == [b"2", b"3"]
        assert source.next_batch(9) == []
        late.commit()
    found = source.next_batch(9)
    assert [event.value for event in found] == [b"4"]
    assert found[-1].position == source.position() == 4


def test_postgres_gives_no_smaller_key_later(postgres):
    postgres.client.execute(f'ALTER SEQUENCE "{postgres.table}_id_seq" CACHE 20')
    with pytest.raises(ValueError, match="gives sessions 20 at a time"):
        postgres.source()
    import psycopg

    with (
        psycopg.connect(postgres.how) as connection,
        pytest.raises(ValueError, match="autocommit=True"),
    ):
        PostgresSource(connection, postgres.table)


def test_the_page_on_postgres_notes_changes_of_another_table(postgres):
    """Its SQL is run as it stands there, in a schema of its own."""
    page = Path("docs/source/how_to/postgres.md").read_text(encoding="utf-8")
    events, trigger = re.findall(r"```postgresql\n(.*?)```", page, re.DOTALL)
    name = postgres.table.replace("-", "_")
    run = postgres.client.execute
    run(f"CREATE SCHEMA {name}")
    try:
        run(f"SET search_path = {name}")
        run(events)
        run("CREATE TABLE transfers (payer bigint, payee bigint)")
        run(trigger)
        run("INSERT INTO transfers VALUES (3, 8), (8, 7)")
        run("UPDATE transfers SET payee = 9 WHERE payer = 3")
        run("DELETE FROM transfers WHERE payer = 8")
        source = PostgresSource(f"{postgres.how} options=-csearch_path={name}", "events")
        found = [(e.value["op"], e.value["src"], e.value["dst"]) for e in source.next_batch(9)]
        source.close()
    finally:
        run(f"DROP SCHEMA {name} CASCADE")
        run("RESET search_path")
    assert found == [("+", 3, 8), ("+", 8, 7), ("-", 3, 8), ("+", 3, 9), ("-", 8, 7)]


def test_postgres_is_connected_to_again(postgres):
    import psycopg

    postgres.write(DELTAS[:2])
    source = postgres.source()
    same(source.next_batch(4), DELTAS[:2])
    pid = source._connection.info.backend_pid
    postgres.client.execute("SELECT pg_terminate_backend(%s)", (pid,))
    postgres.write(DELTAS[2:])
    with pytest.raises(psycopg.OperationalError):
        source.next_batch(1)
    same(read(source, 3), DELTAS[2:])


def test_messages_that_nats_has_forgotten_are_missed(nats):
    nats.write(DELTAS)
    source = nats.source()
    assert sizes(source.next_batch(4)) == [3, 1]
    nats.run(nats.js.purge_stream(nats.stream, seq=4))
    source.open(2)
    with pytest.raises(LookupError, match=r"has messages 4 to 5, and 3 is the next one"):
        source.next_batch(4)
    assert source.position() == 2
    same(nats.source().next_batch(100), DELTAS[3:])  # from the beginning there is


def test_a_consumer_that_nats_has_forgotten_is_made_again(nats):
    nats.write(DELTAS[:2])
    source = nats.source(subject=f"{nats.stream}.a")
    same(source.next_batch(4), DELTAS[:2])
    (consumer,) = nats.run(nats.js.consumers_info(nats.stream))
    nats.run(nats.js.delete_consumer(nats.stream, consumer.name))
    nats.write(DELTAS[2:3], "b")  # another subject
    nats.write(DELTAS[3:])
    same(read(source, 2), DELTAS[3:])
    assert source.position() == 5
    with pytest.raises(Exception, match="stream not found"):
        NatsSource(nats.servers, "nowhere")


def test_several_partitions_of_kafka(kafka):
    kafka.producer.list_topics(kafka.topic, timeout=10)
    for k in range(40):
        kafka.producer.produce(kafka.topic, str(k).encode(), partition=k % 3)
    kafka.producer.flush(10)
    how = {"decode": int, "partition": [0, 1, 2]}
    source = kafka.source(**how)
    groups = []
    while sum(map(len, groups)) < 40:
        groups.append(source.next_batch(7))
    values = [event.value for group in groups for event in group]
    assert sorted(values) == [*range(40)]
    for n in range(3):  # each partition in its order
        own = [value for value in values if value % 3 == n]
        assert own == sorted(own)
    assert source.position() == groups[-1][-1].position == [14, 13, 13]
    again = kafka.source(start=groups[0][-1].position, **how)
    for n, group in enumerate(
        groups[1:]
    ):  # the same groups, in the same order, whatever comes first
        if n == 2:
            again.open(groups[n][-1].position)
            half = again.next_until(group[3].position)
            assert half == group[:4]
            group = group[4:]  # what was not taken of it
        assert again.next_until(group[-1].position) == group
    assert again.position() == [14, 13, 13]
    again._wait = 0.01
    assert again.next_until([14, 14, 13]) == []  # it is not there yet
    assert again.position() == [14, 13, 13]
    everything = kafka.source(decode=int, partition=None)
    assert everything.position() == [-2] * len(everything.position())
    assert {e.value for e in read(everything, 40)} == {*range(40)}
    config = {"bootstrap.servers": kafka.servers, "allow.auto.create.topics": False}
    with pytest.raises(LookupError, match="there is no topic"):
        KafkaSource(config, "nowhere", partition=None)


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


LINES = [
    b'{"a": 1}\n', b" [1, 2]\r\n", b'\xef\xbb\xbf{"a": 2}\n', b'{"a": 1} x', b"", b"nul",
    b'{"a": NaN}', '{"a": "\u00fc"}'.encode(), '{"a": "\u00fc"}'.encode("latin1"),
    '{"a": 1}'.encode("utf-16"), b'{"a": 1}\xc2\xa0', b'\x0c{"a": 1}',
    b'{"a": "\xed\xa0\x80"}', b"1" * 5000, b'{"a": 1, "a": 2}',
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_what_json_says(line):
    def by(loads):
        try:
            return repr(loads(line))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    assert by(json_value) == by(json.loads)

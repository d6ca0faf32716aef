"""Alerts on servers: each comes at least once, with a key that shows a repeat."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Alert, DeadLetter, KafkaSink, RedisSink, Stream, Webhook
from tests.sources.test_logs import Kafka
from tests.stream import scene

EVENTS = [{"src": k % 12, "dst": k % 5} for k in range(12)]
RECORDS = [
    Alert(3, 7, "crossed", 0.1, 0.9, 12),
    DeadLetter(13, {"src": 1}, "there is no field 'dst'"),
    Alert(4, "anna", "flipped", 0, 1, 14),
]
KEYS = ["3/crossed/7", "13", "4/flipped/anna"]


class Address:
    """An address on this machine that refuses some requests."""

    def __init__(self):
        self.refused, self.found = 0, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.refused -= 1
                if outer.refused < 0:
                    outer.found.append((self.headers["Idempotency-Key"], json.loads(body)))
                self.send_response(204 if outer.refused < 0 else 503)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def sink(self):
        return Webhook(f"http://127.0.0.1:{self.server.server_port}/alerts")

    def fail(self, count):
        self.refused = count

    def all(self):
        return self.found

    def end(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Redis:
    def __init__(self):
        self.client = pytest.importorskip("fakeredis").FakeRedis()
        self.refused, self.append = 0, self.client.xadd
        self.client.xadd = self.xadd

    def xadd(self, *args):
        self.refused -= 1
        if self.refused >= 0:
            raise ConnectionError("gone")
        return self.append(*args)

    def sink(self):
        return RedisSink(self.client, "alerts")

    def fail(self, count):
        self.refused = count

    def all(self):
        rows = [fields for _, fields in self.client.xrange("alerts")]
        return [(row[b"key"].decode(), json.loads(row[b"data"])) for row in rows]

    def end(self):
        self.client.close()


@pytest.fixture(params=[Address, Redis], ids=lambda one: one.__name__)
def server(request):
    server = request.param()
    yield server
    server.end()


def test_what_a_server_refuses_comes_later_and_in_order(server):
    sink = server.sink()
    sink(RECORDS[0])
    server.fail(2)
    for record in RECORDS[1:]:
        with pytest.raises(Exception, match=r"gone|503"):
            sink(record)
    assert [key for key, _ in server.all()] == KEYS[:1]
    sink.flush()
    assert [key for key, _ in server.all()] == KEYS
    assert [data for _, data in server.all()] == [dict(r._asdict()) for r in RECORDS]


def test_no_checkpoint_without_the_alerts(server, tmp_path):
    with Stream(scene.called(), IterableSource(EVENTS), directory=tmp_path, max_size=4) as stream:
        watch = stream.on(server.sink(), changed=0.0)
        server.fail(10**6)
        stream.drain()
        assert watch.failed == watch.given > 0
        with pytest.raises(Exception, match=r"gone|503"):
            stream.checkpoint()
        server.fail(0)
    assert len(server.all()) == watch.given
    assert len({key for key, _ in server.all()}) == watch.given


def test_alerts_in_a_topic_of_kafka():
    kafka = Kafka()
    sink = KafkaSink(kafka.producer, kafka.topic)
    for record in RECORDS:
        sink(record)
    sink.flush()
    source = kafka.source(partition=None, decode=json.loads)
    found = []
    while len(found) < 3:
        found += source.next_batch(9)
    assert sorted(e.value["position"] for e in found) == [12, 13, 14]
    kafka.end()


class Refuses:
    """A producer of which the cluster takes nothing at first."""

    def __init__(self):
        self.refused, self.taken, self.told = 3, [], []

    def produce(self, topic, value, key, on_delivery):
        self.refused -= 1
        if self.refused == 1:
            raise BufferError("full")
        self.told.append((on_delivery, "down" if self.refused >= 0 else None))
        if self.refused < 0:
            self.taken.append(key)

    def poll(self, _):
        return self.flush(0)

    def flush(self, _):
        told, self.told = self.told, []
        for on_delivery, error in told:
            on_delivery(error, None)
        return 0


def test_what_the_cluster_does_not_take_is_sent_again():
    producer = Refuses()
    sink = KafkaSink(producer, "alerts")
    sink(RECORDS[0])
    with pytest.raises(BufferError):
        sink(RECORDS[1])
    with pytest.raises(OSError, match="1 records are not in 'alerts'"):
        sink.flush()
    sink.flush()
    assert sorted(producer.taken) == sorted(KEYS[:2])


def test_what_is_no_address():
    with pytest.raises(ValueError, match="http"):
        Webhook("file:///etc/hosts")

"""Where events come from; the streams of `pyg_incremental.stream` and the service read them."""

from pyg_incremental.sources.asynchronous import AsyncSource
from pyg_incremental.sources.encoded import decoded, encoded
from pyg_incremental.sources.event import Event, Events
from pyg_incremental.sources.json_lines import JsonLinesSource
from pyg_incremental.sources.kafka import KafkaSource
from pyg_incremental.sources.nats import NatsSource
from pyg_incremental.sources.postgres import PostgresSource
from pyg_incremental.sources.queue import QueueSource
from pyg_incremental.sources.redis_streams import RedisSource
from pyg_incremental.sources.source import IterableSource, Source
from pyg_incremental.sources.sqlite import SqliteLog, SqliteSource
from pyg_incremental.sources.table import TableSource

__all__ = [
    "AsyncSource",
    "Event",
    "Events",
    "IterableSource",
    "JsonLinesSource",
    "KafkaSource",
    "NatsSource",
    "PostgresSource",
    "QueueSource",
    "RedisSource",
    "Source",
    "SqliteLog",
    "SqliteSource",
    "TableSource",
    "decoded",
    "encoded",
]

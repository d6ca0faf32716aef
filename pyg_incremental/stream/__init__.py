"""A runtime for streams: events in, exact answers and alerts out, nothing lost."""

from pyg_incremental.stream.alerts import Alert, Watch
from pyg_incremental.stream.feature import Feature
from pyg_incremental.stream.runtime import Stream
from pyg_incremental.stream.schema import HeteroSchema, Schema
from pyg_incremental.stream.servers import KafkaSink, RedisSink, Webhook
from pyg_incremental.stream.sinks import DeadLetter, JsonLines
from pyg_incremental.stream.stats import StreamStats
from pyg_incremental.stream.why import Why
from pyg_incremental.stream.window import Window

__all__ = [
    "Alert",
    "DeadLetter",
    "Feature",
    "HeteroSchema",
    "JsonLines",
    "KafkaSink",
    "RedisSink",
    "Schema",
    "Stream",
    "StreamStats",
    "Watch",
    "Webhook",
    "Why",
    "Window",
]

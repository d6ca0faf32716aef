"""Samples kept by events in several processes: some sample, some serve; each kind scales alone."""

from pyg_incremental.sampling.workers.encoded import decoded, encoded
from pyg_incremental.sampling.workers.kafka import KafkaSource
from pyg_incremental.sampling.workers.redis_streams import RedisSource
from pyg_incremental.sampling.workers.results import ServiceStats, Step
from pyg_incremental.sampling.workers.service import SampleService
from pyg_incremental.sampling.workers.source import IterableSource, Source

__all__ = [
    "IterableSource",
    "KafkaSource",
    "RedisSource",
    "SampleService",
    "ServiceStats",
    "Source",
    "Step",
    "decoded",
    "encoded",
]

"""Neighbour samples kept ready by events, for models that are served on samples."""

from pyg_incremental.sampling.cache import CacheStats, SampleCache
from pyg_incremental.sampling.model import SampledModel
from pyg_incremental.sampling.recent import RecentNeighbors
from pyg_incremental.sampling.sampler import SampleUpdate, StreamingSampler

__all__ = [
    "CacheStats",
    "RecentNeighbors",
    "SampleCache",
    "SampleUpdate",
    "SampledModel",
    "StreamingSampler",
]

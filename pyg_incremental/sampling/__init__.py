"""Neighbour samples kept ready by events, for models that are served on samples."""

from pyg_incremental.sampling.cache import CacheStats, SampleCache
from pyg_incremental.sampling.sampler import SampleUpdate, StreamingSampler

__all__ = ["CacheStats", "SampleCache", "SampleUpdate", "StreamingSampler"]

"""Neighbour samples kept ready by events, for models that are served on samples."""

from pyg_incremental.sampling.sampler import SampleUpdate, StreamingSampler

__all__ = ["SampleUpdate", "StreamingSampler"]

"""Samples kept by events in several processes: some sample, some serve; each kind scales alone."""

from pyg_incremental.sampling.workers.results import ServiceStats, ServiceStep
from pyg_incremental.sampling.workers.service import SampleService

__all__ = ["SampleService", "ServiceStats", "ServiceStep"]

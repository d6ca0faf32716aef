"""Small updates in one call of compiled code, instead of step by step."""

from pyg_incremental.fused.run import FastPath

__all__ = ["FastPath"]

"""Small updates in one call of compiled code, instead of step by step."""

from pyg_incremental.fast_path.run import FastPath

__all__ = ["FastPath"]

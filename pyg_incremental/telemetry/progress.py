"""Bars for what takes long."""

from typing import Any

PATIENCE = 1.0
"""Seconds that a first pass may take before it shows a bar."""


def shown(progress: bool, **options: Any) -> Any:
    """A bar on a terminal, and none elsewhere; see `tqdm`.

    Args:
        progress: Whether there is to be one.
        **options: Of `tqdm`.
    """
    from tqdm import tqdm  # torch_geometric brings it

    return tqdm(disable=None if progress else True, **options)

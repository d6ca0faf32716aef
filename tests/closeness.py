"""What it means that two outputs agree."""

import math

import torch

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def tensors_of(output):
    """The tensors of an output in a fixed order (a model may return several)."""
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, dict):
        return [tensor for value in output.values() for tensor in tensors_of(value)]
    return [tensor for value in output for tensor in tensors_of(value)]


def assert_close(got, want, tolerance=None, what="output"):
    """Same shape and dtype, NaN and infinities in the same places, the rest within tolerance.

    The tolerance is relative to max(1, |value|).
    """
    assert len(tensors_of(got)) == len(tensors_of(want)), what
    for g, w in zip(tensors_of(got), tensors_of(want), strict=True):
        assert g.shape == w.shape, f"{what}: shape {tuple(g.shape)}, expected {tuple(w.shape)}"
        assert g.dtype == w.dtype, f"{what}: dtype {g.dtype}, expected {w.dtype}"
        if w.dtype == torch.bool:
            g, w = g.double(), w.double()
        limit = TOLERANCE[w.dtype] if tolerance is None else tolerance
        finite = w.isfinite()
        same = (g == w) | (g.isnan() & w.isnan())
        near = finite & ((g - w).abs() <= limit * w.abs().clamp(min=1))
        wrong = ~(same | near)
        if wrong.any():
            at = wrong.nonzero()
            first = tuple(at[0].tolist())
            rows = sorted(set(at[:, 0].tolist()))
            worst = (g - w)[wrong].abs().max().item()
            raise AssertionError(
                f"{what}: {len(rows)} of {len(g)} rows differ (rows {rows[:8]}), the largest "
                f"difference is {worst:.3g}; at {first}: {g[first].item()}, expected "
                f"{w[first].item()}"
            )


def rows_that_differ(before, after):
    """Ids of rows whose value is not the same (NaN equals NaN); rows that are new differ."""
    common = min(len(before), len(after))
    old, new = before[:common], after[:common]
    differs = ~((old == new) | (old.isnan() & new.isnan()))
    rows = differs.reshape(common, math.prod(after.shape[1:])).any(1).nonzero().view(-1)
    return rows.tolist() + list(range(common, len(after)))

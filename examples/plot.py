"""The plot of the quickstart: time per update against full passes, and the rows that changed."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")  # a picture for a file, no window
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

if TYPE_CHECKING:
    from quickstart import Record

BLUE, RED, GREY = "#1f5fa8", "#c2410c", "#6b7280"


def plot_stream(record: Record, title: str, path: str) -> None:
    """Save the plot of one stream as a PNG file."""
    steps = range(1, len(record.update_ms) + 1)
    update, full = median(record.update_ms), median(record.full_ms)
    figure, (top, bottom) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 5.6), height_ratios=[3, 2], layout="constrained"
    )
    top.plot(
        record.full_at,
        record.full_ms,
        "o-",
        color=RED,
        markersize=5,
        label=f"full pass, plain PyG (median {full:.2f} ms)",
    )
    top.plot(
        steps,
        record.update_ms,
        ".",
        color=BLUE,
        markersize=4,
        alpha=0.7,
        label=f"apply_delta (median {update:.2f} ms)",
    )
    top.set_ylabel("time [ms]")
    top.set_title(f"{title} (speed-up {full / update:.1f})", loc="left", pad=26)

    bottom.plot(steps, record.total, color=GREY, label="all rows")
    bottom.plot(
        steps, record.changed, ".", color=BLUE, markersize=4, alpha=0.7, label="rows that changed"
    )
    bottom.set_ylabel("rows of the output")
    bottom.set_xlabel("update")
    bottom.set_xlim(0, len(steps) + 1)
    for axes in (top, bottom):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(True, which="major", alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, markerscale=2)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)

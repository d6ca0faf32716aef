"""The plots of the examples: time per update against other ways, and the rows that changed."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")  # a picture for a file, no window
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

if TYPE_CHECKING:
    from large_graph import Comparison
    from matplotlib.axes import Axes
    from quickstart import Record

BLUE, RED, GREY = "#1f5fa8", "#c2410c", "#6b7280"


def plot_scenes(record: Record, large: Comparison, title: str, accuracy: float, path: str) -> None:
    """Save the plot of both scenes as a PNG file; `accuracy` is that of nodes that arrived."""
    figure = plt.figure(figsize=(13, 5.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[6, 8], wspace=0.04)
    _plot_changes(large, left.subplots())
    title = f"{title}: accuracy {accuracy:.3f} on nodes that arrived"
    _plot_stream(record, title, *right.subplots(2, 1, sharex=True, height_ratios=[3, 2]))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def plot_work(
    axes: Axes,
    total: list[int],
    changed: list[int],
    update_ms: list[float],
    full_ms: list[float],
    names: tuple[str, str],
) -> None:
    """Rows that each update of a stream changed, beside all rows there are.

    Args:
        axes: Where to plot.
        total: How many rows there are after each update.
        changed: How many of them it changed.
        update_ms: How long it took.
        full_ms: How long some full passes took.
        names: What all rows are called, and those that changed.
    """
    update, full = median(update_ms), median(full_ms)
    took = f"update {update:.2f} ms, full pass {full:.1f} ms"
    axes.plot(total, color=GREY, label=names[0])
    axes.plot(changed, ".", color=BLUE, markersize=4, alpha=0.7, label=f"{names[1]} ({took})")
    axes.set_yscale("log")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("rows of the output")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, markerscale=2)
    tidy(axes)


def tidy(axes: Axes) -> None:
    """A light grid, and no frame."""
    axes.grid(True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _plot_stream(record: Record, title: str, top: Axes, bottom: Axes) -> None:
    """The second scene: time per update, and the rows that changed."""
    steps = range(1, len(record.update_ms) + 1)
    update, full = median(record.update_ms), median(record.full_ms)
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
    top.set_title(title, loc="left", pad=26)

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


def _plot_changes(large: Comparison, axes: Axes) -> None:
    """The first scene: a change of each kind beside a subgraph and a full pass."""
    kinds = [kind for kind in large.update_ms if large.update_ms[kind]]
    full = median(large.full_ms)
    axes.axvline(full, color=RED, linewidth=2, label=f"full pass ({full:,.0f} ms)")
    for y, kind in enumerate(reversed(kinds)):
        update, k_hop = median(large.update_ms[kind]), median(large.k_hop_ms[kind])
        axes.plot([update, full], [y, y], color=GREY, alpha=0.4, linewidth=1)
        label = y == 0
        axes.plot(k_hop, y, "D", color=GREY, label="k-hop subgraph" if label else None)
        axes.plot(update, y, "o", color=BLUE, ms=9, label="apply_delta" if label else None)
        axes.annotate(
            f"{update:.2f} ms, {median(large.rows[kind]):,.0f} rows, {full / update:,.0f} x faster",
            (update, y), xytext=(0, 9), textcoords="offset points", fontsize=8.5, color=BLUE,
        )  # fmt: skip
    axes.set_yticks(range(len(kinds)), list(reversed(kinds)))
    axes.set_ylim(-0.6, len(kinds) + 0.3)
    axes.set_xscale("log")
    axes.set_xlabel(f"time [ms], {large.backend} kernels")
    axes.set_title(f"{large.nodes:,} nodes, {large.edges:,} edges", loc="left", pad=26)
    axes.grid(True, axis="x", which="major", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", frameon=False, fontsize=9, ncols=2)

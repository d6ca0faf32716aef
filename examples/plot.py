"""The plots of the examples: time per update against other ways, and what the output is worth."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")  # a picture for a file, no window
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

if TYPE_CHECKING:
    from large_graph import Comparison
    from matplotlib.axes import Axes
    from quickstart import Record
    from torch import Tensor

BLUE, RED, GREY = "#1f5fa8", "#c2410c", "#6b7280"
SHOWN = 12
"""How many arrived nodes are shown."""


def plot_scenes(
    record: Record, large: Comparison, title: str, images: list[tuple[Tensor, int]], path: str
) -> None:
    """Save the plot of both scenes as a PNG file.

    Args:
        record: What the stream of the second scene measured.
        large: The first scene.
        title: What the second scene is of.
        images: The nodes that arrived there, `[height, width]`, and the class that each has now.
        path: The file.
    """
    figure = plt.figure(figsize=(14, 7), layout="constrained")
    every = [ms for took in large.update_ms.values() for ms in took]
    figure.suptitle(
        f"A graph changes, its predictions stay exact: {_said(median(every))} a change, "
        f"not {_said(median(large.full_ms))}",
        fontsize=17, fontweight="bold", x=0.012, ha="left",
    )  # fmt: skip
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1], wspace=0.05)
    _plot_changes(large, left.subplots())
    heights = [1.1, 3, 2] if images else [0.01, 3, 2]
    strip, *axes = right.subplots(3, 1, height_ratios=heights)
    strip.set_axis_off()
    _plot_images(strip, images[-SHOWN:])
    _plot_stream(record, title, *axes)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def _said(ms: float) -> str:
    """A time in the unit in which it is easy to say."""
    if ms < 0.1:
        return f"{1000 * ms:.0f} µs"
    number, unit = (ms, "ms") if ms < 1000 else (ms / 1000, "s")
    return f"{number:.2g} {unit}" if number < 10 else f"{number:,.0f} {unit}"


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


def _plot_images(strip: Axes, images: list[tuple[Tensor, int]]) -> None:
    """Nodes that arrived, with the classes that they have, from the left to the right."""
    for n, (image, label) in enumerate(images):
        place = strip.inset_axes((n / SHOWN, 0.1, 0.9 / SHOWN, 0.75))
        place.imshow(image.numpy(), cmap="gray_r")
        place.set_axis_off()
        place.set_title(str(label), color=BLUE, fontsize=13, fontweight="bold", pad=3)
    if images:
        strip.set_title("the last nodes that arrived, and their classes", loc="left", pad=14)


def _plot_stream(record: Record, title: str, top: Axes, bottom: Axes) -> None:
    """The second scene: how good the output is, and how far it is from a full pass."""
    steps, at = range(1, len(record.accuracy) + 1), record.full_at
    top.plot(steps, record.accuracy, color=BLUE, linewidth=2, label="kept current by apply_delta")
    top.plot(at, record.full_accuracy, "o", mfc="none", mec=RED, ms=8, label="by full passes")
    top.set_ylabel("accuracy")
    top.set_title(f"{title}: nodes that arrived, after each change", loc="left", pad=26)
    seen = [value for value in record.accuracy[len(steps) // 10 :] if value == value]
    top.set_ylim(min([*seen, 0.95]) - 0.02, 1.005)

    shown = [max(value, 1e-9) for value in record.differences]
    bottom.plot(at, shown, "o-", color=GREY, markersize=5)
    bottom.axhspan(1e-9, 1e-5, color=BLUE, alpha=0.08, linewidth=0)
    bottom.text(at[0], 2e-9, "rounding of float32", color=BLUE, fontsize=9)
    bottom.set_yscale("log")
    bottom.set_ylim(1e-9, 1)
    bottom.yaxis.set_minor_formatter(NullFormatter())
    bottom.set_ylabel("largest difference")
    bottom.set_title("difference to a full pass of the original model", loc="left")
    bottom.set_xlabel("changes so far")
    for axes in (top, bottom):
        axes.set_xlim(0, len(steps) + 1)
        tidy(axes)
    top.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)


def _plot_changes(large: Comparison, axes: Axes) -> None:
    """The first scene: a change of each kind beside a subgraph and a full pass."""
    kinds = [kind for kind in large.update_ms if large.update_ms[kind]]
    full = median(large.full_ms)
    axes.axvline(full, color=RED, linewidth=2.5, label=f"full pass ({_said(full)})")
    for y, kind in enumerate(reversed(kinds)):
        update, k_hop = median(large.update_ms[kind]), median(large.k_hop_ms[kind])
        axes.plot([update, full], [y, y], color=BLUE, alpha=0.25, lw=9, solid_capstyle="butt")
        label = y == 0
        axes.plot(
            k_hop, y, "D", color=GREY, ms=7, label="pass on a k-hop subgraph" if label else None
        )
        axes.plot(update, y, "o", color=BLUE, ms=12, label="apply_delta" if label else None)
        rows = median(large.rows[kind])
        axes.annotate(
            f"{_said(update)}: {full / update:,.0f} x faster, {rows:,.0f} rows changed",
            (update, y), xytext=(0, 12), textcoords="offset points", fontsize=10.5, color=BLUE,
        )  # fmt: skip
    axes.set_yticks(range(len(kinds)), list(reversed(kinds)), fontsize=11.5)
    axes.set_ylim(-0.6, len(kinds) - 0.2)
    axes.set_xscale("log")
    axes.set_xlim(right=full * 4)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: _said(ms)))
    axes.set_xlabel(f"time of one change, one thread, {large.backend} kernels")
    axes.set_title(
        f"a graph of {large.nodes:,} nodes and {large.edges:,} edges", loc="left", pad=26
    )
    axes.grid(True, axis="x", which="major", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, ncols=3, columnspacing=1)

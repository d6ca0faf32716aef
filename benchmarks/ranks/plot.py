"""The figure of `weak-scaling`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.report import Row

mpl.use("Agg")
COLORS = {"grow": "#0b6e99", "stay": "#d1741f"}


def draw(result: Row, folder: Path) -> Path:
    """Work, bytes, and times of the assumed machine over the number of ranks; returns the path."""
    options = result["options"]
    names = {
        "grow": f"batches grow: {options['batch_per_rank']:,} changes per rank",
        "stay": f"batches stay: {options['batch']:,} changes",
    }
    figure, grid = plt.subplots(2, 2, figsize=(9.5, 7), layout="constrained")
    work, sent, times, speedup = grid.flat
    ranks = sorted({row["ranks"] for row in result["results"]})
    for mode, color in COLORS.items():
        rows = [row for row in result["results"] if row["batches"] == mode]
        several = [row for row in rows if row["ranks"] > 1]
        _line(work, rows, "edges, mean", color, "-", f"{names[mode]}; mean of the ranks")
        _line(work, rows, "edges, most", color, ":", f"{names[mode]}; busiest rank")
        _line(sent, several, "MB sent, mean", color, "-", "")
        _line(sent, several, "MB sent or received, most", color, ":", "")
        _line(times, rows, "computing ms", color, "-", f"batches {mode}: computing")
        _line(times, several, "network ms", color, "--", f"batches {mode}: network")
        _line(speedup, rows, "speedup", color, "-" if mode == "grow" else "--", f"batches {mode}")
    speedup.plot(ranks, ranks, "--", color="0.6", linewidth=1, label="as many times as ranks")
    work.set_title("counted: edges along which changes arrive, per rank and update")
    sent.set_title("counted: MB of changed rows sent, per rank and update")
    times.set_title("assumed machine: milliseconds per update")
    speedup.set_title("assumed machine: times as fast as one rank with the same deltas")
    times.legend(fontsize=8)
    speedup.legend(fontsize=8)
    for panel in grid.flat:
        _axes(panel, ranks)
    last = result["results"][-1]
    figure.suptitle(
        f"GraphSAGE, {options['layers']} layers, {options['hidden']} channels, on a drawn graph of "
        f"the size of {options['graph']}: {result['nodes']:,} nodes, {result['edges']:,} edges,\n"
        f"{result['method'].upper()} ({100 * last['edge cut']:.0f} % of the edges cut at "
        f"{last['ranks']} parts). Assumed: {options['gbit']:g} Gbit/s, "
        f"{options['latency_us']:g} µs, {options['memory_gb']:g} GB/s, "
        f"{options['gflops']:g} Gflop/s a rank",
        fontsize=9.5,
    )
    handles, labels = work.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    path = folder / "weak_scaling.png"
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path


def _line(panel: Any, rows: list[Row], name: str, color: str, style: str, label: str) -> None:
    at = [row["ranks"] for row in rows], [row[name] for row in rows]
    panel.plot(*at, marker="o", markersize=3.5, color=color, linestyle=style, label=label)


def _axes(panel: Any, ranks: list[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(ranks, [str(r) for r in ranks])
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(_short))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("ranks", fontsize=9)
    panel.title.set_fontsize(9)
    panel.tick_params(labelsize=8)
    panel.grid(alpha=0.3)


def _short(value: float, _: int) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"

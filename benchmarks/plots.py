"""Two figures of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import TwoSlopeNorm

from benchmarks.peers import OURS, PEERS
from benchmarks.report import Row, groups

mpl.use("Agg")
COLORS = dict(zip(PEERS, plt.get_cmap("tab20").colors, strict=False)) | {OURS: (0.0, 0.0, 0.0)}


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """Write the figures; returns their paths."""
    written = []
    for workload in dict.fromkeys(row["workload"] for row in rows):
        some = [row for row in rows if row["workload"] == workload]
        for kind, figure in (("times", _times(some)), ("ratios", _ratios(some))):
            path = folder / f"{workload}-{kind}.png"
            figure.savefig(path, dpi=130)
            plt.close(figure)
            written.append(path)
    return written


def _times(rows: list[Row]) -> Any:
    """Median time of an update over the number of changes in it, one panel per model."""
    figure, panels = _panels(rows, share=True)
    drawn: dict[str, Any] = {}
    for panel, (cell, some) in zip(panels, groups(rows).items(), strict=True):
        places = _places(some)
        for program in dict.fromkeys(str(row["program"]) for row in some):
            mine = [row for row in some if row["program"] == program]
            drawn[program] = panel.plot(
                [places[row["batch"]] for row in mine],
                [row["p50_ms"] for row in mine],
                marker="o", markersize=3, color=COLORS[program],
                linewidth=2.4 if program == OURS else 1.2, zorder=3 if program == OURS else 2,
            )[0]  # fmt: skip
        panel.set_yscale("log")
        panel.set_xticks(list(places.values()), [_tick(batch) for batch in places])
        panel.set_title(_title(cell), fontsize=10)
        panel.grid(alpha=0.3)
        panel.set_xlabel("changes in one delta", fontsize=9)
    figure.supylabel("milliseconds per delta (median)", fontsize=10)
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _ratios(rows: list[Row]) -> Any:
    """How many times longer each program takes than this package."""
    figure, panels = _panels([row for row in rows if "p50_ratio" in row], share=False)
    for panel, (cell, some) in zip(panels, groups(rows).items(), strict=True):
        places = _places(some)
        programs = [p for p in dict.fromkeys(row["program"] for row in some) if p != OURS]
        table = np.full((len(programs), len(places)), np.nan)
        for row in some:
            if row["program"] != OURS:
                table[programs.index(row["program"]), places[row["batch"]]] = row["p50_ratio"]
        norm = TwoSlopeNorm(vcenter=0, vmin=-1.5, vmax=5)
        panel.imshow(np.log10(table), cmap="RdBu", norm=norm, aspect="auto")
        for (y, x), ratio in np.ndenumerate(table):
            if not np.isnan(ratio):
                text = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
                ink = "white" if ratio > 2000 or ratio < 0.1 else "black"
                panel.text(x, y, text, ha="center", va="center", fontsize=7, color=ink)
        panel.set_xticks(list(places.values()), [_tick(batch) for batch in places])
        panel.set_yticks(range(len(programs)), programs, fontsize=8)
        panel.set_title(_title(cell), fontsize=10)
        panel.set_xlabel("changes in one delta", fontsize=9)
    figure.suptitle(f"time / that of {OURS}\n(red, below 1: the package loses)", fontsize=11)
    return figure


def _panels(rows: list[Row], share: bool) -> tuple[Any, list[Any]]:
    count = len(groups(rows))
    columns = min(3, count)
    lines = -(-count // columns)
    figure, panels = plt.subplots(
        lines, columns, figsize=(5 * columns, 3.2 * lines + 1.2), squeeze=False, sharey=share,
        layout="constrained",
    )  # fmt: skip
    for panel in panels.flat[count:]:
        panel.set_visible(False)
    return figure, list(panels.flat[:count])


def _places(rows: list[Row]) -> dict[object, int]:
    return {batch: at for at, batch in enumerate(dict.fromkeys(row["batch"] for row in rows))}


def _tick(batch: object) -> str:
    return f"{batch:,}" if isinstance(batch, int) else "all\nnodes"


def _title(cell: tuple[object, ...]) -> str:
    _, model, layers = cell
    return f"{model}, {layers} layers"

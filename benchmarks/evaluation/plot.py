"""The figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.report import Row

mpl.use("Agg")
COLORS = {
    "given": "0.75", "random": "0.5", "degree": "#b79f00", "rabbit": "#8b5fbf", "rcm": "#d1741f",
    "communities": "#0b6e99",
}  # fmt: skip


def draw_orders(rows: list[Row], folder: Path) -> Path:
    """How often each row is read in a layer, by graph and order; returns the path."""
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    orders = [o for o in COLORS if any(row["order"] == o for row in rows)]
    figure, panel = plt.subplots(figsize=(1.5 * len(graphs) + 2.5, 4), layout="constrained")
    width = 0.8 / len(orders)
    for i, order in enumerate(orders):
        mine = {row["graph"]: row for row in rows if row["order"] == order}
        at = np.arange(len(graphs)) + (i - (len(orders) - 1) / 2) * width
        heights = [mine[g]["read"] for g in graphs]
        panel.bar(at, heights, width, color=COLORS[order], label=order)
        for x, g in zip(at, graphs, strict=True):
            saved = mine[g].get("saved_of_given")
            if order in ("rcm", "communities") and saved is not None:
                panel.text(x, mine[g]["read"], f"{-100 * saved:+.0f} %", ha="center", va="bottom",
                           fontsize=6, rotation=90)  # fmt: skip
    panel.set_xticks(range(len(graphs)), graphs, fontsize=8)
    panel.set_ylabel("times each row is read in a layer")
    panel.set_title("Rows read by all blocks; percentages against the order as given", fontsize=10)
    panel.legend(fontsize=8, ncols=len(orders), frameon=False)
    panel.margins(y=0.15)
    panel.spines[["top", "right"]].set_visible(False)
    path = folder / "orders.png"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def draw_partial(rows: list[Row], folder: Path) -> Path:
    """Seconds over the part of the nodes that is asked for, both on logarithmic axes."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, panels = plt.subplots(
        1, len(models), figsize=(3.6 * len(models), 3.2), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for panel, model in zip(panels.flat, models, strict=True):
        mine = [row for row in rows if row["model"] == model]
        parts = [100 * row["part"] for row in mine]
        for key, label, color in (
            ("node_wise_s", "node-wise (extrapolated)", "#d1741f"),
            ("evaluate_s", "layer-wise", "#0b6e99"),
        ):
            panel.plot(parts, [row[key] for row in mine], "o-", color=color, label=label)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(model, fontsize=10)
        panel.set_xlabel("% of the nodes", fontsize=9)
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("seconds")
    panels[0, 0].legend(fontsize=8)
    path = folder / "partial.png"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path

"""Draw the chart and the moving picture of the README: `python docs/pictures.py`.

The chart is of the figures in one_change.json. The moving picture is a run: a small
graph, a GCN, and the rows that each change really changed.
"""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.spatial import cKDTree
from torch_geometric.nn import GCN

from pyg_incremental import GraphDelta, to_incremental

STATIC = Path(__file__).parent / "source" / "_static"
GREY, BLUE, ORANGE = "#7d8590", "#2f81f7", "#f0883e"

# One run of one command, all programs in turns: `python -m benchmarks peers --model sage --batch 1
# --peer pyg_incremental full-coo k-hop neighbor-loader --seconds 6 --out folder`, whose peers.json
# this is.
MEASURED = Path(__file__).parent / "one_change.json"
NAMES = {
    "pyg_incremental": "pyg_incremental",
    "k-hop": "k-hop subgraph",
    "neighbor-loader": "NeighborLoader, all neighbours",
    "full-coo": "full pass of PyG",
}


def one_change() -> dict[str, float]:
    """Microseconds for one change, the median of each program, by its name."""
    rows = {row["program"]: row for row in json.loads(MEASURED.read_text())["results"]}
    return {name: 1000 * rows[program]["p50_ms"] for program, name in NAMES.items()}


def said(microseconds: float) -> str:
    """A time as the chart says it."""
    short = microseconds < 1000
    return f"{microseconds:.0f} µs" if short else f"{microseconds / 1e6:.2g} s"


def chart() -> None:
    """Microseconds for one change, on a logarithmic scale."""
    mpl.rcParams.update({"svg.hashsalt": "chart", "font.size": 11, "text.color": GREY})
    figure, axes = plt.subplots(figsize=(8, 2.3), layout="constrained")
    measured = one_change()
    names, values = list(measured)[::-1], list(measured.values())[::-1]
    axes.barh(names, values, color=[BLUE if n == "pyg_incremental" else GREY for n in names])
    for place, value in enumerate(values):
        axes.text(value * 1.2, place, said(value), va="center")
    axes.set_xscale("log")
    axes.set_xlim(10, 2e7)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=GREY, length=0)
    axes.set_xticks([100, 1e4, 1e6], ["100 µs", "10 ms", "1 s"])
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    figure.savefig(STATIC / "one_change.svg", transparent=True, metadata={"Date": None})


def run() -> tuple[np.ndarray, list[tuple[str, GraphDelta, list[int], int, np.ndarray]]]:
    """Places of nodes; of each change its words, itself, changed rows, how many rows, edges."""
    torch.manual_seed(3)
    rng = np.random.default_rng(5)
    places = rng.random((90, 2)) * [760, 270] + [20, 20]
    for _ in range(60):  # push nodes apart
        near = cKDTree(places).query(places, k=3)[1][:, 1:]
        away = places[:, None] - places[near]
        places += (away / (1e-9 + (away**2).sum(2, keepdims=True)) * 12).sum(1)
        places = places.clip([20, 20], [780, 290])
    pairs = cKDTree(places).query(places, k=3)[1]
    edges = np.array([(a, b) for a, *bs in pairs for b in bs if a < 84 and b < 84])
    edge_index = torch.from_numpy(edges.T).unique(dim=1)
    inc = to_incremental(GCN(8, 16, num_layers=2, out_channels=3).eval())
    inc(torch.randn(84, 8), edge_index)
    both = {"undirected": True}
    last = edges[40]
    there = cKDTree(places[:84])
    near, other = there.query(places[84], k=3)[1].tolist(), int(there.query(places[10], k=9)[1][8])
    changes = [
        ("an edge arrives", GraphDelta(edge_index_add=torch.tensor([[10], [other]]))),
        ("an edge leaves", GraphDelta(edge_index_del=torch.from_numpy(last).view(2, 1))),
        ("features change", GraphDelta(x_changes=(33, torch.randn(8)))),
        ("a node arrives", GraphDelta(
            x_add=torch.randn(1, 8), edge_index_add=torch.tensor([[84] * 3, near]), **both)),
        ("a node leaves", GraphDelta(nodes_del=[61])),
    ]  # fmt: skip
    frames = []
    for words, delta in changes:
        up = inc.apply_delta(delta)
        now = inc.graph.to_edge_index().numpy().T
        frames.append((words, delta, up.changed.tolist(), inc.num_nodes, now))
        assert inc.verify().is_fine
    return places, frames


def moving() -> None:
    """An SVG that shows one change after the other, three seconds each."""
    places, frames = run()
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 350" font-family="sans-serif">',
    ]
    for turn, (words, delta, changed, count, edges) in enumerate(frames):
        shown = ";".join(str(int(turn == other)) for other in range(len(frames)))
        lines.append(
            f'<g opacity="{int(not turn)}"><animate attributeName="opacity" values="{shown}" '
            f'dur="{3 * len(frames)}s" calcMode="discrete" repeatCount="indefinite"/>'
        )
        for a, b in edges:
            (x0, y0), (x1, y1) = places[a], places[b]
            lines.append(
                f'<path d="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" stroke="{GREY}" opacity=".45"/>'
            )
        lines += [_node(places[n], 4, GREY) for n in range(count)]
        if delta.x_add is not None:
            lines.append(_node(places[count - 1], 9, ORANGE))
        if delta.nodes_del is not None or delta.x_changes is not None:
            node = delta.nodes_del[0] if delta.nodes_del is not None else delta.x_changes[0]
            lines.append(_node(places[int(node)], 9, ORANGE))
        for pairs in (delta.edge_index_add, delta.edge_index_del):
            for a, b in [] if pairs is None else np.asarray(pairs).T:
                (x0, y0), (x1, y1) = places[a], places[b]
                lines.append(
                    f'<path d="M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}" stroke="{ORANGE}" '
                    'stroke-width="4"/>'
                )
        rows = "".join(_node(places[n], 6, BLUE) for n in changed)
        lines.append(
            f'<g>{rows}<animate attributeName="opacity" values="0;0;1;1" dur="3s" '
            'repeatCount="indefinite"/></g>'
        )
        text = f"{words}: {len(changed)} of {count} output rows change"
        lines.append(f'<text x="20" y="335" fill="{GREY}" font-size="18">{text}</text></g>')
    (STATIC / "changes.svg").write_text("\n".join([*lines, "</svg>", ""]))


def _node(place: np.ndarray, radius: float, colour: str) -> str:
    return f'<circle cx="{place[0]:.0f}" cy="{place[1]:.0f}" r="{radius}" fill="{colour}"/>'


if __name__ == "__main__":
    chart()
    moving()

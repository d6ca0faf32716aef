"""A picture of the part of a graph that some nodes see."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import k_hop_subgraph

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.session.session import Session

MOST = 200
"""More nodes than that nobody can tell apart."""


def drawn(session: Session, nodes: Tensor, hops: int, labels: Any, axes: Any) -> Any:
    """Draw nodes, int64 `[k]`, and what reaches them in so many hops; returns the axes.

    Args:
        session: The running state.
        nodes: The nodes, in another colour.
        hops: How many hops.
        labels: Names by row; None to write the rows.
        axes: Where to draw; new ones if None.

    Raises:
        UnsupportedModelError: If there are several types of nodes or several graphs, or too much to
            be drawn.
        ImportError: Without matplotlib.
    """
    given = session.roles.given
    if len(given) != 1 or given[0].source != given[0].target:
        raise UnsupportedModelError(
            f"plot_graph: expected one type of nodes and one graph (got {len(given)} graphs of "
            f"{len(session.num_nodes)} types); draw one of inc.graph with networkx"
        )
    edges = session.graphs[given[0].graph].to_edge_index().cpu()
    near, edges, at, _ = k_hop_subgraph(
        nodes.cpu(), hops, edges, relabel_nodes=True, num_nodes=session.count
    )
    if len(near) > MOST:
        raise UnsupportedModelError(
            f"plot_graph: {len(near):,} nodes reach these in {hops} hops, expected {MOST} at most; "
            "name fewer nodes, or pass hops=1"
        )
    import networkx as nx
    from matplotlib import pyplot as plt

    if axes is None:
        _, axes = plt.subplots()
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(near)))
    graph.add_edges_from(edges.t().tolist())
    asked = torch.zeros(len(near), dtype=torch.bool)
    asked[at] = True
    names = {n: str(row if labels is None else labels[row]) for n, row in enumerate(near.tolist())}
    nx.draw_networkx(
        graph, nx.spring_layout(graph, seed=0), ax=axes, labels=names, font_size=8, arrowsize=6,
        node_color=["tab:orange" if a else "lightsteelblue" for a in asked.tolist()],
        edge_color="grey",
    )  # fmt: skip
    axes.set_axis_off()
    return axes

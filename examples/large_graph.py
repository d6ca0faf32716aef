"""The first scene of the quickstart: a graph of ogbn-arxiv's size, one change at a time.

Every change is followed in three ways: by `apply_delta`; by a pass over the part of the graph that
the rows it may reach depend on (`k_hop_subgraph` of PyG); and by a full pass of the model.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import k_hop_subgraph
from tqdm import tqdm

from pyg_incremental import GraphDelta, IncrementalModel

ARXIV = 169_343, 1_166_243, 128, 40  # nodes, edges, features and classes of ogbn-arxiv
LAYERS = 2
KINDS = ("an edge arrives", "an edge leaves", "features change", "a node arrives", "a node leaves")


@dataclass
class Comparison:
    """What the scene measured.

    Attributes:
        backend: Which kernels were measured.
        update_ms: Milliseconds of `apply_delta`, for each kind of change.
        k_hop_ms: Milliseconds of the passes over subgraphs.
        full_ms: Milliseconds of full passes.
        rows: Output rows that changed.
        k_hop_rows: Rows that the subgraphs have.
        differences: Those to passes of the model, relative to the largest output (if above one).
    """

    nodes: int
    edges: int
    backend: str
    update_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    k_hop_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    full_ms: list[float] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    k_hop_rows: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    differences: list[float] = field(default_factory=list)

    @property
    def difference(self) -> float:
        """The largest difference; NaN if there was one."""
        return torch.tensor(self.differences).max().item()

    @property
    def speedup(self) -> float:
        """A full pass against the median of all changes."""
        every = [ms for kind in KINDS for ms in self.update_ms[kind]]
        return median(self.full_ms) / median(every)

    def table(self) -> str:
        """A line for each kind of change."""
        full = median(self.full_ms)
        lines = [
            f"{'':16} {'update':>9} {'rows':>7} {'k-hop':>9} {'rows':>7} {'full':>8} {'ratio':>7}"
        ]
        for kind in KINDS:
            update, k_hop = median(self.update_ms[kind]), median(self.k_hop_ms[kind])
            lines.append(
                f"{kind:16} {update:6.3f} ms {median(self.rows[kind]):7,.0f} {k_hop:6.1f} ms "
                f"{median(self.k_hop_rows[kind]):7,.0f} {full:5,.0f} ms {full / update:7,.0f}"
            )
        return "\n".join(lines)


def draw(nodes: int, edges: int, generator: torch.Generator) -> Tensor:
    """A citation-like graph: nodes cite earlier ones, and early ones far more often.

    Returns:
        The edges, int64 `[2, edges]`, none twice.
    """
    source = torch.randint(1, nodes, (edges + edges // 4,), generator=generator)
    target = (source * torch.rand(len(source), generator=generator) ** 2.5).long()
    pairs = (source * nodes + target).unique()
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:edges]]
    name = torch.randperm(nodes, generator=generator)
    return torch.stack([name[pairs // nodes], name[pairs % nodes]])


class Changes:
    """Draws changes of a graph, of one kind at a time."""

    def __init__(self, inc: IncrementalModel, edge_index: Tensor, seed: int) -> None:
        """Changes of the graph that `inc` has been called on."""
        self.inc, self.nodes = inc, inc.num_nodes
        self.generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(edge_index.shape[1], generator=self.generator)
        self.leaving = iter(edge_index[:, order].t().unsqueeze(-1))
        self.arrived: list[tuple[Tensor, Tensor]] = []

    def _nodes(self, *size: int) -> Tensor:
        return torch.randint(self.nodes, size, generator=self.generator)

    def draw(self, kind: str) -> tuple[GraphDelta, Tensor]:
        """A change, and the nodes from which it spreads."""
        row = torch.randn(1, self.inc.x.shape[1], generator=self.generator)
        match kind:
            case "an edge arrives":
                edge = self._nodes(2, 1)
                return GraphDelta(edge_index_add=edge), edge[1]
            case "an edge leaves":
                edge = next(self.leaving)
                return GraphDelta(edge_index_del=edge), edge[1]
            case "features change":
                node = self._nodes(1)
                return GraphDelta(x_changes=(node, row)), node
            case "a node arrives":
                new, cited = torch.tensor([self.inc.num_nodes]), self._nodes(3)
                edges = torch.stack([new.expand(3), cited])
                self.arrived.append((new, cited))
                return GraphDelta(x_add=row, edge_index_add=edges), torch.cat([new, cited])
            case _:
                gone, cited = self.arrived.pop()
                return GraphDelta(nodes_del=gone), torch.cat([gone, cited])


def k_hop_pass(
    model: nn.Module, x: Tensor, edge_index: Tensor, start: Tensor, hops: int
) -> tuple[Tensor, Tensor]:
    """The rows that a change of the nodes `start` may reach, computed on what they depend on.

    Args:
        model: The model.
        x: All features, `[num_nodes, channels]`.
        edge_index: All edges after the change.
        start: From where the change spreads, int64 `[k]`.
        hops: How far a row depends on others.

    Returns:
        Their ids, and the rows.
    """
    count = x.shape[0]
    reached, *_ = k_hop_subgraph(
        start, LAYERS, edge_index, num_nodes=count, flow="target_to_source"
    )
    part, edges, where, _ = k_hop_subgraph(
        reached, hops, edge_index, relabel_nodes=True, num_nodes=count
    )
    return reached, model(x[part], edges)[where]


def timed(work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Milliseconds, and what the work returned."""
    began = time.perf_counter()
    done = work(*args)
    return 1e3 * (time.perf_counter() - began), done


def compare(
    model: nn.Module, inc: IncrementalModel, hops: int, part: float, rounds: int
) -> Comparison:
    """Stream single changes of every kind through a model on a drawn graph.

    Args:
        model: The model, of 128 features and 40 classes.
        inc: The same one, wrapped.
        hops: How far a row of it depends on others.
        part: Part of ogbn-arxiv's size.
        rounds: How many changes of each kind to measure.
    """
    nodes, edges, channels, _ = ARXIV
    generator = torch.Generator().manual_seed(0)
    edge_index = draw(int(nodes * part), int(edges * part), generator)
    x = torch.randn(int(nodes * part), channels, generator=generator)
    inc(x, edge_index)
    found = Comparison(inc.num_nodes, inc.num_edges, inc.backend)
    for _ in tqdm(range(2), desc="full passes", unit=""):
        found.full_ms.append(timed(model, x, edge_index)[0])
    changes = Changes(inc, edge_index, seed=1)
    for _ in tqdm(range(rounds), desc="changes of each kind", unit=""):
        for kind in KINDS:
            delta, start = changes.draw(kind)
            took, up = timed(inc.apply_delta, delta)
            found.update_ms[kind].append(took)
            found.rows[kind].append(len(up.changed))
            if not found.k_hop_ms[kind]:
                now = inc.x, inc.graph.to_edge_index()
                took, (ids, rows) = timed(k_hop_pass, model, *now, start, hops)
                found.k_hop_ms[kind].append(took)
                found.k_hop_rows[kind].append(len(ids))
                found.differences.append(_off(inc.out[ids], rows))
    took, rows = timed(model, inc.x, inc.graph.to_edge_index())
    found.full_ms.append(took)
    found.differences.append(_off(inc.out, rows))
    return found


def _off(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest output if that is above one."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1))

"""Nodes that come to a graph, go to another, or leave: the edges that `batch` stands for follow."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_incremental.delta.resolve.edges import ResolvedEdges
from pyg_incremental.errors import InvalidDeltaError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.graph.edge_store import Ids
from pyg_incremental.program.steps import Relation

_NONE = np.empty(0, np.int64)


class Members(NamedTuple):
    """Which graph each node is in.

    Attributes:
        relation: What these edges are.
        graph: One edge from each node that is in a graph to that.
    """

    relation: Relation
    graph: DynamicGraph

    def left(
        self, rows: tuple[Tensor, Tensor] | None, removed: Ids
    ) -> tuple[Tensor, Tensor] | None:
        """The rows of the input that a delta changes, removed nodes included.

        Args:
            rows: Distinct nodes, int64 `[c]`, and the graphs that the delta puts them into, `[c]`;
                None if it says nothing of any.
            removed: Distinct nodes that it removes, int64 `[d]`.

        Returns:
            The same with a negative row for each removed node that was in a graph, or comes.
        """
        now = self._of(removed)
        ids = rows[0].cpu().numpy() if rows is not None else _NONE
        given = rows[1].cpu().numpy() if rows is not None else _NONE
        gone = np.isin(ids, removed)
        came = gone & (given >= 0)
        known = (now >= 0) & ~np.isin(removed, ids[came])
        if not (came.any() or known.any()):
            return rows
        given = np.where(came, ~given, given)
        every = np.concatenate([ids, removed[known]])
        return torch.from_numpy(every), torch.from_numpy(np.concatenate([given, ~now[known]]))

    def back(
        self, rows: tuple[Tensor, Tensor] | None, named: Sequence[Ids], removed: Ids
    ) -> tuple[Tensor, Tensor] | None:
        """The same with nodes that were removed, and are there again as something is said of them.

        Args:
            rows: What the delta changes; see `left`.
            named: Nodes that are given rows or edges.
            removed: Distinct nodes that it removes.
        """
        ids = rows[0].cpu().numpy() if rows is not None else _NONE
        again = np.setdiff1d(np.concatenate([_NONE, *named]), np.concatenate([removed, ids]))
        again = again[self._of(again) < 0]
        if not again.size:
            return rows
        given = rows[1].cpu().numpy() if rows is not None else _NONE
        every = np.concatenate([ids, again])
        return torch.from_numpy(every), torch.from_numpy(np.concatenate([given, 0 * again]))

    def follow(
        self, before: tuple[int, int], ids: Tensor, rows: Tensor
    ) -> tuple[ResolvedEdges, int]:
        """The edges that leave and come as rows of the input change, and how many graphs are new.

        Args:
            before: The numbers of nodes and of graphs.
            ids: Distinct nodes, int64 `[c]`, new ones included.
            rows: Their graphs, int64 `[c]`; negative for those that are in none.

        Raises:
            InvalidDeltaError: If a graph is named that cannot be there.
        """
        nodes, graphs = ids.cpu().numpy(), rows.cpu().numpy()
        limit = before[1] + nodes.size
        if self.relation.leaves:
            self._refuse(nodes, graphs, (graphs < -limit) | (graphs >= limit), before[1])
            graphs = np.maximum(graphs, -1)
        else:
            self._refuse(nodes, graphs, (graphs < 0) | (graphs >= limit), before[1])
        moves = self._of(nodes) != graphs
        known = nodes[moves & (nodes < before[0])]
        _, slots = self.graph.resolve_removal(_NONE, _NONE, known, _NONE)
        comes = moves & (graphs >= 0)
        more = max(0, int(graphs.max(initial=-1)) + 1 - before[1])
        added = np.stack([nodes[comes], graphs[comes]])
        return ResolvedEdges(slots, added, {}, _NONE, {}), more

    def refuse_outside(self, ends: Sequence[Ids], rows: tuple[Tensor, Tensor] | None) -> None:
        """Refuse edges at nodes that are in no graph, where nodes read the row of theirs.

        Args:
            ends: Nodes at which edges come.
            rows: What the delta changes; see `follow`.

        Raises:
            InvalidDeltaError: If there is one.
        """
        if not ends:
            return
        nodes = np.unique(np.concatenate(ends))
        inside = self._of(nodes) >= 0
        if rows is not None:
            ids, graphs = rows[0].cpu().numpy(), rows[1].cpu().numpy()
            inside[np.isin(nodes, ids[graphs >= 0])] = True
            inside[np.isin(nodes, ids[graphs < 0])] = False
        if not inside.all():
            name = self.relation.members
            raise InvalidDeltaError(
                f"edge_index_add: node {nodes[~inside][0]} was removed, and is in no graph, whose "
                f"row it would read; say in the same delta which one it comes to, as in "
                f"x_changes={{{name!r}: ([{nodes[~inside][0]}], [0])}}"
            )

    def _of(self, nodes: Ids) -> Ids:
        """The graph of each of some distinct nodes, int64; -1 for none, and for those to come."""
        there = nodes < self.graph.num_nodes
        _, slots = self.graph.resolve_removal(_NONE, _NONE, nodes[there], _NONE)
        edges = self.graph.edges(slots)
        order = np.argsort(edges.src)
        src, dst = edges.src[order], edges.dst[order]
        at = np.searchsorted(src, nodes)
        found = np.full(nodes.size, -1)
        has = at < src.size
        has[has] = src[at[has]] == nodes[has]
        found[has] = dst[at[has]]
        return found

    def _refuse(self, nodes: Ids, graphs: Ids, wrong: np.ndarray, count: int) -> None:
        if not wrong.any():
            return
        at = int(np.flatnonzero(wrong)[0])
        raise InvalidDeltaError(
            f"'{self.relation.members}': node {nodes[at]} is put into graph {graphs[at]}, but "
            f"there are {count} graphs, and so many nodes make at most {nodes.size} new ones "
            f"(expected an id in [0, {count + nodes.size})); number graphs without gaps"
        )

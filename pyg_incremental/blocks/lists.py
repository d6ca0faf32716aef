"""The neighbour lists that a program gathers over, made when they are first asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.blocks.fanouts import Drawn
from pyg_incremental.blocks.in_edges import InEdges, in_edges
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.call.roles import Roles


class NeighbourLists:
    """The in-edges of graphs, and their out-edges where they are gathered in reverse.

    Args:
        roles: The graphs, with their edges.
        drawn: Graphs that are some edges of one of these.
        places: The places of nodes, by which lists go.
        store: Where lists are kept.
    """

    def __init__(
        self, roles: Roles, drawn: Mapping[str, Drawn] | None, places: NodeOrder, store: LayerStore
    ) -> None:
        self._roles, self._drawn = roles, dict(drawn or {})
        self._places, self._store = places, store
        self._held: dict[Lists, InEdges] = {}
        self._relations = {r.graph: r for r in roles.relations}
        self._relations |= {name: self._relations[d.graph] for name, d in self._drawn.items()}

    def ends(self, key: Lists) -> tuple[str, str]:
        """The kinds of nodes at the other ends of some lists, and that of the lists."""
        relation = self._relations[key[0]]
        ends = relation.source, relation.target
        return ends[::-1] if key[1] else ends

    def of(self, key: Lists) -> InEdges:
        """Some lists."""
        if key not in self._held:
            self._held[key] = self._store.lists(key, lambda: self._made(key))
        return self._held[key]

    def keep(self, keys: Collection[Lists]) -> None:
        """Let go of all other lists: nobody reads them any more."""
        self._held = {key: held for key, held in self._held.items() if key in keys}

    @property
    def nbytes(self) -> int:
        """Bytes that they take in memory, with the places of drawn edges."""
        lists = sum(self._store.held(edges) for edges in self._held.values())
        return lists + sum(d.places.nbytes for d in self._drawn.values())

    def _made(self, key: Lists) -> InEdges:
        graph, reverse = key
        some = self._drawn.get(graph)
        edges = self._roles.edge_index[some.graph if some is not None else graph].numpy()
        src, dst = edges if some is None else edges[:, some.places]
        if reverse:
            src, dst = dst, src
        far, near = self.ends(key)
        count = self._roles.num_nodes[near]
        made = in_edges(self._places.of(near, dst), self._places.of(far, src), count)
        if some is None:
            return made
        return replace(made, edge=some.places[made.edge].astype(np.int32))

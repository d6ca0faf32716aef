"""A model that has no program: its own forward, on everything or on the neighbourhoods of nodes.

Node-wise evaluation computes what some nodes see again and again, which is why DGI evaluates layer
by layer. It is what is left where a model cannot be followed and its full pass does not fit. It is
exact for a model in which a node depends on nothing but what it sees within as many hops as there
are layers; that is held against the same nodes with a hop more around them, and others beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import MessagePassing

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import UnsupportedModelError, warn

TRIED = 16
"""Nodes on which it is tried what a pass costs, and whether the model is local."""


class _Counted(TorchDispatchMode):
    """Counts the bytes of everything that operations return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves(out)
        self.nbytes += sum(t.nbytes for t in leaves if type(t) is Tensor)
        return out


class NodeWise:
    """Evaluates a model by its own forward.

    Args:
        site: The call.
        roles: What its tensors are, with the edges.
        memory: Bytes that a pass may take.

    Attributes:
        batches: How many neighbourhoods were computed.
    """

    def __init__(self, site: BoundCall, roles: Roles, memory: int) -> None:
        self.site, self.roles, self.memory = site, roles, memory
        self.batches = 0

    def run(self, why: str, asked: Tensor | None, tell: Callable[[int], None]) -> Any:
        """The output of the model for all nodes, or for some.

        Args:
            why: Why it has no program.
            asked: Ids of nodes, int64 `[k]`, or None.
            tell: Called with the number of rows after each batch.

        Raises:
            UnsupportedModelError: If the pass does not fit, and the model is not local.
            MemoryError: If what one node sees does not fit.
        """
        name = type(self.site.model).__name__
        count = self.roles.num_nodes.get("", 0)
        whole = list(self.site.tensors.values())
        price = self._price()
        edges = sum(e.shape[1] for e in self.roles.edge_index.values())
        if price * (sum(self.roles.num_nodes.values()) + edges) <= self.memory:
            warn(f"{name}: {why}. It runs whole, in one full pass")
            out = full_pass.run(self.site, whole)
            return out if asked is None else _rows_of(out, asked, count)
        hops = self._hops()
        ids = torch.arange(count) if asked is None else asked
        self._refuse_if_not_local(ids[:TRIED], hops, why)
        warn(f"{name}: {why}. It runs node by node, on what each sees within {hops} hops")
        parts, first, size = [], 0, TRIED
        while first < len(ids):
            some = ids[first : first + size]
            arguments, places, seen = self._around(some, hops)
            if price * seen > self.memory and len(some) > 1:
                size = len(some) // 2
                continue
            if price * seen > self.memory:
                raise MemoryError(
                    f"what node {int(some[0])} sees within {hops} hops is expected to take "
                    f"{price * seen:,} bytes (got memory={self.memory:,})"
                )
            parts.append(_rows_of(full_pass.run(self.site, arguments), places, None))
            self.batches += 1
            tell(len(some))
            first += len(some)
            if 2 * price * seen <= self.memory:
                size = 2 * size
        return pytree.tree_map(lambda *rows: torch.cat(rows), *parts)

    def _price(self) -> int:
        """Bytes of all results of operations of a pass, for each node and edge; a bound.

        Zero for several graphs or learned rows: such a model runs whole, whatever it takes.
        """
        hops = self._hops()
        count = min(TRIED, self.roles.num_nodes.get("", 0))
        if not self._is_plain or not count:
            return 0
        arguments, _, seen = self._around(torch.arange(count), hops)
        with _Counted() as counted:
            full_pass.run(self.site, arguments)
        return -(-int(counted.nbytes) // max(seen, 1))

    @property
    def _is_plain(self) -> bool:
        """Whether what a node sees can be handed in in place of the graph."""
        return self.roles.is_plain and not self.roles.fixed

    def _hops(self) -> int:
        """How far a node can see: as many hops as convs, and one more for its neighbours' degrees.

        Without that one a GCN is off (as `BasicGNN.inference` of PyG is): a message is divided by
        the degree of its source, all of whose edges have to be there.
        """
        convs = [m for m in self.site.model.modules() if isinstance(m, MessagePassing)]
        return 1 + sum(int(getattr(m, "K", 1)) for m in convs)

    def _refuse_if_not_local(self, ids: Tensor, hops: int, why: str) -> None:
        name = type(self.site.model).__name__
        count, generator = self.roles.num_nodes[""], torch.Generator().manual_seed(0)
        others = torch.randint(max(count, 1), (min(count, 2 * TRIED),), generator=generator)
        found = []
        for more, beside in ((0, ids[:0]), (1, others)):
            arguments, places, _ = self._around(torch.cat([ids, beside]), hops + more)
            rows = _rows_of(full_pass.run(self.site, arguments), places, None)
            found.append(pytree.tree_map(lambda t: t[: len(ids)], rows))
        if full_pass.gap(*found):
            raise UnsupportedModelError(
                f"{name}: {why}, a full pass does not fit in memory={self.memory:,}, and a node "
                f"depends on more than it sees within {hops} hops; give more memory"
            )

    def _around(self, ids: Tensor, hops: int) -> tuple[list[Any], Tensor, int]:
        """The model's arguments on what some nodes see.

        Returns:
            the arguments, the places of the nodes, and how many nodes and edges there are
        """
        roles, site = self.roles, self.site
        (relation,) = roles.relations
        edges = roles.edge_index[relation.graph]
        seen, kept = full_pass.neighbourhood(
            {"": ids}, hops, roles.relations, roles.edge_index, roles.num_nodes, False
        )
        mask, inside = seen[""], kept[relation.graph]
        place = mask.cumsum(0) - 1
        data = roles.data_of(relation, site.tensors)
        state = {name: rows[inside.to(rows.device)] for name, rows in data.items()}
        state["edge_index"] = place[edges[:, inside]]
        nodes = {name: site.tensors[name][mask] for name in roles.nodes}
        others = {name: site.tensors[name] for name in roles.others}
        counts = {"": int(mask.sum())}
        given = full_pass.arguments(site, roles, nodes, {relation.graph: state}, counts, others)
        return given, place[ids], counts[""] + int(inside.sum())


def _rows_of(out: Any, ids: Tensor, count: int | None) -> Any:
    """Some rows of an output, which has to have one for each node."""

    def rows(t: Any) -> Any:
        if not isinstance(t, Tensor) or (count is not None and t.shape[:1] != (count,)):
            raise UnsupportedModelError(
                "evaluate: the output has no row for each node, so none can be chosen"
            )
        return t[ids.to(t.device)]

    return pytree.tree_map(rows, out)

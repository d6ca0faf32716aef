"""A model that has no program: its own forward, on everything or on the neighbourhoods of nodes.

Node-wise evaluation computes what some nodes see again and again, which is why DGI evaluates layer
by layer. It is what is left where a model cannot be followed and its full pass does not fit. It is
exact for a model in which a row depends on nothing but what lies within some hops of its node, and
nothing but the user can say how many these are: of a model without a program it is not known. What
is said is held against some nodes with a hop more around them, and others beside them, and against
what the model decides by values, which has to be the same in all batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import UnsupportedModelError, warn

TRIED = 16
"""Nodes on which it is tried what a pass costs, and whether the model is local."""


_READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default}
"""Operations by which Python gets a value. Integers are left out: PyG reads sizes off ids."""


class _Watched(TorchDispatchMode):
    """Sees what operations return.

    Attributes:
        nbytes: The bytes of all of it.
        read: Numbers with a fraction, and truths, that Python has read, as text: NaN is itself.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nbytes = 0
        self.read: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _READS and type(out) is not int:
            self.read.append(str(out))
        leaves = pytree.tree_leaves(out)
        self.nbytes += sum(t.nbytes for t in leaves if type(t) is Tensor)
        return out


class NodeWise:
    """Evaluates a model by its own forward.

    Args:
        site: The call.
        roles: What its tensors are, with the edges.
        memory: Bytes that a pass may take.
        hops: Within how many hops of a node all lies that its row depends on; None if nobody says.

    Attributes:
        batches: How many neighbourhoods were computed.
    """

    def __init__(self, site: BoundCall, roles: Roles, memory: int, hops: int | None = None) -> None:
        if hops is not None and (type(hops) is not int or hops < 0):
            raise ValueError(f"hops: expected how many hops a row sees, from 0 on (got {hops!r})")
        self.site, self.roles, self.memory, self.hops = site, roles, memory, hops
        self.batches = 0
        self._read: list[str] | None = None

    def run(self, why: str, asked: Tensor | None, tell: Callable[[int], None]) -> Any:
        """The output of the model for all nodes, or for some.

        Args:
            why: Why it has no program.
            asked: Ids of nodes, int64 `[k]`, or None.
            tell: Called with the number of rows after each batch.

        Raises:
            UnsupportedModelError: If the pass does not fit, and nobody says how far a row sees, or
                what is said is found to be wrong.
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
        if self.hops is None:
            raise UnsupportedModelError(
                f"{name}: {why}, and a full pass is not expected to fit in memory={self.memory:,}; "
                "give more memory. Or, if all that a row depends on lies within k hops of its node "
                "(of most models the number of layers), and nothing that is decided by values "
                "depends on other nodes, say so: evaluate(..., hops=k)"
            )
        hops = self._seen_within
        ids = torch.arange(count) if asked is None else asked
        self._refuse_if_not_local(self._some_of(ids), hops, why)
        warn(f"{name}: {why}. It runs node by node, on what each sees within {self.hops} hops")
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
            parts.append(_rows_of(self._run(arguments, why), places, None))
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
        count = min(TRIED, self.roles.num_nodes.get("", 0))
        if not self._is_plain or not count:
            return 0
        arguments, _, seen = self._around(torch.arange(count), self._seen_within)
        with _Watched() as counted:
            full_pass.run(self.site, arguments)
        return -(-int(counted.nbytes) // max(seen, 1))

    @property
    def _is_plain(self) -> bool:
        """Whether what a node sees can be handed in in place of the graph."""
        return self.roles.is_plain and not self.roles.fixed

    @property
    def _seen_within(self) -> int:
        """Hops that are handed in: one more than a row sees, for its neighbours' degrees.

        Without that one a GCN is off (as `BasicGNN.inference` of PyG is): a message is divided by
        the degree of its source, all of whose edges have to be there.
        """
        return 1 + (self.hops or 0)

    def _some_of(self, ids: Tensor) -> Tensor:
        """A few of some nodes, with edges where there are such."""
        edges = [e.flatten() for e in self.roles.edge_index.values()]
        linked = ids[torch.isin(ids, torch.cat(edges).unique().cpu())]
        ids = linked if len(linked) else ids
        return ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))[:TRIED]]

    def _run(self, arguments: list[Any], why: str) -> Any:
        """A pass on what some nodes see; it has to decide what the others decide."""
        with _Watched() as watched:
            out = full_pass.run(self.site, arguments)
        self._read = watched.read if self._read is None else self._read
        if watched.read != self._read:
            raise UnsupportedModelError(
                f"{type(self.site.model).__name__}: {why}, a full pass does not fit in "
                f"memory={self.memory:,}, and on one batch of nodes it reads other values than on "
                f"another ({watched.read[:3]} and {self._read[:3]}); give more memory"
            )
        return out

    def _refuse_if_not_local(self, ids: Tensor, hops: int, why: str) -> None:
        name = type(self.site.model).__name__
        count, generator = self.roles.num_nodes[""], torch.Generator().manual_seed(0)
        others = torch.randint(max(count, 1), (min(count, 2 * TRIED),), generator=generator)
        found = []
        for more, beside in ((0, ids[:0]), (1, others)):
            arguments, places, _ = self._around(torch.cat([ids, beside]), hops + more)
            rows = _rows_of(self._run(arguments, why), places, None)
            found.append(pytree.tree_map(lambda t: t[: len(ids)], rows))
        if full_pass.gap(*found):
            raise UnsupportedModelError(
                f"{name}: {why}, a full pass does not fit in memory={self.memory:,}, and a node "
                f"depends on more than it sees within {self.hops} hops; give more memory"
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

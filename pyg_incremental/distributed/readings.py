"""What a rank tells of a distributed model: what it owns, and what it computes."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.call.torchscript import refuse_torchscript
from pyg_incremental.distributed.part.part import Part
from pyg_incremental.distributed.wire.rounds import Rounds, together
from pyg_incremental.engine.memory import MemoryReport
from pyg_incremental.errors import StaleStateError
from pyg_incremental.files import snapshot
from pyg_incremental.program.steps import Program
from pyg_incremental.session.parameters import ParameterWatch, refuse_autocast
from pyg_incremental.session.settings import Settings
from pyg_incremental.session.stored import stored

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def collective(name: str) -> Callable[[F], F]:
    """A method that all ranks call at the same time, and what messages call it."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def run(self: "RankReadings", *args: Any, **kwargs: Any) -> Any:
            with self.rounds.operation(name):
                return method(self, *args, **kwargs)

        return cast("F", run)

    return decorate


class RankReadings:
    """The state of one rank, read; the base of `DistributedIncrementalModel`.

    What is told by kind of nodes or by graph is a dict if there are several of them, with the keys
    of a delta.

    Args:
        model: The model.
        rounds: The conversation with the other ranks.
        settings: What the user chose.
    """

    def __init__(self, model: nn.Module, rounds: Rounds, settings: Settings) -> None:
        refuse_torchscript(model)
        self.model, self.rounds = model, rounds
        self.rank, self.size = rounds.rank, rounds.size
        self._settings = settings
        self._part: Part | None = None
        self._watch: ParameterWatch | None = None

    # Without the other ranks ---------------------------------------------------------------------

    @property
    def version(self) -> int:
        """How many updates have been applied since the first pass. No collective."""
        return 0 if self._part is None else self._part.committed.version

    @property
    def nodes(self) -> Any:
        """The nodes that this rank owns: global ids, ascending, int64 `[n]`. No collective."""
        region = self._require().region
        return self._by_kind({k: torch.from_numpy(region.ids(k).copy()) for k in region.own})

    @property
    def x(self) -> Any:
        """The current features of `nodes`, `[n, in_channels]`. No collective.

        Raises:
            KeyError: If the rows of the nodes are parameters of the model.
        """
        part = self._require()
        roles, rows = part.plan.roles, part.nodes()
        named = {kind: roles.features(kind) for kind in roles.kinds}
        found = {kind: rows[name] for kind, name in named.items() if name is not None}
        if not found:
            raise KeyError("no node features: the rows of the nodes are parameters of the model")
        return self._by_kind(found)

    def _by_kind(self, found: dict[str, T]) -> Any:
        """What is told by kind; of hyperedges, which have a kind of their own, nothing."""
        return found.get("", found if len(found) > 1 else next(iter(found.values())))

    @property
    def out(self) -> Any:
        """The current output rows of `nodes`, `[n, out_channels]`: not to be written to.

        No collective.
        """
        self._refuse_stale()
        return self._require().output(copy=False)

    @property
    def edge_index(self) -> Any:
        """The edges that lead to `nodes`, in global ids, int64 `[2, k]`.

        Those that lead to one node are in order of insertion. No collective.
        """
        region = self._require().region
        found = {r.key: region.edges(name)[0] for name, r in region.relations.items()}
        return found if len(found) > 1 else next(iter(found.values()))

    def edge_data(self, name: str) -> Tensor:
        """The current data of the edges that lead to `nodes`, `[k, ...]`; see `edge_index`.

        No collective.

        Raises:
            KeyError: If there is no such edge input.
        """
        region = self._require().region
        known = {key: graph for graph in region.relations for key in region.edges(graph)[1]}
        if name not in known:
            raise KeyError(f"no edge input '{name}' (edge inputs: {sorted(known) or 'none'})")
        return region.edges(known[name])[1][name]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all ranks, removed ones included. No collective."""
        counts = self._require().region.num_nodes
        return counts.get("", sum(counts.values()))

    @property
    def num_edges(self) -> int:
        """Number of edges that lead to nodes of this rank. No collective."""
        graphs = self._require().region.graphs
        return sum(graph.num_edges for (_, out), graph in graphs.items() if not out)

    @property
    def num_ghosts(self) -> int:
        """Number of ghosts of this rank: rows of other ranks that it keeps. No collective."""
        return sum(link.ghosts.count for link in self._require().region.links.values())

    @property
    def program(self) -> Program:
        """The program that each rank runs. No collective."""
        return self._require().session.plan.program

    @property
    def mode(self) -> str:
        """`'incremental'`, or `'not called yet'`. No collective."""
        return "not called yet" if self._part is None else "incremental"

    @property
    def backend(self) -> str:
        """`'compiled'` or `'reference'`; `'auto'` before the first pass. No collective."""
        return self._settings.backend if self._part is None else self._part.session.backend.name

    @property
    def stale(self) -> str | None:
        """Why updates are refused on this rank, or None. No collective."""
        if self._part is None or self._watch is None:
            return "the model has not been called yet"
        return self._part.interrupted or self._watch.reason() or None

    def memory_report(self) -> MemoryReport:
        """What this rank holds besides the model, ghosts included. No collective."""
        return self._require().memory()

    # With the other ranks ------------------------------------------------------------------------

    @collective("gather_out")
    def gather_out(self) -> Any:
        """The output of all nodes, `[num_nodes, out_channels]`, on every rank."""
        self._together(self._refuse_stale)
        part = self._require()
        ids = pytree.tree_map(
            lambda kind: torch.from_numpy(part.region.ids(kind)), part.session.outputs.kinds
        )
        return self._gathered(ids, part.output(copy=False))[1]

    @collective("state_digest")
    def state_digest(self) -> str:
        """SHA-256 over what all ranks store: who owns what, the graph, and every row.

        Equal digests mean equal states, bit by bit. Ranks that own other nodes, or came to them in
        another way, have another digest with the same output.
        """

        def digest() -> str:
            part = self._require()
            own = {kind: torch.from_numpy(own.globals) for kind, own in part.region.own.items()}
            return snapshot.digest_of({"ids": own, "state": stored(part.session, exact=True)})

        return snapshot.digest_of(self.rounds.everywhere(self._together(digest)))

    def _gathered(self, ids: Any, rows: Any) -> tuple[Any, Any]:
        """What every rank has, in one, ascending by id."""
        leaves, structure = pytree.tree_flatten(ids)
        every = self.rounds.everywhere((leaves, pytree.tree_leaves(rows)))
        all_ids, all_rows = [], []
        for i in range(len(leaves)):
            together = torch.cat([part[0][i] for part in every])
            order = together.argsort()
            all_ids.append(together[order])
            both = torch.cat([part[1][i] for part in every])
            all_rows.append(both[order.to(both.device)])
        return pytree.tree_unflatten(all_ids, structure), pytree.tree_unflatten(all_rows, structure)

    # Guards --------------------------------------------------------------------------------------

    def _together(self, run: Callable[[], T], *, first: bool = False) -> T:
        """Run something that may raise; if it does on one rank, all ranks raise the same.

        Args:
            run: What to run. It holds no round.
            first: Return what the first rank got.
        """
        return together(self.rounds, run, first=first)

    def _require(self) -> Part:
        if self._part is None:
            raise StaleStateError(
                f"{type(self.model).__name__} has not been called yet, so nothing is stored; first "
                "call it on the whole graph, or from_shards, and then apply deltas"
            )
        return self._part

    def _refuse_training(self) -> None:
        refuse_autocast()
        if any(m.training for m in self.model.modules()):
            raise StaleStateError(
                f"{type(self.model).__name__} is in training mode, where dropout and batch "
                "statistics make outputs depend on chance; call model.eval() first, on every rank"
            )

    def _refuse_stale(self, exactly: bool = False) -> None:
        reason = self.stale
        if exactly and not reason and self._watch is not None:
            reason = self._watch.reason_exactly()
        if reason:
            raise StaleStateError(
                f"rank {self.rank}: the stored rows of {type(self.model).__name__} are stale: "
                f"{reason}. Call refresh() on every rank to recompute them from the current graph, "
                "features and parameters"
            )

    def __repr__(self) -> str:
        state = self.mode
        if self._part is not None:
            owned = sum(own.count for own in self._part.region.own.values())
            state = f"{owned:,} nodes, {self.num_edges:,} edges"
        rank = f"rank {self.rank} of {self.size}"
        return f"{type(self).__name__}({type(self.model).__name__}, {rank}, {state})"

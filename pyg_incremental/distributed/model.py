"""A model whose graph and rows are spread over ranks, and whose output stays exact all the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental.call_site import CallSite, bind
from pyg_incremental.delta import GraphDelta
from pyg_incremental.distributed import saving, verify
from pyg_incremental.distributed.call import (
    Sample,
    plain_roles,
    plan_of,
    rows_for_sample,
    site_of_sample,
)
from pyg_incremental.distributed.comm import Communicator, SingleProcess
from pyg_incremental.distributed.errors import PartitionError
from pyg_incremental.distributed.part import Happened, Part
from pyg_incremental.distributed.partition import Method, partition
from pyg_incremental.distributed.rounds import Rounds, raise_first
from pyg_incremental.distributed.shards import Shard, read_shard, shard_of
from pyg_incremental.distributed.update import DistributedStats
from pyg_incremental.errors import StaleStateError, UnsupportedModelError
from pyg_incremental.memory import MemoryReport, memory_of
from pyg_incremental.parameters import ParameterWatch, fingerprint
from pyg_incremental.program import Program
from pyg_incremental.roles import Roles
from pyg_incremental.settings import Settings
from pyg_incremental.typing import BackendName
from pyg_incremental.update import Update

T = TypeVar("T")


@dataclass
class _Call:
    """The call that is kept current: everything about it but the rows."""

    site: CallSite
    roles: Roles
    sample: Sample


class DistributedIncrementalModel:
    """A model over several processes: each rank owns some nodes and the edges that lead to them.

    Every method is a collective, unless it says otherwise: all ranks call it, in the same order. If
    one rank raises because of what it was given, all ranks raise the same error, and nothing was
    changed.

    Args:
        model: A PyG model in eval mode, with the same parameters on every rank.
        comm: How ranks talk to each other: a `TorchCommunicator`, an `MPICommunicator`, or anything
            else that has the methods of `Communicator`; a single process by default.
        backend: As for `to_incremental`.
        accumulate_dtype: As for `to_incremental`.
        scrub_rows: As for `to_incremental`; so many on each rank.

    Attributes:
        rank: The number of this rank.
        size: The number of ranks.
        version: How many updates have been applied.
    """

    def __init__(
        self,
        model: nn.Module,
        comm: Communicator | None = None,
        *,
        backend: BackendName = "auto",
        accumulate_dtype: torch.dtype | None = None,
        scrub_rows: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UnsupportedModelError(
                "DistributedIncrementalModel: expected a torch.nn.Module (got "
                f"{type(model).__name__}); pass the trained model itself"
            )
        self.model = model
        self.rounds = Rounds(SingleProcess() if comm is None else comm)
        self.rank, self.size = self.rounds.rank, self.rounds.size
        self.version = 0
        self._settings = Settings(False, backend, accumulate_dtype, scrub_rows)
        self._part: Part | None = None
        self._call: _Call | None = None
        self._watch: ParameterWatch | None = None
        self._scrub_next = 0

    # Start ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(
        self, *args: Any, partition_by: Method | Tensor = "metis", **kwargs: Any
    ) -> DistributedIncrementalModel:
        """Start from a whole graph that every rank has been given; see also `from_shards`.

        Args:
            *args: What the model takes, alike on every rank.
            partition_by: How to choose the owners of the nodes (see `partition`), or the rank of
                every node, integers `[num_nodes]`.
            **kwargs: Likewise.

        Returns:
            This model; `out` are the rows of this rank's nodes.

        Raises:
            UnsupportedModelError: If some step of the model needs all rows, or the graph is
                heterogeneous.
        """

        def cut() -> tuple[CallSite, Roles, Any]:
            self._refuse_training()
            site = bind(self.model, args, kwargs)
            roles = plain_roles(site)
            return site, roles, self._owner(roles, partition_by)

        site, roles, owner = self._together(cut)
        relation = roles.relations[0]
        owner = next(o for o in self.rounds.everywhere(owner) if o is not None)
        nodes = {n: site.tensors[n].detach() for n in roles.nodes}
        data = {k: t.detach() for k, t in roles.data_of(relation, site.tensors).items()}
        pairs = roles.edge_index[relation.graph]
        shard = shard_of(self.rank, self.size, owner, nodes, pairs, data, relation.by_target)
        some = rows_for_sample(nodes, data, pairs.shape[1])
        others = {n: site.tensors[n] for n in roles.others}
        sample = Sample(*some, others, site.constants, site.positional, site.data_fields)
        site.tensors = {}
        self.version = 0
        self._start(_Call(site, roles, sample), shard)
        return self

    def _owner(self, roles: Roles, by: Method | Tensor) -> Any:
        """The rank of every node, made by the first rank."""
        relation, num_nodes = roles.relations[0], next(iter(roles.num_nodes.values()))
        if isinstance(by, Tensor):
            owner = by.cpu().numpy().astype(np.int16)
            if owner.shape != (num_nodes,) or (
                owner.size and not 0 <= owner.min() <= owner.max() < self.size
            ):
                raise PartitionError(
                    f"partition_by: expected a rank below {self.size} for each of the {num_nodes} "
                    f"nodes (got shape {list(by.shape)})"
                )
            return owner if self.rank == 0 else None
        if self.rank:
            return None
        return partition(roles.edge_index[relation.graph], num_nodes, self.size, by).owner.numpy()

    @torch.no_grad()
    def from_shards(
        self, folder: str | os.PathLike[str], **arguments: Any
    ) -> DistributedIncrementalModel:
        """Start from shards on disk: no rank ever holds the whole graph.

        Args:
            folder: What `python -m pyg_incremental.distributed partition` has written, or
                `write_shards`. The names of the arrays are those of the model's arguments.
            **arguments: Further arguments of the model.

        Returns:
            This model.

        Raises:
            PartitionError: If the folder does not fit the number of ranks.
        """
        self._together(self._refuse_training)
        shard = self._together(lambda: read_shard(folder, self.rank, self.size))
        nodes, edges = rows_for_sample(shard.nodes, shard.edges, shard.edge_index.shape[1])
        others = {n: v for n, v in arguments.items() if isinstance(v, Tensor)}
        constants = {n: v for n, v in arguments.items() if n not in others}
        mine = Sample(nodes, edges, others, constants, [], {})
        self.version = 0
        self._from_part(shard, mine)
        return self

    def _from_part(self, shard: Shard, mine: Sample) -> None:
        """Start from what this rank owns; the sample of the first rank that has one counts."""
        samples = self.rounds.everywhere(mine)
        sizes = [next((len(t) for t in s.nodes.values()), 0) for s in samples]
        sample: Sample = samples[int(np.argmax(sizes))]

        def call() -> _Call:
            site = site_of_sample(self.model, sample)
            return _Call(site, plain_roles(site), sample)

        self._start(self._together(call), shard)

    def _start(self, call: _Call, shard: Shard) -> None:
        models = self.rounds.everywhere(fingerprint(self.model))
        if any(m != models[0] for m in models):
            raise PartitionError(
                f"{type(self.model).__name__} does not have the same parameters on every rank; "
                "load them from one file"
            )
        plan = self._together(
            lambda: plan_of(call.site, call.roles, call.sample, shard.by_target, self._settings)
        )
        self._part = Part(plan, shard, call.sample.others, self.rounds, self._settings)
        self._call, self._watch = call, ParameterWatch(self.model)

    @torch.no_grad()
    def refresh(self) -> None:
        """Recompute everything from the current graph, features and parameters, on all ranks.

        Raises:
            StaleStateError: Before the first pass, or if the model is in training mode.
        """
        part, call = self._require(), self._call
        assert call is not None
        self._together(self._refuse_training)
        self._start(call, self._together(part.shard))

    # Updates -------------------------------------------------------------------------------------

    @torch.no_grad()
    def apply_delta(
        self,
        edge_index_add: Any = None,
        edge_index_del: Any = None,
        x_changes: Any = None,
        *,
        edge_weight_add: Any = None,
        edge_attr_add: Any = None,
        edge_changes: Any = None,
        x_add: Any = None,
        nodes_del: Any = None,
        edge_data_add: Any = None,
        undirected: bool = False,
        missing: str = "error",
        gather: bool = False,
    ) -> Update:
        """Apply one group of changes, and bring the output up to date.

        One rank hands it in and all others call `apply_delta()` without arguments; or every rank
        hands in a part, and the parts count as one delta, in the order of the ranks. Ids are
        global. New nodes get the ids that follow, those of lower ranks first; the rank that hands
        them in chooses who owns them, by LDG over the edges that it hands in.

        Args:
            edge_index_add: As in `GraphDelta`, like all others; or one `GraphDelta`.
            edge_index_del: See there.
            x_changes: See there.
            edge_weight_add: See there.
            edge_attr_add: See there.
            edge_changes: See there.
            x_add: See there.
            nodes_del: See there.
            edge_data_add: See there.
            undirected: See there.
            missing: See there; alike on all ranks that hand in anything.
            gather: Return what changed on all ranks, on every rank.

        Returns:
            The changed output rows of this rank's nodes (or of all), with global ids; `stats` is a
            `DistributedStats`.

        Raises:
            InvalidDeltaError: On every rank, if a part does not fit. Nothing was changed then.
            StaleStateError: On every rank, if what one of them stores is stale.
            RankFailedError: If a rank has died or raised in the middle.
        """
        began, before = time.perf_counter(), self._spent()
        part = self._require()
        try:
            self._refuse_stale()
            given: GraphDelta | Exception = GraphDelta(
                edge_index_add, edge_index_del, x_changes, edge_weight_add, edge_attr_add,
                edge_changes, x_add, nodes_del, edge_data_add, undirected, missing,  # type: ignore[arg-type]
            ).alone()  # fmt: skip
        except Exception as error:
            given = error
        happened = part.update(given, self._next_scrub(part))
        self.version += 1
        changed, out = part.changed() if happened is not None else part.nothing()
        if gather:
            changed, out = self._gathered(changed, out)
        spent = [b - a for a, b in zip(before, self._spent(), strict=True)]
        done = Happened(0, 0, [], []) if happened is None else happened
        stats = DistributedStats(
            "incremental", done.added, done.removed, time.perf_counter() - began, done.work,
            tuple(done.traffic), *spent,  # type: ignore[arg-type]
        )  # fmt: skip
        return Update(changed, out, stats, self.version)

    def _spent(self) -> tuple[float, ...]:
        """Rounds, bytes and seconds so far."""
        r = self.rounds
        return r.count, r.bytes_sent, r.bytes_received, r.seconds_waiting, r.seconds_sending

    def _next_scrub(self, part: Part) -> NDArray[np.int64]:
        rows, own = self._settings.scrub_rows, part.ids
        if not rows or not own.size:
            return own[:0]
        first, self._scrub_next = self._scrub_next, self._scrub_next + rows
        return own[np.arange(first, first + min(rows, own.size)) % own.size]

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

    # Reading -------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Tensor:
        """The nodes that this rank owns: global ids, ascending, int64 `[n]`. No collective."""
        return torch.from_numpy(self._require().ids.copy())

    @property
    def out(self) -> Any:
        """The current output rows of `nodes`, `[n, out_channels]`: not to be written to.

        No collective.
        """
        self._refuse_stale()
        return self._require().output(copy=False)

    @property
    def x(self) -> Tensor:
        """The current features of `nodes`, `[n, in_channels]`. No collective."""
        return next(iter(self._require().nodes().values()))

    def gather_out(self) -> Any:
        """The output of all nodes, `[num_nodes, out_channels]`, on every rank."""
        self._together(self._refuse_stale)
        out = self._require().output(copy=False)
        ids = pytree.tree_map(lambda _: self.nodes, out)
        return self._gathered(ids, out)[1]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all ranks, removed ones included. No collective."""
        return self._require().num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges that lead to nodes of this rank. No collective."""
        part = self._require()
        return part.graphs[part.graph_name, False].num_edges

    @property
    def num_ghosts(self) -> int:
        """Number of ghosts of this rank: rows of other ranks that it keeps. No collective."""
        return sum(link.ghosts.count for link in self._require().links.values())

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
        part = self._require()
        return memory_of(part.session.engine, len(part.ids))

    def verify(self, num_nodes: int | None = None, *, seed: int = 0) -> float:
        """Largest absolute difference between the output and a full pass of the original model.

        The first rank runs it: on the whole graph, which then has to fit there; or on the part of
        the graph that some nodes see.

        Args:
            num_nodes: Check about that many nodes, drawn at random; all by default, and always all
                if the model gathers against the edges.
            seed: Seed of the draw.

        Raises:
            StaleStateError: If what a rank stores is stale.
        """
        self._together(self._refuse_stale)
        part, call = self._require(), self._call
        assert call is not None
        got = verify.gather(part, verify.sample_of(part, num_nodes, seed))
        return self._together(
            lambda: 0.0 if self.rank else verify.difference(part, call.site, got), first=True
        )

    # Files ---------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save graph, features and ownership: one file for each rank, and a manifest.

        The manifest is written when all files are there, so a save that is cut off leaves the last
        one as it was. What was acknowledged before a save is in it; deltas that follow are not, and
        are handed in again after `load` (`version` tells which).

        Raises:
            StaleStateError: If what a rank stores is stale.
        """
        self._together(self._refuse_stale)
        part, call = self._require(), self._call
        assert call is not None
        self._together(
            lambda: saving.write_part(folder, self.model, part.shard(), call.sample, self.version)
        )
        self._together(
            lambda: (
                saving.write_manifest(folder, self.size, self.version) if not self.rank else None
            )
        )
        self._together(lambda: saving.clean(folder, self.rank, self.size, self.version))

    @classmethod
    @torch.no_grad()
    def load(
        cls,
        folder: str | os.PathLike[str],
        model: nn.Module,
        comm: Communicator | None = None,
        **settings: Any,
    ) -> DistributedIncrementalModel:
        """Continue from a save, on as many ranks as there are now.

        On another number of ranks the nodes are placed anew, by LDG, one file at a time.

        Args:
            folder: What `save` has written.
            model: The model that it belongs to, with the parameters it had.
            comm: How ranks talk to each other.
            **settings: As for the class.

        Raises:
            StateFileError: If a file is cut off or damaged, or belongs to another model.
        """
        loaded = cls(model, comm, **settings)
        loaded._together(loaded._refuse_training)
        manifest = loaded._together(lambda: saving.read_manifest(folder))
        rank, size = loaded.rank, loaded.size
        owner = None
        if manifest["size"] != size:
            owner = loaded._together(
                lambda: saving.placed_anew(folder, manifest, model, size) if rank == 0 else None
            )
            owner = next(o for o in loaded.rounds.everywhere(owner) if o is not None)
        shard, sample = loaded._together(
            lambda: saving.read_part(folder, manifest, model, rank, size, owner)
        )
        loaded._from_part(shard, sample)
        loaded.version = manifest["version"]
        return loaded

    # Guards --------------------------------------------------------------------------------------

    def _together(self, run: Callable[[], T], *, first: bool = False) -> T:
        """Run something that may raise; if it does on one rank, all ranks raise the same.

        Args:
            run: What to run. It holds no round.
            first: Return what the first rank got.
        """
        error: Exception | None = None
        value: Any = None
        try:
            value = run()
        except Exception as raised:
            error = raised
        got = self.rounds.everywhere(error if error is not None or not first else value)
        raise_first(got)
        return got[0] if first else value  # type: ignore[no-any-return]

    def _require(self) -> Part:
        if self._part is None:
            raise StaleStateError(
                f"{type(self.model).__name__} has not been called yet, so nothing is stored; first "
                "call it on the whole graph, or from_shards, and then apply deltas"
            )
        return self._part

    def _refuse_training(self) -> None:
        if any(m.training for m in self.model.modules()):
            raise StaleStateError(
                f"{type(self.model).__name__} is in training mode, where dropout and batch "
                "statistics make outputs depend on chance; call model.eval() first, on every rank"
            )

    def _refuse_stale(self) -> None:
        reason = self.stale
        if reason:
            raise StaleStateError(
                f"rank {self.rank}: the stored rows of {type(self.model).__name__} are stale: "
                f"{reason}. Call refresh() on every rank to recompute them from the current graph, "
                "features and parameters"
            )

    def __repr__(self) -> str:
        state = (
            self.mode
            if self._part is None
            else f"{len(self.nodes):,} nodes, {self.num_edges:,} edges"
        )
        rank = f"rank {self.rank} of {self.size}"
        return f"{type(self).__name__}({type(self.model).__name__}, {rank}, {state})"

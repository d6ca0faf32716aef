"""How ranks come to their state: from a whole graph, from shards on disk, or from a save."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pyg_incremental.blocks.given import bytes_of
from pyg_incremental.call.bound_call import BoundCall, bind, device_of
from pyg_incremental.call.full_pass import gap, lacks_memory
from pyg_incremental.call.roles import Roles, classify
from pyg_incremental.call.said import said_of
from pyg_incremental.distributed import verify
from pyg_incremental.distributed.call import SharedCall, call_from, call_of, most_of, plan_of
from pyg_incremental.distributed.errors import PartitionError, on_all_ranks
from pyg_incremental.distributed.files import saving
from pyg_incremental.distributed.files.shard_files import ShardFiles
from pyg_incremental.distributed.one_process import without_names
from pyg_incremental.distributed.part.journal import RankCommitted
from pyg_incremental.distributed.part.part import Part
from pyg_incremental.distributed.placement.ownership import Ownership, owners_of
from pyg_incremental.distributed.placement.shard import Shard, ShardEdges, shard_of
from pyg_incremental.distributed.readings import RankReadings, collective
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.engine.memory import memory_of
from pyg_incremental.errors import UnsupportedModelError, warn
from pyg_incremental.files.snapshot import digest_of
from pyg_incremental.graph.storage import Storage
from pyg_incremental.session.against_model import CHECKED, nodes_to_check, why_it_differs
from pyg_incremental.session.first_check import ROOM
from pyg_incremental.session.near import rows_in
from pyg_incremental.session.parameters import ParameterWatch, fingerprint
from pyg_incremental.session.settings import Settings
from pyg_incremental.session.unforced import decided

S = TypeVar("S", bound="Starting")


class Starting(RankReadings):
    """The state of one rank, made, saved and loaded; a base of `DistributedIncrementalModel`.

    Args:
        model: The model.
        rounds: The conversation with the other ranks.
        settings: What the user chose.
    """

    def __init__(self, model: nn.Module, rounds: Rounds, settings: Settings) -> None:
        super().__init__(model, rounds, settings)
        self._call: SharedCall | None = None

    @collective("the first call")
    @torch.no_grad()
    def __call__(self: S, *args: Any, partition_by: Ownership = "metis", **kwargs: Any) -> S:
        """Start from a whole graph that every rank has been given; see also `from_shards`.

        Args:
            *args: What the model takes, alike on every rank.
            partition_by: How to choose the owners of the nodes (see `partition`), or the rank of
                every node, integers `[num_nodes]`; with several kinds of nodes a dict by kind.
            **kwargs: Likewise.

        Returns:
            This model; `out` are the rows of this rank's nodes.

        Raises:
            UnsupportedModelError: If some step of the model needs all rows, or if what was followed
                does not give its output on this graph; if nodes or edges have names.
            PartitionError: If `partition_by` does not fit.
        """
        named = self._together(lambda: without_names(self.model, kwargs))
        call, shard = self._cut(lambda: bind(self.model, args, named), partition_by)
        self._start(call, shard, RankCommitted(), self._settings)
        self._check(whole=True)
        return self

    @collective("from_shards")
    @torch.no_grad()
    def from_shards(self: S, folder: str | os.PathLike[str], **arguments: Any) -> S:
        """Start from shards on disk: no rank ever holds the whole graph.

        Args:
            folder: What `python -m pyg_incremental.distributed partition` has written, or
                `write_shards`. The names of the arrays are those of the model's arguments.
            **arguments: Further arguments of the model.

        Returns:
            This model.

        Raises:
            UnsupportedModelError: As in a call.
            PartitionError: If the folder does not fit the number of ranks.
        """
        self._start_from(folder, arguments, self._settings)
        return self

    @collective("bootstrap")
    @torch.no_grad()
    def bootstrap(
        self: S,
        folder: str | os.PathLike[str],
        *,
        memory: int | str = "4GB",
        directory: str | os.PathLike[str] | None = None,
        **arguments: Any,
    ) -> S:
        """Like `from_shards`, with a store that may be larger than memory.

        What this rank stores, ghosts included, lies in memory as far as `memory` allows, and the
        rest in memory maps of files; see `IncrementalModel.bootstrap`. Layers are exchanged as
        ever.

        Args:
            folder: As for `from_shards`.
            memory: Bytes that this rank's store may take in memory.
            directory: Where this rank's files are; ranks may share it, as files have no names.
            **arguments: Further arguments of the model.

        Returns:
            This model.

        Raises:
            UnsupportedModelError: As in a call.
            PartitionError: If the folder does not fit the number of ranks.
            MemoryError: If a rank stores more than `memory` allows, and has no directory.
        """
        storage = self._together(lambda: Storage(bytes_of(memory), directory))
        self._start_from(folder, arguments, replace(self._settings, storage=storage))
        return self

    def _start_from(
        self, folder: str | os.PathLike[str], arguments: dict[str, Any], settings: Settings
    ) -> None:
        self._start(*self._read(folder, arguments), RankCommitted(), settings)
        self._check(whole=False)

    def _cut(
        self, given: Callable[[], BoundCall], partition_by: Ownership
    ) -> tuple[SharedCall, Shard]:
        """This rank's part of a call that every rank has been given."""

        def cut() -> tuple[Any, Roles, Any]:
            self._refuse_training()
            site = given()
            choice = decided(site, said_of(site.model, None))
            site, roles = choice.site, classify(choice.site, choice.pairs, choice.roles)
            return site, roles, None if self.rank else owners_of(roles, partition_by, self.size)

        site, roles, owner = self._together(cut)
        owner = self.rounds.everywhere(owner)[0]
        nodes = {n: (kind, site.tensors[n].detach()) for n, kind in roles.nodes.items()}
        graphs = [
            ShardEdges(r, roles.edge_index[r.graph], _detached(roles.data_of(r, site.tensors)))
            for r in roles.relations
        ]
        self._refuse_other_inputs(nodes, graphs)
        shard = shard_of(self.rank, self.size, owner, nodes, graphs)
        return call_of(site, roles), shard

    def _refuse_other_inputs(
        self, nodes: Mapping[str, tuple[str, Tensor]], graphs: Sequence[ShardEdges]
    ) -> None:
        """See that all ranks were given the same features and the same graph."""
        given = [nodes, [(g.edge_index, g.data) for g in graphs]]
        every = self.rounds.everywhere(self._together(lambda: digest_of(given)))
        other = next((rank for rank, digest in enumerate(every) if digest != every[0]), None)
        if other is not None:
            raise on_all_ranks(
                PartitionError(
                    f"{type(self.model).__name__} was called with other features, edges or edge "
                    f"data on rank {other} than on rank 0; pass the same ones on every rank, or "
                    "let each rank read its own part (from_shards)"
                )
            )

    def _read(
        self, folder: str | os.PathLike[str], arguments: dict[str, Any]
    ) -> tuple[SharedCall, Shard]:
        """This rank's part of what lies in a folder."""
        named = self._together(lambda: without_names(self.model, arguments))
        self._together(self._refuse_training)
        files = self._together(lambda: ShardFiles(folder, self.rank, self.size))
        sample = most_of(self.rounds.everywhere(self._together(files.sample)))

        def read() -> tuple[SharedCall, Shard]:
            call = files.call(self.model, sample.to(self._home()), named)
            return call, files.shard(call.roles.relations).to(self._home())

        return self._together(read)

    @collective("save")
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save graph, features and ownership: one file for each rank, and a manifest.

        The files of every save have names of their own, and the manifest takes the place of the
        last one when all of them are on the disk; so a save that is cut off leaves the last one as
        it was. What was acknowledged before a save is in it; deltas that follow are not, and
        are handed in again after `load` (`version` tells which).

        Raises:
            StaleStateError: If what a rank stores is stale.
        """
        self._together(lambda: self._refuse_stale(exactly=True))
        part, call = self._require(), self._called()
        saving.save(folder, self.model, part, call, self.rounds)

    @collective("load")
    def _load(self, folder: str | os.PathLike[str]) -> None:
        rank, size, model = self.rank, self.size, self.model
        self._together(self._refuse_training)
        save = self._together(lambda: saving.Save(folder, model))
        owner = None
        if save.size != size:
            placed = self._together(lambda: None if rank else save.placed_anew(size))
            owner = self.rounds.everywhere(placed)[0]
        saved = self._together(lambda: save.part(rank, size, owner))
        call = self._together(lambda: call_from(saved.call, model))
        call.sample = most_of(self.rounds.everywhere(call.sample)).to(self._home())
        self._start(call, saved.shard.to(self._home()), save.committed, self._settings)
        part = self._require()
        self._together(lambda: saved.refuse_other_outputs(part, model))

    # What all of these do ------------------------------------------------------------------------

    def _home(self) -> torch.device:
        """Where rows from files go: to the parameters."""
        return device_of(self.model, ())

    def _refuse_other_models(self) -> None:
        """See that all ranks have the same parameters."""
        models = self.rounds.everywhere(self._together(lambda: fingerprint(self.model)))
        if any(m != models[0] for m in models):
            raise on_all_ranks(
                PartitionError(
                    f"{type(self.model).__name__} does not have the same parameters on every rank; "
                    "load them from one file"
                )
            )

    def _start(
        self, call: SharedCall, shard: Shard, committed: RankCommitted, settings: Settings
    ) -> None:
        self._refuse_other_models()
        self.rounds.device = device_of(self.model, shard.nodes.values())
        counts = {kind: len(ranks) for kind, ranks in shard.owner.items()}
        plan = self._together(lambda: plan_of(call, counts, settings))
        others, rounds = call.sample.others, self.rounds
        self._part = Part(plan, shard, others, rounds, settings, committed)
        self._call, self._watch = call, ParameterWatch(self.model, bool(call.site.keeps))

    def _check(self, whole: bool) -> None:
        """Hold the first pass against the original model, if that is wanted.

        Args:
            whole: Whether the first rank can hold the whole graph.
        """
        part, call = self._require(), self._called()
        program = part.plan.program
        count = nodes_to_check(program) if whole else CHECKED
        asked = verify.sample_of(part, count, seed=0)
        if not self._settings.check or (asked is None and not whole):
            return
        most, got = self._rows_to_check(asked is None), None
        for sample in (asked,) if asked is None else (asked, asked[:4], asked[:1]):
            got = got or verify.gather(part, sample, most)
        if got is None:
            self._say_unchecked(
                f"it takes more than {most:,} nodes and edges, which are too many for the first "
                "rank beside its store"
            )
            return

        def compared() -> float | str:
            try:
                return 0.0 if self.rank else gap(*verify.both(part, call.site, got))
            except Exception as error:  # of the model: the program has run
                if asked is None and not lacks_memory(error):
                    raise
                return f"the model itself fails on what was to be compared ({error})"

        off = self._together(compared, first=True)
        if isinstance(off, str):
            self._say_unchecked(off)
        elif off:
            self._part = None
            raise on_all_ranks(
                UnsupportedModelError(
                    f"{type(self.model).__name__} cannot be spread over ranks: "
                    f"{why_it_differs(program, off)}; `to_incremental` keeps it exact in one "
                    "process, by full passes"
                )
            )

    def _rows_to_check(self, whole: bool) -> int:
        """On how many nodes and edges the first rank may run the model; the same on all ranks."""
        session = self._require().session
        store = memory_of(session.engine, session.count).total if whole else 0
        return min([*self.rounds.everywhere(rows_in(session, ROOM + store))], default=0)

    def _say_unchecked(self, why: str) -> None:
        """Warn on the first rank of a first pass that was not held against the model."""
        if not self.rank:
            warn(
                f"{type(self.model).__name__}: its first pass was not held against the model: "
                f"{why}. Its program agrees with the model on a small graph; verify(num_nodes=1) "
                "compares on this one, given memory, and check=False says that nobody asks for it"
            )

    def _called(self) -> SharedCall:
        """The call, once there was one."""
        self._require()
        assert self._call is not None
        return self._call


def _detached(rows: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.detach() for name, t in rows.items()}

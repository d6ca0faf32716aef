"""One rank of a journey: the same deltas on several ranks, in one process, and on the oracle."""

import copy
import threading
import zlib

import torch

from pyg_incremental import to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.oracle import full
from tests.side_by_side import clone
from tests.strategies import DELTAS, generator, journey, make_world

ONE_AT_A_TIME = threading.Lock()
"""Ranks that are threads share the random numbers that parameters are drawn from."""
NOISE = 1e-11
"""A row that came out this close to what it was may count as changed, or not."""


class Journey:
    """What one rank does; all ranks draw the same worlds and deltas.

    Args:
        comm: The communicator.
        case: A `Case` of the zoo.
        fmt: Format of the first `edge_index`.
        seed: Seed of everything.
        single: Whether the single process comes along, to compare `changed`.
        options: Keywords of `DistributedIncrementalModel`.
    """

    def __init__(self, comm, case, fmt="coo", seed=0, single=True, dtype=torch.float64, **options):
        self.case, self.rank, self.size = case, comm.rank, comm.size
        self.label = f"{case} on {fmt}, rank {comm.rank} of {comm.size}, {options}, seed {seed}"
        self.rng = generator([seed, zlib.crc32(f"{case} {fmt}".encode())])
        self.world = make_world(
            self.rng, data=case.data_for(fmt), fmt=fmt, signed=case.signed, dtype=dtype
        )
        with ONE_AT_A_TIME:
            model, self.twin = case.build(seed, dtype)
        self.single = None
        if single and not self.rank:
            self.single = to_incremental(copy.deepcopy(model))
            case.call(self.single, self.world.inputs())
        self.inc = DistributedIncrementalModel(model, comm, **options)
        owner = torch.from_numpy(self.rng.integers(0, comm.size, self.world.num_nodes))
        case.call(lambda *a, **k: self.inc(*a, partition_by=owner, **k), self.world.inputs())
        self.done = ["first pass"]
        self.steps = 0
        self.out = clone(self.inc.gather_out())
        self.check_all()

    def walk(self, names=None):
        for name in names or journey(self.rng, finite=self.case.finite):
            self.step(DELTAS[name](self.world, self.rng), name)

    def step(self, delta, name="delta"):
        after = self.world.copy()
        after.apply(**delta)
        if self.case.picky and not self.works_on(after):
            return None
        self.done.append(name)
        self.steps += 1
        try:
            part = self.part_of(delta)
            update = self.inc.apply_delta(**part, gather=True)
        except Exception as error:
            error.add_note(self.where())
            raise
        self.world = after
        other = self.single.apply_delta(**delta) if self.single is not None else None
        self.check_changed(update, other)
        self.check_all()
        return update

    def part_of(self, delta):
        """The whole delta on one rank, another one each time; every third time each has a part."""
        if self.steps % 3 or delta.get("undirected"):
            return delta if self.steps % self.size == self.rank else {}
        return {k: self.share_of(k, v) for k, v in delta.items()}

    def share_of(self, field, value):
        def rows(t):
            return t.tensor_split(self.size)[self.rank]

        def columns(t):
            return t.tensor_split(self.size, dim=1)[self.rank]

        if field in ("edge_index_add", "edge_index_del"):
            return columns(value)
        if field == "x_changes":
            return tuple(map(rows, value))
        if field == "edge_changes":
            return columns(value[0]), {k: rows(v) for k, v in value[1].items()}
        if field == "edge_data_add":
            return {k: rows(v) for k, v in value.items()}
        return rows(value) if isinstance(value, torch.Tensor) else value

    def works_on(self, world):
        try:
            full(self.twin, world, self.case.call)
        except (RuntimeError, IndexError):
            return False
        return True

    def where(self):
        return f"{self.label}: after {', '.join(self.done)}"

    def check_all(self):
        want = full(self.twin, self.world, self.case.call)
        assert_close(self.inc.gather_out(), want, what=self.where())
        assert self.inc.num_nodes == self.world.num_nodes
        assert self.inc.stale is None
        part = self.inc._part
        edges, data = part.edges()
        mine = set(part.ids.tolist())
        at = [i for i, (_, v) in enumerate(self.world.pairs()) if v in mine]
        assert torch.equal(edges, self.world.edge_index()[:, at]), f"{self.where()}: edges"
        for name, rows in data.items():
            want = self.world.edge_data(name) if name in self.world.names else None
            if want is not None:
                assert torch.equal(rows, want[at]), f"{self.where()}: {name}"
        assert_close(self.inc.x, self.world.x[part.ids], tolerance=0, what=f"{self.where()}: x")
        self.check_ghosts(part)

    def check_ghosts(self, part):
        """Every ghost has an edge, and the rows that its owner has."""
        for (_, out), link in part.links.items():
            pairs = self.world.pairs()
            near, far = (0, 1) if out else (1, 0)
            mine = set(part.ids.tolist())
            wanted = {p[far] for p in pairs if p[near] in mine and p[far] not in mine}
            ids = link.ghosts._globals.array
            assert set(ids[ids >= 0].tolist()) == wanted, f"{self.where()}: ghosts"

    def check_changed(self, update, other):
        now = clone(self.inc.gather_out())
        theirs = tensors_of(other.changed) if other is not None else None
        every = zip(*map(tensors_of, (self.out, now, update.changed, update.out)), strict=True)
        for i, (before, after, changed, rows) in enumerate(every):
            assert changed.dtype == torch.long
            assert changed.tolist() == rows_that_differ(before, after), f"{self.where()}: changed"
            assert_close(rows, after[changed], 0, f"{self.where()}: rows of the update")
            if theirs is None:
                continue
            for row in set(changed.tolist()) ^ set(theirs[i].tolist()):
                gap = (after[row] - before[row]).abs().max()
                assert gap < NOISE, f"{self.where()}: row {row} changed by {gap}, or not"
        self.out = now

"""One rank of a journey: the same deltas on several ranks, in one process, and on the oracle."""

import copy
import threading
import warnings
import zlib

import numpy as np
import torch

from pyg_incremental import GraphDelta, IncrementalWarning, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel
from tests import hetero_oracle, oracle
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.hetero_oracle import PAIR
from tests.hetero_side_by_side import same_structure
from tests.hetero_strategies import HETERO_DELTAS, as_plain, hetero_journey, make_hetero
from tests.side_by_side import clone
from tests.strategies import DELTAS, generator, journey, make_world
from tests.zoo import randomise
from tests.zoo_hypergraph import HYPER_DELTAS, hyper_journey, make_hyper

ONE_AT_A_TIME = threading.Lock()
"""Ranks that are threads share the random numbers that parameters are drawn from."""
NOISE = 1e-11
"""A row that came out this close to what it was may count as changed, or not."""


class Travel:
    """What one rank does; all ranks draw the same worlds and deltas.

    Kinds of graphs differ in how a world is made, called and checked, and how a delta is parted.

    Args:
        comm: The communicator.
        case: Names the model.
        label: What the journey is called.
        seed: Seed of everything.
        single: Whether the single process comes along, to compare `changed`.
        options: Keywords of `DistributedIncrementalModel`.
    """

    deltas = DELTAS

    def __init__(self, comm, case, label, seed=0, single=True, dtype=torch.float64, **options):
        self.case, self.rank, self.size, self.seed = case, comm.rank, comm.size, seed
        self.label = f"{label}, rank {comm.rank} of {comm.size}, {options}, seed {seed}"
        self.rng = generator([seed, zlib.crc32(str(label).encode())])
        self.world = self.make_world(dtype)
        with ONE_AT_A_TIME:
            model, self.twin = self.build(seed, dtype)
        # `to_hetero` patches the modules of all threads: nobody calls one before all have built.
        comm.share(np.zeros(1, np.int64))
        self.single = None
        if single and not self.rank:
            self.single = to_incremental(copy.deepcopy(model), compile_after=None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", IncrementalWarning)
                self.call(self.single)
        self.inc = DistributedIncrementalModel(model, comm, **options)
        owner = self.owners()
        self.call(lambda *a, **k: self.inc(*a, partition_by=owner, **k))
        self.done = ["first pass"]
        self.steps = 0
        self.out = clone(self.inc.gather_out())
        self.check_all()

    def some_ranks(self, count):
        return torch.from_numpy(self.rng.integers(0, self.size, count))

    def walk(self, names=None):
        for name in names or self.plan():
            self.step(self.deltas[name](self.world, self.rng), name)
        return self

    def step(self, delta, name="delta"):
        after = self.world.copy()
        after.apply(**delta)
        if getattr(self.case, "picky", False) and not self.works_on(after):
            return None
        self.done.append(name)
        self.steps += 1
        written = self.written(delta)
        try:
            update = self.inc.apply_delta(**self.part_of(written), gather=True)
        except Exception as error:
            error.add_note(self.where())
            raise
        self.world = after
        other = self.single.apply_delta(**written) if self.single is not None else None
        self.check_changed(update, other)
        self.check_all()
        return update

    def there_and_back(self, names):
        """Each delta is undone by what all ranks say of it beforehand."""
        for name in names:
            self.steps += 1
            written = self.written(self.deltas[name](self.world, self.rng))
            part = self.part_of(written)
            before = clone(self.inc.gather_out())
            back = self.inc.inverse(GraphDelta(**part))
            self.inc.apply_delta(**part)
            self.inc.apply_delta(back)
            pairs = zip(tensors_of(before), tensors_of(self.inc.gather_out()), strict=True)
            for old, now in pairs:  # new nodes stay, without edges
                assert_close(now[: len(old)], old, what=f"{self.where()}: {name} and back")
            assert self.inc.verify() < 1e-9, f"{self.where()}: {name} and back"
        return self

    def part_of(self, delta):
        """The whole delta on one rank, another one each time; every third time each has a part."""
        if self.steps % 3 or delta.get("undirected"):
            return delta if self.steps % self.size == self.rank else {}
        return {k: self.share_of(k, v) for k, v in delta.items()}

    def share_of(self, field, value):
        def rows(t):
            return torch.as_tensor(t).tensor_split(self.size)[self.rank]

        def columns(t):
            return t.tensor_split(self.size, dim=1)[self.rank]

        if isinstance(value, dict):
            return {k: self.share_of(field, v) for k, v in value.items()}
        if field in ("edge_index_add", "edge_index_del"):
            return columns(value)
        if field == "x_changes":
            return tuple(map(rows, value))
        if field == "edge_changes":
            return columns(value[0]), {k: rows(v) for k, v in value[1].items()}
        if isinstance(value, (torch.Tensor, list)):
            return rows(value)
        return value

    def works_on(self, world):
        try:
            self.full(world)
        except (RuntimeError, IndexError):
            return False
        return True

    def where(self):
        return f"{self.label}: after {', '.join(self.done)}"

    def check_all(self):
        want, got = self.full(self.world), self.inc.gather_out()
        assert same_structure(got, want), self.where()
        assert_close(got, want, what=self.where())
        assert self.inc.stale is None
        self.check_graphs()
        self.check_ghosts()

    def check_edges(self, mine, pairs, world_edges, edges):
        """The edges are those that lead to own nodes, at each node in order.

        Returns their places in the world and here, by target.
        """
        mine = set(mine.tolist())
        at = [i for i, (_, v) in enumerate(pairs) if v in mine]
        at.sort(key=lambda i: pairs[i][1])
        here = edges[1].argsort(stable=True)
        assert torch.equal(edges[:, here], world_edges[:, at]), f"{self.where()}: edges"
        return at, here

    def check_ghosts(self):
        """Ghosts are the nodes at which edges start (or end) that are not own ones."""
        region = self.inc._part.region
        for (name, out), link in region.links.items():
            pairs = self.pairs_of(region.relations[name])
            near, far = (0, 1) if out else (1, 0)
            near_kind, far_kind = region.kinds((name, out))
            mine, own = (set(region.ids(k).tolist()) for k in (near_kind, far_kind))
            wanted = {p[far] for p in pairs if p[near] in mine and p[far] not in own}
            ids = link.ghosts._globals.array
            assert set(ids[ids >= 0].tolist()) == wanted, f"{self.where()}: ghosts of {name}"

    def check_changed(self, update, other):
        now = clone(self.inc.gather_out())
        assert same_structure(update.changed, now), self.where()
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


class Journey(Travel):
    """Over a graph on one kind of nodes; `fmt` is the format of the first `edge_index`."""

    def __init__(self, comm, case, fmt="coo", seed=0, single=True, **options):
        self.fmt = fmt
        super().__init__(comm, case, f"{case} {fmt}", seed, single, **options)

    def make_world(self, dtype):
        case = self.case
        data = case.data_for(self.fmt)
        return make_world(self.rng, data=data, fmt=self.fmt, signed=case.signed, dtype=dtype)

    def build(self, seed, dtype):
        return self.case.build(seed, dtype)

    def call(self, model):
        return self.case.call(model, self.world.inputs())

    def full(self, world):
        return oracle.full(self.twin, world, self.case.call)

    def owners(self):
        return self.some_ranks(self.world.num_nodes)

    def plan(self, kinds=None):
        return journey(self.rng, finite=self.case.finite, kinds=kinds)

    def written(self, delta):
        return delta

    def pairs_of(self, relation):
        return self.world.pairs()

    def check_graphs(self):
        world, inc = self.world, self.inc
        assert inc.num_nodes == world.num_nodes
        at, here = self.check_edges(inc.nodes, world.pairs(), world.edge_index(), inc.edge_index)
        for name in world.names:
            want = world.edge_data(name)[at]
            assert torch.equal(inc.edge_data(name)[here], want), f"{self.where()}: {name}"
        assert_close(inc.x, world.x[inc.nodes], tolerance=0, what=f"{self.where()}: x")


class Learned(Journey):
    """A model with one learned row for each node: there can be no more of them."""

    bare = False

    def plan(self, kinds=None):
        growing = ("new_isolated_nodes", "new_nodes_with_edges", "new_node_changed_and_removed",
                   "mixed")  # fmt: skip
        return [name for name in super().plan(kinds) if name not in growing]

    def written(self, delta):
        return {k: v for k, v in delta.items() if k != "x_changes" or not self.bare}

    def check_graphs(self):
        if not self.bare:
            super().check_graphs()


class Bare(Learned):
    """A model without features."""

    bare = True


class HeteroJourney(Travel):
    """Over several kinds of nodes and edges."""

    deltas = HETERO_DELTAS

    def __init__(self, comm, case, seed=0, single=True, **options):
        super().__init__(comm, case, str(case), seed, single, **options)

    def make_world(self, dtype):
        case = self.case
        channels = case.channels
        return make_hetero(
            self.rng, types=case.types, data=case.data, channels=channels, dtype=dtype
        )

    def build(self, seed, dtype):
        torch.manual_seed(seed)
        model = self.case.make().to(dtype).eval()
        hetero_oracle.full(model, self.world)  # fills lazy parameters
        model = randomise(model, seed)
        return model, copy.deepcopy(model)

    def call(self, model):
        return hetero_oracle.call_plain(model, self.world)

    def full(self, world):
        return hetero_oracle.full(self.twin, world)

    def owners(self):
        owner = {kind: self.some_ranks(len(rows)) for kind, rows in self.world.x.items()}
        return owner if len(owner) > 1 else next(iter(owner.values()))

    def plan(self, kinds=None):
        return hetero_journey(self.rng, kinds)

    def written(self, delta):
        return as_plain(delta, self.world)

    def pairs_of(self, relation):
        return self.world.pairs(self.type_of(relation))

    def type_of(self, relation):
        return relation.key if isinstance(relation.key, tuple) else PAIR

    def check_graphs(self):
        world, inc = self.world, self.inc
        assert inc.num_nodes == sum(map(len, world.x.values()))
        kinds = list(world.x)
        nodes, x = inc.nodes, inc.x
        if len(kinds) == 1:
            nodes, x = {kinds[0]: nodes}, {kinds[0]: x}
        for kind in kinds:
            assert_close(x[kind], world.x[kind][nodes[kind]], 0, f"{self.where()}: x of {kind}")
        types = list(world.edges)
        for edge_type in types:
            edges = inc.edge_index if len(types) == 1 else inc.edge_index[edge_type]
            pairs, want = world.pairs(edge_type), world.edge_index(edge_type)
            at, here = self.check_edges(nodes[edge_type[2]], pairs, want, edges)
            relations = inc._part.region.relations.values()
            for name in world.names[edge_type]:
                (relation,) = [r for r in relations if self.type_of(r) == edge_type]
                data = inc._part.region.edges(relation.graph)[1]
                (rows,) = [inc.edge_data(key) for key in data if name in key]
                want = world.edge_data(edge_type, name)[at]
                assert torch.equal(rows[here], want), f"{self.where()}: {name}"


class HyperJourney(Travel):
    """Over a hypergraph."""

    deltas = HYPER_DELTAS

    def __init__(self, comm, case, seed=0, single=True, **options):
        super().__init__(comm, case, str(case), seed, single, **options)

    def make_world(self, dtype):
        return make_hyper(self.rng, self.case, dtype)

    def build(self, seed, dtype):
        torch.manual_seed(seed)
        model = randomise(self.case.make(), seed).to(dtype).eval()
        return model, copy.deepcopy(model)

    def call(self, model):
        return self.world.call(model)

    def full(self, world):
        return world.call(self.twin)

    def owners(self):
        owner = {"x": self.some_ranks(len(self.world.x))}
        if self.seed % 2:  # else they are placed next to their nodes
            owner["hyperedge"] = self.some_ranks(self.world.num_hyperedges)
        return owner

    def plan(self, kinds=None):
        return hyper_journey(self.rng, kinds)

    def written(self, delta):
        """What is said of the nodes alone needs no name."""
        return {
            field: value["x"] if isinstance(value, dict) and list(value) == ["x"] else value
            for field, value in delta.items()
        }

    def pairs_of(self, relation):
        return self.world.pairs

    def check_graphs(self):
        world, inc = self.world, self.inc
        mine = torch.from_numpy(inc._part.region.ids("hyperedge"))
        self.check_edges(mine, world.pairs, world.edge_index(), inc.edge_index)
        assert_close(inc.x, world.x[inc.nodes], tolerance=0, what=f"{self.where()}: x")
        assert inc.num_nodes == len(world.x)

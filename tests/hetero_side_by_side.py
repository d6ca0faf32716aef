"""The package and the oracle next to each other, on several types of nodes and edges."""

import copy
import warnings
import zlib

import torch

from pyg_incremental import IncrementalWarning, to_incremental
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.hetero_oracle import call_plain, full
from tests.hetero_strategies import HETERO_DELTAS, as_plain, hetero_journey, make_hetero
from tests.side_by_side import clone
from tests.strategies import generator
from tests.zoo import randomise


class HeteroSides:
    """One case: the wrapped model, an independent copy of it, and the world of both.

    Args:
        case: A `HeteroCase` of the zoo.
        dtype: Floating-point type of everything.
        seed: Seed of parameters, graph and deltas; the name of the case is mixed in.
        options: Keywords of `to_incremental`.
    """

    def __init__(self, case, dtype=torch.float64, seed=0, **options):
        self.case = case
        self.label = f"{case}, {dtype}, {options}, seed {seed}"
        self.rng = generator([seed, zlib.crc32(str(case).encode())])
        self.world = make_hetero(
            self.rng, types=case.types, data=case.data, channels=case.channels, dtype=dtype
        )
        torch.default_generator.manual_seed(seed)
        with warnings.catch_warnings():
            # PyG warns of types that are no target, here with good reason.
            warnings.filterwarnings("ignore", "There exist node types")
            model = case.make().to(dtype).eval()
        full(model, self.world)  # fills lazy parameters
        self.twin = copy.deepcopy(randomise(model, seed))
        self.inc = to_incremental(model, **options)
        self.done = ["first pass"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncrementalWarning)  # tests look at the mode
            self.out = clone(call_plain(self.inc, self.world))
        self.check_all()

    def full(self, world=None):
        return full(self.twin, world or self.world)

    def walk(self, names=None):
        """Apply the named kinds of delta one after the other."""
        for name in names or hetero_journey(self.rng):
            self.step(HETERO_DELTAS[name](self.world, self.rng), name)

    def step(self, delta, name="delta"):
        """Apply one delta on both sides and compare everything."""
        after = self.world.copy()
        after.apply(**delta)
        if self.case.picky and not self.works_on(after):
            return None
        self.done.append(name)
        try:
            update = self.inc.apply_delta(**as_plain(delta, self.world))
        except Exception as error:
            error.add_note(self.where())
            raise
        self.world = after
        self.check_changed(update)
        self.check_all()
        return update

    def works_on(self, world):
        try:
            self.full(world)
        except (RuntimeError, IndexError):
            return False
        return True

    def where(self):
        return f"{self.label}: after {', '.join(self.done)}"

    def check_all(self):
        """Outputs, features and edges are those of the world."""
        world, inc = self.world, self.inc
        want = self.full()
        assert same_structure(inc.out, want), self.where()
        assert_close(inc.out, want, what=self.where())
        for kind, rows in world.x.items():
            mine = inc.x if len(world.x) == 1 else inc.x[kind]
            assert_close(mine, rows, tolerance=0, what=f"{self.where()}: x of {kind}")
        for edge_type in world.edges:
            graph = inc.graph if len(world.edges) == 1 else inc.graph[edge_type]
            assert torch.equal(graph.to_edge_index(), world.edge_index(edge_type)), self.where()
            for name in world.names[edge_type]:
                (rows,) = (v for k, v in graph.state().items() if name in k)
                assert torch.equal(rows, world.edge_data(edge_type, name)), self.where()
        assert inc.num_nodes == sum(map(len, world.x.values()))
        assert inc.num_edges == sum(map(len, world.edges.values()))

    def check_changed(self, update):
        """`changed` names the rows that differ, and `out` holds them."""
        now = clone(self.inc.out)
        assert same_structure(update.changed, now), self.where()
        every = zip(*map(tensors_of, (self.out, now, update.changed, update.out)), strict=True)
        for before, after, changed, rows in every:
            assert changed.dtype == torch.long
            assert changed.tolist() == rows_that_differ(before, after), f"{self.where()}: changed"
            assert_close(rows, after[changed], 0, f"{self.where()}: rows of the update")
        self.out = now


def same_structure(a, b):
    """Whether two results have their tensors in the same places."""
    if isinstance(a, dict) or isinstance(b, dict):
        return (
            isinstance(a, dict)
            and isinstance(b, dict)
            and list(a) == list(b)
            and all(same_structure(a[k], b[k]) for k in a)
        )
    if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_structure, a, b))
    return isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor)

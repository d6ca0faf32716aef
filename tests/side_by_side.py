"""Runs the package and the oracle next to each other and compares everything after each delta."""

import copy
import zlib

import torch

from pyg_incremental import to_incremental
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.oracle import full
from tests.strategies import DELTAS, generator, journey, make_world


class SideBySide:
    """One case on one format: the wrapped model, the original model and the world of both.

    Args:
        case: A `Case` of the zoo.
        fmt: Format of the first `edge_index`.
        dtype: Floating-point type of everything.
        seed: Seed of parameters, graph and deltas; the name of the case is mixed in.
        world: The first graph (default: a random one).
        data: Edge data of the first graph (default: what the case names).
        options: Keywords of `to_incremental`.
    """

    def __init__(
        self, case, fmt="coo", dtype=torch.float64, seed=0, world=None, data=None, **options
    ):
        self.case = case
        self.label = f"{case} on {fmt}, {dtype}, {options}, seed {seed}"
        self.rng = generator([seed, zlib.crc32(f"{case} {fmt}".encode())])
        self.world = world or make_world(
            self.rng,
            data=case.data_for(fmt) if data is None else data,
            fmt=fmt,
            signed=case.signed,
            dtype=dtype,
        )
        model, self.twin = case.build(seed, dtype)
        self.inc = to_incremental(model, **options)
        self.done = ["first pass"]
        out = case.call(self.inc, self.world.inputs())
        assert type(out) is type(self.full()), self.where()
        self.out = clone(out)
        self.check_all()

    def full(self, world=None):
        return full(self.twin, world or self.world, self.case.call)

    def walk(self, names=None, kinds=None):
        """Apply the named kinds of delta one after the other, else so many, else some."""
        for name in names or journey(self.rng, finite=self.case.finite, kinds=kinds):
            self.step(DELTAS[name](self.world, self.rng), name)

    def step(self, delta, name="delta"):
        """Apply one delta on both sides and compare everything."""
        self.world.number_edges()
        after = self.world.copy()
        after.apply(**delta)
        if self.case.picky and not self.works_on(after):
            return None
        if self.case.keeps_nodes and "nodes_del" in delta:
            return None
        self.done.append(name)
        try:
            update = self.inc.apply_delta(**delta)
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
        self.check_out()
        index = self.inc.graph.to_edge_index()
        assert index.dtype == torch.long
        assert torch.equal(index, self.world.edge_index()), f"{self.where()}: edges"
        for name in self.world.names:
            rows = self.inc.edge_data(name)
            assert torch.equal(rows, self.world.edge_data(name)), f"{self.where()}: {name}"
        assert_close(self.inc.x, self.world.x, tolerance=0, what=f"{self.where()}: x")
        assert self.inc.num_nodes == self.world.num_nodes
        assert self.inc.num_edges == len(self.world.edges)
        assert self.inc.stale is None

    def check_out(self):
        """The output is that of the original, which in single precision may be far off itself.

        So it is with a variance of large numbers that are nearly equal; then the original in
        double precision counts.
        """
        try:
            assert_close(self.inc.out, self.full(), what=self.where())
        except AssertionError:
            if self.world.x.dtype != torch.float32:
                raise
            exact = full(copy.deepcopy(self.twin).double(), self.world.doubled(), self.case.call)
            for got, want in zip(tensors_of(self.inc.out), tensors_of(exact), strict=True):
                assert_close(got, want.to(got.dtype), what=self.where())

    def check_changed(self, update):
        now = clone(self.inc.out)
        every = zip(
            *map(tensors_of, (self.out, now, update.changed, update.out)), strict=True
        )  # one round for each output of the model
        named = update.changed_edges
        named = list(named) if isinstance(named, tuple) else named
        kinds = [v.kind for v in self.inc.program.outputs]
        for before, after, changed, rows in every:
            edges = named.pop(0) if isinstance(named, list) else named
            edges = edges if kinds.pop(0) == "edge_index" else None  # others are fixed pairs
            assert changed.dtype == torch.long
            differ = rows_that_differ(before, after) if edges is None else (
                self.world.edges_that_differ(before, after)
            )  # fmt: skip
            assert changed.tolist() == differ, f"{self.where()}: changed"
            assert_close(rows, after[changed], 0, f"{self.where()}: rows of the update")
            if edges is not None:
                assert torch.equal(edges, self.world.edges_of_rows()[:, changed]), self.where()
        self.out = now


def clone(output):
    if isinstance(output, torch.Tensor):
        return output.clone()
    if isinstance(output, dict):
        return {name: clone(value) for name, value in output.items()}
    return type(output)(clone(value) for value in output)

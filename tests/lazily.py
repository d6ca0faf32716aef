"""Side by side with a lazy model: deltas are only marked, some rows are read now and then.

Graphs of tests are so small that an update at once would be taken whenever somebody asks. So the
sizes from which on it is not are drawn, too.
"""

import zlib

import pytest
import torch

from pyg_incremental import IncrementalError
from pyg_incremental.engine import on_demand
from tests.closeness import assert_close, tensors_of
from tests.hetero_side_by_side import HeteroSides
from tests.side_by_side import SideBySide
from tests.strategies import generator


def draw_sizes(monkeypatch, case, seed):
    choice = generator([seed, zlib.crc32(f"sizes {case}".encode())])
    for name in ("FEW", "UNSEEN"):
        monkeypatch.setattr(on_demand, name, int(choice.choice([0, 0, 8, 64])))


class Lazily:
    """Mixed into the sides of a case."""

    def __init__(self, case, *given, seed=0, **options):
        self.choice = generator([seed, zlib.crc32(f"lazy {case}".encode())])
        super().__init__(case, *given, seed=seed, lazy=True, **options)

    def check_changed(self, update):
        with pytest.raises(IncrementalError, match=r"inc\.read\(nodes\)"):
            update.changed  # noqa: B018

    def check_all(self):
        if self.done == ["first pass"]:
            return
        turn = self.choice.random()
        if turn < 0.35:
            self.check_some()
        elif turn < 0.4:
            super().check_all()
        elif turn < 0.45:
            self.inc.settle()
        elif turn < 0.5:
            rows, calls = int(self.choice.integers(1, 9)), 1
            while self.inc.settle(rows=rows) and self.choice.random() < 0.9:
                calls += 1
            assert calls <= self.inc._session.count // rows + 3

    def check_some(self):
        """A few rows of each output are those of the original, whatever else waits."""
        outputs = self.inc.program.outputs
        if any(v.domain.value != "node" for v in outputs):
            super().check_all()
            return
        counts, nodes = self.inc._session.num_nodes, {}
        for kind in dict.fromkeys(v.kind for v in outputs):
            some = self.choice.integers(0, max(counts[kind], 1), int(self.choice.integers(1, 4)))
            nodes[kind] = torch.from_numpy(some[: counts[kind]])
        asked = nodes[""] if [*nodes] == [""] else nodes
        got, want = tensors_of(self.inc.read(asked).out), tensors_of(self.full())
        assert len(got) == len(want)
        kinds = [v.kind for v in outputs]
        for some, every, kind in zip(got, want, kinds, strict=len(kinds) == len(got)):
            assert_close(some, every[nodes[kind]], what=f"{self.where()}, read {nodes}")

    def check_the_end(self):
        self.check_some()
        super().check_all()
        assert self.inc.check() == []


class LazySides(Lazily, SideBySide):
    """A case on one kind of nodes."""


class LazyHetero(Lazily, HeteroSides):
    """A case on several kinds of nodes or graphs."""

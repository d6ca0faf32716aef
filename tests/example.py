"""What an example of the zoo says of itself, and how it is run through changes."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyg_incremental import IncrementalWarning, to_incremental
from tests.closeness import assert_close, rows_that_differ, tensors_of
from tests.scene import EVERY, Changes, Scene, a_graph, set_apart
from tests.side_by_side import clone
from tests.zoo import randomise

INCREMENTAL, ROWS, MIXED, FULL = "incremental", "row recompute", "mixed", "full pass"


def named(model, arguments):
    return model(**arguments)


@dataclass(frozen=True)
class Example:
    """A model in the shape of one that people know.

    Args:
        name: The id of the test.
        source: Whose shape it takes: `examples/` of PyG, of OGB, a tutorial or a library.
        make: Makes it.
        scene: Makes what it is called with, from a seed.
        changes: The kinds of change that it allows, in order.
        call: How it is called with the keywords of a scene.
        warm: Whether it has been called once before, as a model is after its training.
    """

    name: str
    source: str
    make: Callable[[], torch.nn.Module]
    scene: Callable[[int], Scene] = a_graph
    changes: tuple = EVERY
    call: Callable[..., Any] = named
    warm: bool = False

    def __str__(self):
        return self.name


class Run:
    """An example beside the oracle.

    Args:
        example: The example.
        seed: Seed of parameters, scene and changes.
    """

    def __init__(self, example, seed=0):
        torch.manual_seed(seed)
        self.example, self.scene = example, example.scene(seed)
        self.twin = randomise(example.make(), seed).double().eval()
        model = copy.deepcopy(self.twin)
        if example.warm:
            with torch.no_grad():
                example.call(model, self.scene.arguments())
        self.inc = to_incremental(model)
        self.done = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncrementalWarning)
            example.call(self.inc, self.scene.arguments())
        self.out, self.mode = clone(self.inc.out), self.inc.mode
        self.check()

    @property
    def runs(self):
        """How it is followed."""
        steps = self.inc.program.steps
        recomputed = any(s.kind == "rows" and ".loop" not in s.output.name for s in steps)
        return ROWS if self.inc.mode == INCREMENTAL and recomputed else self.inc.mode

    def walk(self, seed):
        changes = Changes(seed)
        for name in self.example.changes:
            self.step(getattr(changes, name)(self.scene), name)

    def step(self, change, name):
        self.done.append(name)
        left = {g for g in change.gone if change.gone[g]} | {
            g for g in self.scene.edges if change.nodes_del
        }
        self.scene = self.scene.apply(change)
        try:
            update = self.inc.apply_delta(**change.keywords(self.scene.is_plain))
        except Exception as error:
            error.add_note(f"{self.example}: after {', '.join(self.done)}")
            raise
        self.check()
        self.check_changed(update, left)

    def check(self):
        """Removed nodes are in no graph, but for a step on all rows that reads which one."""
        where = f"{self.example}: after {', '.join(self.done) or 'the first pass'}"
        ours = tensors_of(self.inc.out)
        if not self.scene.removed or not any(r.leaves for r in self.inc._require().roles.relations):
            theirs = tensors_of(self.scene.full(self.twin, self.example.call))
        elif self.runs == MIXED:  # steps on all rows see rows of zeros, as they do without `batch`
            theirs = tensors_of(set_apart(self.scene).full(self.twin, self.example.call))
            theirs = [rows[: len(own)] for own, rows in zip(ours, theirs, strict=True)]
            ours = [own[: len(rows)] for own, rows in zip(ours, theirs, strict=True)]
        else:
            theirs = tensors_of(self.scene.full_on_the_rest(self.twin, self.example.call))
            outputs, left = self.inc.program.outputs, self.scene.left()
            of_nodes = [v.domain.value == "node" and v.kind == "" for v in outputs]
            ours = [rows[left] if at else rows for rows, at in zip(ours, of_nodes, strict=True)]
            ours = [own[: len(rows)] for own, rows in zip(ours, theirs, strict=True)]
        for own, wanted in zip(ours, theirs, strict=True):
            assert_close(own, wanted, what=where)

    def check_changed(self, update, left):
        """The rows that are named are those that differ; of edges where none has left."""
        now = clone(self.inc.out)
        if self.inc.mode != self.mode:  # the model answers itself from here on
            self.out, self.mode = now, self.inc.mode
            return
        every = zip(*map(tensors_of, (self.out, now, update.changed, update.out)), strict=True)
        for (before, after, changed, rows), value in zip(
            every, self.inc.program.outputs, strict=True
        ):
            assert torch.equal(rows, after[changed]), self.done
            same_width = before.shape[1:] == after.shape[1:]
            if same_width and (value.domain.value != "edge" or value.kind not in left):
                assert changed.tolist() == rows_that_differ(before, after), self.done
        self.out = now

"""An exception at some event of an update, a refresh, an inverse, a save, a load or a call.

Afterwards the state is that of the oracle before it or after it, as the version says; `check` finds
nothing, and `verify` is small.
"""

import tempfile
from pathlib import Path

import torch

from pyg_incremental import GraphDelta, IncrementalError, load
from tests.closeness import assert_close
from tests.side_by_side import clone
from tests.strategies import generator
from tests.torture.cases import CASES, beside, drawn
from tests.torture.inject import Injected, injecting

RAISED = (KeyboardInterrupt, MemoryError, Injected)
CHECKED = 4
"""One in so many faults is followed by `check` and `verify`; all by a look at what users see."""
OPERATIONS = ("update", "update", "update", "update", "refresh", "refresh some", "inverse", "save",
              "load", "call")  # fmt: skip


def batch(say, seed, faults):
    """Inject some faults into one case; returns how many were raised, and by which operation."""
    torch.set_num_threads(1)
    rng = generator([seed, 17])
    case = CASES[int(rng.integers(len(CASES)))]
    say(f"seed {seed}, {case}: the first pass")
    sides = beside(case, seed, rng)
    counts, known = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        sides.inc.save(path)
        saved = sides.inc.version, sides.world.copy()
        done, mode = 0, sides.inc.mode
        while done < faults:
            # A fault while a model is traced may be taken for one of the model: it then runs whole,
            # or its number of nodes is thought to be fixed. Exact, but not what is to be tried.
            if sides.inc.mode != mode or sides.inc._session.roles.fixed:
                case.call(sides.inc, sides.world.inputs())
            operation = str(rng.choice(OPERATIONS))
            raised = RAISED[int(rng.integers(len(RAISED)))]
            kind, delta = drawn(sides, rng)
            name = f"{operation} {kind}" if operation == "update" else operation
            at = int(rng.integers(known.get(name, 300)))
            say(f"seed {seed}, {case}: {raised.__name__} at event {at} of {name} (fault {done})")
            trial = Trial(sides, seed, delta, path, saved)
            events = trial.run(operation, raised, at)
            if events is None:
                done += 1
                counts[operation] = counts.get(operation, 0) + 1
            else:
                known[name] = events
            saved = trial.saved
            trial.judge(operation, thorough=done % CHECKED == 0 or events is not None)
    return counts


class Trial:
    """One operation with a fault in it.

    Args:
        sides: The wrapped model and the oracle's world.
        seed: That of its parameters.
        delta: What an update does.
        path: Where the last state was saved.
        saved: Its version and world.
    """

    def __init__(self, sides, seed, delta, path, saved):
        self.sides, self.seed, self.delta, self.path = sides, seed, delta, path
        self.saved = saved
        self.version = sides.inc.version
        self.after = sides.world.copy()
        self.after.apply(**delta)
        self.loaded = None

    def run(self, operation, raised, at):
        """Run it; returns how many events it has if the fault was not reached."""
        inc, case = self.sides.inc, self.sides.case
        work = {
            "update": lambda: inc.apply_delta(**self.delta, delta_id=self.version),
            "refresh": inc.refresh,
            "refresh some": lambda: inc.refresh([0, 0, 1]),
            "inverse": lambda: inc.inverse(GraphDelta(**self.delta)),
            "save": lambda: inc.save(self.path),
            "load": self._load,
            "call": lambda: case.call(inc, self.sides.world.inputs()),
        }[operation]
        try:
            with injecting(raised, at) as count:
                work()
        except raised as error:
            if "injected" not in str(error) and raised is not KeyboardInterrupt:
                raise
            return None
        except (IncrementalError, RuntimeError) as error:  # one that a fault was turned into
            if not count.done or not _comes_from(error, raised):
                raise
            return None
        return None if count.done else count.events

    def _load(self):
        model, _ = self.sides.case.build(self.seed)
        self.loaded = load(self.path, model)

    def judge(self, operation, thorough):
        """See that the state is the old one or the new one."""
        inc, sides = self.sides.inc, self.sides
        moved = inc.version != self.version
        if operation == "call" and inc.version == 0:
            moved = False
        elif operation != "update":
            assert not moved, "the version moved without a delta"
        if inc.stale is not None:
            assert not moved, f"the version moved, but: {inc.stale}"
            if self.version + inc.num_nodes & 1 or thorough:
                inc.refresh()
            else:  # what refuses everything else lets a call through
                version = inc.version
                sides.case.call(inc, sides.world.inputs())
                assert inc.version == 0 or version == 0
        if moved:
            assert inc.version == self.version + 1
            sides.world = self.after
            again = inc.apply_delta(**self.delta, delta_id=self.version)
            assert again.repeated
        sides.out = clone(inc.out)
        sides.check_all()
        if thorough:
            problems = inc.check()
            assert not problems, problems
            assert inc.verify() < 1e-6
        if operation in ("save", "load"):
            self._judge_file()

    def _judge_file(self):
        """The file holds the state saved before, or this one."""
        model, _ = self.sides.case.build(self.seed)
        loaded = load(self.path, model)
        world = self.sides.world
        if not torch.equal(loaded.graph.to_edge_index(), world.edge_index()) or (
            loaded.num_nodes != world.num_nodes or not torch.equal(loaded.x, world.x)
        ):
            _, world = self.saved
        assert torch.equal(loaded.graph.to_edge_index(), world.edge_index())
        assert_close(loaded.x, world.x, tolerance=0)
        assert_close(loaded.out, self.sides.full(world))
        assert not [p for p in self.path.parent.iterdir() if p != self.path], "a part is left over"
        self.saved = loaded.version, world.copy()


def _comes_from(error, raised):
    """Whether an error was raised because of another one."""
    while error is not None:
        if isinstance(error, raised):
            return True
        error = error.__cause__ or error.__context__
    return False

"""One model, one graph, some deltas: drawn, run, and described by an outcome."""

import contextlib
import itertools
import linecache
import sys
import types
import warnings
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from tests.fuzz.draw import EDGE_INPUTS, Author, every_operation
from tests.fuzz.graphs import KINDS, Recipe, draw_deltas, draw_dtypes, draw_recipe
from tests.fuzz.judge import Follower, Refused, Wrong, floats_of, run
from tests.fuzz.statement import HEAD, Drawn

ALL_DATA = EDGE_INPUTS[-1]
LARGEST = 1e4  # of an output: beyond, the rounding of sums would be seen
OPTIONS = (
    {"compile_after": 2},
    {"compile_after": 2},
    {},
    {"backend": "reference"},
    {"compile_after": 2, "store": "minimal"},
    {"compile_after": 2, "scrub_rows": 3},
)


@dataclass(frozen=True)
class Trial:
    """What a run is made from.

    Attributes:
        model: The drawn model.
        recipe: The first graph.
        options: Keywords of `to_incremental`.
        seed: Seed of the model's parameters, and of the deltas.
        kinds: Kinds of delta to draw along the way.
        deltas: Deltas that were drawn, as keywords of `apply_delta`; None before.
        about: The operation that it is about, "" if it is no one's.
    """

    model: Drawn
    recipe: Recipe
    options: dict
    seed: int
    kinds: tuple[str, ...]
    deltas: tuple[dict, ...] | None = None
    about: str = ""


@dataclass
class Outcome:
    """How a trial went.

    Attributes:
        kind: "right", "refused", "wrong", or "redrawn": the original fails on the first graph.
        why: What was wrong, or said.
        mode: `inc.mode`.
        followed: Deltas after which the two were compared.
        failing: Deltas on which the original fails, and so did the package.
        deltas: All that were tried.
    """

    kind: str
    why: str = ""
    sort: str = ""
    mode: str = ""
    followed: int = 0
    failing: int = 0
    deltas: list[dict] = field(default_factory=list)


def draw_trial(seed, deltas=10):
    """A random model on a random graph."""
    rng = np.random.default_rng(seed)
    return _around(Author(rng).model(), rng, deltas)


def draw_single(seed, deltas=10):
    """The operation of that number between two convs; beyond the last one it starts again."""
    rng = np.random.default_rng(seed)
    op, name = every_operation()[seed % len(every_operation())]
    trial = _around(Author(rng, ALL_DATA).around(op, name), rng, deltas)
    return replace(trial, about=f"{name}: {op.name}")


def _around(model, rng, deltas):
    recipe = draw_recipe(rng, model.data)
    options = OPTIONS[rng.integers(len(OPTIONS))]
    kinds = draw_deltas(rng, deltas, not_finite=rng.random() < 0.1)
    seed, stored = int(rng.integers(2**31)), draw_dtypes(rng, model.data)
    model = replace(model, casts=tuple(name for name, _ in stored))
    return Trial(model, replace(recipe, stored=stored), options, seed, tuple(kinds))


_numbers = itertools.count()


@contextlib.contextmanager
def module_of(text):
    """The text as a module whose source can be looked up, as PyG does for its convs.

    Each has a name of its own: PyG writes code for a class once, and finds it by name again.
    """
    name = f"fuzzed_{next(_numbers)}"
    filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = types.ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    try:
        exec(compile(text, filename, "exec"), module.__dict__)
        yield module
    finally:
        sys.modules.pop(name, None)
        linecache.cache.pop(filename, None)


def build(module, seed):
    torch.manual_seed(seed)
    return module.Model().double().eval()


def run_trial(trial):
    """Run a trial; draw its deltas unless it has some."""
    with warnings.catch_warnings(), module_of(f"{HEAD}\n\n{trial.model.source()}") as module:
        warnings.simplefilter("ignore")  # of building; calls are listened to
        try:
            model = build(module, trial.seed)
            world = trial.recipe.world()
            first, again = (run(model, world)[0] for _ in range(2))
        except Exception as error:
            return Outcome("redrawn", f"{type(error).__name__}: {error}")
        why = _unfit(first, again)
        return Outcome("redrawn", why) if why else _follow(trial, model, world)


def _unfit(first, again):
    """Why outputs of a model cannot be compared; "" if they can."""
    for one, other in zip(floats_of(first), floats_of(again), strict=True):
        if not torch.equal(one, other):
            return "not deterministic"
        if one.numel() and float(one.abs().max()) > LARGEST:
            return "too large"
    return ""


def _follow(trial, model, world):
    outcome = Outcome("right")
    try:
        follower = Follower(model, world, **trial.options)
        outcome.mode = follower.inc.mode
        for at, delta in enumerate(_deltas(trial, world)):
            follower.where = f"after delta {at}"
            outcome.deltas.append(delta)
            if follower.step(delta):
                outcome.followed += 1
            else:
                outcome.failing += 1
        follower.end()
    except Refused as error:
        outcome.kind, outcome.why = "refused", str(error)
    except Wrong as error:
        outcome.kind, outcome.sort, outcome.why = "wrong", error.kind, str(error)
    return outcome


def _deltas(trial, world):
    """The deltas of a trial, drawn where there are none; each fits the world as it is then."""
    if trial.deltas is not None:
        yield from trial.deltas
        return
    rng = np.random.default_rng(trial.seed)
    for kind in trial.kinds:
        yield KINDS[kind](world, rng)


def with_deltas(trial, deltas):
    return replace(trial, deltas=tuple(deltas))

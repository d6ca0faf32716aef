"""Follows one model along its deltas and holds it against the original after each of them.

This text ends every script of a failure; so it needs nothing but torch, the package and the oracle.
"""

import copy
import logging
import warnings

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pyg_incremental import IncrementalError, IncrementalWarning, to_incremental
from tests.oracle import call_plain

TOLERANCE = 1e-8  # of max(1, |value|); everything is in float64, but for what a model rounds itself


class Wrong(AssertionError):
    """What the package did is not what the original model does. `kind` says in which way."""

    def __init__(self, kind, where, what):
        super().__init__(f"{kind} {where}: {what}")
        self.kind = kind


class Refused(Exception):
    """The package says that it does not take this model."""


def run(model, world):
    """Output of a fresh copy of the original on the current graph, and the warnings it gave."""
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = call_plain(fresh(model), world.inputs())
    return cloned(out), caught


def fresh(model):
    """A copy of a model that nothing was called on.

    What PyG notes of a conv's signatures is shared: it is only read, and slow to copy.
    """
    notes = [part.inspector for part in model.modules() if hasattr(part, "inspector")]
    return copy.deepcopy(model, {id(note): note for note in notes})


def cloned(output):
    return pytree.tree_map(lambda t: t.clone() if isinstance(t, Tensor) else t, output)


class Follower:
    """One wrapped model, the original, and the graph of both.

    Args:
        model: The user's model.
        world: The first graph; it is changed along with the model's.
        **options: Of `to_incremental`.
    """

    def __init__(self, model, world, **options):
        self.model, self.world = model, world
        self.original = fresh(model)
        self.first = state_of(model)
        self.where = "at the first call"
        self.out, self.said = run(self.original, world)
        self.inc = to_incremental(model, **options)
        try:
            with self.listening():
                got = call_plain(self.inc, world.inputs())
        except IncrementalError as error:
            self.check_untouched()
            raise Refused(str(error)) from error
        same(got, self.out, self.where)
        self.check_out()

    def step(self, delta):
        """Apply one delta on both sides; False if the original itself fails on it.

        Where removed nodes would leave a readout of all, no node is removed: the oracle here knows
        no way to leave rows out (`tests/contract/test_whole_graph.py` does).
        """
        if any(r.leaves for r in self.inc._require().roles.relations):
            delta = {name: value for name, value in delta.items() if name != "nodes_del"}
        self.world.number_edges()
        after = self.world.copy()
        after.apply(**delta)
        try:
            want, self.said = run(self.original, after)
        except Exception:
            if not self.refuses(delta):
                self.world.x, self.world.edges, self.out = after.x, after.edges, None
            return False
        before = cloned(self.out_now())
        with self.listening():
            update = self.inc.apply_delta(**delta)
        self.world.x, self.world.edges, self.out = after.x, after.edges, want
        self.check_out()
        changed_rows(before, self.out_now(), update, self.where, self.world)
        return True

    def refuses(self, delta):
        """The original fails after this delta: the package does, too, and stays as it was; or not.

        It may have an answer where PyG has none, such as a median over no edges, or what fails is
        something that nobody reads. There is nothing to hold that against.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.inc.apply_delta(**delta)
        except Exception:
            if self.inc.stale:
                raise Wrong("stale", self.where, self.inc.stale) from None
            self.check_out()
            return True
        return False

    def end(self):
        """What is to hold after the last delta."""
        self.where = "at the end"
        if self.out is None:
            self.check_untouched()
            return
        with self.listening():
            gap = self.inc.verify()
        sizes = [
            tolerance_of(t.dtype) * max(1.0, float(t.abs().max()))
            for t in floats_of(self.out)
            if t.numel()
        ]
        if not gap <= max(sizes, default=TOLERANCE):
            raise Wrong("verify", self.where, f"verify() says {gap}")
        self.check_untouched()

    def check_out(self):
        if self.out is None:
            return
        same(self.out_now(), self.out, self.where)

    def out_now(self):
        with self.listening():
            return self.inc.out

    def check_untouched(self):
        now = state_of(self.model)
        for name in sorted(self.first | now):
            if not equal(self.first.get(name), now.get(name)):
                raise Wrong("touched", self.where, f"the user's model was changed: {name}")

    def listening(self):
        return Listening(self)


class Listening(warnings.catch_warnings):
    """Whatever the package raises is wrong, and so is what it says besides what the original says.

    An `IncrementalWarning` is its own way to speak; errors that torch logs meanwhile are not.
    """

    def __init__(self, follower):
        super().__init__(record=True)
        self.follower, self.logged = follower, []
        self.handler = logging.Handler(logging.ERROR)
        self.handler.emit = lambda record: self.logged.append(record.getMessage())

    def __enter__(self):
        self.caught = super().__enter__()
        warnings.simplefilter("always")
        for logger in self.loggers():
            logger.addHandler(self.handler)

    def __exit__(self, kind, error, trace):
        for logger in self.loggers():
            logger.removeHandler(self.handler)
        super().__exit__(kind, error, trace)
        if error is not None:
            if isinstance(error, IncrementalError) and self.follower.where == "at the first call":
                return False
            raise Wrong(f"raises {kind.__name__}", self.follower.where, error) from error
        said = {str(w.message) for w in self.follower.said}
        for w in self.caught:
            if str(w.message) not in said and not issubclass(w.category, IncrementalWarning):
                raise Wrong("warns", self.follower.where, f"{w.category.__name__}: {w.message}")
        if self.logged:
            raise Wrong("logs", self.follower.where, self.logged[0].partition("\n")[0])
        return False

    def loggers(self):
        """Those of torch that write by themselves instead of asking the one above them."""
        known = logging.Logger.manager.loggerDict
        return [
            known[n] for n in known if n.startswith("torch") and getattr(known[n], "handlers", 0)
        ]


# Comparing ########################################################################################


def same(got, want, where, at="output"):
    """Same structure, shapes, dtypes and values."""
    if isinstance(want, Tensor):
        if not isinstance(got, Tensor) or (got.shape, got.dtype) != (want.shape, want.dtype):
            shown = (tuple(got.shape), got.dtype) if isinstance(got, Tensor) else got
            raise Wrong("shape", where, f"{at} is {shown}, not {tuple(want.shape)}, {want.dtype}")
        near = (got == want) | ((got != got) & (want != want))
        if want.is_floating_point():
            near |= (got - want).abs() <= tolerance_of(want.dtype) * want.abs().clamp(min=1)
        if not near.all():
            first = tuple((~near).nonzero()[0].tolist())
            what = f"{int((~near).sum())} of {want.numel()} values of {at} differ; at {first}: "
            raise Wrong("differs", where, f"{what}{got[first].item()}, not {want[first].item()}")
    elif isinstance(want, (tuple, list, dict)):
        if type(got) is not type(want) or len(got) != len(want):
            raise Wrong("structure", where, f"{at} is a {type(got)}, not a {type(want)}")
        for key in want if isinstance(want, dict) else range(len(want)):
            same(got[key], want[key], where, f"{at}[{key!r}]")
    elif got != want:
        raise Wrong("structure", where, f"{at} is {got!r}, not {want!r}")


def tolerance_of(dtype):
    """That of float64, or what a value may be off that was rounded to fewer digits.

    Two values that differ in the last bit of float64 may lie on both sides of what is rounded.
    """
    return TOLERANCE if dtype == torch.float64 else 4 * torch.finfo(dtype).eps


def changed_rows(before, after, update, where, world):
    """`up.changed` and `up.out` say what the step from one output to the next was.

    Rows of nodes are known by their places, rows of edges by the edges.
    """
    parts = [pytree.tree_flatten(t) for t in (before, after, update.changed, update.out)]
    if len({str(spec) for _, spec in parts}) > 1:
        raise Wrong("structure", where, f"changed: {parts[2][1]}, output: {parts[1][1]}")
    edges = update.changed_edges
    named = pytree.tree_leaves(edges, is_leaf=lambda v: v is None or isinstance(v, Tensor))
    named = named if edges is not None else [None] * len(parts[0][0])
    for old, new, ids, rows, ends in zip(*[leaves for leaves, _ in parts], named, strict=True):
        if not isinstance(new, Tensor) or not new.dim():
            continue
        expected = list(range(len(new)))
        if ends is not None:
            expected = world.edges_that_differ(old, new)
            if not equal(ends, world.edges_of_rows()[:, ids]):
                raise Wrong("changed", where, "up.changed_edges are not those at up.changed")
        elif old.dim() and old.shape[1:] == new.shape[1:]:
            common = min(len(old), len(new))
            equals = (old[:common] == new[:common]) | (
                (old[:common] != old[:common]) & (new[:common] != new[:common])
            )
            differ = ~(equals.flatten(1).all(1) if equals.dim() > 1 else equals)
            expected = [*differ.nonzero().view(-1).tolist(), *expected[common:]]
        if ids.tolist() != expected:
            raise Wrong("changed", where, f"up.changed is {ids.tolist()}, not {expected}")
        if not equal(rows, new[ids]):
            raise Wrong("changed", where, "up.out is not inc.out[up.changed]")


def floats_of(output):
    leaves = pytree.tree_leaves(output)
    return [t[t.isfinite()] for t in leaves if isinstance(t, Tensor) and t.is_floating_point()]


# The user's model #################################################################################


NOTES = ("_use_segment_matmul_heuristic_output", "fuse")
"""What PyG's relational convs note of themselves in any call; the result is the same."""


def state_of(model):
    """Everything that the modules of a model hold, by name, as copies."""
    return {
        f"{name}.{key}": frozen(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in NOTES
    }


def frozen(value):
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):
        return id(value)
    if isinstance(value, dict):
        return [(key, frozen(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple, set)):
        return [frozen(item) for item in value]
    return value if isinstance(value, (int, float, str, bool)) else id(value)


def equal(one, other):
    """Equal bit by bit, NaN equal to itself."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = (one.shape, one.dtype) == (other.shape, other.dtype)
        return alike and bool(((one == other) | ((one != one) & (other != other))).all())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other

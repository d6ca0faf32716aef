"""Some seeds of the fuzzer, the grammar by itself, and the fuzzer on planted faults."""

from dataclasses import replace

import pytest
import torch

from pyg_incremental.ops.maps import MapExecutor
from pyg_incremental.session import start
from pyg_incremental.session.outputs import Outputs
from tests.fuzz.draw import operations
from tests.fuzz.judge import Wrong
from tests.fuzz.minimise import Minimiser
from tests.fuzz.report import Report
from tests.fuzz.script import script_of
from tests.fuzz.search import try_one
from tests.fuzz.trial import draw_trial, run_trial, with_deltas

MODELS = 16  # of one block: some five seconds


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(i, marks=pytest.mark.more) for i in range(1, 5))]
)
def test_random_models_are_followed(block, seed):
    report, scripts = Report(), []
    for number in range(MODELS):
        trial, outcome, seconds, failure = try_one(1_000_000 * seed + MODELS * block + number)
        report.take(trial, outcome, seconds)
        if failure is not None:
            scripts.append(failure.script)
    assert not scripts, "\n\n".join([f"{len(scripts)} wrong; each as a script:", *scripts])
    assert report.models > 0.8 * MODELS
    assert report.followed > 5 * report.models


def test_the_grammar_is_large():
    assert len(operations()) >= 200


@pytest.mark.unmeasured
def test_most_operations_are_seen():
    """The draw reaches the grammar, not a corner of it."""
    seen = {s.op for number in range(3000) for s in draw_trial(number).model.statements}
    assert len(seen) > 0.9 * len(operations())


# Planted faults: each is found, and printed as a program that fails by itself #####################


def forgets_maps(monkeypatch):
    """Row maps run once and never again, on graphs larger than those a model is tried on."""
    honest = MapExecutor.rows_changed

    def rows_changed(self):
        if self.context.num_nodes <= 40:
            honest(self)

    monkeypatch.setattr(MapExecutor, "rows_changed", rows_changed)


def forgets_a_row(monkeypatch):
    """The last changed row is not named."""
    honest = Outputs.changed

    def changed(self):
        ids, rows, ends = honest(self)
        return (ids[:-1], rows[:-1], ends) if isinstance(ids, torch.Tensor) else (ids, rows, ends)

    monkeypatch.setattr(Outputs, "changed", changed)


def writes_to_the_model(monkeypatch):
    """Something is left in the user's model."""
    honest = start.from_call

    def from_call(site, settings):
        session = honest(site, settings)
        site.model.left_behind = True
        return session

    monkeypatch.setattr(start, "from_call", from_call)


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("plant", "sort"),
    [(forgets_maps, "differs"), (forgets_a_row, "changed"), (writes_to_the_model, "touched")],
)
def test_a_planted_fault_is_found(plant, sort, monkeypatch):
    for trial in map(_plain_trial, range(25)):
        if run_trial(trial).kind != "right":
            continue
        with monkeypatch.context() as patch:
            plant(patch)
            outcome = run_trial(trial)
        if outcome.sort == sort:
            break
    with monkeypatch.context() as patch:
        plant(patch)
        small, last = Minimiser(with_deltas(trial, outcome.deltas), outcome).small()
        assert last.sort == sort
        assert len(small.model.statements) <= len(trial.model.statements)
        script = script_of(small, last.why)
        with pytest.raises(AssertionError, match=sort) as caught:
            _run_as_a_program(script)
        assert type(caught.value).__name__ == Wrong.__name__
    _run_as_a_program(script)  # without the fault, nothing is wrong


def _plain_trial(number):
    """On reference kernels, whose code can be replaced."""
    return replace(draw_trial(number), options={"backend": "reference"})


def _run_as_a_program(script):
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})

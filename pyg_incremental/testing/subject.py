"""A conv and its program, side by side."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pyg_incremental.call import full_pass
from pyg_incremental.call.bound_call import bind
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import classify
from pyg_incremental.call.traced import NotTraceable
from pyg_incremental.errors import IncrementalError, UnsupportedModelError
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.program.steps import Domain
from pyg_incremental.session.prepare import prepare
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Settings
from pyg_incremental.testing.compare import Found, compared, short
from pyg_incremental.testing.destination import has_target, reads_target
from pyg_incremental.testing.steps import (
    WrongStep,
    differs_from_afresh,
    differs_from_forward,
    with_all_rows,
)
from pyg_incremental.testing.trials import TrialGraph, TrialStream, as_delta, smallest
from pyg_incremental.trace.copies import ModelCopy
from pyg_incremental.trace.probe import probe_of
from pyg_incremental.trace.trace import trace, tried_on

Call = Callable[..., Any]
Test = Callable[[TrialStream], Found | None]


class ConvCheckError(IncrementalError, AssertionError):
    """A program differs from its conv; the message shows the smallest failing case.

    Attributes:
        condition: What does not hold.
        inputs: What the model is called with in that case, by name.
        deltas: The deltas that are then applied.
        row: The node whose row is wrong, or None if there was an error.
        step: The first step that differs, or None if that is not known.
    """

    def __init__(
        self,
        message: str,
        condition: str,
        trial: TrialStream | None = None,
        row: int | None = None,
        step: WrongStep | None = None,
    ) -> None:
        super().__init__(message)
        self.step = step
        self.condition = condition
        self.inputs = trial.graph.inputs() if trial else {}
        self.deltas = [as_delta(changes) for changes in trial.deltas] if trial else []
        self.row = row


class _Called(nn.Module):
    """A conv that is called in a way of its own."""

    def __init__(self, conv: nn.Module, call: Call) -> None:
        super().__init__()
        self.conv, self.how = conv, call

    def forward(self, x: Tensor, edge_index: Tensor, **edge_data: Tensor) -> Any:
        return self.how(self.conv, x, edge_index, **edge_data)


class Subject:
    """A conv and its program.

    Args:
        conv: The conv; a copy of it is used.
        call: How it is called, or None for `conv(x, edge_index, **edge_data)`.
        graph: A first graph.
        tolerance: Largest allowed difference, or None for that of the dtype.

    Attributes:
        trusted: How `to_incremental` would run the conv.
        distrust: Why it does not use the program, if it does not.
        num_deltas: How many deltas were tried so far.
        largest: The largest difference so far.

    Raises:
        UnsupportedModelError: If the conv itself does not run, or is not one on nodes of one kind.
    """

    def __init__(
        self, conv: nn.Module, call: Call | None, graph: TrialGraph, tolerance: float | None
    ) -> None:
        self.name = f"the program of '{type(conv).__name__}'"
        self.tolerance = tolerance
        self.num_deltas, self.largest = 0, 0.0
        self.conv = copy.deepcopy(conv).to(graph.x.dtype).eval()
        self.model = self.conv if call is None else _Called(self.conv, call)
        self.graph = graph
        inputs = graph.inputs()
        arguments = (inputs.pop("x"), inputs.pop("edge_index"))
        try:
            with full_pass.plainly(self.model):
                self.model(*arguments, **inputs)
        except Exception as error:  # whatever the user's conv raises
            shapes = ", ".join(f"{n} {list(t.shape)}" for n, t in graph.inputs().items())
            raise UnsupportedModelError(
                f"check_conv: '{type(conv).__name__}' itself fails when it is called with {shapes} "
                f"({type(error).__name__}: {error}); name channels=, edge_dim= and edge_weight= as "
                "it takes them, or how it is called with call="
            ) from error
        site = bind(self.model, arguments, inputs)
        roles = classify(site)
        if not roles.is_plain:
            kinds = " and ".join(f"'{kind}'" if kind else "nodes" for kind in roles.kinds)
            raise UnsupportedModelError(
                f"check_conv: '{type(conv).__name__}' connects {kinds} (expected edges between "
                "nodes of one kind, of which it tries random graphs); wrap it with to_incremental, "
                "apply deltas of your own, and hold each with assert_matches_full"
            )
        relation = replace(roles.relations[0], by_target=False)
        self.roles = replace(roles, relations=(relation,))
        self.trusted = self.plan = prepare(site, self.roles, Settings())
        self.distrust = ""
        try:
            probe, copied = probe_of(site, self.roles), ModelCopy(site.model)
            trial = tried_on(site, self.roles, probe, copied)
            self.plan = CallPlan(site, self.roles, trace(site, self.roles, trial), "")
        except NotTraceable:
            return
        self.distrust = self.trusted.fallback

    def full(self, graph: TrialGraph) -> Any:
        """The conv's own full pass."""
        inputs = graph.inputs()
        model = copy.deepcopy(self.model)
        with full_pass.plainly(model):
            return model(inputs.pop("x"), inputs.pop("edge_index"), **inputs)

    def start(
        self, graph: TrialGraph, keep_all: bool = False, plan: CallPlan | None = None
    ) -> Session:
        """The program on a graph, all rows computed."""
        inputs = graph.inputs()
        nodes = {"x": inputs.pop("x")}
        edges = DynamicGraph(inputs.pop("edge_index"), graph.num_nodes, inputs)
        counts = dict.fromkeys(self.roles.num_nodes, graph.num_nodes)
        session = Session(plan or self.plan, {"edge_index": edges}, counts, nodes, {}, Settings())
        for cell in session.engine.cells.values():
            cell.stored |= keep_all
        session.fill(nodes, {})
        return session

    # Tests: each tells what is wrong, or returns None --------------------------------------------

    def updates(self, trial: TrialStream) -> Found | None:
        """The program, kept current, against full passes."""
        try:
            expected = [self.full(graph) for graph in trial.graphs()]
        except Exception:  # the conv does not take such a graph, or an edge is not there
            return None
        try:
            session = self.start(trial.graph)
            for i, want in enumerate(expected):
                if i:
                    session.update(session.resolver.resolve(as_delta(trial.deltas[i - 1])))
                found = compared(session.outputs.now(copy=False), want, self.tolerance)
                if found.wrong:
                    return found.at(f"after delta {i}" if i else "in the first pass")
                self.largest = max(self.largest, found.gap)
        except Exception as error:  # a program of the user's
            return Found(where=f"it fails with {type(error).__name__}: {error}")
        return None

    def parts(self, trial: TrialStream) -> Found | None:
        """Rows made afresh, some at a time, against the same rows of the first pass."""
        count = trial.graph.num_nodes
        try:
            session = self.start(trial.graph, keep_all=True)
            cells = session.engine.cells
            values = [v for v, c in cells.items() if v.domain is Domain.NODE and c.rows is not None]
            before = [cells[v].whole(count).clone() for v in values]
            for rows in (r for size in (1, 3) for r in torch.arange(count).flip(0).split(size)):
                session.engine.update({}, {}, {}, dict.fromkeys(self.roles.num_nodes, rows))
                for value, old in zip(values, before, strict=True):
                    found = compared(cells[value].whole(count), old, self.tolerance)
                    if found.wrong:
                        return found.at(f"in step '{value}', for the rows {rows.tolist()} alone")
        except Exception as error:  # a program of the user's
            return Found(where=f"it fails with {type(error).__name__}: {error}")
        return None

    # Holding -------------------------------------------------------------------------------------

    def hold(self, test: Test, what: str, trial: TrialStream) -> None:
        """Raise with the smallest case if a test finds something.

        Raises:
            ConvCheckError: If it does.
        """
        self.num_deltas += len(trial.deltas)
        found = test(trial)
        if found is None:
            return
        first, trial = trial, smallest(trial, lambda smaller: test(smaller) is not None)
        found = test(trial) or found
        step = None
        if found.row is not None and test == self.updates:
            step = self._wrong_step(trial if trial.deltas else first)
        told = self._told(what, trial, found, step)
        raise ConvCheckError(told, what, trial, found.row, step)

    def _wrong_step(self, trial: TrialStream) -> WrongStep | None:
        """The step that goes wrong first; None where that cannot be found out."""
        plan = with_all_rows(self.plan)
        try:
            session = self.start(trial.graph, plan=plan)
            model = self.plan.site.on(copy.deepcopy(self.model))
            run = partial(full_pass.run, model, session.arguments())
            outputs = self.plan.program.outputs
            found = differs_from_forward(session, run, outputs, self.tolerance)
            if found is not None or not trial.deltas:
                return found
            for changes in trial.deltas:
                session.update(session.resolver.resolve(as_delta(changes)))
            *_, last = trial.graphs()
            return differs_from_afresh(session, self.start(last, plan=plan), self.tolerance)
        except Exception:  # a program of the user's, which is wrong
            return None

    def walk(self, journey: TrialStream) -> None:
        """Hold a sequence of deltas; the failing one by itself, if it fails by itself.

        Raises:
            ConvCheckError: If one of them fails.
        """
        what = "a delta leaves another output than a full pass"
        if self.updates(journey) is not None:
            for graph, changes in zip(journey.graphs(), journey.deltas, strict=False):
                self.hold(self.updates, what, TrialStream(graph, (changes,)))
        self.hold(self.updates, what, journey)

    def _told(self, what: str, trial: TrialStream, found: Found, step: WrongStep | None) -> str:
        lines = [f"{self.name} is wrong: {what}"]
        for name, rows in trial.graph.inputs().items():
            lines.append(f"  {name:12}{short(rows)}")
        for changes in trial.deltas:
            delta = as_delta(changes)
            parts = [f"{name}={short(getattr(delta, name))}" for name in delta.says]
            lines.append(f"  {'delta':12}{', '.join(parts)}")
        if found.row is None:
            lines.append(f"  {found.where}")
        else:
            lines.append(f"  {f'row {found.row}':12}{short(found.got)} {found.where}")
            lines.append(f"  {'expected':12}{short(found.expected)}")
        if step is not None:
            lines.append(str(step))
        lines += ["the program:", *(f"  {line}" for line in str(self.plan.program).splitlines())]
        if reads_target(self.conv, self.full, self.graph) and not has_target(self.plan.program):
            lines.append(
                "the conv's messages read the row that they lead to (x_i), but no aggregation of "
                "the program does"
            )
        if self.distrust:
            lines.append(f"to_incremental does not use it: {self.distrust}")
        return "\n".join(lines)

"""Hold a conv's program, your own or a built-in one, against the conv itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.model import IncrementalModel
from pyg_incremental.testing.compare import compared, short
from pyg_incremental.testing.random_changes import CHANGES, GRAPHS, Random, some_graph
from pyg_incremental.testing.subject import Call, ConvCheckError, Subject, Test
from pyg_incremental.testing.trials import Change, TrialGraph, TrialStream, as_delta


@dataclass(frozen=True)
class ConvReport:
    """What `check_conv` has found.

    Attributes:
        mode: How updates run: `'incremental'`, `'mixed'` or `'full pass'`.
        why: What runs on all rows, and why.
        steps: The steps of the program.
        num_deltas: How many deltas were applied and compared.
        max_difference: The largest difference from a full pass.
    """

    mode: str
    why: tuple[str, ...]
    steps: tuple[str, ...]
    num_deltas: int
    max_difference: float


@torch.no_grad()
def check_conv(
    conv: nn.Module,
    *,
    channels: int | None = None,
    edge_dim: int | None = None,
    edge_weight: bool = False,
    num_deltas: int = 60,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    tolerance: float | None = None,
    nan: bool = False,
    call: Call | None = None,
) -> ConvReport:
    """Hold a conv's program against the conv's own full pass, on small random graphs.

    First come the conditions that a program claims: its steps compute rows one by one; the order of
    edges does not matter; edges may come in parts; what came can leave again; what an edge carries
    depends on the rows that are declared. Then come random deltas of all kinds. A program that
    `to_incremental` would not trust is run all the same, to show where it goes wrong.

    Args:
        conv: The conv, or a small model, trained or not. A copy of it is checked.
        channels: Number of node features; by default the conv's `in_channels`, or 4.
        edge_dim: Number of edge features: it is called with `edge_attr`, `[num_edges, edge_dim]`.
        edge_weight: Whether it is called with `edge_weight`, `[num_edges]`.
        num_deltas: How many random deltas are tried.
        seed: Seed of graphs and deltas.
        dtype: Floating-point type of everything.
        tolerance: Largest allowed difference, relative to `max(1, abs(value))`; by default 1e-9 in
            float64 and 1e-4 in float32.
        nan: Whether features may become NaN.
        call: Calls the conv, as `call(conv, x, edge_index, **edge_data)`; for convs that are called
            in another way than `conv(x, edge_index, **edge_data)`.

    Returns:
        What was found; `mode` tells whether updates are incremental at all.

    Raises:
        ConvCheckError: If the program is wrong, with the smallest failing case.
        UnsupportedModelError: If the conv itself does not run when it is called like this, or
            connects something else than nodes of one kind, as convs of hypergraphs do.
    """
    if channels is None:
        held = getattr(conv, "in_channels", None)
        channels = held if isinstance(held, int) and held > 0 else 4
    data: dict[str, Tensor] = {}
    if edge_weight:
        data["edge_weight"] = torch.empty(0, dtype=dtype)
    if edge_dim is not None:
        data["edge_attr"] = torch.empty(0, edge_dim, dtype=dtype)
    rng = np.random.default_rng(seed)
    x = torch.empty(0, channels, dtype=dtype)
    graphs = [some_graph(kind, x, data, rng) for kind in GRAPHS]
    subject = Subject(conv, call, graphs[0], tolerance)
    for test, what, trials in _conditions(subject, graphs, rng):
        for trial in trials:
            subject.hold(test, what, trial)
    for i, graph in enumerate(graphs):
        count = num_deltas // len(graphs) + (i < num_deltas % len(graphs))
        subject.walk(_journey(graph, count, nan, rng))
    if subject.distrust:
        raise ConvCheckError(f"{subject.name} is wrong: {subject.distrust}", subject.distrust)
    program = subject.trusted.program
    return ConvReport(
        subject.trusted.mode,
        tuple(subject.trusted.why),
        tuple(map(str, program.steps)),
        subject.num_deltas,
        subject.largest,
    )


def assert_matches_full(inc: Any, tolerance: float | None = None) -> None:
    """Compare the current output with a full pass of the original model on the current graph.

    Args:
        inc: An `IncrementalModel`, or an incremental conv that has been called.
        tolerance: As for `check_conv`.

    Raises:
        AssertionError: If a row differs by more; it names the worst one.
        StaleStateError: If the stored rows are stale.
    """
    model: IncrementalModel = getattr(inc, "incremental", inc)
    found = compared(*model.against_full_pass(), tolerance)
    if found.wrong:
        raise AssertionError(
            f"{type(model.model).__name__}: row {found.row} is {short(found.got)}, but "
            f"{short(found.expected)} in a full pass (off by {found.gap:.3g}); refresh() makes it "
            "afresh, and check_conv finds out which program is wrong"
        )


def random_delta(inc: Any, rng: Random, kind: str | None = None) -> GraphDelta:
    """A random delta that fits the current state of a model.

    Args:
        inc: An `IncrementalModel`, or an incremental conv that has been called.
        rng: Where chance comes from, such as `numpy.random.default_rng(0)`.
        kind: One of `CHANGES`; any but those with NaN by default. Where it does not fit (such as
            new edge data without edge inputs), the delta is empty.
    """
    model: IncrementalModel = getattr(inc, "incremental", inc)
    session = model._require()
    edges = session.graph.to_edge_index().t().tolist()
    data = {name: model.edge_data(name) for name in session.graph.edge_data}
    graph = TrialGraph(model.x.clone(), tuple((u, v) for u, v in edges), data)
    if not graph.num_nodes:
        kind = "new nodes"
    changes = CHANGES[kind or str(rng.choice(_kinds(nan=False)))](graph, rng)
    if len(session.roles.nodes) > 1:  # a new node would need rows of the others, too
        known = graph.num_nodes
        changes = [c for c in changes if c.kind != "new" and max(c.at, default=0) < known]
    if session.roles.relations[0].format in ("csr", "csc"):  # which hold no edge twice
        there = set(graph.pairs)
        added = {c.at: c for c in changes if c.kind == "add" and c.at not in there}
        changes = [c for c in changes if c.kind != "add"] + list(added.values())
    return as_delta(changes)


def _conditions(
    subject: Subject, graphs: list[TrialGraph], rng: Random
) -> Iterator[tuple[Test, str, list[TrialStream]]]:
    """The conditions that a program claims, each with what is tried to refute it."""
    updates = subject.updates
    yield updates, "it computes something else than the conv", [TrialStream(g) for g in graphs]
    yield subject.parts, "a step does not compute rows one by one", [TrialStream(graphs[0])]
    others = [TrialStream(g.edges(rng.permutation(len(g.pairs)).tolist())) for g in graphs[:2]]
    yield updates, "the order of the edges matters (an aggregate has to be associative)", others
    halves, undone = [], []
    for graph in graphs[:2]:
        order = rng.permutation(len(graph.pairs)).tolist()
        kept, rest = graph.edges(order[4:]), graph.edges(order[:4])
        rows = [{name: t[i] for name, t in rest.data.items()} for i in range(4)]
        adds = tuple(Change("add", p, data=d) for p, d in zip(rest.pairs, rows, strict=True))
        dels = tuple(Change("del", c.at) for c in adds)
        halves += [TrialStream(kept, (adds,)), TrialStream(kept, tuple((c,) for c in adds))]
        undone += [TrialStream(kept, (adds, dels)), TrialStream(graph, (dels, adds))]
    what = "edges that come later count differently (the context has to be distributive)"
    yield updates, what, halves
    what = "edges that leave leave something behind (the context has to be invertible)"
    yield updates, what, undone
    features = [
        TrialStream(g, ((Change("x", (v,), torch.ones_like(g.x[v])),),))
        for g in graphs
        for v in range(min(g.num_nodes, 8))
    ]
    what = "new features do not reach all that reads them (a message has to declare its target)"
    yield updates, what, features


def _kinds(nan: bool) -> list[str]:
    return [kind for kind in CHANGES if nan or kind not in ("NaN", "finite again")]


def _journey(graph: TrialGraph, count: int, nan: bool, rng: Random) -> TrialStream:
    """Deltas of all kinds, one after the other; a graph that has become small grows again."""
    first, deltas = graph, []
    kinds = rng.permutation(_kinds(nan)).tolist()
    for i in range(count):
        kind = kinds[i % len(kinds)]
        if graph.num_nodes < 4:
            kind = "new nodes"
        elif len(graph.pairs) < 3:
            kind = "add edges"
        deltas.append(tuple(CHANGES[kind](graph, rng)))
        graph = graph.after(deltas[-1])
    return TrialStream(first, tuple(deltas))

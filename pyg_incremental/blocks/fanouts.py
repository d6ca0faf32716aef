"""A program of which every layer gathers over edges of its own, drawn from a seed.

A layer is a conv, or several that run side by side. What it says of the graph, such as a degree, is
that of its own edges: the result is that of the model whose convs are called on one graph each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyg_incremental.blocks.sample import drawn, refuse_number
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.errors import InvalidDeltaError, UnsupportedModelError
from pyg_incremental.ops import Aggregate, aggregations
from pyg_incremental.program.steps import Domain, Program, Step, Value

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """Some edges of a graph.

    Attributes:
        graph: Its name.
        places: Which of its edges, int64 `[k]`, ascending.
    """

    graph: str
    places: Ids


def with_fanouts(
    plan: CallPlan, roles: Roles, most: Sequence[int], seed: int
) -> tuple[CallPlan, dict[str, Drawn]]:
    """The plan with graphs of their own for its layers, and these graphs by name.

    Args:
        plan: The plan.
        roles: What the tensors of the call are, with the edges.
        most: How many edges each node keeps, for the first hop first, as PyG's loaders have it, and
            so for the last layer; -1 for all.
        seed: Of the draws.

    Raises:
        InvalidDeltaError: If there are not as many numbers as layers.
        UnsupportedModelError: If it cannot be told which layer a step belongs to.
    """
    for number in most:
        if number != -1:
            refuse_number(number)
    layers = StepLayers(plan.program)
    if len(most) != layers.count:
        raise InvalidDeltaError(
            f"num_neighbors: expected {layers.count} numbers, one for each layer, or one for all "
            f"(got {list(most)})"
        )
    graphs: dict[str, Drawn] = {}
    relations = {r.graph: r for r in roles.relations}
    for at, number in enumerate(reversed(most), 1):
        if number == -1:
            continue
        over: dict[str, set[bool]] = {}
        for s in layers.gathers(at):
            over.setdefault(s.graph, set()).add(s.reverse)
        for place, (name, reverse) in enumerate(over.items()):
            rng, relation = np.random.default_rng([seed, at, place]), relations[name]
            near = relation.source if reverse == {True} else relation.target
            ends = roles.edge_index[name].numpy()[0 if reverse == {True} else 1]
            places = drawn(ends, roles.num_nodes[near], number, rng)
            graphs[_own(name, at)] = Drawn(name, places)
    program = layers.over(graphs)
    return replace(plan, traced=replace(plan.traced, program=program)), graphs


def _own(graph: str, layer: int) -> str:
    return f"{graph}@{layer}"


class StepLayers:
    """Which steps of a program belong to which layer, from 1 on.

    Args:
        program: The program.

    Attributes:
        count: The number of layers.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._named = {r.graph for r in program.graphs.values() if r.members}  # by `batch`
        self._of_graph: set[Value] = set()  # a degree, say: what no row of a node goes into
        self._depth: dict[Value, int] = {}
        ones = {s.output for s in program.steps if s.constant is not None}
        for s in program.steps:
            plain = [v for v in s.inputs if v.domain is Domain.NODE and v not in ones]
            over_edges = s.over is not None and s.over[0] not in self._named
            if s.gathers:
                is_of_graph = not plain and over_edges
            else:
                is_of_graph = s.computes and bool(plain)
                is_of_graph = is_of_graph and all(v in self._of_graph for v in plain)
            if is_of_graph:
                self._of_graph.add(s.output)
            depth = max((self._depth[v] for v in s.inputs), default=0)
            self._depth[s.output] = depth + (over_edges and not is_of_graph)
        self.count = max((self._depth[v] for v in program.outputs), default=0)

    def gathers(self, layer: int) -> list[Aggregate]:
        """The aggregations of a layer that read rows of nodes."""
        return [
            s
            for s in aggregations(self._program.steps)
            if s.output not in self._of_graph
            and s.graph not in self._named
            and self._depth[s.output] == layer
        ]

    def over(self, graphs: Mapping[str, Drawn]) -> Program:
        """The same program, where a layer gathers over its own graph if there is one."""
        old = self._program
        new = Program(
            inputs=old.inputs, graphs=old.graphs, outputs=old.outputs, fixed=old.fixed,
            origins=old.origins, least_edges=old.least_edges,
        )  # fmt: skip
        made = {s.output: s for s in old.steps}
        again: dict[tuple[Value, int], Value] = {}

        def of(value: Value, layer: int) -> Value:
            """What a value that says something of the graph is in a layer."""
            if value not in self._of_graph or (value, layer) in again:
                return again.get((value, layer), value)
            step, output = made[value], replace(value, name=_own(value.name, layer))
            if step.over is not None:
                name = _own(step.over[0], layer)
                is_own = name in graphs
                step = replace(step.along(name), output=output)
            else:
                inputs = tuple(of(v, layer) for v in step.inputs)
                is_own = inputs != step.inputs
                step = replace(step, output=output, inputs=inputs)
            if is_own:
                new.steps.append(step)
            again[value, layer] = output if is_own else value
            return again[value, layer]

        for s in old.steps:
            reads = [v for v in s.inputs if v in self._of_graph]
            if s.output in self._of_graph or s.reads_whole:
                if s.reads_whole and self._reads_edges(s):
                    raise _unclear(s, "runs on all edges")
                new.steps.append(s)
            elif s.over is not None:
                if reads:
                    raise _unclear(s, f"gathers '{reads[0]}'")
                name = _own(s.over[0], self._depth[s.output])
                new.steps.append(s.along(name) if name in graphs else s)
            elif reads:
                layer = self._layer(s)
                new.steps.append(replace(s, inputs=tuple(of(v, layer) for v in s.inputs)))
            else:
                new.steps.append(s)
        new.prune()
        return new

    def _reads_edges(self, step: Step) -> bool:
        graphs = self._program.graphs
        return any(
            v in graphs or v in self._of_graph or v.domain is Domain.EDGE for v in step.inputs
        )

    def _layer(self, step: Step) -> int:
        """The layer of a step that reads what is said of the graph: that of its conv."""
        if self.count == 1:
            return 1
        origins = self._program.origins
        mine = origins.get(step.output)
        found = {
            self._depth[s.output]
            for at in range(1, self.count + 1)
            for s in self.gathers(at)
            if mine is not None and (conv := origins.get(s.output)) is not None
            if conv.what == mine.what
        }
        if len(found) != 1:
            raise _unclear(step, "belongs to no one layer")
        return found.pop()


def _unclear(step: Step, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"num_neighbors: step '{step.output}' {why}, so layers cannot have edges of their own; "
        "give one number for all layers"
    )

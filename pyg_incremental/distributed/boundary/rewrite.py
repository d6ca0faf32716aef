"""A program becomes a partitioned program: exchanges are put before aggregations.

A rank owns nodes and holds their in-edges. Seen from one rank every graph is then bipartite: its
edges lead from *far* nodes (own ones of some kind, and ghosts) to own nodes. So every value that
an aggregation reads at the far end becomes a value of far nodes, made by an `Exchange`; nothing
else changes, and row maps run at own nodes only. An aggregation over out-edges
(`flow='target_to_source'`, or an out-degree) is one over a second graph, that of the out-edges of
own nodes, with ghosts of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.distributed.boundary.exchange import Exchange
from pyg_incremental.distributed.boundary.link import Link
from pyg_incremental.distributed.numbering.local_ids import Own
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.ops import EdgeFunction, aggregations
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    Learned,
    Over,
    Program,
    Relation,
    Step,
    Value,
)

Direction = Over
"""A graph by the name of the argument, and whether it is that of the out-edges."""

_FAR = ("source", "sources")
_NEAR = ("target", "targets", "loop")
_EDGE = ("weight", "edge", "edges")
_KNOWN = {*_FAR, *_NEAR, *_EDGE}


def name_of(direction: Direction) -> str:
    """The name of a local graph; of an edge input the suffix is the same."""
    return f"{direction[0]}{suffix_of(direction)}"


def suffix_of(direction: Direction) -> str:
    """What tells the names of the second graph's edge inputs from those of the first."""
    return "/out" if direction[1] else ""


def directions(program: Program) -> list[Direction]:
    """The local graphs that a program needs: in-edges always, out-edges where they are read."""
    read = {(s.graph, True) for s in aggregations(program.steps) if s.reverse}
    return [
        (r.graph, out)
        for r in program.graphs.values()
        for out in (False, True)
        if not out or (r.graph, True) in read
    ]


def relation_of(relation: Relation, direction: Direction, link: Link) -> Relation:
    """A graph as one rank sees it: far nodes at one end, own ones at the other."""
    out = direction[1]
    return replace(
        relation,
        graph=name_of(direction),
        key=(relation.key, out),
        source=relation.source if out else link.far,
        target=link.far if out else relation.target,
        values=f"{relation.values}{suffix_of(direction)}",
    )


def refuse_whole(program: Program, model: str, instead: str = "to_incremental") -> None:
    """See that a program runs row by row.

    Args:
        program: The program.
        model: What the model is called.
        instead: What does it in one process.

    Raises:
        UnsupportedModelError: If some step needs all rows, or an output has no row per node.
    """
    graphs = set(program.graphs)
    members = {r.graph: r.members for r in program.graphs.values() if r.members}
    made = {r.graph for r in program.graphs.values() if r.derived is not None}
    two_kinds = {r.graph for r in program.graphs.values() if r.source != r.target}
    if program.least_edges:
        raise UnsupportedModelError(
            f"{model} does something else on graphs with fewer than {program.least_edges} edges, "
            f"and no rank knows how many there are. Use {instead}, in one process"
        )
    for s in program.steps:
        reason, graph = "", None if s.over is None else s.over[0]
        if s.reads_whole:
            reason = s.reason or "it runs on all rows"
        elif s.takes_all and s.output.domain is Domain.EDGE:
            reason = "it has a row for each edge"
        elif graph in members:
            reason = f"it adds up rows by '{members[graph]}', and these may be on several ranks"
        elif graph in made:
            reason = "it runs over edges that the model makes, and these may be on several ranks"
        elif s.computes and graphs.intersection(s.inputs):
            reason = "it reads the graph as a whole"
        elif s.sets_loops_apart and graph in two_kinds:
            reason = "it takes edges between nodes of two kinds for self-loops if their ids agree"
        elif s.gathers and _elsewhere(s):
            reason = f"it reads '{_elsewhere(s)[0]}' of all nodes, and not at an end of its edges"
        if reason:
            raise UnsupportedModelError(
                f"{model}: '{s.output}' cannot be computed on parts of the graph: {reason}. Use "
                f"{instead}, in one process"
            )
    for v in program.outputs:
        if v.domain is not Domain.NODE:
            raise UnsupportedModelError(
                f"{model}: its output '{v}' has no row per node, so no rank could own its rows. "
                f"Use {instead}, in one process"
            )


def _elsewhere(step: Step) -> list[str]:
    """The fields of an aggregation whose values are read neither at an end of its edges nor there.

    `source` is the far end, `target` the near one, and so on; see the lists above.
    """

    def holds_values(content: Any) -> bool:
        parts = content if isinstance(content, tuple) else (content,)
        return any(isinstance(part, Value) for part in parts)

    plain = {"output", "inputs", *_KNOWN}
    held = {f.name: getattr(step, f.name) for f in fields(step) if f.name not in plain}
    return [name for name, content in held.items() if holds_values(content)]


def partitioned(
    program: Program, links: Mapping[Direction, Link], own: Mapping[str, Own]
) -> Program:
    """The program of one rank.

    Args:
        program: The program of the whole graph, in which nothing runs on all rows.
        links: The boundary of each local graph.
        own: The nodes of each kind that the rank owns.
    """
    return _Rewriting(program, links, own).run()


def _read_own(read: Callable[[], Tensor], own: Own) -> Callable[[], Tensor]:
    """Reads the rows of own nodes from a parameter with a row for every node."""

    def rows() -> Tensor:
        every = read()
        ids = torch.from_numpy(own.globals.clip(min=0))  # of a hole any row will do
        return every[ids.to(every.device)]

    return rows


class _Rewriting:
    def __init__(
        self, program: Program, links: Mapping[Direction, Link], own: Mapping[str, Own]
    ) -> None:
        self.old, self.links, self.own = program, links, own
        self.new = Program()
        self.near: dict[Value, Value] = {}
        self.edge: dict[tuple[Value, bool], Value] = {}
        self.far: dict[tuple[Value, Direction], Value] = {}
        self.maker: dict[Value, Step] = {}

    def run(self) -> Program:
        for s in self.old.steps:
            self.maker[s.output] = s
            if s.parameter is not None:
                self.near[s.output] = self._learned(s.output, s.parameter)
            elif s.is_given:
                self._input(s.output)
            elif s.over is not None:
                self.near[s.output] = self._aggregate(s, s.over)
            elif s.output.domain is Domain.EDGE and s.computes:
                self._edge_map(s)
            elif s.constant is not None:
                self.near[s.output] = self.new.ones(s.output.kind)
            elif s.computes:
                inputs = tuple(self.near[v] for v in s.inputs)
                self.near[s.output] = self._added(s, s.output, inputs)
            else:
                raise UnsupportedModelError(f"a rank does not know how to run step '{s}'")
        self.new.outputs = [self.near[v] for v in self.old.outputs]
        self.new.prune()
        return self.new

    def _directions(self, graph: str) -> list[Direction]:
        return [d for d in self.links if d[0] == graph]

    def _input(self, value: Value) -> None:
        relation = self.old.graphs.get(value)
        if relation is not None:
            for d in self._directions(relation.graph):
                self.new.graph(relation_of(relation, d, self.links[d]))
        elif value.domain is Domain.EDGE:
            for d in self._directions(value.kind):
                name = f"{value.name}{suffix_of(d)}"
                self.edge[value, d[1]] = self.new.input(name, Domain.EDGE, name_of(d))
        else:
            self.near[value] = self.new.input(value.name, value.domain, value.kind)

    def _learned(self, every: Value, read_every: Callable[[], Tensor]) -> Value:
        """Of rows that are a parameter (there can be no more of them) those of own nodes."""
        value = self.new.value(every.name, every.domain, every.kind)
        read = _read_own(read_every, self.own[every.kind])
        return self.new.add(None, lambda: Learned(value, (), read))

    def _added(self, s: Step, like: Value, inputs: tuple[Value, ...]) -> Value:
        value = self.new.value(like.name, like.domain, like.kind)
        return self.new.add(None, lambda: replace(s, output=value, inputs=inputs))

    def _edge_map(self, s: Step) -> None:
        for d in self._directions(s.output.kind):
            like = replace(s.output, name=f"{s.output.name}{suffix_of(d)}", kind=name_of(d))
            inputs = tuple(
                self.edge[v, d[1]] if v.domain is Domain.EDGE else self.near[v] for v in s.inputs
            )
            self.edge[s.output, d[1]] = self._added(s, like, inputs)

    def _at_far(self, value: Value, d: Direction) -> Value:
        """A node value with the rows of ghosts."""
        if (value, d) not in self.far:
            link = self.links[d]
            if self.maker[value].constant is not None:
                self.far[value, d] = self.new.ones(link.far)  # known without asking
            else:
                far = self.new.value(f"{value.name}{suffix_of(d)}'", Domain.NODE, link.far)
                near = self.near[value]
                first = all(v is not value for v, _ in self.far)
                self.far[value, d] = self.new.add(None, lambda: Exchange(far, (near,), link, first))
        return self.far[value, d]

    def _aggregate(self, s: Step, d: Direction) -> Value:
        read: list[Value] = []

        def at(value: Value, field: str) -> Value:
            if field in _FAR:
                found = self._at_far(value, d)
            elif field in _NEAR:
                found = self.near[value]
            else:
                found = self.edge[value, d[1]]
            read.append(found)
            return found

        def moved(content: Any, field: str) -> Any:
            if isinstance(content, Value):
                # A loop holds rows of nodes, even where the edges have rows of their own.
                return at(content, field)
            if isinstance(content, tuple):
                return tuple(moved(v, field) for v in content)
            if isinstance(content, EdgeFunction):
                return replace(
                    content,
                    **{f: moved(getattr(content, f), f) for f in ("source", "target", "edges")},
                )
            return content

        names = [f.name for f in fields(s) if f.name not in ("output", "inputs", "graph")]
        changes = {name: moved(getattr(s, name), name) for name in names}
        output = self.new.value(s.output.name, Domain.NODE, s.output.kind)
        inputs = tuple(dict.fromkeys(read))
        return self.new.add(
            None,
            lambda: replace(s.along(name_of(d)), output=output, inputs=inputs, **changes),
        )

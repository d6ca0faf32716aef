"""Loops that a model adds to its edges, or leaves out, without a table of these edges.

`remove_self_loops`, `add_self_loops` and `add_remaining_self_loops` make a table of edges (see
`program.derived`), in which each update has to find its edges. Where the table has the edges of one
graph, all of them or all but self-loops, a step over it is the same step over that graph, and what
the loop of each node carries is a row of that node.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pyg_incremental.conv.last_loop import youngest_or_fill
from pyg_incremental.ops import (  # fmt: skip
    Aggregate,
    EdgeFunction,
    Extremum,
    FunctionSoftmax,
    FunctionSum,
    NeighborhoodRows,
    PaddedRows,
    SoftmaxSum,
    Sum,
    added,
)
from pyg_incremental.ops.base import Loops
from pyg_incremental.ops.message import flat_messages
from pyg_incremental.program.derivations import in_use
from pyg_incremental.program.derived import LOOP, DerivedEdges
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    NotIncremental,
    Program,
    Relation,
    RowMap,
    Step,
    Value,
)
from pyg_incremental.trace.derived import Spread, filled_rows, full_rows
from pyg_incremental.trace.written import Written

Rows = Value | Tensor
"""A value, or a row `[1, ...]` that all have."""


def without_tables(written: Written, spread: Mapping[Value, Spread]) -> None:
    """Rewrite the steps over tables of edges that only have loops of their own, or none.

    What nothing reads is left out.

    Args:
        written: What is written; its program is complete.
        spread: Rows of edges that are behind each other those of the edges and of the loops.
    """
    program = written.program
    makers = {s.output: s for s in program.steps}
    program.prune()
    for table, relation in list(program.graphs.items()):
        used = in_use(program)
        derived = relation.derived
        if derived is None or relation.graph not in used:
            continue
        others = [r.derived for r in program.graphs.values() if r.graph in used]
        if any(d is not None and relation.graph in d.sources for d in others):
            continue
        first, before = len(program.steps), list(program.steps)
        try:
            _Table(written, spread, makers, table, relation).rewrite()
        except NotIncremental:
            program.forget(first)
            program.steps[:] = before
            continue
        program.prune()


@dataclass(frozen=True)
class _Over:
    """A step over a graph in the place of one over a table of its edges.

    Attributes:
        fields: What it does not share with that.
        inputs: What it reads.
        own: Makes what each node adds for its loop; None where the step knows of that.
        choose: What is made of rows, those of loops and the number of edges; None for their sum.
    """

    fields: dict[str, Any]
    inputs: tuple[Value, ...]
    own: Callable[[], Value] | None = None
    choose: Callable[..., Tensor] | None = None


@dataclass
class _Table:
    """A table of edges.

    Attributes:
        written: What is written.
        spread: As in `without_tables`.
        makers: All steps that were written, those that nothing reads included.
        table: The graph that it is in the program.
        relation: The same.
    """

    written: Written
    spread: Mapping[Value, Spread]
    makers: dict[Value, Step]
    table: Value
    relation: Relation

    def __post_init__(self) -> None:
        self.program: Program = self.written.program
        derived = self.relation.derived
        assert derived is not None
        self.part, self.drops = self._only_part(self.relation)
        self.of = next(r for r in self.program.graphs.values() if r.graph == self.part.graph)
        self.has_loops = derived.loops
        self.makers |= {s.output: s for s in self.program.steps}
        self.edges_of: dict[Value, Rows] = {}
        self.nodes_of: dict[Value, Value] = {}

    def _only_part(self, relation: Relation) -> tuple[DerivedEdges, bool]:
        """The part that a table has, and whether the self-loops in it are left out."""
        derived = relation.derived
        if derived is None or derived.merged or len(derived.parts) != 1:
            raise NotIncremental("a table of several graphs")
        (part,) = derived.parts
        if part.keep is not None and not part.keep.takes(loops=False):
            raise NotIncremental("a table of some edges")
        return part, part.keep is not None

    def rewrite(self) -> None:
        """Put steps over the graph in the place of those over the table."""
        made: dict[Value, list[Step]] = {}
        for step in list(self.program.steps):
            over = step.over is not None and step.over[0] == self.relation.graph
            if not over and (step.output.kind == self.relation.graph or step.output is self.table):
                continue  # rows of its edges, which nothing will read
            reads = self.table in step.inputs or any(
                v.domain is Domain.EDGE and v.kind == self.relation.graph for v in step.inputs
            )
            if not over and reads:
                raise NotIncremental(f"'{step.output}' reads the table")
            if over:
                made[step.output] = self._over_graph(step)  # type: ignore[arg-type]
        if any(v is self.table or v.kind == self.relation.graph for v in self.program.outputs):
            raise NotIncremental("the table leaves")
        kept = [s for s in self.program.steps if s.output not in made]
        self.program.steps[:] = _in_order(
            [*kept, *(s for steps in made.values() for s in steps)], self.makers
        )

    # Steps ---------------------------------------------------------------------------------------

    def _over_graph(self, step: Aggregate) -> list[Step]:
        """An aggregation over the table as steps, the last of which makes its value."""
        if step.loops == "only" or type(step) not in _RULES:
            raise NotIncremental("loops are taken by themselves")
        loops: Loops = "drop" if self.drops or step.loops == "drop" else "keep"
        back = step.reverse != self.part.turned
        looped = self.has_loops and step.loops == "keep"
        over = _RULES[type(step)](self, step, looped)
        rows, own = step.output, over.own if looped else None
        if own is not None:
            rows = self.program.value(f"{rows}_edges", Domain.NODE, rows.kind)
        made = replace(
            step, output=rows, inputs=over.inputs, loops=loops, reverse=back, graph=self.of.graph,
            **over.fields,
        )  # fmt: skip
        if own is None:
            return [made]
        if over.choose is None:
            return [made, RowMap(step.output, (rows, own()), added)]
        ones = self.program.ones(self.of.source)
        count = self.program.value("degree", Domain.NODE, rows.kind)
        degree = Sum(count, (ones,), loops, back, ones, None, graph=self.of.graph)
        return [made, degree, RowMap(step.output, (rows, own(), count), over.choose)]

    def _of_source(self, step: Sum | Extremum, looped: bool) -> _Over:
        """`weight * source`, or an extremum of what a function gives."""
        if step.source is None:
            return self._of_function(step, looped)
        source, weight = step.source, step.weight
        held = None if weight is None else self.edges(weight)
        if isinstance(held, Tensor):
            if held.flatten().tolist() != [1]:
                raise NotIncremental("all edges have one weight")
            held = None
        inputs = (source,) if held is None else (source, held)
        return _Over({"weight": held}, inputs, lambda: self._sent(source, weight), _choice(step))

    def _of_function(self, step: FunctionSum | Extremum, looped: bool) -> _Over:
        message = step.message
        assert message is not None
        over, _ = self._message(message)
        own = partial(self._message_to_itself, message)
        return _Over({"message": over}, over.inputs, own, _choice(step))

    def _of_attention(self, step: FunctionSoftmax, looped: bool) -> _Over:
        over, at = self._message(step.message)
        if not looped:
            return _Over({"message": over}, over.inputs)
        if step.loop is not None or len(at) < len(step.message.edges):
            raise NotIncremental("edges all have one row, and loops another")
        loop = tuple(map(self.nodes, step.message.edges))
        return _Over({"message": over, "loop": loop}, (*over.inputs, *loop))

    def _of_logits(self, step: SoftmaxSum, looped: bool) -> _Over:
        edge = None if step.edge is None else self.edges(step.edge)
        if step.loop is not None or isinstance(edge, Tensor):
            raise NotIncremental("edges all have one row, and loops another")
        inputs = (step.source, step.target, *(() if edge is None else (edge,)))
        if not looped:
            return _Over({"edge": edge}, inputs)
        given = [step.source, step.target, *([] if step.edge is None else [self.nodes(step.edge)])]
        loop = self.program.map(f"{step.output}_loop", _logits, given)
        return _Over({"edge": edge, "loop": loop}, (*inputs, loop))

    def _of_rows(self, step: NeighborhoodRows, looped: bool) -> _Over:
        edges = tuple(e for e in map(self.edges, step.edges) if isinstance(e, Value))
        if looped or len(edges) < len(step.edges):
            raise NotIncremental("whole neighbourhoods are read, loops among them")
        return _Over({"edges": edges}, (*step.sources, *step.targets, *edges))

    def _sent(self, source: Value, weight: Value | None) -> Value:
        """What each node sends to itself."""
        at = None if weight is None else self.nodes(weight)
        if at is None or self.written.numbers.get(at) == 1:
            return source
        return self.program.map(f"{source}_own", _times, [source, at])

    def _message_to_itself(self, message: EdgeFunction) -> Value:
        ends = (*message.source, *message.target)
        fn = message.fn
        return self.program.map(
            "own_message",
            lambda *rows: flat_messages(fn(*rows)),
            [*ends, *map(self.nodes, message.edges)],
        )

    def _message(self, message: EdgeFunction) -> tuple[EdgeFunction, list[int]]:
        """The function over the graph, and which of its edge rows it still reads."""
        edges = [self.edges(v) for v in message.edges]
        first = len(message.source) + len(message.target)
        same = {first + i: e for i, e in enumerate(edges) if isinstance(e, Tensor)}
        at = [i for i, e in enumerate(edges) if isinstance(e, Value)]
        fn = _with_same(message.fn, first + len(edges), same) if same else message.fn
        if not first and not at:
            raise NotIncremental("messages are all alike")
        read = tuple(e for e in edges if isinstance(e, Value))
        return EdgeFunction(fn, message.source, message.target, read), at

    # Rows of edges -------------------------------------------------------------------------------

    def edges(self, rows: Value) -> Rows:
        """Rows of the edges of the table, or of one like it, as rows of those of the graph."""
        if rows.kind == self.of.graph or rows.domain is not Domain.EDGE:
            return rows
        if rows not in self.edges_of:
            self.edges_of[rows] = self._edges(rows)
        return self.edges_of[rows]

    def _edges(self, rows: Value) -> Rows:
        step = self.makers[rows]
        there = next(r for r in self.program.graphs.values() if r.graph == rows.kind)
        derived = there.derived
        if derived is None or derived.merged or len(derived.parts) != 1:
            raise NotIncremental("rows of another graph")
        (part,) = derived.parts
        if part.graph != self.of.graph:
            raise NotIncremental("rows of another graph")
        if rows in self.spread:
            return self.edges(self.spread[rows].edges)
        if step.at_end is not None:
            return self.program.gather(
                f"{rows}_edges", step.inputs[0], self.of.graph, step.at_end != part.turned
            )
        if rows.name == derived.part:
            return torch.zeros(1, dtype=torch.int64)
        if rows.name in derived.columns:
            return self._given(derived.columns[rows.name].rows.name)
        if step.row_fn is None:
            raise NotIncremental(f"'{rows}' is no row of an edge")
        same = filled_rows(step)
        return self._mapped(step, step.row_fn) if same is None else same

    def _given(self, name: str) -> Value:
        """Data of the graph."""
        found = (s.output for s in self.program.steps if s.output.name == name)
        made = next((v for v in found if v.kind == self.of.graph), None)
        if made is None:
            raise NotIncremental("no data of the graph")
        return made

    def _mapped(self, step: Step, fn: Callable[..., Any]) -> Rows:
        given = [self.edges(v) for v in step.inputs]
        values = [v for v in given if isinstance(v, Value)]
        if all(v.domain is not Domain.EDGE for v in values):
            if values:
                raise NotIncremental("rows made of parameters")
            row: Tensor = fn(*given)
            return row
        held = {i: v for i, v in enumerate(given) if isinstance(v, Tensor)}
        at = next(i for i, v in enumerate(values) if v.domain is Domain.EDGE)
        fn = _with_same(fn, len(given), held, at) if held else fn
        return self.program.map(f"{step.output}_edges", fn, values, costly=step.costly)

    def nodes(self, rows: Value) -> Value:
        """Rows of the edges of the table as rows of the nodes whose loops they are."""
        if rows.domain is not Domain.EDGE:
            return rows
        if rows not in self.nodes_of:
            self.nodes_of[rows] = self._nodes(rows)
        return self.nodes_of[rows]

    def _nodes(self, rows: Value) -> Value:
        step = self.makers[rows]
        if rows.kind != self.relation.graph:
            raise NotIncremental("rows of another graph")
        if rows in self.spread:
            return self._own_rows(self.spread[rows], rows)
        if step.at_end is not None:
            return step.inputs[0]
        if step.is_given:
            return self._none_of_loops(rows)
        if step.row_fn is None:
            raise NotIncremental(f"'{rows}' is no row of a loop")
        same = filled_rows(step)
        if same is not None:
            ones = self.program.ones(self.of.source)
            made = self.program.map(f"{rows}_loops", step.row_fn, [ones])
            number = same.flatten().unique().tolist()
            if len(number) == 1:
                self.written.numbers[made] = number[0]
            return made
        given = [self.nodes(v) for v in step.inputs]
        return self.program.map(f"{rows}_loops", step.row_fn, given, costly=step.costly)

    def _none_of_loops(self, rows: Value) -> Value:
        """What stands in the table where a loop has no data; see `program.derived`."""
        derived = self.relation.derived
        assert derived is not None
        if derived.own:
            raise NotIncremental("some loops have data of their own")
        number = LOOP if rows.name == derived.part else 0
        like = self.written.examples.get(rows)
        if like is None:
            raise NotIncremental(f"'{rows}' was not tried")
        fill = full_rows(like, number)
        return self.program.map(f"{rows}_loops", fill, [self.program.ones(self.of.source)])

    def _own_rows(self, spread: Spread, rows: Value) -> Value:
        """What loops carry: what is filled in, or the row of the youngest loop of the graph."""
        fill = spread.fill
        if spread.own is None:
            return fill
        own = self.edges(spread.own)
        if isinstance(own, Tensor) or reads_nodes(self.program).intersection([own]):
            raise NotIncremental("rows of loops are made of rows of nodes")
        name = self.program.value(f"{rows}_loops", Domain.NODE, self.of.source)
        return self.program.add(
            ("own loops", id(own), id(spread.fill), self.of.graph),
            lambda: NeighborhoodRows(
                name, (fill, own), "only", self.part.turned, youngest_or_fill, (), (fill,), (own,),
                graph=self.of.graph,
            ),
        )  # fmt: skip


def _with_same(
    fn: Callable[..., Any], count: int, same: Mapping[int, Tensor], at: int = 0
) -> Callable[..., Any]:
    """A function of so many rows, some of which are the same for all; `at` says what has rows."""

    def run(*given: Tensor) -> Any:
        rows, size = iter(given), len(given[at])
        return fn(
            *(
                same[i].expand(size, *same[i].shape[1:]) if i in same else next(rows)
                for i in range(count)
            )
        )

    return run


def _choice(step: Aggregate) -> Callable[..., Tensor] | None:
    """What an extremum makes of its rows, those of loops, and the number of edges."""
    largest = getattr(step, "largest", None)
    if largest is None:
        return None
    return partial(_larger, torch.maximum if largest else torch.minimum)


def _larger(choose: Any, rows: Tensor, own: Tensor, count: Tensor) -> Tensor:
    count = count.view(-1, *[1] * (rows.dim() - 1))
    return torch.where(count > 0, choose(rows, own), own)


def _times(rows: Tensor, weight: Tensor) -> Tensor:
    return rows * weight.view(-1, *[1] * (rows.dim() - 1))


def _logits(source: Tensor, target: Tensor, edge: Tensor | None = None) -> Tensor:
    own = source[:, -target.shape[1] :] + target
    return own if edge is None else own + edge


_RULES: dict[type[Aggregate], Callable[[_Table, Any, bool], _Over]] = {
    Sum: _Table._of_source,
    Extremum: _Table._of_source,
    FunctionSum: _Table._of_function,
    FunctionSoftmax: _Table._of_attention,
    SoftmaxSum: _Table._of_logits,
    NeighborhoodRows: _Table._of_rows,
    PaddedRows: _Table._of_rows,
}


def _in_order(steps: list[Step], others: Mapping[Value, Step]) -> list[Step]:
    """The same, what each reads before it, of other steps if need be."""
    makers = {**others, **{s.output: s for s in steps}}
    done: dict[Value, Step] = {}
    for last in steps:
        left = [last]
        while left:
            step = left[-1]
            needed = [makers[v] for v in step.inputs if v in makers and v not in done]
            if needed:
                left += needed
            else:
                done[left.pop().output] = step
    return list(done.values())

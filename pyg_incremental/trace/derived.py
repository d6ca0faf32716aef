"""Graphs that a model makes of its own: see `pyg_incremental.program.derived` for what they are.

Known by what the operations mean: `stack` and `cat` of the ends of edges, `cat` of graphs and of
the ids of all nodes, `edge_index[:, mask]`, and PyG's `coalesce`. Rows of edges that are joined or
filtered in the same way are rows of the edges of the new graph.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from pyg_incremental.conv.last_loop import with_last_loops
from pyg_incremental.program.derivations import edge_rows, rows_of_part
from pyg_incremental.program.derived import (  # fmt: skip
    Column,
    Compared,
    Derived,
    DerivedEdges,
    as_wide,
    carried,
    of_parts,
)
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    NotIncremental,
    Relation,
    Step,
    Value,
)
from pyg_incremental.trace.functions import set_item
from pyg_incremental.trace.ids import End, EndIds, arguments_of, flat_arguments, same_shape
from pyg_incremental.trace.merging import merged
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.sizes import is_fake, same_size
from pyg_incremental.trace.written import Written

_KEEP = frozenset(["detach", "long", "contiguous", "clone"])
_COMPARES = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


@dataclass(frozen=True)
class _Side:
    """The ids at one end of the edges of a graph."""

    relation: Relation
    at_target: bool


@dataclass(frozen=True)
class _Own:
    """Rows of nodes, where the youngest loop at a node has put its own.

    Attributes:
        fill: The rows of nodes without a loop.
        rows: The rows of the edges.
        graph: The graph of these edges.
    """

    fill: Value
    rows: Value
    graph: str


@dataclass(frozen=True)
class Spread:
    """Rows of the edges of a graph, and behind them rows of the loops at its nodes.

    Attributes:
        edges: The former.
        fill: Node rows, those of the loops.
        own: Edge rows, which the youngest loop at a node has in place of these; None for none.
    """

    edges: Value
    fill: Value
    own: Value | None


class DerivedGraphs:
    """Follows the graphs that a model makes through a recorded graph.

    Args:
        written: What is written so far.
        ids: The ids at the ends of edges.
        write: Writes an operation, and all that it needs, before its turn.
    """

    def __init__(self, written: Written, ids: EndIds, write: Callable[[fx.Node], None]) -> None:
        self.program, self.recorded = written.program, written.recorded
        self._written, self._ids, self._write = written, ids, write
        self._env = written.env
        self._sides: dict[fx.Node, tuple[_Side, ...]] = {}
        self._own: dict[fx.Node, _Own] = {}
        self._known: dict[Hashable, Value] = {}
        self._columns: dict[Hashable, Value] = {}
        self._masks: dict[str, Value] = {}
        self.spread_of: dict[Value, Spread] = {}

    def read(self, node: fx.Node, name: str) -> Any:
        """What an operation has made of graphs or of rows of their edges; None if neither."""
        if node.target is merged:
            return self._merged(node)
        if node.target is set_item:
            return self._note_own(node)
        if name in _KEEP and node.args and self.graph_of(node.args[0]) is not None:
            return self._env[node.args[0]]  # type: ignore[index]
        if name == "flip" and flat_arguments(node) == [0]:
            found = self.graph_of(node.args[0])
            if found is not None and found[1]:
                return found[0]
        try:
            if name in _COMPARES:
                return self._compared(node)
            if name == "__getitem__":
                return self._filtered(node)
            if name == "cat":
                return self._joined(node)
            if name == "stack":
                return self._stacked(node)
            if name in ("ones", "full", "new_ones", "new_full", "ones_like", "full_like"):
                return self._filled(node)
        except NotIncremental:
            pass
        return None

    # Graphs --------------------------------------------------------------------------------------

    def graph_of(self, node: Any) -> tuple[Value, bool] | None:
        """The graph that a node stands for, and whether its edges are turned around."""
        held = self._env.get(node) if isinstance(node, fx.Node) else None
        if not isinstance(held, Value):
            return None
        graph = self._written.turned.get(held, held)
        relation = self.program.graphs.get(graph)
        if relation is None or relation.members:
            return None
        return graph, graph is not held

    def _made(self, node: fx.Node, like: Relation, derived: Derived, key: Hashable) -> Value:
        """A graph, or the one that is made in the same way."""
        known = self._known.get(key)
        if known is not None:
            return known
        one_way = not derived.loops and not derived.merged
        if like.source != like.target and not (
            one_way and not any(part.turned for part in derived.parts)
        ):
            raise NotIncremental("nodes of two kinds")
        name = self.program.value(f"{like.graph}/{node.name}", Domain.WHOLE).name
        self.program._names.discard(name)
        relation = Relation(
            name, name, like.source, like.target, like.format, values=f"{name}/edge_weight",
            derived=derived,
        )  # fmt: skip
        self._known[key] = made = self.program.graph(relation)
        return made

    def _sized(self, graph: Value, size: Any) -> Value:
        self.recorded.sizes.edges[self.program.graphs[graph].graph] = size
        return graph

    def _stacked(self, node: fx.Node) -> Value | None:
        """`stack([dst, src])` of ids, or of ids that were joined."""
        given = arguments_of(node, ("tensors", "dim"))
        parts = given["tensors"]
        if given.get("dim", 0) != 0 or not isinstance(parts, (list, tuple)) or len(parts) != 2:
            return None
        first, second = map(self.sides_of, parts)
        if not first or not second or len(first) != len(second):
            return None
        turned = []
        for a, b in zip(first, second, strict=True):
            if a.relation != b.relation or a.at_target == b.at_target:
                return None
            turned.append((self._graph(a.relation), a.at_target))
        return self._concatenated(node, turned)

    def _graph(self, relation: Relation) -> Value:
        return next(v for v, r in self.program.graphs.items() if r == relation)

    def sides_of(self, node: Any) -> tuple[_Side, ...]:
        """The ids that a node holds, `[n]`, one graph behind the other."""
        if not isinstance(node, fx.Node):
            return ()
        if node in self._sides:
            return self._sides[node]
        end, fake = self._ids.of.get(node), self._ids.fake(node)
        plain = end is not None and not end.with_loops and not end.relation.members
        if not plain or fake is None or fake.dim() != 1:
            return ()
        assert end is not None
        return (_Side(end.relation, end.at_target),)

    def _concatenated(
        self, node: fx.Node, pieces: list[tuple[Value, bool]], loops: bool = False
    ) -> Value:
        """The edges of graphs, some turned around, one behind the other."""
        (graph, turned), *more = pieces
        if not more and not loops:
            return self._turned(node, graph) if turned else graph
        relations = [self.program.graphs[g] for g, _ in pieces]
        ends = {(r.source, r.target) for r in relations}
        if len(ends) > 1 or any(r.members for r in relations):
            raise NotIncremental("graphs of different kinds")
        parts = tuple(
            self._as_part(r, turned) for r, (_, turned) in zip(relations, pieces, strict=True)
        )
        fake = self.recorded.fake[node]
        graph = self._made(node, relations[0], Derived(parts, loops), ("cat", parts, loops))
        return self._sized(graph, fake.shape[1])

    def _turned(self, node: fx.Node, graph: Value) -> Value:
        """All edges turned around, which needs no table: lists lead both ways."""
        reason = f"{node.name}: all edges are turned around"
        made = self.program.whole(node.name, _flipped, [graph], Domain.WHOLE, reason)
        self._written.turned[made] = graph
        return made

    def _as_part(self, relation: Relation, turned: bool) -> DerivedEdges:
        """A graph as a part of another one: what is only filtered is filtered there."""
        made = relation.derived
        if made is None or made.loops or made.merged or len(made.parts) > 1:
            return DerivedEdges(relation.graph, turned)
        (part,) = made.parts
        return replace(part, turned=part.turned != turned)

    def _joined(self, node: fx.Node) -> Any:
        """`cat` of graphs, of their ids, or of rows of their edges."""
        given = arguments_of(node, ("tensors", "dim"))
        parts, dim, fake = given["tensors"], given.get("dim", 0), self._ids.fake(node)
        if not isinstance(parts, (list, tuple)) or fake is None or not fake.dim() or len(parts) < 2:
            return None
        dim = dim % fake.dim()
        if dim == 1 and fake.dim() == 2:
            *ahead, last = parts
            loops = last in self._ids.every
            graphs = [self.graph_of(p) for p in (ahead if loops else parts)]
            if any(g is None for g in graphs):
                return None
            found = [g for g in graphs if g is not None]
            relation = self.program.graphs[found[0][0]]
            if loops and len(found) == 1 and relation.derived is None and not found[0][1]:
                return None  # see `Looped`
            if loops:
                size, count = self.recorded.fake[last].shape[1], self.recorded.sizes.nodes
                if not same_size(size, count[relation.source]):
                    return None
            return self._concatenated(node, found, loops)
        if dim == 0 and fake.dim() == 1:
            sides = [self.sides_of(p) for p in parts]
            if all(sides):
                self._sides[node] = tuple(s for side in sides for s in side)
                return None
        return self._rows_joined(node, list(parts), fake) if dim == 0 else None

    def with_loops(self, node: fx.Node) -> Value:
        """`cat([edge_index, loops], 1)`, a loop at each node, as a table of its own."""
        relation = self._ids.looped[node]
        return self._concatenated(node, [(self._graph(relation), False)], True)

    def _filtered(self, node: fx.Node) -> Any:
        """`edge_index[:, mask]`, `rows[mask]` or `ids[mask]`."""
        table, at = node.args[0], node.args[1]
        over_graph = isinstance(at, tuple) and len(at) == 2 and at[0] == slice(None)
        mask: Any = at[1] if over_graph else at  # type: ignore[index]
        if not isinstance(mask, fx.Node) or not isinstance(table, fx.Node):
            return None
        keep, fake = self._env.get(mask), self._ids.fake(mask)
        if not isinstance(keep, Value) or keep.domain is not Domain.EDGE or fake is None:
            return None
        if fake.dtype is not torch.bool or fake.dim() != 1:
            return None
        result = self.recorded.fake[node]
        if over_graph:
            found = self.graph_of(table)
            if found is None or self.program.graphs[found[0]].graph != keep.kind:
                return None
            kept = self._kept(node, mask, keep, result.shape[1])
            if not found[1]:
                return kept
            return self._concatenated(node, [(kept, True)])
        held = self._env.get(table)
        if table in self._ids.of:
            end = self._ids.of[table]
            if end.relation.graph != keep.kind or end.with_loops:
                return None
            kept = self._kept(node, mask, keep, result.shape[0])
            self._ids.of[node] = End(self.program.graphs[kept], end.at_target)
            return None
        if isinstance(held, Value) and held.domain is Domain.EDGE and held.kind == keep.kind:
            kept = self._kept(node, mask, keep, result.shape[0])
            return self.carry(held, self.program.graphs[kept], keep.kind)
        return None

    def _kept(self, node: fx.Node, mask: fx.Node, keep: Value, size: Any) -> Value:
        """The edges that a mask, a value of domain `EDGE`, takes."""
        of = next(r for r in self.program.graphs.values() if r.graph == keep.kind)
        if of.members:
            raise NotIncremental("edges to graphs")
        key = "keep", self.recorded.meaning(mask)
        if key in self._known:
            return self._sized(self._known[key], size)
        derived = Derived((DerivedEdges(of.graph, False, edge_rows(self.program, keep)),))
        made = self._sized(self._made(node, of, derived, key), size)
        self._masks[self.program.graphs[made].graph] = keep
        return made

    def _merged(self, node: fx.Node) -> Any:
        """`coalesce(edge_index, edge_attr)`: the graph, and the rows of its edges."""
        edges, rows, reduce = node.args[0], node.args[1], node.args[3]
        found = self.graph_of(edges)
        held = [self._env.get(r) for r in rows]  # type: ignore[union-attr, arg-type]
        if found is None or (held and reduce == "any"):
            return None
        relation, size = self.program.graphs[found[0]], self.recorded.fake[node][0].shape[1]
        try:
            of = self._made(
                node, relation, Derived((DerivedEdges(relation.graph, found[1]),), merged=True),
                ("merge", relation.graph, found[1], reduce, *held),
            )  # fmt: skip
            graph = self._sized(of, size)
            made = self.program.graphs[graph]
            return (graph, *(self._reduced(made, relation, v, str(reduce)) for v in held))
        except NotIncremental:
            return None

    def _reduced(self, made: Relation, of: Relation, rows: Any, reduce: str) -> Value:
        if not isinstance(rows, Value) or rows.domain is not Domain.EDGE or rows.kind != of.graph:
            raise NotIncremental("rows of something else are merged")
        column = Column(of.graph, edge_rows(self.program, rows), reduce)
        return self._column(made, column, rows, (rows, reduce))

    # Rows of their edges -------------------------------------------------------------------------

    def _compared(self, node: fx.Node) -> Value | None:
        """`edge_index[0] != edge_index[1]`, and other comparisons of ids, edge by edge."""
        parts = [*node.args, *node.kwargs.values()]
        ends = [self._ids.of.get(p) for p in parts if isinstance(p, fx.Node)]
        if not ends or len(parts) != 2 or any(e is None or e.with_loops for e in ends):
            return None
        found = [e for e in ends if e is not None]
        relation = found[0].relation
        if any(e.relation != relation or e.relation.members for e in found):
            return None
        if any(f is None or f.dim() != 1 for f in map(self._ids.fake, node.all_input_nodes)):
            return None
        fixed = [p if not isinstance(p, fx.Node) else None for p in parts]
        if any(not isinstance(p, (int, type(None))) for p in fixed):
            return None
        compare = getattr(torch, name_of(node.target))  # type: ignore[arg-type]
        ids = [
            self.program.gather(
                f"{node.name}_ids", self.program.ids(e.kind), relation.graph, e.at_target
            )
            for e in found
        ]
        compared = Compared(compare, tuple(fixed))  # type: ignore[arg-type]
        return self.program.map(node.name, compared, ids, key=compared)

    def _note_own(self, node: fx.Node) -> Value | None:
        """`rows[ids of loops] = rows of loops`: what a loop has is kept.

        Of a graph that is made of others it is found at once, as the last loop at a node need not
        be the youngest.
        """
        if not all(isinstance(a, fx.Node) for a in node.args):
            return None
        base, rows = (self._env.get(node.args[i]) for i in (0, 2))  # type: ignore[arg-type]
        end = self._ids.of.get(node.args[1])  # type: ignore[arg-type]
        if not isinstance(base, Value) or base.domain is not Domain.NODE or end is None:
            return None
        made = end.relation.derived
        alone = made is not None and len(made.parts) == 1 and not made.loops and not made.merged
        if not alone or not isinstance(rows, Value) or rows.kind != end.relation.graph:
            return None
        assert made is not None
        (part,) = made.parts
        of = next((r for r in self.program.graphs.values() if r.graph == part.graph), None)
        keep = self._masks.get(end.relation.graph)
        if of is None or keep is None or not edge_rows(self.program, keep).takes(loops=True):
            return None
        if of.derived is None or of.derived.merged:
            self._own[node] = _Own(base, rows, part.graph)
            return None
        try:
            there = rows_of_part(self.program, rows, end.relation, 0)
            return with_last_loops(self.program, of, there, base)
        except NotIncremental:
            return None

    def _filled(self, node: fx.Node) -> Value | None:
        """`torch.ones(edge_index.size(1))` and its like: the same row for every edge."""
        fake, real = self._ids.fake(node), self.recorded.real[node]
        if fake is None or not fake.dim() or not real.numel():
            return None
        if any(isinstance(d, torch.SymInt) for d in fake.shape[1:]):
            return None
        if name_of(node.target) in ("full", "new_full", "full_like"):  # type: ignore[arg-type]
            fill = node.kwargs.get("fill_value", node.args[-1])
            if not isinstance(fill, (bool, int, float)):
                return None
        for relation in self.program.graphs.values():
            size = self.recorded.sizes.edges.get(relation.graph)
            if relation.members or size is None or not same_size(size, fake.shape[0]):
                continue
            fill_rows = full_rows(real, real.flatten()[0].item())
            rows = self.parts(relation) if relation.derived is not None else self.program.gather(
                f"{node.name}_at", self.program.ones(relation.target), relation.graph, True
            )  # fmt: skip
            return self.program.map(node.name, fill_rows, [rows])
        return None

    def parts(self, relation: Relation) -> Value:
        """Of which part each edge of a derived graph is, int64 `[num_edges]`."""
        derived = relation.derived
        assert derived is not None
        key = relation.graph, "part"
        if key not in self._columns:
            derived.part = f"{relation.graph}/part"
            made = self.program.input(derived.part, Domain.EDGE, relation.graph)
            self._written.examples[made] = torch.zeros(1, dtype=torch.int64)
            self._columns[key] = made
        return self._columns[key]

    def _column(self, made: Relation, column: Column, like: Value, key: Hashable) -> Value:
        """The data of a derived graph that a column describes."""
        assert made.derived is not None
        key = made.graph, column.graph, key
        if key not in self._columns:
            name = f"{made.graph}/{column.rows.name}"
            while name in self.program.inputs:
                name += "_"
            made.derived.columns[name] = column
            value = self.program.input(name, Domain.EDGE, made.graph)
            self._written.examples[value] = self._written.examples[like]
            self._columns[key] = value
        return self._columns[key]

    def carry(self, rows: Value, to: Relation, source: str, turned: bool = False) -> Value:
        """Rows of the edges of a graph as rows of one that is made of it.

        Args:
            rows: Their value, of domain `EDGE`.
            to: The other graph.
            source: That of the graphs it is made of whose edges, or some of them, have these rows.
            turned: Whether the edges are turned around there.
        """
        makers = {s.output: s for s in self.program.steps}
        made: dict[Value, Value] = {}

        def visit(value: Value) -> Value:
            if value in made:
                return made[value]
            step = makers[value]
            if value.domain is not Domain.EDGE:
                return value
            if step.at_end is not None:
                found = self.program.gather(
                    f"{value}_there", step.inputs[0], to.graph, step.at_end != turned
                )
            elif step.is_given:
                found = self._input_carried(value, to, source)
            elif step.row_fn is not None:
                inputs = [visit(v) for v in step.inputs]
                found = self.program.map(
                    f"{value}_there",
                    step.row_fn,
                    inputs,
                    costly=step.costly,
                    key=("carried", value),
                )
            else:
                raise NotIncremental(f"'{value}' is no row of an edge")
            if value in self._written.examples:
                self._written.examples.setdefault(found, self._written.examples[value])
            made[value] = found
            return found

        return visit(rows)

    def _input_carried(self, value: Value, to: Relation, source: str) -> Value:
        of = next(r for r in self.program.graphs.values() if r.graph == value.kind)
        if of.graph == source:
            column = Column(of.graph, carried(value.name))
            return self._column(to, column, value, value.name)
        if of.derived is None:
            raise NotIncremental("rows of another graph")
        if value.name == of.derived.part:
            return self.parts(to)
        column = of.derived.columns[value.name]
        if column.graph != source or column.reduce:
            raise NotIncremental("rows of another graph")
        key: Hashable = column.rows.name if not column.reduce else column
        return self._column(to, column, value, key)

    def _rows_joined(self, node: fx.Node, parts: list[Any], fake: Tensor) -> Any:
        """`cat` of rows of edges, in front of rows of loops, as rows of the joined graph."""
        held = [self._env.get(p) if isinstance(p, fx.Node) else None for p in parts]
        if isinstance(held[-1], Value) and held[-1].domain is Domain.NODE:
            ahead, loop = held[:-1], held[-1]
        else:
            ahead, loop = held, None
        if not ahead or not all(isinstance(v, Value) and v.domain is Domain.EDGE for v in ahead):
            return None
        own = self._own.get(parts[-1]) if loop is not None or parts[-1] in self._own else None
        graph = self._of_size(fake.shape[0], loop is not None)
        if graph is None:
            return None
        return self.spread(node, self.program.graphs[graph], ahead, loop, own)  # type: ignore[arg-type]

    def _of_size(self, size: Any, loops: bool) -> Value | None:
        """The derived graph of that many edges, wherever it is made."""
        for node, fake in self.recorded.fake.items():
            makes = node.op == "call_function" and name_of(node.target) in ("cat", "stack")  # type: ignore[arg-type]
            if not makes or not is_fake(fake) or not same_shape(fake.shape, (2, size)):
                continue
            self._write(node)
            found = None if node in self._ids.looped else self.graph_of(node)
            derived = None if found is None else self.program.graphs[found[0]].derived
            at_once = found is not None and not found[1]
            if at_once and derived is not None and derived.loops == loops:
                return found[0]  # type: ignore[index]
        return None

    def spread(
        self, node: fx.Node, to: Relation, ahead: list[Value], loop: Value | None, own: _Own | None
    ) -> Value:
        """Rows of the parts of a derived graph, and of the loops at nodes, as rows of its edges."""
        derived = to.derived
        assert derived is not None
        if len(ahead) != len(derived.parts):
            raise NotIncremental("rows of other parts")
        rows = [
            self.carry(v, to, part.graph, self._is_turned(v.kind, part))
            for v, part in zip(ahead, derived.parts, strict=True)
        ]
        if loop is None:
            if all(r is rows[0] for r in rows):
                return rows[0]
            return self.program.map(node.name, of_parts, [self.parts(to), *rows])
        more: list[Value] = []
        number = self._written.numbers.get(own.fill if own is not None else loop)
        if number is None:
            at = own.fill if own is not None else loop
            more.append(self.program.gather(f"{node.name}_loops", at, to.graph, True))
        if own is not None:
            if derived.own not in ("", own.graph):
                raise NotIncremental("loops of several graphs")
            derived.own = own.graph
            more.append(self.carry(own.rows, to, own.graph))
        fn = partial(_of_looped, len(rows), number, own is not None)
        made = self.program.map(node.name, fn, [self.parts(to), *rows, *more])
        fill = loop if own is None else own.fill
        self.spread_of[made] = Spread(ahead[0], fill, None if own is None else own.rows)
        return made

    def _is_turned(self, kind: str, part: DerivedEdges) -> bool:
        """Whether the edges of a graph are turned around in a part that is made of it."""
        if kind == part.graph:
            return part.turned
        of = next(r for r in self.program.graphs.values() if r.graph == kind)
        if of.derived is None or len(of.derived.parts) != 1:
            raise NotIncremental("rows of another graph")
        (inner,) = of.derived.parts
        if inner.graph != part.graph or inner.keep is not part.keep:
            raise NotIncremental("rows of another graph")
        return part.turned != inner.turned


def full_rows(like: Tensor, number: Any) -> Callable[[Tensor], Tensor]:
    """Of rows `[k, ...]`, as many that are filled with a number, shaped as those of `like`."""
    return partial(_full, tuple(like.shape[1:]), number, like.dtype)


def filled_rows(step: Step) -> Tensor | None:
    """The row `[1, ...]` of all edges of a derived graph, if a map makes nothing else."""
    fn = step.row_fn
    if not isinstance(fn, partial) or fn.func is not _full:
        return None
    row: Tensor = fn(torch.zeros(1))
    return row


def _flipped(edge_index: Tensor) -> Tensor:
    return edge_index.flip(0)


def _full(tail: tuple[int, ...], number: Any, dtype: torch.dtype, rows: Tensor) -> Tensor:
    return torch.full((len(rows), *tail), number, dtype=dtype, device=rows.device)


def _of_looped(count: int, number: Any, has_own: bool, part: Tensor, *rows: Tensor) -> Tensor:
    """The same with loops, which have rows of nodes or a number, or rows of their own."""
    edges, more = rows[:count], list(rows[count:])
    made = of_parts(part, *edges)
    fill: Any = more.pop(0) if number is None else torch.full_like(made, number)
    made = torch.where(as_wide(part < 0, made), fill, made)
    if has_own:
        made = torch.where(as_wide(part == -2, made), more.pop(0), made)
    return made

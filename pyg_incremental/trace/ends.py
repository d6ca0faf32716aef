"""Message passing that a model writes by hand: what it does with the two rows of an `edge_index`.

`x[edge_index[0]]` is a gather, `zeros.scatter_add_(0, edge_index[1], messages)` an aggregation, and
between them are row maps of edges. They are known by what the operations mean, not by who called
them: `scatter`, `degree` and `softmax` of PyG, of torch_scatter or of the model's own are all made
of these.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import Aggregation, MessagePassing, aggr

from pyg_incremental.call.roles import Roles, is_label
from pyg_incremental.conv import ConvCall
from pyg_incremental.conv.attend import has_pointer
from pyg_incremental.conv.sorting import is_sort
from pyg_incremental.ops import EdgeFunction, divided
from pyg_incremental.ops.message import Message
from pyg_incremental.program.messages import at_node, message_of, reads_nodes
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    NotIncremental,
    Value,
)
from pyg_incremental.trace.closures import flattened, numbers
from pyg_incremental.trace.derived import DerivedGraphs, Spread
from pyg_incremental.trace.factors import total_of
from pyg_incremental.trace.ids import End, EndIds, arguments_of, is_fixed, same_shape
from pyg_incremental.trace.looped import CatRows, Looped, lists_all, with_own_row
from pyg_incremental.trace.matrices import Matrices
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.sides import Sides, beside, of_sides
from pyg_incremental.trace.sizes import same_size
from pyg_incremental.trace.softmax import Reduced, Softmaxes, attended
from pyg_incremental.trace.spread import Variances
from pyg_incremental.trace.written import Written

READOUTS = frozenset(
    [aggr.MedianAggregation, aggr.QuantileAggregation, aggr.MulAggregation, aggr.Set2Set]
)
"""Aggregations that look at all rows of a graph at once, in whatever order."""
_EXTREMA = {"amax": True, "amin": False}


class Ends:
    """Follows ids of nodes at the ends of edges through a recorded graph.

    Args:
        written: What is written so far.
        write: Writes an operation, and all that it needs, before its turn.
        modules: The modules of the model, by their paths.
        derives: Whether graphs that the model makes are tables of edges of their own.
    """

    def __init__(
        self,
        written: Written,
        write: Callable[[fx.Node], None],
        modules: Mapping[str, nn.Module],
        derives: bool = True,
    ) -> None:
        self.program, self.recorded = written.program, written.recorded
        self.env, self.examples = written.env, written.examples
        self._ids, self._written = EndIds(written), written
        self._softmaxes, self._modules = Softmaxes(written, self._ids), modules
        self._variances = Variances(self._ids, self._softmaxes.reduced)
        self._derived = DerivedGraphs(written, self._ids, write) if derives else None
        if self._derived is not None:
            self._matrices = Matrices(written, self._derived.graph_of, self._ids.filled)
        self._kept: list[Any] = []  # steps are known by the ids of these

    def note_members(self, node: fx.Node, name: str, roles: Roles) -> None:
        """An input that names graphs holds the ids at one end of the edges that it stands for."""
        self._ids.note_members(node, name, roles)

    def read(self, node: fx.Node) -> Any:
        """The value of an operation that gathers or aggregates; None if it does neither.

        What becomes of ids and of constants is noted on the way.
        """
        if node.op != "call_function":
            return None
        name = name_of(node.target)  # type: ignore[arg-type]
        if lists_all(node, self.recorded.real[node], self._ids.every):
            self._ids.every.add(node)
            return None
        first = node.args[0] if node.args else None
        held = self.env.get(first) if isinstance(first, fx.Node) else None
        if isinstance(held, Sides):
            return of_sides(self._written, node, name, held)
        self._ids.note_constant(node, name)
        made = None if self._derived is None else (
            self._derived.read(node, name)
            or self._matrices.read(node, name, self.call_over, self._message)
        )  # fmt: skip
        if made is not None:
            return made
        if name == "cat":
            return self._ids.joined(node) or self._behind_each_other(node)
        if name == "stack":
            return self._to_graphs(node) or beside(self._written, node)
        back = self._ids.turned_back(node, name)
        if back is not None or self._ids.note_pairs(node, name):
            return back
        end = self._ids.end_of(node, name)
        if end is not None:
            self._ids.of[node] = end
            return None
        if name in ("__getitem__", "index_select", "embedding", "torch.embedding"):
            return self._gathered(node, name)
        rule = _RULES.get(name.removesuffix("_") if not name.endswith("__") else name)
        try:
            return None if rule is None else rule(self, node)
        except NotIncremental:
            return None

    def tables_for(self, node: fx.Node) -> dict[fx.Node, Value]:
        """Edges with loops that a conv is given, and their rows, as tables of their own."""
        if self._derived is None or not self._ids.looped.keys() & set(node.all_input_nodes):
            return {}
        found = dict[fx.Node, Value]()
        try:
            for n in node.all_input_nodes:
                if n in self._ids.looped:
                    found[n] = made = self._derived.with_loops(n)
                    self.examples.setdefault(made, self.recorded.real[n])
            to = self.program.graphs[next(iter(found.values()))]
            for n in node.all_input_nodes:
                held = self.env[n]
                if isinstance(held, Looped) and held.drops:
                    return {}
                if isinstance(held, Looped):
                    found[n] = self._derived.spread(n, to, [held.edges], held.nodes, None)
                    self.examples.setdefault(found[n], self.recorded.real[n])
        except NotIncremental:
            return {}
        return found

    @property
    def spread_of(self) -> Mapping[Value, Spread]:
        """Rows of edges of graphs that the model makes, and of the loops behind them."""
        return {} if self._derived is None else self._derived.spread_of

    def declare(self, kind: str) -> None:
        """See that a program has the edges that an input stands for."""
        declared = self.program.graphs.values()
        for end in self._ids.of.values():
            if end.relation.members and end.kind == kind and end.relation not in declared:
                self.program.graph(end.relation)

    # Gathers -------------------------------------------------------------------------------------

    def _gathered(self, node: fx.Node, name: str) -> Value | Looped | CatRows | Sides | None:
        """`rows[ids]`, the row of a node for every edge."""
        given = arguments_of(node, ("input", "dim", "index"))
        rows, ids = given.get("input"), given.get("index")
        if name == "__getitem__":
            rows, ids = node.args[0], node.args[1]
        elif name in ("embedding", "torch.embedding"):
            ids, rows = node.args[:2] if name == "embedding" else node.args[1::-1]
            if node.kwargs.get("max_norm") is not None:  # it writes to the table
                return None
        elif not isinstance(rows, fx.Node) or not self._is_first(given.get("dim"), rows):
            return None
        if not isinstance(rows, fx.Node) or not isinstance(ids, fx.Node):
            return None
        if ids in self._ids.pairs and name == "__getitem__":
            return self._at_both(node, self.env[rows], self._ids.pairs[ids])
        graph = self.env[ids]
        relation = self.program.graphs.get(graph) if isinstance(graph, Value) else None
        if relation is not None and name == "__getitem__":
            both = self._at_both(node, self.env[rows], (End(relation, False), End(relation, True)))
            if both is not None:
                self.examples.setdefault(both, self.recorded.real[node].transpose(0, 1))
            return None if both is None else Sides(both)
        if ids in self._ids.of:
            return self._at(node, self.env[rows], ids)
        several = self._at_sides(node, self.env[rows], ids)
        if several or not isinstance(graph, CatRows):
            return several or self._picked(node, self.env[rows], graph)
        made = [self._picked(node, self.env[rows], part) for part in graph.parts]
        there = tuple(part for part in made if part is not None)
        return CatRows(there) if len(there) == len(made) else None

    def _at_sides(self, node: fx.Node, held: Any, ids: fx.Node) -> CatRows | None:
        """`rows[cat([a, b])]`, for ids at the ends of pairs that a model is asked for."""
        sides = [] if self._derived is None else self._derived.sides_of(ids)
        on_nodes = isinstance(held, Value) and held.domain is Domain.NODE
        if len(sides) < 2 or not on_nodes or not all(is_label(s.relation.graph) for s in sides):
            return None
        ends = [End(s.relation, s.at_target) for s in sides]
        if any(end.kind != held.kind for end in ends):
            return None
        parts = [
            self.program.gather(f"{node.name}_{i}", held, end.relation.graph, end.at_target)
            for i, end in enumerate(ends)
        ]
        return CatRows(tuple(parts))

    def _behind_each_other(self, node: fx.Node) -> CatRows | None:
        """`cat` of rows that a model is asked for, or of ids of such, along the first dimension."""
        given = arguments_of(node, ("tensors", "dim"))
        parts, fake = given["tensors"], self._ids.fake(node)
        first = fake is not None and given.get("dim", 0) in (0, -fake.dim())
        if not first or not isinstance(parts, (list, tuple)):
            return None
        held = [self.env.get(part) if isinstance(part, fx.Node) else None for part in parts]
        rows = [p for h in held for p in (h.parts if isinstance(h, CatRows) else (h,))]
        on_pairs = all(
            isinstance(v, Value) and v.domain is Domain.EDGE and is_label(v.kind) for v in rows
        )
        return CatRows(tuple(v for v in rows if v is not None)) if on_pairs else None

    def _picked(self, node: fx.Node, rows: Any, ids: Any) -> Value | None:
        """`rows[ids]`, for ids that stand beside the pairs that a model is asked for."""
        if not isinstance(ids, Value) or ids.domain is not Domain.EDGE or not is_label(ids.kind):
            return None
        on_nodes = isinstance(rows, Value) and rows.domain is Domain.NODE
        fakes = [self._ids.fake(n) for n in node.all_input_nodes]
        whole = any(f is not None and f.dtype is torch.int64 for f in fakes)
        if not on_nodes or not whole or ids in reads_nodes(self.program):
            return None
        return self.program.pick(node.name, rows, ids)

    def looked_up(self, node: fx.Node, table: nn.Module, name: str) -> Value | Looped | None:
        """Rows of an embedding that has one for each node, picked by ids."""
        hooks = table._forward_hooks or table._forward_pre_hooks
        ids = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if type(table) is not nn.Embedding or table.max_norm is not None or hooks:
            return None
        if not isinstance(ids, fx.Node) or ids not in self._ids.of:
            return None
        kind = self._ids.of[ids].kind
        if self.program.fixed.get(kind) != table.num_embeddings:
            return None
        held = self.program.learned(f"{name}.weight", lambda: table.weight, kind)
        self.examples.setdefault(held, table.weight.detach())
        return self._at(node, held, ids)

    def _at(self, node: fx.Node, held: Any, ids: fx.Node) -> Value | Looped | None:
        """Node rows at the ids of an end."""
        end, fake = self._ids.of[ids], self._ids.fake(ids)
        on_nodes = isinstance(held, Value) and held.domain is Domain.NODE
        if not on_nodes or held.kind != end.kind or fake is None or fake.dim() != 1:
            return None
        if end.relation.members:
            return self._of_graphs(node, held, end)
        made = self.program.gather(node.name, held, end.relation.graph, end.at_target)
        return Looped(made, held) if end.with_loops else made

    def _at_both(self, node: fx.Node, held: Any, ends: tuple[End, End]) -> Value | None:
        """`rows[edge_index.T]`, the rows of both nodes of every edge, `[num_edges, 2, ...]`."""
        if not isinstance(held, Value) or held.domain is not Domain.NODE:
            return None
        if any(end.kind != held.kind for end in ends):
            return None
        both = [
            self.program.gather(f"{node.name}_{i}", held, end.relation.graph, end.at_target)
            for i, end in enumerate(ends)
        ]
        return self.program.map(f"{node.name}_ends", _beside, both)

    def _is_first(self, dim: Any, rows: fx.Node) -> bool:
        """Whether a dimension is that of the rows."""
        real = self.recorded.real[rows]
        return isinstance(real, Tensor) and dim in (0, -real.dim())

    def _of_graphs(self, node: fx.Node, held: Value, end: End) -> Value | None:
        """`rows[batch]`: for every node the row of its graph, the only one that it looks at.

        A maximum of one row is that row; a sum, which follows differences, would drift.
        """
        fake = self._ids.fake(node)
        if fake is None or not fake.is_floating_point() or not is_fixed(fake.shape[1:]):
            return None
        call = self.call_over(node, End(end.relation, at_target=False))
        made = call.extremum(self.flat(held), True)
        tail = list(fake.shape[1:])
        return self.program.map(f"{node.name}_rows", lambda r: r.reshape(len(r), *tail), [made])

    def _to_graphs(self, node: fx.Node) -> Value | None:
        """`stack([arange(batch.size(0)), batch])`: an edge from each node to its graph."""
        given = arguments_of(node, ("tensors", "dim"))
        parts = given["tensors"]
        if not isinstance(parts, (list, tuple)) or len(parts) != 2 or given.get("dim", 0) != 0:
            return None
        if parts[0] not in self._ids.every or parts[1] not in self._ids.of:
            return None
        end = self._ids.of[parts[1]]
        first, second = map(self._ids.fake, parts)
        if not end.relation.members or first is None or not same_shape(first.shape, second.shape):  # type: ignore[union-attr]
            return None
        self.declare(end.relation.target)
        return next(v for v, r in self.program.graphs.items() if r == end.relation)

    # Aggregations --------------------------------------------------------------------------------

    def _scattered(self, node: fx.Node) -> Value | None:
        """`zeros.scatter_add_(0, ids, messages)`."""
        given = arguments_of(node, ("self", "dim", "index", "src"))
        return self._reduced(node, given, "sum", by_index=False)

    def _index_added(self, node: fx.Node) -> Value | None:
        """`zeros.index_add_(0, ids, messages)`."""
        given = arguments_of(node, ("self", "dim", "index", "source"))
        given["src"] = given.get("source")
        if given.pop("alpha", 1) != 1:
            return None
        return self._reduced(node, given, "sum", by_index=True)

    def _scatter_reduced(self, node: fx.Node) -> Value | None:
        """`zeros.scatter_reduce_(0, ids, messages, 'amax', include_self=False)`."""
        given = arguments_of(node, ("self", "dim", "index", "src", "reduce"))
        reduce = given.get("reduce")
        if reduce != "sum" and given.get("include_self", True) is not False:
            return None
        return self._reduced(node, given, str(reduce), by_index=False)

    def _index_reduced(self, node: fx.Node) -> Value | None:
        """`zeros.index_reduce_(0, ids, messages, 'amax', include_self=False)`."""
        given = arguments_of(node, ("self", "dim", "index", "source", "reduce"))
        given["src"] = given.get("source")
        if given.get("include_self", True) is not False:
            return None
        return self._reduced(node, given, str(given.get("reduce")), by_index=True)

    def _reduced(
        self, node: fx.Node, given: dict[str, Any], reduce: str, by_index: bool
    ) -> Value | None:
        """Messages added up, or compared, at the end of the edges that the ids name."""
        base, ids, source = given.get("self"), given.get("index"), given.get("src")
        parts = (base, ids, source)
        if not all(isinstance(p, fx.Node) for p in parts) or ids not in self._ids.of:
            return None
        end = self._ids.of[ids]
        into, where, rows, result = map(self._ids.fake, (*parts, node))  # type: ignore[arg-type]
        if self._ids.filled.get(base) != ("zeros", end.kind):  # type: ignore[arg-type]
            return None
        if into is None or where is None or rows is None or result is None:
            return None
        whole = where.dim() == 1 if by_index else same_shape(where.shape, rows.shape)
        fits = given.get("dim") in (0, -into.dim()) and same_shape(into.shape[1:], rows.shape[1:])
        if not whole or not fits or into.dtype != rows.dtype or not self._ids.per_edge(rows, end):
            return None
        made = self._aggregated(node, end, source, reduce, rows)  # type: ignore[arg-type]
        if made is None:
            return None
        self._softmaxes.reduced[node] = Reduced(end, reduce, source)  # type: ignore[arg-type]
        tail, dtype = list(result.shape[1:]), result.dtype
        if len(tail) == 1 and dtype == rows.dtype and reduce in ("sum", *_EXTREMA):
            return made
        shaped = numbers if not tail and self._is_of_all(dtype) else (
            lambda r: r.reshape(len(r), *tail).to(dtype)
        )  # fmt: skip
        return self._plainly(f"{node.name}_rows", shaped, made)

    def _is_of_all(self, dtype: torch.dtype) -> bool:
        """Whether a dtype is that of all features, and so of what counts edges, too."""
        nodes = (v for v in self.program.inputs.values() if v.domain is Domain.NODE)
        rows = (self.examples[value] for value in nodes if value in self.examples)
        floats = {r.dtype for r in rows if r.is_floating_point()}
        return floats == {dtype}

    def _plainly(self, name: str, fn: Callable[[Tensor], Tensor], rows: Value) -> Value:
        """A row map without parameters."""
        made = self.program.map(name, fn, [rows])
        self._written.plain.add(made)
        return made

    def _aggregated(
        self, node: fx.Node, end: End, source: fx.Node, reduce: str, rows: Tensor
    ) -> Value | None:
        call = self.call_over(node, end)
        held, own = self.env[source], None
        if self._ids.filled.get(source) == ("ones", ""):
            width = rows.shape[1:].numel()
            if reduce != "sum":
                return None
            more = int(end.with_loops)
            if width == 1 and not more:
                return call.degree()
            return self._plainly(
                f"{node.name}_count", lambda n: (n + more).expand(-1, width), call.degree()
            )
        if isinstance(held, Looped) and end.with_loops:
            if held.drops:
                return None
            own, held = self.flat(held.nodes), held.edges
        if not isinstance(held, Value) or not rows.is_floating_point():
            return None
        if own is None and end.with_loops:
            return None
        if not end.relation.members and held.domain is Domain.EDGE:
            weighed = None if end.with_loops else self._softmaxes.read(source, end)
            if weighed is not None and reduce == "sum":
                by_pointer = self._has_pointer(node, end)
                moved, function = partial(self._sent, call), partial(self._message, call)
                return attended(call, weighed, moved, function, by_pointer)
            total = self._total(call, source, end) if reduce in ("sum", "mean") else None
            if total is not None:
                return total if reduce == "sum" else self._mean(call, node, total)
        message = self._travels(call, held, end)
        if message is None:
            return None
        if own is not None and reduce in ("sum", "mean", *_EXTREMA):
            largest = _EXTREMA.get(reduce)
            made = call.total(message) if largest is None else call.extremum(message, largest)
            return with_own_row(call, self.program, f"{node.name}_looped", reduce, made, own)
        if reduce == "sum":
            return call.total(message)
        if reduce in _EXTREMA:
            return call.extremum(message, _EXTREMA[reduce])
        return self._mean(call, node, call.total(message)) if reduce == "mean" else None

    def _travels(self, call: ConvCall, held: Value, end: End) -> Message | None:
        """Rows that are reduced at an end, as a message; None if they are not of its edges."""
        if end.relation.members:  # the row of a node is that of the edge to its graph
            is_row = (held.domain, held.kind) == (Domain.NODE, end.relation.source)
            return self.flat(held) if is_row else None
        if (held.domain, held.kind) != (Domain.EDGE, end.relation.graph):
            return None
        return self._plain(held, end) or self._sent(call, held) or self._message(call, held)

    def _spread(self, node: fx.Node) -> Value | None:
        """`mean(x * x) - mean(x)^2`, of which the difference of rounded means leaves little.

        It is made of sums in float64, as the variance of an aggregation module is.
        """
        found = self._variances.read(node)
        held = None if found is None else self.env[found.source]
        if found is None or not isinstance(held, Value) or found.end.with_loops:
            return None
        fake = self._ids.fake(found.source)
        if fake is None or fake.dim() != 2 or not fake.is_floating_point():
            return None
        call = self.call_over(node, found.end)
        message = self._travels(call, held, found.end)
        if message is None:
            return None
        return call.reduce(message, module=aggr.VarAggregation(), part="variance")

    def _mean(self, call: ConvCall, node: fx.Node, total: Value) -> Value:
        return self.program.map(f"{node.name}_mean", divided, [total, call.degree()])

    def _total(self, call: ConvCall, source: fx.Node, end: End) -> Value | None:
        """The sum of products that can be taken apart; see `total_of`."""
        if end.with_loops:
            return None
        function = partial(self._message, call)
        return total_of(call, self._written, self._ids, source, end, function)

    def aggregated_by(self, node: fx.Node, module: nn.Module) -> Value | None:
        """Messages, or the rows of the nodes of a graph, reduced by an aggregation module.

        Of what is made of all rows at once, such as a median, that of a node or graph with a change
        is computed again. Nodes of a graph have no order that is kept, and so `READOUTS` only.
        """
        hooks = module._forward_hooks or module._forward_pre_hooks
        if not isinstance(module, Aggregation) or hooks:
            return None
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
        rows, ids = given.pop("x", None), given.pop("index", None)
        if not isinstance(rows, fx.Node) or ids not in self._ids.of:
            return None
        end, held, fake = self._ids.of[ids], self.env[rows], self._ids.fake(rows)
        if not isinstance(held, Value) or end.with_loops:
            return None
        if fake is None or fake.dim() != 2 or not fake.is_floating_point():
            return None
        call = self.call_over(node, end)
        try:
            fits = not given and type(module) in READOUTS
            if not end.relation.members:
                fits = self._to_all(given, end) and not (end.relation.derived and is_sort(module))
            message = self._travels(call, held, end) if fits else None
            return None if message is None else call.reduce(message, module=module)
        except NotIncremental:
            return None

    def _to_all(self, given: dict[str, Any], end: End) -> bool:
        """Whether an aggregation module has a row for each node of an end, as PyG calls it."""
        size, count = given.get("dim_size"), self.recorded.sizes.nodes[end.kind]
        fake = self.recorded.fake[size] if isinstance(size, fx.Node) else size
        every = fake is not None and same_size(fake, count)
        return every and given.get("ptr") is None and given.get("dim", -2) in (-2, 0)

    def _plain(self, rows: Value, end: End) -> Value | None:
        """The node value of which messages are the rows at the other end, if they are just that."""
        step = next(s for s in self.program.steps if s.output is rows)
        other = step.at_end is (not end.at_target)
        value = step.inputs[0] if other else None
        example = None if value is None else self.examples.get(value)
        return value if example is not None and example.dim() == 2 else None

    def _has_pointer(self, node: fx.Node, end: End) -> bool:
        """Whether the conv that is looked into takes a softmax over runs of sorted edges."""
        conv = self._modules.get(self.recorded.makers.get(node, ""))
        return isinstance(conv, MessagePassing) and has_pointer(conv, end.relation.format)

    def _sent(self, call: ConvCall, rows: Value) -> Value | None:
        """Messages that are made of the node alone where they come from, as rows of that node.

        None if they are not, or more than twice as wide as what they are made of.
        """
        found = message_of(self.program, rows)
        sent, own = found.source, found.target
        if call.turned:
            sent, own = own, sent
        if own or found.edges or not sent:
            return None
        given = sum(call.example(v).shape[1:].numel() for v in sent)
        made = at_node(self.program, rows, call.turned)
        wide = call.example(made).shape[1:].numel()
        return None if wide > 2 * given else self.program.map(f"{rows}_flat", flattened, [made])

    def flat(self, rows: Value) -> Value:
        """Node rows as a matrix, `[num_nodes, channels]`."""
        if self.examples[rows].dim() == 2:
            return rows
        return self.program.map(f"{rows}_flat", flattened, [rows], key="flat")

    def _message(self, call: ConvCall, rows: Value) -> EdgeFunction:
        found = message_of(self.program, rows)
        source, target = found.source, found.target
        if call.turned:  # messages go to where edges come from
            source, target = target, source
        dtypes = {call.example(v).dtype for v in source}
        if len(dtypes) > 1:
            raise NotIncremental("rows of several dtypes are read where an edge comes from")
        counts = (len(found.source), len(found.target))

        def fn(*given: Any) -> Any:
            first, second = (counts[1], counts[0]) if call.turned else counts
            a, b, rest = given[:first], given[first : first + second], given[first + second :]
            return found.fn(*b, *a, *rest) if call.turned else found.fn(*a, *b, *rest)

        return call.message(fn, source, target, found.edges)

    def call_over(self, node: fx.Node, end: End) -> ConvCall:
        """The words that steps over the edges of this end are written with."""
        self.declare(end.relation.target)
        stands_for = SimpleNamespace(flow="source_to_target", fuse=False)
        self._kept.append(stands_for)
        real = self.recorded.real[node]
        like = real if isinstance(real, Tensor) and real.is_floating_point() else None
        return ConvCall(
            self.program, stands_for, node.name, {}, None, self.examples, end.relation,
            turned=not end.at_target, like=like,
        )  # fmt: skip


_RULES: dict[str, Callable[[Ends, fx.Node], Value | None]] = {
    "scatter_add": Ends._scattered,
    "index_add": Ends._index_added,
    "scatter_reduce": Ends._scatter_reduced,
    "index_reduce": Ends._index_reduced,
    "sub": Ends._spread,
    "subtract": Ends._spread,
}


def _beside(*rows: Tensor) -> Tensor:
    return torch.stack(rows, 1)

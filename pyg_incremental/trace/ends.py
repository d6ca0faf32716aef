"""Message passing that a model writes by hand: what it does with the two rows of an `edge_index`.

`x[edge_index[0]]` is a gather, `zeros.scatter_add_(0, edge_index[1], messages)` an aggregation, and
between them are row maps of edges. They are known by what the operations mean, not by who called
them: `scatter`, `degree` and `softmax` of PyG, of torch_scatter or of the model's own are all made
of these.
"""

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import aggr

from pyg_incremental.aggregate import EdgeFunction
from pyg_incremental.call.members import membership
from pyg_incremental.call.roles import Roles
from pyg_incremental.conv import ConvCall
from pyg_incremental.program.messages import message_of, reads_nodes
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    Gather,
    NotIncremental,
    Program,
    Relation,
    Step,
    Value,
)
from pyg_incremental.trace.looped import Looped, lists_all, with_own_row
from pyg_incremental.trace.names import name_of
from pyg_incremental.trace.recorder import Recorder
from pyg_incremental.trace.sizes import is_fake, same_size
from pyg_incremental.transform.edge_map import EdgeMap

_KEEPS_IDS = frozenset(
    [
        "view", "reshape", "unsqueeze", "expand", "expand_as", "flatten", "contiguous", "clone",
        "detach", "repeat", "long", "view_as", "reshape_as", "broadcast_to",
    ]
)  # fmt: skip
"""Operations after which ids still stand one behind the other in the first dimension, if there are
still as many: they are only repeated in others."""
_ZEROS = frozenset(["zeros", "new_zeros", "zeros_like"])
_ONES = frozenset(["ones", "new_ones", "ones_like"])
READOUTS = frozenset(
    [aggr.MedianAggregation, aggr.QuantileAggregation, aggr.MulAggregation, aggr.Set2Set]
)
"""Aggregations that look at all rows of a graph at once, in whatever order."""
_EXTREMA = {"amax": True, "amin": False}


@dataclass(frozen=True)
class End:
    """The ids of the nodes at one end of every edge, in order of the edges.

    With loops, the ids of all nodes come behind them.
    """

    relation: Relation
    at_target: bool
    with_loops: bool = False

    @property
    def kind(self) -> str:
        """The nodes."""
        return self.relation.target if self.at_target else self.relation.source


class Ends:
    """Follows ids of nodes at the ends of edges through a recorded graph.

    Args:
        program: The program that is being written.
        recorded: What the model does.
        env: The values of the nodes so far.
        turned: Graphs whose edges were turned around, and what they were before.
        examples: Rows of values on the probe.
    """

    def __init__(
        self,
        program: Program,
        recorded: Recorder,
        env: Mapping[fx.Node, Any],
        turned: Mapping[Value, Value],
        examples: Mapping[Value, Tensor],
    ) -> None:
        self.program, self.recorded = program, recorded
        self.env, self.turned, self.examples = env, turned, examples
        self._of: dict[fx.Node, End] = {}
        self._filled: dict[fx.Node, tuple[str, str]] = {}
        self._every: set[fx.Node] = set()  # ids of all nodes
        self._looped: dict[fx.Node, Relation] = {}  # edges, and behind them a loop at each node
        self._kept: list[Any] = []  # steps are known by the ids of these

    def read(self, node: fx.Node) -> Value | Looped | None:
        """The value of an operation that gathers or aggregates; None if it does neither.

        What becomes of ids and of constants is noted on the way.
        """
        if node.op != "call_function":
            return None
        name = name_of(node.target)  # type: ignore[arg-type]
        if lists_all(node, self.recorded.real[node], self._every):
            self._every.add(node)
            return None
        if name == "cat":
            return self._joined(node)
        end = self._end(node, name)
        if end is not None:
            self._of[node] = end
            return None
        self._note_constant(node, name)
        if name in ("__getitem__", "index_select"):
            return self._gathered(node, name)
        rule = _SCATTERS.get(name.removesuffix("_") if not name.endswith("__") else name)
        try:
            return None if rule is None else rule(self, node)
        except NotIncremental:
            return None

    def note_members(self, node: fx.Node, name: str, roles: Roles) -> None:
        """An input that names graphs holds the ids at one end of the edges that it stands for."""
        relation = membership(roles, name) if name in roles.nodes else None
        if relation is not None and relation.graph in self.recorded.sizes.edges:
            self._of[node] = End(relation, at_target=True)

    def declare(self, kind: str) -> None:
        """See that a program has the edges that an input stands for."""
        declared = self.program.graphs.values()
        for end in self._of.values():
            if end.relation.members and end.kind == kind and end.relation not in declared:
                self.program.graph(end.relation)

    # Ids and constants ---------------------------------------------------------------------------

    def _end(self, node: fx.Node, name: str) -> End | None:
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node):
            return None
        fake = self._fake(node)
        if first in self._of:
            end = self._of[first]
            kept = name in _KEEPS_IDS and fake is not None and self._per_edge(fake, end)
            return end if kept or _adds_dimensions(node, name) else None
        at: Any = None
        if name == "__getitem__" or node.target is operator.getitem:
            at = node.args[1]
            if first.op == "call_function" and name_of(first.target) == "unbind":  # type: ignore[arg-type]
                rows = _arguments(first, ("input", "dim"))
                first = rows["input"] if rows.get("dim", 0) == 0 else None
        elif name == "select":
            given = _arguments(node, ("input", "dim", "index"))
            at = given.get("index") if given.get("dim") == 0 else None
        graph: Any = self.env.get(first) if isinstance(first, fx.Node) else None
        loops = first in self._looped
        if isinstance(at, tuple) and at[1:] == (slice(None),):
            at = at[0]
        if type(at) is not int or at not in (0, 1, -1, -2) or not isinstance(graph, Value):
            return None
        turned = graph in self.turned
        relation = self.program.graphs.get(self.turned.get(graph, graph))
        if isinstance(first, fx.Node) and loops:
            relation = self._looped[first]
        if relation is None or relation.format != "coo":
            return None
        return End(relation, (at % 2 == 1) != turned, loops)

    def _note_constant(self, node: fx.Node, name: str) -> None:
        """Zeros for every node, and ones for every edge, are known when something is added up."""
        fake = self._fake(node)
        if fake is None or name not in _ZEROS | _ONES:
            return
        kind = self.recorded.sizes.kind_of(fake.shape)
        if name in _ZEROS and kind is not None:
            self._filled[node] = ("zeros", kind)
        if name in _ONES and _is_fixed(fake.shape[1:]):
            self._filled[node] = ("ones", "")

    def _joined(self, node: fx.Node) -> Looped | None:
        """`cat` of edges and a loop at each node, or of rows that belong to these."""
        given = _arguments(node, ("tensors", "dim"))
        parts, dim, sizes = given["tensors"], given.get("dim", 0), self.recorded.sizes
        if not isinstance(parts, (list, tuple)) or len(parts) != 2:
            return None
        first, second = (self.env.get(p) if isinstance(p, fx.Node) else None for p in parts)
        relation = self.program.graphs.get(first)  # type: ignore[arg-type]
        fake = self._fake(parts[1]) if isinstance(parts[1], fx.Node) else None
        if relation is not None and relation.format == "coo" and parts[1] in self._every:
            beside = dim in (1, -1) and fake is not None and fake.dim() == 2
            at_home = relation.source == relation.target
            if beside and at_home and same_size(fake.shape[1], sizes.nodes[relation.source]):  # type: ignore[union-attr]
                self._looped[node] = relation
        elif isinstance(first, Value) and isinstance(second, Value) and fake is not None:
            over = [r for r in self.program.graphs.values() if r.graph == first.kind]
            alike = first.domain is Domain.EDGE and second.domain is Domain.NODE and over
            if alike and dim in (0, -fake.dim()) and second.kind == over[0].source:
                return Looped(first, second) if over[0].source == over[0].target else None
        return None

    def _per_edge(self, fake: Tensor, end: End) -> bool:
        relation, sizes = end.relation, self.recorded.sizes
        count = sizes.edges[relation.graph]
        if end.with_loops:
            count = count + sizes.nodes[relation.source]
        return fake.dim() > 0 and same_size(fake.shape[0], count)

    def _fake(self, node: fx.Node) -> Tensor | None:
        fake = self.recorded.fake.get(node)
        return fake if is_fake(fake) else None

    # Gathers -------------------------------------------------------------------------------------

    def _gathered(self, node: fx.Node, name: str) -> Value | Looped | None:
        """`rows[ids]`, the row of a node for every edge."""
        given = _arguments(node, ("input", "dim", "index"))
        rows, ids = given.get("input"), given.get("index")
        if name == "__getitem__":
            rows, ids = node.args[0], node.args[1]
        elif not isinstance(rows, fx.Node) or not self._is_first(given.get("dim"), rows):
            return None
        if not isinstance(rows, fx.Node) or not isinstance(ids, fx.Node) or ids not in self._of:
            return None
        held, end, fake = self.env[rows], self._of[ids], self._fake(ids)
        on_nodes = isinstance(held, Value) and held.domain is Domain.NODE
        if not on_nodes or held.kind != end.kind or fake is None or fake.dim() != 1:
            return None
        if end.relation.members:
            return self._of_graphs(node, held, end)
        made = self.program.gather(node.name, held, end.relation.graph, end.at_target)
        return Looped(made, held) if end.with_loops else made

    def _is_first(self, dim: Any, rows: fx.Node) -> bool:
        """Whether a dimension is that of the rows."""
        fake = self._fake(rows)
        return fake is not None and dim in (0, -fake.dim())

    def _of_graphs(self, node: fx.Node, held: Value, end: End) -> Value | None:
        """`rows[batch]`: for every node the row of its graph, the only one that it looks at.

        A maximum of one row is that row; a sum, which follows differences, would drift.
        """
        fake = self._fake(node)
        if fake is None or not fake.is_floating_point() or not _is_fixed(fake.shape[1:]):
            return None
        call = self._call(node, End(end.relation, at_target=False))
        made = call.extremum(self._flat(held), True)
        tail = list(fake.shape[1:])
        return self.program.map(f"{node.name}_rows", lambda r: r.reshape(len(r), *tail), [made])

    # Aggregations --------------------------------------------------------------------------------

    def _scattered(self, node: fx.Node) -> Value | None:
        """`zeros.scatter_add_(0, ids, messages)`."""
        given = _arguments(node, ("self", "dim", "index", "src"))
        return self._reduced(node, given, "sum", by_index=False)

    def _index_added(self, node: fx.Node) -> Value | None:
        """`zeros.index_add_(0, ids, messages)`."""
        given = _arguments(node, ("self", "dim", "index", "source"))
        given["src"] = given.get("source")
        if given.pop("alpha", 1) != 1:
            return None
        return self._reduced(node, given, "sum", by_index=True)

    def _scatter_reduced(self, node: fx.Node) -> Value | None:
        """`zeros.scatter_reduce_(0, ids, messages, 'amax', include_self=False)`."""
        given = _arguments(node, ("self", "dim", "index", "src", "reduce"))
        reduce = given.get("reduce")
        if reduce != "sum" and given.get("include_self", True) is not False:
            return None
        return self._reduced(node, given, str(reduce), by_index=False)

    def _index_reduced(self, node: fx.Node) -> Value | None:
        """`zeros.index_reduce_(0, ids, messages, 'amax', include_self=False)`."""
        given = _arguments(node, ("self", "dim", "index", "source", "reduce"))
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
        if not all(isinstance(p, fx.Node) for p in parts) or ids not in self._of:
            return None
        end = self._of[ids]
        into, where, rows, result = map(self._fake, (*parts, node))  # type: ignore[arg-type]
        if self._filled.get(base) != ("zeros", end.kind):  # type: ignore[arg-type]
            return None
        if into is None or where is None or rows is None or result is None:
            return None
        whole = where.dim() == 1 if by_index else _same_shape(where.shape, rows.shape)
        fits = given.get("dim") in (0, -into.dim()) and _same_shape(into.shape[1:], rows.shape[1:])
        if not whole or not fits or into.dtype != rows.dtype or not self._per_edge(rows, end):
            return None
        made = self._aggregated(node, end, source, reduce, rows)  # type: ignore[arg-type]
        if made is None:
            return None
        tail, dtype = list(result.shape[1:]), result.dtype
        return self.program.map(
            f"{node.name}_rows", lambda r: r.reshape(len(r), *tail).to(dtype), [made]
        )

    def _aggregated(
        self, node: fx.Node, end: End, source: fx.Node, reduce: str, rows: Tensor
    ) -> Value | None:
        call = self._call(node, end)
        held, own = self.env[source], None
        if self._filled.get(source) == ("ones", ""):
            width = rows.shape[1:].numel()
            if reduce != "sum":
                return None
            more = int(end.with_loops)
            return self.program.map(
                f"{node.name}_count", lambda n: (n + more).expand(-1, width), [call.degree()]
            )
        if isinstance(held, Looped) == end.with_loops and end.with_loops:
            held, own = held.edges, self._flat(held.nodes)
        if not isinstance(held, Value) or not rows.is_floating_point():
            return None
        if own is None and end.with_loops:
            return None
        message: Any
        if end.relation.members:  # the row of a node is that of the edge to its graph
            if (held.domain, held.kind) != (Domain.NODE, end.relation.source):
                return None
            message = self._flat(held)
        elif held.domain is Domain.EDGE and held.kind == end.relation.graph:
            message = (reduce == "sum" and self._plain(held, end)) or self._message(call, held)
        else:
            return None
        if own is not None and reduce in ("sum", "mean", *_EXTREMA):
            largest = _EXTREMA.get(reduce)
            made = call.total(message) if largest is None else call.extremum(message, largest)
            return with_own_row(call, self.program, f"{node.name}_looped", reduce, made, own)
        if reduce == "sum":
            return call.total(message)
        if reduce in _EXTREMA:
            return call.extremum(message, _EXTREMA[reduce])
        if reduce == "mean":
            count = call.degree()
            total = call.total(message)
            return self.program.map(
                f"{node.name}_mean", lambda t, n: t / n.clamp(min=1), [total, count]
            )
        return None

    def read_out(self, node: fx.Node, module: nn.Module, name: str) -> Value | None:
        """A readout whose rows are made of all nodes of a graph at once, such as a median.

        That of a graph of which a node changed is computed again. Only such readouts are taken as
        ask for no order of the nodes.
        """
        hooks = module._forward_hooks or module._forward_pre_hooks
        if type(module) not in READOUTS or hooks:
            return None
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
        rows, ids = given.get("x"), given.get("index")
        if given.keys() != {"x", "index"} or not isinstance(rows, fx.Node) or ids not in self._of:
            return None
        end, held, fake = self._of[ids], self.env[rows], self._fake(rows)
        on_nodes = isinstance(held, Value) and held.domain is Domain.NODE
        if not end.relation.members or not on_nodes or held.kind != end.relation.source:
            return None
        if fake is None or fake.dim() != 2 or not fake.is_floating_point():
            return None
        try:
            return self._call(node, end).reduce(held, module=module, part=name)
        except NotIncremental:
            return None

    def _plain(self, rows: Value, end: End) -> Value | None:
        """The node value of which messages are the rows at the other end, if they are just that."""
        step = next(s for s in self.program.steps if s.output is rows)
        other = isinstance(step, Gather) and step.at_target is not end.at_target
        value = step.inputs[0] if other else None
        example = None if value is None else self.examples.get(value)
        return value if example is not None and example.dim() == 2 else None

    def _flat(self, rows: Value) -> Value:
        """Node rows as a matrix, `[num_nodes, channels]`."""
        if self.examples[rows].dim() == 2:
            return rows
        return self.program.map(f"{rows}_flat", _flattened, [rows], key="flat")

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

    def _call(self, node: fx.Node, end: End) -> ConvCall:
        """The words that steps over the edges of this end are written with."""
        self.declare(end.relation.target)
        stands_for = SimpleNamespace(flow="source_to_target", fuse=False)
        self._kept.append(stands_for)
        return ConvCall(
            self.program, stands_for, node.name, {}, None, self.examples, end.relation,
            turned=not end.at_target,
        )  # fmt: skip


_SCATTERS: dict[str, Callable[[Ends, fx.Node], Value | None]] = {
    "scatter_add": Ends._scattered,
    "index_add": Ends._index_added,
    "scatter_reduce": Ends._scatter_reduced,
    "index_reduce": Ends._index_reduced,
}


def _flattened(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), rows.shape[1:].numel())


def _arguments(node: fx.Node, names: tuple[str, ...]) -> dict[str, Any]:
    """The arguments of a call by name."""
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _adds_dimensions(node: fx.Node, name: str) -> bool:
    """Whether it is `ids[:, None]`."""
    at = node.args[1] if name == "__getitem__" and len(node.args) > 1 else None
    return (
        isinstance(at, tuple)
        and bool(at)
        and at[0] == slice(None)
        and all(part is None for part in at[1:])
    )


def _same_shape(a: Any, b: Any) -> bool:
    """Whether two shapes are equal whatever the graph."""
    return len(a) == len(b) and all(map(same_size, a, b))


def _is_fixed(shape: Any) -> bool:
    return not any(isinstance(size, torch.SymInt) for size in shape)


def keep_edge_rows(program: Program) -> None:
    """Let edge rows that leave, or that something on all rows reads, be kept current.

    They are no part of a message, so they are stored: see `EdgeMap`.
    """
    gathering = reads_nodes(program)
    kept: dict[Value, Value] = {}
    steps: list[Step] = []

    def rows_of(value: Value, leaves: bool = False) -> Value:
        if value not in gathering and not (leaves and value.domain is Domain.EDGE):
            return value
        if value not in kept:
            message = message_of(program, value)
            kept[value] = program.value(f"{value.name}_rows", Domain.EDGE, value.kind)
            inputs = (*message.source, *message.target, *message.edges)
            steps.append(EdgeMap(kept[value], inputs, message))
        return kept[value]

    for s in program.steps:
        if s.output not in gathering and gathering.intersection(s.inputs):
            s = replace(s, inputs=tuple(map(rows_of, s.inputs)))
        steps.append(s)
    program.outputs[:] = [rows_of(value, leaves=True) for value in program.outputs]
    program.steps[:] = steps

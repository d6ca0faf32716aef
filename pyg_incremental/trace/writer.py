"""The operations of a traced model become steps of a program.

Each becomes a row map, a conv's program, or a step on all rows.
"""

import operator
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing

from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.members import count_of
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import NotTraceable, Output, Traced
from pyg_incremental.ops import Linear
from pyg_incremental.program.derivations import leave_out_unused
from pyg_incremental.program.origin import Origin
from pyg_incremental.program.row_wise import COSTLY_MODULES, as_it_is
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    NotIncremental,
    Program,
    Returned,
    Step,
    Value,
)
from pyg_incremental.trace import operations
from pyg_incremental.trace.closed_sums import with_closed_sums
from pyg_incremental.trace.closures import Live, as_it_runs, closure
from pyg_incremental.trace.convs import steps_of_conv
from pyg_incremental.trace.edge_rows import keep_edge_rows
from pyg_incremental.trace.ends import Ends
from pyg_incremental.trace.every_node import EveryNode
from pyg_incremental.trace.functions import SizeFormula, size_of
from pyg_incremental.trace.in_front import in_front, split
from pyg_incremental.trace.joined_maps import with_joined_maps
from pyg_incremental.trace.known import known
from pyg_incremental.trace.looped import CatRows, Looped, in_parts, joined_rows, listed
from pyg_incremental.trace.names import name_of, name_of_module, shown
from pyg_incremental.trace.nested_sums import with_nested_sums
from pyg_incremental.trace.one_step import OneStep, OneSteps
from pyg_incremental.trace.own_rows import without_tables
from pyg_incremental.trace.picked import (  # fmt: skip
    Picked,
    as_picked,
    leaving,
    over_picked,
    picked,
    put,
    with_rows,
)
from pyg_incremental.trace.probe import Probe
from pyg_incremental.trace.products import of_all_rows
from pyg_incremental.trace.pushed_down import with_pushed_down
from pyg_incremental.trace.recorder import Recorder
from pyg_incremental.trace.row_rules import squeezes_all, why_not_by_rows
from pyg_incremental.trace.sealed import edges_of_matrix, values_of_matrix
from pyg_incremental.trace.series import LayerRows, joined, of_series
from pyg_incremental.trace.sides import ARRANGED, Sides, as_sides
from pyg_incremental.trace.sizes import is_fake, is_symbolic
from pyg_incremental.trace.written import Written


class Writer:
    """Turns the nodes of an fx graph into steps.

    Args:
        site: The call that was traced.
        roles: What its tensors are.
        recorded: What it does.
        probe: The call on which that was recorded.
        in_one: Whether nodes that are read out together become one graph.
        derives: Whether graphs that the model makes become tables of edges of their own.
    """

    def __init__(
        self,
        site: BoundCall,
        roles: Roles,
        recorded: Recorder,
        probe: Probe,
        in_one: bool = False,
        derives: bool = True,
    ) -> None:
        self.site = site
        self.roles = roles
        self.recorded = recorded
        self.results = recorded.real
        self.program = Program(fixed={kind: probe.num_nodes[kind] for kind in roles.fixed})
        self.written = Written(self.program, recorded)
        self.env = self.written.env
        self.names = iter(site.names)
        self.modules = dict(site.named_modules())
        self.weights: dict[str, Value] = {}
        self.ends = Ends(self.written, self._write, self.modules, derives)
        self.every_node = EveryNode(self.written, self.ends, roles) if in_one else None
        self.one_steps = OneSteps(self.written)

    def write(self, graph: fx.Graph) -> Traced:
        """The program of a graph.

        Raises:
            NotTraceable: If it writes to or returns what a program cannot.
        """
        structure: Any = None
        for node in graph.nodes:
            if node.op == "placeholder":
                name = next(self.names)
                self.env[node] = self._input(name)
                self._remember(node)
                self.ends.note_members(node, name, self.roles)
            elif node.op == "get_attr":
                self.env[node] = self._attribute(str(node.target))
                self._remember(node)
            elif node.op == "output":
                structure = self._output(node.args[0])
                self._finish_outputs()
                keep_edge_rows(self.program)
                without_tables(self.written, self.ends.spread_of)
                with_nested_sums(self.program)
                with_pushed_down(self.program)
                self._finish_outputs()  # a layer that has moved may leave a sum in its place
                with_closed_sums(self.program)
                with_joined_maps(self.program, self.written.by_hand)
                leave_out_unused(self.program)
            else:
                self._write(node)
        return Traced(self.program, structure)

    def _write(self, node: fx.Node) -> None:
        """Write an operation, and those that it needs, unless that is done."""
        if node in self.env:
            return
        for needed in node.all_input_nodes:
            self._write(needed)
        first = len(self.program.steps)
        self.env[node] = self._operation(node)
        self._remember(node)
        self._note_origin(node, self.program.steps[first:])

    def _note_origin(self, node: fx.Node, steps: list[Step]) -> None:
        """Note which operation, called by which line, has become these steps.

        What a conv of PyG does inside is the conv, to who has written the line.
        """
        what = self._callable(node)[1] if node.op == "call_module" else shown(node.target)
        made_by = self.recorded.makers.get(node, "")
        if made_by and type(self.modules[made_by]).__module__.startswith("torch_geometric."):
            what = name_of_module(made_by, self.modules[made_by])
        origin = Origin(what, self.recorded.lines.get(node), made_by)
        self.program.origins.update({s.output: origin for s in steps})

    def _input(self, name: str) -> Value:
        relation = next((r for r in self.roles.given if r.graph == name), None)
        if relation is None:
            value = self.roles.declare(self.program, name)
            if value.domain is Domain.WHOLE:
                self.written.fixed.add(value)
            return value
        if name in self.roles.values:
            self.weights[name] = self.program.input(relation.values, Domain.EDGE, name)
        return self.program.graph(relation)

    def _remember(self, node: fx.Node) -> None:
        """Keep the probe's rows of a value: they tell its shape."""
        held, result = self.env[node], self.results[node]
        if isinstance(held, Value) and isinstance(result, Tensor):
            self.written.examples.setdefault(held, result)

    def _attribute(self, path: str) -> Any:
        """A parameter or buffer, read anew whenever a step runs; or node rows, if it has them.

        One with as many rows as there can ever be nodes is taken for node rows. Where it is none, a
        step that reads it does not look row-wise and runs on all rows.
        """
        if path in self.recorded.constants:
            constant = self.recorded.constants[path]
            return Live(lambda: constant)
        owner, _, name = path.rpartition(".")
        module = self.site.get_submodule(owner)
        held = getattr(module, name)
        kind = self._learned_kind(held)
        if kind is not None:
            plain = path.removeprefix("model.")
            return self.program.learned(plain, lambda: getattr(module, name), kind)
        return Live(partial(getattr, module, name))

    def _learned_kind(self, rows: Any) -> str | None:
        """The nodes that a tensor made of parameters alone, of any shape, has a row for."""
        counts = self.program.fixed.items() if isinstance(rows, Tensor) else ()
        return next((kind for kind, count in counts if rows.shape[:1] == (count,)), None)

    def _output(self, result: Any) -> Any:
        """An output with an `Output` in place of each value, in plain containers."""
        if isinstance(result, fx.Node):
            held = self.env[result]
            if isinstance(held, Looped) and held.drops:
                result = self._listed(result, held)
            elif isinstance(held, CatRows):
                result = joined_rows(self.program, result.name, held)
            elif isinstance(held, Picked):
                result = leaving(self.written, result.name, held)
            else:
                result = self._rejoined(result, held) if isinstance(held, ARRANGED) else held
        if isinstance(result, dict):
            return {k: self._output(v) for k, v in result.items()}
        if isinstance(result, (tuple, list)):
            made = [self._output(v) for v in result]
            if hasattr(result, "_fields"):
                return type(result)(*made)
            return made if isinstance(result, list) else tuple(made)
        if result is None:
            return None
        if not isinstance(result, Value):
            raise NotTraceable(f"it returns {type(result).__name__} beside tensors")
        self.program.outputs.append(result)
        return Output(len(self.program.outputs) - 1)

    def _finish_outputs(self) -> None:
        values, returned = self.program.outputs, list(self.program.outputs)
        readers = {v for s in self.program.steps for v in s.inputs}
        for i, value in enumerate(values):
            # What leaves is compared by value, what goes on bit by bit; so one that does both gets
            # a step of its own.
            if value.domain is Domain.NODE and (
                value in readers or not _is_map(self.program, value) or returned.count(value) > 1
            ):
                values[i] = self.program.map("out", as_it_is, [value])
            elif value in self.program.graphs:
                values[i] = self._returned(value)

    def _returned(self, graph: Value) -> Value:
        """A graph that leaves."""
        out = self.program.value(f"{graph.name}_out", Domain.WHOLE)
        return self.program.add(None, lambda: Returned(out, (graph,), as_it_is, pure=True))

    def _operation(self, node: fx.Node) -> Any:
        if node.target in (edges_of_matrix, values_of_matrix):
            graph: Any = self.env[node.all_input_nodes[0]]
            is_graph = node.target is edges_of_matrix
            return graph if is_graph else self.weights[self.program.graphs[graph].graph]
        made = self.ends.read(node)
        if made is not None:
            self._remember_parts(made, self.results[node])
            return made
        made = put(self.written, node)
        if made is not None:
            return made
        one = None if self.every_node is None else self.every_node.read(node)
        if one is not None:
            return one
        fn, name = self._callable(node)
        sequence = (
            self.one_steps.read(node, fn)
            or of_series(self.written, node, fn)
            or of_all_rows(self.written, node)
        )
        if sequence is not None:
            return sequence
        if isinstance(fn, MessagePassing):
            tables = self.ends.tables_for(node)
            if tables:
                return self._with_tables(node, fn, name, tables)
        looped = [n for n in node.all_input_nodes if isinstance(self.env[n], ARRANGED)]
        if looped:
            return self._on_picked(node, fn, name) or self._on_both(node, fn, name, looped)
        if fn is operator.getitem:  # of a result of several
            held, key = self.env[node.args[0]], node.args[1]  # type: ignore[index]
            if isinstance(held, (tuple, dict)):
                return held[key]  # type: ignore[index]
        if _turns(node) and self.env[node.args[0]] in self.program.graphs:  # type: ignore[index]
            graph = self.env[node.args[0]]  # type: ignore[index]
            run, values = closure(self.written, node, fn)
            reason = f"{name}: all edges are turned around"
            turned = self.program.whole(name, run, values, Domain.WHOLE, reason)
            self.written.turned[turned] = graph
            return turned
        if node.op == "call_module":
            made = self.ends.aggregated_by(node, fn) or self.ends.looked_up(node, fn, name)
            if made is not None:
                return made
        if isinstance(fn, MessagePassing):
            try:
                return steps_of_conv(self.written, self.weights, fn, name, node)
            except NotIncremental as error:
                reason = str(error)
        else:
            some = picked(self.written, node) if name_of(fn) == "__getitem__" else None
            filled = some or self._filled_rows(node)
            if filled is not None:
                return filled
            reason = why_not_by_rows(self.written, node, fn)
            if not reason:
                return self._row_map(node, fn, name)
        return self._whole(node, fn, name, reason)

    def _with_tables(
        self, node: fx.Node, conv: MessagePassing, name: str, tables: dict[fx.Node, Value]
    ) -> Any:
        """A conv on edges with loops, which are a table of their own."""
        before = {n: self.env[n] for n in tables}
        self.env.update(tables)
        try:
            return steps_of_conv(self.written, self.weights, conv, name, node)
        except NotIncremental as error:
            return self._whole(node, conv, name, str(error))
        finally:
            self.env.update(before)

    def _remember_parts(self, made: Any, result: Tensor) -> None:
        """Keep the probe's rows of edges and of the loops behind them, or of other parts."""
        if isinstance(made, Looped | CatRows):
            counts = [self._count(part) for part in made.parts]
            counts[0] += len(result) - sum(counts)  # of edges with loops some may be left out
            for part, rows in zip(made.parts, result.split(counts), strict=True):
                self.written.examples.setdefault(part, rows)

    def _count(self, rows: Value) -> int:
        """How many rows a value has on the probe."""
        sizes = self.recorded.sizes
        if rows.domain is Domain.NODE:
            return sizes.number_of(rows.kind)
        count = sizes.edges[rows.kind]
        return int(sizes.number(count)) if is_symbolic(count) else int(count)

    def _on_both(self, node: fx.Node, fn: Any, name: str, looped: list[fx.Node]) -> Any:
        """An operation on rows of edges and of loops: on each part, if it works row by row."""
        held, made = {n: self.env[n] for n in looped}, []
        like = in_parts([*held.values()])
        for part in range(0 if like is None else len(like.parts)):
            self.env.update({n: rows.parts[part] for n, rows in held.items()})
            if not why_not_by_rows(self.written, node, fn):
                made.append(self._row_map(node, fn, name))
        if like is not None and len(made) == len(like.parts):
            self.env.update(held)
            if not isinstance(made[0], tuple):
                self._remember_parts(like.of(made), self.results[node])
                return like.of(made)
            several = tuple(like.of(parts) for parts in zip(*made, strict=True))
            for rows, result in zip(several, self.results[node], strict=True):
                self._remember_parts(rows, result)
            return several
        self.env.update({n: self._rejoined(n, rows) for n, rows in held.items()})
        whole = self._whole(
            node, fn, name, why_not_by_rows(self.written, node, fn) or "it works on all of them"
        )
        self.env.update(held)
        return whole

    def _on_picked(self, node: fx.Node, fn: Any, name: str) -> Any:
        """An operation on rows of some nodes, if it works row by row: on those of all nodes."""
        held = over_picked(self.written, node.all_input_nodes)
        if held is None:
            return None
        before = {n: self.env[n] for n in held}
        self.env.update({n: rows.rows for n, rows in held.items()})
        try:
            if why_not_by_rows(self.written, node, fn):
                return None
            made = with_rows(next(iter(held.values())), self._row_map(node, fn, name))
        finally:
            self.env.update(before)
        results = self.results[node] if isinstance(made, tuple) else [self.results[node]]
        for part, result in zip(made if isinstance(made, tuple) else [made], results, strict=True):
            self.written.examples.setdefault(part.rows, result)
        return made

    def _rejoined(self, node: fx.Node, rows: Any) -> Value:
        if isinstance(rows, Picked):
            return as_picked(self.written, node.name, rows)
        if isinstance(rows, Sides):
            return as_sides(self.written, node.name, rows)
        if isinstance(rows, OneStep | LayerRows):
            return joined(rows.rows, self.written, node.name)
        reason = f"{node.name}: rows of edges and of loops leave, or are not worked on row by row"
        if isinstance(rows, Looped) and rows.drops:
            return self._listed(node, rows)
        return self.program.whole(
            node.name, lambda *parts: torch.cat(parts), list(rows.parts), Domain.WHOLE, reason
        )

    def _listed(self, node: fx.Node, rows: Looped) -> Value:
        graphs = self.program.graphs.items()
        graph = next(v for v, r in graphs if r.graph == rows.edges.kind)
        return listed(self.program, node.name, rows, graph, rows.nodes)

    def _callable(self, node: fx.Node) -> tuple[Any, str]:
        if node.op == "call_module":
            path = str(node.target)
            return self.modules[path], name_of_module(path, self.modules[path])
        return node.target, node.name

    # Row maps ------------------------------------------------------------------------------------

    def _filled_rows(self, node: fx.Node) -> Value | OneStep | None:
        """`torch.zeros(x.size(0), 8)` and its like: the same row for every node."""
        real, fake = self.results[node], self.recorded.fake[node]
        fills = node.op == "call_function" and name_of(node.target) in operations.FILLS  # type: ignore[arg-type]
        if not fills or not is_fake(fake):
            return None
        is_step = fake.dim() == 3 and real.shape[0] == 1  # the state of a recurrent layer
        kind = self.recorded.sizes.kind_of(fake.shape[1:] if is_step else fake.shape)
        if kind is None or not real.numel() or not _is_plain_number(node):
            return None
        is_empty = name_of(node.target) in operations.EMPTY  # type: ignore[arg-type]
        number = 0 if is_empty else real.flatten()[0].item()
        _, *tail = real.shape[is_step:]
        self.ends.declare(kind)

        def rows(ones: Tensor) -> Tensor:
            size = (len(ones), *tail)
            return torch.full(size, number, dtype=real.dtype, device=ones.device)

        made = self.program.map(node.name, rows, [self.program.ones(kind)])
        self.written.numbers[made] = number
        return self.one_steps.filled(node, made) if is_step else made

    def _row_map(self, node: fx.Node, fn: Any, name: str) -> Any:
        called = "" if node.op == "call_module" else name_of(fn)
        costly = called in operations.COSTLY or isinstance(fn, COSTLY_MODULES)
        if isinstance(fn, (nn.Identity, nn.Dropout)) or called in operations.NOTHING:
            return self.env[node.all_input_nodes[0]]
        result = self.results[node]
        if called in operations.RESHAPES or squeezes_all(node):
            tail = list(result.shape)[1:]
            return self.program.map(
                name, lambda rows: rows.reshape(rows.shape[0], *tail), self.written.values(node)[:1]
            )
        found = known(self.written, node, fn)
        if found is not None and isinstance(found[0], Linear):
            parts = split(self.written, node, found[0], name)
            if parts is not None:
                return parts
        run, values = found or closure(self.written, node, fn)
        if isinstance(result, (tuple, list)):
            return tuple(
                self.program.map(
                    f"{name}_{i}", lambda *rows, i=i: run(*rows)[i], values, costly=costly
                )
                for i in range(len(result))
            )
        key = (
            ("module", id(fn))
            if node.op == "call_module" and not node.kwargs and len(node.args) == 1
            else None
        )
        made = in_front(self.written, name, run, values, result) if costly else None
        made = made or self.program.map(name, run, values, key=key, costly=costly)
        read = [self.env[n] for n in node.all_input_nodes]
        if node.op == "call_function" and all(v in values for v in read):
            self.written.plain.add(made)
        return made

    # Everything else -----------------------------------------------------------------------------

    def _whole(self, node: fx.Node, fn: Any, name: str, reason: str) -> Any:
        run, values = closure(
            self.written, node, as_it_runs(fn) if isinstance(fn, MessagePassing) else fn
        )
        result = self.results[node]
        if self.written.fixed.issuperset(values):  # made of parameters and constants only
            kind = None if values else self._learned_kind(result)
            if kind is not None:
                return self.program.learned(name, run, kind)
            value = self.program.map(name, run, values)
            self.written.fixed.add(value)
            learned = self.written.learned
            if learned.keys() >= {*values}:
                read = [learned[v] for v in values]
                learned[value] = lambda: run(*(one() for one in read))
            return value
        rowed = any(v.domain is not Domain.WHOLE or self.written.is_graph(v) for v in values)
        domain, kind = self._place_of(self.recorded.fake[node], result)
        if not rowed and domain is Domain.WHOLE:
            return self.program.map(name, run, values)
        reason, pure = f"{name}: {reason}", self._picks(node, fn)
        if isinstance(fn, SizeFormula) or fn in (size_of, count_of):
            reason, pure = f"{name}: it reads how large the graph is", True
        value = self.program.whole(name, run, values, domain, reason, kind, pure)
        if not isinstance(result, dict) or not all(isinstance(r, Tensor) for r in result.values()):
            return value
        fakes = self.recorded.fake[node]
        places = {k: self._place_of(fakes[k], r) for k, r in result.items()}
        return {
            key: self.program.whole(
                f"{name}.{key}", operator.itemgetter(key), [value], domain, "", kind
            )
            for key, (domain, kind) in places.items()
        }

    def _picks(self, node: fx.Node, fn: Any) -> bool:
        """Whether an operation is `rows[ids]` for a tensor of ids, which copies what it picks.

        One id, a tensor without dimensions, gives a view.
        """
        if name_of(fn) != "__getitem__" or not isinstance(node.args[1], fx.Node):
            return False
        ids = self.results[node.args[1]]
        return isinstance(ids, Tensor) and ids.dtype is torch.int64 and ids.dim() > 0

    def _place_of(self, fake: Any, real: Any) -> tuple[Domain, str]:
        """Domain and kind of a result that is computed from all rows.

        It has node rows if it has one for each node whatever their number, of a width that does not
        grow with the graph.
        """
        if is_fake(fake) and isinstance(real, Tensor):
            kind = self.recorded.sizes.kind_of(fake.shape)
            if kind is not None:
                self.ends.declare(kind)
                return Domain.NODE, kind
        return Domain.WHOLE, ""


def _is_plain_number(node: fx.Node) -> bool:
    """Whether what rows are filled with is a number that depends on nothing."""
    name = name_of(node.target)  # type: ignore[arg-type]
    given = {"full": (None, "fill"), "new_full": (None, None, "fill")}.get(name)
    if given is None:
        return True
    fill = node.kwargs.get("fill_value", node.args[-1] if len(node.args) == len(given) else None)
    return isinstance(fill, (bool, int, float))


def _turns(node: fx.Node) -> bool:
    """Whether an operation turns all edges of an `edge_index` around."""
    if not node.args or not isinstance(node.args[0], fx.Node) or node.op != "call_function":
        return False
    name = name_of(node.target)  # type: ignore[arg-type]
    if name == "flip":
        dims = [*node.args[1:], *node.kwargs.values()]
        return dims in ([[0]], [(0,)], [0])
    return name == "__getitem__" and node.args[1] == [1, 0]


def _is_map(program: Program, value: Value) -> bool:
    return any(s.output is value and s.kind == "map" for s in program.steps)

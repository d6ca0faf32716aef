"""The operations of a traced model become steps of a program.

Each becomes a row map, a conv's program, or a step on all rows.
"""

import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.hetero_conv import group

from pyg_incremental.call.full_pass import plainly
from pyg_incremental.call.members import count_of
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.site import CallSite
from pyg_incremental.call.traced import NotTraceable, Output, Traced
from pyg_incremental.conv import ConvCall, builder_of
from pyg_incremental.program.messages import reads_nodes
from pyg_incremental.program.origin import Origin
from pyg_incremental.program.row_wise import COSTLY_MODULES, as_it_is, why_not_row_wise
from pyg_incremental.program.steps import Domain, NotIncremental, Program, Step, Value
from pyg_incremental.trace import operations
from pyg_incremental.trace.ends import Ends, keep_edge_rows
from pyg_incremental.trace.functions import SizeFormula, set_item, size_of
from pyg_incremental.trace.looped import Looped
from pyg_incremental.trace.names import name_of, shown
from pyg_incremental.trace.nested import rebuilt
from pyg_incremental.trace.probe import Probe
from pyg_incremental.trace.recorder import Recorder
from pyg_incremental.trace.sizes import is_fake, same_size


class Writer:
    """Turns the nodes of an fx graph into steps.

    Args:
        site: The call that was traced.
        roles: What its tensors are.
        recorded: What it does.
        probe: The call on which that was recorded.
    """

    def __init__(self, site: CallSite, roles: Roles, recorded: Recorder, probe: Probe) -> None:
        self.site = site
        self.roles = roles
        self.recorded = recorded
        self.results = recorded.real
        self.program = Program(fixed={kind: probe.num_nodes[kind] for kind in roles.fixed})
        self.env: dict[fx.Node, Any] = {}
        self.names = iter(site.names)
        self.modules = dict(site.named_modules())
        self.weights: dict[str, Value] = {}
        self.turned: dict[Value, Value] = {}  # graphs with their edges turned around
        self.examples: dict[Value, Tensor] = {}
        self.fixed: set[Value] = set()  # of domain WHOLE, and never changed by a delta
        self.learned: dict[Value, Callable[[], Any]] = {}  # of them, what is made of parameters
        self.ends = Ends(self.program, recorded, self.env, self.turned, self.examples)

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
                self.program.prune()
            else:
                first = len(self.program.steps)
                self.env[node] = self._operation(node)
                self._remember(node)
                self._note_origin(node, self.program.steps[first:])
        return Traced(self.program, structure)

    def _note_origin(self, node: fx.Node, steps: list[Step]) -> None:
        """Note which operation, called by which line, has become these steps."""
        what = self._callable(node)[1] if node.op == "call_module" else shown(node.target)
        origin = Origin(what, self.recorded.lines.get(node))
        self.program.origins.update({s.output: origin for s in steps})

    def _input(self, name: str) -> Value:
        relation = next((r for r in self.roles.given if r.graph == name), None)
        if relation is None:
            value = self.roles.declare(self.program, name)
            if value.domain is Domain.WHOLE:
                self.fixed.add(value)
            return value
        if name in self.roles.values:
            self.weights[name] = self.program.input(relation.values, Domain.EDGE, name)
        return self.program.graph(relation)

    def _remember(self, node: fx.Node) -> None:
        """Keep the probe's rows of a value: they tell its shape."""
        held, result = self.env[node], self.results[node]
        if isinstance(held, Value) and isinstance(result, Tensor):
            self.examples.setdefault(held, result)

    def _attribute(self, path: str) -> Any:
        """A parameter or buffer, read anew whenever a step runs; or node rows, if it has them.

        One with as many rows as there can ever be nodes is taken for node rows. Where it is none, a
        step that reads it does not look row-wise and runs on all rows.
        """
        if path in self.recorded.constants:
            constant = self.recorded.constants[path]
            return _Live(lambda: constant)
        owner, _, name = path.rpartition(".")
        module = self.site.get_submodule(owner)
        held = getattr(module, name)
        for kind, count in self.program.fixed.items():
            if isinstance(held, Tensor) and held.shape[:1] == (count,):
                plain = path.removeprefix("model.")
                return self.program.learned(plain, lambda: getattr(module, name), kind)
        return _Live(lambda: getattr(module, name))

    def _output(self, result: Any) -> Any:
        """An output with an `Output` in place of each value, in plain containers."""
        if isinstance(result, fx.Node):
            held = self.env[result]
            result = self._rejoined(result, held) if isinstance(held, Looped) else held
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

    def _operation(self, node: fx.Node) -> Any:
        made = self.ends.read(node)
        if made is not None:
            self._remember_parts(made, self.results[node])
            return made
        fn, name = self._callable(node)
        looped = [n for n in node.all_input_nodes if isinstance(self.env[n], Looped)]
        if looped:
            return self._on_both(node, fn, name, looped)
        if fn is operator.getitem:  # of a result of several
            held, key = self.env[node.args[0]], node.args[1]  # type: ignore[index]
            if isinstance(held, (tuple, dict)):
                return held[key]  # type: ignore[index]
        if _turns(node) and self.env[node.args[0]] in self.program.graphs:  # type: ignore[index]
            graph = self.env[node.args[0]]  # type: ignore[index]
            run, values = self._closure(node, fn)
            reason = f"{name}: all edges are turned around"
            turned = self.program.whole(name, run, values, Domain.WHOLE, reason)
            self.turned[turned] = graph
            return turned
        if node.op == "call_module":
            made = self.ends.read_out(node, fn, name)
            if made is not None:
                return made
        if isinstance(fn, MessagePassing):
            try:
                return self._conv(fn, name, node)
            except NotIncremental as error:
                reason = str(error)
        else:
            filled = self._filled_rows(node)
            if filled is not None:
                return filled
            reason = self._row_reason(node, fn)
            if not reason:
                return self._row_map(node, fn, name)
        return self._whole(node, fn, name, reason)

    def _remember_parts(self, made: Any, result: Tensor) -> None:
        """Keep the probe's rows of edges and of the loops behind them."""
        if isinstance(made, Looped):
            count = len(result) - self.recorded.sizes.number_of(made.nodes.kind)
            self.examples.setdefault(made.edges, result[:count])
            self.examples.setdefault(made.nodes, result[count:])

    def _on_both(self, node: fx.Node, fn: Any, name: str, looped: list[fx.Node]) -> Any:
        """An operation on rows of edges and of loops: on either, if it works row by row."""
        held = {n: self.env[n] for n in looped}
        made = []
        for part in range(2):
            self.env.update({n: rows.both[part] for n, rows in held.items()})
            if not self._row_reason(node, fn):
                made.append(self._row_map(node, fn, name))
        if len(made) == 2:
            self.env.update(held)
            if not isinstance(made[0], tuple):
                self._remember_parts(Looped(*made), self.results[node])
                return Looped(*made)
            both = tuple(map(Looped, *made))
            for rows, result in zip(both, self.results[node], strict=True):
                self._remember_parts(rows, result)
            return both
        self.env.update({n: self._rejoined(n, rows) for n, rows in held.items()})
        whole = self._whole(node, fn, name, self._row_reason(node, fn) or "it works on all of them")
        self.env.update(held)
        return whole

    def _rejoined(self, node: fx.Node, rows: Looped) -> Value:
        reason = f"{node.name}: rows of edges and of loops leave, or are not worked on row by row"
        return self.program.whole(
            node.name, lambda *both: torch.cat(both), list(rows.both), Domain.WHOLE, reason
        )

    def _callable(self, node: fx.Node) -> tuple[Any, str]:
        if node.op == "call_module":
            path = str(node.target)
            return self.modules[path], path.removeprefix("model.") if path != "model" else type(
                self.modules[path]
            ).__name__
        return node.target, node.name

    # Convs ---------------------------------------------------------------------------------------

    def _conv(self, conv: MessagePassing, name: str, node: fx.Node) -> Any:
        """The program of a conv: its value, or one value for each kind of nodes."""
        builder = builder_of(conv)
        bound = inspect.signature(conv.forward).bind(*node.args, **node.kwargs)
        args = {k: self._filled(v) for k, v in bound.arguments.items()}
        graphs = self._graphs_among(args)
        if not graphs:
            raise NotIncremental("its edges are computed by the model")
        if reads_nodes(self.program).intersection(p for a in args.values() for p in _parts(a)):
            raise NotIncremental("its edge data is computed from node rows")
        turned = [g in self.turned for g in graphs]
        if any(turned) and not all(turned):
            raise NotIncremental("some of its graphs were turned around, and others were not")
        relation = self.program.graphs[self.turned.get(graphs[0], graphs[0])]
        steps = len(self.program.steps)
        try:
            made = builder(
                ConvCall(
                    self.program, conv, name, {k: self._as_given(v) for k, v in args.items()},
                    self.weights.get(relation.graph), self.examples, relation, turned=turned[0],
                )
            )  # fmt: skip
            if isinstance(made, dict) != isinstance(self.results[node], dict):
                raise NotIncremental("it returns a dict, and its program does not")
            return made
        except NotIncremental:
            self.program.forget(steps)
            raise

    def _graphs_among(self, args: dict[str, Any]) -> list[Value]:
        """The graphs that a conv is given, by themselves or in dicts."""
        found: list[Value] = []
        for argument in args.values():
            parts = argument.values() if isinstance(argument, dict) else [argument]
            found += [part for part in parts if self._is_graph(part)]
        return found

    def _as_given(self, argument: Any) -> Any:
        """An argument with graphs as they were handed in, before they were turned around."""
        if isinstance(argument, dict):
            return {key: self._as_given(part) for key, part in argument.items()}
        return self.turned.get(argument, argument) if isinstance(argument, Value) else argument

    def _is_graph(self, argument: Any) -> bool:
        return isinstance(argument, Value) and (
            argument in self.program.graphs or argument in self.turned
        )

    def _filled(self, argument: Any) -> Any:
        """An argument with values in place of nodes."""
        if isinstance(argument, fx.Node):
            return self.env[argument]
        if isinstance(argument, (tuple, list)):
            return tuple(map(self._filled, argument))
        if isinstance(argument, dict):
            return {key: self._filled(part) for key, part in argument.items()}
        return argument

    # Row maps ------------------------------------------------------------------------------------

    def _values(self, node: fx.Node) -> list[Value]:
        """The values that an operation reads."""
        found: list[Value] = []
        for n in node.all_input_nodes:
            for value in _parts(self.env[n]):
                if isinstance(value, Value) and value not in found:
                    found.append(value)
        if any(v.domain is Domain.EDGE for v in found):  # what a message reads are rows
            found = [v for v in found if v not in self.learned]
        return found

    def _row_reason(self, node: fx.Node, fn: Any) -> str:
        values = self._values(node)
        rowed = {(v.domain, v.kind) for v in values if v.domain is not Domain.WHOLE}
        if not rowed:
            return "it does not work on rows"
        if len(rowed) > 1:
            return "it mixes node rows and edge rows" if len({d for d, _ in rowed}) > 1 else (
                "it mixes rows of different kinds"
            )  # fmt: skip
        if any(map(self._is_graph, values)):
            return "it reads the graph"
        if any(v.domain is Domain.EDGE for v in values) and any(
            v.domain is Domain.WHOLE and v not in self.fixed for v in values
        ):
            return "it combines edge rows with something computed from all rows"
        gathered = reads_nodes(self.program).intersection(values)
        if gathered and any(v.domain is Domain.WHOLE for v in values):
            return "it combines rows gathered along edges with another tensor"
        rows = next(r for n in node.all_input_nodes if (r := self._rows_of(n)) is not None)
        result = self.results[node]
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        count = rows.shape[0]
        if not all(isinstance(r, Tensor) and r.dim() > 0 and r.shape[0] == count for r in results):
            return "its result does not have one row for each input row"
        if any(isinstance(d, torch.SymInt) for f in self._fakes(node) for d in f.shape[1:]):
            return "its rows grow with the graph"
        if node.op == "call_module":
            if any(v.domain is Domain.WHOLE for v in values):
                return "it combines rows with something computed from all rows"
            return why_not_row_wise(fn, rows.dim())
        if fn is group:
            return ""
        if fn is set_item and self._sets_masked(node):
            return ""
        call = operations.Operation(
            name_of(fn), self._abstract(node.args), self._abstract(node.kwargs), results[0].dim()
        )
        if _squeezes_all(node):
            return self._why_not_reshape(node)
        reason = operations.why_not_row_function(call)
        if not reason and call.name.rstrip("_") in operations.RESHAPES:
            return self._why_not_reshape(node)
        return reason

    def _sets_masked(self, node: fx.Node) -> bool:
        """Whether an operation is `rows[mask] = number`, with a mask of the shape of the rows."""
        rows, mask, number = node.args
        fakes = [self.recorded.fake[n] for n in (rows, mask) if isinstance(n, fx.Node)]
        alike = len(fakes) == 2 and all(map(is_fake, fakes)) and fakes[1].dtype is torch.bool
        return alike and fakes[0].dim() == fakes[1].dim() and isinstance(number, (int, float))

    def _fakes(self, node: fx.Node) -> list[Tensor]:
        """The results of a node that are tensors, without values."""
        result = self.recorded.fake[node]
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        return [part for part in parts if is_fake(part)]

    def _why_not_reshape(self, node: fx.Node) -> str:
        """The first dimension has to stay the rows, whatever their number."""
        before, after = self.recorded.fake[node.args[0]], self.recorded.fake[node]  # type: ignore[index]
        same = is_fake(before) and same_size(before.shape[0], after.shape[0])
        return "" if same else "it does not keep the rows"

    def _abstract(self, value: Any) -> Any:
        """Arguments as the rules of `operations` see them."""
        if not isinstance(value, fx.Node):
            return rebuilt(value, self._abstract)
        held, fake = self.env[value], self.recorded.fake[value]
        if isinstance(held, tuple):
            return [operations.Rows(part.dim()) for part in self.results[value]]
        if isinstance(held, Value) and held.domain is not Domain.WHOLE:
            return operations.Rows(self.results[value].dim())
        return operations.fixed(fake) if isinstance(fake, Tensor) else _OfSize()

    def _rows_of(self, argument: Any) -> Tensor | None:
        """The probe's rows of an argument that has rows, or None."""
        if not isinstance(argument, fx.Node):
            return None
        held, result = self.env[argument], self.results[argument]
        if isinstance(held, tuple):
            held, result = held[0], result[0]
        has_rows = isinstance(held, Value) and held.domain is not Domain.WHOLE
        return result if has_rows and isinstance(result, Tensor) else None

    def _filled_rows(self, node: fx.Node) -> Value | None:
        """`torch.zeros(x.size(0), 8)` and its like: the same row for every node."""
        real, fake = self.results[node], self.recorded.fake[node]
        fills = node.op == "call_function" and name_of(node.target) in operations.FILLS  # type: ignore[arg-type]
        kind = self.recorded.sizes.kind_of(fake.shape) if fills and is_fake(fake) else None
        if kind is None or not real.numel() or not _is_plain_number(node):
            return None
        number, (_, *tail) = real.flatten()[0].item(), real.shape
        self.ends.declare(kind)

        def rows(ones: Tensor) -> Tensor:
            size = (len(ones), *tail)
            return torch.full(size, number, dtype=real.dtype, device=ones.device)

        return self.program.map(node.name, rows, [self.program.ones(kind)])

    def _row_map(self, node: fx.Node, fn: Any, name: str) -> Any:
        called = "" if node.op == "call_module" else name_of(fn)
        costly = called in operations.COSTLY or isinstance(fn, COSTLY_MODULES)
        if isinstance(fn, (nn.Identity, nn.Dropout)) or called in operations.NOTHING:
            return self.env[node.all_input_nodes[0]]
        result = self.results[node]
        if called in operations.RESHAPES or _squeezes_all(node):
            tail = list(result.shape)[1:]
            return self.program.map(
                name, lambda rows: rows.reshape(rows.shape[0], *tail), self._values(node)[:1]
            )
        run, values = self._closure(node, fn)
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
        return self.program.map(name, run, values, key=key, costly=costly)

    def _closure(self, node: fx.Node, fn: Any) -> tuple[Callable[..., Any], list[Value]]:
        """`fn` with everything but program values filled in, and these values."""
        values = self._values(node)
        held = {n: self.env[n] for n in node.all_input_nodes}
        call: Callable[..., Any] = fn
        hooked = isinstance(fn, nn.Module) and (fn._forward_hooks or fn._forward_pre_hooks)
        if isinstance(fn, nn.Module) and not hooked and type(fn).__call__ is nn.Module.__call__:
            call = fn.forward
        if node in self.recorded.writes:
            call = _on_copies(call)  # the rows handed in may be the stored ones
        if len(node.args) == 1 and not node.kwargs and isinstance(held.get(node.args[0]), Value):  # type: ignore[arg-type]
            return call, values

        def run(*rows: Any) -> Any:
            def one(value: Any) -> Any:
                if isinstance(value, Value):
                    return rows[values.index(value)] if value in values else self.learned[value]()
                if isinstance(value, dict):
                    return {key: one(part) for key, part in value.items()}
                return tuple(map(one, value)) if isinstance(value, tuple) else value.read()

            def fill(n: fx.Node) -> Any:
                return one(held[n])

            return call(*fx.node.map_arg(node.args, fill), **fx.node.map_arg(node.kwargs, fill))

        return run, values

    # Everything else -----------------------------------------------------------------------------

    def _whole(self, node: fx.Node, fn: Any, name: str, reason: str) -> Any:
        run, values = self._closure(node, _plain(fn) if isinstance(fn, MessagePassing) else fn)
        result = self.results[node]
        if self.fixed.issuperset(values):  # made of parameters and constants only
            value = self.program.map(name, run, values)
            self.fixed.add(value)
            if not values:
                self.learned[value] = run
            return value
        rowed = any(v.domain is not Domain.WHOLE or self._is_graph(v) for v in values)
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


def _parts(held: Any) -> Iterable[Any]:
    """What an fx node stands for: one thing, or several."""
    if isinstance(held, dict):
        return held.values()
    return held if isinstance(held, tuple) else (held,)


def _is_plain_number(node: fx.Node) -> bool:
    """Whether what rows are filled with is a number that depends on nothing."""
    name = name_of(node.target)  # type: ignore[arg-type]
    given = {"full": (None, "fill"), "new_full": (None, None, "fill")}.get(name)
    if given is None:
        return True
    fill = node.kwargs.get("fill_value", node.args[-1] if len(node.args) == len(given) else None)
    return isinstance(fill, (bool, int, float))


def _squeezes_all(node: fx.Node) -> bool:
    """Whether an operation is `rows.squeeze()`, which leaves the rows where there are several."""
    squeezes = node.op == "call_function" and name_of(node.target) == "squeeze"  # type: ignore[arg-type]
    return squeezes and len(node.args) == 1 and not node.kwargs


def _turns(node: fx.Node) -> bool:
    """Whether an operation turns all edges of an `edge_index` around."""
    if not node.args or not isinstance(node.args[0], fx.Node) or node.op != "call_function":
        return False
    name = name_of(node.target)  # type: ignore[arg-type]
    if name == "flip":
        dims = [*node.args[1:], *node.kwargs.values()]
        return dims in ([[0]], [(0,)], [0])
    return name == "__getitem__" and node.args[1] == [1, 0]


def _on_copies(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for which what it writes to is its own."""

    def copied(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else rebuilt(value, copied)

    return lambda *args, **kwargs: fn(*copied(args), **copied(kwargs))


class _OfSize:
    """A number that depends on sizes, as the rules of `operations` see it."""


@dataclass(frozen=True)
class _Live:
    """A parameter or buffer."""

    read: Callable[[], Any]


def _is_map(program: Program, value: Value) -> bool:
    return any(s.output is value and s.kind == "map" for s in program.steps)


def _plain(conv: MessagePassing) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with plainly(conv):
            return conv(*args, **kwargs)

    return call

"""Runs a model once, on tensors without values, and writes down what it does.

The model's own Python code runs, on real tensor objects: `isinstance` holds, hooks are called, and
whatever a function of torch does to its arguments is seen. The tensors have symbols for the numbers
of nodes and edges (see `sizes`), so no size and no value can be baked in unnoticed: who asks for
one ends the trace. Beside each of them goes a real one, of the probe, which tells what was written
to and what shares memory with what.

Convs, normalisations, aggregations and the modules of `torch.nn` are written down as one call.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.overrides import TorchFunctionMode

from pyg_incremental.call.members import count_of
from pyg_incremental.call.traced import NotTraceable
from pyg_incremental.program.origin import Place, in_brackets
from pyg_incremental.program.steps import Relation
from pyg_incremental.trace.called import Call, depends_on_ones
from pyg_incremental.trace.counting import largest_of
from pyg_incremental.trace.functions import SizeFormula, set_item, size_of
from pyg_incremental.trace.listener import gives_tensors
from pyg_incremental.trace.memory import HeldTensor, counts_writes, is_same_place, memory_of
from pyg_incremental.trace.merging import merged
from pyg_incremental.trace.names import asks_for_values, called, either_way, name_of
from pyg_incremental.trace.nested import alike, holds_tensors, leaves, rebuilt, tensors_as
from pyg_incremental.trace.sealed import Matrix, Sealed, edges_of_matrix, values_of_matrix
from pyg_incremental.trace.shapes import KNOWN_SHAPES, PLAIN, elementwise, keeps_shape
from pyg_incremental.trace.sizes import SYMBOLIC, Size, Sizes, is_fake
from pyg_incremental.trace.where import here

LeafSizes = Callable[[str, Sequence[Any], Any], Any]
"""The sizes of what the module at a path returns, or None if its kind does not tell."""
_FIXED_LENGTH = (
    "std_mean",
    "var_mean",
    "aminmax",
    "unique",
    "frexp",
    "multi_head_attention_forward",
)
_OF_ANY_VALUES = {"dim", "size", *(f"get {what}" for what in ("dtype", "layout", "ndim", "shape"))}
"""What a tensor without values tells by itself."""


class Recorder(TorchFunctionMode):
    """Writes down what is called while it is active.

    Args:
        sizes: The symbols.
        leaf_sizes: Tells the sizes of what modules return.
        constants: The originals of tensors, of any shape, that the copy of the model holds
            somewhere, by the ids of their copies.

    Attributes:
        graph: What was written down.
        real: What each node gave on the probe.
        fake: The same without values.
        writes: The nodes that write to an argument; what they return is that argument.
        constants: Tensors that are no parameters, by the names that nodes have for them.
        calls: The names of what was called that gave tensors, in order.
        lines: The line of the model that made each node, where one did.
        why: Why the trace has ended early, if it has: the model may catch exceptions.
        place: The line at which it has.
        is_busy: Whether a call is being tried; nothing is written down then.
        inside: The path of the conv that is looked into while it runs, or an empty string.
        makers: That path, by the nodes that it has made.
    """

    def __init__(self, sizes: Sizes, leaf_sizes: LeafSizes, constants: dict[int, Tensor]) -> None:
        super().__init__()
        self.sizes = sizes
        self.graph = fx.Graph()
        self.real: dict[fx.Node, Any] = {}
        self.fake: dict[fx.Node, Any] = {}
        self.writes: set[fx.Node] = set()
        self.constants: dict[str, Tensor] = {}
        self.calls: list[str] = []
        self.lines: dict[fx.Node, Place | None] = {}
        self.why = ""
        self.place: Place | None = None
        self.is_busy = False
        self.inside = ""
        self.makers: dict[fx.Node, str] = {}
        self._leaf_sizes = leaf_sizes
        self._originals = constants
        self._attributes: dict[int, tuple[str, Tensor]] = {}
        self._held: dict[int, HeldTensor] = {}
        self._torn: dict[int, str] = {}
        self._sized: dict[Any, tuple[fx.Node, int]] = {}
        self._members: dict[fx.Node, Relation] = {}
        self._counted: dict[Any, fx.Node] = {}
        self._taken: dict[Any, Size] = {}
        self._meanings: dict[fx.Node, int] = {}
        self._numbered: dict[Any, int] = {}
        self._repeated: dict[Any, tuple[Any, list[str]]] = {}
        self._autocast = _autocast()

    # What goes in and out ------------------------------------------------------------------------

    def placeholder(self, name: str, real: Any, sizes: Sequence[Size] | None) -> Any:
        """An argument of the model; `sizes` is None for a graph that is no plain tensor."""
        node = self.graph.placeholder(name)
        sealed = sizes is None or type(real) is not Tensor
        given = Sealed(real, self.refuse) if sealed else self.sizes.fake(real, sizes or ())
        self._hold(given, node, real)
        return given

    def matrix(self, name: str, real: Any, count: Size, sizes: Sequence[Size]) -> Matrix:
        """A sparse adjacency `[*sizes]` with so many entries, whose edges are looked at."""
        node, held = self.graph.placeholder(name), list[Any]()
        for part in (edges_of_matrix, values_of_matrix):
            rows = part(real)
            if rows is None:
                held.append(None)
                continue
            shape = [2, count] if part is edges_of_matrix else [count, *rows.shape[1:]]
            held.append(self.sizes.fake(rows, shape))
            self._hold(held[-1], self.graph.call_function(part, (node,)), rows)
        made = Matrix(real, self.refuse, held[0], held[1], sizes)
        self._hold(made, node, real)
        return made

    def members(self, fake: Tensor, relation: Relation) -> None:
        """Tell that an argument, int64 `[num_nodes]`, may say which graph each node belongs to."""
        self._members[self._held[id(fake)].node] = relation

    def members_of(self, fake: Any) -> Relation | None:
        """The edges that an argument stands for which may say to which graph each node belongs."""
        held = self._held.get(id(fake))
        return None if held is None else self._members.get(held.node)

    def count(self, value: Any) -> Any:
        """What `int(value)` is where that is a number of graphs; else None."""
        held = self._held.get(id(value))
        found = None if held is None or self.is_busy else largest_of(held.node)
        if found is None or found[0] not in self._members or id(value) in self._torn:
            return None
        node, more = found
        self.is_busy = True
        try:
            number = count_of(self.real[node])
        finally:
            self.is_busy = False
        size = self.sizes.of_members(self._members[node], number)
        (symbol,) = self.sizes.symbols_in(size)
        if symbol not in self._counted:
            made = self.graph.call_function(count_of, (node,))
            self.real[made], self.fake[made] = number, size
            self._counted[symbol] = made
        return size - 1 + more

    def attribute(self, path: str, tensor: Tensor) -> None:
        """A tensor, of any shape, that the copied model holds under `path`."""
        self._attributes.setdefault(id(tensor), (path, tensor))

    def returns(self, result: Any) -> None:
        """Note what the model returns."""
        for value in leaves(result):
            if isinstance(value, SYMBOLIC):
                self.refuse("it returns a size")
            self._see(value)
        self.graph.output(self._nodes(result))
        self._leave_out_repeats()

    def _leave_out_repeats(self) -> None:
        """Let one node stand for those that do the same with the same."""
        first: dict[Any, fx.Node] = {}
        for node in list(self.graph.nodes):
            same = first.setdefault(self.meaning(node), node)
            if same is not node:
                node.replace_all_uses_with(same)
                self.graph.erase_node(node)

    def refuse(self, reason: str, error: Exception | None = None) -> Any:
        """End the trace.

        Raises:
            NotTraceable: Always.
        """
        if not self.why:
            self.place = here()
            self.why = reason + in_brackets(self.place)
        raise NotTraceable(self.why) from error

    # What is called ------------------------------------------------------------------------------

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """A function of torch, or a method or property of a tensor."""
        kwargs = kwargs or {}
        if self.is_busy:
            return func(*args, **kwargs)
        if args and type(args[0]) is Matrix:
            with self:  # what that does is seen
                return Matrix.__torch_function__(func, types, args, kwargs)
        name = name_of(func)
        if name in _OF_ANY_VALUES and is_fake(args[0]) and self._is_whole(args[0]):
            return func(*args, **kwargs)
        if asks_for_values(name):
            size = self.count(args[0]) if name == "item" else None
            if size is not None:
                return size
            self.refuse(f"what it does depends on the values of a tensor ('{name}')")
        if _autocast() != self._autocast:
            self.refuse("it switches torch.autocast on or off")
        return self._call(Call("call_function", func, name, func, args, kwargs))

    def _is_whole(self, value: Tensor) -> bool:
        """Whether a tensor, of any shape, is in hand as what it was made."""
        return id(value) in self._held and id(value) not in self._torn

    def module(self, path: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A module that is written down as one call."""
        return self._call(Call("call_module", path, f"<{path}>", run, args, kwargs))

    def function(self, func: Callable[..., Any], *args: Any) -> Any:
        """A Python function that is written down as one call."""
        return self._call(Call("call_function", func, f"<{func.__name__}>", func, args, {}))

    def repeatable(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A Python function that gives the same for the same: what it does is written down once.

        Each call returns tensors of its own, which the model may write to.
        """
        given = leaves((args, kwargs))
        if not all(is_fake(v) or isinstance(v, (*SYMBOLIC, *PLAIN)) for v in given):
            return func(*args, **kwargs)
        asked = self.meaning(self._nodes((args, *kwargs.items())))
        key = (func, asked, torch.get_default_dtype())
        if key not in self._repeated:
            first = len(self.calls)
            result = func(*args, **kwargs)
            if all(v is None or is_fake(v) for v in leaves(result)):
                self._repeated[key] = (self._nodes(result), self.calls[first:])
            return result
        known, calls = self._repeated[key]
        self.calls += calls
        for value in given:
            self._see(value)
        self.is_busy = True
        try:
            real = func(*self._reals(args), **self._reals(kwargs))
            of_given = {self._held[id(v)].node: v for v in given if is_fake(v)}
            return tensors_as(lambda t, node: self._once_more(t, node, of_given), real, known)
        finally:
            self.is_busy = False

    def _once_more(self, real: Tensor, node: fx.Node, given: dict[fx.Node, Tensor]) -> Tensor:
        """Another tensor that a node stands for, or the one that was given."""
        if node not in given:
            made = self.sizes.fake(real, self.fake[node].shape)
            self._hold(made, node, real)
            return made
        return given[node]

    def _call(self, call: Call) -> Any:
        self.is_busy = True  # what is looked at here is not the model's doing
        last = next(iter(reversed(self.graph.nodes)), None)
        try:
            return self._recorded(call)
        finally:
            self.is_busy = False
            self._note_line(last)

    def _note_line(self, last: fx.Node | None) -> None:
        """Note which line, and which conv, has made the nodes behind the last one."""
        line = here()
        for node in reversed(self.graph.nodes):
            if node is last:
                break
            self.lines[node] = line
            if self.inside:
                self.makers[node] = self.inside

    def _recorded(self, call: Call) -> Any:
        for value in call.leaves:
            self._see(value)
        before = [(h, h.real._version) for h in self._writable(call) if counts_writes(h.real)]
        real = call.run(*self._reals(call.args), **self._reals(call.kwargs))
        if gives_tensors(call.name, real):
            self.calls.append(either_way(call.name))
        written = self._written(call, before, real)
        if written is not None:
            return self._write(call, written, real)
        if not holds_tensors(real):
            return self._plain(call)
        fakes = self._without_values(call, real)
        return self._take(fakes, real, self._node(call))

    def _writable(self, call: Call) -> list[HeldTensor]:
        """What a call may write to: one that is no function of torch, to all that it can reach."""
        if call.name.startswith("<"):
            return [*self._held.values()]
        return [self._held[id(v)] for v in call.leaves if id(v) in self._held]

    def _plain(self, call: Call) -> Any:
        """What is no tensor may depend on sizes, which are symbols, and on nothing else."""
        try:
            return self._run_without_values(call)
        except Exception as error:
            self.refuse(f"what it does depends on sizes or values ('{call.shown}')", error)

    def _run_without_values(self, call: Call) -> Any:
        if any(issubclass(type(v), Sealed) for v in leaves((call.args, call.kwargs))):
            raise NotTraceable(f"it asks a graph that is no edge_index for '{call.shown}'")
        with self.sizes.without_values():
            return call.run(*call.args, **call.kwargs)

    def _without_values(self, call: Call, real: Any) -> Any:
        """The result without values. Where that cannot be had, nothing is known of its sizes."""
        is_module = call.op == "call_module"
        if is_module:
            sizes = self._leaf_sizes(str(call.target), leaves((call.args, call.kwargs)), real)
            if sizes is not None:
                return tensors_as(self.sizes.fake, real, sizes)
        if call.target is merged:
            count = self.sizes.symbol(real[0].shape[1])
            shapes = [[2, count], *([count, *r.shape[1:]] for r in real[1:])]
            return tuple(map(self.sizes.fake, real, shapes))
        taken = self._taken_by_mask(call, real)
        if isinstance(real, Tensor) and real.is_sparse:
            taken = self._of_matrix(call, real)
        if taken is None:
            taken = elementwise(self.sizes, call, real)
        if taken is not None:
            return taken
        try:
            fakes = self._shapes_of(call)
            known = not depends_on_ones(call, fakes)
            if known and alike(fakes, real, self.sizes.may_be):
                return fakes
        except Exception:  # it asks for sizes or values somewhere inside
            fixed = is_module or isinstance(real, Tensor) or hasattr(type(real), "n_fields")
            if not fixed and call.name not in _FIXED_LENGTH:
                self.refuse(f"how many tensors '{call.shown}' returns depends on sizes")
        return tensors_as(lambda t, _: self.sizes.unknown(t), real, real)

    def _shapes_of(self, call: Call) -> Any:
        """What a call returns without values, from what one that was alike has returned."""
        question = KNOWN_SHAPES.question(self.sizes, call)
        fakes = None if question is None else KNOWN_SHAPES.answer(self.sizes, question)
        if fakes is None:
            fakes = self._run_without_values(call)
            if question is not None and not self.sizes.has_learned():
                KNOWN_SHAPES.tell(question, fakes)
        return fakes

    def _taken_by_mask(self, call: Call, real: Any) -> Tensor | None:
        """`rows[mask]` or `rows[:, mask]`: equal masks take equally many."""
        if call.name != "__getitem__" or not isinstance(real, Tensor) or len(call.args) != 2:
            return None
        rows, at = call.args
        index = at if isinstance(at, tuple) else (at,)
        mask = index[-1]
        plain = all(isinstance(i, slice) and i == slice(None) for i in index[:-1])
        if not plain or len(index) > 2 or not is_fake(rows) or not is_fake(mask):
            return None
        if mask.dtype is not torch.bool or mask.dim() != 1 or rows.dim() < len(index):
            return None
        where = len(index) - 1
        key = self.meaning(self._held[id(mask)].node)
        if key not in self._taken:
            self._taken[key] = self.sizes.symbol(real.shape[where])
        shape: list[Any] = list(rows.shape)
        shape[where] = self._taken[key]
        return self.sizes.fake(real, shape)

    def _of_matrix(self, call: Call, real: Tensor) -> Tensor | None:
        """A sparse matrix that is made with a size, or of another one."""
        size = call.kwargs.get("size", call.args[2] if len(call.args) > 2 else None)
        if call.name == "sparse_coo_tensor" and isinstance(size, (tuple, list)):
            return self.sizes.fake(torch.empty(0, dtype=real.dtype, device=real.device), size)
        first = call.args[0] if call.args else None
        if call.name == "coalesce" and isinstance(first, Tensor) and is_fake(first):
            return first
        return None

    def meaning(self, value: Any) -> Any:
        """Equal for nodes that do the same with the same."""
        if isinstance(value, fx.Node):
            if value not in self._meanings:
                what: Any = value
                name = called(value)
                # What is written to goes by another node from then on.
                if name and (value not in self.writes or name.endswith("_")):
                    args: tuple[Any, ...] = value.args
                    like = self.real.get(args[0]) if name.startswith("new_") else None
                    if isinstance(like, Tensor):  # which only says of what kind
                        args = str(like.dtype), str(like.device), *args[1:]
                    what = value.target, self.meaning((*args, *value.kwargs.items()))
                self._meanings[value] = self._numbered.setdefault(what, len(self._numbered))
            return "node", self._meanings[value]
        if isinstance(value, (tuple, list)):
            return (type(value), *map(self.meaning, value))
        if isinstance(value, slice):
            return ("slice", *map(self.meaning, (value.start, value.stop, value.step)))
        plain = isinstance(value, (bool, int, float, str, type(None)))
        return (type(value), value) if plain else id(value)

    # Writing -------------------------------------------------------------------------------------

    def _written(
        self, call: Call, before: list[tuple[HeldTensor, int]], real: Any
    ) -> HeldTensor | None:
        """The argument that a call has written to."""
        changed = {id(h.fake) for h, version in before if h.real._version != version}
        given = [self._held[id(v)] for v in call.leaves if id(v) in self._held]
        result = next((h for h in given if h.real is real), None)
        if not changed:
            # Some only change the shape, such as `unsqueeze_`.
            return result if call.name.endswith("_") and not call.name.endswith("__") else None
        if result is not None and id(result.fake) in changed:
            return result
        hit = [h for h in given if id(h.fake) in changed]
        if not hit:
            self.refuse(f"'{call.shown}' writes to a tensor that it is not given")
        if any(h.real is not hit[0].real for h in hit[1:]) and call.name != "__setitem__":
            self.refuse(f"'{call.shown}' writes to several tensors")
        return hit[0]

    def _write(self, call: Call, written: HeldTensor, real: Any) -> Any:
        """From here on, what was written to is the result of the call."""
        memory = memory_of(written.real)
        is_result = real is written.real or call.name == "__setitem__"
        what = f"shares memory with what '{call.shown}' has written to"
        for key, other in self._held.items():
            if memory_of(other.real) == memory and not (
                is_result and is_same_place(other.real, written.real)
            ):
                self._torn[key] = what
        if not is_result:
            fakes = self._without_values(call, real) if holds_tensors(real) else self._plain(call)
            node = self._node(call)
            self.writes.add(node)
            return self._take(fakes, real, node) if holds_tensors(real) else fakes
        if "out" in call.kwargs:
            call = self._without_out(call, written.real)
        node = self._node(call)
        self.writes.add(node)
        try:
            self._reshape(call, written)
        except Exception as error:
            self.refuse(f"'{call.shown}' writes in a way that depends on sizes or values", error)
        for key, other in list(self._held.items()):
            if key not in self._torn and memory_of(other.real) == memory:
                self._hold(other.fake, node, other.real)
        self._hold(written.fake, node, written.real)
        return None if call.name == "__setitem__" else written.fake

    def _reshape(self, call: Call, written: HeldTensor) -> None:
        """Change the shape of what a call writes to without values, if it does."""
        if keeps_shape(call, written.fake):
            return
        question = KNOWN_SHAPES.question(self.sizes, call)
        if question is not None and KNOWN_SHAPES.answer(self.sizes, question) is not None:
            return
        self._run_without_values(call)
        after = KNOWN_SHAPES.question(self.sizes, call)
        if question is not None and after is not None and after.key == question.key:
            KNOWN_SHAPES.tell(question, written.fake)

    def _without_out(self, call: Call, out: Tensor) -> Call:
        """The same call, for its result; that has to be of the dtype and shape of `out`."""
        kwargs = {k: v for k, v in call.kwargs.items() if k != "out"}
        alone = call.run(*self._reals(call.args), **self._reals(kwargs))
        if not isinstance(alone, Tensor) or alone.dtype != out.dtype or alone.shape != out.shape:
            self.refuse(f"'{call.shown}' writes to an `out` of another dtype or shape")
        return Call(call.op, call.target, call.name, call.run, call.args, kwargs)

    # Keeping -------------------------------------------------------------------------------------

    def _hold(self, fake: Any, node: fx.Node, real: Any) -> None:
        self._held[id(fake)] = HeldTensor(fake, node, real)
        self.fake[node] = fake
        # A copy, because what is here may be written to later.
        plain = isinstance(real, Tensor) and real.layout is torch.strided
        self.real[node] = real.clone() if plain else real
        if not is_fake(fake):
            return
        self.sizes.learn(fake, real)
        for dim, size in enumerate(fake.shape):
            if isinstance(size, torch.SymInt):
                self._sized.setdefault(size.node.expr, (node, dim))

    def _take(self, fakes: Any, real: Any, node: fx.Node) -> Any:
        """Hold the tensors of a result, each by a node of its own."""
        if isinstance(real, Tensor):
            self._hold(fakes, node, real)
            return fakes
        self.fake[node], self.real[node] = fakes, real
        keys = list(real) if isinstance(real, dict) else range(len(real))
        parts = [self._part(fakes[k], real[k], node, k) for k in keys]
        if isinstance(real, dict):
            return dict(zip(keys, parts, strict=True))
        return type(real)(*parts) if hasattr(real, "_fields") else type(real)(parts)

    def _part(self, fake: Any, real: Any, whole: fx.Node, key: Any) -> Any:
        if not holds_tensors(real):
            return fake
        return self._take(fake, real, self.graph.call_function(operator.getitem, (whole, key)))

    # Arguments -----------------------------------------------------------------------------------

    def _see(self, value: Any) -> None:
        """See that what a call is given is what it seems to be."""
        if id(value) in self._torn:
            self.refuse(f"it reads a tensor that {self._torn[id(value)]}")
        if id(value) in self._held or not isinstance(value, Tensor):
            return
        if is_fake(value):
            self.refuse("it makes a tensor in a way that PyTorch does not show")
        path, _ = self._attributes.get(id(value), ("", None))
        if not path:
            path = f"_constant_{len(self.constants)}"
            self.constants[path] = self._originals.get(id(value), value)
        self._hold(value, self.graph.create_node("get_attr", path), value)

    def _node(self, call: Call) -> fx.Node:
        target = set_item if call.name == "__setitem__" else call.target
        return self.graph.create_node(
            call.op, target, self._nodes(call.args), self._nodes(call.kwargs)
        )

    def _nodes(self, value: Any) -> Any:
        """Arguments with nodes in place of tensors and sizes."""
        held = self._held.get(id(value))
        if held is not None:
            return held.node
        return self._size(value) if isinstance(value, SYMBOLIC) else rebuilt(value, self._nodes)

    def _reals(self, value: Any) -> Any:
        """Arguments as they are on the probe."""
        held = self._held.get(id(value))
        if held is not None:
            return held.real
        if isinstance(value, SYMBOLIC):
            return self.sizes.number(value)
        return rebuilt(value, self._reals)

    def _size(self, size: Any) -> fx.Node:
        """A node that computes a size when the program runs."""
        symbols = self.sizes.symbols_in(size)
        sources = []
        for symbol in symbols:
            if symbol in self._counted:
                sources.append(self._counted[symbol])
                continue
            if symbol not in self._sized:
                self.refuse("it uses a size that comes from no tensor")
            node, dim = self._sized[symbol]
            source = self.graph.call_function(size_of, (node, dim))
            self.real[source] = self.real[node].shape[dim]
            self.fake[source] = self.fake[node].shape[dim]
            sources.append(source)
        if len(symbols) == 1 and size.node.expr == symbols[0]:
            return sources[0]
        made = self.graph.call_function(SizeFormula(size, symbols), tuple(sources))
        self.real[made], self.fake[made] = self.sizes.number(size), size
        return made


def _autocast() -> bool:
    return any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))

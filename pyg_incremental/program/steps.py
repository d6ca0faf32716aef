"""What a model computes: a program of row maps and aggregations over node rows and edge rows.

A step takes values and makes one value. A few kinds of step are enough:

* `Input`: what the user hands in and deltas change;
* `RowMap`: row `i` of the result depends on row `i` of its inputs only;
* `Gather`: the row of an edge (or of a pair of nodes) is that of the node at one of its ends;
* `Aggregate` (in `pyg_incremental.ops`): row `i` gathers messages over the in-edges of `i`;
* `Whole`: anything else, run on all rows; `Only`, on the only one.

Ranks have one word more, see `pyg_incremental.program.joined`.

A program says nothing about deltas; executors (see `pyg_incremental.engine.loop`) do.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from pyg_incremental.program.derived import Derived
from pyg_incremental.program.origin import Origin, Place
from pyg_incremental.typing import Format


class NotIncremental(Exception):
    """Something cannot be written as steps that follow a delta; the message is the reason.

    It then runs on all rows.
    """


class Domain(Enum):
    """What the rows of a value stand for."""

    NODE = "node"
    EDGE = "edge"
    WHOLE = "whole"
    """No rows: a tensor or object that is recomputed as one."""


@dataclass(frozen=True)
class Relation:
    """One kind of edges: a graph among the arguments of a call.

    Attributes:
        graph: Name of the argument.
        key: How a delta names it: the edge type of PyG, or the name of the argument.
        source: The kind of nodes at which its edges start.
        target: The kind of nodes to which they lead; a graph on one set of nodes has both alike.
        format: How the graph was handed in; it decides what self-loops and weights mean in PyG.
        by_target: Whether the edges came sorted by target, which some aggregations insist on.
        values: Name of the edge input that holds the values of a sparse adjacency.
        unit_values: Whether these are all one, so that an added edge may come without.
        sized: Whether an `edge_index` says how many nodes there are (an `EdgeIndex` may).
        members: The node input whose rows are the targets, one edge for each node; empty for a
            graph that was handed in.
        leaves: Whether removed nodes lose that edge: nothing else stands for `members`.
        read_back: Whether nodes read the rows of their targets, which those without one cannot.
        every: Whether all nodes lead to the only target: `members` is not handed in.
        derived: How the model makes its edges of those of others; None if it does not.
    """

    graph: str = ""
    key: Hashable = ""
    source: str = ""
    target: str = ""
    format: Format = "coo"
    by_target: bool = False
    values: str = "edge_weight"
    unit_values: bool = False
    sized: bool = False
    members: str = ""
    leaves: bool = False
    read_back: bool = False
    every: bool = False
    derived: Derived | None = None


@dataclass(frozen=True, eq=False)
class Value:
    """The result of one step.

    Attributes:
        name: Its name; no two values of a program share one.
        domain: What its rows stand for.
        kind: Which nodes (see `Relation.source`), or the edges of which graph (`Relation.graph`).
    """

    name: str
    domain: Domain
    kind: str = ""

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a program: `inputs` are read, `output` is made.

    Attributes:
        hops: How many hops away from a row it reads: one for an aggregation.
        takes_all: Whether it cannot be computed for some rows without all others.
        is_local: Whether a row of its inputs matters to no other rows than itself, or those that
            its edges lead to.
    """

    kind: ClassVar[str] = "step"
    hops: ClassVar[int] = 0
    takes_all: ClassVar[bool] = False
    is_local: ClassVar[bool] = False
    output: Value
    inputs: tuple[Value, ...]

    @property
    def needs_all_rows(self) -> bool:
        """Whether it runs on all rows at once, or makes what is no row."""
        return self.takes_all or self.output.domain is Domain.WHOLE

    @property
    def gathered(self) -> tuple[Value, ...]:
        """What an aggregation reads where an edge comes from; nothing of any other step."""
        return ()

    def __str__(self) -> str:
        return f"{self.output.name} = {self.kind}({', '.join(v.name for v in self.inputs)})"


@dataclass(frozen=True, eq=False)
class Input(Step):
    """A tensor handed in by the user (`x`, `edge_weight`, ...).

    The graph itself is one too, of domain `WHOLE`.
    """

    kind: ClassVar[str] = "input"
    is_local: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Learned(Input):
    """Node rows that are a parameter or buffer of the model, `[num_nodes, ...]`.

    No delta changes them. `read` returns what they are now; a full pass asks for it.
    """

    kind: ClassVar[str] = "learned"
    read: Callable[[], Tensor]


@dataclass(frozen=True, eq=False)
class Ones(Step):
    """One for every node, `[num_nodes, 1]`: the message whose sum is a degree."""

    kind: ClassVar[str] = "ones"
    is_local: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class NodeIds(Step):
    """The id of every node, int64 `[num_nodes]`.

    It never runs: which edges a derived graph has may depend on it, and nothing else.
    """

    kind: ClassVar[str] = "ids"


@dataclass(frozen=True, eq=False)
class RowMap(Step):
    """`fn(*rows)` on matching rows of the inputs; inputs of domain `WHOLE` are passed whole.

    `costly` marks a map that contains a matrix product: its input is worth comparing with what it
    was, row by row, before it runs.
    """

    kind: ClassVar[str] = "map"
    is_local: ClassVar[bool] = True
    fn: Callable[..., Any]
    costly: bool = False


def fn_of(step: Step | None) -> Callable[..., Any] | None:
    """What a row map computes; None for other steps."""
    return step.fn if type(step) is RowMap else None


@dataclass(frozen=True, eq=False)
class Gather(Step):
    """Row `e` is that of the node at one end of edge `e`: `x[edge_index[0]]`, `[num_edges, ...]`.

    It never runs by itself: with the row maps behind it, it becomes part of a message (see
    `pyg_incremental.program.messages`).
    """

    kind: ClassVar[str] = "gather"
    at_target: bool


@dataclass(frozen=True, eq=False)
class Pick(Step):
    """Row `e` is those of the nodes whose ids edge `e` holds: `x[ids]`, `[num_edges, ..., width]`.

    Like `Gather` it never runs by itself, but as a part of what is made of it. Its inputs are the
    rows and the ids, which are data of the edges, `[num_edges, ...]`.
    """

    kind: ClassVar[str] = "pick"


@dataclass(frozen=True, eq=False)
class Whole(Step):
    """`fn(*inputs)` on all rows, whenever anything changed.

    `reason` says why it is not done row by row. `pure` promises that `fn` neither writes to what it
    is given nor returns a view of it, so that it needs no copy.
    """

    kind: ClassVar[str] = "whole"
    takes_all: ClassVar[bool] = True
    of_all: ClassVar[bool] = True
    """Whether it counts as one that computes on all rows."""
    fn: Callable[..., Any]
    reason: str = ""
    pure: bool = False


@dataclass(frozen=True, eq=False)
class Only(Whole):
    """The row of a kind of nodes of which there is one, as a value without rows.

    It runs on all rows, but that is one.
    """

    kind: ClassVar[str] = "only"
    of_all: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class Returned(Whole):
    """A graph that a model returns, as it is now: edges are listed, and nothing is computed."""

    kind: ClassVar[str] = "returned"
    of_all: ClassVar[bool] = False


S = TypeVar("S", bound=Step)


@dataclass(eq=False)
class Program:
    """Steps in the order in which they run, and which values come in and go out.

    Attributes:
        steps: The steps; the inputs of each stand before it.
        inputs: The values handed in, by the name of the argument.
        graphs: The values that are graphs.
        outputs: The values that leave.
        fixed: The kinds of nodes whose number never changes, and that number.
        origins: The operation of the model that each value comes from, where one does; also of
            values that no step makes any more.
        least_edges: It is what the model does only while every graph has so many edges.
    """

    NOT_COMPARED: ClassVar = ("origins", "_known")  # they say where something lies
    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    graphs: dict[Value, Relation] = field(default_factory=dict)
    outputs: list[Value] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)
    origins: dict[Value, Origin] = field(default_factory=dict)
    least_edges: int = 0
    _known: dict[Hashable, Value] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def input(self, name: str, domain: Domain, kind: str = "") -> Value:
        """Declare something handed in."""
        value = self.value(name, domain, kind)
        self.steps.append(Input(value, ()))
        self.inputs[name] = value
        return value

    def graph(self, relation: Relation) -> Value:
        """Declare a graph that is handed in."""
        value = self.input(relation.graph, Domain.WHOLE)
        self.graphs[value] = relation
        return value

    def learned(self, name: str, read: Callable[[], Tensor], kind: str) -> Value:
        """Node rows that are a parameter.

        Args:
            name: Where the model holds it, such as `embedding.weight`.
            read: Returns it, `[num_nodes, ...]`.
            kind: The nodes.

        Raises:
            NotIncremental: If it does not have one row for each of these nodes, however the graph
                changes.
        """
        rows = read()
        if kind not in self.fixed or rows.shape[:1] != (self.fixed[kind],):
            raise NotIncremental(f"'{name}' {list(rows.shape)} has no row for each node")

        def make() -> Step:
            return Learned(self.value(name, Domain.NODE, kind), (), read)

        return self.add(("learned", name), make)

    def learned_rows(self) -> dict[str, Tensor]:
        """The node rows that are parameters, as they are now, by the names of their values."""
        return {s.output.name: s.read() for s in self.steps if isinstance(s, Learned)}

    def ones(self, kind: str = "") -> Value:
        """One for every node of some kind."""
        return self.add(("ones", kind), lambda: Ones(self.value("ones", Domain.NODE, kind), ()))

    def ids(self, kind: str = "") -> Value:
        """The id of every node of some kind."""
        return self.add(("ids", kind), lambda: NodeIds(self.value("ids", Domain.NODE, kind), ()))

    def map(
        self,
        name: str,
        fn: Callable[..., Any],
        inputs: Sequence[Value],
        *,
        key: Hashable | None = None,
        costly: bool = False,
    ) -> Value:
        """Add a row map.

        Steps of equal `key` and inputs are one step (two GCN layers on one graph have one degree).
        """
        places = {(v.domain, v.kind) for v in inputs if v.domain is not Domain.WHOLE}
        if len(places) > 1:
            raise ValueError(f"row map '{name}' reads rows of different kinds: {list(inputs)}")
        domain, kind = places.pop() if places else (Domain.WHOLE, "")
        return self.add(
            None if key is None else ("map", key, *map(id, inputs)),
            lambda: RowMap(self.value(name, domain, kind), tuple(inputs), fn, costly),
        )

    def gather(self, name: str, rows: Value, graph: str, at_target: bool) -> Value:
        """Node rows read at one end of every edge of a graph."""
        return self.add(
            ("gather", id(rows), graph, at_target),
            lambda: Gather(self.value(name, Domain.EDGE, graph), (rows,), at_target),
        )

    def pick(self, name: str, rows: Value, ids: Value) -> Value:
        """Node rows read at the ids that every edge of a graph holds."""
        return self.add(
            ("pick", id(rows), id(ids)),
            lambda: Pick(self.value(name, Domain.EDGE, ids.kind), (rows, ids)),
        )

    def whole(
        self,
        name: str,
        fn: Callable[..., Any],
        inputs: Sequence[Value],
        domain: Domain,
        reason: str,
        kind: str = "",
        pure: bool = False,
    ) -> Value:
        """Add a step that runs on all rows."""
        value = self.value(name, domain, kind)
        return self.add(None, lambda: Whole(value, tuple(inputs), fn, reason, pure))

    def add(self, key: Hashable | None, make: Callable[[], Step]) -> Value:
        """Append the step that `make` returns, unless one of the same `key` is there already.

        Returns its value.
        """
        if key is not None and key in self._known:
            return self._known[key]
        step = make()
        self.steps.append(step)
        if key is not None:
            self._known[key] = step.output
        return step.output

    def forget(self, steps: int) -> None:
        """Take back all steps behind the first `steps`."""
        gone = {s.output for s in self.steps[steps:]}
        del self.steps[steps:]
        self._known = {k: v for k, v in self._known.items() if v not in gone}
        self._names -= {v.name for v in gone}

    def prune(self) -> None:
        """Leave out what nothing reads, but for what is handed in."""
        read = set(self.outputs)
        kept: list[Step] = []
        for s in reversed(self.steps):
            handed_in = isinstance(s, Input) and not isinstance(s, Learned)
            if handed_in or s.output in read:
                kept.append(s)
                read.update(s.inputs)
        self.steps = kept[::-1]
        there = {s.output for s in kept}
        self._known = {k: v for k, v in self._known.items() if v in there}

    def value(self, name: str, domain: Domain, kind: str = "") -> Value:
        """A new value with a name that is not taken."""
        taken, plain = 1, name
        while name in self._names:
            taken += 1
            name = f"{plain}_{taken}"
        self._names.add(name)
        return Value(name, domain, kind)

    def place_of(self, value: Value) -> Place | None:
        """The line of the model that a value comes from; None if that is not known."""
        origin = self.origins.get(value)
        return None if origin is None else origin.place

    @property
    def format(self) -> Format:
        """The format of the (first) graph."""
        return next((r.format for r in self.graphs.values()), "coo")

    @property
    def whole_steps(self) -> list[Whole]:
        """The steps that run on all rows, of which there may be many."""
        return [s for s in self.steps if isinstance(s, Whole) and s.of_all]

    @property
    def read_out(self) -> set[Value]:
        """The values without rows that are made of all nodes of a kind together."""
        found: set[Value] = set()
        for s in self.steps:
            follows = s.output.domain is Domain.WHOLE and found.intersection(s.inputs)
            if follows or isinstance(s, Only):
                found.add(s.output)
        return found

    @property
    def depth(self) -> int:
        """Largest number of aggregations on a path; an output row sees no farther."""
        hops: dict[Value, int] = {}
        for s in self.steps:
            hops[s.output] = max((hops[v] for v in s.inputs), default=0) + s.hops
        return max((hops[v] for v in self.outputs), default=0)

    def __str__(self) -> str:
        lines = [str(s) for s in self.steps]
        return "\n".join([*lines, f"return {', '.join(v.name for v in self.outputs)}"])


def hops_to(steps: Iterable[Step]) -> dict[Value, int]:
    """How many hops a change of edges or inputs may come until it reaches each value.

    Zero is a row that is given; one the end of an edge that comes or leaves. An aggregation reads
    far only what it gathers, and values of edges, which belong to a node at either end.
    """
    found: dict[Value, int] = {}
    for s in steps:
        far = {*s.gathered} | {v for v in s.inputs if v.domain is Domain.EDGE}
        known = [found.get(v, 0) + s.hops * (v in far) for v in s.inputs]
        found[s.output] = max([*known, s.hops])
    return found

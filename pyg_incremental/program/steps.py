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

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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


Over = tuple[str, bool]
"""The edges of a graph, by its name; and whether they are gone over from their targets."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a program: `inputs` are read, `output` is made.

    It says what it can do and what it needs, so that nobody has to know its class.

    Attributes:
        hops: How many hops away from a row it reads: one for an aggregation.
        takes_all: Whether it cannot be computed for some rows without all others.
        reads_whole: Whether it is handed its inputs whole, all rows of them at once.
        of_all: Whether it counts as one that computes on all rows.
        is_local: Whether a row of its inputs matters to no other rows than itself, or those that
            its edges lead to.
        is_given: Whether its rows are handed in, or a parameter, and nothing computes them.
        constant: What stands in each of its rows, `[num_nodes, 1]`, if nothing is read for that.
        recomputes: Whether it makes a row again of all that it reads wherever any of that changed,
            by a function of which nothing else is known.
        brings_executor: Whether what runs it is its own, `executor`.
        is_collective: Whether all ranks take part in it, in every update.
    """

    kind: ClassVar[str] = "step"
    hops: ClassVar[int] = 0
    takes_all: ClassVar[bool] = False
    reads_whole: ClassVar[bool] = False
    of_all: ClassVar[bool] = False
    is_local: ClassVar[bool] = False
    is_given: ClassVar[bool] = False
    constant: ClassVar[float | None] = None
    recomputes: ClassVar[bool] = False
    brings_executor: ClassVar[bool] = False
    is_collective: ClassVar[bool] = False
    output: Value
    inputs: tuple[Value, ...]

    @property
    def needs_all_rows(self) -> bool:
        """Whether it runs on all rows at once, or makes what is no row."""
        return self.takes_all or self.output.domain is Domain.WHOLE

    # What it computes ----------------------------------------------------------------------------

    @property
    def row_fn(self) -> Callable[..., Any] | None:
        """What its rows are of the same rows of its inputs; None if they are not made so."""
        return None

    @property
    def computes(self) -> bool:
        """Whether each of its rows is a function, `row_fn`, of the same rows of its inputs."""
        return self.row_fn is not None

    @property
    def costly(self) -> bool:
        """Whether there is a matrix product in `row_fn`."""
        return False

    @property
    def reason(self) -> str:
        """Why it is not done row by row; empty if it is, or if that goes without saying."""
        return ""

    @property
    def pure(self) -> bool:
        """Whether it neither writes to what it is given nor returns a view of it, by promise."""
        return False

    def compute(self, *inputs: Any) -> Any:
        """What it makes of its inputs, `[k, ...]` each or without rows, if nothing else is read.

        Raises:
            TypeError: If it makes nothing of its inputs alone.
        """
        raise TypeError(f"'{self}' is no function of its inputs alone")

    @property
    def parameter(self) -> Callable[[], Tensor] | None:
        """Reads the parameter of the model that its rows are; None if they are none."""
        return None

    def executor(self, inputs: Any, out: Any, context: Any) -> Any:
        """What runs it, see `ops.operator.Operator`, where it brings that along.

        Args:
            inputs: Where the rows of its inputs stand.
            out: Where its own go.
            context: What steps on the same nodes share.

        Raises:
            TypeError: If it brings none.
        """
        raise TypeError(f"'{self}' brings nothing that runs it")

    def bind(self, cell: Callable[[Value], Any], context: Any) -> Any:
        """What runs an aggregation over stored rows, see `ops.base.Aggregator`.

        Args:
            cell: Returns where the rows of a value stand.
            context: What steps over its edges share.

        Raises:
            TypeError: If it is none.
        """
        raise TypeError(f"'{self}' is no aggregation")

    # What it reads along edges -------------------------------------------------------------------

    @property
    def over(self) -> Over | None:
        """The edges over which an aggregation gathers; None of any other step."""
        return None

    @property
    def gathers(self) -> bool:
        """Whether it is an aggregation."""
        return self.over is not None

    @property
    def gathered(self) -> tuple[Value, ...]:
        """What an aggregation reads where an edge comes from; nothing of any other step."""
        return ()

    @property
    def own_part(self) -> tuple[Value, ...]:
        """What an aggregation reads of the row that it makes, as a part of each of its messages."""
        return ()

    @property
    def sets_loops_apart(self) -> bool:
        """Whether it is an aggregation for which self-loops are not like other edges."""
        return False

    @property
    def changes_throughout(self) -> bool:
        """Whether a row of which something changes mostly changes in all channels."""
        return False

    def row_like(self, like: Callable[[Value], Tensor]) -> Tensor | None:
        """A row of the shape and dtype of those of an aggregation, `[1, ...]`; None if not known.

        Args:
            like: Returns some rows as a value has them, `[n, ...]`.
        """
        return None

    def along(self, graph: str) -> "Step":
        """An aggregation over the edges of another graph; any other step as it is."""
        return self

    @property
    def at_end(self) -> bool | None:
        """At which end of an edge it reads its row, True for the target; None if at none."""
        return None

    def on_edges(
        self,
        source: Callable[[Value], Any],
        target: Callable[[Value], Any],
        picked: Callable[[Value, Value], Any],
        edge: Callable[[Value], Any],
    ) -> Any:
        """Its rows at some edges, `[k, ...]`, if it is a function of what stands at their ends.

        Args:
            source: Returns rows of a value where the edges come from, `[k, ...]`.
            target: The same where they lead to.
            picked: The same at the ids that the edges hold, which are another value.
            edge: The same of the edges themselves.

        Raises:
            TypeError: If it is no such function.
        """
        raise TypeError(f"'{self}' is no function of the ends of an edge")

    # What others hold ----------------------------------------------------------------------------

    @property
    def begins(self) -> int | None:
        """The id of its first row that is held elsewhere, behind its input; None if it has none."""
        return None

    @property
    def behind(self) -> int:
        """How many rows are held elsewhere."""
        return 0

    def fetch(
        self, rows_at: Callable[[Any], Tensor], like: Tensor, memory: int
    ) -> Iterator[tuple[Any, Tensor]]:
        """Bring the rows that are held elsewhere, `[k, ...]`; see `program.joined`."""
        return iter(())

    def __str__(self) -> str:
        return f"{self.output.name} = {self.kind}({', '.join(v.name for v in self.inputs)})"


@dataclass(frozen=True, eq=False)
class Input(Step):
    """A tensor handed in by the user (`x`, `edge_weight`, ...).

    The graph itself is one too, of domain `WHOLE`.
    """

    kind: ClassVar[str] = "input"
    is_local: ClassVar[bool] = True
    is_given: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class Learned(Input):
    """Node rows that are a parameter or buffer of the model, `[num_nodes, ...]`.

    No delta changes them. `read` returns what they are now; a full pass asks for it.
    """

    kind: ClassVar[str] = "learned"
    read: Callable[[], Tensor]

    @property
    def parameter(self) -> Callable[[], Tensor]:
        """Reads it."""
        return self.read


@dataclass(frozen=True, eq=False)
class Ones(Step):
    """One for every node, `[num_nodes, 1]`: the message whose sum is a degree."""

    kind: ClassVar[str] = "ones"
    is_local: ClassVar[bool] = True
    constant: ClassVar[float | None] = 1.0


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

    @property
    def row_fn(self) -> Callable[..., Any]:
        """What it computes."""
        return self.fn

    def compute(self, *inputs: Any) -> Any:
        """Its rows, `[k, ...]`, of the same rows of its inputs."""
        return self.fn(*inputs)


def fn_of(step: Step | None) -> Callable[..., Any] | None:
    """What a row map computes; None for other steps, and for none."""
    return None if step is None else step.row_fn


@dataclass(frozen=True, eq=False)
class Gather(Step):
    """Row `e` is that of the node at one end of edge `e`: `x[edge_index[0]]`, `[num_edges, ...]`.

    It never runs by itself: with the row maps behind it, it becomes part of a message (see
    `pyg_incremental.program.messages`).
    """

    kind: ClassVar[str] = "gather"
    at_target: bool

    @property
    def at_end(self) -> bool:
        """The end at which it reads."""
        return self.at_target


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
    reads_whole: ClassVar[bool] = True
    of_all: ClassVar[bool] = True
    fn: Callable[..., Any]
    reason: str = ""
    pure: bool = False

    def compute(self, *inputs: Any) -> Any:
        """What it makes of all rows of its inputs, `[num_rows, ...]` each."""
        return self.fn(*inputs)


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
        read = {s.output.name: s.parameter for s in self.steps}
        return {name: now() for name, now in read.items() if now is not None}

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
            handed_in = s.is_given and s.parameter is None
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
    def whole_steps(self) -> list[Step]:
        """The steps that run on all rows, of which there may be many."""
        return [s for s in self.steps if s.of_all]

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
    def goes_against_edges(self) -> bool:
        """Whether an aggregation reads what stands at the targets of edges, too."""
        return any(s.over is not None and s.over[1] for s in self.steps)

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

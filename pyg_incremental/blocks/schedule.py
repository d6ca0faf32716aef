"""A program in layers: which steps run together, and which of their values are kept for later ones.

The three rules of DGI (Section 3.2) decide:

* *layer index*: a value belongs to the layer of the largest number of aggregations on a path to
  it, so that whoever gathers it along edges finds it finished;
* *upstream binding*: a row map runs in the layer in which its last input is made, once for a row;
* *minimum input*: a map of values that are there anyway is not kept, but computed where it is read,
  if it is cheap or each of its rows is read once. It wins over upstream binding where both apply.
"""

from dataclasses import dataclass, field

from pyg_incremental.blocks.budget import Lists
from pyg_incremental.ops import aggregations
from pyg_incremental.program.steps import Domain, Program, Step, Value


@dataclass
class Layer:
    """The steps of one layer.

    Attributes:
        whole: Those that take all rows, in order; they run first.
        blocks: For each kind of nodes the others, in order.
        kept: The values made here that are kept.
        last_read: The values that nobody reads after this layer.
    """

    whole: list[Step] = field(default_factory=list)
    blocks: dict[str, list[Step]] = field(default_factory=dict)
    kept: list[Value] = field(default_factory=list)
    last_read: list[Value] = field(default_factory=list)


class Schedule:
    """The layers of a program.

    Args:
        program: The program.

    Attributes:
        layers: The layers, in order.
        layer_of: The number of the layer of each value.
        kept: The values that are kept: what a later layer or a step on all rows reads, and outputs.
        made: The step that makes each value.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.made = {s.output: s for s in program.steps}
        self.layer_of: dict[Value, int] = {}
        for s in program.steps:
            self.layer_of[s.output] = self._layer(s)
        self.kept = self._kept()
        depth = max((self.layer_of[s.output] for s in program.steps), default=0)
        self.layers = [Layer() for _ in range(1 + depth)]
        for s in program.steps:
            self._place(s)
        for layer in self.layers:
            layer.blocks = {kind: self._needed(layer, some) for kind, some in layer.blocks.items()}
        self._say_last_readers()

    def _layer(self, step: Step) -> int:
        """The first layer in which a step may run."""
        layer_of = self.layer_of
        found = max((layer_of[v] for v in step.inputs), default=0)
        if step.hops:
            if step.needs_all_rows:
                return 1 + found
            return max(found, *(1 + layer_of[v] for v in step.gathered), 1)
        if step.needs_all_rows:
            rows = (layer_of[v] for v in step.inputs if v.domain is Domain.NODE)
            return max(found, *(1 + at for at in rows), 0)
        return found

    def is_given(self, value: Value) -> bool:
        """Whether a value is handed in or costs nothing."""
        made = self.made[value]
        return made.is_given or made.constant is not None

    def _kept(self) -> set[Value]:
        """Values that are read where they were not computed, but for what is as well made there."""
        wanted = {v for v in self.program.outputs if v.domain is Domain.NODE}
        often = set(wanted)
        later: dict[Value, set[int]] = {}
        for s in self.program.steps:
            far = set(s.gathered)
            at = self.layer_of[s.output]
            for v in s.inputs:
                if v.domain is not Domain.NODE:
                    continue
                if v in far or s.needs_all_rows:
                    often.add(v)
                if v in often or self.layer_of[v] < at or self.made[v].needs_all_rows:
                    wanted.add(v)
                    later.setdefault(v, set()).add(at)
        kept: set[Value] = set()
        for s in self.program.steps:
            v = s.output
            if v not in wanted or self.is_given(v):
                continue
            once = v not in often and len(later[v]) == 1  # and then for each row
            as_well = s.computes and (once or not s.costly)
            there = all(self.is_given(u) or u in kept for u in s.inputs)
            if not (as_well and there) or v in self.program.outputs or s.needs_all_rows:
                kept.add(v)
        return kept

    def is_made_again(self, value: Value) -> bool:
        """Whether whoever reads a value in a later layer computes it."""
        return value not in self.kept and not self.is_given(value)

    def _place(self, step: Step) -> None:
        value, layer = step.output, self.layers[self.layer_of[step.output]]
        if self.is_given(value):
            return
        if value.domain is Domain.EDGE and not step.takes_all:
            return  # these rows are computed for the edges of a block
        if step.needs_all_rows:
            layer.whole.append(step)
        else:
            layer.blocks.setdefault(value.kind, []).append(step)
        if value in self.kept:
            layer.kept.append(value)

    def _needed(self, layer: Layer, steps: list[Step]) -> list[Step]:
        """Those of some steps that the kept values of their layer are made of."""
        wanted, needed = set(layer.kept), []
        for s in reversed(steps):
            if s.output in wanted:
                wanted.update(s.inputs)
                needed.append(s)
        return needed[::-1]

    def lists_behind(self, layer: int) -> set[Lists]:
        """The lists that the steps of later layers gather over."""
        return {
            (s.graph, s.reverse)
            for later in self.layers[layer + 1 :]
            for some in (later.whole, *later.blocks.values())
            for s in aggregations(some)
        }

    def behind(self, value: Value) -> set[Value]:
        """The kept and given values from which the rows of a value are read or made again."""
        made = self.made[value]
        if made.begins is not None:
            return {value} | self.behind(made.inputs[0])
        if value in self.kept or self.is_given(value):
            return {value}
        return {w for v in made.inputs for w in self.behind(v)}

    def reads(self, layer: int) -> set[Value]:
        """What the steps of a layer read of earlier ones."""
        here = self.layers[layer]
        steps = [*here.whole, *(s for some in here.blocks.values() for s in some)]
        return {w for s in steps for v in s.inputs for w in self.read(v, s)}

    def read(self, value: Value, by: Step) -> set[Value]:
        """The kept and given values from which a step has the rows of one of its inputs.

        None, if they are computed beside it.
        """
        beside = self.layer_of[value] == self.layer_of[by.output] and not by.needs_all_rows
        if beside and not (self.is_given(value) or self.made[value].needs_all_rows):
            return set()
        return self.behind(value)

    def _say_last_readers(self) -> None:
        last = {v: self.layer_of[v] for v in self.kept}
        for i in range(len(self.layers)):
            last |= dict.fromkeys(self.reads(i) & self.kept, i)
        for v, i in last.items():
            if v not in self.program.outputs:
                self.layers[i].last_read.append(v)

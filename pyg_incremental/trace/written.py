"""What is written so far of a program: what the nodes of a traced model have become."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx

from pyg_incremental.program.steps import Domain, Program, Value
from pyg_incremental.trace.recorder import Recorder


@dataclass
class Written:
    """What those share who write a program.

    Attributes:
        program: The program.
        recorded: What the model does.
        env: What each node has become: a value, several, or anything else.
        turned: Graphs with their edges turned around, and what they were before.
        examples: Rows of values on the probe.
        fixed: Values of domain WHOLE that no delta changes.
        learned: Of them, what is made of parameters, and how.
        numbers: Node rows that are all filled with one number, and that number.
        by_hand: What the programs of convs make.
        plain: Row maps that read rows and numbers, and no parameter.
    """

    program: Program
    recorded: Recorder
    env: dict[fx.Node, Any] = field(default_factory=dict)
    turned: dict[Value, Value] = field(default_factory=dict)
    examples: dict[Value, Tensor] = field(default_factory=dict)
    fixed: set[Value] = field(default_factory=set)
    learned: dict[Value, Callable[[], Any]] = field(default_factory=dict)
    numbers: dict[Value, Any] = field(default_factory=dict)
    by_hand: set[Value] = field(default_factory=set)
    plain: set[Value] = field(default_factory=set)

    def values(self, node: fx.Node) -> list[Value]:
        """The values that an operation reads."""
        found: list[Value] = []
        for n in node.all_input_nodes:
            for value in parts_of(self.env[n]):
                if isinstance(value, Value) and value not in found:
                    found.append(value)
        if any(v.domain is Domain.EDGE for v in found):  # what a message reads are rows
            found = [v for v in found if v not in self.learned]
        return found

    def is_graph(self, value: Any) -> bool:
        """Whether a value is a graph, its edges turned around or not."""
        return isinstance(value, Value) and (value in self.program.graphs or value in self.turned)


def parts_of(held: Any) -> Iterable[Any]:
    """What a node stands for: one thing, or several."""
    if isinstance(held, dict):
        return held.values()
    return held if isinstance(held, tuple) else (held,)

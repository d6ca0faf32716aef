"""What a conv is called with, as the author of its program reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.ops.base import Loops
from pyg_incremental.program.steps import (  # fmt: skip
    Domain,
    NotIncremental,
    Program,
    Relation,
    Value,
)
from pyg_incremental.typing import Format


@dataclass(frozen=True)
class Arguments:
    """What a conv is called with, as values of a program.

    Attributes:
        program: The program being written.
        conv: The conv; parameters are read when the program runs, so steps refer to it and do not
            copy from it.
        name: Where it stands in the model, such as `convs.0`.
        args: Its arguments by name; tensors as values.
        weights: The values of a sparse adjacency, or None.
        examples: Rows of values on a small graph: they tell shapes and dtypes.
        relation: The graph that the conv was given.
        loops: Which edges count: all ('keep') or all but self-loops ('drop').
        turned: Whether the edges were turned around before the conv got them.
        like: A tensor of the dtype and the device of node features, where no argument tells.
    """

    program: Program
    conv: Any
    name: str
    args: Mapping[str, Any]
    weights: Value | None
    examples: Mapping[Value, Tensor] = field(default_factory=dict, repr=False)
    relation: Relation = field(default_factory=Relation)
    loops: Loops = "keep"
    turned: bool = False
    like: Tensor | None = field(default=None, repr=False)

    def node(self, name: str = "x") -> Value:
        """A node argument; the pair `(x, x)` stands for `x`."""
        value = self.args.get(name)
        if isinstance(value, (tuple, list)) and len(value) == 2 and value[0] is value[1]:
            value = value[0]
        if isinstance(value, Value) and value.domain is Domain.NODE:
            return value
        raise NotIncremental(f"'{name}' is not one set of node features")

    def learned(self, name: str) -> Value:
        """A parameter of the conv with one row for each node, as node rows."""
        conv = self.conv
        return self.program.learned(
            f"{self.name}.{name}", lambda: getattr(conv, name), self.source_kind
        )

    def ends(self, name: str = "x") -> tuple[Value, Value | None]:
        """A node argument at the source and at the target of an edge.

        One set of features is both; of a pair the second may be None.
        """
        value = self.args.get(name)
        pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        if len(pair) != 2 or pair[0] is None:
            raise NotIncremental(f"'{name}' is neither node features nor a pair of them")
        for end in pair:
            if end is not None and not (isinstance(end, Value) and end.domain is Domain.NODE):
                raise NotIncremental(f"'{name}' is not computed node by node")
        source, target = pair
        if source is not target and self.conv.flow == "target_to_source":
            raise NotIncremental("it is called with two sets of nodes and flow='target_to_source'")
        if source.kind != self.source_kind or (target and target.kind != self.target_kind):
            raise NotIncremental(f"'{name}' does not belong to the nodes that the edges connect")
        return pair

    def both_ends(self, name: str = "x") -> tuple[Value, Value]:
        """Like `ends`, where the features of the target have to be there."""
        source, target = self.ends(name)
        if target is None:
            raise NotIncremental(f"'{name}' has no features at the target")
        return source, target

    def edge(self, name: str) -> Value | None:
        """An edge argument, or None."""
        value = self.args.get(name)
        if value is None or (isinstance(value, Value) and value.domain is Domain.EDGE):
            return value
        raise NotIncremental(f"'{name}' is not computed edge by edge from the edge inputs")

    def coo_edge(self, name: str) -> Value | None:
        """An edge argument of a graph handed in as an `edge_index`, or None."""
        value = self.edge(name)
        if value is not None and not self.is_coo:
            raise NotIncremental(f"'{name}' beside a sparse matrix is in the order of its entries")
        return value

    def only(self, *names: str) -> None:
        """Refuse any other argument that is given."""
        for name, value in self.args.items():
            is_graph = isinstance(value, Value) and value in self.program.graphs
            if name not in names and value is not None and not is_graph:
                raise NotIncremental(f"it is called with '{name}'")

    def only_coo(self) -> None:
        """Refuse any graph but an `edge_index`."""
        if not self.is_coo:
            raise NotIncremental(f"its program takes an edge_index (got {self.format})")

    @property
    def format(self) -> Format:
        """The format in which the graph was handed in."""
        return self.relation.format

    @property
    def is_coo(self) -> bool:
        """Whether the graph was handed in as an `edge_index`."""
        return self.format == "coo"

    @property
    def source_kind(self) -> str:
        """The kind of nodes whose rows messages are made of."""
        return self.relation.target if self.reverse else self.relation.source

    @property
    def target_kind(self) -> str:
        """The kind of nodes whose rows are computed."""
        return self.relation.source if self.reverse else self.relation.target

    @property
    def fused(self) -> bool:
        """Whether PyG runs `message_and_aggregate`; it reads weights differently."""
        return bool(self.conv.fuse) and not self.is_coo

    @property
    def reverse(self) -> bool:
        """Whether messages flow against the edges."""
        return bool(self.conv.flow == "target_to_source") != self.turned

    @property
    def is_sum(self) -> bool:
        """Whether the conv adds its messages up."""
        return type(self.conv.aggr_module) is aggr.SumAggregation

    @property
    def is_mean(self) -> bool:
        """Whether the conv takes the mean of its messages."""
        return type(self.conv.aggr_module) is aggr.MeanAggregation

    @property
    def is_linear(self) -> bool:
        """Whether a linear map may be moved in front of the aggregation."""
        return self.is_sum or self.is_mean

    def example(self, value: Value) -> Tensor:
        """Rows of a value on a small graph, `[n, ...]`: they tell its shape and dtype."""
        if value in self.examples:
            return self.examples[value]
        step = next(s for s in self.program.steps if s.output is value)
        if step.computes:
            rows = [self.example(v) for v in step.inputs]
            made: Tensor = step.compute(*(r[: min(map(len, rows))] for r in rows))
            return made
        alike = (v for v in self.examples if (v.domain, v.kind) == (value.domain, value.kind))
        count = next((len(self.examples[v]) for v in alike), 2)
        if step.constant is not None:
            return self._of_nodes().new_full((count, 1), step.constant)
        row = step.row_like(self.example)
        if row is None:
            raise NotIncremental(f"the shape of '{value}' is not known before it runs")
        return row.new_zeros(count, *row.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of node features."""
        return self._of_nodes().dtype

    def _of_nodes(self) -> Tensor:
        """Example rows of node features, which have the dtype and the device of all of them."""
        read = [v for a in self.args.values() for v in (a if isinstance(a, (tuple, list)) else [a])]
        found = (self.example(v) for v in read if isinstance(v, Value) and v.domain is Domain.NODE)
        return next(found, torch.empty(0) if self.like is None else self.like)

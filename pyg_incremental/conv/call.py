"""One call of a conv inside a model, as the author of a conv's program sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import MessagePassing, aggr

from pyg_incremental.aggregate import Neighborhood, Rows, SoftmaxSum, Sum
from pyg_incremental.aggregate.base import Loops
from pyg_incremental.program import Domain, Program, Value


class NotIncremental(Exception):
    """This call cannot be written as a program; the message is the reason.

    The conv then runs on all rows.
    """


_ROW_LOCAL = (
    aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation,
    aggr.MulAggregation, aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation,
    aggr.PowerMeanAggregation, aggr.MedianAggregation, aggr.QuantileAggregation,
)  # fmt: skip


def is_row_local(module: torch.nn.Module | None) -> bool:
    """Whether an aggregation module computes each row from that row's messages only.

    LSTM and GRU do not: they pad to the largest degree.
    """
    if isinstance(module, aggr.MultiAggregation):
        return all(is_row_local(m) for m in module.aggrs)
    return type(module) in _ROW_LOCAL


@dataclass(frozen=True)
class ConvCall:
    """A conv called on values of a program.

    Attributes:
        program: The program being written.
        conv: The conv; parameters are read when the program runs, so steps refer to it and do not
            copy from it.
        name: Where it stands in the model, such as `convs.0`.
        args: Its arguments by name; tensors as values.
        weights: The values of a sparse adjacency, or None.
    """

    program: Program
    conv: Any
    name: str
    args: Mapping[str, Any]
    weights: Value | None

    # Arguments -----------------------------------------------------------------------------------

    def node(self, name: str = "x") -> Value:
        """A node argument; the pair `(x, x)` stands for `x`."""
        value = self.args[name]
        if isinstance(value, (tuple, list)) and len(value) == 2 and value[0] is value[1]:
            value = value[0]
        if isinstance(value, Value) and value.domain is Domain.NODE:
            return value
        raise NotIncremental(f"'{name}' is not one set of node features")

    def edge(self, name: str) -> Value | None:
        """An edge argument, or None."""
        value = self.args.get(name)
        if value is None or (isinstance(value, Value) and value.domain is Domain.EDGE):
            return value
        raise NotIncremental(f"'{name}' is not computed edge by edge from the edge inputs")

    def only(self, *names: str) -> None:
        """Refuse any other argument that is given."""
        for name, value in self.args.items():
            if name not in (*names, "edge_index") and value is not None:
                raise NotIncremental(f"it is called with '{name}'")

    @property
    def is_coo(self) -> bool:
        """Whether the graph was handed in as an `edge_index`."""
        return self.program.format == "coo"

    @property
    def fused(self) -> bool:
        """Whether PyG runs `message_and_aggregate`; it reads weights differently."""
        return bool(self.conv.fuse) and not self.is_coo

    @property
    def reverse(self) -> bool:
        """Whether messages flow against the edges."""
        return bool(self.conv.flow == "target_to_source")

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

    # Steps ---------------------------------------------------------------------------------------

    def map(
        self,
        part: str,
        fn: Callable[..., Tensor],
        *inputs: Value,
        shared: str = "",
        costly: bool = False,
    ) -> Value:
        """A row map.

        `shared` names a map that does not depend on this conv, so that all convs share it.
        """
        name = shared or f"{self.name}.{part}"
        key = shared or (id(self.conv), part)
        return self.program.map(name, fn, inputs, key=key, costly=costly)

    def weight(self, name: str = "edge_weight") -> Value | None:
        """The edge weights of a COO graph as one float per edge, or None."""
        value = self.edge(name)
        return None if value is None else flat_weight(self.program, value)

    def matrix_weights(self) -> Value | None:
        """The values of a sparse adjacency as one float per edge, or None."""
        return None if self.weights is None else flat_weight(self.program, self.weights)

    def sum(
        self, source: Value, weight: Value | None, loops: Loops = "keep", part: str = "sum"
    ) -> Value:
        """Sum of `weight * source` over the in-edges."""
        inputs = (source,) if weight is None else (source, weight)
        name = f"{self.name}.{part}"
        return self.program.add(
            ("sum", id(source), id(weight), loops, self.reverse),
            lambda: Sum(
                self.program.value(name, Domain.NODE), inputs, loops, self.reverse, source, weight
            ),
        )

    def check_row_local(self) -> torch.nn.Module:
        """The aggregation module, which has to compute each row from that row's messages only."""
        module: torch.nn.Module = self.conv.aggr_module
        if not is_row_local(module):
            raise NotIncremental(f"{module} is not local to rows")
        return module

    def degree(self, weight: Value | None, loops: Loops = "keep") -> Value:
        """Sum of the weights of the in-edges, or their number, `[num_nodes, 1]`."""
        ones = self.program.ones()
        inputs = (ones,) if weight is None else (ones, weight)
        return self.program.add(
            ("sum", id(ones), id(weight), loops, self.reverse),
            lambda: Sum(
                self.program.value("degree", Domain.NODE), inputs, loops, self.reverse, ones, weight
            ),
        )

    def softmax(
        self,
        source: Value,
        target: Value,
        edge: Value | None,
        loop: Value | None,
        slope: float,
        loops: Loops,
    ) -> Value:
        """Softmax-weighted sum over the in-edges; see `SoftmaxSum`."""
        inputs = tuple(v for v in (source, target, edge, loop) if v is not None)
        name = self.program.value(f"{self.name}.softmax", Domain.NODE)
        step = SoftmaxSum(name, inputs, loops, self.reverse, source, target, edge, loop, slope)
        return self.program.add(None, lambda: step)

    def rows(
        self,
        part: str,
        fn: Callable[[Neighborhood], Tensor],
        sources: tuple[Value, ...] = (),
        targets: tuple[Value, ...] = (),
        edges: tuple[Value, ...] = (),
        loops: Loops = "keep",
        reverse: bool | None = None,
    ) -> Value:
        """Anything that a row computes from its in-neighbourhood."""
        back = self.reverse if reverse is None else reverse
        inputs = (*sources, *targets, *edges)
        key = ("rows", id(self.conv), part, loops, back, *map(id, inputs))
        name = f"{self.name}.{part}"
        return self.program.add(
            key,
            lambda: Rows(
                self.program.value(name, Domain.NODE),
                inputs,
                loops,
                back,
                fn,
                sources,
                targets,
                edges,
            ),
        )

    def reduce(self, source: Value, weight: Value | None) -> Value:
        """Aggregate `weight * source` with the conv's own `aggr_module`."""
        if self.is_sum:
            return self.sum(source, weight)
        if self.is_mean:
            return self.map("mean", divided, self.sum(source, weight), self.degree(None))
        module = self.check_row_local()

        def fn(around: Neighborhood) -> Tensor:
            messages = around.source[0]
            if around.edge:
                messages = messages * around.edge[0][:, None]
            return reduced(module, messages, around.index, around.num_rows)

        return self.rows("aggr", fn, (source,), edges=() if weight is None else (weight,))


def reduced(
    module: torch.nn.Module, messages: Tensor, index: Tensor, num_rows: int, dim: int = -2
) -> Tensor:
    """Messages reduced by an aggregation module, `[num_rows, ...]`.

    `index` names the row of each message, ascending, `[num_edges]`. Rows without a message are left
    out, because some modules fail on them if they come first or last; what such a row gets is found
    between two rows that have one.
    """
    rows, place = index.unique_consecutive(return_inverse=True)
    if rows.shape[0] == num_rows:
        out: Tensor = module(messages, index, dim_size=num_rows, dim=dim)
        return out
    two = messages.new_zeros((2, *messages.shape[1:]))
    alone: Tensor = module(two, torch.tensor([0, 2], device=index.device), dim_size=3, dim=dim)
    full = alone[1:2].repeat(num_rows, *[1] * (alone.dim() - 1))
    if rows.shape[0]:
        full[rows] = module(messages, place, dim_size=rows.shape[0], dim=dim)
    return full


def divided(total: Tensor, count: Tensor) -> Tensor:
    """A mean from a sum and a number; zero for none."""
    return total / count.clamp_min(1)


def flat_weight(program: Program, value: Value) -> Value:
    """Edge weights `[num_edges]` or `[num_edges, 1]` as one number per edge."""
    return program.map("edge_weight", _flat, [value], key="flat")


def _flat(w: Tensor) -> Tensor:
    if w.dim() > 1 and w.shape[1:].numel() != 1:
        raise NotIncremental(f"edge weights have shape {list(w.shape)}, not one number per edge")
    w = w.reshape(-1)
    return w if w.dtype.is_floating_point else w.to(torch.get_default_dtype())


def linear(
    module: torch.nn.Module, bias: bool = True, bias_of: torch.nn.Module | None = None
) -> Callable[[Tensor], Tensor]:
    """A linear layer as a function that reads its parameters when it runs.

    Args:
        module: The layer.
        bias: Whether its bias is added.
        bias_of: Another layer whose bias is added in its place.
    """
    for layer in (module, bias_of):
        if layer is not None and (
            type(layer).forward not in (torch.nn.Linear.forward, PyGLinear.forward)
            or layer._forward_hooks
        ):
            raise NotIncremental(f"{type(layer).__name__} stands in the place of a linear layer")
    weight, biases = module._parameters, (bias_of or module)._parameters
    if (bias or bias_of is not None) and biases.get("bias") is not None:
        return lambda x: F.linear(x, weight["weight"], biases["bias"])  # type: ignore[arg-type]
    return lambda x: F.linear(x, weight["weight"])  # type: ignore[arg-type]


def has_hooks(conv: MessagePassing) -> bool:
    """Whether user hooks or an explainer watch the conv; it then has to run as it is."""
    return bool(conv.explain) or any(
        bool(hooks) for name, hooks in vars(conv).items() if name.endswith(("_hooks",)) and hooks
    )

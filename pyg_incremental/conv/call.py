"""One call of a conv inside a model, as the author of a conv's program sees it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn import aggr

from pyg_incremental.conv.attend import by_rows as attended_by_rows
from pyg_incremental.conv.attend import settled
from pyg_incremental.conv.primitives import Primitives
from pyg_incremental.conv.reduction import reduction
from pyg_incremental.ops import Message
from pyg_incremental.program.steps import NotIncremental, Value


class ConvCall(Primitives):
    """A conv called on values of a program, and the words that it may be written with."""

    def reduce(
        self,
        message: Message,
        weight: Value | None = None,
        *,
        module: torch.nn.Module | None = None,
        part: str = "aggr",
    ) -> Value:
        """Messages aggregated over the in-edges, `[num_nodes, channels]`.

        Args:
            message: A node value, or what `weighted` or `message` returned; messages of more than
                one dimension are taken as flat rows.
            weight: One number per edge, for a message that is a node value.
            module: An aggregation module; the conv's own `aggr_module` by default.
            part: Name of the steps.

        Raises:
            NotIncremental: If the module mixes rows, as LSTM does.
        """
        if isinstance(message, Value):
            message = self.weighted(message, weight)
        return reduction(self, module or self.conv.aggr_module, message, part)

    def attend(
        self,
        fn: Callable[..., tuple[Tensor, Tensor]],
        source: tuple[Value, ...],
        target: tuple[Value, ...],
        edges: tuple[Value | None, ...] = (),
        *,
        heads: int,
        loop: tuple[Value, ...] | None = None,
        module: torch.nn.Module | None = None,
        part: str = "attention",
    ) -> Value:
        """Softmax-weighted messages, aggregated with `aggr`, `[num_nodes, heads * channels]`.

        Args:
            fn: Like that of `message`, but returns (logits `[k, heads]`, values
                `[k, heads, channels]`).
            source: As in `message`.
            target: As in `message`.
            edges: As in `message`.
            heads: Number of heads.
            loop: For every edge value the rows of a self-loop which every node gets on top (an
                empty tuple if there are no edge values); None for no such loop.
            module: An aggregation module; the conv's own `aggr_module` by default.
            part: Name of the steps.

        Raises:
            NotIncremental: If self-loops would need edge rows that are made of node rows.
        """
        module = module or self.conv.aggr_module
        if loop is not None and self.reads_ends(*edges):
            raise NotIncremental("edge rows made of node rows have none for self-loops")
        message = self.message(fn, source, target, edges, part)
        if type(module) not in (aggr.SumAggregation, aggr.MeanAggregation):
            return attended_by_rows(self, module, message, loop, part)
        state = self.softmax_of(message, loop, f"{part}_softmax")
        return settled(self, module, state, heads, loop is not None, part)

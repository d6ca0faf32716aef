"""`SortAggregation` on some rows; what it takes from all others is handed in.

PyG's module makes one block of all rows (see `aggregate.padded`). Its stand-in here computes each
row by itself, or with a given padding, and writes down what the padding of all rows is made of.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.ops.padded import SEEN


@dataclass
class Sorting:
    """One run of a module on some rows.

    Attributes:
        wanted: The rows whose messages are all there; others may come out as anything.
        padding: As in `PaddedRows.fn`.
        seen: What is known of all rows, `[rows, 4]` for each sort so far.
    """

    wanted: slice
    padding: Tensor | None
    seen: list[Tensor] = field(default_factory=list)

    def known(self, size: int) -> Tensor:
        """What is known of the wanted rows, float64 `[wanted, sorts * 4]`.

        Raises:
            UnsupportedModelError: If not every sort was asked for `size` rows: one for each node.
        """
        sizes = [len(seen) for seen in self.seen]
        if not sizes or {*sizes} != {size}:
            raise UnsupportedModelError(
                f"a SortAggregation inside a conv has to make {size} rows, one for each node (got "
                f"{sizes})"
            )
        return torch.cat([seen[self.wanted] for seen in self.seen], 1)


class SortOfSome(aggr.Aggregation):
    """Stands in for a `SortAggregation`.

    Args:
        module: That module.
        run: Takes down what is known of the rows, or None if nobody asks.
    """

    def __init__(self, module: nn.Module, run: Sorting | None) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """As that of the module, for a sorted `index`: int64 `[num_messages]`.

        Messages `x` are `[num_messages, channels]`, and `[dim_size, k * channels]` comes out.
        """
        self.assert_index_present(index)
        self.assert_sorted_index(index)
        self.assert_two_dimensional_input(x, dim)
        assert index is not None
        assert dim_size is not None
        run, module = self.run, self.module
        seen = _seen(x, index, dim_size)
        padding = None
        if run is not None:
            padding = None if run.padding is None else run.padding[len(run.seen)]
            run.seen.append(seen)
        if padding is None or run is None:
            # Rows that show their padding wait for it; they may not spoil that of others.
            alone = seen[:, 3] > 0
            x = x.masked_fill(alone[index].unsqueeze(1), 0)
            padding = x.new_tensor([1.0, 0.0], dtype=torch.float64)
        else:
            real = torch.zeros(dim_size, dtype=torch.bool, device=x.device)
            real[run.wanted] = True
            x = torch.where(real[index].unsqueeze(1), x, padding[1].to(x))
        # A row more, which has the length and the smallest message of all.
        length = int(padding[0])
        x = torch.cat([x, padding[1].to(x).expand(length, x.shape[1])])
        index = torch.cat([index, index.new_full((length,), dim_size)])
        out: Tensor = module(x, index, dim_size=dim_size + 1, dim=dim)
        return out[:-1]


def _seen(x: Tensor, index: Tensor, size: int) -> Tensor:
    """What is known of each row, float64 `[size, 4]`; see `SEEN`."""
    count = torch.bincount(index, minlength=size)
    low = x.new_zeros(size).scatter_reduce(0, index, x.amin(1), "amin", include_self=False)
    fill = low - 1
    shows = (count > 0) & ~(fill < low)
    by_value = x[:, -1].argsort(stable=True)
    at = by_value[index[by_value].argsort(stable=True)]
    one, two = at[:-1], at[1:]
    tie = (index[one] == index[two]) & (x[one, -1] == x[two, -1]) & (x[one] != x[two]).any(1)
    shows[index[one[tie]]] = True
    known = x.new_empty(size, SEEN, dtype=torch.float64)
    known[:, 0] = count
    known[:, 1] = torch.where(count > 0, -low.double(), -torch.inf)
    known[:, 2] = torch.where(count > 0, -fill.double(), -torch.inf)
    known[:, 3] = shows
    return known


def is_sort(module: Any) -> bool:
    """Whether a module is PyG's own `SortAggregation`, which nobody watches."""
    watched = getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None)
    return type(module) is aggr.SortAggregation and not watched


def sorts(module: nn.Module) -> bool:
    """Whether there is such a module in another one."""
    return any(map(is_sort, module.modules()))


def with_stand_ins(module: nn.Module, run: Sorting | None) -> nn.Module:
    """The module with stand-ins for such modules; it shares everything else."""
    if is_sort(module):
        return SortOfSome(module, run)
    parts = {k: m if m is None else with_stand_ins(m, run) for k, m in module._modules.items()}
    if all(parts[k] is m for k, m in module._modules.items()):
        return module
    twin = module.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_modules"] = parts
    return twin

"""A variance in a `forward` is one step, and what only looks like one is not."""

import pytest
import torch
from torch import nn
from torch_geometric.utils import scatter

from tests.side_by_side import SideBySide
from tests.zoo import Case


def mean(rows, ids, count):
    return scatter(rows, ids, 0, count, "mean")


DIFFERENCES = {
    "variance": lambda m, i, n, e: mean(m * m, i, n) - mean(m, i, n) ** 2,
    "by torch": lambda m, i, n, e: torch.subtract(mean(m * m, i, n), mean(m, i, n).square()),
    "in place": lambda m, i, n, e: mean(m * m, i, n).sub_(mean(m, i, n) * mean(m, i, n)),
    "turned": lambda m, i, n, e: mean(m, i, n) ** 2 - mean(m * m, i, n),
    "sum": lambda m, i, n, e: scatter(m * m, i, 0, n, "sum") - mean(m, i, n) ** 2,
    "alpha": lambda m, i, n, e: torch.sub(mean(m * m, i, n), mean(m, i, n) ** 2, alpha=2),
    "other end": lambda m, i, n, e: mean(m * m, e, n) - mean(m, i, n) ** 2,
    "other rows": lambda m, i, n, e: mean(m * m, i, n) - mean(m.tanh(), i, n) ** 2,
}


class Spread(nn.Module):
    def __init__(self, difference):
        super().__init__()
        self.difference = difference

    def forward(self, x, edge_index):
        source, target = edge_index
        messages = x[source] * x[target].sigmoid()
        return self.difference(messages, target, x.size(0), source)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_of_means(name, seed):
    sides = SideBySide(Case(name, lambda: Spread(DIFFERENCES[name])), seed=seed)
    assert sides.inc.mode == "incremental"
    found = any("variance" in str(s.output) for s in sides.inc.program.steps)
    assert found == (name in ("variance", "in place"))
    sides.walk()

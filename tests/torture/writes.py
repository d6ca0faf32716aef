"""Weights that another process shares and writes to, beside updates.

Whoever updates or reads after such a write is told of it, or is given the answer of the model as it
is now; after `refresh()` everything is right again. A look at shared memory is a look at all of it.
"""

import os

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, SAGEConv

from pyg_incremental import StaleStateError, to_incremental
from tests.trust.small import CHANNELS, drawn, edge

NODES = 40
TABLE = 1500
"""Rows of a learned table, of which a glance takes in a small part."""


class Table(nn.Module):
    """A conv on rows of a table."""

    def __init__(self):
        super().__init__()
        self.table, self.conv = nn.Embedding(TABLE, 32), SAGEConv(32, 4)

    def forward(self, ids, edge_index):
        return self.conv(self.table(ids), edge_index)


def models():
    """A model and what it takes before the edges."""
    x = drawn(NODES)[0]
    return (
        (Table, torch.arange(NODES)),
        (lambda: GCN(CHANNELS, 8, 2, 4), x),
        (lambda: GAT(CHANNELS, 8, 2, 4), x),
    )


def writes(say, seed, count):
    """Let so many writes come from another process; returns what came of them."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    done = {"writes": 0, "told when updating": 0, "told when reading": 0}
    while done["writes"] < count:
        make, given = models()[rng.integers(3)]
        torch.manual_seed(int(rng.integers(1 << 30)))
        model = make().eval().share_memory()
        inc = to_incremental(model)
        inc(given, drawn(NODES, 3 * NODES, int(rng.integers(100)))[1])
        for _ in range(int(rng.integers(1, 20))):
            done["writes"] += 1
            say(f"seed {seed}: write {done['writes']}")
            for _ in range(int(rng.integers(0, 12))):
                inc.apply_delta(edge_index_add=edge(*rng.integers(0, NODES, 2).tolist()))
            _in_another_process(model, int(rng.integers(1 << 30)))
            done["told when " + _told(inc, rng)] += 1
            inc.refresh()
            assert inc.verify() < 1e-4
            assert inc.check() == []
    return done


def _told(inc, rng):
    """Update or read: that raises; where it was found out."""
    reads = rng.random() < 0.5
    try:
        if reads:
            inc.read([0])
        else:
            inc.apply_delta(edge_index_add=edge(*rng.integers(0, NODES, 2).tolist()))
    except StaleStateError:
        return "reading" if reads else "updating"
    raise AssertionError(f"a write to {inc.changed_parameters()} was not noticed")


def _in_another_process(model, seed):
    child = os.fork()
    if child == 0:
        try:
            torch.manual_seed(seed)
            _write(model, np.random.default_rng(seed))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def _write(model, rng):
    """Change one number, a row or all of one weight, in one of the ways in which that is done."""
    weights = [*model.parameters()]
    weight = weights[rng.integers(len(weights))]
    rows = weight.data.view(-1, weight.shape[-1])
    row = int(rng.integers(len(rows)))
    way = rng.integers(5)
    if way == 0:
        rows[row, rng.integers(rows.shape[1])] += 1.0
    elif way == 1:
        rows[row] += torch.rand(rows.shape[1]) + 0.1
    elif way == 2:
        weight.data.mul_(1.5).add_(torch.rand(weight.shape))
    elif way == 3:
        with torch.no_grad():
            weight.add_(1.0)
    else:
        weight.grad = torch.zeros_like(weight)
        weight.grad.view(rows.shape)[row] = 1.0
        torch.optim.SGD([weight], 0.5, fused=bool(rng.integers(2))).step()

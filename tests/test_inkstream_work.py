"""The three models of InkStream: never more rows read again than by its rules, and fewer channels.

`InkStream` follows the rules of the paper (Wu, Li and Mitra, 2023) in plain Python, for the models
below. Messages are kept. A retracted message that equals the stored extremum resets its channel. A
row with a reset that no inserted message covers is read again over all of its in-edges. A row that
comes out as it was sends nothing. None of it comes from the package under test.

The GCN is not normalised, as a degree would make every message of a node new.
"""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

from pyg_incremental import to_incremental
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.strategies import generator, index

NODES, EDGES, DELTAS, SIZE = 150, 700, 30, 4
WIDTH = 8


class Stack(nn.Module):
    """Convs with a ReLU between them."""

    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


MODELS = {
    "gcn-min": (
        lambda: Stack(*(GCNConv(WIDTH, WIDTH, normalize=False, aggr="min") for _ in range(2))),
        min,
    ),
    "sage-min": (lambda: Stack(*(SAGEConv(WIDTH, WIDTH, aggr="min") for _ in range(2))), min),
    "gin-max": (lambda: Stack(*(GINConv(mlp(), aggr="max") for _ in range(5))), max),
}


# InkStream in plain Python ########################################################################


def product(lin, row):
    """A linear layer on one row, always in the same order: equal rows give equal results."""
    bias = [0.0] * len(lin.weight) if lin.bias is None else lin.bias.tolist()
    return [
        sum((w * v for w, v in zip(weights, row, strict=True)), b)
        for weights, b in zip(lin.weight.tolist(), bias, strict=True)
    ]


def relu(row):
    return [max(v, 0.0) for v in row]


def plus(*rows):
    return [sum(values) for values in zip(*rows, strict=True)]


def message_of(conv, row):
    return product(conv.lin, row) if isinstance(conv, GCNConv) else row


def result_of(conv, best, row):
    """What a conv makes of the extremum of a node's messages and of the node's own row."""
    if isinstance(conv, GCNConv):
        return plus(best, conv.bias.tolist())
    if isinstance(conv, SAGEConv):
        return plus(product(conv.lin_l, best), product(conv.lin_r, row))
    first, _, second = conv.nn
    both = plus(best, [(1 + float(conv.eps)) * v for v in row])
    return product(second, relu(product(first, both)))


class InkStream:
    """All messages, extrema and rows of a model, kept by the rules of the paper."""

    def __init__(self, convs, best_of, x, pairs):
        self.convs, self.best_of = list(convs), best_of
        self.sources = [set() for _ in x]
        self.targets = [set() for _ in x]
        for u, v in pairs:
            self.sources[v].add(u)
            self.targets[u].add(v)
        self.rows, self.messages, self.best = [x], [], []
        for at, conv in enumerate(self.convs):
            rows = self.rows[at]
            self.messages.append([message_of(conv, row) for row in rows])
            self.best.append([self.read(at, v) for v in range(len(x))])
            self.rows.append([self.result(at, v) for v in range(len(x))])

    def read(self, at, node):
        """The extremum of all messages to a node, zero if there is none."""
        there = [self.messages[at][u] for u in self.sources[node]]
        if not there:
            return [0.0] * len(self.messages[at][node])
        return [self.best_of(values) for values in zip(*there, strict=True)]

    def result(self, at, node):
        made = result_of(self.convs[at], self.best[at][node], self.rows[at][node])
        return made if at == len(self.convs) - 1 else relu(made)

    def update(self, gone, came):
        """Take one delta; returns for each layer how many rows were read again and touched."""
        before = [len(sources) for sources in self.sources]
        for u, v in gone:
            self.sources[v].remove(u)
            self.targets[u].remove(v)
        pushed = [set(targets) for targets in self.targets]  # edges that were there and still are
        for u, v in came:
            self.sources[v].add(u)
            self.targets[u].add(v)
        changed, work = set(), []
        for at, conv in enumerate(self.convs):
            old = self.messages[at]
            new = dict(enumerate(old))
            new.update({u: message_of(conv, self.rows[at][u]) for u in changed})
            out, into = {}, {}
            for u, v in gone:
                out.setdefault(v, []).append(old[u])
            for u, v in came:
                into.setdefault(v, []).append(new[u])
            for u in changed:
                if new[u] != old[u]:
                    for v in pushed[u]:
                        out.setdefault(v, []).append(old[u])
                        into.setdefault(v, []).append(new[u])
            self.messages[at] = [new[u] for u in range(len(old))]
            again, dirty = 0, set() if isinstance(conv, GCNConv) else set(changed)
            for v in {*out, *into}:
                best, read = self.row(at, v, before[v], out.get(v, []), into.get(v, []))
                again += read
                if best != self.best[at][v]:
                    self.best[at][v] = best
                    dirty.add(v)
            changed = {v for v in dirty if self.renew(at, v)}
            work.append((again, len({*out, *into})))
        return work

    def row(self, at, node, before, out, into):
        """The new extremum of a row, and whether it had to be read again."""
        if not self.sources[node] or not before:
            return self.read(at, node), False  # nothing is left, or nothing was there
        stored, best_of = self.best[at][node], self.best_of
        made, exposed = list(stored), False
        for f, value in enumerate(stored):
            offered = [row[f] for row in into]
            reset = any(row[f] == value for row in out)
            if not reset:
                made[f] = best_of([value, *offered])
            elif offered and best_of([value, *offered]) == best_of(offered):
                made[f] = best_of(offered)  # covered
            else:
                exposed = True
        return (self.read(at, node), True) if exposed else (made, False)

    def renew(self, at, node):
        before = self.rows[at + 1][node]
        self.rows[at + 1][node] = self.result(at, node)
        return self.rows[at + 1][node] != before


# Side by side #####################################################################################


def a_delta(rng, there):
    at = rng.choice(len(there), SIZE, replace=False)
    drawn = {(int(u), int(v)) for u, v in rng.integers(0, NODES, (SIZE, 2))}
    return [there[i] for i in at], sorted(drawn - set(there))


def exact(rows):
    """Numbers whose products and sums are exact in float64, in whatever order they are added.

    Else a row that is computed in another order than before has changed by rounding.
    """
    return (64 * rows).round() / 64


@pytest.mark.parametrize("backend", ["compiled", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_reads_no_more_than_inkstream(name, backend, seed):
    make, best_of = MODELS[name]
    torch.manual_seed(seed)
    rng = generator([seed, list(MODELS).index(name)])
    model = make().double().eval()
    x = exact(torch.randn(NODES, WIDTH).double())
    for parameter in model.parameters():
        parameter.data = exact(parameter.data)
    pairs = sorted({(int(u), int(v)) for u, v in rng.integers(0, NODES, (EDGES, 2))})
    world = World(x, pairs)
    inc = to_incremental(model, backend=backend)
    inc(x, index(pairs))
    assert inc.mode == "incremental"
    assert_close(inc.out, full(model, world))
    extrema = [s.output.name for s in inc.program.steps if s.kind in ("min", "max")]
    assert len(extrema) == len(model.convs)
    ink = InkStream(model.convs, best_of, x.tolist(), pairs)

    rows = theirs = touched = channels = 0
    for _ in range(DELTAS):
        gone, came = a_delta(rng, world.pairs())
        up = inc.apply_delta(edge_index_del=index(gone), edge_index_add=index(came))
        world.apply(edge_index_del=index(gone), edge_index_add=index(came))
        work = ink.update(gone, came)
        assert_close(inc.out, full(model, world))
        assert_close(
            torch.tensor(ink.rows[-1], dtype=torch.float64), inc.out, what="InkStream's rules"
        )
        for step, (again, reached) in zip(extrema, work, strict=True):
            ours = up.stats[step]
            assert ours.reread <= again
            assert ours.channels <= again * WIDTH
            assert ours.rows <= reached
            rows, theirs = rows + ours.reread, theirs + again
            touched, channels = touched + reached, channels + ours.channels
    print(
        f"\n{name} on {backend} kernels, {DELTAS} deltas, {touched:,} rows reached; read again: "
        f"{theirs:,} rows and {theirs * WIDTH:,} channels by InkStream's rules, "
        f"{rows:,} rows and {channels:,} channels here"
    )
    assert 0 < rows <= theirs < touched
    assert channels < theirs * WIDTH

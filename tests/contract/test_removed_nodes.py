"""A node that was removed leaves nothing behind: all that it came with is zero."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

from pyg_incremental import GraphDelta, IncrementalWarning, to_incremental
from tests.closeness import assert_close
from tests.strategies import generator, index

SIZE = 12


class Cell(nn.Module):
    """Features, a state, a kind, and a mask: four inputs of the nodes."""

    def __init__(self):
        super().__init__()
        self.kinds, self.c = nn.Embedding(4, 3), GCNConv(5 + 4 + 3, 4)

    def forward(self, x, edge_index, h, kind, seen):
        given = torch.cat([x, h, self.kinds(kind)], 1) * seen[:, None]
        return self.c(given, edge_index).tanh() + h


class Whole(Cell):
    """The same with a step on all rows, which reads all four."""

    def forward(self, x, edge_index, h, kind, seen):
        out = super().forward(x, edge_index, h, kind, seen)
        return out + torch.linalg.svdvals(torch.cat([x, h], 1))[0]


def drawn(rng, count):
    made = torch.Generator().manual_seed(int(rng.integers(1000)))
    return {
        "x": torch.randn(count, 5, generator=made, dtype=torch.float64),
        "h": torch.randn(count, 4, generator=made, dtype=torch.float64),
        "kind": torch.randint(4, (count,), generator=made),
        "seen": torch.rand(count, generator=made) < 0.7,
    }


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("make", [Cell, Whole])
def test_every_input_is_cleared(make, seed):
    rng = generator(seed)
    torch.manual_seed(seed)
    model, rows = make().double().eval(), drawn(rng, SIZE)
    pairs = [(int(u), int(v)) for u, v in rng.integers(0, SIZE, (30, 2))]
    inc = to_incremental(model)
    inc(rows["x"], index(pairs), rows["h"], rows["kind"], rows["seen"])
    for step in range(12):
        count, new = len(rows["x"]), drawn(rng, 1 + step % 2)
        ids = torch.from_numpy(rng.permutation(count)[:3])
        some, gone = drawn(rng, 3), torch.from_numpy(rng.permutation(count + 1)[:2])
        delta = {"x_add": new, "x_changes": {n: (ids, r) for n, r in some.items()}}
        delta["nodes_del"] = gone
        rows = {n: torch.cat([r, new[n]]).index_copy(0, ids, some[n]) for n, r in rows.items()}
        rows = {n: r.index_fill(0, gone, 0) for n, r in rows.items()}
        pairs = [pair for pair in pairs if not {*pair} & {*gone.tolist()}]
        if step % 3 == 0:  # leaving is all that happens
            inc.apply_delta(x_add=new, x_changes=delta["x_changes"])
            inc.apply_delta(nodes_del=gone)
        else:
            inc.apply_delta(**delta)
        want = model(rows["x"], index(pairs), rows["h"], rows["kind"], rows["seen"])
        assert_close(inc.out, want.detach())
    assert inc.check() == []


def test_a_node_with_a_state_is_there_again():
    rng, model = generator(0), Cell().double().eval()
    rows, inc = drawn(rng, SIZE), to_incremental(model)
    inc(rows["x"], index([(0, 1), (2, 3)]), rows["h"], rows["kind"], rows["seen"])
    inc.apply_delta(nodes_del=[1, 2, 5])
    inc.apply_delta(x_changes={"h": ([2], torch.ones(1, 4).double())})
    ids = inc.compact()
    assert (ids < 0).nonzero().flatten().tolist() == [1, 5]


def test_the_way_back_gives_all_of_it():
    rng, model = generator(1), Cell().double().eval()
    rows, inc = drawn(rng, SIZE), to_incremental(model)
    before = inc(rows["x"], index([(0, 1), (2, 3)]), rows["h"], rows["kind"], rows["seen"])
    back = inc.inverse(GraphDelta(nodes_del=[1, 2, 5]))
    inc.apply_delta(nodes_del=[1, 2, 5])
    assert not torch.equal(inc.out, before)
    inc.apply_delta(back)
    assert_close(inc.out, before)


def test_what_names_its_graph_is_not_cleared():
    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = SAGEConv(5, 4)

        def forward(self, x, edge_index, batch):
            h = self.c(x, edge_index)
            return torch.stack([h[batch == g].sum(0) for g in range(int(batch.max()) + 1)])

    x, batch = torch.randn(6, 5).double(), torch.tensor([0, 0, 0, 1, 1, 1])
    model, pairs = Readout().double().eval(), index([(0, 1), (3, 4), (5, 3)])
    inc = to_incremental(model)
    with pytest.warns(IncrementalWarning):
        inc(x, pairs, batch)
    with pytest.warns(IncrementalWarning, match="still count"):
        inc.apply_delta(nodes_del=[4])
    x[4] = 0
    assert_close(inc.out, model(x, pairs[:, [0, 2]], batch).detach())

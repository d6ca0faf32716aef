"""Models that score triples over learned tables: ids are rows to be scored, and count no nodes."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import RGCNConv

from pyg_incremental import InvalidDeltaError, UnsupportedModelError, to_incremental

N, R, E, K = 40, 5, 90, 7


pytestmark = pytest.mark.usefixtures("double")


class Entities(nn.Module):
    """A conv over learned entities; relations have a table that is as wide."""

    def __init__(self):
        super().__init__()
        self.e, self.r, self.c = nn.Embedding(N, 8), nn.Embedding(R, 8), RGCNConv(8, 8, R)

    def rows(self, edge_index, edge_type):
        return self.c(self.e.weight, edge_index, edge_type)


class Named(Entities):
    def forward(self, edge_index, edge_type, head, rel, tail):
        z = self.rows(edge_index, edge_type)
        return (z[head] * self.r(rel) * z[tail]).sum(-1)


class Letters(Entities):
    def forward(self, h, r, t, edge_index, edge_type):
        return Named.forward(self, edge_index, edge_type, h, r, t)


class InColumns(Entities):
    def forward(self, edge_index, edge_type, triples):
        return Named.forward(
            self, edge_index, edge_type, triples[:, 0], triples[:, 1], triples[:, 2]
        )


class InRows(Entities):
    def forward(self, edge_index, edge_type, triples):
        h, r, t = triples
        return Named.forward(self, edge_index, edge_type, h, r, t)


class Candidates(Entities):
    def forward(self, edge_index, edge_type, head, rel, tails):
        z = self.rows(edge_index, edge_type)
        return ((z[head] * self.r(rel))[:, None] * z[tails]).sum(-1)


class AllTails(Entities):
    def forward(self, edge_index, edge_type, head, rel):
        z = self.rows(edge_index, edge_type)
        return (z[head] * self.r(rel)) @ z.t()


class Parameters(Entities):
    """Tables that are parameters."""

    def __init__(self):
        super().__init__()
        self.e, self.r = nn.Parameter(torch.randn(N, 8)), nn.Parameter(torch.randn(R, 8))

    def forward(self, edge_index, edge_type, head, rel, tail):
        z = self.c(self.e, edge_index, edge_type)
        return (z[head] * self.r[rel] * z[tail]).sum(-1)


h, t = torch.randint(N, (2, K), generator=torch.Generator().manual_seed(1))
r = torch.arange(K) % R
IDS = {
    Named: ((h, r, t), "incremental"),
    Parameters: ((h, r, t), "incremental"),
    InColumns: ((torch.stack([h, r, t], 1),), "incremental"),
    InRows: ((torch.stack([h, r, t]),), "incremental"),
    Candidates: ((h, r, torch.stack([t, h, t.flip(0)], 1)), "incremental"),
    AllTails: ((h, r), "incremental"),
}


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("kind", [*IDS, Letters])
def test_triples_over_learned_tables_are_followed(kind):
    ids, mode = IDS[Named if kind is Letters else kind]
    model, edges, kinds = kind().eval(), torch.randint(N, (2, E)), torch.randint(R, (E,))
    edges[0, 0] = N - 1

    def arguments():
        return (*ids, edges, kinds) if kind is Letters else (edges, kinds, *ids)

    inc = to_incremental(model)
    assert torch.allclose(inc(*arguments()), model(*arguments()))
    assert (inc.mode, inc.num_nodes) == (mode, N)
    for _ in range(3):
        new, of = torch.randint(N, (2, 2)), torch.randint(R, (2,))
        inc.apply_delta(
            edge_index_add=new,
            edge_data_add={"edge_type": of},
            edge_index_del=edges[:, :3],
            edge_data_del={"edge_type": kinds[:3]},
        )
        edges, kinds = torch.cat([edges[:, 3:], new], 1), torch.cat([kinds[3:], of])
        assert torch.allclose(inc.out, model(*arguments()))
    gone = int(h[0])
    inc.apply_delta(nodes_del=[gone])
    left = (edges != gone).all(0)
    edges, kinds = edges[:, left], kinds[left]
    assert torch.allclose(inc.out, model(*arguments()))
    assert inc.verify() < 1e-12


def test_the_rows_along_edges_tell_which_table_is_that_of_the_nodes():
    model = Named().eval()
    inc = to_incremental(model)
    inc(torch.randint(3, (2, 9)), torch.arange(9) % R, h % 3, r, t % 3)  # relations would do
    assert inc.num_nodes == N


class Alone(Entities):
    def forward(self, head, rel, tail):
        return (self.e(head) + self.r(rel) - self.e(tail)).norm(dim=-1)


def test_tables_without_a_graph_are_refused_by_a_line_that_says_so():
    with pytest.raises(UnsupportedModelError, match=r"no graph to follow: call it as it is"):
        to_incremental(Alone().eval())(h, r, t)


class Drawn(Named):
    """It counts its nodes in a way that nothing shows."""

    def rows(self, edge_index, edge_type):
        return self.c(edge_type.new_ones(N + 30, 8).double(), edge_index, edge_type)


def test_what_is_not_known_is_asked_for_with_the_line_to_write():
    model = Drawn().eval()
    with pytest.raises(InvalidDeltaError, match=r"roles=\{'head': 'ids'\}.*'head': 'constant'"):
        to_incremental(model)(torch.randint(N, (2, E)), torch.randint(R, (E,)), h, r, t)

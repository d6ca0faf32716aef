"""Five ways to call a model that take ids, each held against the original along 30 deltas."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GCNConv, LGConv, SAGEConv

from pyg_incremental import to_incremental
from tests.closeness import assert_close, tensors_of

N, E, K = 40, 90, 7

pytestmark = pytest.mark.usefixtures("double")


class Ranked(nn.Module):
    """Candidates, some of them padding, with a bias of each."""

    def __init__(self):
        super().__init__()
        self.conv, self.bias = SAGEConv(5, 4), nn.Linear(4, 1)

    def forward(self, x, edge_index, users, candidates):
        h = self.conv(x, edge_index).relu()
        scores = (h[users][:, None] * h[candidates]).sum(-1) + self.bias(h[candidates]).squeeze(-1)
        return scores.masked_fill(candidates == 0, -1e9).log_softmax(-1)


class Session(nn.Module):
    """The mean of the last items against all there are."""

    def __init__(self):
        super().__init__()
        self.table, self.conv = nn.Embedding(N, 4), LGConv()

    def forward(self, edge_index, session):
        h = self.table.weight + self.conv(self.table.weight, edge_index)
        return (h[session].mean(1) @ h.t()).sigmoid()


class Decoded(nn.Module):
    """An autoencoder that decodes all pairs, and the features."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.features = GCNConv(5, 8), GCNConv(8, 4), nn.Linear(4, 5)

    def forward(self, x, edge_index):
        z = self.last(self.first(x, edge_index).relu(), edge_index)
        return torch.sigmoid(z @ z.t()), self.features(z)


class Facts(nn.Module):
    """Head, relation, tail and time in one tensor, and the time of now."""

    def __init__(self):
        super().__init__()
        self.conv, self.relation = SAGEConv(5, 4), nn.Embedding(6, 4)

    def forward(self, x, edge_index, facts, now):
        h = self.conv(x, edge_index)
        fades = torch.exp(-(now - facts[:, 3].to(x.dtype)).abs() / 10)
        return (h[facts[:, 0]] + self.relation(facts[:, 1]) - h[facts[:, 2]]).norm(dim=-1) * fades


class Towers(nn.Module):
    """Two towers, and all positives as negatives of each other."""

    def __init__(self):
        super().__init__()
        self.left, self.right = GATConv(5, 4), SAGEConv(5, 4)

    def forward(self, x, edge_index, anchors, positives):
        u = F.normalize(self.left(x, edge_index)[anchors], dim=-1)
        v = F.normalize(self.right(x, edge_index)[positives], dim=-1)
        return u @ v.t(), torch.cat([u, v]).sum(-1)


def ids_of(make, rng):
    one, other = torch.randint(N, (2, K), generator=rng)
    several = torch.randint(N, (K, 4), generator=rng)
    several[0, 0] = 0
    facts = torch.stack([one, one % 6, other, 3 * torch.arange(K)], 1)
    return {
        Ranked: (one, several), Session: (several,), Decoded: (), Towers: (one, other),
        Facts: (facts, torch.tensor(30.0)),
    }[make]  # fmt: skip


@pytest.mark.parametrize("make", [Ranked, Session, Decoded, Facts, Towers])
def test_thirty_mixed_deltas(make, seed):
    rng, model = torch.Generator().manual_seed(seed), make().eval()
    x, edges = torch.randn(N, 5, generator=rng), torch.randint(N, (2, E), generator=rng)
    edges[0, 0], ids = N - 1, ids_of(make, rng)

    def check():
        want = model(*([] if make is Session else [x]), edges, *ids)
        for ours, theirs in zip(tensors_of(inc.out), tensors_of(want), strict=True):
            assert_close(ours, theirs)

    inc = to_incremental(model, compile_after=2)
    inc(*([] if make is Session else [x]), edges, *ids)
    assert inc.mode == "incremental"
    for step in range(30):
        new = torch.randint(N, (2, 2), generator=rng)
        delta = {"edge_index_add": new, "edge_index_del": edges[:, :2]}
        edges = torch.cat([edges[:, 2:], new], 1)
        if make is not Session and step % 3 == 1:
            delta["x_changes"] = ([step], torch.randn(1, 5, generator=rng))
            x = x.clone().index_copy(0, torch.tensor([step]), delta["x_changes"][1])
        if make is not Session and step % 7 == 3:
            delta["x_add"] = torch.randn(1, 5, generator=rng)
            x = torch.cat([x, delta["x_add"]])
        if step % 9 == 5:
            delta["nodes_del"] = [gone := int(edges[0, 0])]
            x = x.clone().index_fill(0, torch.tensor([gone]), 0)
            edges = edges[:, (edges != gone).all(0)]
        inc.apply_delta(**delta)
        check()
        if make is Facts and step % 4 == 0:
            ids = (ids[0], torch.tensor(30.0 + step))
            inc.apply_delta(values={"now": ids[1]})
            check()
    assert inc.verify() < 1e-12

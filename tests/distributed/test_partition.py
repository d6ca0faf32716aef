"""Which rank owns which node."""

import sys

import numpy as np
import pytest
import torch

from pyg_incremental.distributed import PartitionError, partition, partition_hetero
from pyg_incremental.distributed.numbering.ids import IdTable
from pyg_incremental.distributed.numbering.owners import Owners
from pyg_incremental.distributed.placement.ldg import NOWHERE
from pyg_incremental.distributed.placement.partition import METHODS
from pyg_incremental.distributed.placement.place import GlobalNumbers, place_new

pytestmark = pytest.mark.measured  # the methods share few lines


def four_clusters(seed=0, size=100, inside=800, across=60):
    """Four groups of nodes with few edges between them, under shuffled names."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 4, inside)
    ends = rng.integers(0, size, (2, inside)) + group * size
    edges = np.concatenate([ends, rng.integers(0, 4 * size, (2, across))], 1)
    names = rng.permutation(4 * size)
    return torch.from_numpy(names[edges]), 4 * size


@pytest.mark.kernels
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_every_node_has_an_owner_and_the_figures_are_right(method, parts):
    edges, n = four_clusters()
    chosen = partition(edges, n, parts, method)
    owner = chosen.owner.long()
    assert owner.shape == (n,)
    assert 0 <= owner.min() <= owner.max() < parts
    assert chosen.sizes.tolist() == owner.bincount(minlength=parts).tolist()
    assert chosen.in_edges.tolist() == owner[edges[1]].bincount(minlength=parts).tolist()
    cut = owner[edges[0]] != owner[edges[1]]
    assert chosen.edges_cut == int(cut.sum())
    for p in range(parts):
        far = edges[0][cut & (owner[edges[1]] == p)].unique()
        assert chosen.ghosts[p] == len(far)
    assert chosen.balance < 1.35
    assert method in str(chosen)


def test_methods_that_look_at_edges_cut_fewer():
    edges, n = four_clusters()
    metis, ldg, hashed = (partition(edges, n, 4, m) for m in ("metis", "ldg", "hash"))
    assert metis.edge_cut < 0.12
    assert ldg.edge_cut < 0.35
    assert hashed.edge_cut > 0.6


def test_a_hash_depends_on_the_seed_alone():
    edges, n = four_clusters()
    one, two = (partition(edges, n, 3, "hash", seed).owner for seed in (0, 1))
    assert torch.equal(one, partition(edges[:, :5], n, 3, "hash").owner)
    assert not torch.equal(one, two)


@pytest.mark.kernels
def test_new_nodes_go_to_their_neighbours():
    names = GlobalNumbers({"": Owners(np.array([0, 0, 1, 1], np.int16), 2)})
    edges = np.array([[4, 0, 5, 6, 6], [0, 5, 1, 2, 3]])
    placed = place_new(np.arange(4, 8), edges, names.owners, np.array([2, 2]))
    assert placed[:3].tolist() == [0, 0, 1]
    assert placed[3] == 1  # no edge: where there is most room


@pytest.mark.kernels
def test_new_nodes_go_to_neighbours_of_other_kinds():
    owner = np.array([0, 1, 1], np.int16)
    names = GlobalNumbers({"user": Owners(owner, 2), "film": Owners(owner[:2], 2)})
    films = names.of("film", np.array([2, 3]))
    assert names.owners(names.of("user", np.arange(5))).tolist() == [0, 1, 1, NOWHERE, NOWHERE]
    edges = np.stack([names.of("user", np.array([0, 2])), films])
    placed = place_new(films, edges, names.owners, np.array([3, 3]))
    assert placed.tolist() == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_nodes_of_several_kinds_are_split_together(method):
    edges, n = four_clusters()
    kinds = {"user": n, "film": 50}
    rated = torch.stack([torch.arange(n), torch.arange(n) % 50])
    given = {("user", "knows", "user"): edges, ("user", "rates", "film"): rated}
    chosen = partition_hetero(given, kinds, 3, method)
    assert {kind: len(owner) for kind, owner in chosen.owner.items()} == kinds
    cut = sum(
        int((chosen.owner[s][e[0]] != chosen.owner[t][e[1]]).sum())
        for (s, _, t), e in given.items()
    )
    assert chosen.union.edges_cut == cut
    assert chosen.union.balance < 1.35
    assert method in str(chosen)
    with pytest.raises(PartitionError, match="of 'film' there is no number of nodes"):
        partition_hetero(given, {"user": n}, 3, method)
    with pytest.raises(PartitionError, match="names node 49, but ids lie in"):
        partition_hetero(given, {"user": n, "film": 49}, 3, method)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tensor([[0], [9]]), 3, 2, "hash"), "names node 9"),
        ((torch.tensor([[0], [-1]]), 3, 2, "hash"), "names node -1"),
        ((torch.tensor([[0.0], [1.0]]), 3, 2, "hash"), "must be int64"),
        ((torch.tensor([[0], [1]]), 3, 0, "hash"), "1 to 32767 parts"),
        ((torch.tensor([[0], [1]]), 3, 2, "best"), "expected a method"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(PartitionError, match=message):
        partition(*arguments)


def test_metis_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="pip install"):
        partition(torch.tensor([[0], [1]]), 3, 2, "metis")


@pytest.mark.kernels
@pytest.mark.parametrize("first", [0, 1, 5_000])
def test_an_id_table_forgets_and_grows(seed, first):
    rng = np.random.default_rng(seed)
    table, want = IdTable(), {}
    ascending = np.sort(rng.choice(10_000, first, replace=False))
    if first:
        table.put(ascending, np.arange(7, 7 + first))
        want |= dict(zip(ascending.tolist(), range(7, 7 + first), strict=True))
        assert table.find(np.arange(10_000)).tolist() == [want.get(i, -1) for i in range(10_000)]
    for _ in range(30):
        ids = rng.choice(10_000, 50, replace=False)
        table.put(ids, ids + 1)
        want |= {int(i): int(i) + 1 for i in ids}
        gone = rng.choice(sorted(want), 20, replace=False)
        table.drop(gone)
        for i in gone.tolist():
            del want[i]
    every = np.arange(10_000)
    assert table.find(every).tolist() == [want.get(i, -1) for i in range(10_000)]

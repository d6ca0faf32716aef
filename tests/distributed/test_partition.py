"""Partitions and shards."""

import sys

import numpy as np
import pytest
import torch

from pyg_incremental.distributed import PartitionError, partition, write_shards
from pyg_incremental.distributed.__main__ import main
from pyg_incremental.distributed.ids import IdTable
from pyg_incremental.distributed.partition import METHODS, place_new
from pyg_incremental.distributed.shards import manifest_of, read_shard, shard_of


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
    owner = np.array([0, 0, 1, 1], np.int16)
    edges = np.array([[4, 0, 5, 6, 6], [0, 5, 1, 2, 3]])
    placed = place_new(4, 4, edges, owner, np.array([2, 2]))
    assert placed[:3].tolist() == [0, 0, 1]
    assert placed[3] == 1  # no edge: where there is most room


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


def arrays(seed=0):
    edges, n = four_clusters(seed)
    rng = np.random.default_rng(seed)
    return edges.numpy(), {"x": rng.random((n, 3))}, {"edge_weight": rng.random(edges.shape[1])}


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_shards_on_disk_are_those_in_memory(tmp_path, chunk, monkeypatch):
    monkeypatch.setattr("pyg_incremental.distributed.shards.CHUNK", chunk)
    edges, nodes, data = arrays()
    chosen = partition(torch.from_numpy(edges), len(nodes["x"]), 3, "ldg")
    write_shards(tmp_path, chosen, edges, nodes, data)
    for rank in range(3):
        got = read_shard(tmp_path, rank, 3)
        want = shard_of(
            rank, 3, chosen.owner.numpy(), {k: torch.from_numpy(v) for k, v in nodes.items()},
            torch.from_numpy(edges), {k: torch.from_numpy(v) for k, v in data.items()}, False,
        )  # fmt: skip
        assert np.array_equal(got.ids, want.ids)
        assert torch.equal(got.edge_index, want.edge_index)
        assert torch.equal(got.nodes["x"], want.nodes["x"])
        assert torch.equal(got.edges["edge_weight"], want.edges["edge_weight"])
        assert not got.by_target


def test_a_part_may_be_empty(tmp_path):
    edges = torch.tensor([[0, 1, 1], [0, 0, 1]])
    chosen = partition(edges, 2, 4, "hash")
    write_shards(tmp_path, chosen, edges.numpy(), {"x": np.ones((2, 3))})
    shards = [read_shard(tmp_path, rank, 4) for rank in range(4)]
    assert sum(s.edge_index.shape[1] for s in shards) == 3
    assert min(len(s.ids) for s in shards) == 0


def test_shards_have_to_fit(tmp_path):
    edges, nodes, data = arrays()
    chosen = partition(torch.from_numpy(edges), len(nodes["x"]), 2, "hash")
    with pytest.raises(PartitionError, match="has 5 rows, but there are 400 nodes"):
        write_shards(tmp_path, chosen, edges, {"x": nodes["x"][:5]})
    with pytest.raises(PartitionError, match="has 5 rows, but there are 860"):
        write_shards(tmp_path, chosen, edges, nodes, {"edge_weight": data["edge_weight"][:5]})
    with pytest.raises(PartitionError, match="no folder of shards"):
        manifest_of(tmp_path)
    write_shards(tmp_path, chosen, edges, nodes)
    with pytest.raises(PartitionError, match="has 2 parts, but there are 3 ranks"):
        read_shard(tmp_path, 0, 3)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(PartitionError, match="is not a manifest"):
        manifest_of(tmp_path)


def test_the_command_line(tmp_path, capsys):
    edges, nodes, data = arrays()
    np.savez(tmp_path / "g.npz", edge_index=edges, **nodes, **data, seed=3)
    base = ["partition", "--parts", "2", "--method", "hash", "--out"]
    assert main([*base, str(tmp_path / "a"), "--npz", str(tmp_path / "g.npz")]) == 0
    assert "edge cut" in capsys.readouterr().out
    for name, array in {"edge_index": edges, **nodes, **data}.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = ["--edge-index", str(tmp_path / "edge_index.npy"), "--node", f"x={tmp_path / 'x.npy'}"]
    given += ["--edge", f"edge_weight={tmp_path / 'edge_weight.npy'}"]
    assert main([*base, str(tmp_path / "b"), *given]) == 0
    one, two = (read_shard(tmp_path / f, 1, 2) for f in "ab")
    assert torch.equal(one.edge_index, two.edge_index)
    assert torch.equal(one.edges["edge_weight"], two.edges["edge_weight"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "give either --npz"),
        (["--edge-index", "{}/e.npy"], "no node features"),
        (["--edge-index", "{}/e.npy", "--node", "x"], "expected NAME=FILE"),
        (["--edge-index", "{}/none.npy"], "No such file"),
        (["--npz", "{}/no_edges.npz"], "has no array 'edge_index'"),
    ],
)
def test_the_command_line_says_what_is_missing(tmp_path, capsys, more, message):
    np.save(tmp_path / "e.npy", np.zeros((2, 1), np.int64))
    np.savez(tmp_path / "no_edges.npz", x=np.zeros(3))
    more = [m.format(tmp_path) for m in more]
    assert main(["partition", "--parts", "2", "--out", str(tmp_path / "o"), *more]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.kernels
def test_an_id_table_forgets_and_grows(seed):
    rng = np.random.default_rng(seed)
    table, want = IdTable(), {}
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

"""Shards on disk: what they hold, and models that start from them."""

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN, HypergraphConv, SAGEConv

from pyg_incremental import GraphDelta, InvalidDeltaError, to_incremental
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    PartitionError,
    RankFailedError,
    partition,
    partition_hetero,
    write_shards,
)
from pyg_incremental.distributed.__main__ import main
from pyg_incremental.distributed.files.shard_files import ShardFiles, manifest_of
from pyg_incremental.distributed.placement.shard import ShardEdges, shard_of
from pyg_incremental.graph import storage
from pyg_incremental.program.steps import Relation
from tests.distributed.test_partition import four_clusters
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import Ranked, small_call
from tests.hetero_strategies import TYPES, make_hetero
from tests.strategies import generator
from tests.zoo_hetero import TwoLayers, with_attributes


def arrays(seed=0):
    edges, n = four_clusters(seed)
    rng = np.random.default_rng(seed)
    return edges.numpy(), {"x": rng.random((n, 3))}, {"edge_weight": rng.random(edges.shape[1])}


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_shards_on_disk_are_those_in_memory(tmp_path, chunk, monkeypatch):
    monkeypatch.setattr("pyg_incremental.distributed.files.shards.CHUNK", chunk)
    edges, nodes, data = arrays()
    chosen = partition(torch.from_numpy(edges), len(nodes["x"]), 3, "ldg")
    write_shards(tmp_path, chosen, edges, nodes, data)
    for rank in range(3):
        got = ShardFiles(tmp_path, rank, 3).shard([Relation("edge_index")])
        weights = {k: torch.from_numpy(v) for k, v in data.items()}
        graph = ShardEdges(Relation("edge_index"), torch.from_numpy(edges), weights)
        rows = {"x": ("", torch.from_numpy(nodes["x"]))}
        want = shard_of(rank, 3, {"": chosen.owner.numpy()}, rows, [graph])
        assert np.array_equal(got.ids[""], want.ids[""])
        assert torch.equal(got.edge_index["edge_index"], want.edge_index["edge_index"])
        assert torch.equal(got.nodes["x"], want.nodes["x"])
        weight, want_weight = (g.edges["edge_index"]["edge_weight"] for g in (got, want))
        assert torch.equal(weight, want_weight)
    assert not manifest_of(tmp_path).by_target


def test_a_part_may_be_empty(tmp_path):
    edges = torch.tensor([[0, 1, 1], [0, 0, 1]])
    chosen = partition(edges, 2, 4, "hash")
    write_shards(tmp_path, chosen, edges.numpy(), {"x": np.ones((2, 3))})
    shards = [ShardFiles(tmp_path, rank, 4).shard([Relation("edge_index")]) for rank in range(4)]
    assert sum(s.edge_index["edge_index"].shape[1] for s in shards) == 3
    assert min(len(s.ids[""]) for s in shards) == 0
    assert manifest_of(tmp_path).by_target == ["edge_index"]


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
        ShardFiles(tmp_path, 0, 3)
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
    one, two = (ShardFiles(tmp_path / f, 1, 2).shard([Relation("edge_index")]) for f in "ab")
    assert torch.equal(one.edge_index["edge_index"], two.edge_index["edge_index"])
    weights = [s.edges["edge_index"]["edge_weight"] for s in (one, two)]
    assert torch.equal(*weights)


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


# Models that start from shards ####################################################################


@pytest.fixture(autouse=True)
def one_header_at_a_time(monkeypatch):
    """NumPy parses headers as Python, which some versions of Python cannot do in two threads."""
    plain, lock = np.load, threading.Lock()

    def load(*args, **kwargs):
        with lock:
            return plain(*args, **kwargs)

    monkeypatch.setattr(np, "load", load)


def from_shards(folder, model, delta, size=3, **arguments):
    """The output on ranks that start from a folder, after a delta."""

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc.from_shards(folder, **arguments)
        inc.apply_delta(delta if comm.rank == 1 else None)
        assert inc.verify() < 1e-9
        return inc.gather_out()

    return run_ranks(size, work)


def in_one_process(model, delta, *args, **kwargs):
    inc = to_incremental(copy.deepcopy(model))
    inc(*args, **kwargs)
    inc.apply_delta(delta)
    return inc.out


def test_one_kind_of_nodes(tmp_path):
    _, (x, edge_index) = small_call()
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64)
    torch.manual_seed(1)
    model = GCN(6, 8, 2, 3).double().eval()
    chosen = partition(edge_index, 60, 3)
    data = {"edge_weight": weight.numpy()}
    write_shards(tmp_path, chosen, edge_index.numpy(), {"x": x.numpy()}, data)
    delta = GraphDelta(edge_index_add=[[0], [5]], edge_weight_add=[0.5], nodes_del=[3])
    want = in_one_process(model, delta, x, edge_index, edge_weight=weight)
    for out in all_well(from_shards(tmp_path, model, delta)):
        assert torch.allclose(out, want, atol=1e-12)
    for error in from_shards(tmp_path, model, delta, 2):
        assert isinstance(error, PartitionError)


def test_a_store_in_memory_maps(tmp_path, monkeypatch):
    """On every rank, through updates that give all arrays more room, and a refresh."""
    monkeypatch.setattr(storage, "SMALL", 0)
    model, (x, edge_index) = small_call()
    chosen = partition(edge_index, 60, 3)
    write_shards(tmp_path, chosen, edge_index.numpy(), {"x": x.numpy()})
    more = torch.stack([torch.arange(60).repeat(8), torch.arange(60).flip(0).repeat(8)])
    delta = GraphDelta(edge_index_add=more, x_add=x[:40], nodes_del=[3])
    want = in_one_process(model, delta, x, edge_index)

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc.bootstrap(tmp_path, memory=1, directory=tmp_path / "rows")
        inc.apply_delta(delta if comm.rank == 1 else None)
        outs = [inc.gather_out()]
        inc.refresh()
        held = inc._require().session.settings.storage
        assert (held.in_memory, held.on_disk > 0) == (0, True)
        return [*outs, inc.gather_out()]

    for outs in all_well(run_ranks(3, work)):
        for out in outs:
            assert torch.allclose(out, want, atol=1e-12)
    assert list((tmp_path / "rows").iterdir()) == []
    refused = run_ranks(3, lambda comm: refuse_more_than_fits(tmp_path, model, comm))
    assert all(isinstance(error, MemoryError | RankFailedError) for error in refused)
    assert any(isinstance(error, MemoryError) for error in refused)


def refuse_more_than_fits(folder, model, comm):
    DistributedIncrementalModel(copy.deepcopy(model), comm).bootstrap(folder, memory=1)


def test_several_kinds_of_nodes(tmp_path, seed):
    rng = generator(seed)
    world = make_hetero(rng, data=(("edge_attr", 3),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns of types that are no target
        model = TwoLayers("sum", with_attributes(1), with_attributes(2), TYPES).double().eval()
    counts = {kind: len(rows) for kind, rows in world.x.items()}
    edges = {t: world.edge_index(t) for t in TYPES}
    attr = {t: world.edge_data(t, "edge_attr") for t in TYPES}
    chosen = partition_hetero(edges, counts, 3, "ldg")
    write_shards(
        tmp_path,
        chosen,
        {t: e.numpy() for t, e in edges.items()},
        {"x_dict": {kind: rows.numpy() for kind, rows in world.x.items()}},
        {"edge_attr_dict": {t: a.numpy() for t, a in attr.items()}},
    )
    delta = GraphDelta(nodes_del={"user": [3]}, edge_index_del={TYPES[0]: edges[TYPES[0]][:, :2]})
    want = in_one_process(model, delta, world.x, edges, edge_attr_dict=attr)
    for out in all_well(from_shards(tmp_path, model, delta)):
        for kind, rows in want.items():
            assert torch.allclose(out[kind], rows, atol=1e-12)


def test_a_pair_of_features(tmp_path):
    torch.manual_seed(0)
    model = SAGEConv((6, 3), 4).double().eval()
    x = torch.randn(20, 6).double(), torch.randn(11, 3).double()
    edges = torch.stack([torch.randint(20, (70,)), torch.randint(11, (70,))])
    chosen = partition_hetero({("src", "to", "dst"): edges}, {"src": 20, "dst": 11}, 3)
    write_shards(tmp_path, chosen, edges.numpy(), {"x": tuple(rows.numpy() for rows in x)})
    delta = GraphDelta(
        edge_index_add=[[0], [10]], x_changes={"src": ([0], torch.ones(1, 6).double())}
    )
    want = in_one_process(model, delta, x, edges)
    for out in all_well(from_shards(tmp_path, model, delta)):
        assert torch.allclose(out, want, atol=1e-12)


def test_a_model_that_has_learned_its_nodes(tmp_path):
    torch.manual_seed(0)
    model, edges = Ranked(40).double().eval(), torch.randint(40, (2, 150))
    chosen = partition(edges, 40, 3)
    write_shards(tmp_path, chosen, edges.numpy(), {})
    delta = GraphDelta(edge_index_add=[[0], [10]], nodes_del=[3])
    want = in_one_process(model, delta, edges)
    for out in all_well(from_shards(tmp_path, model, delta)):
        assert torch.allclose(out, want, atol=1e-12)


def test_hyperedges(tmp_path):
    torch.manual_seed(0)
    model = HypergraphConv(6, 4).double().eval()
    x, weight = torch.randn(20, 6).double(), torch.rand(11).double()
    members = torch.stack([torch.randint(20, (70,)), torch.randint(11, (70,))])
    chosen = partition_hetero({("", "in", "hyperedge"): members}, {"": 20, "hyperedge": 11}, 3)
    rows = {"x": x.numpy(), "hyperedge_weight": weight.numpy()}
    write_shards(tmp_path, chosen, {"hyperedge_index": members.numpy()}, rows)
    delta = GraphDelta(edge_index_add=[[0], [10]], nodes_del=[3])
    want = in_one_process(model, delta, x, members, weight)
    for out in all_well(from_shards(tmp_path, model, delta)):
        assert torch.allclose(out, want, atol=1e-12)


def test_a_model_has_to_take_the_arrays_for_what_they_are(tmp_path):
    model, (x, edge_index) = small_call()
    graph, rows = edge_index.numpy(), {"x": x.numpy()}
    chosen = partition(edge_index, 60, 2)
    write_shards(tmp_path, chosen, graph, {**rows, "rows": x.numpy()})
    for error in from_shards(tmp_path, model, GraphDelta(), 2):
        assert isinstance(error, InvalidDeltaError)
        assert "cannot be called like this" in str(error)
    write_shards(tmp_path, chosen, {"hyperedge_index": graph}, rows)  # no kind of their own
    for error in from_shards(tmp_path, HypergraphConv(6, 4).double().eval(), GraphDelta(), 2):
        assert isinstance(error, PartitionError)
        assert "takes 'hyperedge_index' for rows of 'hyperedge'" in str(error)


def test_edge_data_belong_to_one_graph(tmp_path):
    _, (x, edge_index) = small_call()
    chosen, graph = partition(edge_index, 60, 2), edge_index.numpy()
    weight = {"weight": np.ones(edge_index.shape[1])}
    with pytest.raises(PartitionError, match="not clear of which graph 'weight' has rows"):
        write_shards(tmp_path, chosen, {"pos": graph, "neg": graph}, {"x": x.numpy()}, weight)
    with pytest.raises(PartitionError, match="'film/x_dict' has 60 rows, but there are"):
        write_shards(tmp_path, chosen, graph, {"x_dict": {"film": x.numpy()}})

"""Real citation graphs: a stream of deltas on Cora and CiteSeer stays exact."""

import shutil

import pytest
import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN, GraphSAGE

from pyg_incremental import to_incremental
from tests.closeness import assert_close
from tests.oracle import World, full
from tests.strategies import generator, index, pick_edges, pick_nodes, random_pairs

pytestmark = [pytest.mark.data, pytest.mark.unmeasured]


# Any two of a data set, a model and a set of kernels are together in one of them.
RUNS = [
    ("Cora", GCN, "compiled"), ("Cora", GraphSAGE, "reference"),
    ("CiteSeer", GCN, "reference"), ("CiteSeer", GraphSAGE, "compiled"),
]  # fmt: skip


@pytest.fixture
def graph(request, planetoid_root, tmp_path):
    """The graph of one data set, from a copy of its raw files (the loader writes beside them)."""
    source = planetoid_root / request.param / "raw"
    if not source.is_dir():
        pytest.skip(f"no raw files of {request.param}")
    shutil.copytree(source, tmp_path / request.param / "raw")
    return Planetoid(tmp_path, request.param)


@pytest.mark.parametrize(("graph", "make", "backend"), RUNS, indirect=["graph"])
def test_stream_of_deltas(graph, make, backend):
    data = graph[0]
    torch.manual_seed(0)
    model = make(graph.num_features, 16, 2, graph.num_classes).eval()
    world = World(data.x, data.edge_index.t().tolist())
    inc = to_incremental(model, backend=backend)
    inc(data.x, data.edge_index)
    assert_close(inc.out, full(model, world), tolerance=1e-4)
    rng = generator(0)
    touched = []
    for _ in range(12):
        nodes = pick_nodes(world, rng, 2)
        gone = sorted({tuple(sorted(pair)) for pair in pick_edges(world, rng, 3)})
        delta = {
            "edge_index_add": index(random_pairs(rng, world.num_nodes, 3)),
            "edge_index_del": index(gone),
            "x_changes": (torch.tensor(nodes), world.x[pick_nodes(world, rng, 2)].clone()),
            "x_add": world.x[pick_nodes(world, rng, 1)].clone(),
            "nodes_del": torch.tensor(pick_nodes(world, rng, 1)),
            "undirected": True,
            "missing": "ignore",
        }
        world.apply(**delta)
        touched.append(len(inc.apply_delta(**delta).changed))
    assert_close(inc.out, full(model, world), tolerance=1e-4)
    assert torch.equal(inc.graph.to_edge_index(), world.edge_index())
    assert 0 < sum(touched) / len(touched) < world.num_nodes / 4

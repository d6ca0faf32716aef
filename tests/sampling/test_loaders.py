"""In PyG's loaders: what they are given is what their own sampler gives."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import GraphSAGE, SAGEConv, to_hetero
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput

from pyg_incremental import InvalidDeltaError
from pyg_incremental.sampling import StreamingSampler

NODES, EDGES = 40, 200


@pytest.fixture
def data():
    torch.manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES))
    return Data(x=torch.randn(NODES, 4), edge_index=edge_index, edge_attr=torch.arange(EDGES))


def check_batch(batch, data):
    """Rows, edges and their data are those of the graph, hop by hop."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    ends = data.edge_index[:, batch.e_id]
    assert torch.equal(batch.n_id[batch.edge_index], ends)
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert sum(batch.num_sampled_nodes) == batch.num_nodes
    assert sum(batch.num_sampled_edges) == batch.num_edges
    known, done = batch.num_sampled_nodes[0], 0
    for nodes, edges in zip(batch.num_sampled_nodes[1:], batch.num_sampled_edges, strict=True):
        part = batch.edge_index[:, done : done + edges]
        before = known - batch.num_sampled_nodes[batch.num_sampled_edges.index(edges)]
        if edges:
            assert part[1].max() < known
            assert part[1].min() >= before or before < 0
            assert part[0].max() < known + nodes
        known, done = known + nodes, done + edges


def test_node_loader(data):
    sampler = StreamingSampler(data.edge_index, NODES, [4, 2])
    loader = NodeLoader(data, sampler, input_nodes=torch.arange(5, 25), batch_size=8, shuffle=True)
    seen = []
    for batch in loader:
        check_batch(batch, data)
        assert batch.n_id.unique().numel() == batch.num_nodes
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id + 5)
        assert "seed_time" not in batch
        assert torch.bincount(batch.edge_index[1]).max() <= 4
        seen += batch.input_id.tolist()
    assert sorted(seen) == list(range(20))


def test_trimming_leaves_the_seeds_as_they_are(data):
    torch.manual_seed(1)
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval()
    sampler = StreamingSampler(data.edge_index, NODES, [4, 2])
    for batch in NodeLoader(data, sampler, batch_size=16):
        trimmed = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
        whole = model(batch.x, batch.edge_index)
        torch.testing.assert_close(trimmed[: batch.batch_size], whole[: batch.batch_size])


def test_all_neighbours_give_the_full_pass(data):
    torch.manual_seed(1)
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval().double()
    data.x = data.x.double()
    sampler = StreamingSampler(data.edge_index, NODES, [-1, -1])
    full = model(data.x, data.edge_index)
    for batch in NodeLoader(data, sampler, batch_size=16):
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.testing.assert_close(out, full[batch.input_id])


def test_a_running_loader_sees_every_change(data):
    """The batch after a delta is of the graph after it; new edges have the ids that follow."""
    sampler = StreamingSampler(data.edge_index, NODES, [NODES * 9])
    loader = NodeLoader(data, sampler, input_nodes=torch.tensor([3, 3, 3]), batch_size=1)
    batches = iter(loader)
    before = next(batches)
    added = torch.tensor([[7, 7], [3, 3]])
    update = sampler.apply_delta(edge_index_add=added)
    assert update.edge_ids.tolist() == [EDGES, EDGES + 1]
    data.edge_attr = torch.cat([data.edge_attr, update.edge_ids])
    data.edge_index = torch.cat([data.edge_index, added], 1)  # PyG tells edge data by their number
    after = next(batches)
    assert set(after.e_id.tolist()) == {*before.e_id.tolist(), EDGES, EDGES + 1}
    assert torch.equal(after.edge_attr, after.e_id)
    sampler.apply_delta(nodes_del=[3])
    assert next(batches).num_edges == 0


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_link_loader(data, mode, disjoint):
    torch.manual_seed(0)
    sampler = StreamingSampler(data.edge_index, NODES, [4, 2], disjoint=disjoint)
    label_index = data.edge_index[:, 10:30]
    negatives = NegativeSampling(mode, 2) if mode else None
    loader = LinkLoader(
        data, sampler, edge_label_index=label_index, neg_sampling=negatives, batch_size=8
    )
    for batch in loader:
        check_batch(batch, data)
        links = label_index[:, batch.input_id]
        if mode == "triplet":
            assert torch.equal(batch.n_id[batch.src_index], links[0])
            assert torch.equal(batch.n_id[batch.dst_pos_index], links[1])
            assert batch.dst_neg_index.shape == (links.shape[1], 2)
        else:
            found = batch.n_id[batch.edge_label_index]
            assert torch.equal(found[:, : links.shape[1]], links)
            assert found.shape[1] == links.shape[1] * (3 if mode else 1)
        if disjoint:
            row, col = batch.edge_index
            assert torch.equal(batch.batch[row], batch.batch[col])
            assert batch.batch.max() < links.shape[1]


def test_disjoint_subgraphs_are_those_of_one_seed_each(data):
    apart = StreamingSampler(data.edge_index, NODES, [4, 2], disjoint=True)
    seeds = torch.tensor([5, 9, 5])
    out = apart.sample(seeds)
    assert out.batch[:3].tolist() == [0, 1, 2]
    for query, seed in enumerate(seeds.tolist()):
        alone = apart.sample(torch.tensor([seed]))
        assert torch.equal(out.node[out.batch == query], alone.node)
        assert torch.equal(out.edge[out.batch[out.col] == query], alone.edge)


def test_workers_are_refused(data):
    sampler = StreamingSampler(data.edge_index, NODES, [4])
    loader = NodeLoader(data, sampler, batch_size=8, num_workers=1)
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(loader))


def test_times_of_seeds(data):
    """They come with the batch; a seed that does not know the newest edges yet is refused."""
    sampler = StreamingSampler(
        data.edge_index, NODES, [4], strategy="topk", edge_time=torch.arange(EDGES), disjoint=True
    )
    times = torch.full((NODES,), EDGES)
    loader = NodeLoader(data, sampler, batch_size=8, input_time=times)
    assert next(iter(loader)).seed_time.tolist() == [EDGES] * 8
    sampler.apply_delta(
        edge_index_add=[[0], [1]], edge_data_add={"time": torch.tensor([EDGES + 1])}
    )
    with pytest.raises(ValueError, match="those of now"):
        next(iter(loader))
    links = {
        "edge_label_index": data.edge_index[:, :4],
        "edge_label_time": torch.full((4,), 999),
    }
    assert next(iter(LinkLoader(data, sampler, **links))).edge_label_time.tolist() == [999]
    joint = StreamingSampler(data.edge_index, NODES, [4])
    with pytest.raises(ValueError, match="disjoint=True"):
        next(iter(LinkLoader(data, joint, **links)))


@pytest.fixture
def shop():
    """Users click items, and items are bought together; the queries of Helios, figure 1."""
    torch.manual_seed(0)
    shop = HeteroData()
    shop["user"].x, shop["item"].x = torch.randn(12, 4), torch.randn(30, 4)
    sizes = {"user": 12, "item": 30}
    for kind in (
        ("item", "clicked_by", "user"),
        ("user", "clicks", "item"),
        ("item", "with", "item"),
    ):
        src, dst = sizes[kind[0]], sizes[kind[2]]
        edges = torch.stack([torch.randint(src, (90,)), torch.randint(dst, (90,))])
        shop[kind].edge_index = edges
    return shop


def sampler_of(shop, fanouts, **options):
    return StreamingSampler(
        shop.edge_index_dict,
        {kind: shop[kind].num_nodes for kind in shop.node_types},
        fanouts,
        **options,
    )


def test_hetero_node_loader(shop):
    fanouts = {kind: [3, 2] if kind[1] != "with" else [0, 2] for kind in shop.edge_types}
    sampler = sampler_of(shop, fanouts)
    torch.manual_seed(1)
    model = to_hetero(GraphSAGE(4, 8, num_layers=2, out_channels=3), shop.metadata()).eval()
    for batch in NodeLoader(shop, sampler, input_nodes="user", batch_size=5):
        for kind in shop.edge_types:
            ends = shop[kind].edge_index[:, batch[kind].e_id]
            row, col = batch[kind].edge_index
            assert torch.equal(batch[kind[0]].n_id[row], ends[0])
            assert torch.equal(batch[kind[2]].n_id[col], ends[1])
            assert sum(batch[kind].num_sampled_edges) == batch[kind].num_edges
        for kind in shop.node_types:
            assert batch[kind].n_id.unique().numel() == batch[kind].num_nodes
            assert sum(batch[kind].num_sampled_nodes) == batch[kind].num_nodes
        assert batch["item", "with", "item"].num_sampled_edges[0] == 0
        assert torch.equal(batch["user"].n_id[: batch["user"].batch_size], batch["user"].input_id)
        model(batch.x_dict, batch.edge_index_dict)


def test_hetero_all_neighbours_give_the_full_pass(shop):
    torch.manual_seed(1)
    model = to_hetero(GraphSAGE(4, 8, num_layers=2, out_channels=3), shop.metadata()).eval()
    sampler = sampler_of(shop, [-1, -1])
    full = model(shop.x_dict, shop.edge_index_dict)["user"]
    for batch in NodeLoader(shop, sampler, input_nodes="user", batch_size=5):
        out = model(batch.x_dict, batch.edge_index_dict)["user"][: batch["user"].batch_size]
        torch.testing.assert_close(out, full[batch["user"].input_id])


@pytest.mark.parametrize("disjoint", [False, True])
def test_hetero_link_loader(shop, disjoint):
    sampler = sampler_of(shop, [3, 2], disjoint=disjoint)
    for kind in (("user", "clicks", "item"), ("item", "with", "item")):
        links = shop[kind].edge_index[:, :12]
        loader = LinkLoader(
            shop, sampler, edge_label_index=(kind, links), neg_sampling="binary", batch_size=6
        )
        for at, batch in enumerate(loader):
            row, col = batch[kind].edge_label_index[:, :6]
            wanted = links[:, 6 * at : 6 * at + 6]
            assert torch.equal(batch[kind[0]].n_id[row], wanted[0])
            assert torch.equal(batch[kind[2]].n_id[col], wanted[1])
            if disjoint:
                for own in shop.edge_types:
                    row, col = batch[own].edge_index
                    same = batch[own[0]].batch[row] == batch[own[2]].batch[col]
                    assert same.all()


def test_hetero_delta(shop):
    clicks, back = ("user", "clicks", "item"), ("item", "clicked_by", "user")
    sampler = sampler_of(shop, [3, 2])
    update = sampler.apply_delta(
        x_add={"item": torch.empty(1, 4)},
        edge_index_add={clicks: torch.tensor([[1, 2], [30, 30]]), back: torch.tensor([[30], [1]])},
        edge_index_del={clicks: shop[clicks].edge_index[:, :1]},
        nodes_del={"user": [2]},
    )
    assert update.edge_ids[clicks].tolist() == [90]  # user 2 leaves with the edge that came
    assert update.edge_ids[back].tolist() == [90]
    assert 30 in update.changed[clicks].tolist()
    assert sampler.num_nodes == {"user": 12, "item": 31}
    out = sampler.sample({"item": torch.tensor([30])})
    assert out.node["user"].tolist() == [1]
    assert out.edge[clicks].tolist()[:1] == [90]
    assert sampler.sample({"user": torch.tensor([2])}).num_sampled_edges[back] == [0, 0]
    for fields in ({"edge_index_add": torch.tensor([[1], [2]])}, {"nodes_del": {"shop": [1]}}):
        with pytest.raises(InvalidDeltaError, match="keys among"):
            sampler.apply_delta(**fields)


def test_what_does_not_fit_is_refused(data, shop):
    with pytest.raises(ValueError, match="'random', 'topk' or 'weight'"):
        StreamingSampler(data.edge_index, NODES, [4], strategy="newest")
    with pytest.raises(ValueError, match="needs edge_time"):
        StreamingSampler(data.edge_index, NODES, [4], strategy="topk")
    with pytest.raises(ValueError, match="one number for each hop"):
        StreamingSampler(data.edge_index, NODES, [4, -2])
    with pytest.raises(ValueError, match="seed"):
        StreamingSampler(data.edge_index, NODES, [4], seed=-1)
    with pytest.raises(InvalidDeltaError, match="ids lie in"):
        StreamingSampler(data.edge_index, 3, [4])
    sampler = StreamingSampler(data.edge_index, NODES, [4])
    with pytest.raises(ValueError, match="add nodes with x_add"):
        sampler.sample(torch.tensor([NODES]))
    with pytest.raises(ValueError, match="a tensor of node ids"):
        sampler.sample({"user": torch.tensor([0])})
    with pytest.raises(ValueError, match="no nodes of type"):
        sampler_of(shop, [2]).sample({"shop": torch.tensor([0])})
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))
    assert out.metadata == (None, None)
    assert "strategy='random'" in repr(sampler)
    assert SAGEConv(4, 4)(data.x[out.node], torch.stack([out.row, out.col])).shape[0] > 1

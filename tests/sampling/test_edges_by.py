"""Records kept by source or at both ends: samples are those of their definition at any time."""

from itertools import chain

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sampling.workers.registration import registered
from pyg_incremental.sampling.workers.sampling import SamplingWorker
from pyg_incremental.sources import IterableSource
from tests.sampling.naive import NaiveSampler
from tests.sampling.test_streams import STRATEGIES
from tests.sampling.test_typed_workers import BUYS, KINDS, LIKES, MADE, Shop, Workers
from tests.sampling.test_workers import FANOUTS, World

TURNED = ("item", "rev_buys", "user"), ("user", "rev_of", "item")


def check(naive, out, x, seeds, fanouts):
    """Nodes, features and edges of an answer, which is given as `node, x, edge_index, edge`."""
    node, rows, edge_index, edge = out
    hops, edges = naive.subgraph(seeds, fanouts)
    assert node.tolist() == list(chain(*hops))
    assert torch.equal(rows, x[node])
    found = list(zip(*node[edge_index].tolist(), edge.tolist(), strict=True))
    assert found == list(chain(*edges))
    # Without keys: what is there exists, and is all there is where that is not too much.
    records = {e["id"]: (e["src"], e["dst"]) for e in naive.edges}
    ways = {"target": [1], "source": [-1], "both": [1, -1]}[naive.edges_by]
    assert all((u, v) in [records[i][::way] for way in ways] for u, v, i in found)
    for seed in seeds:
        ends = {"target": [1], "source": [0], "both": [0, 1]}[naive.edges_by]
        around = [i for i, pair in records.items() if seed in [pair[end] for end in ends]]
        own = [i for _, v, i in edges[0] if v == seed]
        assert len(set(own)) == len(own) == min(fanouts[0], len(around))
        assert set(own) <= set(around)


class EitherWay(World):
    """Workers held against the naive sampler alone."""

    def same(self, answer, seeds):
        nodes, edges = answer.nodes[None], answer.edges[None]
        out = nodes.node, nodes.x, edges.edge_index, edges.edge
        check(self.naive, out, self.x, seeds.tolist(), self.fanouts)
        hops, found = self.naive.subgraph(seeds.tolist(), self.fanouts)
        assert (nodes.counts, edges.counts) == ([len(h) for h in hops], [len(h) for h in found])


@pytest.mark.parametrize("edges_by", ["source", "both"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_stream(strategy, edges_by, seed, tmp_path):
    rng = np.random.default_rng(seed)
    world = EitherWay(strategy, seed, rng, 3, 2, edges_by=edges_by)
    for turn in range(12):
        come = rng.integers(0, world.sampler.num_nodes, 2).tolist() if turn % 3 == 0 else []
        gone = world.seeds[:1] if turn % 3 == 1 else []
        if turn == 7:  # others go on from the files
            paths = [str(tmp_path / str(part)) for part in range(3)]
            files = [(p, w.save(p)) for p, w in zip(paths, world.sampling, strict=True)]
            world.sampling = [SamplingWorker(world.query, part, 2) for part in range(2)]
            for worker in world.sampling:
                worker.load(files)
        world.round([world.delta(strategy, rng) for _ in range(turn % 3)], come, gone, turn == 7)
        world.check()
    loops = sum(e["src"] == e["dst"] for e in world.naive.edges)
    kept = len(world.naive.edges) if edges_by == "source" else 2 * len(world.naive.edges) - loops
    assert sum(worker.num_edges for worker in world.sampling) == kept
    world.round([], gone=list(world.seeds))
    assert [worker.held["features"] for worker in world.serving] == [0, 0]


@pytest.mark.parametrize("edges_by", ["source", "both"])
def test_records_that_are_not_there_are_counted_once(edges_by):
    world = World("random", 0, np.random.default_rng(0), 2, 1, edges_by=edges_by)
    gone = torch.tensor([[0, 0, 0, 0, 7, 7, 7, 7], [5, 5, 5, 5, 7, 7, 7, 7]])
    before = world.sampler.num_edges
    world.sampler.apply_delta(edge_index_del=gone, missing="ignore")
    world.round([world.splitter.read(GraphDelta(edge_index_del=gone), 2)])
    missing = sum(worker.missing for worker in world.sampling)
    assert missing == 8 - (before - world.sampler.num_edges) > 0


@pytest.mark.parametrize("edges_by", ["source", "both"])
def test_of_records_there_and_back_the_named_one_leaves(edges_by):
    """Each has a younger one in the other direction, which a worker must not mistake for it."""
    world = EitherWay("topk", 0, np.random.default_rng(0), 2, 1, edges_by=edges_by)
    world.round([], come=[3, 4])
    for pair in ((3, 4), (4, 3)):
        come = torch.tensor([pair, pair[::-1]]).t()
        said = [GraphDelta(edge_index_add=come, edge_data_add={"time": torch.tensor([9, 9])}),
                GraphDelta(edge_index_del=come[:, :1])]  # fmt: skip
        for ends in (pair, pair[::-1]):
            world.naive.add(*ends, 9)
        world.naive.delete(*pair)
        world.round([world.splitter.read(delta, 2) for delta in said])
        world.check()


AROUND = {
    TURNED[0]: (BUYS, "source"), MADE: (MADE, "target"), TURNED[1]: (MADE, "source"),
    LIKES: (LIKES, "both"),
}  # fmt: skip
BY = {BUYS: "source", MADE: "both", LIKES: "both"}


def naives(shop):
    """The latest edges of each type that is sampled, by the records that are there now."""
    found = {}
    for kind, (records, edges_by) in AROUND.items():
        found[kind] = NaiveSampler("topk", 0, edges_by)
        state = shop.sampler.edges_of(records).graph.state()
        columns = [*state["edge_index"].tolist(), state["edge_id"].tolist(), state["time"].tolist()]
        names = "src", "dst", "id", "value"
        found[kind].edges = [
            dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return found


def subgraph(samplers, fanouts, kind, seed):
    """All nodes by type, and (neighbour, node, id) of all edges by type."""
    seen = {"user": [], "item": []}
    seen[kind] = [seed]
    last, edges = {k: list(v) for k, v in seen.items()}, {k: [] for k in samplers}
    for hop in range(2):
        new = {k: [] for k in seen}
        for of, sampler in samplers.items():
            for node in last[of[2]]:
                for other, edge in sampler.sampled(node, fanouts[of][hop]):
                    edges[of].append((other, node, edge))
                    if other not in seen[of[0]]:
                        seen[of[0]].append(other)
                        new[of[0]].append(other)
        last = new
    return seen, edges


def test_types_each_in_its_way(seed):
    """Turned round, at both ends of two types, and at both ends of one."""
    shop = Shop("topk", np.random.default_rng(seed))
    workers = Workers(shop, 2, 2, edges_by=BY)
    fanouts = workers.query.num_neighbors
    assert fanouts == {
        TURNED[0]: KINDS[BUYS], MADE: KINDS[MADE], TURNED[1]: KINDS[MADE], LIKES: KINDS[LIKES]
    }  # fmt: skip
    seeds = {"user": np.arange(5), "item": np.array([1, 8])}
    workers.round([], seeds)
    for turn in range(10):
        deltas = [shop.delta() for _ in range(turn % 3)]
        workers.round([workers.splitter.read(delta, 2) for delta in deltas], {})
        samplers = naives(shop)
        for kind, ids in seeds.items():
            for one in ids.tolist():
                data = workers.ask({kind: np.array([one])})
                nodes, edges = subgraph(samplers, fanouts, kind, one)
                for name, own in nodes.items():
                    assert sorted(data[name].n_id.tolist()) == sorted(own)
                    assert torch.equal(data[name].x, shop.x[name][data[name].n_id])
                for of, expected in edges.items():
                    (row, col), edge = data[of].edge_index, data[of].e_id
                    ends = data[of[0]].n_id[row], data[of[2]].n_id[col]
                    found = zip(*(t.tolist() for t in (*ends, edge)), strict=True)
                    assert sorted(found) == sorted(expected)
    workers.round([], seeds, more=-1)
    assert [w.held["samples"] + w.held["features"] for w in workers.serving] == [0, 0]


def test_a_service_at_both_ends(seed, tmp_path):
    """Followed, grown old and restored by other workers."""
    rng = np.random.default_rng(seed)
    nodes, naive, x = 40, NaiveSampler("topk", 0, "both"), torch.randn(40, 3)
    start, times = rng.integers(0, nodes, (2, 150)), rng.random(150)
    for pair, time in zip(start.T.tolist(), times.tolist(), strict=True):
        naive.add(*pair, time)
    deltas = []
    for _ in range(4):
        gone = [(e["src"], e["dst"]) for e in rng.permutation(naive.edges)[:20]]
        come, when = rng.integers(0, nodes, (2, 25)), rng.random(25)
        for pair in gone:
            naive.delete(*pair)
        for pair, time in zip(come.T.tolist(), when.tolist(), strict=True):
            naive.add(*pair, time)
        deltas.append(GraphDelta(edge_index_add=come, edge_index_del=np.array(gone).T,
                                 edge_data_add={"time": when}))  # fmt: skip
    source, seeds = IterableSource(deltas), range(0, nodes, 4)

    def right(service):
        for seed in seeds:
            data = service.query(torch.tensor([seed]))
            check(naive, (data.n_id, data.x, data.edge_index, data.e_id), x, [seed], FANOUTS)

    with SampleService(
        source, torch.from_numpy(start), x, FANOUTS, tmp_path, strategy="topk", sampling=2,
        edge_time=torch.from_numpy(times), data_ttl=0.7, clock=lambda: 1.0, edges_by="both",
    ) as service:  # fmt: skip
        service.subscribe(torch.tensor(seeds))
        while service.step().events:
            pass
        right(service)
        service.tick()
        service.barrier()
        naive.edges = [e for e in naive.edges if e["value"] >= 1.0 - 0.7]
        right(service)
        assert service.stats.missing == 0
        service.checkpoint()
    with SampleService.restore(source, tmp_path, sampling=1) as service:
        right(service)


def test_what_is_no_end_is_refused():
    edges, x = torch.zeros((2, 1), dtype=torch.int64), torch.zeros(1, 1)
    how = {"strategy": "random", "seed": 0, "memory": None}
    for edges_by in ("src", None, {BUYS: "source"}):
        with pytest.raises(ValueError, match="edges_by: expected 'target', 'source' or 'both' "):
            registered(edges, x, [2], None, None, None, edges_by=edges_by, **how)
    typed, rows = {BUYS: edges, TURNED[0]: edges}, {"user": x, "item": x}
    given = typed, rows, [2], None, None, None
    with pytest.raises(ValueError, match=r"by edge type, of \[\('user'"):
        registered(*given, edges_by={LIKES: "source"}, **how)
    with pytest.raises(ValueError, match="keep them by target, or rename"):
        registered(*given, edges_by={BUYS: "both"}, **how)
    fanouts = {BUYS: [2], TURNED[0]: [3]}
    query, _ = registered({BUYS: edges}, rows, fanouts, None, None, None, edges_by="both", **how)
    assert query.num_neighbors == fanouts

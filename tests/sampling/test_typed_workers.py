"""Workers of a graph with several types of nodes and edges; seeds and edges that grow too old."""

import time

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta, InvalidDeltaError
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.sampling import StreamingSampler
from pyg_incremental.sampling.workers import SampleService
from pyg_incremental.sampling.workers.merge import merged
from pyg_incremental.sampling.workers.owners import SAMPLING, SERVING, split
from pyg_incremental.sampling.workers.registration import registered
from pyg_incremental.sampling.workers.sampling import SamplingWorker
from pyg_incremental.sampling.workers.seeds import SeedAges
from pyg_incremental.sampling.workers.serving import ServingWorker
from pyg_incremental.sampling.workers.split import Splitter
from pyg_incremental.sources import IterableSource
from tests.distributed.threads import all_well, run_ranks

BUYS, MADE, LIKES = ("user", "buys", "item"), ("item", "of", "user"), ("user", "likes", "user")
KINDS = {BUYS: [3, 2], MADE: [2, 4], LIKES: [2, 0]}
DATA = {"topk": "edge_time", "weight": "edge_weight"}


class Shop:
    """A drawn graph of users and items, and a sampler of one process that follows it."""

    def __init__(self, strategy, rng):
        self.rng, self.strategy = rng, strategy
        self.nodes = {"user": 15, "item": 12}
        self.x = {kind: torch.randn(count, 3 + len(kind)) for kind, count in self.nodes.items()}
        self.edges = {kind: self.draw(kind, 60) for kind in KINDS}
        given = {DATA[strategy]: self.values(60)} if strategy in DATA else {}
        self.given = {name: dict.fromkeys(KINDS, values) for name, values in given.items()}
        self.sampler = StreamingSampler(
            self.edges, self.nodes, KINDS, strategy=strategy, seed=4, **self.given
        )

    def draw(self, kind, count):
        ends = [self.rng.integers(0, self.nodes[end], count) for end in (kind[0], kind[2])]
        return torch.from_numpy(np.stack(ends))

    def values(self, count):
        return torch.from_numpy(self.rng.random(count) + 0.1)

    def delta(self):
        """Edges of all types come and go, a node of each type comes, or one loses its edges."""
        rng, fields = self.rng, {}
        if rng.random() < 0.4:
            new = {kind: torch.randn(1, x.shape[1]) for kind, x in self.x.items()}
            fields["x_add"] = new
            self.x = {kind: torch.cat([x, new[kind]]) for kind, x in self.x.items()}
            self.nodes = {kind: len(x) for kind, x in self.x.items()}
        kinds = [kind for kind in KINDS if rng.random() < 0.8]
        counts = {kind: int(rng.integers(0, 9)) for kind in kinds}
        fields["edge_index_add"] = {kind: self.draw(kind, counts[kind]) for kind in kinds}
        if self.strategy in DATA:
            name = {"topk": "time", "weight": "edge_weight"}[self.strategy]
            data = {kind: {name: self.values(counts[kind])} for kind in kinds}
            fields["edge_data_add"] = data
        alive = {k: self.sampler.edges_of(k).graph.to_edge_index() for k in kinds}
        fields["edge_index_del"] = {
            k: e[:, rng.permutation(e.shape[1])[:6]] for k, e in alive.items()
        }
        if rng.random() < 0.2:
            gone = int(rng.integers(0, 12))
            fields["nodes_del"] = {"user": torch.tensor([gone])}
            self.x["user"][gone] = 0
        else:
            at = int(rng.integers(0, 12))
            fields["x_changes"] = {"item": (torch.tensor([at]), torch.ones(1, 7))}
            self.x["item"][at] = 1
        delta = GraphDelta(**fields, which="oldest" if rng.random() < 0.3 else "newest")
        self.sampler.apply_delta(delta)
        return delta

    def check(self, data, seeds):
        """A batch is what the sampler gives, features included."""
        out = self.sampler.sample(seeds)
        for kind, nodes in out.node.items():
            assert torch.equal(data[kind].n_id, nodes)
            assert torch.equal(data[kind].x, self.x[kind][nodes])
            assert data[kind].num_sampled_nodes == out.num_sampled_nodes[kind]
            assert data[kind].get("batch_size") == (len(seeds[kind]) if kind in seeds else None)
        for kind, row in out.row.items():
            assert torch.equal(data[kind].edge_index, torch.stack([row, out.col[kind]]))
            assert torch.equal(data[kind].e_id, out.edge[kind])
            assert data[kind].num_sampled_edges == out.num_sampled_edges[kind]


class Workers:
    """Workers of both kinds as threads."""

    def __init__(self, shop, sampling, serving, owners=None, edges_by="target"):
        times, weights = shop.given.get("edge_time"), shop.given.get("edge_weight")
        query, data = registered(
            shop.edges, shop.x, KINDS, times, weights, owners,
            strategy=shop.strategy, seed=4, memory=None, edges_by=edges_by,
        )  # fmt: skip
        self.query, self.splitter = query, Splitter(query)
        self.sampling = [SamplingWorker(query, part, sampling) for part in range(sampling)]
        self.serving = [ServingWorker(query) for _ in range(serving)]
        self.number = 0
        self.round([self.splitter.start(shop.edges, data, shop.x, sampling)], {}, fresh=True)

    def owned(self, seeds, parts, of):
        return [
            {k: v[split(v, parts, of, self.query.owners_of(k))[p]] for k, v in seeds.items()}
            for p in range(parts)
        ]

    def round(self, deltas, seeds, more=1, fresh=False):
        self.number += 1
        parts, servers = len(self.sampling), len(self.serving)
        mine = [self.owned(own, servers, SERVING) for own in self.owned(seeds, parts, SAMPLING)]

        def work(comm):
            rounds, rank = Rounds(comm), comm.rank
            if rank >= parts:
                return self.serving[rank - parts].listen(rounds, parts, self.number, fresh)
            self.sampling[rank].apply([delta[rank] for delta in deltas])
            counts = [{k: (v, np.full(v.size, more)) for k, v in own.items()} for own in mine[rank]]
            return self.sampling[rank].round(rounds, counts, fresh)

        all_well(run_ranks(parts + servers, work))

    def ask(self, seeds):
        """One batch from the workers that own the seeds."""
        places, answers = [], []
        for to, worker in enumerate(self.serving):
            at = {
                k: split(v, len(self.serving), SERVING, self.query.owners_of(k))[to]
                for k, v in seeds.items()
            }
            if any(own.size for own in at.values()):
                places.append(at)
                answers.append(worker.answer({k: seeds[k][own] for k, own in at.items()}))
        return merged(answers, places, {k: v.size for k, v in seeds.items()})


@pytest.mark.parametrize(("sampling", "serving"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("strategy", ["random", "topk", "weight"])
def test_any_stream(strategy, sampling, serving, seed, tmp_path):
    rng = np.random.default_rng(seed)
    shop = Shop(strategy, rng)
    owners = {"user": torch.arange(15) % 3}
    workers = Workers(shop, sampling, serving, owners)
    seeds = {"user": np.arange(6), "item": np.array([1, 8])}
    workers.round([], seeds)
    for turn in range(14):
        if turn == 6:  # others go on from the files
            files = [(str(tmp_path / f"{p}"), w.save(tmp_path / f"{p}"))
                     for p, w in enumerate(workers.sampling)]  # fmt: skip
            workers.sampling = [SamplingWorker(workers.query, p, 3) for p in range(3)]
            for worker in workers.sampling:
                worker.load(files)
            workers.round([], seeds, fresh=True)
        deltas = [shop.delta() for _ in range(turn % 3)]
        count = len(workers.sampling)
        workers.round([workers.splitter.read(delta, count) for delta in deltas], {})
        for kind, ids in seeds.items():
            for one in ids.tolist():
                some = {kind: np.array([one])}
                shop.check(workers.ask(some), {kind: torch.tensor([one])})
        assert workers.splitter.num_nodes == shop.sampler.num_nodes
    held = sum(worker.num_edges for worker in workers.sampling)
    assert held == sum(shop.sampler.num_edges.values())
    workers.round([], seeds, more=-1)
    assert [w.held["samples"] + w.held["features"] for w in workers.serving] == [0] * serving


def test_types_draw_apart():
    """Two edge types with the same edges have samples that have nothing in common but chance."""
    edges = torch.stack([torch.arange(1000) % 40, torch.arange(1000) // 40])
    kinds = ("a", "x", "a"), ("a", "y", "a")
    sampler = StreamingSampler(dict.fromkeys(kinds, edges), {"a": 40}, [10], seed=5)
    one, other = ([set(sampler.edges_of(k).rows.of(v).tolist()) for v in range(25)] for k in kinds)
    common = sum(len(a & b) for a, b in zip(one, other, strict=True))
    assert abs(common - 25 * 10 * 10 / 40) < 5 * (25 * 1.5) ** 0.5


@pytest.mark.parametrize(("which", "left"), [("oldest", 1), ("newest", 0)])
def test_which_of_two_edges_leaves_is_heard_by_type(which, left):
    edges = {BUYS: torch.tensor([[3, 3], [1, 1]])}
    sampler = StreamingSampler(edges, {"user": 4, "item": 2}, [2])
    sampler.apply_delta(edge_index_del={BUYS: [[3], [1]]}, which=which)
    assert sampler.sample({"item": torch.tensor([1])}).edge[BUYS].tolist() == [left]


def test_a_service_of_several_types(seed, tmp_path):
    """Registered, asked, followed and restored; old edges leave, as seeds that nobody asks for."""
    shop = Shop("topk", np.random.default_rng(seed))
    start, times = dict(shop.edges), shop.given["edge_time"]
    x = {kind: rows.clone() for kind, rows in shop.x.items()}
    stream = [shop.delta() for _ in range(8)]
    seeds = {"user": torch.tensor([3, 0, 7]), "item": torch.tensor([2])}
    now, source = [10.0], IterableSource(stream)
    with SampleService(
        source, start, x, KINDS, tmp_path, strategy="topk", edge_time=times, seed=4, sampling=2,
        timeout=60.0, ttl=5.0, data_ttl=9.5, clock=lambda: now[0],
    ) as service:  # fmt: skip
        service.subscribe(seeds)
        while service.step(20).events:
            pass
        shop.check(service.query(seeds), seeds)
        shop.check(service.query({"item": torch.tensor([2])}), {"item": torch.tensor([2])})
        assert service.num_nodes == shop.nodes
        shop.sampler.expire(0.5)
        data = service.query(seeds, after=service.tick())
        shop.check(data, seeds)
        assert sum(w["edges"] for w in service.stats.sampling) == sum(
            shop.sampler.num_edges.values()
        )
        now[0] += 4.0
        service.query({"user": torch.tensor([0])})
        now[0] += 2.0
        service.step()  # seeds that nobody asked for are let go
        assert service._supervisor.seeds["user"].sum() == 1
        assert service._supervisor.seeds["item"].sum() == 0
        service.checkpoint()
        with pytest.raises(ValueError, match="no nodes of type 'shop'"):
            service.query({"shop": torch.tensor([0])})
        with pytest.raises(ValueError, match="seeds by node type"):
            service.query(torch.tensor([0]))
    again = SampleService.restore(source, tmp_path, sampling=1, timeout=60.0)
    with again as service:
        shop.check(service.query(seeds), seeds)


def test_what_does_not_fit_several_types(tmp_path):
    shop = Shop("topk", np.random.default_rng(0))
    arguments = {"strategy": "topk", "seed": 0, "memory": None}
    times = shop.given["edge_time"]
    for change, text in (
        ({"x": shop.x["user"]}, "x: expected features as edge_index has types"),
        ({"x": {"user": shop.x["user"]}}, r"for each of \['item', 'user'\]"),
        ({"num_neighbors": [2, -1]}, "no -1"),
        ({"edge_time": {BUYS: times[BUYS]}}, "needs edge_time"),
        ({"owners": {"user": torch.zeros(3)}}, "the part of each of 15 nodes"),
    ):
        given = {"edge_index": shop.edges, "x": shop.x, "num_neighbors": KINDS,
                 "edge_time": times, "edge_weight": None, "owners": None, **change}  # fmt: skip
        with pytest.raises(ValueError, match=text):
            registered(**given, **arguments)
    query, _ = registered(shop.edges, shop.x, KINDS, times, None, None, **arguments)
    splitter = Splitter(query)
    for fields, text in (
        ({"edge_index_add": torch.tensor([[0], [1]])}, "expected a dict with keys"),
        ({"x_changes": {"shop": ([0], torch.ones(1, 7))}}, "expected a dict with keys"),
        ({"edge_index_del": {BUYS: torch.tensor([[99], [0]])}}, r"edge_index_del\[\('user'"),
        ({"nodes_del": {"item": [99]}}, r"nodes_del\['item'\]"),
    ):
        with pytest.raises(InvalidDeltaError, match=text):
            splitter.read(GraphDelta(**fields), 1)
    query, _ = registered(
        shop.edges, shop.x, KINDS, None, None, None, **{**arguments, "strategy": "random"}
    )
    with pytest.raises(ValueError, match="data_ttl"):
        SeedAges(query, None, 1.0, time.time)

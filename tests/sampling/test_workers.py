"""Workers of both kinds, as threads of one process, hold what they need and answer as one would."""

import threading
from collections import Counter
from multiprocessing import Pipe

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta, InvalidDeltaError, StateFileError
from pyg_incremental.distributed.wire.rounds import Rounds
from pyg_incremental.files import snapshot
from pyg_incremental.sampling import SampleCache
from pyg_incremental.sampling.workers import checkpoint, process
from pyg_incremental.sampling.workers.channel import Channel
from pyg_incremental.sampling.workers.merge import merged
from pyg_incremental.sampling.workers.messages import SampleQuery
from pyg_incremental.sampling.workers.owners import (
    SAMPLING,
    SERVING,
    checked_owners,
    owner_of,
    split,
)
from pyg_incremental.sampling.workers.sampling import SamplingWorker
from pyg_incremental.sampling.workers.serving import ServingWorker
from pyg_incremental.sampling.workers.split import Splitter
from pyg_incremental.sources import IterableSource
from tests.distributed.threads import all_well, run_ranks
from tests.sampling.test_cache import needed_by
from tests.sampling.test_streams import DATA, STRATEGIES, made, random_delta

FANOUTS = [3, 2]


class World:
    """Workers that meet in rounds; `sampler` and `naive` follow the same events alone."""

    def __init__(
        self, strategy, seed, rng, sampling, serving, memory=None, fanouts=FANOUTS, owners=(),
        edges_by="target",
    ):  # fmt: skip
        self.fanouts, self.named = fanouts, np.array(owners, np.int64)
        self.sampler, self.naive = made(strategy, seed, rng, fanouts)
        self.naive.edges_by = edges_by
        graph = self.sampler.edges_of().graph.state()
        names = [DATA[strategy]] if DATA[strategy] else []
        data = {name: graph[name] for name in names}
        self.x = torch.randn(12, 4)
        kinds = {name: values[:0] for name, values in data.items()}
        self.query = SampleQuery(
            {None: fanouts}, strategy, seed, {None: kinds}, {None: self.x[:0]}, memory,
            {None: self.named}, {None: edges_by},
        )  # fmt: skip
        self.splitter = Splitter(self.query)
        edges = {None: graph["edge_index"]}
        first = self.splitter.start(edges, {None: data}, {None: self.x}, sampling)
        self.sampling = [SamplingWorker(self.query, p, sampling) for p in range(sampling)]
        self.serving = [ServingWorker(self.query) for _ in range(serving)]
        self.number, self.seeds = 0, []
        self.round([first], fresh=True)

    def round(self, deltas, come=(), gone=(), fresh=False):
        """One round of all workers."""
        counts = Counter(come)
        counts.subtract(gone)
        self.seeds += come
        for seed in gone:
            self.seeds.remove(seed)
        if fresh:
            counts = Counter(self.seeds)
        ids = np.array(sorted(counts), np.int64)
        more = np.array([counts[v] for v in ids.tolist()], np.int64)
        served = owner_of(ids, len(self.serving), SERVING, self.named)
        owned = owner_of(ids, len(self.sampling), SAMPLING, self.named)
        parts = len(self.sampling)
        self.number += 1

        def work(comm):
            rounds, rank = Rounds(comm), comm.rank
            if rank >= parts:
                return self.serving[rank - parts].listen(rounds, parts, self.number, fresh)
            self.sampling[rank].apply([delta[rank] for delta in deltas])
            mine = [(owned == rank) & (served == to) for to in range(len(self.serving))]
            seeds = [{None: (ids[m], more[m])} for m in mine]
            return self.sampling[rank].round(rounds, seeds, fresh)

        all_well(run_ranks(parts + len(self.serving), work))

    def delta(self, strategy, rng):
        """A delta with everything in it, taken by those alone; what it says to the workers."""
        fields = random_delta(self.sampler, self.naive, strategy, rng)
        if "x_add" in fields:
            fields["x_add"] = torch.randn(len(fields["x_add"]), 4)
            self.x = torch.cat([self.x, fields["x_add"]])
        at = int(rng.integers(0, len(self.x)))
        fields["x_changes"] = (torch.tensor([at]), torch.randn(1, 4))
        self.x[at] = fields["x_changes"][1]
        self.x[fields["nodes_del"]] = 0
        self.sampler.apply_delta(**fields)
        return self.splitter.read(GraphDelta(**fields), len(self.sampling))

    def check(self):
        """Every worker holds what its seeds need, nothing else, and answers as the sampler does."""
        owner = owner_of(np.array(self.seeds, np.int64), len(self.serving), SERVING, self.named)
        for to, worker in enumerate(self.serving):
            seeds = [s for s, own in zip(self.seeds, owner.tolist(), strict=True) if own == to]
            hops = needed_by(self.naive, seeds, self.fanouts)
            for hop, needed in enumerate(hops):
                for part, own in enumerate(self.sampling):
                    found = own._publisher.needed(None)[to, hop]
                    ids = np.array(sorted(needed), np.int64)
                    owned = owner_of(ids, len(self.sampling), SAMPLING, self.named)
                    mine = ids[owned == part].tolist()
                    assert np.flatnonzero(found).tolist() == mine
                    assert found[mine].tolist() == [needed[v] for v in mine]
            assert worker.held["samples"] == sum(map(len, hops[:-1]))
            assert worker.held["features"] == len(set().union(*hops))
            assert worker.round == self.number
            for seed in dict.fromkeys(seeds):
                self.same(worker.answer({None: np.array([seed])}), torch.tensor([seed]))
            several = np.array(list(dict.fromkeys(seeds)), np.int64)
            self.same(worker.answer({None: several}), torch.from_numpy(several))

    def same(self, answer, seeds):
        out = self.sampler.sample(seeds)
        nodes, edges = answer.nodes[None], answer.edges[None]
        assert torch.equal(nodes.node, out.node)
        assert torch.equal(edges.edge_index, torch.stack([out.row, out.col]))
        assert torch.equal(edges.edge, out.edge)
        assert torch.equal(nodes.x, self.x[out.node])
        assert nodes.counts == out.num_sampled_nodes
        assert edges.counts == out.num_sampled_edges


@pytest.mark.parametrize(("sampling", "serving"), [(1, 1), (2, 3), (3, 1)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_stream(strategy, sampling, serving, seed):
    rng = np.random.default_rng(seed)
    world = World(strategy, seed, rng, sampling, serving)
    for turn in range(16):
        come = rng.integers(0, world.sampler.num_nodes, 2).tolist() if turn % 3 == 0 else []
        gone = world.seeds[:1] if turn % 3 == 1 else []
        deltas = [world.delta(strategy, rng) for _ in range(turn % 3)]
        world.round(deltas, come, gone, fresh=turn == 9)
        world.check()
    world.round([], gone=list(world.seeds))
    assert [worker.held["features"] for worker in world.serving] == [0] * serving
    assert not any(worker.subscriptions[to] for worker in world.sampling for to in range(serving))


def test_three_hops_and_samples_on_disk(seed):
    pytest.importorskip("rocksdict", reason="rocksdict is not installed (the `disk` extra)")
    rng = np.random.default_rng(seed)
    world = World("topk", seed, rng, 2, 2, memory=600, fanouts=[2, 2, 2])
    for turn in range(6):
        come = rng.integers(0, world.sampler.num_nodes, 3).tolist()
        world.round([world.delta("topk", rng)], come, fresh=turn == 3)
        world.check()
    assert sum(worker.held["bytes_on_disk"] for worker in world.serving) > 0


def test_another_number_of_workers_goes_on_from_the_files(seed, tmp_path):
    """Two sampling workers write, three read; then one of these is made anew from its own file."""
    rng = np.random.default_rng(seed)
    world = World("random", seed, rng, 2, 1)
    for _ in range(4):
        world.round([world.delta("random", rng)], come=[1, 5])
    for count in (3, 3, 1):
        files = [
            (str(tmp_path / f"{count}-{part}"), worker.save(tmp_path / f"{count}-{part}"))
            for part, worker in enumerate(world.sampling)
        ]
        own = len(files) == count
        world.sampling = [SamplingWorker(world.query, part, count) for part in range(count)]
        for part, worker in enumerate(world.sampling):
            worker.load(files[part : part + 1] if own else files)
        world.round([world.delta("random", rng)], fresh=True)
        world.check()
        world.round([world.delta("random", rng)], come=[2])
        world.check()
    assert sum(worker.num_edges for worker in world.sampling) == world.sampler.num_edges


def test_edges_that_are_not_there_are_counted():
    world = World("random", 0, np.random.default_rng(0), 2, 1)
    gone = torch.tensor([[0, 0, 0], [5, 5, 5]])
    before = world.sampler.num_edges
    world.sampler.apply_delta(edge_index_del=gone, missing="ignore")
    world.round([world.splitter.read(GraphDelta(edge_index_del=gone), 2)])
    left = sum(worker.num_edges for worker in world.sampling)
    assert left == world.sampler.num_edges
    assert sum(worker.missing for worker in world.sampling) == 3 - (before - left)


def test_a_delta_that_does_not_fit_is_refused_before_anything_is_numbered():
    splitter = World("topk", 0, np.random.default_rng(0), 1, 1).splitter
    state = dict(splitter.num_nodes), dict(splitter.next_id)
    time = {"time": torch.tensor([1])}
    for fields, text in (
        ({"edge_index_add": [[0], [99]], "edge_data_add": time}, "ids lie in"),
        ({"edge_index_del": [[12], [0]], "x_add": torch.ones(1, 4)}, "ids lie in"),
        ({"edge_index_add": [[0], [1]]}, "come without 'time'"),
        ({"nodes_del": [12]}, "nodes_del"),
        ({"x_add": torch.ones(1, 3)}, "x_add"),
    ):
        with pytest.raises(InvalidDeltaError, match=text):
            splitter.read(GraphDelta(**fields), 2)
    assert (splitter.num_nodes, splitter.next_id) == state


class Odd:
    """What nobody expects in a record."""

    def __len__(self):
        raise RuntimeError("no")

    __array__ = __bool__ = __len__


POISON = [
    "abc", 5, Odd(), b"ab", {1: 2}, [[1, 2], [3]], [2**70], np.array("2020", "M8[s]"), ("a",),
    torch.tensor(3.0), torch.ones(2, 1, device="meta"), torch.ones(2, 3, 4).to_sparse(),
    torch.ones(1, 4, dtype=torch.complex64), GraphDelta(edge_index_add="abc"), iter([1]), print,
]  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_poisoned_record_is_left_out_and_those_behind_it_are_not(strategy):
    """Whatever a field holds: it is refused, nothing is numbered, and workers never see it."""
    rng = np.random.default_rng(0)
    world = World(strategy, 0, rng, 2, 1)
    count = 0
    for name in ("edge_index_add", "edge_index_del", "x_changes", "x_add", "nodes_del", None):
        given = [value if name is None else GraphDelta(**{name: value}) for value in POISON]
        records = IterableSource(given).next_batch(10**6)
        assert len(records) == len(given)
        # Five as an id says something: a node that is there may be removed.
        ok = [name == "nodes_del" and value == 5 for value in POISON if type(value) is int]
        state = dict(world.splitter.num_nodes), dict(world.splitter.next_id)
        parts, events, refused = world.splitter.read_all(records, 2)
        assert len(refused) == len(given) - sum(ok)
        assert all(type(error) is InvalidDeltaError for error in refused)
        assert (len(parts[0]), events) == (sum(ok), sum(ok))
        assert (world.splitter.num_nodes, world.splitter.next_id) == state
        count += len(refused)
    assert count == 6 * len(POISON) - 1
    world.round([world.delta(strategy, rng)], come=[1, 5])
    world.check()


@pytest.mark.parametrize("x_add", ["abc", 5, [[1, 2], [3]]])
def test_features_that_are_none_are_refused_by_name(x_add):
    world = World("random", 0, np.random.default_rng(0), 1, 1)
    cache = SampleCache(world.sampler, world.x)
    for apply_delta in (world.sampler.apply_delta, cache.apply_delta):
        with pytest.raises(InvalidDeltaError, match="x_add"):
            apply_delta(x_add=x_add)
    assert world.sampler.num_nodes == 12


def test_one_row_may_come_without_its_first_dimension():
    world = World("random", 0, np.random.default_rng(0), 1, 1)
    cache, row = SampleCache(world.sampler, world.x), torch.arange(4.0)
    cache.apply_delta(x_add=row)
    assert world.sampler.num_nodes == 13
    assert torch.equal(cache.query(torch.tensor([12])).x, row[None])
    world.splitter.read(GraphDelta(x_add=row), 1)
    assert world.splitter.num_nodes == {None: 13}


def test_owners_are_even_and_have_nothing_in_common():
    ids = np.arange(30_000)
    table = np.zeros((3, 3))
    np.add.at(table, (owner_of(ids, 3, SAMPLING), owner_of(ids, 3, SERVING)), 1)
    assert np.abs(table - ids.size / 9).max() < 5 * (ids.size / 9) ** 0.5
    parts = split(ids, 3, SAMPLING)
    assert sorted(np.concatenate(parts).tolist()) == ids.tolist()


def test_answers_of_several_workers_are_one_batch(seed):
    """Each seed has the subgraph that its worker gave; hops and seeds are in order."""
    rng = np.random.default_rng(seed)
    world = World("random", seed, rng, 1, 2)
    world.round([], come=list(range(12)))
    ids = rng.permutation(12)[:7]
    places = split(ids, 2, SERVING)
    answers = [w.answer({None: ids[at]}) for w, at in zip(world.serving, places, strict=True)]
    assert all(at.size for at in places)
    data = merged(answers, [{None: at} for at in places], {None: ids.size})
    assert data.n_id[:7].tolist() == ids.tolist()
    assert torch.equal(data.x, world.x[data.n_id])
    bounds = np.cumsum([0, *data.num_sampled_edges])
    for hop in range(2):
        own = data.e_id[bounds[hop] : bounds[hop + 1]].tolist()
        edges = [a.edges[None] for a in answers]
        every = [a.edge.split(a.counts)[hop] for a in edges]
        assert own == torch.cat(every).tolist()
    sources = {e["id"]: (e["src"], e["dst"]) for e in world.naive.edges}
    ends = data.n_id[data.edge_index].T.tolist()
    assert [tuple(pair) for pair in ends] == [sources[i] for i in data.e_id.tolist()]


def test_owners_by_a_map(seed, tmp_path):
    """Nodes of a part have one worker of each kind; those that came later go by a hash."""
    rng = np.random.default_rng(seed)
    parts = rng.integers(0, 5, 12)
    world = World("topk", seed, rng, 2, 3, owners=parts)
    for turn in range(9):
        come = rng.integers(0, world.sampler.num_nodes, 2).tolist()
        world.round([world.delta("topk", rng) for _ in range(turn % 3)], come=come)
        world.check()
    nodes = np.arange(world.sampler.num_nodes)
    assert (owner_of(nodes, 3, SERVING, parts)[:12] == parts % 3).all()
    assert (owner_of(nodes, 3, SERVING, parts)[12:] == owner_of(nodes[12:], 3, SERVING)).all()
    files = []
    for part, worker in enumerate(world.sampling):
        held = worker._edges[None].graph.to_edge_index()[1].numpy()
        assert (owner_of(held, 2, SAMPLING, parts) == part).all()
        files.append((str(tmp_path / f"{part}"), worker.save(tmp_path / f"{part}")))
    for part in range(3):  # other numbers of workers read what is theirs
        worker = SamplingWorker(world.query, part, 3)
        worker.load(files)
        held = worker._edges[None].graph.to_edge_index()[1].numpy()
        assert (owner_of(held, 3, SAMPLING, parts) == part).all()


def test_old_edges_leave_all_workers(seed):
    rng = np.random.default_rng(seed)
    world = World("topk", seed, rng, 2, 2)
    world.round([], come=[0, 3, 5, 8])
    for _ in range(4):
        edges = world.naive.edges
        before = float(np.median([e["value"] for e in edges])) if edges else 0.0
        world.sampler.expire(before)
        world.naive.edges = [e for e in edges if e["value"] >= before]
        world.round([world.splitter.expire(before, 2)])
        world.check()
        world.round([world.delta("topk", rng)])
        world.check()
    other = World("random", seed, rng, 1, 1)
    with pytest.raises(ValueError, match="no times"):
        other.splitter.expire(0.0, 1)


@pytest.mark.parametrize("owners", [[0, 1], [[0], [1], [2]], [0, 1, -1]])
def test_a_map_that_does_not_fit(owners):
    with pytest.raises(ValueError, match="the part of each of 3 nodes"):
        checked_owners(torch.tensor(owners), 3)


def test_a_seed_of_another_worker_has_no_answer():
    world = World("random", 0, np.random.default_rng(0), 1, 1)
    assert world.serving[0].answer({None: np.array([3])}) is None
    world.round([], come=[3])
    assert world.serving[0].answer({None: np.array([3])}) is not None
    assert world.serving[0].answer({None: np.array([3, 99])}) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: c.pop("x"),
        lambda c: c["num_nodes"].update({None: 3}),
        lambda c: c["x"].update({None: c["x"][None].double()}),
        lambda c: c["x"].update({None: c["x"][None][1:]}),
        lambda c: c["nodes"].update({None: c["nodes"][None].flip(0)}),
        lambda c: c["nodes"].update({None: c["nodes"][None] + 9}),
        lambda c: c["edges"][None].update(edge_id=c["edges"][None]["edge_id"].flip(0)),
        lambda c: c["edges"][None].update(edge_id=c["edges"][None]["edge_id"][1:]),
        lambda c: c["edges"][None].update(edge_index=c["edges"][None]["edge_index"] + 9),
        lambda c: c["edges"][None].update(edge_index=c["edges"][None]["edge_index"] - 9),
        lambda c: c["edges"][None].update(time=c["edges"][None]["time"].float()),
        lambda c: c["edges"][None].pop("time"),
        lambda c: c["edges"].update({("a", "to", "b"): c["edges"][None]}),
    ],
)
def test_a_file_that_does_not_hang_together_is_refused(spoil, tmp_path):
    world = World("topk", 0, np.random.default_rng(0), 1, 1)
    path = tmp_path / "file"
    world.sampling[0].load([(str(path), world.sampling[0].save(path))])
    content = snapshot.read(path)
    spoil(content)
    checksum = snapshot.write(path, content)
    with pytest.raises((StateFileError, InvalidDeltaError)):
        SamplingWorker(world.query, 0, 1).load([(str(path), checksum)])


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": {None: torch.tensor([-1])}},
        {"seeds": {None: torch.ones(9, dtype=torch.int64)}},
        {"seeds": {None: torch.ones(2)}},
        {"seeds": {"a": torch.ones(2, dtype=torch.int64)}},
        {"files": "here"},
        {"query": None},
        {"num_neighbors": {None: [-1]}},
        {"num_neighbors": {None: []}},
        {"seed": "7"},
        {"owners": {None: np.array([-1])}},
        {"owners": {None: np.ones(2)}},
        {"owners": {"a": np.ones(2, np.int64)}},
        {"edges_by": {None: "sources"}},
        {"edges_by": {("a", "to", "b"): "source"}},
        {"num_neighbors": {("a", "to", "b"): [2]}},
        {"num_neighbors": {None: [2], ("a", "to", "b"): [2]}},
        {"num_nodes": {"a": 8}},
        {"next_id": {}},
        {"x": {}},
    ],
)
def test_a_checkpoint_that_does_not_hang_together_is_refused(change, tmp_path):
    by, x = {None: "target"}, {None: torch.empty(0, 1)}
    query = SampleQuery({None: [2]}, "random", 7, {None: {}}, x, None, {}, by)
    content = {
        "query": query, "files": [["a", "b"]], "position": 3,
        "num_nodes": {None: 8}, "next_id": {None: 4}, "events": 5,
        "seeds": {None: torch.tensor([0, 2])}, "serving": 1,
    }  # fmt: skip
    checkpoint.write(tmp_path, content)
    assert checkpoint.read(tmp_path)["query"].num_neighbors == {None: [2]}
    own = {k: v for k, v in change.items() if k in query._fields}
    content["query"] = query._replace(**own)
    content |= {k: v for k, v in change.items() if k not in own}
    snapshot.write(tmp_path / checkpoint.MANIFEST, content)
    with pytest.raises(StateFileError):
        checkpoint.read(tmp_path)


def test_checkpoints_before_the_last_one_are_removed(tmp_path):
    names = set()
    for number in (1, 2, 3):
        with checkpoint.begun(tmp_path) as folder:
            files = [(str(folder / "sampling-0"), "")]
            (folder / "sampling-0").write_bytes(b"")
            checkpoint.write(tmp_path, {"files": files})
        checkpoint.sweep(tmp_path, files)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", folder.name]
        assert folder.name.startswith(f"generation-{number}-")
        names.add(folder.name)
    assert len(names) == 3


def test_files_of_a_checkpoint_that_fails_are_removed_unless_it_counts_by_then(tmp_path):
    made = []

    def fail(counts):
        with checkpoint.begun(tmp_path) as folder:
            made.append(folder)
            if counts:  # its name was not flushed, and may be on the disk or not
                checkpoint.write(tmp_path, {"files": [(str(folder / "sampling-0"), "")]})
            raise OSError("full")

    for counts in (False, True, False):
        with pytest.raises(OSError, match="full"):
            fail(counts)
    assert [folder.exists() for folder in made] == [False, True, False]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", made[1].name]


def test_a_worker_does_what_its_pipe_says(tmp_path):
    """Commands in order, one reply each; errors are replies, and queries have their own pipe."""
    world = World("random", 0, np.random.default_rng(0), 1, 1)
    (control, theirs), (queries, asked) = Pipe(), Pipe()
    thread = threading.Thread(target=process.serve, args=(theirs, asked, 5.0, None))
    thread.start()

    def tell(*command):
        process.send(control, command)
        return process.receive(control)

    path = str(tmp_path / "file")
    assert tell("sample", world.query, 0, 1) is None
    checksum = world.sampling[0].save(path)
    assert tell("load", [[path, checksum]]) is None
    assert tell("apply", [world.delta("random", np.random.default_rng(1))[0]]) is None
    assert tell("report")["edges"] == world.sampler.num_edges
    assert tell("save", path) != checksum
    assert tell("round", 1, [], [{}], True) == process.LOST  # it has met nobody
    assert isinstance(tell("load", [[path, checksum]]), StateFileError)
    assert isinstance(tell("save", str(tmp_path / "none" / "file")), OSError)
    queries = Channel(queries)
    queries.put((1, {None: np.array([0])}))
    assert queries.take() == (1, None)
    assert tell("serve", world.query) is None
    queries.put((2, {None: np.array([0])}))
    assert queries.take() == (2, None)
    queries.close()
    process.send(control, ("stop",))
    thread.join(5.0)
    assert not thread.is_alive()

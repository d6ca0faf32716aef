"""Whoever is asked for some nodes reads them in one way: ids or a mask, and nothing is guessed."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from torch_geometric.sampler import NodeSamplerInput

from pyg_incremental import InvalidDeltaError, evaluate, to_incremental
from pyg_incremental.sampling import RecentNeighbors, SampleCache, SampledModel, StreamingSampler
from pyg_incremental.sampling.workers.seeds import checked_seeds

NODES = 10


class Asked:
    """A small graph, and everything that can be asked for some of its nodes."""

    def __init__(self):
        self.x, self.edges = torch.randn(NODES, 4), torch.randint(NODES, (2, 40))
        self.model = GCN(4, 8, num_layers=2, out_channels=3).eval()
        self.sampler = StreamingSampler(self.edges, NODES, [3, 2], seed=1)

    def read(self, nodes):
        inc = to_incremental(self.model)
        inc(self.x, self.edges)
        return inc.read(nodes).out

    def refresh(self, nodes):
        inc = to_incremental(self.model)
        inc(self.x, self.edges)
        steps = inc.refresh(nodes).stats.steps
        return torch.tensor([(step.rows, step.reread) for step in steps])

    def evaluate(self, nodes):
        return evaluate(self.model, Data(self.x, self.edges), nodes=nodes)

    def sample(self, nodes):
        return self.sampler.sample(nodes).node

    def sample_from_nodes(self, nodes):
        return self.sampler.sample_from_nodes(NodeSamplerInput(None, nodes)).node

    def query(self, nodes):
        return SampleCache(self.sampler, self.x).query(nodes).n_id

    def subscribe(self, nodes):
        cache = SampleCache(self.sampler, self.x)
        cache.subscribe(nodes)
        return torch.tensor([cache.stats.seeds, *cache.stats.samples])

    def model_on_samples(self, nodes):
        return SampledModel(self.model, self.sampler, self.x, batch_size=1)(nodes)

    def service(self, nodes):
        return torch.from_numpy(checked_seeds(nodes, {None: NODES})[None])

    def recent(self, nodes):
        recent = RecentNeighbors(NODES, 3)
        recent.insert(*self.edges)
        return recent(nodes)[0]


WAYS = [name for name in vars(Asked) if not name.startswith("_")]


@pytest.fixture
def asked():
    torch.manual_seed(0)
    return Asked()


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_says_the_same_as_ids(way, asked):
    ask, mask = getattr(asked, way), torch.zeros(NODES, dtype=torch.bool)
    mask[[4, 7]] = True
    expected = ask(torch.tensor([4, 7]))
    assert torch.equal(ask(mask), expected)
    assert torch.equal(ask(torch.tensor([4, 7], dtype=torch.int32)), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.tensor([4.9, 7.0]), "expected integers"),
        (torch.ones(NODES - 1, dtype=torch.bool), "a mask of nodes"),
        (torch.tensor([4, NODES]), f"node id {NODES} at position 1"),
        (torch.tensor([-1]), "node id -1 at position 0"),
        (torch.tensor([[4, 7]]), "a list of node ids"),
    ],
)
def test_what_is_neither_is_refused(way, wrong, said, asked):
    with pytest.raises(InvalidDeltaError, match=said):
        getattr(asked, way)(wrong)


def test_a_mask_of_interactions_is_none():
    """The ends of edges are no choice of nodes."""
    recent = RecentNeighbors(NODES, 3)
    with pytest.raises(InvalidDeltaError, match="expected integers"):
        recent.insert(torch.ones(NODES, dtype=torch.bool), torch.arange(NODES))

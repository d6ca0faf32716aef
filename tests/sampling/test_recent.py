"""The last neighbours against those of PyG's own loader."""

import pytest
import torch
from torch_geometric.nn.models.tgn import LastNeighborLoader

from pyg_incremental.sampling import RecentNeighbors, StreamingSampler


def listed(n_id, edge_index, e_id):
    """Edges with the ids of their ends, in one order."""
    rows = torch.stack([*n_id[edge_index], e_id])
    return sorted(map(tuple, rows.t().tolist()))


@pytest.mark.parametrize("size", [1, 3, 10])
def test_what_the_loader_of_pyg_gives(size, seed):
    generator = torch.Generator().manual_seed(seed)
    ours, theirs = RecentNeighbors(20, size), LastNeighborLoader(20, size)
    for turn in range(30):
        count = int(torch.randint(0, 12, (1,), generator=generator))
        src, dst = torch.randint(20, (2, max(1, count)), generator=generator)
        dst = torch.where(src == dst, (dst + 1) % 20, dst)
        # One by one: of more than `size` of a node at once, theirs keeps others than the latest.
        for i in range(count):
            theirs.insert(src[i : i + 1], dst[i : i + 1])
        ours.insert(src[:count], dst[:count])
        asked = torch.randperm(20, generator=generator)[: 1 + turn % 5]
        expected, found = theirs(asked), ours(asked)
        assert torch.equal(found[0], expected[0])
        assert listed(*found) == listed(*expected)
        assert ours.cur_e_id == theirs.cur_e_id
    ours.reset_state()
    n_id, edge_index, e_id = ours(torch.tensor([4, 2]))
    assert (n_id.tolist(), edge_index.shape, e_id.numel()) == ([2, 4], (2, 0), 0)


def test_the_latest_come_first():
    recent = RecentNeighbors(5, 3)
    recent.insert(torch.tensor([0, 1, 2, 3]), torch.tensor([4, 4, 4, 4]))
    n_id, edge_index, e_id = recent(torch.tensor([4]))
    assert e_id.tolist() == [3, 2, 1]
    assert n_id[edge_index].tolist() == [[3, 2, 1], [4, 4, 4]]


def test_what_a_sampler_by_time_gives(seed):
    """One hop of `'topk'` in both directions, where each interaction is two edges."""
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(20, (2, 200), generator=generator)
    recent = RecentNeighbors(20, 4)
    recent.insert(src, dst)
    both = torch.stack([torch.stack([src, dst]), torch.stack([dst, src])], 2).view(2, -1)
    times = torch.arange(200).repeat_interleave(2)
    sampler = StreamingSampler(both, 20, [4], strategy="topk", edge_time=times)
    seeds = torch.tensor([7, 3])
    out = sampler.sample(seeds)
    n_id, edge_index, e_id = recent(seeds)
    assert e_id.tolist() == (out.edge // 2).tolist()
    assert torch.equal(n_id[edge_index], torch.stack([out.node[out.row], out.node[out.col]]))


def test_what_does_not_fit_is_refused():
    recent = RecentNeighbors(5, 3)
    with pytest.raises(ValueError, match="dst"):
        recent.insert(torch.tensor([0]), torch.tensor([5]))
    with pytest.raises(ValueError, match="n_id"):
        recent(torch.tensor([-1]))
    with pytest.raises(ValueError, match="size >= 1"):
        RecentNeighbors(5, 0)
    assert recent(torch.tensor([0]))[2].numel() == 0
    assert repr(recent) == "RecentNeighbors(5, size=3)"

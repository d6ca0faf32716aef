"""Large results are copied late, and never change for whoever holds them."""

import copy
import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.nn import SAGEConv

from pyg_incremental import Update, to_incremental
from pyg_incremental.rows.lazy_rows import MANY

NODES, WIDTH = 30_000, 40


@pytest.fixture
def inc():
    draw = torch.Generator().manual_seed(1)
    edges = torch.randint(NODES, (2, 3 * NODES), generator=draw)
    made = to_incremental(SAGEConv(4, WIDTH).eval(), compile_after=1)
    made(torch.randn(NODES, 4, generator=draw), edges)
    assert NODES * WIDTH > MANY
    return made


def change(inc, seed):
    """New features for all nodes in random order."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randperm(NODES, generator=draw)
    return inc.apply_delta(x_changes=(ids, torch.randn(NODES, 4, generator=draw)))


def is_late(inc):
    """Whether a result is held that is not copied yet."""
    late = inc._session.engine.late
    return late is not None and late() is not None and late()._rows is None


def test_a_large_result_is_copied_when_it_is_read(inc):
    for seed in range(3):
        update = change(inc, seed)
        assert isinstance(update, Update)
        assert is_late(inc)
        expected = inc.out[update.changed].clone()
        assert torch.equal(update.out, expected)
        assert not is_late(inc)
        assert update.out is update.out
        update.out.zero_()  # it is the caller's
        assert inc.verify() < 1e-4


def test_a_small_result_is_there_at_once(inc):
    inc.apply_delta(x_changes=(torch.tensor([1]), torch.ones(1, 4)))
    assert not is_late(inc)


LATER = {
    "a large update": lambda inc: change(inc, 9),
    "a small update": lambda inc: [
        inc.apply_delta(x_changes=(torch.tensor([i]), torch.ones(1, 4))) for i in range(3)
    ],
    "a new node": lambda inc: inc.apply_delta(x_add=torch.ones(1, 4)),
    "a removed node": lambda inc: inc.apply_delta(nodes_del=torch.tensor([3])),
    "refresh": lambda inc: inc.refresh(),
    "refresh of nodes": lambda inc: inc.refresh(torch.arange(100)),
    "another graph": lambda inc: inc(torch.ones(NODES, 4), torch.tensor([[0], [1]])),
    "other parameters": lambda inc: _with_other_parameters(inc),
}


def _with_other_parameters(inc):
    with torch.no_grad():
        inc.model.lin_l.weight.mul_(2)
    inc.refresh()


@pytest.mark.parametrize("later", LATER)
def test_what_is_held_never_changes(inc, later):
    change(inc, 0)
    update = change(inc, 1)
    changed, expected = update.changed.clone(), inc.out[update.changed].clone()
    assert is_late(inc)
    LATER[later](inc)
    assert torch.equal(update.changed, changed)
    assert torch.equal(update.out, expected)


def test_ids_that_the_caller_writes_to_do_not_matter(inc):
    update = change(inc, 1)
    expected = inc.out[update.changed].clone()
    assert is_late(inc)
    update.changed.fill_(1 << 40)
    assert torch.equal(update.out, expected)


def test_nothing_is_copied_for_nobody(inc):
    late = inc._session.engine
    change(inc, 1)
    assert late.late is not None
    assert late.late() is None


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy, copy.deepcopy, dataclasses.replace, lambda up: pickle.loads(pickle.dumps(up)),
        lambda up: up,
    ],
    ids=["copy", "deepcopy", "replace", "pickle", "itself"],
)  # fmt: skip
def test_a_late_update_is_one_like_any_other(inc, copied):
    update = change(inc, 1)
    expected = inc.out[update.changed].clone()
    other = copied(update)
    change(inc, 2)
    assert torch.equal(other.out, expected)
    assert torch.equal(other.changed, torch.arange(NODES))
    assert other.version == 1
    assert repr(other).startswith("Update(version=1")


def test_another_thread_may_read_while_the_next_update_runs(inc):
    with ThreadPoolExecutor(3) as pool:
        for seed in range(6):
            update = change(inc, seed)
            expected = inc.out[update.changed].clone()
            reads = [pool.submit(lambda u=update: u.out) for _ in range(2)]
            after = pool.submit(change, inc, 100 + seed)
            assert all(torch.equal(r.result(), expected) for r in reads)
            assert after.result().out.shape == (NODES, WIDTH)

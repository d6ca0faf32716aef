"""Chains of parallel edges: what leaves one walks it once, wherever in it the edges are."""

import numpy as np
import pytest
from numba import config

from pyg_incremental.kernels import pairs
from pyg_incremental.kernels.adjacency import Slots
from pyg_incremental.kernels.reference import graph
from tests.strategies import generator

LEAVE = {"reference": graph._leave, "compiled": getattr(pairs.leave, "py_func", pairs.leave)}


class Counted(np.ndarray):
    """Links that count how often one of them is followed."""

    reads = 0

    def __getitem__(self, at):
        if not isinstance(at, (slice, np.ndarray)):
            Counted.reads += 1
        return super().__getitem__(at)


def chains(copies, others):
    """Two pairs with so many edges each, in turns, and some with one; a table of them all."""
    src = np.concatenate([np.tile([0, 1], copies), np.arange(2, 2 + others)]).astype(np.int32)
    count = src.size
    slots = Slots(
        src, src + 1, *np.zeros((2, count), np.int32), np.full(count, -1, np.int32),
        np.arange(count, dtype=np.int32),
    )  # fmt: skip
    table = np.full(1 << (4 * others + 8).bit_length(), pairs.EMPTY, np.int32)
    graph.enter(np.arange(count), table, slots)
    return slots, table


def walked(slots, table):
    """The slots of each pair, youngest first."""
    found = {}
    for head in table[table >= 0].tolist():
        at, found[slots.src[head]] = head, []
        while at >= 0:
            found[slots.src[head]].append(at)
            at = int(slots.older[at])
    return found


@pytest.mark.kernels
@pytest.mark.parametrize("name", LEAVE)
@pytest.mark.parametrize("which", ["oldest", "middle", "newest", "any", "all"])
def test_each_chain_is_walked_once(name, which, seed):
    if name == "compiled" and not config.DISABLE_JIT:
        pytest.skip("plain Python counts: NUMBA_DISABLE_JIT=1")
    rng, copies = generator(seed), 300
    slots, table = chains(copies, others=8)
    of_pairs = np.arange(2 * copies)
    gone = {
        "oldest": of_pairs[: copies // 2],
        "middle": of_pairs[copies // 2 : copies],
        "newest": of_pairs[copies:],
        "any": rng.permutation(slots.src.size)[:copies],
        "all": np.arange(slots.src.size),
    }[which]
    before = walked(slots, table)
    links = slots._replace(older=slots.older.view(Counted))
    Counted.reads = 0
    LEAVE[name](rng.permutation(gone), table, links)
    assert Counted.reads <= 3 * slots.src.size
    left = {pair: [s for s in chain if s not in {*gone}] for pair, chain in before.items()}
    assert walked(slots, table) == {pair: chain for pair, chain in left.items() if chain}

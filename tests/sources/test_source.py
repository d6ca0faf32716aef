"""Sources are pulled, and go on from any position that they gave."""

import asyncio
import time

import numpy as np
import pytest
import torch

from pyg_incremental import GraphDelta
from pyg_incremental.sources import AsyncSource, IterableSource
from pyg_incremental.sources.event import num_events


def edges(count):
    return torch.zeros(2, count, dtype=torch.int64)


DELTAS = [GraphDelta(edge_index_add=edges(k)) for k in (3, 1, 1, 7, 2)]


def sizes(batch):
    return [num_events(event.value) for event in batch]


def values(batch):
    return [event.value for event in batch]


def test_as_many_events_as_asked_for_but_at_least_one_delta():
    source = IterableSource(DELTAS)
    assert [sizes(source.next_batch(4)) for _ in range(5)] == [[3, 1], [1], [7], [2], []]
    assert source.position() == 5
    assert values(IterableSource(DELTAS).next_batch(100)) == DELTAS
    assert [event.position for event in IterableSource(DELTAS).next_batch(100)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("deltas", [DELTAS, lambda: iter(DELTAS)])
def test_from_every_position(deltas):
    source = IterableSource(deltas)
    for at in (3, 0, 5, 1, 1):
        source.open(at)
        assert source.position() == at
        assert values(source.next_batch(100)) == DELTAS[at:]
        assert source.position() == 5
    source.open(0)
    source.next_batch(4)  # a delta was looked at that did not fit any more
    assert source.position() == 2
    source.open(2)
    assert values(source.next_batch(1)) == DELTAS[2:3]
    with pytest.raises(ValueError, match="end after 5, before 6"):
        source.open(6)


def test_an_iterator_only_goes_on():
    source = IterableSource(iter(DELTAS))
    source.next_batch(4)
    source.open(3)
    assert sizes(source.next_batch(100)) == [7, 2]
    with pytest.raises(ValueError, match="cannot go back to 4"):
        source.open(4)
    assert "at 5" in repr(source)


def read_all(source, count):
    found = []
    while len(found) < count:
        found += source.next_batch(3)
    return found


async def rising(count=20):
    for k in range(count):
        if k % 7 == 3:
            await asyncio.sleep(0.001)
        yield k


class Rising:
    def __aiter__(self):
        return rising()


@pytest.mark.parametrize("given", [rising, Rising()])
def test_an_asynchronous_iterable_from_every_position(given):
    source = AsyncSource(given, max_events=4, wait=1.0)
    for at in (0, 7, 3, 19, 0):
        source.open(at)
        assert source.position() == at
        found = read_all(source, 20 - at)
        assert values(found) == [*range(at, 20)]
        assert [event.position for event in found] == [*range(at + 1, 21)]
        assert all(0.0 < event.at <= time.perf_counter() for event in found)
    assert source.next_batch(3) == []  # it has ended
    source.open(30)
    with pytest.raises(ValueError, match="end after 20, before 30"):
        read_all(source, 1)
    source.close()
    source.close()


def test_an_asynchronous_iterator_only_goes_on_and_waits_to_be_read():
    given = []

    async def endless():
        while True:
            given.append(len(given))
            yield given[-1]

    source = AsyncSource(endless(), max_events=5, wait=1.0)
    assert values(read_all(source, 3)) == [0, 1, 2]
    assert len(given) <= 3 + 5 + 1
    source.open(10)
    assert values(source.next_batch(1)) == [10]
    with pytest.raises(ValueError, match="cannot go back to 10"):
        source.open(10)
    assert "at 11" in repr(source)
    source.close()


def test_what_an_asynchronous_iterable_raises_comes_after_what_it_gave():
    async def fails():
        yield 1
        yield 2
        raise ConnectionError("gone")

    source = AsyncSource(fails, wait=1.0)
    assert values(read_all(source, 2)) == [1, 2]
    for _ in range(2):
        with pytest.raises(ConnectionError, match="gone"):
            read_all(source, 1)
    source.close()


def test_what_counts_as_an_event():
    delta = GraphDelta(
        edge_index_add=[[1, 2, 3], [0, 0, 0]],
        edge_index_del=edges(2),
        x_changes=(np.array([1, 2]), np.ones((2, 3))),
        x_add=torch.ones(1, 3),
        nodes_del=[4],
    )
    assert num_events(delta) == 3 + 2 + 2 + 1 + 1
    assert num_events(GraphDelta()) == 0
    assert num_events(GraphDelta(x_changes=(torch.tensor([1, 2, 4]), torch.ones(3, 3)))) == 3
    assert num_events(GraphDelta(x_add=torch.ones(3))) == 1  # one row
    of_types = GraphDelta(
        edge_index_add={("a", "to", "b"): edges(4), ("b", "to", "a"): edges(3)},
        x_changes={"a": (torch.tensor([1]), torch.ones(1, 3))},
        nodes_del={"a": [4], "b": [0, 2]},
    )
    assert num_events(of_types) == 4 + 3 + 1 + 1 + 2

"""Questions and answers larger than a pipe: nobody waits for longer than they may."""

import math
import os
import threading
import time
from multiprocessing import Pipe

import numpy as np
import pytest

from pyg_incremental.sampling.workers.channel import Channel

LARGE = 2_000_000


@pytest.fixture
def ends():
    pipe, other = Pipe()
    found = Channel(pipe), Channel(other)
    yield found
    for end in found:
        end.close()


def soon(seconds=0.05):
    return time.monotonic() + seconds


def test_a_question_that_nobody_takes_in_is_given_up_and_goes_on_later(ends):
    asking, answering = ends
    first, third = np.arange(LARGE), np.arange(3)
    asking.put(first)
    assert asking.take(soon()) is None
    asking.put(np.arange(LARGE))  # of this one nothing leaves
    assert asking.take(soon()) is None
    asking.put(third)
    found = []

    def answer():
        for _ in range(2):
            found.append(answering.take(soon(30)))
            answering.send(found[-1].sum())

    thread = threading.Thread(target=answer)
    thread.start()
    assert asking.take(soon(30)) == first.sum()
    assert asking.take(soon(30)) == third.sum()
    thread.join()
    assert [value.size for value in found] == [LARGE, 3]


def test_two_ends_that_send_at_the_same_time_do_not_wait_for_each_other(ends):
    asking, answering = ends
    thread = threading.Thread(target=answering.send, args=(np.ones(LARGE),), daemon=True)
    thread.start()
    asking.put(np.zeros(LARGE))
    assert asking.take(soon(30)).sum() == LARGE
    thread.join(30)
    assert not thread.is_alive()


def test_an_answer_that_stops_in_the_middle_is_waited_for_no_longer_than_asked():
    pipe, other = Pipe()
    asking = Channel(pipe)
    writer = Channel(other)
    writer.put(np.arange(1000))
    raw = bytes(writer._out[0])
    asking.put("?")
    assert asking.take(soon()) is None
    for part in (raw[:3], raw[3:20], raw[20:-5]):
        os.write(other.fileno(), part)
        assert asking.take(soon()) is None
    os.write(other.fileno(), raw[-5:])
    assert asking.take(soon(30)).tolist() == list(range(1000))
    asking.close()
    with pytest.raises((EOFError, OSError)):
        writer.send(np.arange(LARGE))


def test_silence_counts_from_when_something_moved_last(ends):
    """Not from a question that comes on top of those that are not answered."""
    asking, answering = ends
    asking.put(1)
    assert asking.take(soon(), silence=30) is None
    asking._moved -= 40  # as if it had been long
    asking.put(2)
    end = soon(30)
    assert asking.take(end, silence=30) is None
    assert time.monotonic() < end
    assert [answering.take(end) for _ in range(2)] == [1, 2]
    answering.send("a")
    answering.send("b")
    assert [asking.take(end, silence=30) for _ in range(2)] == ["a", "b"]
    asking._moved -= 40
    asking.put(3)  # nothing was owed
    assert asking.take(soon(), silence=30) is None
    assert asking._moved > time.monotonic() - 20
    assert asking.take(soon(0), silence=math.inf) is None

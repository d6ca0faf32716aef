"""Ranks that are threads of this process: quick, and coverage sees every line of every rank."""

import threading
import warnings

import numpy as np

from pyg_incremental.distributed import RankFailedError


class ThreadRank:
    """One of several ranks in one process; has the methods of `Communicator`."""

    def __init__(self, rank, board):
        self.rank, self.size, self.timeout = rank, board.size, board.timeout
        self._board = board

    def share(self, row):
        return np.stack(self._board.everyone(self.rank, row.copy()))

    def send(self, parts, counts):
        assert [p.numel() for p in parts] == counts[self.rank].tolist()
        every = self._board.everyone(self.rank, [p.clone() for p in parts])
        return [parts_of[self.rank] for parts_of in every]

    def close(self):
        pass


class Board:
    """Where threads lay down what they have for each other."""

    def __init__(self, size, timeout):
        self.size, self.timeout = size, timeout
        self._laid = [None] * size
        self._barrier = threading.Barrier(size)

    def everyone(self, rank, value):
        self._laid[rank] = value
        try:
            self._barrier.wait(self.timeout)
            laid = list(self._laid)
            self._barrier.wait(self.timeout)
        except threading.BrokenBarrierError as error:
            raise RankFailedError(f"rank {rank} waited for another rank") from error
        return laid


def run_ranks(size, work, timeout=180.0):
    """Run `work(comm)` as every rank; returns what each returned or raised.

    The time-out is long because kernels may have to be compiled first.
    """
    board = Board(size, timeout)
    results = [None] * size

    def run(rank):
        try:
            results[rank] = work(ThreadRank(rank, board))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    # Filters of warnings belong to all threads; a block that changes them would mix them up.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return results


def all_well(results):
    """The results, none of which may be an error."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results

"""One rank, started by `launch.py`: `python -m benchmarks.ranks.worker FOLDER [RANK RANKS]`.

Without a number it is a rank of MPI.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks import compare, machine
from benchmarks.ranks.launch import PATIENCE
from benchmarks.stream import Stream
from benchmarks.workload import Workload
from pyg_incremental import GraphDelta, to_incremental
from pyg_incremental.distributed import (
    Communicator,
    DistributedIncrementalModel,
    MPICommunicator,
    TorchCommunicator,
)
from pyg_incremental.kernels import warm_up

Job = dict[str, Any]


def traffic(comm: Communicator, work: Workload, owner: Tensor, job: Job) -> Any:
    """What this rank has sent for each batch of each size; the first rank hands them in."""
    model = compare.model_for("sage", job["layers"], job["hidden"], work)
    inc = DistributedIncrementalModel(model, comm)
    inc(work.x, work.edge_index, partition_by=owner)
    stream = Stream(work)
    sent = []
    for size in job["batch"]:
        for _ in range(job["updates"]):
            delta = stream.take(size)
            stats = inc.apply_delta(delta if comm.rank == 0 else None).stats
            # the integers that begin every round: how much each rank has for each
            small = 8 * (comm.size + 1) * (comm.size - 1) * stats.rounds
            rows = [[e.bytes_sent, e.row_bytes] for e in stats.exchanges]
            sent.append({"batch": size, "bytes": stats.bytes_sent + small, "exchanges": rows})
    gap = inc.verify()
    return {"sent": sent, "ghosts": inc.num_ghosts, "off_by": gap / _largest(inc)}


def speed(comm: Communicator, work: Workload, owner: Tensor, job: Job) -> Any:
    """Times of the ranks, and of those that are alone: in turns on the first rank, others wait."""
    warm_up()
    cells = []
    for name in job["model"]:
        model = compare.model_for(name, job["layers"], job["hidden"], work)
        inc = DistributedIncrementalModel(model, comm)
        inc(work.x, work.edge_index, partition_by=owner)
        alone: dict[str, Any] = {}
        if comm.rank == 0:
            alone = {"one": to_incremental(model), "one_rank": DistributedIncrementalModel(model)}
            for other in alone.values():
                other(work.x, work.edge_index)
        stream = Stream(work)
        here = []
        for size in job["batch"]:
            for by in job["handed_in"]:
                turns = []
                for turn in range(job["turns"] + 1):
                    deltas = [stream.take(size) for _ in range(job["in_a_row"] + 1)]
                    took: list[dict[str, float]] = [{} for _ in deltas]
                    for who in _in_turns(turn):
                        for delta, noted in zip(deltas, took, strict=True):
                            if who == "ranks":
                                noted |= _together(inc, _handed_in(delta, by, comm), comm)
                            elif who in alone:
                                noted[who] = _timed(alone[who], delta)
                    turns.append(took[1:])
                cell = {"model": name, "batch": size, "handed_in": by}
                here.append({**cell, "turns": turns[1:]})
        off_by = inc.verify() / _largest(inc)
        cells += [{**cell, "off_by": off_by} for cell in here]
        del inc, alone
    return cells


def _handed_in(delta: GraphDelta, by: str, comm: Communicator) -> GraphDelta | None:
    """What this rank hands in of a delta."""
    if by == "every":
        return _share(delta, comm)
    return None if comm.rank else delta


def _in_turns(turn: int) -> list[str]:
    """Who updates in which order; another one begins each time."""
    who = ["one", "ranks", "one_rank"]
    first = turn % len(who)
    return who[first:] + who[:first]


def _meet(comm: Communicator) -> None:
    """Wait for all ranks."""
    comm.share(np.zeros(1, np.int64))


def _together(
    inc: DistributedIncrementalModel, mine: GraphDelta | None, comm: Communicator
) -> dict[str, float]:
    """One update of all ranks, on the clock of this one."""
    _meet(comm)
    began, cpu = time.perf_counter(), time.process_time()
    stats = inc.apply_delta(mine).stats
    took = time.perf_counter() - began
    cpu = time.process_time() - cpu
    _meet(comm)
    return {
        "ranks": took,
        "cpu": cpu,
        "computing": took - stats.seconds_waiting - stats.seconds_sending,
        "sending": stats.seconds_sending,
        "waiting": stats.seconds_waiting,
        "bytes": stats.bytes_sent,
    }


def _timed(one: Any, delta: GraphDelta) -> float:
    began = time.perf_counter()
    one.apply_delta(delta)
    return time.perf_counter() - began


def _share(delta: GraphDelta, comm: Communicator) -> GraphDelta:
    """The part of a delta that this rank hands in if each hands in as much."""

    def cut(tensor: Tensor, dim: int) -> Tensor:
        return tensor.tensor_split(comm.size, dim)[comm.rank]

    added, deleted, changes = delta.edge_index_add, delta.edge_index_del, delta.x_changes
    return GraphDelta(
        edge_index_add=None if added is None else cut(added, 1),
        edge_index_del=None if deleted is None else cut(deleted, 1),
        x_changes=None if changes is None else (cut(changes[0], 0), cut(changes[1], 0)),
    )


def _largest(inc: DistributedIncrementalModel) -> float:
    return float(inc.gather_out().abs().max())


TASKS = {"traffic": traffic, "speed": speed}


@torch.no_grad()
def main(folder: Path, rank: int = -1, ranks: int = 0) -> None:
    """Do what the job says, and leave a report."""
    job = json.loads((folder / "job.json").read_text())
    given = torch.load(folder / "graph.pt", mmap=True)
    machine.use_threads(job["threads"])
    comm: TorchCommunicator | MPICommunicator
    if ranks:
        meeting = f"file://{folder}/meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
        comm = TorchCommunicator(PATIENCE)
    else:
        comm = MPICommunicator(PATIENCE)
    report = TASKS[job["task"]](comm, Workload(**given["work"]), given["owner"], job)
    (folder / f"report-{comm.rank}.json").write_text(json.dumps(report))
    _meet(comm)
    comm.close()
    if ranks:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

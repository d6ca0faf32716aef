"""One rank of `test_processes.py`: runs journeys on 1, 2, ... of the ranks, and reports."""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from pyg_incremental import InvalidDeltaError
from pyg_incremental.distributed import (
    DistributedIncrementalModel,
    MPICommunicator,
    OutOfStepError,
    RankFailedError,
    TorchCommunicator,
)
from tests.closeness import assert_close
from tests.distributed.worlds import CASES_BY_SIZE, small_call, travel
from tests.strategies import EVERY, SPOILERS

PATIENCE = 2.0


def torch_comms(folder, rank, size):
    """A communicator for each number of ranks, or None where this rank is not among them."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size
    )
    comms = {}
    for count in range(1, size + 1):
        group = dist.new_group(list(range(count)), timeout=timedelta(seconds=60), backend="gloo")
        comms[count] = TorchCommunicator(60, group) if rank < count else None
    return comms, TorchCommunicator(30)


def mpi_comms():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    comms = {}
    for count in range(1, world.size + 1):
        part = world.Split(0 if world.rank < count else MPI.UNDEFINED, world.rank)
        comms[count] = MPICommunicator(60, part) if world.rank < count else None
    return comms, MPICommunicator(30)


def some_deltas(journey):
    """A few kinds of delta, others for each case; all kinds are tried on ranks that are threads."""
    calm = [name for name in dict.fromkeys(journey.plan(EVERY)) if name not in SPOILERS]
    last = [name for name in ("mixed", "remove_hub", "mixed") if name in calm]
    return [*journey.rng.choice(calm, 4, replace=False).tolist(), *last]


def bad_input(comm):
    """A mistake of one rank is an error of all, and nothing has changed."""
    model, args = small_call()
    inc = DistributedIncrementalModel(model, comm)(*args)
    before = inc.gather_out().clone()
    bad = {"edge_index_del": torch.tensor([[1], [1]])} if comm.rank == comm.size - 1 else {}
    said = None
    try:
        inc.apply_delta(**bad)
    except InvalidDeltaError as error:
        said = str(error)
    assert torch.equal(inc.gather_out(), before)
    inc.apply_delta(**({"edge_index_add": torch.tensor([[0], [5]])} if comm.rank == 0 else {}))
    assert inc.verify() < 1e-9
    return said


def interrupted(comm):
    """Ctrl-C on one rank in the midst of updates: the others hear of it, and refresh() mends it."""
    model, args = small_call()
    inc = DistributedIncrementalModel(model, comm)(*args)
    if comm.rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    edge = torch.tensor([[0], [5]])
    said = ""
    try:
        for i in range(10**6):
            inc.apply_delta(**({"edge_index_add": edge} if i % comm.size == comm.rank else {}))
    except (KeyboardInterrupt, RankFailedError, OutOfStepError) as error:
        said = type(error).__name__
    try:
        inc.refresh()
    except OutOfStepError:  # this one was interrupted between two calls
        inc.refresh()
    assert inc.verify() < 1e-9
    versions = inc.rounds.everywhere((inc.version, args[1].shape[1] + inc.version))
    assert len(set(versions)) == 1, versions
    edges = sum(inc.rounds.everywhere(inc.num_edges))
    assert edges == versions[0][1], (edges, versions)
    return said


def out_of_step(comm, folder):
    """Two ranks that call different methods both say so, and go on."""
    model, args = small_call()
    inc = DistributedIncrementalModel(model, comm)(*args)
    said = ""
    try:
        if comm.rank == 0:
            inc.apply_delta(edge_index_add=torch.tensor([[0], [5]]))
        else:
            inc.save(folder)
    except OutOfStepError as error:
        said = str(error)
    assert inc.version == 0
    assert inc.verify() < 1e-9
    return said


def lost_rank(comm, last):
    """The last rank goes away; the others raise within the time-out."""
    model, args = small_call()
    inc = DistributedIncrementalModel(model, comm)(*args)
    if comm.rank == last:
        return "gone", 0.0
    comm.timeout = PATIENCE  # a dead process is noticed at once; one that is silent, only by this
    began = time.perf_counter()
    try:
        inc.apply_delta(edge_index_add=torch.tensor([[0], [5]]))
    except RankFailedError as error:
        return str(error), time.perf_counter() - began
    return "nothing was raised", 0.0


def run(engine, folder, rank, size):
    comms, every = torch_comms(folder, rank, size) if engine == "torch" else mpi_comms()
    rank, size = every.rank, every.size
    report = {"rank": rank, "ranks": size, "cases": [], "error": ""}
    for count, names in CASES_BY_SIZE.items():
        if comms.get(count) is None:
            continue
        for name in names:
            journey = travel(comms[count], name, seed=count)
            journey.walk(some_deltas(journey))
            found = journey.inc.evaluate(gather=True, progress=False)
            assert_close(found.out, journey.full(journey.world), what=f"{name}: evaluate")
            journey.there_and_back(["mixed"] if "mixed" in journey.plan(EVERY) else ["add_edges"])
            report["cases"].append(f"{name}-{count}")
        report[f"said-{count}"] = bad_input(comms[count])
    if comms[2] is not None:
        report["out_of_step"] = out_of_step(comms[2], f"{folder}/save")
        report["interrupted"] = interrupted(comms[2])
    report["lost"], report["seconds"] = lost_rank(every, size - 1)
    return report


def load_before_the_fork():
    """What PyTorch imports in its first trace, and compiled kernels: once for all ranks."""
    model, args = small_call()
    inc = DistributedIncrementalModel(model)(*args)
    for _ in range(9):  # updates are compiled in the eighth
        inc.apply_delta(edge_index_add=torch.tensor([[0], [5]]))


def main():
    engine, folder, size = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("error", RuntimeWarning)
    if engine == "mpi":
        be_a_rank(engine, folder)
    load_before_the_fork()
    fork = multiprocessing.get_context("fork").Process
    ranks = [fork(target=be_a_rank, args=(engine, folder, r, int(size))) for r in range(int(size))]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


def be_a_rank(engine, folder, rank=None, size=None):
    """Run everything, report, and end this process; MPI knows itself which rank it is."""
    try:
        report = run(engine, folder, rank, size)
    except BaseException:
        report = {"rank": rank, "error": traceback.format_exc()}
    if engine == "mpi":
        from mpi4py import MPI

        report["rank"] = MPI.COMM_WORLD.rank
    path = Path(folder) / f"report-{report['rank']}.json"
    path.with_suffix(".part").write_text(json.dumps(report))
    path.with_suffix(".part").rename(path)
    # Nobody can tidy up, since a rank is lost for the others. With torch.distributed it is dead
    # from here on; mpiexec would end all ranks then, so there it lives and says nothing.
    lost = report.get("lost") == "gone" and engine == "torch"
    until = time.monotonic() + (0 if report["error"] or lost else 20)
    ranks = report.get("ranks", 0)
    while len(list(Path(folder).glob("report-*.json"))) < ranks and time.monotonic() < until:
        time.sleep(0.05)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

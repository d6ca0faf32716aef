"""Files that are cut off, flipped or forged, or whose writer is killed.

`python -m tests.torture.files run` tries it all.

Whatever happens to a file, who loads it gets the state that was saved, or an error that says why
not. Each case is drawn from a seed of its own and tried in another process, so that one that
crashes or hangs is counted, named, and the rest goes on.
"""

import argparse
import contextlib
import copy
import hashlib
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GCN

from pyg_incremental import IncrementalError, load, to_incremental
from pyg_incremental.distributed import DistributedIncrementalModel, partition, write_shards
from pyg_incremental.distributed.files.manifests import checksum_of
from pyg_incremental.encoding.whole_file import checksum
from tests.distributed.threads import all_well, run_ranks

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a case hangs; on a busy machine one takes a second at most."""
GOOD, WRONG, CRASHED, HUNG = "refused", "wrong", "crashed", "hung"
CHANNELS, NODES = 4, 24


@dataclass
class Report:
    """What came of some cases.

    Attributes:
        counts: How many were `refused`, gave the `same` state, a `wrong` one, `crashed` or `hung`.
        failures: The cases that must not be, in words that tell how to run them again.
    """

    counts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)

    def note(self, case, outcome, said=""):
        self.counts[outcome] += 1
        if outcome not in (GOOD, "same"):
            self.failures.append(f"{case}: {outcome} {said}".strip())

    def __str__(self):
        counts = ", ".join(f"{n} {name}" for name, n in sorted(self.counts.items()))
        return "\n".join([f"{sum(self.counts.values())} cases: {counts or 'none'}", *self.failures])


# Subjects #########################################################################################


def model_and_call():
    torch.manual_seed(0)
    model = GCN(CHANNELS, 5, 2, 3).double().eval()
    x = torch.randn(NODES, CHANNELS).double()
    return model, x, torch.randint(NODES, (2, 70)), torch.rand(70).double()


class State:
    """The file of one process."""

    def __init__(self, folder):
        self.home, self.path = folder, folder / "state"
        self.model, x, edge_index, weight = model_and_call()
        inc = to_incremental(self.model)
        inc(x, edge_index, edge_weight=weight)
        inc.apply_delta(x_changes=([3], torch.ones(1, CHANNELS).double()))
        inc.save(self.path)
        self.want = inc.state_digest()

    def files(self):
        return [self.path]

    def load(self):
        again = load(self.path, self.model)
        return again.state_digest() == self.want or f"verify {again.verify()}"


class Forged(State):
    """The same with a valid checksum; it may be another state, but must be one."""

    def repair(self, path, data):
        """Write what a damaged file holds as if it had been saved like that."""
        path.write_bytes(data[:-32] + hashlib.sha256(data[:-32]).digest())

    def load(self):
        again = load(self.path, self.model)
        gap = again.verify()
        again.apply_delta(edge_index_add=[[0], [1]], edge_weight_add=torch.ones(1).double())
        return gap < 1e-6 or f"verify {gap}"


class Ranks:
    """The save of two ranks, on as many or on one."""

    def __init__(self, folder):
        self.home, self.folder = folder, folder / "ranks"
        self.model, x, edge_index, weight = model_and_call()

        def save(comm):
            inc = DistributedIncrementalModel(copy.deepcopy(self.model), comm)
            inc(x, edge_index, edge_weight=weight, partition_by="hash").save(self.folder)
            return inc.gather_out()

        self.want = all_well(run_ranks(2, save))[0]

    def files(self):
        return sorted(self.folder.iterdir())

    def load(self, size=2):
        def start(comm):
            model = copy.deepcopy(self.model)
            return DistributedIncrementalModel.load(self.folder, model, comm).gather_out()

        return self._compare(run_ranks(size, start))

    def _compare(self, outs):
        for out in outs:
            if isinstance(out, BaseException):
                raise out
        return all(torch.allclose(out, self.want, atol=1e-9) for out in outs) or "other rows"


class Shards(Ranks):
    """A graph that was cut for two ranks."""

    def __init__(self, folder):
        self.home, self.folder = folder, folder / "shards"
        self.model, x, edge_index, weight = model_and_call()
        chosen = partition(edge_index, NODES, 2, "hash")
        arrays = {"x": x.numpy()}, {"edge_weight": weight.numpy()}
        write_shards(self.folder, chosen, edge_index.numpy(), *arrays)
        with torch.no_grad():
            self.want = self.model(x, edge_index, edge_weight=weight)

    def files(self):
        return sorted(p for p in self.folder.rglob("*") if p.is_file())

    def load(self):
        def start(comm):
            inc = DistributedIncrementalModel(copy.deepcopy(self.model), comm)
            return inc.from_shards(self.folder).gather_out()

        return self._compare(run_ranks(2, start))


class ForgedShards(Shards):
    """The same with valid checksums."""

    def repair(self, path, data):
        path.write_bytes(data)
        manifest = json.loads((self.folder / "manifest.json").read_text())
        del manifest["checksum"]
        manifest["checksums"][path.relative_to(self.folder).as_posix()] = checksum(path)
        text = json.dumps({**manifest, "checksum": checksum_of(manifest)})
        (self.folder / "manifest.json").write_text(text)

    def files(self):
        return [p for p in super().files() if p.suffix == ".npy"]

    def _compare(self, outs):
        super()._compare(outs)
        return True  # other rows of features make other outputs


SUBJECTS = {"state": State, "forged": Forged, "ranks": Ranks, "shards": Shards,
            "forged-shards": ForgedShards}  # fmt: skip


# Damage ###########################################################################################


def regions(data):
    """Where parts of a file begin and end: its head, what it says, arrays, its tail."""
    size = len(data)
    says = min(size, 24 + int.from_bytes(data[8:16], "little")) if data[:7] == b"PYGINCR" else 128
    ends = [0, min(24, size), min(says, size), max(size - 40, 0), size]
    return [(a, b) for a, b in itertools.pairwise(ends) if b > a]


def damaged(data, rng):
    """A file with something wrong, and what; every region is as likely as any other."""
    first, last = regions(data)[rng.integers(len(regions(data)))]
    at = int(rng.integers(first, last))
    kind = ("cut", "bit", "bytes", "zeros", "gone", "more", "moved")[rng.integers(7)]
    count = int(rng.integers(1, 40))
    if kind == "cut":
        new = data[:at]
    elif kind == "bit":
        new = data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]
    elif kind == "bytes":
        new = data[:at] + rng.bytes(count) + data[at + count :]
    elif kind == "zeros":
        new = data[:at] + bytes(count) + data[at + count :]
    elif kind == "gone":
        new = data[:at] + data[at + count :]
    elif kind == "more":
        new = data[:at] + rng.bytes(count) + data[at:]
    else:
        other = int(rng.integers(len(data)))
        new = data[:at] + data[other : other + count] + data[at + count :]
    return new, f"{kind} at {at} of {len(data)}"


def try_case(name, subject, seed, index):
    """Damage a file, load it, and put it back; returns the outcome and what was said."""
    rng = np.random.default_rng([seed, index])
    files = subject.files()
    path = files[rng.integers(len(files))]
    before = {p: p.read_bytes() for p in subject.home.rglob("*") if p.is_file()}
    data = before[path]
    new, what = damaged(data, rng)
    case = f"seed {seed}, case {index}, {name}: {path.name} {what}"
    if new == data:
        return case, "same", ""
    try:
        path.write_bytes(new)
        if hasattr(subject, "repair"):
            subject.repair(path, new)
        try:
            found = subject.load()
        except IncrementalError as error:
            return case, GOOD, str(error)
        except Exception as error:
            return case, WRONG, f"{type(error).__name__}: {error}"
        return case, "same" if found is True else WRONG, "" if found is True else str(found)
    finally:
        for p, old in before.items():
            p.write_bytes(old)


def work(folder, seed, first, count):
    """Try some cases in this process, and print what came of each."""
    torch.set_num_threads(1)
    for index in range(first, first + count):
        name = list(SUBJECTS)[index % len(SUBJECTS)]
        home = Path(folder) / name
        subject = _made.get(name)
        if subject is None:
            home.mkdir(parents=True, exist_ok=True)
            _made[name] = subject = SUBJECTS[name](home)
        print(json.dumps([index, "begins", name, ""]), flush=True)
        print(json.dumps([index, *try_case(name, subject, seed, index)]), flush=True)
    for name, subject in _made.items():  # without damage nothing is refused
        with contextlib.suppress(Exception):
            if subject.load() is True:
                continue
        print(json.dumps([index, f"{name}, whole again", WRONG, "is refused"]), flush=True)


_made = {}


def damaged_files(directory, seed, count):
    """Damage files at random, `count` times, and see that nobody is taken in.

    Args:
        directory: Where to work.
        seed: Seed of everything.
        count: How many files.

    Returns:
        A `Report`: only `refused` and `same` are well.
    """
    report, first = Report(), 0
    while first < count:
        first = _some(Path(directory), seed, first, count, report)
    return report


def _some(directory, seed, first, count, report):
    """Cases until one crashes or hangs; returns the next one."""
    folder = tempfile.mkdtemp(dir=directory)
    process = _started("work", folder, str(seed), str(first), str(count - first))
    lines, at = _lines_of(process), first
    try:
        while True:
            line = lines.get(timeout=PATIENCE)
            if line is None:
                break
            index, case, outcome, said = json.loads(line)
            at = index
            if case != "begins":
                report.note(case, outcome, said)
                at = index + 1
    except queue.Empty:
        report.note(f"seed {seed}, case {at}", HUNG, _last_words(process, folder))
        at += 1
    else:
        if process.wait() != 0:
            report.note(f"seed {seed}, case {at}", CRASHED, _last_words(process, folder))
            at += 1
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return at


def _started(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.torture.files", *arguments]
    with open(Path(arguments[1]) / "stderr", "w") as said:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=said, text=True
        )


def _last_words(process, folder):
    """Where a process stands, or stood when it crashed."""
    if process.poll() is None:
        process.send_signal(signal.SIGABRT)  # it says where all of its threads are
        process.wait()
    said = (Path(folder) / "stderr").read_text().split("Extension modules")[0]
    return f"status {process.returncode}\n{said[-6000:]}"


def _lines_of(process):
    """Lines that a process prints that are ours, in a queue; None at the end."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            if line.startswith("["):
                lines.put(line)
        process.stdout.close()
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


# Kills ############################################################################################


def save_for_ever(folder):
    """Change the features and save, again and again; the version tells what they are."""
    model, x, edge_index, weight = model_and_call()
    inc = to_incremental(model, compile_after=None)
    inc(x, edge_index, edge_weight=weight)
    while True:
        rows = torch.full((1, CHANNELS), float(inc.version + 1)).double()
        inc.apply_delta(x_changes=([0], rows))
        inc.save(folder / "state")


def save_on_ranks_for_ever(folder):
    """The same on two ranks. Every other save is of a model that was called again."""
    model, x, edge_index, weight = model_and_call()

    def run(comm):
        turn = 0
        while True:
            inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
            inc(x + turn, edge_index, edge_weight=weight, partition_by="hash")
            inc.save(folder / "ranks")
            turn += 1

    all_well(run_ranks(2, run))


def loaded_after_kill(kind, folder):
    """What is wrong with what a killed process has left, in words; an empty string if nothing."""
    model, x, _, _ = model_and_call()
    if kind == "state":
        again = load(folder / "state", model)
        row, gap = again.x[0], again.verify()
        want = float(again.version)
        left = [p for p in folder.iterdir() if p.suffix == ".part"]
        again.save(folder / "state")
        kept = [p for p in folder.iterdir() if p.suffix == ".part"]
        fits = bool((row == want).all()) and len(left) <= 1 and not kept
        return "" if fits and gap < 1e-9 else f"row {row}, version {want}, {gap}, {left}, {kept}"

    def start(comm):
        inc = DistributedIncrementalModel.load(folder / "ranks", copy.deepcopy(model), comm)
        return inc.x - x[inc.nodes], inc.verify()

    found = all_well(run_ranks(2, start))
    turns = {round(float(t), 6) for shift, _ in found for t in shift.unique()}
    whole = len(turns) == 1 and max(gap for _, gap in found) < 1e-9
    return "" if whole else f"features of calls {sorted(turns)}"


def kill(folder, seed, kills):
    """Fork processes that save, kill each at a random moment, and print what came of it."""
    torch.set_num_threads(1)
    folder = Path(folder)
    rng = np.random.default_rng(seed)
    savers = {"state": save_for_ever, "ranks": save_on_ranks_for_ever}
    for index in range(kills):
        kind = list(savers)[index % 2]
        print(json.dumps([index, "begins", kind, ""]), flush=True)
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                try:
                    # PyTorch makes its pool of threads anew at the first call after a fork, and
                    # ranks that are threads may both be the first: one then finds no pool.
                    torch.set_num_threads(1)
                    savers[kind](folder)
                except BaseException:  # it saves until it is killed: whatever ends it is wrong
                    traceback.print_exc()
            os._exit(1)
        home = folder / ("state" if kind == "state" else "ranks/manifest.json")
        while not home.exists() and not os.waitpid(pid, os.WNOHANG)[0]:
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.4)))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        try:
            said = loaded_after_kill(kind, folder)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        case = f"seed {seed}, kill {index}, {kind}"
        print(json.dumps([index, case, WRONG if said else "same", said]), flush=True)


def killed_saves(directory, seed, kills):
    """Kill processes while they save, and see that the file is whole.

    Args:
        directory: Where to work.
        seed: Seed of the moments.
        kills: How many.

    Returns:
        A `Report`: only `same` is well, one of the states that were saved.
    """
    report, done = Report(), 0
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        process = _started("kill", folder, str(seed), str(kills))
        lines = _lines_of(process)
        try:
            while (line := lines.get(timeout=PATIENCE)) is not None:
                _, case, outcome, said = json.loads(line)
                if case != "begins":
                    report.note(case, outcome, said)
                    done += 1
        except queue.Empty:
            report.note(f"seed {seed}, kill {done}", HUNG, _last_words(process, folder))
        finally:
            process.kill()
            process.wait()
        if done < kills and not report.counts[HUNG]:
            report.note(f"seed {seed}, kill {done}", CRASHED, _last_words(process, folder))
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("work", "kill"):  # what the other two start
        command = commands.add_parser(name)
        command.add_argument("folder")
        command.add_argument("seed", type=int)
        command.add_argument("first", type=int)
        if name == "work":
            command.add_argument("count", type=int)
    run = commands.add_parser("run", help="damage and kill")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--files", type=int, default=2000)
    run.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    if options.command == "work":
        work(options.folder, options.seed, options.first, options.count)
    elif options.command == "kill":
        kill(options.folder, options.seed, options.first)
    else:
        with tempfile.TemporaryDirectory() as folder:
            print("damaged files:", damaged_files(folder, options.seed, options.files))
            print("killed saves:", killed_saves(folder, options.seed, options.kills))


if __name__ == "__main__":
    main()

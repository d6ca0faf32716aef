"""A stream in a process that is killed (`kill -9`) again and again.

    python -m tests.stream.killed --moments 1000

Each run of the process goes on where the one before was killed, until it comes to the end of the
events. Then the state has to be that of a run without a kill, and so have the keys of the alerts.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch

from pyg_incremental import to_incremental
from pyg_incremental.files import keeping
from pyg_incremental.sources import JsonLinesSource
from pyg_incremental.stream import JsonLines, Schema, Stream
from tests.stream import scene

SCHEMA = Schema(kind="kind", event_id="id")


def run(folder, pause=0.0):
    """Take all events, from wherever the folder says."""
    inc = to_incremental(scene.sage(), backend="reference", check=False)
    sink, letters = JsonLines(folder / "alerts.jsonl"), JsonLines(folder / "letters.jsonl")
    with Stream(
        inc, JsonLinesSource(folder / "events.jsonl"), SCHEMA, first=scene.graph(),
        directory=folder / "state", max_size=4, checkpoint_events=25, dead_letters=letters,
    ) as stream:  # fmt: skip
        stream.on(sink, changed=0.0)
        while stream.step():
            time.sleep(pause)
    return stream


def keys(folder, name, *fields):
    """The keys of what was told, in the order in which each came first."""
    lines = (folder / name).read_text().splitlines()
    return list(dict.fromkeys(tuple(json.loads(line)[f] for f in fields) for line in lines))


def killed(folder, after, pause):
    """Run it in a process of its own, and kill that after some seconds; whether it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks of processes with threads
        process = os.fork()
    if not process:
        try:
            keeping.SMALL = 0  # so that checkpoints are written by children of its own
            run(folder, pause)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if after is not None:
        time.sleep(after)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise AssertionError(f"the stream failed in {folder}")
    return os.WIFSIGNALED(status)


def case(folder, seed, kills, count=120, pause=0.0005, longest=0.06):
    """One stream that is killed up to so many times; how often it was."""
    rng = random.Random(seed)
    events = [{**event, "id": k % (count - 9)} for k, event in enumerate(scene.events(seed, count))]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    whole, torn = folder / "whole", folder / "torn"
    for place in (whole, torn):
        place.mkdir()
        (place / "events.jsonl").write_text(lines)
    expected = run(whole)
    done = 0
    while done < kills and killed(torn, rng.uniform(0.0, longest), pause):
        done += 1
    assert not killed(torn, None, 0.0)
    found = run(torn)  # reads the state that is there
    assert found.position == expected.position
    assert found.stats.saved() | {"alerts": 0} == expected.stats.saved() | {"alerts": 0}
    assert found.inc.version == expected.inc.version
    assert (found.inc.out - expected.inc.out).abs().max() < 1e-9
    edges = [sorted(s.inc.graph.to_edge_index().t().tolist()) for s in (found, expected)]
    assert edges[0] == edges[1]
    for name, fields in (("alerts.jsonl", ("version", "node")), ("letters.jsonl", ("position",))):
        assert sorted(keys(torn, name, *fields)) == sorted(keys(whole, name, *fields)), name
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done, seed, began = 0, args.seed, time.perf_counter()
    while done < args.moments:
        with tempfile.TemporaryDirectory() as folder:
            try:
                done += case(Path(folder), seed, kills=20)
            except AssertionError as error:
                raise AssertionError(f"python -m tests.stream.killed --seed {seed}") from error
        seed += 1
    print(f"killed ok: moments={done} streams={seed - args.seed} lost=0 twice=0 "
          f"seconds={time.perf_counter() - began:.0f}")  # fmt: skip


if __name__ == "__main__":
    main()

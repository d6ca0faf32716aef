"""`kill -9` in the middle, ten times."""

import json
import os
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.blocks.test_evaluate import full, graph, model_of
from tests.closeness import assert_close
from tests.processes import ROOT, run_script

KILLS = 10

# It loads everything once, and every evaluation is a copy of it that is killed.
SCRIPT = """
import json, os, random, signal, sys, time
import torch
from pyg_incremental import evaluate
from pyg_incremental.blocks.block import Block
from tests.blocks.test_evaluate import graph, model_of

folder, seed, kills = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
data, model = graph(seed, 1000, 6000), model_of()
evaluate(model, data, progress=False)
log, run = f"{folder}/log", Block.run

def logged(self, steps, kept):
    line = {"layer": steps[0].output.name, "first": int(self._ids[0]), "rows": len(self._ids)}
    with open(log, "a") as file:
        file.write(json.dumps(line) + chr(10))
    time.sleep(0.01)
    return run(self, steps, kept)

def lines():
    return len(open(log).readlines()) if os.path.exists(log) else 0

Block.run = logged
draw = random.Random(seed)
for kill in range(kills + 1):
    with open(log, "a") as file:
        file.write(json.dumps({"run": kill}) + chr(10))
    before, after = lines(), draw.randint(1, 4)
    child = os.fork()
    if not child:
        evaluate(model, data, directory=f"{folder}/rows", memory=90_000, progress=False)
        os._exit(0)
    if kill < kills:
        while lines() < before + after and not os.waitpid(child, os.WNOHANG)[0]:
            time.sleep(0.001)
        time.sleep(draw.random() * 0.02)
        os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are copied")
@pytest.mark.unmeasured
def test_killed_ten_times(seed, tmp_path):
    """The result is that of one that is left alone; of a block only what was cut is done again."""
    out, err = run_script(SCRIPT, ROOT, tmp_path, tmp_path, seed, KILLS)
    assert out.split() == ["9"] * KILLS + ["0"], err
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    starts = [i for i, line in enumerate(lines) if "run" in line] + [len(lines)]
    runs = [lines[i + 1 : j] for i, j in pairwise(starts)]
    assert all(runs)
    blocks = [block for run in runs for block in run]
    layers = list(dict.fromkeys(block["layer"] for block in blocks))
    at = dict.fromkeys(layers, 0)  # the next row of each layer
    again, cut = 0, ("", 0)
    for run in runs:
        for place, block in enumerate(run):
            layer, first = block["layer"], block["first"]
            if place == 0 and first < at[layer]:
                assert (layer, first) == cut
                again += 1
            else:
                assert first == at[layer]
            at[layer], cut = first + block["rows"], (layer, first)
    assert set(at.values()) == {1000}
    assert again <= KILLS
    assert len(blocks) > 2 * KILLS
    out = torch.from_numpy(np.load(tmp_path / "rows" / "out.npy"))
    assert_close(out, full(model_of_seed(seed), graph(seed, 1000, 6000)))


def model_of_seed(seed):
    """The model of the script: drawn behind the graph."""
    graph(seed, 1000, 6000)
    return model_of()

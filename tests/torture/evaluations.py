"""Evaluations in a directory that are killed, damaged and called with something else meanwhile.

Whatever happens to the files between two calls, who calls again is given the rows of the model on
that very call, or an error of the package that says why not.
"""

import copy
import json
import os
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from pyg_incremental import IncrementalError, evaluate
from pyg_incremental.blocks.block import Block
from tests.torture.damaged import damaged

NODES, CHANNELS, MEMORY = 500, 6, 60_000
PAUSE = 0.002
"""Seconds that a block takes longer, so that kills come in between."""


class Scaled(nn.Module):
    """A model with a number, a tensor, a buffer that is not saved, and arguments of its own."""

    def __init__(self):
        super().__init__()
        self.gnn, self.factor = GCN(CHANNELS, 8, 2, 4), 2.0
        self.shift = torch.ones(4).double()
        self.register_buffer("mean", torch.ones(4).double(), persistent=False)

    def forward(self, x, edge_index, scale=1.0, mode="a"):
        x = self.factor * self.gnn(x, edge_index) + self.shift - self.mean
        return scale * x if mode == "a" else scale + x.relu()


def slope(model, call, rng):
    for module in model.modules():
        if hasattr(module, "negative_slope"):
            module.negative_slope = float(rng.random())


def eps(model, call, rng):
    for module in model.modules():
        if hasattr(module, "eps"):
            module.eps = torch.as_tensor(float(rng.random())).double()


def activation(model, call, rng):
    if hasattr(model, "act"):
        model.act = (nn.Tanh(), nn.ELU(), nn.Sigmoid())[rng.integers(3)].eval()


def factor(model, call, rng):
    model.factor = float(rng.random())


def plain_tensor(model, call, rng):
    model.shift = torch.from_numpy(rng.random(4))


def buffer(model, call, rng):
    if hasattr(model, "mean"):
        model.mean += float(rng.random())


def weight(model, call, rng):
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1


def features(model, call, rng):
    call["x"] = call["x"].clone()
    call["x"][rng.integers(NODES), 0] += 1


def edges(model, call, rng):
    call["edge_index"] = call["edge_index"][:, 1:]


def scale(model, call, rng):
    if isinstance(model, Scaled):
        call["scale"] = float(rng.random())


def mode(model, call, rng):
    if isinstance(model, Scaled):
        call["mode"] = "b"


OTHERS = (
    slope, eps, activation, factor, plain_tensor, buffer, weight, features, edges, scale, mode,
)  # fmt: skip


def evaluations(say, seed, count):
    """Kill so many evaluations, damage files, call otherwise; returns what came of the calls."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    done = dict.fromkeys(("killed", "finished", "files damaged", "called otherwise", "folders"), 0)
    done |= {"right": 0, "refused": 0}
    kills = 0
    while kills < count:
        model, call = drawn(rng)
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(int(rng.integers(2, 6))):
                if kills < count:
                    kills += 1
                    say(f"seed {seed}: kill {kills}")
                    done["killed" if killed(model, call, folder, rng) else "finished"] += 1
                if rng.random() < 0.6:
                    done["files damaged"] += damage(Path(folder), rng)
                if rng.random() < 0.3:
                    done["called otherwise"] += 1
                    otherwise = copy.deepcopy(model), dict(call)
                    OTHERS[rng.integers(len(OTHERS))](*otherwise, rng)
                    done[judged(*otherwise, folder)] += 1
                if rng.random() < 0.2:
                    done[begun_again(model, call, folder)] += 1
            done[begun_again(model, call, folder)] += 1
            assert judged(model, call, folder) == "right", "the folder was emptied, or whole"
            done["right"] += 1
            done["folders"] += 1
    return done


def begun_again(model, call, folder):
    """Evaluate; where that is refused, empty the folder, as the error says, for whoever is next."""
    came = judged(model, call, folder)
    if came == "refused":
        shutil.rmtree(folder)
        os.mkdir(folder)
    return came


def drawn(rng):
    """A model and a call of it."""
    torch.manual_seed(int(rng.integers(1 << 30)))
    make = (GAT, GIN, GraphSAGE, None)[rng.integers(4)]
    model = Scaled() if make is None else make(CHANNELS, 8, 3, 4)
    x = torch.randn(NODES, CHANNELS, dtype=torch.float64)
    return model.double().eval(), {"x": x, "edge_index": torch.randint(NODES, (2, 2500))}


def killed(model, call, folder, rng):
    """Evaluate in a process that is killed at a random moment; whether it still ran then."""
    begun, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            slowly(into)
            run(model, call, folder)
        except IncrementalError:
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(into)
    os.read(begun, 1)  # the first block has begun, or it has ended
    time.sleep(float(rng.random()) * 30 * PAUSE)
    os.kill(child, signal.SIGKILL)
    os.close(begun)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"it ended with {code}"
    return code != 0


def slowly(into):
    """Let every block of this process take longer, and tell of it through a pipe."""
    compute = Block.run

    def run(self, *args):
        os.write(into, b".")
        time.sleep(PAUSE)
        return compute(self, *args)

    Block.run = run


def run(model, call, folder):
    return evaluate(model, call, directory=folder, memory=MEMORY, progress=False)


def damage(folder, rng):
    """Something happens to one of the files; returns how many that were, one or none."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if not files:
        return 0
    path = files[rng.integers(len(files))]
    whole = path.read_bytes()
    kind = ("lost", "cut", "flipped", "overwritten")[rng.integers(4)]
    if kind == "lost" or not whole:
        path.unlink()
    elif path.name == "manifest.json" and rng.random() < 0.3:
        path.write_text(json.dumps([]))
    else:
        path.write_bytes(damaged(whole, kind, int(rng.integers(len(whole))), rng))
    return 1


def judged(model, call, folder):
    """Evaluate; what came of it. Anything but the rows of the model, or an error of ours, is wrong.

    Only errors of the package count as refusals: all others are raised.
    """
    with torch.no_grad():
        want = model(**call)
    try:
        got = run(model, call, folder)
    except IncrementalError:
        return "refused"
    off = float((got - want).abs().max())
    assert off < 1e-9, f"rows are off by {off}"
    return "right"

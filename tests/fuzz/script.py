"""Writes a trial down as a program that fails by itself."""

from pathlib import Path

import torch

from tests.fuzz import judge
from tests.fuzz.statement import HEAD

FORM = '''\
"""{title}

Drawn by tests/fuzz. Run it in the root of the repository: PYTHONPATH=. python {name}
"""

import numpy as np
{head}
from tests.oracle import World


{model}

# The graph, and what happens to it ################################################################

{recipe}
world = World(x, pairs, edge_data)
deltas = [
{deltas}]


# How it is judged #################################################################################

{judge}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed({seed})
    follower = Follower(Model().double().eval(), world{options})
    print(follower.inc)
    for at, delta in enumerate(deltas):
        follower.where = f"after delta {{at}}"
        follower.step(delta)
    follower.end()
'''


def script_of(trial, title, name="failure.py"):
    """The text of a program that runs a trial whose deltas were drawn."""
    code = Path(judge.__file__).read_text().split('"""', 2)[2].strip()
    return FORM.format(
        title=title.replace('"""', "'''").replace("\\", "/"),
        name=name,
        head=HEAD.rstrip(),
        model=trial.model.source().rstrip(),
        recipe=trial.recipe.source(),
        deltas="".join(f"    {literal(delta)},\n" for delta in trial.deltas or ()),
        judge=code,
        seed=trial.seed,
        options="".join(f", {key}={value!r}" for key, value in trial.options.items()),
    )


def literal(value):
    """The text of a delta."""
    if isinstance(value, torch.Tensor):
        if not value.numel():
            return f"torch.zeros({tuple(value.shape)}, dtype={value.dtype})"
        numbers = repr(value.tolist()).replace("nan", "torch.nan").replace("inf", "torch.inf")
        return f"torch.tensor({numbers}, dtype={value.dtype})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(literal, value)) + ",)"
    return repr(value)

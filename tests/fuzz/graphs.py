"""Draws graphs, as text and as worlds, and deltas."""

import copy
from dataclasses import dataclass

import numpy as np
import torch

from tests.fuzz.draw import CHANNELS
from tests.oracle import World
from tests.strategies import DELTAS, SPOILERS, oldest_changes

KINDS = {**DELTAS, "oldest_changes": oldest_changes}
CALM = [name for name in KINDS if name not in SPOILERS]
ROWS_OF = {
    "edge_weight": "rng.integers(1, 17, len(pairs)) / 8",
    "edge_attr": "rng.standard_normal((len(pairs), 3))",
    "edge_type": "rng.integers(0, 3, len(pairs))",
}


NARROW = ("float32", "float16", "bfloat16")


class Light(World):
    """A world that is copied quickly: rows of edge data are shared, and nothing writes to them."""

    def copy(self):
        new = copy.copy(self)
        new.edges = [dict(edge) for edge in self.edges]
        return new


@dataclass(frozen=True)
class Recipe:
    """A graph by the numbers it is drawn from.

    Attributes:
        seed: Of the draw.
        nodes: Number of nodes; the last of several is isolated.
        edges: Number of edges, before those that are there twice and the self-loop.
        data: Names of edge inputs.
        stored: Dtypes of inputs that are not in float64, by name.
    """

    seed: int
    nodes: int
    edges: int
    data: tuple[str, ...]
    stored: tuple[tuple[str, str], ...] = ()

    def source(self):
        """The text that makes `x`, `pairs` and `edge_data`."""
        to = {name: f".to(torch.{dtype})" for name, dtype in self.stored}
        rows = [
            f'    "{name}": torch.from_numpy({ROWS_OF[name]}){to.get(name, "")},'
            for name in self.data
        ]
        data = ["edge_data = {", *rows, "}"] if rows else ["edge_data = {}"]
        x = f"rng.standard_normal(({self.nodes}, {CHANNELS}))"
        return "\n".join(
            [
                f"rng = np.random.default_rng({self.seed})",
                f"x = torch.from_numpy({x}){to.get('x', '')}",
                f"pairs = rng.integers(0, {max(self.nodes - 1, 1)}, ({self.edges}, 2)).tolist()",
                f"pairs += pairs[:2] + [[0, 0]] * {int(self.edges > 0)}",
                *data,
            ]
        )

    def world(self):
        names = {"np": np, "torch": torch}
        exec(self.source(), names)
        return Light(names["x"], names["pairs"], names["edge_data"])


def draw_recipe(rng, data):
    """Mostly 15 to 300 nodes; at times 1 to 5, or no edge at all."""
    nodes = int(np.exp(rng.uniform(np.log(15), np.log(300))))
    if rng.random() < 0.1:
        nodes = int(rng.integers(1, 6))
    edges = int(nodes * rng.uniform(0.5, 4))
    if rng.random() < 0.05:
        edges = 0
    return Recipe(int(rng.integers(2**31)), nodes, edges, data)


def draw_dtypes(rng, data):
    """In one of ten models floats are stored in fewer digits: all alike, as deltas draw them."""
    if rng.random() > 0.1:
        return ()
    dtype = str(rng.choice(NARROW))
    return tuple((name, dtype) for name in ("x", *data) if name != "edge_type")


def draw_deltas(rng, count, not_finite=False):
    """Names of kinds of delta, a third of them `mixed`."""
    names = [str(name) for name in rng.choice(CALM, count)]
    names = [name if rng.random() > 0.3 else "mixed" for name in names]
    if not_finite and count > 3:
        names[1], names[3] = str(rng.choice(SPOILERS[:2])), SPOILERS[2]
    return names

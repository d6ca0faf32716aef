"""Holds models that do something unusual against themselves, and sees that they are left alone.

The truth is a fresh copy of the model for every graph: what a model keeps from one call to the next
is that of its first call.
"""

import copy
import types

import torch
from torch import Tensor, nn

from tests.oracle import full
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import ANY, Case

WALK = (
    "mixed", "change_features", "add_edges", "delete_edges", "new_nodes_with_edges",
    "new_isolated_nodes", "mixed", "remove_nodes", "undirected_mix", "isolate_node", "mixed",
)  # fmt: skip


class Followed(SideBySide):
    """`SideBySide` for a model that need not be incremental, but right, and left as it was.

    Args:
        model: The model, or what makes one; its parameters stay as they are.
        nodes: Number of nodes of the first graph.
        scale: How much larger than the first features those of deltas are.
        world: The first graph (default: a random one).
        data: Names and widths of the edge data.
        options: Keywords of `SideBySide` and `to_incremental`.
    """

    def __init__(self, model, nodes=40, scale=1, world=None, data=(), seed=0, **options):
        torch.manual_seed(seed)
        self.scale = scale
        made = model if isinstance(model, nn.Module) else model()
        name = type(made).__name__ if isinstance(model, nn.Module) else model.__name__
        dtype = options.get("dtype", torch.float64)
        if world is None:
            world = make_world(generator(seed), nodes=nodes, edges=3 * nodes, data=data,
                               dtype=dtype)  # fmt: skip
        super().__init__(_AsItIs(name, lambda: made, data, mode=ANY), world=world, seed=seed,
                         **options)  # fmt: skip

    def full(self, world=None):
        return full(copy.deepcopy(self.twin), world or self.world, self.case.call)

    def step(self, delta, name="delta"):
        delta = dict(delta)
        if "x_add" in delta:
            delta["x_add"] = delta["x_add"] * self.scale
        if "x_changes" in delta:
            delta["x_changes"] = delta["x_changes"][0], delta["x_changes"][1] * self.scale
        return super().step(delta, name)

    def check_all(self):
        super().check_all()
        self.check_left_alone()
        assert self.inc.verify() < 1e-9, self.where()

    def check_left_alone(self):
        """The model that was handed over is, bit by bit, what it was before."""
        found = differences(self.inc.model, self.twin)
        assert not found, f"{self.where()}: {found}"

    def walk(self, names=WALK):
        super().walk(names)


class _AsItIs(Case):
    """A case whose parameters are not made random."""

    def build(self, seed=0, dtype=torch.float64):
        model = self.make().to(dtype).eval()
        return model, copy.deepcopy(model)


def differences(a, b, path="model", seen=None):
    """Where two modules (or what they hold) differ: names, as in `model.conv._cached_x`."""
    seen = set() if seen is None else seen
    if id(a) in seen:
        return []
    seen.add(id(a))
    if type(a) is not type(b):
        return [f"{path}: {type(a).__name__}, was {type(b).__name__}"]
    if isinstance(a, Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        return [] if same and bits(a) == bits(b) else [f"{path}: other values"]
    if isinstance(a, nn.Module):
        return differences(vars(a), vars(b), path, seen)
    if isinstance(a, dict):
        if set(a) != set(b):
            return [f"{path}.{key}: came or went" for key in set(a) ^ set(b)]
        return [d for key in a for d in differences(a[key], b[key], f"{path}.{key}", seen)]
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return [f"{path}: {len(a)} items, was {len(b)}"]
        pairs = enumerate(zip(a, b, strict=True))
        return [d for i, (u, v) in pairs for d in differences(u, v, f"{path}.{i}", seen)]
    if isinstance(a, (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)):
        return [] if a == b or a != a else [f"{path}: {a}, was {b}"]
    if isinstance(a, (types.FunctionType, types.MethodType)):
        same = a.__qualname__ == b.__qualname__
        return [] if same else [f"{path}: {a.__qualname__}, was {b.__qualname__}"]
    return []


def bits(tensor):
    """The bytes of a tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()

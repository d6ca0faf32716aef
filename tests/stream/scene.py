"""A small model, its graph and random events, among them such as do not fit."""

import random

import torch
from torch_geometric.nn import GraphConv, GraphSAGE

from pyg_incremental import to_incremental

NODES, CHANNELS = 12, 3


class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GraphConv(CHANNELS, 4), GraphConv(4, 2)

    def forward(self, x, edge_index, edge_weight):
        return self.two(self.one(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


def sage(seed=0):
    torch.manual_seed(seed)
    return GraphSAGE(CHANNELS, 4, num_layers=2, out_channels=2).double().eval()


def graph(seed=0, edges=30):
    torch.manual_seed(seed)
    return torch.randn(NODES, CHANNELS).double(), torch.randint(NODES, (2, edges))


def called(seed=0, **settings):
    inc = to_incremental(sage(seed), backend="reference", check=False, **settings)
    inc(*graph(seed))
    return inc


def events(seed, count, *, kinds=None, bad=0.1, weights=False):
    """Random events; a few nodes, so that many are about the same pair."""
    rng = random.Random(seed)
    kinds = kinds or ["edge_add"] * 4 + ["edge_del"] * 3 + ["node"] * 2 + ["node_del"]
    found, nodes = [], NODES
    for _ in range(count):
        kind = rng.choice(kinds)
        event = {"kind": kind}
        if kind.startswith("edge"):
            event |= {"src": rng.randrange(nodes), "dst": rng.randrange(4)}
            if weights and kind != "edge_del":
                event["w"] = rng.random()
        else:
            event["node"] = rng.randrange(nodes + 1)
            if kind == "node":
                event["x"] = [rng.gauss(0, 1) for _ in range(CHANNELS)]
        if rng.random() < bad:
            event = spoiled(rng, event)
        elif kind == "node":
            nodes = max(nodes, event["node"] + 1)
        found.append(event)
    return found


def spoiled(rng, event):
    """The same event, and not as it should be."""
    name = rng.choice([name for name in event if name != "kind"])
    wrong = [-1, 10**6, 2**70, "7", None, 1.5, [1, 2], True]
    if rng.random() < 0.2:
        return {key: value for key, value in event.items() if key != name}
    if name in ("w", "x"):  # large numbers would be right, and round
        wrong = ["7", None, 1.5, [1, 2], [0.5, None, 1.0], True]
    return {**event, name: rng.choice(wrong)}

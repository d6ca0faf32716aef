"""Samples by their definition: a list of edges, sorted. Imports nothing of the package."""

import math
from itertools import permutations

MASK = 2**64 - 1


def mixed(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def drawn(edge_id, seed, turn=0):
    """64 bits for an edge."""
    start = mixed(mixed(seed) + turn * 0x9E3779B97F4A7C15 & MASK)
    return mixed(mixed(start + edge_id & MASK) + start & MASK)


class NaiveSampler:
    """Edges as dicts with `src`, `dst`, `id`, and `time` or `weight`.

    A node samples among its in-edges, its out-edges or both, by `edges_by`.
    """

    def __init__(self, strategy, seed, edges_by="target"):
        self.strategy, self.seed, self.turn = strategy, seed, 0
        self.edges_by = edges_by
        self.edges, self.next_id = [], 0

    def add(self, src, dst, value):
        self.edges.append({"src": src, "dst": dst, "id": self.next_id, "value": value})
        self.next_id += 1

    def delete(self, src, dst):
        """The youngest edge of a pair."""
        for at in reversed(range(len(self.edges))):
            if (self.edges[at]["src"], self.edges[at]["dst"]) == (src, dst):
                del self.edges[at]
                return
        raise KeyError((src, dst))

    def remove_node(self, node):
        self.edges = [e for e in self.edges if node not in (e["src"], e["dst"])]

    def key(self, edge, number):
        bits = drawn(number, self.seed, self.turn)
        if self.strategy == "topk":
            return edge["value"]
        if self.strategy == "weight":
            return math.log(((bits >> 11) + 1) / 2**53) / edge["value"]
        return bits >> 1

    def around(self, node):
        """Edges of a node with the neighbour at the other end, and the number that each draws by.

        Where both ends have an edge, it draws for each of them.
        """
        found = []
        for e in self.edges:
            if self.edges_by == "target" and e["dst"] == node:
                found.append((e, e["src"], e["id"]))
            if self.edges_by == "source" and e["src"] == node:
                found.append((e, e["dst"], e["id"]))
            if self.edges_by == "both" and e["dst"] == node:
                found.append((e, e["src"], 2 * e["id"]))
            if self.edges_by == "both" and e["src"] == node != e["dst"]:
                found.append((e, e["dst"], 2 * e["id"] + 1))
        return found

    def sampled(self, node, k):
        """Neighbours and edge ids of the sample of a node, best first."""
        found = self.around(node)
        found.sort(key=lambda own: (self.key(own[0], own[2]), own[2]), reverse=True)
        return [(other, e["id"]) for e, other, _ in (found if k < 0 else found[:k])]

    def sample(self, node, k):
        """Ids of the sampled edges of a node, best first."""
        return [edge for _, edge in self.sampled(node, k)]

    def subgraph(self, seeds, fanouts):
        """Nodes hop by hop, and (neighbour, node, id) of the edges hop by hop."""
        hops, edges, seen = [list(seeds)], [], set(seeds)
        for k in fanouts:
            now = [(u, node, i) for node in hops[-1] for u, i in self.sampled(node, k)]
            new = list(dict.fromkeys(u for u, _, _ in now if u not in seen))
            seen |= set(new)
            hops.append(new)
            edges.append(now)
        return hops, edges


def chance_by_weight(subset, weights):
    """How likely it is that drawing by weight without replacement gives a subset, in any order."""
    total = 0.0
    for order in permutations(subset):
        chance, rest = 1.0, sum(weights.values())
        for item in order:
            chance *= weights[item] / rest
            rest -= weights[item]
        total += chance
    return total

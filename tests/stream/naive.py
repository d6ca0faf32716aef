"""Events one by one, as plainly as can be: what a stream has to come to."""

import torch


class Naive:
    """A graph as lists; an event that does not fit is left out.

    `refused` holds the places of these.
    """

    def __init__(self, x, edge_index, *, which="newest", undirected=False, weights=None):
        self.x = [row.clone() for row in x]
        self.weighted = weights is not None
        weights = torch.ones(edge_index.shape[1]) if weights is None else weights
        self.edges = [[*pair, w] for pair, w in zip(edge_index.t().tolist(), weights.tolist())]  # noqa: B905
        self.which, self.undirected = which, undirected
        self.refused, self.seen = [], set()

    def take(self, place, event):
        try:
            if "id" in event and event["id"] in self.seen:
                return
            getattr(self, "_" + event["kind"])(event)
            if "id" in event:
                self.seen.add(event["id"])
        except (LookupError, TypeError, ValueError):
            self.refused.append(place)

    def _pairs(self, event):
        src, dst = event["src"], event["dst"]
        for node in (src, dst):
            if type(node) is not int or not 0 <= node < len(self.x):
                raise ValueError(node)
        return [(src, dst)] + [(dst, src)] * (self.undirected and src != dst)

    def _weight(self, event):
        weight = event["w"] if self.weighted else 1.0
        if isinstance(weight, list):
            (weight,) = weight
        return self._number(weight)

    def _number(self, value):
        if type(value) not in (int, float, bool):
            raise TypeError(value)
        return float(value)

    def _find(self, pair):
        order = range(len(self.edges))
        for at in order if self.which == "oldest" else reversed(order):
            if (*self.edges[at][:2],) == pair:
                return at
        raise LookupError(pair)

    def _edge_add(self, event):
        for pair in self._pairs(event):
            self.edges.append([*pair, self._weight(event)])

    def _edge_del(self, event):
        places = [self._find(pair) for pair in self._pairs(event)]
        for at in sorted(places, reverse=True):
            del self.edges[at]

    def _edge_change(self, event):
        for at in [self._find(pair) for pair in self._pairs(event)]:
            self.edges[at][2] = self._weight(event)

    def _node(self, event):
        row = torch.tensor([self._number(v) for v in event["x"]], dtype=self.x[0].dtype)
        if type(event["node"]) is not int or not 0 <= event["node"] <= len(self.x):
            raise LookupError(event["node"])
        if row.shape != self.x[0].shape:
            raise ValueError(row)
        self.x[event["node"] :] = [row, *self.x[event["node"] + 1 :]]

    def _node_del(self, event):
        if type(event["node"]) is not int or not 0 <= event["node"] < len(self.x):
            raise LookupError(event["node"])
        self.edges = [e for e in self.edges if event["node"] not in e[:2]]
        self.x[event["node"]] = torch.zeros_like(self.x[0])

    def inputs(self):
        edges = torch.tensor([e[:2] for e in self.edges]).reshape(-1, 2).t()
        return (
            torch.stack(self.x),
            edges,
            torch.tensor([e[2] for e in self.edges], dtype=torch.float64),
        )

"""The slow, obvious truth for graphs with several types of nodes and edges.

A `HeteroWorld` holds plain Python lists, one of edges for each edge type. It applies a delta one
edge at a time and answers with a full pass of the original PyG model. It imports nothing of the
package under test.
"""

import copy
import warnings

import torch

PAIR = ("src", "to", "dst")
"""The edge type of a world that is handed to a model as `((x_src, x_dst), edge_index)`."""


class HeteroWorld:
    """A graph that changes: features by node type, and edges by edge type.

    Args:
        x: Features by node type, one row per node.
        edges: Pairs (source, target) by edge type.
        data: Edge data by edge type and name, one row per edge.
    """

    def __init__(self, x, edges, data=None):
        data = data or {}
        self.x = {kind: rows.clone() for kind, rows in x.items()}
        self.names = {edge_type: tuple(data.get(edge_type, {})) for edge_type in edges}
        self.empty = {
            edge_type: {name: rows[:0].clone() for name, rows in data.get(edge_type, {}).items()}
            for edge_type in edges
        }
        self.edges = {
            edge_type: [
                {"pair": (int(u), int(v)), **{n: r[i] for n, r in data.get(edge_type, {}).items()}}
                for i, (u, v) in enumerate(pairs)
            ]
            for edge_type, pairs in edges.items()
        }

    def copy(self):
        return copy.deepcopy(self)

    def num_nodes(self, kind):
        return len(self.x[kind])

    def pairs(self, edge_type):
        return [edge["pair"] for edge in self.edges[edge_type]]

    # Deltas ######################################################################################

    def apply(
        self,
        *,
        edge_index_add=None,
        edge_index_del=None,
        x_changes=None,
        edge_weight_add=None,
        edge_attr_add=None,
        edge_changes=None,
        x_add=None,
        nodes_del=None,
        edge_data_add=None,
        undirected=False,
        missing="error",
    ):
        """Apply one delta, in the documented order."""
        for kind, rows in (x_add or {}).items():
            self.x[kind] = torch.cat([self.x[kind], rows])
        for edge_type, index in self._by_type(edge_index_del):
            for _, pair in directions(index, undirected):
                self._remove(edge_type, pair, missing)
        added = {
            "edge_weight": dict(self._by_type(edge_weight_add)),
            "edge_attr": dict(self._by_type(edge_attr_add)),
        }
        further = dict(self._by_type(edge_data_add))
        for edge_type, index in self._by_type(edge_index_add):
            for i, pair in directions(index, undirected):
                row = {"pair": pair}
                for name in self.names[edge_type]:
                    rows = further.get(edge_type, {}).get(name)
                    row[name] = (added[name][edge_type] if rows is None else rows)[i]
                self.edges[edge_type].append(row)
        for kind, (ids, rows) in (x_changes or {}).items():
            self.x[kind] = self.x[kind].clone()
            for node, row in zip(ids, rows, strict=True):
                self.x[kind][int(node)] = row
        for edge_type, (index, values) in self._by_type(edge_changes):
            for i, pair in directions(index, undirected):
                at = self._last(edge_type, pair, missing)
                if at is not None:
                    self.edges[edge_type][at].update({n: rows[i] for n, rows in values.items()})
        for kind, ids in (nodes_del or {}).items():
            for node in ids.tolist():
                self._leave(kind, node)

    def _by_type(self, value):
        """What a delta says of each edge type; of the only one without saying so."""
        if value is None:
            return []
        keyed = isinstance(value, dict) and all(key in self.edges for key in value)
        return list(value.items()) if keyed else [(next(iter(self.edges)), value)]

    def _last(self, edge_type, pair, missing):
        edges = self.edges[edge_type]
        for at in reversed(range(len(edges))):
            if edges[at]["pair"] == pair:
                return at
        if missing == "ignore":
            return None
        raise KeyError((edge_type, pair))

    def _remove(self, edge_type, pair, missing):
        at = self._last(edge_type, pair, missing)
        if at is not None:
            del self.edges[edge_type][at]

    def _leave(self, kind, node):
        """The edges of a node leave, at both ends and in every relation."""
        self.x[kind] = self.x[kind].clone()
        self.x[kind][node] = 0
        for edge_type, edges in self.edges.items():
            source, _, target = edge_type
            self.edges[edge_type] = [
                edge
                for edge in edges
                if not (source == kind and edge["pair"][0] == node)
                and not (target == kind and edge["pair"][1] == node)
            ]

    # What a model is given #######################################################################

    def edge_index(self, edge_type):
        pairs = torch.tensor(self.pairs(edge_type), dtype=torch.long)
        return pairs.reshape(-1, 2).t().contiguous()

    def edge_data(self, edge_type, name):
        rows = [edge[name] for edge in self.edges[edge_type]]
        return torch.stack(rows) if rows else self.empty[edge_type][name].clone()

    def arguments(self):
        """Positional and keyword arguments of a model."""
        x = {kind: rows.clone() for kind, rows in self.x.items()}
        if list(self.edges) == [PAIR]:
            data = {name: self.edge_data(PAIR, name) for name in self.names[PAIR]}
            return ((x["src"], x["dst"]), self.edge_index(PAIR)), data
        names = {name for some in self.names.values() for name in some}
        data = {
            f"{name}_dict": {
                e: self.edge_data(e, name) for e in self.edges if name in self.names[e]
            }
            for name in sorted(names)
        }
        return (x, {edge_type: self.edge_index(edge_type) for edge_type in self.edges}), data


def directions(index, undirected):
    """The pairs of a delta with their position; the other directions follow after all of them."""
    pairs = [(i, (int(u), int(v))) for i, (u, v) in enumerate(zip(*index.tolist(), strict=True))]
    if undirected:
        pairs += [(i, (v, u)) for i, (u, v) in pairs if u != v]
    return pairs


def call_plain(model, world):
    args, kwargs = world.arguments()
    return model(*args, **kwargs)


def full(model, world):
    """The output of the original model on the current graph, all of it from scratch."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call_plain(model.eval(), world)

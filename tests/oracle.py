"""The slow, obvious truth that the package is held against.

A `World` is a graph as a plain Python list of edges. It applies a delta one edge at a time and
answers with a full pass of the original PyG model. It imports nothing of the package under test.
"""

import copy
import warnings

import torch
from torch_geometric import EdgeIndex

FORMATS = ("coo", "edge_index", "edge_index_by_col", "csr", "csc", "sparse_tensor")
MATRICES = ("csr", "csc", "sparse_tensor")
CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")


class World:
    """A graph that changes: node features, and edges in the order in which they were added.

    Args:
        x: Node features, one row per node.
        edges: Pairs (source, destination).
        data: Edge data by name, one row per edge.
        fmt: The format in which the graph is handed to a model. The order of the first edges is
            the one in which that format holds them.
        signed: Whether edge weights may be negative (only the makers of deltas read this).
    """

    def __init__(self, x, edges, data=None, fmt="coo", signed=False):
        self.x = x.clone()
        self.fmt = fmt
        self.signed = signed
        self.names = tuple(data or {})
        self.empty = {
            name: rows.new_zeros((0, *rows.shape[1:])) for name, rows in (data or {}).items()
        }
        self.edges = [
            {
                "pair": (int(u), int(v)),
                **{name: rows[i].clone() for name, rows in (data or {}).items()},
            }
            for i, (u, v) in enumerate(edges)
        ]
        self.edges = [self.edges[i] for i in self._order()]

    @property
    def num_nodes(self):
        return self.x.size(0)

    @property
    def multi(self):
        """Whether an edge may be there twice (PyG itself merges them in some CSR code paths)."""
        return self.fmt not in ("csr", "csc")

    def number_edges(self):
        """Remember which row of an output each edge has, for `edges_that_differ`."""
        for place, at in enumerate(self._order()):
            self.edges[at]["place"] = place

    def edges_that_differ(self, before, after):
        """Rows of edges that are new, or have another one than before (NaN equals NaN)."""

        def differ(old, new):
            return not bool(((old == new) | ((old != old) & (new != new))).all())

        return [
            place
            for place, edge in enumerate(self.edges[at] for at in self._order())
            if "place" not in edge or differ(before[edge["place"]], after[place])
        ]

    def copy(self):
        """Another world; both share their tensors, which nobody writes to."""
        other = copy.copy(self)
        other.edges = [edge.copy() for edge in self.edges]
        return other

    def doubled(self):
        """The same world in float64."""
        other = self.copy()
        other.x, other.empty = _doubled(self.x), {k: _doubled(v) for k, v in self.empty.items()}
        other.edges = [{name: _doubled(v) for name, v in edge.items()} for edge in self.edges]
        return other

    def pairs(self):
        return [edge["pair"] for edge in self.edges]

    # Deltas ######################################################################################

    def apply(
        self,
        edge_index_add=None,
        edge_index_del=None,
        x_changes=None,
        *,
        edge_weight_add=None,
        edge_attr_add=None,
        edge_changes=None,
        x_add=None,
        nodes_del=None,
        edge_data_add=None,
        undirected=False,
        missing="error",
        which="newest",
        edge_data_del=None,
    ):
        """Apply one delta, in the documented order."""
        if x_add is not None:
            self.x = torch.cat([self.x, x_add])
        for i, pair in _directions(edge_index_del, undirected):
            like = {name: rows[i] for name, rows in (edge_data_del or {}).items()}
            at = self._one(pair, missing, which, like)
            if at is not None:
                del self.edges[at]
        added = {"edge_weight": edge_weight_add, "edge_attr": edge_attr_add}
        added.update(edge_data_add or {})
        for i, pair in _directions(edge_index_add, undirected):
            data = {name: added[name][i].clone() for name in self.names}
            self.edges.append({"pair": pair, **data})
        if x_changes is not None:
            self.x = self.x.clone()
            for node, row in zip(*x_changes, strict=True):
                self.x[int(node)] = row
        if edge_changes is not None:
            index, values = edge_changes
            for i, pair in _directions(index, undirected):
                at = self._one(pair, missing, which)
                if at is not None:
                    self.edges[at].update({name: rows[i].clone() for name, rows in values.items()})
        for node in [] if nodes_del is None else nodes_del.tolist():
            self.edges = [edge for edge in self.edges if node not in edge["pair"]]
            self.x = self.x.clone()
            self.x[node] = 0

    def _one(self, pair, missing, which, like=None):
        every = range(len(self.edges))
        for at in reversed(every) if which == "newest" else every:
            edge = self.edges[at]
            if edge["pair"] == pair and all(
                bool((edge[name] == row).all()) for name, row in (like or {}).items()
            ):
                return at
        if missing == "ignore":
            return None
        raise KeyError(pair)

    # What a model is given #######################################################################

    def edges_of_rows(self):
        """The edges in the order of an output with a row for each, int64 `[2, num_edges]`."""
        return self.edge_index()[:, self._order()]

    def edge_index(self):
        return torch.tensor(self.pairs(), dtype=torch.long).reshape(-1, 2).t().contiguous()

    def edge_data(self, name):
        rows = [edge[name] for edge in self.edges]
        return torch.stack(rows) if rows else self.empty[name].clone()

    def inputs(self):
        """Everything a model may be called with, in this world's format."""
        order = self._order()
        data = {name: self.edge_data(name)[order] for name in self.names}
        index = self.edge_index()[:, order]
        if self.fmt not in MATRICES:
            if self.fmt != "coo":
                size = (self.num_nodes, self.num_nodes)
                order = "col" if self.fmt == "edge_index_by_col" else None
                index = EdgeIndex(index, sparse_size=size, sort_order=order)
            return {"x": self.x.clone(), "edge_index": index, **data}
        weight = data.get("edge_weight")
        return {"x": self.x.clone(), "edge_index": self._matrix(index, weight)}

    def _order(self):
        """Positions of the edges as this world's format holds them (COO: as they were added)."""
        pairs = self.pairs()
        key = {
            "coo": lambda at: at,
            "edge_index": lambda at: at,
            "edge_index_by_col": lambda at: pairs[at][1],
            "csr": lambda at: (pairs[at][1], pairs[at][0]),
            "csc": lambda at: pairs[at],
            "sparse_tensor": lambda at: (pairs[at][1], pairs[at][0]),
        }[self.fmt]
        return sorted(range(len(pairs)), key=key)

    def _matrix(self, index, weight):
        size = (self.num_nodes, self.num_nodes)
        if self.fmt == "sparse_tensor":
            from torch_sparse import SparseTensor

            return SparseTensor(row=index[1], col=index[0], value=weight, sparse_sizes=size)
        if weight is None:
            weight = self.x.new_ones(index.size(1))
        outer, inner = (index[1], index[0]) if self.fmt == "csr" else (index[0], index[1])
        counts = torch.bincount(outer, minlength=self.num_nodes)
        ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        make = torch.sparse_csr_tensor if self.fmt == "csr" else torch.sparse_csc_tensor
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "CSR support is in beta state"
            return make(ptr, inner, weight, size=size)


def _doubled(value):
    """Floats of single precision as doubles; anything else as it is."""
    is_single = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.double() if is_single else value


def _directions(index, undirected):
    """The pairs of a delta with their position; the other directions follow after all of them."""
    if index is None:
        return []
    pairs = [(i, (int(u), int(v))) for i, (u, v) in enumerate(zip(*index.tolist(), strict=True))]
    if undirected:
        pairs += [(i, (v, u)) for i, (u, v) in pairs if u != v]
    return pairs


def call_plain(model, inputs):
    """Call a model as `model(x, edge_index, edge_weight=..., edge_attr=...)`."""
    inputs = dict(inputs)
    return model(inputs.pop("x"), inputs.pop("edge_index"), **inputs)


def full(model, world, call=call_plain):
    """The output of the original model on the current graph, all of it from scratch."""
    model = model.eval()
    for module in model.modules():
        for name in CACHES:
            if hasattr(module, name):
                setattr(module, name, None)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(model, world.inputs())

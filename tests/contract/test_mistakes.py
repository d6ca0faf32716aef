"""Mistakes of a first call: each is answered by a sentence of ours with a cure, not by torch."""

import functools

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAT, GCN, FiLMConv, RGCNConv, SAGEConv, to_hetero

from pyg_incremental import IncrementalError, InvalidDeltaError, to_incremental

X, E = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(4, 6), SAGEConv(6, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class TakesData(Two):
    def forward(self, data):
        return super().forward(data.x, data.edge_index)


class TakesTypes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = hetero()

    def forward(self, data):
        return self.inner(data.x_dict, data.edge_index_dict)


def typed():
    data = HeteroData()
    data["a"].x, data["b"].x = X, X[:4]
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 4], [1, 2, 3]])
    data["b", "of", "a"].edge_index = torch.tensor([[1, 2, 3], [0, 1, 4]])
    return data


@functools.cache
def hetero():
    return to_hetero(Two(), typed().metadata())


def gcn():
    return GCN(4, 6, 2, 3)


def gat():
    return GAT(4, 6, 2, 3, edge_dim=3)


def rgcn():
    return RGCNConv(4, 3, 2)


def film():
    return FiLMConv(4, 3)


class FromElsewhere:
    """Looks like an object of a package that need not be installed."""


def of_package(name, **held):
    made = type(name.rpartition(".")[2], (FromElsewhere,), {"__module__": name.partition(".")[0]})()
    vars(made).update(held)
    return made


GRAPH = of_package("networkx.Graph")
TABLE = of_package("pandas.DataFrame", to_numpy=lambda: E.t().numpy())
XS, ES = typed().x_dict, typed().edge_index_dict
TO, OF = ES
half = X.half()
eye = torch.eye(5)

# What was done, the model, the call, and the words that the answer must hold.
DTYPES = {
    "float64": (gcn, (X.double(), E), ["'x'", "float64", "float32", "x.float()", "model.double()"]),
    "float32 into float64": (lambda: gcn().double(), (X, E), ["float32", "x.double()"]),
    "float16": (gcn, (half, E), ["'x'", "float16", "float32", "x.float()"]),
    "bfloat16": (gcn, (X.bfloat16(), E), ["bfloat16", "x.float()"]),
    "float32 into bfloat16": (lambda: gcn().bfloat16(), (X, E), ["x.bfloat16()"]),
    "integers": (gcn, (X.long(), E), ["'x'", "int64", "float32", "x.float()"]),
    "bools": (gcn, (X > 0, E), ["'x'", "bool", "x.float()"]),
    "complex": (gcn, (X + 0j, E), ["complex64", "x.real.float()"]),
    "weights float64": (gcn, (X, E, torch.ones(5).double()), ["'edge_weight'", "float64"]),
    "weights integers": (gcn, (X, E, torch.ones(5).long()), ["edge_weight.float()"]),
    "both float64": (
        gcn, (X.double(), E, torch.ones(5).double()), ["'x'", "'edge_weight'", "float64"],
    ),
    "attributes float64": (gat, (X, E, None, X[:, :3].double()), ["'edge_attr'", "float64"]),
    "Data of float64": (gcn, (Data(x=X.double(), edge_index=E),), ["'x'", "float64"]),
    "object of float64": (TakesData, (Data(x=X.double(), edge_index=E),), ["'x'", "float64"]),
    "one type float64": (hetero, ({**XS, "b": X[:4].double()}, ES), ["'b/x'", "float64"]),
    "all types float64": (hetero, ({k: x.double() for k, x in XS.items()}, ES), ["'a/x'", "'b/x'"]),
    "edge types of floats": (rgcn, (X, E, torch.zeros(5)), ["'edge_type'", "edge_type.long()"]),
}  # fmt: skip
WIDTHS = {
    "too wide": (gcn, (torch.ones(5, 7), E), ["'x'", "[5, 7]", "4", "[num_nodes, 4]"]),
    "too narrow": (gcn, (X[:, :2], E), ["'x'", "2 channels", "[num_nodes, 4]"]),
    "turned": (gcn, (X.t(), E % 4), ["[4, 5]", "x.t()"]),
    "no channels": (gcn, (X[:, 0], E), ["'x'", "[5]", "[num_nodes, 4]"]),
    "a batch of graphs": (gcn, (X[None], E), ["[1, 5, 4]", "[num_nodes, channels]"]),
    "attributes too wide": (gat, (X, E, None, X), ["'edge_attr'", "[5, 4]", "[num_edges, 3]"]),
    "attributes flat": (gat, (X, E, None, X[:, 0]), ["'edge_attr'", "[5]", "[num_edges, 3]"]),
    "wide and float64": (gcn, (torch.ones(5, 7).double(), E), ["float64", "x.float()", "[5, 7]"]),
    "one type too wide": (hetero, ({**XS, "b": torch.ones(4, 9)}, ES), ["'b/x'", "[4, 9]", "4"]),
    "all types too wide": (hetero, ({k: x[:, :3] for k, x in XS.items()}, ES), ["x'", "4"]),
    "Data too wide": (gcn, (Data(x=torch.ones(5, 7), edge_index=E),), ["'x'", "[5, 7]"]),
    "another conv": (film, (X[:, :3], E), ["'x'", "[5, 3]", "4"]),
}
FEATURES = {
    "an array": (gcn, (X.numpy(), E), ["'x'", "numpy.ndarray", "torch.from_numpy(x)"]),
    "lists": (gcn, (X.tolist(), E), ["'x'", "list", "torch.tensor(x)"]),
    "a table": (gcn, (of_package("pandas.DataFrame", to_numpy=lambda: X.numpy()), E),
                ["pandas.DataFrame", "torch.from_numpy(x.to_numpy())"]),
    "of scipy": (gcn, (scipy.sparse.csr_matrix(X.numpy()), E), ["scipy", "x.toarray()"]),
    "None": (gcn, (None, E), ["'x'", "None", "pass a tensor"]),
    "a name": (gcn, ("Cora", E), ["features", "pass features"]),
    "a number": (gcn, (5, E), ["features", "pass features"]),
    "a list of tensors": (gcn, ([*X], E), ["'x'", "list of tensors", "torch.stack(x)"]),
    "Data with an array": (gcn, (Data(x=X.numpy(), edge_index=E),), ["'x'", "from_numpy"]),
    "Data without": (gcn, (Data(edge_index=E, num_nodes=5),), ["no 'x'", "inc(x=..."]),
    "arrays by type": (hetero, ({"a": X.numpy(), "b": X.numpy()}, ES), ["x['a']", "from_numpy"]),
    "a type without": (hetero, ({"a": X}, ES), ["'b'", "features of all types"]),
    "none at all": (gcn, (X[:0], E), ["'edge_index'", "[0, 0)", "features for every node"]),
    "without memory": (gcn, (X.to("meta"), E), ["'x'", "'meta'", "cpu"]),
}  # fmt: skip
EDGES = {
    "an array": (gcn, (X, E.numpy()), ["'edge_index'", "ndarray", "torch.from_numpy(edge_index)"]),
    "two lists": (gcn, (X, E.tolist()), ["'edge_index'", "list", "torch.tensor(edge_index)"]),
    "pairs": (gcn, (X, E.t().tolist()), ["list", "torch.tensor(edge_index).t()"]),
    "tuples": (gcn, (X, [(0, 1), (1, 2), (2, 3)]), ["torch.tensor(edge_index).t()"]),
    "two rows": (gcn, (X, (E[0], E[1])), ["'edge_index'", "torch.stack(edge_index)"]),
    "a table": (gcn, (X, TABLE), ["pandas.DataFrame", "edge_index.to_numpy()).t()"]),
    "networkx": (gcn, (X, GRAPH), ["networkx", "from_networkx(edge_index)"]),
    "of scipy": (gcn, (X, scipy.sparse.coo_matrix(eye.numpy())), ["from_scipy_sparse_matrix"]),
    "everything arrays": (gcn, (X.numpy(), E.numpy()), ["'x'", "'edge_index'", "from_numpy"]),
    "dense adjacency": (gcn, (X, eye), ["[5, 5]", "dense_to_sparse(edge_index)"]),
    "dense adjacency of integers": (gcn, (X, eye.long()), ["dense_to_sparse(edge_index)"]),
    "transposed": (gcn, (X, E.t()), ["[5, 2]", "transpose", "edge_index.t()"]),
    "transposed floats": (gcn, (X, E.t().float()), ["float32", "edge_index.t().long()"]),
    "floats": (gcn, (X, E.float()), ["float32", "[2, num_edges]", "edge_index.long()"]),
    "bools": (gcn, (X, E > 0), ["bool", "integers"]),
    "complex": (gcn, (X, E + 0j), ["complex64", "integers"]),
    "flat": (gcn, (X, E.flatten()), ["[10]", "torch.stack"]),
    "three rows": (gcn, (X, torch.zeros(3, 4).long()), ["[3, 4]", "[2, num_edges]"]),
    "one more dimension": (gcn, (X, E[None]), ["[1, 2, 5]", "[2, num_edges]"]),
    "None": (gcn, (X, None), ["'edge_index'", "None", "[2, num_edges]"]),
    "ids too large": (gcn, (X, E + 3), ["node 6", "[0, 5)", "features for every node"]),
    "negative ids": (gcn, (X, E - 1), ["node -1", "[0, 5)", "count from 0"]),
    "ids from 1": (gcn, (X[:4], E + 1), ["node 4", "edge_index - 1"]),
    "sparse coo": (gcn, (X, eye.to_sparse()), ["sparse_coo", ".to_sparse_csr()"]),
    "blocks": (gcn, (X, torch.eye(4).to_sparse_bsr((2, 2))), ["sparse_bsr", ".to_sparse_csr()"]),
    "adjacency of more nodes": (gcn, (X, torch.eye(9).to_sparse_csr()), ["[9, 9]", "5 nodes"]),
    "adjacency not square": (gcn, (X, torch.ones(5, 7).to_sparse_csr()), ["[5, 7]", "5 nodes"]),
    "without memory": (gcn, (X, E.to("meta")), ["'edge_index'", "meta"]),
    "swapped with features": (gcn, (E, X), ["'edge_index'", "float32", "inc(x, edge_index)"]),
    "Data without": (gcn, (Data(x=X),), ["no 'edge_index'", "inc(data.x, edge_index=...)"]),
    "Data transposed": (gcn, (Data(x=X, edge_index=E.t()),), ["[5, 2]", "transpose"]),
    "object transposed": (TakesData, (Data(x=X, edge_index=E.t()),), ["[5, 2]", "transpose"]),
}
TYPES = {
    "transposed": (hetero, (XS, {k: e.t() for k, e in ES.items()}), ["a__to__b", "transpose"]),
    "arrays": (hetero, (XS, {k: e.numpy() for k, e in ES.items()}), ["from_numpy(edge_index[("]),
    "ids too large": (hetero, (XS, {k: e + 3 for k, e in ES.items()}), ["node 7", "[0, 5)"]),
    "one type of edges": (hetero, (XS, {TO: ES[TO]}), ["('b', 'of', 'a')", "pass a tensor"]),
    "plain tensors": (hetero, (X, E), ["to_hetero", "'x'", "[5, 4]", "'a': ...", "HeteroData"]),
    "plain edges": (hetero, (XS, E), ["to_hetero", "'edge_index'", "('a', 'to', 'b')"]),
    "Data": (hetero, (Data(x=X, edge_index=E),), ["to_hetero", "HeteroData"]),
    "words as types of edges": (hetero, (XS, {"to": E}), ["edge_index", "edge types as keys"]),
    "object without types": (TakesTypes, (Data(x=X, edge_index=E),), ["'x_dict'", "Data"]),
    "HeteroData for one type": (gcn, (typed(),), ["'a', 'b'", "to_hetero", "to_homogeneous()"]),
    "dicts for one type": (gcn, (XS, ES), ["'x'", "dict", "to_hetero", "to_homogeneous()"]),
    "object of types": (TakesData, (typed(),), ["'x'", "HeteroData", "class"]),
}
ROWS = {
    "weights too many": (gcn, (X, E, torch.ones(6)), ["'edge_weight'", "6", "5 edges"]),
    "weights too few": (gcn, (X, E, torch.ones(2)), ["'edge_weight'", "2", "5 edges"]),
    "weights a list": (gcn, (X, E, [1.0] * 5), ["'edge_weight'", "list", "torch.as_tensor"]),
    "weights an array": (gcn, (X, E, np.ones(5)), ["'edge_weight'", "ndarray", "torch.as_tensor"]),
    "weights elsewhere": (gcn, (X, E, torch.ones(5).to("meta")), ["'edge_weight'", "'meta'"]),
    "attributes too few": (gat, (X, E, None, X[:4, :3]), ["'edge_attr'", "4", "5 edges"]),
    "attributes an array": (gat, (X, E, None, X.numpy()), ["'edge_attr'", "ndarray"]),
    "no edge types": (rgcn, (X, E), ["'edge_type'", "not given", "int64 [num_edges]"]),
    "too few edge types": (rgcn, (X, E, E[0, :4]), ["'edge_type'", "4", "5 edges"]),
    "edge types too large": (rgcn, (X, E, E[0] + 7), ["'edge_type'", "7 to 10", "from 0"]),
    "edge types negative": (rgcn, (X, E, E[0] - 9), ["'edge_type'", "-9", "from 0"]),
}
CALLS = {
    "no edges": (gcn, (X,), ["'edge_index'", "Tensor", "inc(x, edge_index"]),
    "nothing": (gcn, (), ["'x'", "inc(x, edge_index"]),
    "only a graph": (gcn, (GRAPH,), ["'edge_index'", "Graph", "inc(x, edge_index"]),
    "a dict": (gcn, ({"x": X, "edge_index": E},), ["dict", "inc(x, edge_index"]),
    "a tuple": (gcn, ((X, E),), ["tuple", "inc(x, edge_index"]),
    "a list of Data": (gcn, ([Data(x=X, edge_index=E)],), ["list", "inc(x, edge_index"]),
    "too many": (Two, (X, E, X, X), ["too many", "inc(x, edge_index)"]),
    "tensors for an object": (TakesData, (X, E), ["too many", "inc(data)"]),
    "objects in a list": (TakesData, ([Data(x=X, edge_index=E)],), ["'data'", "from_data_list"]),
    "in training": (lambda: gcn().train(), (X, E), ["training mode", "model.eval()"]),
    "no weights": (lambda: gcn().to("meta"), (X, E), ["meta", "weights"]),
}
ALL = {
    f"{table}, {name}": case
    for table, cases in {
        "dtypes": DTYPES, "widths": WIDTHS, "features": FEATURES, "edges": EDGES, "types": TYPES,
        "rows": ROWS, "calls": CALLS,
    }.items()
    for name, case in cases.items()
}  # fmt: skip


@pytest.mark.parametrize(("make", "arguments", "words"), ALL.values(), ids=ALL)
def test_a_mistake_is_answered(make, arguments, words, seed, capfd):
    model = make()
    model = model if "training" in words[0] else model.eval()
    inc = to_incremental(model, backend="reference")
    with pytest.raises(IncrementalError) as caught:
        inc(*arguments)
    message = str(caught.value)
    for word in words:
        assert word in message, (word, message)
    assert type(model).__name__ in message or "roles=" in message
    assert len(message.split()) >= 8, f"a sentence, please: {message}"
    assert capfd.readouterr().err == ""
    assert inc.mode == "not called yet"


def test_there_are_a_hundred():
    assert len(ALL) >= 100


def test_the_right_call_of_to_hetero_takes_the_object(seed):
    model, data = hetero().eval(), typed()
    out = to_incremental(model)(data)
    assert out.keys() == model(data.x_dict, data.edge_index_dict).keys()


class Fails(Two):
    """The user's own mistake, on right inputs."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x, edge_index):
        out = super().forward(x, edge_index)
        return self.error(out)


def narrow(out):
    return out @ torch.ones(7, 7)


def mixed(out):
    return out.double() @ torch.ones(3, 3)


def missing(out):
    return out.no_such_field


def raising(out):
    raise ValueError("a sentence of the user's own")


@pytest.mark.parametrize("error", [narrow, mixed, missing, raising])
def test_what_the_model_itself_does_wrong_is_its_own_error(error, seed):
    model = Fails(error).eval()
    with pytest.raises(Exception, match=r".") as theirs:
        model(X, E)
    with pytest.raises(Exception, match=r".") as ours:
        to_incremental(model)(X, E)
    assert not isinstance(ours.value, IncrementalError)
    assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))


def test_the_error_of_torch_stays_beside_it(seed):
    with pytest.raises(InvalidDeltaError) as caught:
        to_incremental(gcn().eval())(X.double(), E)
    assert isinstance(caught.value.__cause__, RuntimeError)

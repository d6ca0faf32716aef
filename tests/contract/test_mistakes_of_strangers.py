"""What people try who know PyG and not this package: each is answered by a sentence with a cure."""

import functools
import inspect
import pathlib
import traceback

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN, GCNConv, SAGEConv, global_mean_pool, to_hetero

import pyg_incremental
from pyg_incremental import GraphDelta, IncrementalError, evaluate, load, to_incremental
from pyg_incremental.sources import IterableSource
from pyg_incremental.stream import Schema, Stream

PACKAGE = str(pathlib.Path(pyg_incremental.__file__).parent)
X, E = torch.randn(6, 4), torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 5]])
ONE = torch.tensor([[0], [1]])
MASK = torch.tensor([True, False, False, False, False, False])
BATCH = torch.tensor([0, 0, 0, 1, 1, 1])


def gcn():
    return GCN(4, 6, 2, 3).eval()


class OfGraphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = GCNConv(4, 5), nn.Linear(5, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


class OfPairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 5)

    def forward(self, x, edge_index, edge_label_index):
        h = self.conv(x, edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(4, 6), SAGEConv(6, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def typed():
    data = HeteroData()
    data["a"].x, data["b"].x = X, X[:4]
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 4], [1, 2, 3]])
    data["b", "of", "a"].edge_index = torch.tensor([[1, 2, 3], [0, 1, 4]])
    return data


def first(model, *args, **kwargs):
    return to_incremental(model.eval(), backend="reference")(*args, **kwargs)


@functools.cache
def wrapped(kind):
    """A model that has been called; nothing that is refused changes it."""
    if kind == "types":
        inc = to_incremental(to_hetero(Two(), typed().metadata()).eval(), backend="reference")
        inc(typed())
        return inc
    inc = to_incremental(gcn(), backend="reference")
    given = {"weights": {"edge_weight": torch.ones(6)}, "names": {"node_ids": list("abcdef")}}
    inc(X, E, **given.get(kind, {}))
    return inc


def delta(*args, of="plain", **kwargs):
    wrapped(of).apply_delta(*args, **kwargs)


def updated():
    inc = to_incremental(gcn(), backend="reference")
    inc(X, E)
    return inc.apply_delta(nodes_del=[1])


def stream(events=(), **options):
    source = IterableSource(events) if isinstance(events, (list, tuple)) else events
    return Stream(wrapped("plain"), source, **options)


def dead(event):
    """The reason why an event was left out, as an error would say it."""
    read = stream([event])
    read.drain()
    raise ValueError(read.dead_letters[0].reason)


def before(act):
    return lambda: act(to_incremental(gcn()))


FRAME = pd.DataFrame({"name": ["a"], "b": [1], "c": [1], "d": [2]})
PAIRS = pd.DataFrame({"s": [0], "d": [1]})

WRAPPING = {
    "a class": (lambda: to_incremental(GCN), "GCN(...)"),
    "a function": (lambda: to_incremental(torch.relu), "trained model"),
    "a state dict": (lambda: to_incremental(gcn().state_dict()), "load_state_dict"),
    "a file name": (lambda: to_incremental("model.pt"), "load(path, model)"),
    "twice": (lambda: to_incremental(to_incremental(gcn())), "inc.model"),
    "a device": (lambda: to_incremental(gcn(), device="cuda"), "model.to(device)"),
    "another backend": (lambda: to_incremental(gcn(), backend="cuda"), "'compiled'"),
    "another store": (lambda: to_incremental(gcn(), store="disk"), "'minimal'"),
    "an option misspelt": (lambda: to_incremental(gcn(), scrub_row=3), "scrub_rows="),
    "a strange option": (lambda: to_incremental(gcn(), batch_size=8), "accumulate_dtype"),
    "threads": (lambda: to_incremental(gcn(), threads=8), "torch.set_num_threads"),
}
FIRST = {
    "networkx": (lambda: first(gcn(), X, nx.path_graph(6)), "from_networkx"),
    "pairs in a list": (lambda: first(gcn(), X, [(0, 1), (1, 2), (2, 3)]), ".t()"),
    "two lists": (lambda: first(gcn(), X, [[0, 1], [1, 2]]), "torch.tensor(edge_index)"),
    "a table": (lambda: first(gcn(), X, PAIRS), ".to_numpy()).t()"),
    "a table of features": (lambda: first(gcn(), FRAME, E), ".float()"),
    "scipy": (lambda: first(gcn(), X, scipy.sparse.eye(6)), "from_scipy_sparse_matrix"),
    "a dense adjacency": (lambda: first(gcn(), X, torch.eye(6)), "dense_to_sparse"),
    "an array": (lambda: first(gcn(), X, E.numpy()), "torch.from_numpy(edge_index)"),
    "an array of floats": (lambda: first(gcn(), X, E.numpy() * 1.0), ".long()"),
    "text in an array": (lambda: first(gcn(), np.array([["a"]] * 6), E), "as numbers"),
    "names as ids": (lambda: first(gcn(), X, [["a", "b"], ["b", "c"]]), "node_ids"),
    "a path": (lambda: first(gcn(), "x.npy", E), "pass features"),
    "edges=": (lambda: first(gcn(), x=X, edges=E), "inc(x, edge_index"),
    "feat=": (lambda: first(gcn(), feat=X, edge_index=E), "inc(x, edge_index"),
    "labels": (lambda: first(gcn(), X, E, y=BATCH), "'y'"),
    "a mask": (lambda: first(gcn(), X, E, train_mask=MASK), "'train_mask'"),
    "masked rows": (lambda: first(gcn(), X[:3], E), "features for every node"),
    "weights in columns": (lambda: first(gcn(), X, E, torch.ones(6, 2)), "[num_edges]"),
    "ids from 1": (lambda: first(gcn(), X, E + 1), "edge_index - 1"),
    "fillers": (lambda: first(gcn(), X, E - 1), "without such fillers"),
    "one edge flat": (lambda: first(gcn(), X, torch.tensor([0, 1])), "torch.stack"),
    "no edges, flat": (lambda: first(gcn(), X, torch.tensor([])), "torch.stack"),
    "a loader": (lambda: first(gcn(), [Data(x=X, edge_index=E)]), "inc(x, edge_index"),
    "nothing for x": (lambda: first(gcn(), None, E), "'x' is None"),
    "Data without x": (lambda: first(gcn(), Data(edge_index=E)), "no 'x'"),
    "no batch": (lambda: first(OfGraphs(), X, E), "inc(x, edge_index, batch)"),
    "batch of floats": (lambda: first(OfGraphs(), X, E, BATCH.float()), "batch.long()"),
    "batch too short": (lambda: first(OfGraphs(), X, E, BATCH[:3]), "6 nodes"),
    "batch in a list": (lambda: first(OfGraphs(), X, E, BATCH.tolist()), "as_tensor(batch)"),
    "batch from -1": (lambda: first(OfGraphs(), X, E, BATCH - 1), "numbers from 0"),
    "pairs out of range": (lambda: first(OfPairs(), X, E, ONE + 8), "[0, 6)"),
    "pairs of floats": (lambda: first(OfPairs(), X, E, ONE.float()), ".long()"),
    "pairs turned": (lambda: first(OfPairs(), X, E, E.t()[:5] * 1), "edge_label_index.t()"),
    "too few names": (lambda: first(gcn(), X, E, node_ids=["a", "b"]), "each of the 6 nodes"),
    "a name twice": (lambda: first(gcn(), X, E, node_ids=list("aabcde")), "its own name"),
    "names of floats": (lambda: first(gcn(), X, E, node_ids=[0.5] * 6), "strings, integers"),
    "no names": (lambda: first(gcn(), X, E, node_ids=[None] * 6), "strings, integers"),
}
BEFORE = {
    name: (before(act), "first call it")
    for name, act in {
        "a delta": lambda inc: inc.apply_delta(ONE),
        "out": lambda inc: inc.out,
        "x": lambda inc: inc.x,
        "graph": lambda inc: inc.graph,
        "save": lambda inc: inc.save("state.pyginc"),
        "verify": lambda inc: inc.verify(),
        "explain": lambda inc: inc.explain(),
        "read": lambda inc: inc.read([0]),
        "refresh": lambda inc: inc.refresh(),
        "preview": lambda inc: inc.preview(nodes_del=[0]),
        "expire": lambda inc: inc.expire(3),
        "num_nodes": lambda inc: inc.num_nodes,
    }.items()
}
NAMES = {
    name: (functools.partial(delta, **{name: ONE}), f"write {field}=")
    for name, field in {
        "add_edges": "edge_index_add", "edges": "edge_index_add", "edge_index": "edge_index_add",
        "edge_index_remove": "edge_index_del", "edge_index_dell": "edge_index_del",
        "x": "x_changes", "x_change": "x_changes", "features": "x_changes",
        "nodes_add": "x_add", "new_nodes": "x_add", "node_del": "nodes_del",
        "remove_nodes": "nodes_del", "edge_weight": "edge_weight_add",
        "edge_attr": "edge_attr_add", "pairs_added": "pairs_add",
    }.items()
} | {
    "timestamp": (lambda: delta(ONE, timestamp=[3]), "edge_data_add={'timestamp': rows}"),
    "nothing like it": (lambda: delta(zzz=3), "x_changes"),
    "of a GraphDelta": (lambda: GraphDelta(add=ONE), "edge_index_add="),
    "of a preview": (lambda: wrapped("plain").preview(add=ONE), "edge_index_add="),
    "a dict of fields": (lambda: delta({"edge_index_add": ONE}), "apply_delta(**fields)"),
    "a list of deltas": (lambda: delta([GraphDelta(nodes_del=[1])]), "d1 + d2"),
    "a delta and more": (lambda: delta(GraphDelta(nodes_del=[1]), x_add=X[:1]), "into the"),
    "previews of tensors": (lambda: wrapped("plain").preview_many([ONE]), "list of GraphDelta"),
}  # fmt: skip
EDGES = {
    "pairs in rows": (lambda: delta([(0, 1), (1, 2), (3, 4)]), "transpose"),
    "one pair": (lambda: delta((0, 1)), "[sources, targets]"),
    "a table": (lambda: delta(PAIRS), "rename them"),
    "networkx": (lambda: delta(nx.path_graph(3)), "list(graph.edges)"),
    "a view of networkx": (lambda: delta(nx.path_graph(3).edges), "list(edges)"),
    "a generator": (lambda: delta((n, n + 1) for n in range(3)), "list(edge_index_add)"),
    "a zip": (lambda: delta(zip([0], [1], strict=True)), "list(edge_index_add)"),
    "a set": (lambda: delta({(0, 1)}), "pass a list"),
    "names": (lambda: delta([["a"], ["b"]]), "node_ids"),
    "a large number": (lambda: delta([[2**40], [0]]), "x_add"),
    "NaN": (lambda: delta(np.array([[0, np.nan], [1, 2]])), ".long()"),
    "None": (lambda: delta([[0, None], [1, 2]]), "leave such entries out"),
    "ragged": (lambda: delta([[0, 1], [2]]), "one length"),
    "sparse": (lambda: delta(torch.eye(6).to_sparse()), "indices()"),
    "a graph": (lambda: delta(Data(edge_index=E)), "whole graph"),
    "a new node": (lambda: delta([[6], [0]]), "x_add"),
    "a type": (lambda: delta({("a", "to", "b"): ONE}), "leave the key out"),
    "no type": (lambda: delta(ONE, of="types"), "give a dict"),
    "a relation alone": (lambda: delta({"to": ONE}, of="types"), "(source, relation, target)"),
    "another type": (lambda: delta({("a", "likes", "b"): ONE}, of="types"), "call the model again"),
    "an unknown name": (lambda: delta([["a"], ["zz"]], of="names"), "node_ids"),
    "rows for names": (lambda: delta(ONE, of="names"), "inc.node_ids"),
    "no weight": (lambda: delta(ONE, of="weights"), "edge_weight_add"),
    "text as weight": (lambda: delta(ONE, edge_weight_add=["w"], of="weights"), "float()"),
    "new weights alone": (
        lambda: delta(edge_changes=(ONE, torch.ones(1)), of="weights"), "{'edge_weight': values}",
    ),
    "weights of another name": (
        lambda: delta(edge_changes=(ONE, {"weight": torch.ones(1)}), of="weights"), "edge inputs",
    ),
}  # fmt: skip
NODES = {
    "all of x": (lambda: delta(x_changes=X), "(ids, rows)"),
    "three parts": (lambda: delta(x_changes=(0, 1, X[:1])), "(ids, rows)"),
    "a dict": (lambda: delta(x_changes={0: X[0]}), "(ids, rows)"),
    "a mask": (lambda: delta(x_changes=(MASK, X[:1])), "nonzero()"),
    "names": (lambda: delta(x_changes=(["a"], X[:1])), "node_ids"),
    "text": (lambda: delta(x_changes=([0], [["a", "b", "c", "d"]])), "float()"),
    "ragged": (lambda: delta(x_changes=([0, 1], [[1.0, 2.0], [1.0]])), "one length"),
    "no row": (lambda: delta(x_changes=([0], None)), "leave such entries out"),
    "ids beside new rows": (lambda: delta(x_add=([6], X[:1])), "next numbers"),
    "a number of nodes": (lambda: delta(x_add=1), "[k, 4]"),
    "a sparse row": (lambda: delta(x_add=X[:1].to_sparse()), ".to_dense()"),
    "a table with names": (lambda: delta(x_add=FRAME), "node_ids"),
    "a mask to remove": (lambda: delta(nodes_del=MASK), "nonzero()"),
    "a name to remove": (lambda: delta(nodes_del="a"), "node_ids"),
    "a half node": (lambda: delta(nodes_del=[1.5]), ".long()"),
    "no type": (lambda: delta(nodes_del=[0], of="types"), "give a dict"),
    "another type": (lambda: delta(x_changes={"c": ([0], X[:1])}, of="types"), "expected one of"),
    "new ones without names": (lambda: delta(x_add=X[:1], of="names"), "node_ids=[...]"),
    "missing=True": (lambda: delta(nodes_del=[1], missing=True), "'ignore'"),
    "invalid='drop'": (lambda: delta(nodes_del=[1], invalid="drop"), "'skip'"),
    "a float as delta_id": (lambda: delta(nodes_del=[1], delta_id=1.5), "string or an integer"),
}
READING = {
    "out of range": (lambda: wrapped("plain").read([99]), "name nodes of the graph"),
    "negative": (lambda: wrapped("plain").read([-1]), "[0, 6)"),
    "a name": (lambda: wrapped("plain").read("a"), "node_ids"),
    "a short mask": (lambda: wrapped("plain").read(MASK[:2]), "shape [6]"),
    "flips": (lambda: updated().flips, "old=True"),
    "crossed": (lambda: updated().crossed(0.5), "old=True"),
    "nothing to call": (lambda: wrapped("plain").on_update("print"), "on_update(print)"),
    "forward": (lambda: wrapped("plain").forward, "inc.model.forward"),
    "expire without times": (lambda: wrapped("plain").expire(3), "edge_time=times"),
}
FILES = {
    "no folder": (lambda path: wrapped("plain").save(path / "no" / "s.pyginc"), "make it first"),
    "a folder": (lambda path: wrapped("plain").save(path), "name a file"),
    "load a folder": (lambda path: load(path, gcn()), "name the file"),
    "load swapped": (lambda path: load(gcn(), path), "load(path, model)"),
    "load a class": (lambda path: load(path, GCN), "GCN(...)"),
    "load into a wrapper": (lambda path: load(path, wrapped("plain")), "inc.model"),
    "an empty file": (lambda path: load(_file(path, b""), gcn()), "inc.save(path)"),
    "another file": (lambda path: load(_file(path, b"hello" * 9), gcn()), "inc.save(path)"),
}
STREAMS = {
    "a list": (lambda: Stream(wrapped("plain"), [{"src": 1, "dst": 2}]), "IterableSource"),
    "a file name": (lambda: Stream(wrapped("plain"), "events.jsonl"), "JsonLinesSource"),
    "no first call": (lambda: Stream(gcn(), IterableSource([])), "first="),
    "features alone": (lambda: Stream(gcn(), IterableSource([]), first=X), "inc(x, edge_index"),
    "fields in a dict": (lambda: stream(schema={"src": "a"}), "Schema(src="),
    "a kind that is none": (lambda: Schema(kind="op", kinds={"+": "add"}), "edge_add"),
    "alerts of nothing": (lambda: stream().on(print), "flipped=True"),
    "alerts to a name": (lambda: stream().on("alerts.jsonl", flipped=True), "JsonLines"),
    "an event without a field": (lambda: dead({"src": 1}), "no field 'dst'"),
    "an event of names": (lambda: dead({"src": "a", "dst": "b"}), "id of a node"),
    "an event as a pair": (lambda: dead((1, 2)), "fields by name"),
    "an event of nothing": (lambda: dead(None), "fields by name"),
    "an event of a new node": (lambda: dead({"src": 1, "dst": 999}), "6 nodes"),
}
EVALUATE = {
    "no edges": (lambda: evaluate(gcn(), {"x": X}), "inc(x, edge_index"),
    "another node": (lambda: evaluate(gcn(), {"x": X, "edge_index": E}, nodes=[99]), "that is"),
    "a wrapper": (lambda: evaluate(wrapped("plain"), {"x": X, "edge_index": E}), "inc.model"),
    "transposed": (lambda: evaluate(gcn(), {"x": X, "edge_index": E.t()}), "transpose"),
    "float64": (lambda: evaluate(gcn(), {"x": X.double(), "edge_index": E}), "x.float()"),
    "in training": (lambda: evaluate(gcn().train(), {"x": X, "edge_index": E}), "model.eval()"),
    "memory of words": (
        lambda: evaluate(gcn(), {"x": X, "edge_index": E}, memory="much"), "'4GB'",
    ),
}  # fmt: skip
ALL = {
    f"{table}, {name}": case
    for table, cases in {
        "wrapping": WRAPPING, "first call": FIRST, "before": BEFORE, "names": NAMES,
        "edges": EDGES, "nodes": NODES, "reading": READING, "streams": STREAMS,
        "evaluate": EVALUATE,
    }.items()
    for name, case in cases.items()
}  # fmt: skip


def _file(folder, content):
    (folder / "file").write_bytes(content)
    return folder / "file"


def answered(act, word):
    """The act raises a sentence of the package, which has the word, and changes nothing."""
    known = {kind: wrapped(kind) for kind in ("plain", "weights", "names", "types")}
    digests = {kind: inc.state_digest() for kind, inc in known.items()}
    errors = (IncrementalError, ValueError, TypeError, AttributeError, OSError)
    with pytest.raises(errors) as caught:
        act()
    message = str(caught.value)
    assert word in message, (word, message)
    assert len(message.split()) >= 5, f"a sentence, please: {message}"
    for inside in ("numpy.", "inhomogeneous", "__init__", "NoneType'", "c10"):
        assert inside not in message.replace("numpy.ndarray", ""), message
    frames = [f.filename for f in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1].startswith((PACKAGE, __file__)), (frames[-1], message)
    assert {kind: inc.state_digest() for kind, inc in known.items()} == digests


@pytest.mark.parametrize(("act", "word"), ALL.values(), ids=ALL)
def test_a_mistake_is_answered(act, word):
    answered(act, word)


@pytest.mark.parametrize(("act", "word"), FILES.values(), ids=FILES)
def test_a_mistake_with_files_is_answered(act, word, tmp_path):
    answered(lambda: act(tmp_path), word)


def test_there_are_more_than_a_hundred():
    assert len(ALL) + len(FILES) >= 150


def test_a_delta_still_says_what_it_takes():
    assert [*inspect.signature(GraphDelta).parameters][:2] == ["edge_index_add", "edge_index_del"]

"""The drop-in layers, also where PyG's conv accepts what no delta can follow."""

import copy
import pickle

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv

import pyg_incremental as pi
from tests.closeness import assert_close
from tests.oracle import full
from tests.strategies import DELTAS, generator, index, make_world
from tests.zoo import CHANNELS

# PyG says so whenever it is given a sparse adjacency that is not CSR.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

OUT = 4
ADD = index([(0, 3)])
LAYERS = {
    "gcn": lambda: (GCNConv(CHANNELS, OUT), pi.IncrementalGCNConv),
    "sage": lambda: (SAGEConv(CHANNELS, OUT), pi.IncrementalSAGEConv),
    "gin": lambda: (GINConv(torch.nn.Linear(CHANNELS, OUT)), pi.IncrementalGINConv),
    "gat": lambda: (GATConv(CHANNELS, OUT, heads=2), pi.IncrementalGATConv),
    "graph": lambda: (GraphConv(CHANNELS, OUT), pi.IncrementalGraphConv),
    "sage-pair": lambda: (SAGEConv((CHANNELS, 3), OUT), pi.IncrementalSAGEConv),
    "gat-pair": lambda: (GATConv((CHANNELS, 3), OUT, heads=2), pi.IncrementalGATConv),
}
SQUARE = [name for name in LAYERS if not name.endswith("-pair")]


def made(name):
    """The conv of PyG and its incremental version, with the same parameters."""
    torch.manual_seed(0)
    conv, layer = LAYERS[name]()
    conv = conv.double().eval()
    return conv, layer.from_conv(copy.deepcopy(conv)).eval()


def bipartite(name, world):
    width = 3 if name.endswith("-pair") else CHANNELS
    targets = torch.randn(7, width).double()
    edge_index = torch.stack([torch.arange(world.num_nodes), torch.arange(world.num_nodes) % 7])
    return (world.x, targets), edge_index


def sources_only(name, world):
    _, edge_index = bipartite(name, world)
    return (world.x, None), edge_index, (world.num_nodes, 7)


def static(name, world):
    return torch.randn(3, world.num_nodes, CHANNELS).double(), world.edge_index()


def sparse_coo(name, world):
    pairs = index(sorted(set(world.pairs())))
    weight = torch.ones(pairs.size(1)).double()
    size = (world.num_nodes, world.num_nodes)
    return world.x, torch.sparse_coo_tensor(pairs.flip(0), weight, size).coalesce()


INPUTS = {
    **{f"batch of {name}": (name, static) for name in ("gcn", "sage", "gin", "graph")},
    **{f"sparse COO for {name}": (name, sparse_coo) for name in SQUARE},
}


def call(conv, args):
    if len(args) == 3:
        return conv(*args[:2], size=args[2])
    return conv(*args)


@pytest.mark.parametrize("first", [False, True], ids=["at once", "after another graph"])
@pytest.mark.parametrize(("name", "make"), INPUTS.values(), ids=INPUTS)
def test_what_no_delta_can_follow_is_what_the_conv_returns(name, make, first):
    """Afterwards no delta may answer for the graph of an earlier call."""
    conv, layer = made(name)
    world = make_world(generator(0))
    if first and not name.endswith("-pair"):
        layer(world.x, world.edge_index())
        layer.apply_delta(edge_index_add=ADD)
    args = make(name, world)
    with torch.no_grad():
        wanted = call(conv, args)
        got = call(layer, args)
    assert torch.equal(got, wanted)
    with pytest.raises(pi.StaleStateError):
        layer.apply_delta(edge_index_add=ADD)
    if name.endswith("-pair"):
        return
    layer(world.x, world.edge_index())
    layer.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    assert_close(layer.incremental.out, full(conv, world))


OTHERS = {
    "GATv2Conv": {"heads": 2},
    "TransformerConv": {},
    "SGConv": {"K": 2},
    "ResGatedGraphConv": {},
    "LEConv": {},
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_conv_has_a_drop_in_version(name):
    torch.manual_seed(0)
    conv = getattr(gnn, name)(CHANNELS, OUT, **OTHERS[name]).double().eval()
    kind = getattr(pi, f"Incremental{name}")
    assert kind is getattr(pi, f"Incremental{name}")
    layer = kind.from_conv(copy.deepcopy(conv)).eval()
    assert isinstance(layer, type(conv))
    assert layer.state_dict().keys() == conv.state_dict().keys()
    world = make_world(generator(0))
    layer(world.x, world.edge_index())
    update = layer.apply_delta(edge_index_add=ADD)
    assert update.stats.mode == "incremental"
    world.apply(edge_index_add=ADD)
    assert_close(layer.incremental.out, full(conv, world))
    again = pickle.loads(pickle.dumps(layer))
    assert type(again) is kind


def test_there_is_no_drop_in_version_of_nothing():
    for name in ("IncrementalNoSuchConv", "IncrementalMessagePassing", "nothing"):
        with pytest.raises(AttributeError, match=name):
            getattr(pi, name)


@pytest.mark.parametrize("name", ["sage", "gat", "graph"])
def test_sources_without_targets(name):
    conv, layer = made(name)
    world = make_world(generator(0))
    args = sources_only(name, world)
    try:
        wanted = call(conv, args)
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        with pytest.raises(type(error)):
            call(layer, args)
        return
    assert torch.equal(call(layer, args), wanted)
    with pytest.raises(pi.StaleStateError):
        layer.apply_delta(edge_index_add=ADD)


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("first", [False, True], ids=["at once", "after another graph"])
def test_attention_weights_are_those_of_the_conv(first, positional):
    conv, layer = made("gat")
    world = make_world(generator(0))
    other = make_world(generator(1), nodes=9)
    if first:
        layer(other.x, other.edge_index())
    args = (world.x, world.edge_index())
    more, keywords = ((None, None, True), {}) if positional else ((), {})
    if not positional:
        keywords = {"return_attention_weights": True}
    with torch.no_grad():
        wanted, (edges, alpha) = conv(*args, *more, **keywords)
        got, (layer_edges, layer_alpha) = layer(*args, *more, **keywords)
    assert torch.equal(got, wanted)
    assert torch.equal(layer_edges, edges)
    assert torch.equal(layer_alpha, alpha)
    with pytest.raises(pi.StaleStateError):
        layer.apply_delta(edge_index_add=ADD)
    layer(*args)
    layer.apply_delta(edge_index_add=ADD)
    world.apply(edge_index_add=ADD)
    assert_close(layer.incremental.out, full(conv, world))


@pytest.mark.parametrize("name", SQUARE)
def test_a_layer_follows_and_is_copied(name):
    """A copy of a layer has its parameters and starts anew."""
    conv, layer = made(name)
    world = make_world(generator(0))
    assert_close(layer(world.x, world.edge_index()), full(conv, world))
    rng = generator(1)
    for kind in ("mixed", "delete_edges", "new_nodes_with_edges"):
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        layer.apply_delta(**delta)
        assert_close(layer.incremental.out, full(conv, world))
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(again) is type(layer)
        with pytest.raises(pi.StaleStateError):
            again.apply_delta(edge_index_add=ADD)
        assert_close(again(world.x, world.edge_index()), full(conv, world))

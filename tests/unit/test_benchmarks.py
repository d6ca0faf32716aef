"""Every program that the benchmarks compare is exact, so that they compare like with like."""

import importlib.util

import pytest
import torch

from benchmarks.models import MODELS, build
from benchmarks.peers import PEERS, Skipped, full_pass
from benchmarks.peers.changes import merged
from pyg_incremental import GraphDelta
from tests.closeness import assert_close

pytestmark = pytest.mark.unmeasured

NODES, EDGES, CHANNELS, DELTAS = 40, 160, 6, 12


def a_graph(generator):
    """Features and edges without self-loops; some nodes have no in-edge."""
    pairs = torch.randperm(NODES * (NODES - 4), generator=generator)
    edges = torch.stack([pairs % NODES, pairs // NODES])
    edges = edges[:, edges[0] != edges[1]][:, :EDGES]
    return torch.randn(NODES, CHANNELS, generator=generator), edges


def a_delta(edges, generator):
    """A delta of mixed changes, and the edges after it."""
    order = torch.randperm(edges.size(1), generator=generator)
    gone, kept = edges[:, order[:6]], edges[:, order[6:]]
    drawn = torch.randint(NODES, (2, 7), generator=generator)
    came = drawn[:, drawn[0] != drawn[1]]
    ids = torch.randperm(NODES, generator=generator)[:3]
    rows = torch.randn(3, CHANNELS, generator=generator)
    # one of the nodes that change loses all of its in-edges
    left = kept[1] == ids[0]
    gone, kept = torch.cat([gone, kept[:, left]], 1), kept[:, ~left]
    return GraphDelta(came, gone, (ids, rows)), torch.cat([kept, came], 1)


def parts(delta):
    """A delta of each kind alone."""
    yield GraphDelta(edge_index_add=delta.edge_index_add)
    yield GraphDelta(edge_index_del=delta.edge_index_del)
    yield GraphDelta(x_changes=delta.x_changes)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


LINEAR = {"gcn", "sage", "gin", "graphconv"}
SERVED = {peer: set(MODELS) for peer in PEERS} | {
    "rc-products-first": LINEAR,
    "ripple": LINEAR,
    "ripple-products-first": LINEAR,
    "inkstream": {"sage-max"},
    "neutronrt": {"gat"},
}
COMPILED = {"full-sparse-tensor", "neighbor-loader"}
PAIRS = [(peer, model) for peer in PEERS for model in MODELS]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("peer", "model"),
    [
        pytest.param(peer, model, marks=[pytest.mark.sparse] if peer in COMPILED else [])
        for peer, model in PAIRS
        if model in SERVED[peer]
    ],
)
def test_a_peer_is_exact(peer, model, layers, seed):
    generator = torch.Generator().manual_seed(seed)
    net = build(model, CHANNELS, 8, 4, layers, seed)
    program = PEERS[peer](net)
    x, edges = a_graph(generator)
    given = x.clone(), edges.clone()
    program.bootstrap(x, edges)
    assert_close(program.output(), net(x, edges))
    assert torch.equal(x, given[0])
    assert torch.equal(edges, given[1])

    x = x.clone()
    for turn in range(DELTAS):
        delta, after = a_delta(edges, generator)
        for part in parts(delta) if turn % 2 else [delta]:
            program.apply(part)
        x[delta.x_changes[0]], edges = delta.x_changes[1], after
        assert_close(program.output(), net(x, edges))


@pytest.mark.parametrize(
    ("peer", "model"), [(peer, model) for peer, model in PAIRS if model not in SERVED[peer]]
)
def test_a_peer_says_what_it_cannot_serve(peer, model):
    with pytest.raises(Skipped, match=r"only|before"):
        PEERS[peer](build(model, CHANNELS, 8, 4, 2))


@pytest.mark.parametrize("peer", sorted(COMPILED))
@pytest.mark.skipif(importlib.util.find_spec("torch_sparse") is not None, reason="it is installed")
def test_a_peer_says_what_it_lacks(peer):
    with pytest.raises(Skipped, match="torch_sparse is"):
        PEERS[peer](build("sage", CHANNELS, 8, 4, 2))


def test_a_full_pass_is_refused_where_there_is_no_room(monkeypatch):
    monkeypatch.setattr(full_pass, "available_memory", lambda: 1024.0)
    for peer in ("full-coo", "full-edge-index", "k-hop"):
        with pytest.raises(Skipped, match="a full pass needs up to"):
            PEERS[peer](build("sage", CHANNELS, 8, 4, 2)).bootstrap(*a_graph(torch.Generator()))


def test_merged_deltas_have_the_same_effect(seed):
    generator = torch.Generator().manual_seed(seed)
    x, edges = a_graph(generator)
    deltas, after = [], edges
    for _ in range(4):
        delta, after = a_delta(after, generator)
        deltas.append(delta)
    net = build("sage", CHANNELS, 8, 4, 2, seed)
    one, many = PEERS["rc"](net), PEERS["rc"](net)
    one.bootstrap(x, edges)
    many.bootstrap(x, edges)
    one.apply(merged(deltas))
    for delta in deltas:
        many.apply(delta)
    assert_close(one.output(), many.output())

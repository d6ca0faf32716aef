"""Deltas on ranks: who hands them in, what they cost, and what is refused."""

import copy
import inspect
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    GCN,
    GATConv,
    GCNConv,
    GraphSAGE,
    HeteroConv,
    HypergraphConv,
    SAGEConv,
    SignedConv,
)

from pyg_incremental import (
    GraphDelta,
    IncrementalModel,
    InvalidDeltaError,
    UnsupportedModelError,
    to_incremental,
)
from pyg_incremental.distributed import DistributedIncrementalModel
from pyg_incremental.session import outputs
from tests.closeness import assert_close, tensors_of
from tests.distributed.runs import ADD, ARGS, BAD, MODEL, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks
from tests.hetero_strategies import FOLLOWS, RATES
from tests.side_by_side import clone
from tests.zoo import CHANNELS
from tests.zoo_hypergraph import GraphAndHypergraph


def test_up_names_this_rank_s_rows_and_gather_all():
    single = to_incremental(copy.deepcopy(MODEL))
    single(*ARGS)
    want = single.apply_delta(ADD)

    def work(inc):
        up = inc.apply_delta(ADD if inc.rank == 0 else None)
        assert set(up.changed.tolist()) <= set(inc.nodes.tolist())
        place = torch.searchsorted(inc.nodes, up.changed)
        assert torch.equal(up.out, inc.out[place])
        assert up.version == inc.version == 1
        return up.changed

    got = on_ranks(3, work)
    assert sorted(torch.cat(got).tolist()) == want.changed.tolist()


@pytest.mark.parametrize("ranks", [1, 2])
def test_up_holds_rows_where_so_many_changed_that_one_process_copies_them_late(ranks, monkeypatch):
    monkeypatch.setattr(outputs, "MANY", 0)
    rows = torch.randn_like(ARGS[0])

    def work(inc):
        up = inc.apply_delta(x_changes=(torch.arange(len(rows)), rows) if inc.rank == 0 else None)
        assert type(up.out) is torch.Tensor
        assert torch.equal(up.out, inc.out[torch.searchsorted(inc.nodes, up.changed)])
        return len(up.changed)

    assert sum(on_ranks(ranks, work)) > 0


@pytest.mark.parametrize("conv", [SAGEConv, GCNConv], ids=lambda c: c.__name__)
def test_edges_outgrow_their_slots_after_nodes_have_come(conv):
    """Rows that an exchange shares with its input move then, and are shared again."""
    torch.manual_seed(0)
    nodes, model = 300, conv(3, 8).double().eval()
    x, edges = torch.randn(nodes, 3).double(), torch.randint(nodes, (2, 3 * nodes))
    more, rows = torch.randn(3, 3).double(), torch.randn(9, 3).double()
    added = torch.randint(nodes, (2, 1500))

    def work(comm):
        inc = DistributedIncrementalModel(model, comm, compile_after=1)
        inc(x, edges)
        inc.apply_delta(x_add=more if inc.rank == 0 else more[:0])
        here = inc.rank == 0
        inc.apply_delta(
            added if here else None, x_changes=(torch.arange(9), rows) if here else None
        )
        return inc.verify()

    for ranks in (1, 2):
        assert max(all_well(run_ranks(ranks, work))) < 1e-12


def test_old_rows_and_what_needs_one_process_are_refused():
    def work(inc):
        before = inc.version
        with pytest.raises(UnsupportedModelError, match="OLD rows"):
            inc.apply_delta(ADD if inc.rank == 0 else None, old=True)
        with pytest.raises(UnsupportedModelError, match="oldest"):
            inc.apply_delta(edge_index_del=ARGS[1][:, :1], which="oldest")
        with pytest.raises(UnsupportedModelError, match="edge_data_del"):
            inc.apply_delta(edge_index_del=ARGS[1][:, :1], edge_data_del={"edge_weight": [1.0]})
        with pytest.raises(UnsupportedModelError, match="as a whole"):
            inc.apply_delta(edge_index_add=ARGS[1][:, :1], invalid="skip")
        with pytest.raises(UnsupportedModelError, match="inverse"):
            inc.preview(ADD)
        with pytest.raises(UnsupportedModelError, match="ids stay"):
            inc.compact()
        assert inc.version == before
        return inc.apply_delta(ADD if inc.rank == 0 else None).version

    assert on_ranks(2, work) == [1, 1]


def test_names_of_nodes_and_edges_are_refused_on_all_ranks():
    def work(inc):
        by_name = {"edge_index_add": [["a"], ["b"]], "node_ids": ["z"], "x_add": ARGS[0][:1]}
        with pytest.raises(UnsupportedModelError, match="rows that follow"):
            inc.apply_delta(**by_name if inc.rank == 0 else {})
        with pytest.raises(UnsupportedModelError, match="name both ends of the edge"):
            inc.apply_delta(**{"edge_ids_del": [3]} if inc.rank == 1 else {})
        with pytest.raises(UnsupportedModelError, match="integers, and no names"):
            inc.apply_delta(edge_index_add=ARGS[1][:, :1], edge_ids_add=["first"])
        names = [f"n{i}" for i in range(len(ARGS[0]))]
        with pytest.raises(UnsupportedModelError, match="rows that follow"):
            inc(*ARGS, node_ids=names)
        with pytest.raises(UnsupportedModelError, match="integers, and no names"):
            inc(*ARGS, edge_ids=[str(i) for i in range(ARGS[1].shape[1])])
        return inc.apply_delta(ADD if inc.rank == 0 else None).version

    assert on_ranks(2, work) == [1, 1]


def test_a_refresh_names_what_it_has_moved():
    def work(inc):
        inc.apply_delta(ADD if inc.rank == 0 else None)
        inc.refresh()
        up = inc.refresh()
        assert up.version == inc.version == 1
        assert up.changed.numel() == 0
        was = inc.out.clone()
        bias = next(p for p in inc.model.parameters() if p.dim() == 1)
        with torch.no_grad():
            bias += 1.0
        up = inc.refresh()
        rows = (was != inc.out).any(1)
        assert torch.equal(up.changed, inc.nodes[rows])
        assert torch.equal(up.out, inc.out[rows])
        assert inc.refresh([0, 1]).stats.mode == "incremental"
        return up.changed.numel()

    assert sum(on_ranks(2, work)) > 0


def test_nothing_costs_one_small_collective():
    def work(inc):
        up = inc.apply_delta()
        assert up.changed.numel() == 0
        assert up.out.shape == (0, 3)
        again = inc.apply_delta(ADD if inc.rank == 0 else None)
        return up.stats, again.stats

    for nothing, something in on_ranks(2, work):
        assert nothing.rounds == 1
        assert nothing.bytes_sent == nothing.bytes_received == 0
        # The parts, who asks for what, and one round for each of two aggregations.
        assert something.rounds == 4
        assert len(something.exchanges) == 2
        assert "rounds" in str(something)
        assert something.seconds_computing > 0


def test_only_changed_boundary_rows_are_sent():
    """One feature row changes: it goes once to every rank that holds a ghost of its node."""
    _, edge_index = ARGS
    owner = torch.arange(60) % 3
    node = int(edge_index[0, 0])
    delta = GraphDelta(x_changes=([node], torch.ones(1, 6, dtype=torch.float64)))

    def work(inc):
        return inc.apply_delta(delta if inc.rank == 0 else None).stats.exchanges

    traffic = on_ranks(3, work, partition_by=owner)
    targets = edge_index[1][edge_index[0] == node]
    holders = set(owner[targets].tolist()) - {int(owner[node])}
    first = [t[0] for t in traffic]
    assert sum(t.rows_sent for t in first) == len(holders) == sum(t.rows_received for t in first)
    assert first[0].row_bytes == 8 * 8 + 4
    assert sum(t.bytes_sent for t in first) == len(holders) * first[0].row_bytes
    # The second hop: rows that changed in the first, each once for every rank that holds it.
    touched = torch.cat([targets, torch.tensor([node])]).unique()
    pairs = {
        (int(u), int(owner[v]))
        for u, v in edge_index.t().tolist()
        if u in touched and owner[u] != owner[v]
    }
    assert sum(t[1].rows_sent for t in traffic) <= len(pairs)


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (BAD, "node id 99"),
        (GraphDelta(edge_index_del=[[1], [1]]), r"edge \(1, 1\) at position 0"),
        (GraphDelta(edge_index_add=[[1], [77]]), r"edge 0 is \(1, 77\)"),
        (GraphDelta(edge_changes=([[0], [0]], {"edge_weight": [1.0]})), "no edge input"),
        (GraphDelta(missing="perhaps"), "missing"),
        (GraphDelta(x_add=[[1.0]]), "x_add"),
        (GraphDelta(x_add=np.ones((1, 6)), edge_index_del=[[1], [1]]), r"edge \(1, 1\)"),
        (GraphDelta(x_add=np.ones((1, 6)), nodes_del=[80]), "nodes_del"),
    ],
)
def test_a_mistake_on_one_rank_is_an_error_on_all(culprit, bad, message):
    def work(inc):
        before = inc.out.clone()
        with pytest.raises(InvalidDeltaError, match=message) as raised:
            inc.apply_delta(bad if inc.rank == culprit else ADD)
        assert torch.equal(inc.out, before)
        assert inc.stale is None
        assert inc.version == 0
        inc.apply_delta(ADD if inc.rank == culprit else None)
        assert inc.verify() < 1e-9
        return str(raised.value)

    assert len(set(on_ranks(2, work))) == 1


def test_whatever_reading_raises_on_one_rank_all_ranks_raise():
    def work(inc):
        reader = inc._part.reader
        if inc.rank == 1:
            reader.read = lambda *_: 1 / 0
        with pytest.raises(ZeroDivisionError):
            inc.apply_delta(ADD)
        if inc.rank == 1:
            del reader.read
        inc.apply_delta(ADD if inc.rank else None)
        assert inc.verify() < 1e-9

    on_ranks(3, work)


def test_new_nodes_of_one_rank_are_named_by_another_in_the_same_delta():
    rows = torch.eye(6, dtype=torch.float64)
    parts = [
        GraphDelta(x_changes=([60, 3], rows[:2]), edge_index_del=ARGS[1][:, :2]),
        GraphDelta(x_add=rows[2:4], edge_index_add=[[61], [5]]),
        None,
    ]
    whole = GraphDelta(
        x_add=rows[2:4], edge_index_add=[[61], [5]],
        x_changes=([60, 3], rows[:2]), edge_index_del=ARGS[1][:, :2],
    )  # fmt: skip

    def work(inc):
        up = inc.apply_delta(parts[inc.rank])
        assert up.stats.rounds == 6  # new nodes are counted, and then placed
        return inc.gather_out()

    for out in on_ranks(3, work):
        assert torch.allclose(out, expected(whole), atol=1e-12)


def test_an_absent_edge_is_named_as_in_one_process():
    _, edge_index = ARGS
    gone = torch.cat([edge_index[:, :3], torch.tensor([[1, 1], [1, 1]]), edge_index[:, 4:6]], 1)
    single = to_incremental(copy.deepcopy(MODEL))
    single(*ARGS)
    with pytest.raises(InvalidDeltaError) as want:
        single.apply_delta(edge_index_del=gone)

    def work(inc):
        with pytest.raises(InvalidDeltaError) as got:
            inc.apply_delta(edge_index_del=gone if inc.rank == 1 else None)
        if inc.rank == 1:
            inc.apply_delta(edge_index_del=gone, missing="ignore")
        else:
            inc.apply_delta()
        return str(got.value), inc.verify()

    for said, gap in on_ranks(3, work):
        assert said == str(want.value)
        assert gap < 1e-9


def test_an_absent_edge_may_start_at_a_node_that_becomes_a_ghost():
    """The rank that looks for it learns of that node in the same delta."""
    edge_index = ARGS[1][:, ARGS[1][0] != 7]
    owner = (torch.arange(60) != 7).long()  # no other rank knows of node 7
    delta = GraphDelta(edge_index_add=[[7], [5]], edge_index_del=[[7], [6]], missing="ignore")

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        inc(ARGS[0], edge_index, partition_by=owner)
        with pytest.raises(InvalidDeltaError, match=r"edge \(7, 6\) at position 0"):
            inc.apply_delta(replace(delta, missing="error") if comm.rank else None)
        inc.apply_delta(delta if comm.rank else None)
        return inc.verify()

    assert max(all_well(run_ranks(2, work))) < 1e-9


def test_parts_have_to_agree_on_missing_edges():
    def work(inc):
        with pytest.raises(InvalidDeltaError, match="the ranks differ"):
            inc.apply_delta(edge_index_del=[[1], [1]], missing="ignore" if inc.rank else "error")

    on_ranks(2, work)


def test_parts_count_as_one_delta_in_the_order_of_the_ranks():
    rows = torch.eye(6, dtype=torch.float64)
    parts = [
        GraphDelta(x_add=rows[:1], edge_index_add=[[61], [0]], x_changes=([4], rows[1:2])),
        GraphDelta(x_add=rows[2:4], edge_index_add=[[60], [62]], x_changes=([4, 60], rows[4:6])),
    ]
    whole = GraphDelta(
        x_add=rows[[0, 2, 3]],
        edge_index_add=torch.tensor([[61, 60], [0, 62]]),
        x_changes=([4, 4, 60], rows[[1, 4, 5]]),
    )

    def work(inc):
        inc.apply_delta(parts[inc.rank])
        assert inc.num_nodes == 63
        return inc.gather_out()

    for out in on_ranks(2, work):
        assert torch.allclose(out, expected(whole), atol=1e-12)


def test_the_signature_is_that_of_one_process_and_gather():
    want = dict(inspect.signature(IncrementalModel.apply_delta).parameters)
    got = dict(inspect.signature(DistributedIncrementalModel.apply_delta).parameters)
    assert got.pop("gather").kind is inspect.Parameter.KEYWORD_ONLY
    assert got.pop("delta_id").default is None
    want.pop("delta_id", None)
    assert list(got.values()) == list(want.values())

    def work(inc):
        with pytest.raises(InvalidDeltaError, match="no field 'edges_add'"):
            inc.apply_delta(**({"edges_add": 3} if inc.rank else {}))
        inc.apply_delta(ADD.edge_index_add if inc.rank else None)
        return inc.verify()

    assert max(on_ranks(2, work)) < 1e-9


def test_edges_and_digests_are_read():
    torch.manual_seed(0)
    model = GCN(6, 8, 2, 3).double().eval()
    x, edge_index = ARGS
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64)
    bad = GraphDelta(edge_index_del=[[1], [1]])

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(x, edge_index, edge_weight=weight, partition_by="hash")
        at = torch.isin(edge_index[1], inc.nodes)
        assert torch.equal(inc.edge_index, edge_index[:, at])
        assert torch.equal(inc.edge_data("edge_weight"), weight[at])
        with pytest.raises(KeyError, match=r"no edge input 'w' \(edge inputs: \['edge_weight'\]"):
            inc.edge_data("w")
        before = inc.state_digest()
        with pytest.raises(InvalidDeltaError):
            inc.apply_delta(bad if comm.rank else None)
        assert inc.state_digest() == before
        back = inc.inverse(GraphDelta(x_changes=([3], x[:1])) if comm.rank else None)
        with pytest.raises(InvalidDeltaError, match=r"edge \(1, 1\)"):
            inc.inverse(bad if comm.rank == 0 else None)
        assert inc.state_digest() == before
        inc.apply_delta(**({"x_changes": ([3], x[:1])} if comm.rank else {}))
        after = inc.state_digest()
        inc.apply_delta(back)
        assert torch.allclose(inc.x, x[inc.nodes])
        return before, after

    (before, after), *others = all_well(run_ranks(3, work))
    assert before != after
    assert others == [(before, after)] * 2


class OverHeteroData(torch.nn.Module):
    """Takes a `HeteroData` object, and has two outputs of one kind."""

    def __init__(self):
        super().__init__()
        self.conv = HeteroConv({RATES: SAGEConv((5, 3), 4), FOLLOWS: GATConv(5, 4)})

    def forward(self, data):
        out = self.conv(data.x_dict, data.edge_index_dict)
        return out["user"], out["item"], out["user"].relu()


def hetero_call():
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(20, 5).double(), torch.randn(9, 3).double()
    data[RATES].edge_index = torch.stack([torch.randint(20, (50,)), torch.randint(9, (50,))])
    data[FOLLOWS].edge_index = torch.randint(20, (2, 50))
    edges = data[FOLLOWS].edge_index[:, :2]
    deltas = [
        GraphDelta(edge_index_del={FOLLOWS: edges}, nodes_del={"item": [2]}),
        GraphDelta(x_add={"user": data["user"].x[:1]}, edge_index_add={RATES: [[20], [0]]}),
    ]
    return OverHeteroData(), (data,), {}, deltas


def signed_call():
    x, pairs = torch.randn(20, 5).double(), torch.randint(20, (4, 60))
    deltas = [
        GraphDelta(edge_index_add={"neg_edge_index": [[3], [4]]}, x_changes=([1], x[:1])),
        GraphDelta(edge_index_del={"pos_edge_index": pairs[:2, :3]}, nodes_del=[6]),
    ]
    return SignedConv(5, 4, True), (x, pairs[:2], pairs[2:]), {}, deltas


def hypergraph_call():
    """There can be no more hyperedges than the call says."""
    x, members = torch.randn(20, 5).double(), torch.randint(9, (2, 50))
    deltas = [
        GraphDelta(edge_index_add=[[19], [11]], nodes_del={"hyperedge": [2]}),
        GraphDelta(x_add=x[:2], edge_index_add=torch.tensor([[20, 21], [0, 10]])),
    ]
    return HypergraphConv(5, 4), (x, members), {"num_edges": 12}, deltas


def both_call():
    x, members, edges = torch.randn(20, CHANNELS).double(), *torch.randint(20, (2, 2, 50))
    deltas = [
        GraphDelta(edge_index_add={"hyperedge_index": [[19], [22]], "edge_index": [[0], [1]]}),
        GraphDelta(nodes_del={"x": [3], "hyperedge": [1]}, x_changes=([5], x[:1])),
    ]
    return GraphAndHypergraph(), (x, edges, members), {}, deltas


@pytest.mark.parametrize("make", [hetero_call, signed_call, hypergraph_call, both_call])
def test_other_ways_to_call_a_model(make):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns of types that are no target
        model, args, kwargs, deltas = make()
    model = model.double().eval()
    single = to_incremental(copy.deepcopy(model))
    single(*args, **kwargs)
    want = [(single.apply_delta(delta).changed, clone(single.out)) for delta in deltas]

    def work(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(*args, **kwargs, partition_by="hash")
        for i, delta in enumerate(deltas):
            up = inc.apply_delta(delta if comm.rank == i else None, gather=True)
            changed, out = want[i]
            for a, b in zip(tensors_of(up.changed), tensors_of(changed), strict=True):
                assert torch.equal(a, b)
            assert_close(inc.gather_out(), out)
        if make is hypergraph_call:
            with pytest.raises(InvalidDeltaError, match="num_edges=12; call it again"):
                inc.apply_delta(edge_index_add=[[0], [12]] if comm.rank else None)

    all_well(run_ranks(3, work))


def test_ghosts_of_float32_models_whose_moments_are_kept_in_float64():
    """The compiled plan took the rows that another rank had sent for rows of float32."""
    torch.manual_seed(0)
    model = GraphSAGE(3, 4, 1, 2, aggr="std").eval()
    x, edges = torch.randn(6, 3), torch.randint(6, (2, 30))

    def work(comm):
        inc = DistributedIncrementalModel(model, comm, compile_after=1)
        inc(x, edges, partition_by=torch.arange(6) % comm.size)
        for node in (0, 1, 2, 3):
            changes = ([node], torch.full((1, 3), 1.0 + node))
            inc.apply_delta(x_changes=changes, edge_index_add=[[node], [node]])
        return inc.verify()

    assert max(all_well(run_ranks(2, work))) < 1e-4

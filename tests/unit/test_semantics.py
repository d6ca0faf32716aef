"""What a delta means, spelled out by hand; the package and the oracle are both held to it."""

import pytest
import torch
from torch_geometric.nn import GraphConv

from pyg_incremental import GraphDelta, to_incremental
from tests.oracle import World

# Edges are written as (source, target, weight).
START = [(0, 1, 1.0), (1, 2, 2.0), (0, 1, 3.0), (2, 2, 4.0)]


class Package:
    """The graph as the package keeps it."""

    def __init__(self, edges):
        index, weight = parts(edges)
        torch.manual_seed(0)
        self.inc = to_incremental(GraphConv(2, 2).double().eval())
        self.inc(features(4), index, weight)

    def apply(self, **delta):
        self.inc.apply_delta(**delta)

    def edges(self):
        pairs = self.inc.graph.to_edge_index().t().tolist()
        weights = self.inc.edge_data("edge_weight").tolist()
        return [(u, v, w) for (u, v), w in zip(pairs, weights, strict=True)]

    def x(self):
        return self.inc.x.clone()


class Oracle:
    """The graph as the oracle keeps it."""

    def __init__(self, edges):
        index, weight = parts(edges)
        self.world = World(features(4), index.t().tolist(), {"edge_weight": weight})

    def apply(self, **delta):
        self.world.apply(**delta)

    def edges(self):
        return [(*edge["pair"], edge["edge_weight"].item()) for edge in self.world.edges]

    def x(self):
        return self.world.x


def features(nodes):
    return torch.arange(1.0, 2 * nodes + 1).double().view(nodes, 2)


def parts(edges):
    index = torch.tensor([edge[:2] for edge in edges]).t()
    return index, torch.tensor([edge[2] for edge in edges]).double()


def pairs(*listed):
    return torch.tensor(listed).t()


def weights(*listed):
    return torch.tensor(listed).double()


@pytest.fixture(params=[Package, Oracle])
def graph(request):
    return request.param(START)


def test_start(graph):
    assert graph.edges() == START


def test_deletion_takes_the_most_recent_occurrence(graph):
    graph.apply(edge_index_del=pairs((0, 1)))
    assert graph.edges() == [(0, 1, 1.0), (1, 2, 2.0), (2, 2, 4.0)]
    graph.apply(edge_index_del=pairs((0, 1)))
    assert graph.edges() == [(1, 2, 2.0), (2, 2, 4.0)]


def test_a_pair_listed_twice_loses_two(graph):
    graph.apply(edge_index_del=pairs((0, 1), (0, 1)))
    assert graph.edges() == [(1, 2, 2.0), (2, 2, 4.0)]


def test_added_edges_go_to_the_end(graph):
    graph.apply(edge_index_add=pairs((3, 0), (0, 1)), edge_weight_add=weights(5, 6))
    assert graph.edges() == [*START, (3, 0, 5.0), (0, 1, 6.0)]


def test_deletions_see_only_edges_of_before(graph):
    """Both (0, 1) of before leave, the new one stays."""
    graph.apply(
        edge_index_del=pairs((0, 1), (0, 1)),
        edge_index_add=pairs((0, 1)),
        edge_weight_add=weights(7),
    )
    assert graph.edges() == [(1, 2, 2.0), (2, 2, 4.0), (0, 1, 7.0)]


def test_change_takes_the_most_recent_occurrence(graph):
    graph.apply(edge_changes=(pairs((0, 1)), {"edge_weight": weights(9)}))
    assert graph.edges() == [(0, 1, 1.0), (1, 2, 2.0), (0, 1, 9.0), (2, 2, 4.0)]


def test_change_after_deletion_takes_the_one_that_is_left(graph):
    graph.apply(
        edge_index_del=pairs((0, 1)),
        edge_changes=(pairs((0, 1)), {"edge_weight": weights(9)}),
    )
    assert graph.edges() == [(0, 1, 9.0), (1, 2, 2.0), (2, 2, 4.0)]


def test_change_takes_an_edge_of_the_same_delta(graph):
    graph.apply(
        edge_index_add=pairs((0, 1), (3, 3)),
        edge_weight_add=weights(5, 6),
        edge_changes=(pairs((3, 3), (0, 1)), {"edge_weight": weights(7, 8)}),
    )
    assert graph.edges() == [*START, (0, 1, 8.0), (3, 3, 7.0)]


def test_change_listed_twice_the_last_counts(graph):
    graph.apply(edge_changes=(pairs((1, 2), (1, 2)), {"edge_weight": weights(8, 9)}))
    assert graph.edges()[1] == (1, 2, 9.0)


def test_feature_changes_the_last_row_counts(graph):
    rows = torch.tensor([[7.0, 7.0], [8.0, 8.0], [9.0, 9.0]]).double()
    graph.apply(x_changes=(torch.tensor([1, 3, 1]), rows))
    assert graph.x().tolist() == [[1, 2], [9, 9], [5, 6], [8, 8]]


def test_new_nodes_come_first(graph):
    """Edges, features and removals of the same delta may name them."""
    graph.apply(
        x_add=torch.ones(2, 2).double(),
        edge_index_add=pairs((4, 5), (5, 0)),
        edge_weight_add=weights(5, 6),
        x_changes=(torch.tensor([4]), weights(3, 3).view(1, 2)),
    )
    assert graph.x()[4:].tolist() == [[3, 3], [1, 1]]
    assert graph.edges() == [*START, (4, 5, 5.0), (5, 0, 6.0)]


def test_removals_come_last(graph):
    """Edges and features that the same delta gives to a removed node go with it."""
    graph.apply(
        edge_index_add=pairs((2, 3), (3, 0)),
        edge_weight_add=weights(5, 6),
        x_changes=(torch.tensor([2, 3]), torch.ones(2, 2).double()),
        edge_changes=(pairs((1, 2)), {"edge_weight": weights(9)}),
        nodes_del=torch.tensor([2]),
    )
    assert graph.edges() == [(0, 1, 1.0), (0, 1, 3.0), (3, 0, 6.0)]
    assert graph.x().tolist() == [[1, 2], [3, 4], [0, 0], [1, 1]]


def test_a_removed_node_keeps_its_id(graph):
    graph.apply(nodes_del=torch.tensor([1]))
    assert graph.edges() == [(2, 2, 4.0)]
    assert graph.x().tolist() == [[1, 2], [0, 0], [5, 6], [7, 8]]
    graph.apply(edge_index_add=pairs((1, 0)), edge_weight_add=weights(5))
    assert graph.edges() == [(2, 2, 4.0), (1, 0, 5.0)]


def test_a_node_removed_twice_and_a_new_one_removed_at_once(graph):
    graph.apply(
        x_add=torch.ones(1, 2).double(),
        edge_index_add=pairs((4, 0)),
        edge_weight_add=weights(5),
        nodes_del=torch.tensor([0, 4, 0]),
    )
    assert graph.edges() == [(1, 2, 2.0), (2, 2, 4.0)]
    assert graph.x().tolist() == [[0, 0], [3, 4], [5, 6], [7, 8], [0, 0]]


def test_undirected_takes_both_directions_and_a_loop_once(graph):
    graph.apply(
        edge_index_add=pairs((1, 3), (3, 3), (2, 0)),
        edge_weight_add=weights(5, 6, 7),
        undirected=True,
    )
    added = [(1, 3, 5.0), (3, 3, 6.0), (2, 0, 7.0), (3, 1, 5.0), (0, 2, 7.0)]
    assert graph.edges() == START + added
    graph.apply(
        edge_index_del=pairs((2, 2), (3, 1)),
        edge_changes=(pairs((0, 2)), {"edge_weight": weights(9)}),
        undirected=True,
    )
    kept = [(0, 1, 1.0), (1, 2, 2.0), (0, 1, 3.0)]
    assert graph.edges() == [*kept, (3, 3, 6.0), (2, 0, 9.0), (0, 2, 9.0)]


def test_missing_edges_are_skipped_when_asked(graph):
    graph.apply(
        edge_index_del=pairs((3, 0), (1, 2), (1, 2)),
        edge_changes=(pairs((1, 2), (2, 2)), {"edge_weight": weights(8, 9)}),
        missing="ignore",
    )
    assert graph.edges() == [(0, 1, 1.0), (0, 1, 3.0), (2, 2, 9.0)]


def test_missing_in_one_direction_only(graph):
    graph.apply(edge_index_del=pairs((1, 0)), undirected=True, missing="ignore")
    assert graph.edges() == [(0, 1, 1.0), (1, 2, 2.0), (2, 2, 4.0)]


def test_a_delta_object_says_the_same():
    one, two = Package(START), Package(START)
    delta = {
        "edge_index_add": pairs((3, 0)),
        "edge_weight_add": weights(5),
        "edge_index_del": pairs((0, 1)),
        "undirected": True,
        "missing": "ignore",
    }
    one.apply(**delta)
    two.inc.apply_delta(GraphDelta(**delta))
    assert one.edges() == two.edges()
    assert torch.equal(one.inc.out, two.inc.out)


def test_a_delta_object_is_frozen():
    delta = GraphDelta(edge_index_add=pairs((0, 1)))
    with pytest.raises(AttributeError):
        delta.undirected = True
    assert "edge_index_add" in repr(delta)


def test_coalesce_keeps_the_last():
    rows = torch.arange(6.0).double().view(3, 2)
    delta = GraphDelta(
        x_changes=(torch.tensor([1, 3, 1]), rows),
        edge_changes=(pairs((0, 1), (1, 2), (0, 1)), {"edge_weight": weights(5, 6, 7)}),
        nodes_del=torch.tensor([3, 3]),
    ).coalesce()
    ids, kept = delta.x_changes
    assert dict(zip(ids.tolist(), kept.tolist(), strict=True)) == {1: [4, 5], 3: [2, 3]}
    index, data = delta.edge_changes
    changed = zip(map(tuple, index.t().tolist()), data["edge_weight"].tolist(), strict=True)
    assert dict(changed) == {(0, 1): 7.0, (1, 2): 6.0}
    assert torch.as_tensor(delta.nodes_del).tolist() == [3]

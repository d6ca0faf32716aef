"""What is tried on ranks: cases of the zoo, and a small graph."""

import torch
from torch_geometric.nn import LINKX, GraphSAGE, LightGCN, SAGEConv, SortAggregation

from tests.distributed.journey import Bare, HeteroJourney, HyperJourney, Journey, Learned
from tests.oracle import call_plain
from tests.zoo import CHANNELS, WEIGHT, Case
from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_hetero import GRAPH_CASES, HETERO_CASES, PAIR_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_hypergraph import HYPER_CASES
from tests.zoo_models import MODEL_CASES

EVERY = [
    *CONV_CASES, *HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *EDGE_CASES, *MODEL_CASES,
]  # fmt: skip
# A sort whose padding depends on the longest neighbourhood of all.
SORTS = Case(
    "sorts", lambda: SAGEConv((2 * CHANNELS, CHANNELS), 4, SortAggregation(2)),
    formats=("edge_index_by_col",),
)  # fmt: skip
BY_NAME = {case.name: case for case in (*EVERY, SORTS)}


class Ranked(torch.nn.Module):
    """What LightGCN ranks by: the embedding of every node, which is all that it knows of them."""

    def __init__(self, nodes):
        super().__init__()
        self.model = LightGCN(nodes, 4, 2)

    def forward(self, edge_index, edge_weight=None):
        return self.model.get_embedding(edge_index, edge_weight)


def without_x(model, inputs):
    inputs = dict(inputs)
    del inputs["x"]
    return model(inputs.pop("edge_index"), **inputs)


HETERO = {str(case): case for case in (*PAIR_CASES, *GRAPH_CASES, *HETERO_CASES)}
HYPER = {str(case): case for case in HYPER_CASES}
LEARNED = {
    "linkx": Case("linkx", lambda: LINKX(12, CHANNELS, 6, 4, num_layers=2)),
    "linkx-deep": Case("linkx-deep", lambda: LINKX(12, CHANNELS, 12, 4, 2, 2, 2), WEIGHT),
    "embeddings": Case("embeddings", lambda: Ranked(12), WEIGHT, call=without_x),
}
"""A world has twelve nodes."""


def travel(comm, name, fmt="coo", **options):
    """The journey of a case of any zoo; `fmt` is the format of a graph on one kind of nodes."""
    if name in HETERO:
        return HeteroJourney(comm, HETERO[name], **options)
    if name in HYPER:
        return HyperJourney(comm, HYPER[name], **options)
    if name in LEARNED:
        kind = Learned if LEARNED[name].call is call_plain else Bare
        return kind(comm, LEARNED[name], fmt, **options)
    return Journey(comm, BY_NAME[name], fmt, **options)


# Names of cases, for each number of ranks of the tests with real processes.
CASES_BY_SIZE = {
    1: ["gcn-plain"],
    2: ["gcn-weights", "sage-max", "linkx"],
    3: ["gat-attr-mean", "weights-and-attributes"],
    4: ["GraphSAGE", "HGT"],
}
"""On ranks that are processes; many more are tried on threads, over the same calls."""


def small_call(nodes=60, edges=240, channels=6, seed=0):
    """A model and its arguments."""
    torch.manual_seed(seed)
    model = GraphSAGE(channels, 8, 2, 3).double().eval()
    x = torch.randn(nodes, channels, dtype=torch.float64)
    edge_index = torch.randint(nodes, (2, edges))
    edge_index = edge_index[:, (edge_index != 1).any(0)]  # no self-loop at node 1
    return model, (x, edge_index)

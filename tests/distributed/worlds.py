"""What is tried on ranks: cases of the zoo, and a small graph."""

import torch
from torch_geometric.nn import GraphSAGE

from tests.zoo_attention import ATTENTION_CASES
from tests.zoo_convs import CONV_CASES
from tests.zoo_edge_functions import EDGE_FUNCTION_CASES
from tests.zoo_edges import EDGE_CASES
from tests.zoo_hops import HOP_CASES
from tests.zoo_models import MODEL_CASES

EVERY = [
    *CONV_CASES, *HOP_CASES, *ATTENTION_CASES, *EDGE_FUNCTION_CASES, *EDGE_CASES, *MODEL_CASES,
]  # fmt: skip
BY_NAME = {case.name: case for case in EVERY}

# Name and format, for each number of ranks of the tests with real processes.
CASES_BY_SIZE = {
    1: [(BY_NAME["gcn-plain"], "csr")],
    2: [
        (BY_NAME[name], "coo")
        for name in ("gcn-weights", "sage-mean", "sage-max", "gin-two-linears", "gat-heads")
    ],
    3: [
        (BY_NAME[name], "coo")
        for name in ("sage-max", "gat-attr-mean", "graph-weights", "gcn-backward", "PNA")
    ],
    4: [(BY_NAME[name], "coo") for name in ("GraphSAGE", "GIN", "GAT")],
}


def small_call(nodes=60, edges=240, channels=6, seed=0):
    """A model and its arguments."""
    torch.manual_seed(seed)
    model = GraphSAGE(channels, 8, 2, 3).double().eval()
    x = torch.randn(nodes, channels, dtype=torch.float64)
    edge_index = torch.randint(nodes, (2, edges))
    edge_index = edge_index[:, (edge_index != 1).any(0)]  # no self-loop at node 1
    return model, (x, edge_index)

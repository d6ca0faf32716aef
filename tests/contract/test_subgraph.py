"""The part of the graph that rows depend on: PyG's `Explainer` says of it what it says of all."""

import pytest
import torch
from torch_geometric.explain import AttentionExplainer, Explainer, Explanation, ModelConfig
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.nn import GAT, GCN, GraphConv, GraphSAGE
from torch_geometric.utils import k_hop_subgraph

from pyg_incremental import UnsupportedModelError, to_incremental
from tests.closeness import assert_close

N, E = 60, 90


class Gradients(ExplainerAlgorithm):
    """How the largest output of some nodes changes with each feature, and with each edge."""

    def forward(self, model, x, edge_index, *, target, index, edge_weight):
        x, edge_weight = x.clone().requires_grad_(), edge_weight.clone().requires_grad_()
        out = model(x, edge_index, edge_weight)[index]
        grads = torch.autograd.grad(out.max(-1).values.sum(), (x, edge_weight))
        return Explanation(node_mask=grads[0].abs(), edge_mask=grads[1].abs())

    def supports(self):
        return True


def changed(model, seed, *more):
    """A wrapped model after some deltas, and the arguments as they are now."""
    torch.manual_seed(seed)
    model = model.double().eval()
    pairs = torch.randperm(N * (N - 1))[: E + 5]  # none twice, and no loops, which a GAT moves
    src = pairs // (N - 1)
    x, every = torch.randn(N, 4).double(), torch.stack([src, (src + 1 + pairs % (N - 1)) % N])
    inc = to_incremental(model)
    inc(x, every[:, :E], *[rows[:E] for rows in more])
    rows = {"edge_weight_add": more[0][E:]} if more else {}
    inc.apply_delta(edge_index_add=every[:, E:], edge_index_del=every[:, :3], **rows)
    return inc, model, x, every[:, 3:], [rows[3:] for rows in more]


def explained(model, algorithm, x, edge_index, index, **more):
    config = ModelConfig("multiclass_classification", "node", "raw")
    masks = {"edge_mask_type": "object"}
    if isinstance(algorithm, Gradients):
        masks["node_mask_type"] = "attributes"
    explainer = Explainer(
        model, algorithm=algorithm, explanation_type="model", model_config=config, **masks
    )
    return explainer(x, edge_index, index=index, **more)


@pytest.mark.parametrize("node", [3, 17])
def test_gradients_are_those_of_the_whole_graph(seed, node):
    """A GCN divides by degrees, which take one hop more than its layers."""
    weights = torch.rand(E + 5, generator=torch.Generator().manual_seed(seed)).double()
    inc, model, x, edges, (weights,) = changed(GCN(4, 8, 2, 3), seed, weights)
    part = inc.subgraph([node])
    assert part.num_nodes < N
    assert torch.equal(part.n_id[part.index], torch.tensor([node]))
    assert_close(model(part.x, part.edge_index, part.edge_weight)[part.index], inc.out[[node]])
    index = torch.tensor([node])
    whole = explained(model, Gradients(), x, edges, index, edge_weight=weights)
    near = explained(
        model, Gradients(), part.x, part.edge_index, part.index, edge_weight=part.edge_weight
    )
    node_mask, edge_mask = torch.zeros_like(x), torch.zeros(edges.shape[1]).double()
    node_mask[part.n_id], edge_mask[part.e_id] = near.node_mask, near.edge_mask
    assert_close(node_mask, whole.node_mask)
    assert_close(edge_mask, whole.edge_mask)
    assert torch.equal(part.n_id[part.edge_index], edges[:, part.e_id])


def test_attention_is_that_of_the_whole_graph(seed):
    """It is read of every edge in every layer, so the rows of all of these have to be right."""
    inc, model, x, edges, _ = changed(GAT(4, 8, 2, 3, heads=2), seed)
    part = inc.subgraph([5, 9], hops=2 * 2)
    whole = explained(model, AttentionExplainer(), x, edges, torch.tensor([5, 9]))
    near = explained(model, AttentionExplainer(), part.x, part.edge_index, part.index)
    inside = k_hop_subgraph([5, 9], 2, edges, num_nodes=N)[3]
    mask = torch.zeros(edges.shape[1]).double()
    mask[part.e_id] = near.edge_mask.double()
    assert_close(mask[inside], whole.edge_mask.double()[inside])
    inc.apply_delta(edge_index_del=edges[:, :1])  # the model goes on as it was
    assert inc.verify() < 1e-12


def test_hops_are_those_of_the_program_or_said(seed):
    inc, _, x, edges, _ = changed(GraphSAGE(4, 8, 2, 3), seed)
    for hops in (None, 1):
        want = k_hop_subgraph([7], hops or 2, edges, relabel_nodes=True, num_nodes=N)
        part = inc.subgraph([7], hops=hops)
        assert torch.equal(part.n_id, want[0])
        assert torch.equal(part.edge_index, want[1])
        assert torch.equal(part.e_id, want[3].nonzero().flatten())
        assert torch.equal(part.x, x[want[0]])


class Mean(GraphSAGE):
    def forward(self, x, edge_index):
        h = super().forward(x, edge_index)
        return h - h.mean(0)


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
def test_rows_that_depend_on_all_are_refused_by_what_to_say():
    inc = changed(Mean(4, 8, 2, 3), 0)[0]
    with pytest.raises(UnsupportedModelError, match=r"inc\.subgraph\(nodes, hops=2\)"):
        inc.subgraph([7])
    assert inc.subgraph([7], hops=2).num_nodes < N


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_against_the_flow_and_while_rows_wait(flow, lazy, double):
    class Weighted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = GraphConv(5, 7, flow=flow), GraphConv(7, 3, flow=flow)

        def forward(self, x, edge_index, edge_weight):
            return self.b(self.a(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    model, some = Weighted().eval(), [10, 20, 10]
    inc = to_incremental(model, lazy=lazy)
    inc(torch.randn(60, 5), torch.randint(60, (2, 150)), torch.rand(150))
    for node in range(6):
        inc.apply_delta(
            edge_index_add=torch.randint(60, (2, 4)), edge_weight_add=torch.rand(4),
            edge_index_del=inc.graph.to_edge_index()[:, :2], nodes_del=[node] if node % 2 else None,
        )  # fmt: skip
        part = inc.subgraph(some)
        got = model(part.x, part.edge_index, part.edge_weight)[part.index]
        assert (got - inc.out[some]).abs().max() < 1e-12
        assert torch.equal(inc.graph.to_edge_index()[:, part.e_id], part.n_id[part.edge_index])

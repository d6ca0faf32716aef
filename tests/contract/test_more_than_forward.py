"""Methods of models, compiled models, and what else is done with a module."""

import pytest
import torch
from torch import nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GAE, GCN, GCNConv

from pyg_incremental import StaleStateError, UnsupportedModelError, load, to_incremental
from tests.closeness import assert_close

CHANNELS = 8


class Net(nn.Module):
    """Encodes and decodes; there is no `forward`."""

    def __init__(self):
        super().__init__()
        self.a, self.b = GCNConv(CHANNELS, 16), GCNConv(16, 4)

    def encode(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)

    def decode(self, z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def graph(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(40, CHANNELS, generator=g, dtype=torch.float64)
    return x, torch.randint(40, (2, 90), generator=g)


@pytest.mark.parametrize("wrap", [Net, lambda: GAE(GCN(CHANNELS, 16, 2, 4))])
def test_a_method_is_followed(wrap, seed):
    torch.manual_seed(seed)
    model, (x, edges) = wrap().double().eval(), graph(seed)
    inc = to_incremental(model.encode)
    inc(x, edges)
    assert inc.mode == "incremental"
    inc.apply_delta(edge_index_add=torch.tensor([[1], [2]]), x_changes=([3], x[:1]))
    x, edges = x.clone(), torch.cat([edges, torch.tensor([[1], [2]])], 1)
    x[3] = x[0]
    with torch.no_grad():
        assert_close(inc.out, model.encode(x, edges))
    assert inc.verify() < 1e-12


def test_a_method_by_its_name(seed, tmp_path):
    model, (x, edges) = Net().double().eval(), graph(seed)
    inc = to_incremental(model, method="encode")
    with torch.no_grad():
        assert_close(inc(x, edges), model.encode(x, edges))
    inc.save(tmp_path / "state")
    assert torch.equal(load(tmp_path / "state", model, method="encode").out, inc.out)
    with pytest.raises(UnsupportedModelError, match="no method 'enc'"):
        to_incremental(model, method="enc")


def test_parameters_of_a_method_are_those_of_the_model(seed):
    model, (x, edges) = Net().double().eval(), graph(seed)
    inc = to_incremental(model.encode)
    inc(x, edges)
    with torch.no_grad():
        model.a.lin.weight.mul_(2)
    assert "weight" in inc.stale
    inc.refresh()
    with torch.no_grad():
        assert_close(inc.out, model.encode(x, edges))
    model.train()
    with pytest.raises(StaleStateError, match="training"):
        inc(x, edges)


def test_a_state_of_a_method_is_taken_up(tmp_path, seed):
    model, (x, edges) = Net().double().eval(), graph(seed)
    inc = to_incremental(model.encode)
    inc(x, edges)
    inc.save(tmp_path / "state")
    assert torch.equal(load(tmp_path / "state", model.encode).out, inc.out)


def test_methods_that_cannot_be_followed_are_named(seed):
    model = Net().double().eval()
    with pytest.raises(AttributeError, match=r"to_incremental\(model\.encode\)"):
        to_incremental(model).encode(*graph(seed))
    with pytest.raises(UnsupportedModelError, match=r"no forward .*\(model\.encode\)"):
        to_incremental(model)(*graph(seed))
    with pytest.raises(UnsupportedModelError, match=r"Module has no forward .* write one"):
        to_incremental(nn.Module().eval())(*graph(seed))
    with pytest.raises(AttributeError, match=r"inc\.model\.a$"):
        _ = to_incremental(model).a
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = to_incremental(model).nothing
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedModelError, match="hooks, which run around forward"):
        to_incremental(model.encode)
    with pytest.raises(UnsupportedModelError, match=r"expected a torch\.nn\.Module"):
        to_incremental(graph)


def test_the_model_inside_a_compiled_one_is_followed(seed):
    model, (x, edges) = GCN(CHANNELS, 16, 2, 4).double().eval(), graph(seed)
    inc = to_incremental(torch.compile(model, backend="eager"))
    inc(x, edges)
    assert inc.mode == "incremental"
    assert inc.model is model


def test_a_model_compiled_in_place_is_followed(seed):
    model, (x, edges) = GCN(CHANNELS, 16, 2, 4).double().eval(), graph(seed)
    model.compile(backend="eager")
    inc = to_incremental(model)
    inc(x, edges)
    assert inc.mode == "incremental"
    assert inc.verify() < 1e-12


def test_what_is_done_with_a_module(seed):
    model, (x, edges) = GCN(CHANNELS, 16, 2, 4).double().train(), graph(seed)
    inc = to_incremental(model)
    assert inc.training
    assert inc.eval() is inc
    assert not model.training
    inc(x, edges)
    assert inc.to("cpu") is inc
    assert inc.stale is None
    assert [*inc.parameters()] == [*model.parameters()]
    assert dict(inc.named_parameters()).keys() == inc.state_dict().keys()
    assert [*inc.modules()] == [*model.modules()]
    assert [*inc.buffers()] == []
    inc.load_state_dict({k: 2 * v for k, v in inc.state_dict().items()})
    assert inc.stale
    inc.refresh()
    with torch.no_grad():
        assert_close(inc.out, model(x, edges))
    inc.to(torch.float32)
    with pytest.raises(StaleStateError, match=r"moved to torch\.float32"):
        inc.refresh()
    with pytest.raises(StaleStateError, match="training"):
        inc.train()(x, edges)


def test_an_explainer_is_told_what_to_explain(seed):
    model, (x, edges) = GCN(CHANNELS, 16, 2, 4).double().eval(), graph(seed)
    inc = to_incremental(model)
    inc(x, edges)
    options = {
        "algorithm": GNNExplainer(epochs=2),
        "explanation_type": "model",
        "edge_mask_type": "object",
        "model_config": {
            "mode": "multiclass_classification", "task_level": "node", "return_type": "raw",
        },
    }  # fmt: skip
    with pytest.raises(UnsupportedModelError, match=r"Explainer\(inc\.model"):
        Explainer(inc, **options)(x, edges, index=5)
    part = inc.subgraph([5])
    explainer = Explainer(inc.model, **options)
    explanation = explainer(part.x, part.edge_index, index=part.index)
    assert len(explanation.edge_mask) == part.edge_index.shape[1]
    assert inc.verify() < 1e-12

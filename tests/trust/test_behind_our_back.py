"""What changes without `apply_delta`: parameters, hooks, arguments, stored rows."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv, SAGEConv

from pyg_incremental import InvalidDeltaError, StaleStateError, to_incremental
from tests.trust.small import CHANNELS, drawn, edge, sage, wrapped

FUSED = {
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "SGD": torch.optim.SGD,
    "Adagrad": torch.optim.Adagrad,
}


@pytest.mark.parametrize("make", FUSED.values(), ids=FUSED)
def test_a_fused_optimizer_is_noticed(make):
    inc = wrapped(warm=True)
    parameters = list(inc.model.parameters())
    versions = [p._version for p in parameters]
    for p in parameters:
        p.grad = torch.ones_like(p)
    make(parameters, lr=0.1, fused=True).step()
    if make is torch.optim.Adam:  # the reason why versions are not enough
        assert [p._version for p in parameters] == versions
    assert "changed in place" in inc.stale
    with pytest.raises(StaleStateError, match="changed in place"):
        inc.apply_delta(edge_index_add=edge(0, 1))
    inc.refresh()
    assert inc.verify() < 1e-5


def test_buffers_of_batch_norm_are_noticed():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = SAGEConv(CHANNELS, 4), BatchNorm(4)

        def forward(self, x, edge_index):
            return self.norm(self.conv(x, edge_index))

    inc = wrapped(Normed().eval())
    norm = inc.model.norm.module
    versions = norm.running_mean._version
    with torch.no_grad():
        nn.functional.batch_norm(
            torch.randn(50, 4), norm.running_mean, norm.running_var, training=True
        )
    assert norm.running_mean._version == versions or inc.stale  # whatever PyTorch counts
    assert "running" in inc.stale


def test_a_single_number_of_a_parameter_is_noticed_by_verify():
    """Past all counts, where no update would look."""
    inc = wrapped(sage())
    weight = inc.model.convs[0].lin_l.weight
    weight.data.view(-1)[5] += 1.0
    with pytest.raises(StaleStateError, match="changed in place"):
        inc.verify()
    inc.refresh()
    assert inc.verify() < 1e-5


HOOKS = [
    name
    for name in dir(GCNConv)
    if name.startswith("register_") and name.endswith("hook") and "backward" not in name
    if "state_dict" not in name and "load" not in name
]


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_noticed(name):
    assert len(HOOKS) >= 10
    conv = GCNConv(CHANNELS, 4).eval()
    inc = wrapped(conv)
    handle = getattr(conv, name)(lambda *args: None)
    assert "hook" in inc.stale
    handle.remove()
    assert inc.stale is None
    inc.apply_delta(edge_index_add=edge(0, 1))


def test_a_hook_on_all_modules_is_noticed():
    inc = wrapped()
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    try:
        assert "hook" in inc.stale
    finally:
        handle.remove()
    assert inc.stale is None


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(CHANNELS, 4)

    def forward(self, x, edge_index, scale):
        return self.conv(x, edge_index) * scale


def test_further_arguments_are_as_of_the_call():
    x, edge_index = drawn()
    scale = torch.ones(4)
    model = Scaled().eval()
    inc = to_incremental(model)
    inc(x, edge_index, scale)
    scale.mul_(3)
    inc.apply_delta(edge_index_add=edge(0, 1))
    inc.apply_delta(x_changes=(torch.tensor([3]), torch.ones(1, CHANNELS)))
    for _ in range(2):
        with torch.no_grad():
            expected = model(inc.x, inc.graph.to_edge_index(), torch.ones(4))
        assert torch.allclose(inc.out, expected, atol=1e-5)
        assert inc.verify() < 1e-5
        inc.refresh()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("what", ["x", "out"])
def test_writing_to_a_view_is_noticed(what, warm):
    inc = wrapped(warm=warm)
    getattr(inc, what)[3] = 7.0
    assert "written to" in inc.stale
    with pytest.raises(StaleStateError):
        inc.apply_delta(edge_index_add=edge(0, 1))
    inc.refresh()
    assert inc.verify() < 1e-5
    inc.apply_delta(edge_index_add=edge(0, 1))
    assert inc.verify() < 1e-5


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g.add_edges(edge(0, 1)),
        lambda g: g.delete_edges(g.to_edge_index()[:, :1]),
        lambda g: g.change_edges(g.to_edge_index()[:, :1]),
        lambda g: g.add_nodes(1),
        lambda g: g.remove_nodes(torch.tensor([1])),
    ],
)
def test_the_graph_of_a_model_changes_through_it_alone(change):
    inc = wrapped()
    before = inc.graph.to_edge_index()
    with pytest.raises(InvalidDeltaError, match="apply_delta"):
        change(inc.graph)
    assert torch.equal(inc.graph.to_edge_index(), before)
    assert inc.verify() < 1e-5


def test_a_model_made_in_inference_mode():
    with torch.inference_mode():
        model = sage()
    inc = wrapped(model, warm=True)
    inc.apply_delta(x_changes=(torch.tensor([3]), torch.ones(1, CHANNELS)))
    inc.refresh()
    assert inc.verify() < 1e-5


def test_everything_in_inference_mode(tmp_path):
    x, edge_index = drawn()
    with torch.inference_mode():
        inc = to_incremental(sage(), compile_after=2)
        inc(x.clone(), edge_index.clone())
        for i in range(4):
            inc.apply_delta(x_changes=(torch.tensor([i]), torch.ones(1, CHANNELS)))
    inc.refresh()
    inc.refresh([1, 2])
    inc.apply_delta(x_add=torch.ones(2, CHANNELS), edge_index_add=edge(40, 41))
    with torch.inference_mode():
        inc.refresh()
        inc.apply_delta(x_add=torch.ones(90, CHANNELS))
    inc.apply_delta(x_changes=(torch.tensor([3]), torch.zeros(1, CHANNELS)))
    assert inc.verify() < 1e-5
    assert inc.check() == []

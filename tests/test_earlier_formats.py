"""States that earlier versions of the package wrote: what they hold, and how a model goes on there.

The files in `tests/data/states` were written by the commits that began or ended a format, of the
model and the graph below after three updates. The model itself, on that graph, is the oracle.
"""

import re
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import GCN

from pyg_incremental import StateFileError, load, read_state
from pyg_incremental.files import earlier, snapshot

STATES = Path(__file__).parent / "data" / "states"
FILES = sorted(STATES.iterdir())
NODES = 8


def trained():
    model = GCN(3, 4, 2, 2).double().eval()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.linspace(-1, 1 + i / 8, p.numel(), dtype=torch.float64).view_as(p))
    return model


def graph():
    """Features, edges and weights as the three updates have left them."""
    x = torch.arange(NODES * 3, dtype=torch.float64).view(NODES, 3) / 10 - 1
    x[3] = torch.tensor([1.0, 2.0, 3.0])
    ids = torch.arange(NODES)
    ends = torch.cat([(ids + 1) % NODES, (ids * 3 + 2) % NODES])
    edges, weight = torch.stack([ids.repeat(2), ends]), torch.linspace(0.5, 1.5, 16).double()
    weight = torch.linspace(0.5, 1.5, 16, dtype=torch.float64)
    edges = torch.cat([edges, torch.tensor([[0, 5], [4, 6]])], 1)
    weight = torch.cat([weight, torch.tensor([0.25, 0.75]).double()])
    left = (edges != torch.tensor([[1], [2]])).any(0)
    return x, edges[:, left], weight[left]


def sorted_edges(edge_index, weight):
    return sorted(zip(*edge_index.tolist(), weight.tolist(), strict=True))


def test_every_format_is_among_the_files():
    found = {int(re.match(r"format_(\d+)", path.name)[1]) for path in FILES}
    assert found == {*range(1, snapshot.FORMAT + 1)}
    assert {snapshot.read_any(path)[0] for path in FILES} == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_it_holds_can_be_read_without_the_model(path):
    x, edges, weight = graph()
    state = read_state(path)
    assert str(state.format) in path.stem
    assert (state.version, state.num_nodes) == (3, {"": NODES})
    assert torch.equal(state.nodes["x"], x)
    index, data = state.edge_index["edge_index"], state.edge_data["edge_index"]["edge_weight"]
    assert sorted_edges(index, data) == sorted_edges(edges, weight)
    named = path.stem == "format_4"
    assert state.node_ids == ({"": [f"node {k}" for k in range(NODES)]} if named else {})
    assert state.extra == ({"position": 7} if named else None)
    assert "num_edges=17" in repr(state)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_model_goes_on_there(path):
    x, edges, weight = graph()
    inc = load(path, model := trained())
    assert (inc.version, inc.mode) == (3, "incremental")
    assert torch.allclose(inc.out, model(x, edges, weight), rtol=1e-12, atol=1e-12)
    nodes = ["node 6"] if path.stem == "format_4" else [6]
    inc.apply_delta(x_changes=(nodes, torch.full((1, 3), 2.0).double()))
    x[6] = 2.0
    assert torch.allclose(inc.out, model(x, edges, weight), rtol=1e-12, atol=1e-12)
    assert inc.verify() < 1e-12
    assert not inc.check()


def test_rows_of_an_earlier_format_are_computed_and_not_taken(tmp_path):
    path = tmp_path / "state.pyginc"
    content = snapshot.read(STATES / "format_4.pyginc")
    content["rows"]["act"][0] += 1e-9  # within what rounding may be, so taken where rows are
    snapshot.write(path, content)
    fresh = load(STATES / "format_3.pyginc", trained())._session
    taken = load(path, trained())._session
    rows = [
        next(c.tensor[0] for v, c in s.engine.cells.items() if v.name == "act")
        for s in (fresh, taken)
    ]
    assert 1e-10 < float((rows[0] - rows[1]).abs().max()) < 1e-8


def test_other_parameters_are_refused_in_every_format():
    model = trained()
    with torch.no_grad():
        model.convs[0].bias += 1
    for path in FILES:
        with pytest.raises(StateFileError, match="another model"):
            load(path, model)


def test_a_later_format_says_so(tmp_path):
    data = bytearray((STATES / "format_4.pyginc").read_bytes())
    data[7] = snapshot.FORMAT + 1
    (tmp_path / "later").write_bytes(data)
    for read in (read_state, lambda path: load(path, trained())):
        with pytest.raises(StateFileError, match=r"but of 5; a later version of this package"):
            read(tmp_path / "later")


def test_what_only_looks_like_an_earlier_one_is_refused(tmp_path):
    torch.save({"format": 1}, tmp_path / "other.pt")
    with pytest.raises(StateFileError, match=r"something that torch\.save wrote"):
        read_state(tmp_path / "other.pt")
    (tmp_path / "cut").write_bytes((STATES / "format_1_first.pyginc").read_bytes()[:3000])
    with pytest.raises(StateFileError, match="cannot be read"):
        read_state(tmp_path / "cut")
    content = snapshot.read(STATES / "format_4.pyginc")
    lacks = {k: v for k, v in content.items() if k != "removed"}  # what came later is there
    snapshot.write(tmp_path / "lacks", lacks)
    with pytest.raises(StateFileError, match="removed"):
        load(tmp_path / "lacks", trained())


def test_a_call_with_an_object_says_how_to_go_on():
    content = snapshot.read_any(STATES / "format_2.pyginc")[1] | {"data_fields": {"data": ["x"]}}
    with pytest.raises(StateFileError, match=r"saved = read_state\('old'\); make the object"):
        earlier.as_today("old", content)

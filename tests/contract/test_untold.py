"""Lists and arrays with an entry for each node or edge are never read as they once were."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv

from pyg_incremental import InvalidDeltaError, to_incremental
from tests.closeness import assert_close

NODES, EDGES = 12, 30
READERS = {
    "asarray": lambda w: torch.as_tensor(np.asarray(w)),
    "as_tensor": torch.as_tensor,
    "tensor": torch.tensor,
    "from_numpy": lambda w: torch.from_numpy(w) if isinstance(w, np.ndarray) else torch.tensor(w),
    "sum": sum,
    "len": len,
    "one": lambda w: w[3],
    "by class": lambda w: max(w) if isinstance(w, (list, np.ndarray)) else 0.0,
    "truth": lambda w: 1.0 if any(w) else 2.0,
    "operators": lambda w: (2 * np.asarray(w)).max(),
}


class Reads(torch.nn.Module):
    def __init__(self, read):
        super().__init__()
        self.conv, self.read = SAGEConv(3, 2), read

    def forward(self, data):
        return self.conv(data.x, data.edge_index) * torch.as_tensor(self.read(data)).float().mean()


def graph(**fields):
    e = torch.randint(NODES, (2, EDGES))
    return Data(x=torch.randn(NODES, 3), edge_index=e, **fields)


@pytest.mark.parametrize("count", [NODES, EDGES])
@pytest.mark.parametrize("make", [list, np.asarray], ids=["list", "array"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_field_that_is_read_is_asked_for(seed, read, make, count):
    data = graph(w=make([float(i) for i in range(count)]))
    model = Reads(lambda data: read(data.w)).eval()
    with pytest.raises(InvalidDeltaError, match=r"roles={'w': 'constant'}"):
        to_incremental(model)(data)


def test_what_nobody_reads_stays_behind_and_is_saved(seed, tmp_path):
    model = Reads(lambda data: 2.0 if "names" in data and data.get("more") is None else 1.0).eval()
    inc = to_incremental(model)
    data = graph(names=[f"n{i}" for i in range(NODES)], label=np.arange(EDGES))
    assert_close(inc(data), model(data))
    inc.apply_delta(x_add=torch.randn(1, 3))
    assert inc.mode == "incremental"
    assert inc.verify().is_fine
    inc.save(tmp_path / "state")
    again = type(inc).load(tmp_path / "state", model)
    again.apply_delta(x_add=torch.randn(1, 3))
    assert again.verify().is_fine


def test_what_is_said_to_stay_stays(seed):
    inc = to_incremental(Reads(lambda data: sum(data.w)).eval(), roles={"w": "constant"})
    inc(graph(w=[float(i) for i in range(NODES)]))
    inc.apply_delta(x_add=torch.randn(2, 3))
    assert inc.mode == "incremental"
    assert inc.verify().is_fine


def test_arguments_beside_objects_and_types(seed):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(3, 2)

        def forward(self, x, edge_index, w):
            return self.conv(x, edge_index) * sum(w)

    data = graph()
    with pytest.raises(InvalidDeltaError, match="as many entries"):
        to_incremental(Plain().eval())(data.x, data.edge_index, [1.0] * EDGES)
    to_incremental(Plain().eval())(data.x, data.edge_index, [1.0] * 5)

    class Typed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(3, 2)

        def forward(self, data):
            e = data["user", "follows", "user"]
            return self.conv(data["user"].x, e.edge_index) * sum(e.since)

    hetero = HeteroData()
    hetero["user"].x, e = data.x, hetero["user", "follows", "user"]
    e.edge_index, e.since = data.edge_index, [1.0] * EDGES
    with pytest.raises(InvalidDeltaError, match="since"):
        to_incremental(Typed().eval())(hetero)

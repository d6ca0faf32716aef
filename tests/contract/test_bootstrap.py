"""`bootstrap`: a store in memory maps is the store in memory, bit for bit, whatever comes."""

import gc
import inspect
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE, global_mean_pool

from pyg_incremental import StaleStateError, to_incremental
from pyg_incremental.graph import storage
from tests.hetero_side_by_side import HeteroSides
from tests.processes import ROOT, run_script
from tests.side_by_side import SideBySide, clone
from tests.strategies import DELTAS, generator, journey, make_world
from tests.zoo import CHANNELS
from tests.zoo_convs import CONV_CASES
from tests.zoo_hetero import HETERO_CASES
from tests.zoo_models import BASIC_CASES

NAMES = (
    "gcn-weights", "sage-max", "sage-std", "gat-heads", "gat-attr-mean", "GCN-batch-norm",
    "GraphSAGE-max-norm-jk", "GAT-attr",
)  # fmt: skip
CASES = [(case, {}) for case in [*CONV_CASES, *BASIC_CASES] if case.name in NAMES]
CASES += [(case, option) for case, _ in CASES[:2] for option in (
    {"store": "minimal"}, {"backend": "reference"}
)]  # fmt: skip


@pytest.fixture(autouse=True)
def everything_in_files(monkeypatch):
    monkeypatch.setattr(storage, "SMALL", 0)


def storage_of(inc):
    return inc._session.settings.storage


@pytest.mark.parametrize(("case", "options"), CASES, ids=str)
def test_exact_after_any_delta(case, options, seed, tmp_path):
    sides = SideBySide(case, seed=seed, **options)
    given = sides.world.inputs()
    out = sides.inc.bootstrap(given, memory=1, directory=tmp_path)
    assert storage_of(sides.inc).on_disk > 0
    sides.out = clone(out)
    sides.check_all()
    sides.walk(kinds=12)
    assert sides.inc.check() == []
    assert storage_of(sides.inc).in_memory == 0


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("case", HETERO_CASES[:2], ids=str)
def test_several_kinds_of_nodes(case, seed, tmp_path):
    sides = HeteroSides(case, seed=seed)
    args, kwargs = sides.world.arguments()
    names = inspect.signature(sides.twin.forward).parameters
    given = dict(zip(names, args, strict=False)) | kwargs
    sides.out = clone(sides.inc.bootstrap(given, memory=1, directory=tmp_path))
    assert storage_of(sides.inc).on_disk > 0
    sides.walk()


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphSAGE(CHANNELS, 8, 1)

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.conv(x, edge_index), batch)


def test_the_edges_to_graphs_are_in_files_too(seed, tmp_path):
    torch.manual_seed(seed)
    batch, edges = torch.arange(60) // 4, torch.randint(60, (2, 90))
    inc = to_incremental(Pooled().double().eval())
    given = {"x": torch.randn(60, CHANNELS).double(), "edge_index": edges, "batch": batch}
    inc.bootstrap(given, memory=1, directory=tmp_path)
    assert storage_of(inc).in_memory == 0
    graphs = inc._session.graphs.values()
    assert [graph.storage for graph in graphs] == [storage_of(inc)] * 2
    inc.apply_delta(nodes_del=torch.tensor([5, 6]), edge_index_add=edges[:, :2])
    assert inc.verify() < 1e-12


@pytest.mark.parametrize("make", [GCN, GraphSAGE, GAT])
def test_bit_by_bit_what_is_in_memory(make, seed, tmp_path):
    """Through the compiled path, too; nodes and edges come until everything has grown."""
    torch.manual_seed(seed)
    rng = generator(seed)
    world = make_world(rng, nodes=60, edges=150, channels=CHANNELS)
    model = make(CHANNELS, 8, 2, 4).double().eval()
    inc, theirs = (to_incremental(model, compile_after=2) for _ in range(2))
    data = Data(**world.inputs())
    theirs(**world.inputs())
    inc.bootstrap(data, memory=1, directory=tmp_path)
    for kind in journey(rng, finite=True) + ["new_nodes_with_edges"] * 8:
        delta = DELTAS[kind](world, rng)
        world.apply(**delta)
        changed = [each.apply_delta(**delta).changed for each in (inc, theirs)]
        assert torch.equal(*changed)
        assert inc.state_digest() == theirs.state_digest()
    assert storage_of(inc).in_memory == 0


def some(nodes=300, edges=2000):
    torch.manual_seed(0)
    data = Data(x=torch.randn(nodes, 8), edge_index=torch.randint(nodes, (2, edges)))
    return to_incremental(GraphSAGE(8, 16, 2, 4).eval()), data


def test_memory_first_then_files(tmp_path):
    inc, data = some()
    inc.bootstrap(data)
    whole = storage_of(inc).in_memory
    assert storage_of(inc).on_disk == 0
    inc.bootstrap(data, memory=whole // 2, directory=tmp_path / "made")
    kept = storage_of(inc)
    assert 0 < kept.in_memory <= whole // 2 < whole == kept.in_memory + kept.on_disk
    with pytest.raises(MemoryError, match="or name a directory"):
        inc.bootstrap(data, memory=whole // 2)
    assert storage_of(inc) is kept  # as it was before
    assert inc.verify() < 1e-5


def test_files_go_with_what_they_hold(tmp_path):
    """They have no names, and whatever makes the store anew lets go of the one before."""
    inc, data = some()
    inc.bootstrap(data, memory=1, directory=tmp_path)
    held = storage_of(inc)
    first = held.on_disk
    assert list(tmp_path.iterdir()) == []
    inc.refresh()
    inc.apply_delta(nodes_del=[3, 4])
    inc.compact()
    gc.collect()
    assert storage_of(inc) is held
    assert first / 2 < held.on_disk <= 1.5 * first
    inc.forget()
    gc.collect()
    assert (held.in_memory, held.on_disk) == (0, 0)
    inc(data.x, data.edge_index)
    assert storage_of(inc).on_disk == held.on_disk == 0


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    inc, data = some()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "posix_fallocate", refuse, raising=False)
    with pytest.raises(OSError, match="No space left"):
        inc.bootstrap(data, memory=1, directory=tmp_path)
    with pytest.raises(StaleStateError, match="has not been called yet"):
        inc.apply_delta(nodes_del=[3])
    with pytest.raises(ValueError, match="expected a number of bytes"):
        inc.bootstrap(data, memory="little")


LIMITED = """
import gc, resource, sys
import numpy as np, torch
from torch_geometric.nn import GraphSAGE
from pyg_incremental import to_incremental

folder, extra = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
inc = to_incremental(GraphSAGE(64, 64, num_layers=2, out_channels=64).eval())
names = "x", "edge_index"
data = {n: torch.from_numpy(np.load(f"{folder}/{n}.npy", mmap_mode="r+")) for n in names}
new = torch.randn(20, 64)

def changed():
    for i, row in enumerate(new):
        inc.apply_delta(x_changes=([i], row[None]), edge_index_add=[[i], [i + 1]])
    return inc.out[:100].clone()

inc(**data)
want = changed()
inc.forget()
gc.collect()
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + extra, used + extra))
try:
    inc(**data)
except (MemoryError, RuntimeError) as error:
    print("refused")
inc.bootstrap(data, memory=extra // 8, directory=folder)
print(torch.equal(changed(), want), inc.memory_report().total > 2 * extra)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is one of Linux")
@pytest.mark.unmeasured
def test_within_a_limit_of_the_system(tmp_path):
    """A graph whose store the system refuses to hold takes deltas."""
    rng = np.random.default_rng(0)
    nodes, edges, limit = 100_000, 300_000, 64 << 20
    np.save(tmp_path / "x.npy", rng.standard_normal((nodes, 64), np.float32))
    np.save(tmp_path / "edge_index.npy", rng.integers(0, nodes, (2, edges)))
    out, err = run_script(LIMITED, ROOT, tmp_path, tmp_path, limit)
    assert out.split() == ["refused", "True", "True"], err

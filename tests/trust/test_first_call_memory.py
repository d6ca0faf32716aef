"""A first call takes little more than what it stores, and holds its program against the model.

A pass of the model itself has a row for every edge; on dense graphs that is many times the store.
"""

import pytest
import torch
from torch_geometric.nn import MessagePassing

from pyg_incremental import IncrementalWarning, to_incremental
from pyg_incremental.conv.registry import register
from pyg_incremental.session import first_check
from tests.hetero_side_by_side import HeteroSides
from tests.processes import ROOT, run_script
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import CHANNELS
from tests.zoo_all import GRAPH_CASES, PLAIN
from tests.zoo_hetero import HeteroCase

LIMITED = """
import gc
import resource
import torch

from benchmarks import graphs
from benchmarks.models import build
from pyg_incremental import to_incremental


def data():
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData"))


torch.set_num_threads(1)
of_all = resource.getrlimit(resource.RLIMIT_DATA)
for name, scale, kind, hidden, layers in (
    ("reddit", 0.01, "graphconv", 128, 2),
    ("products", 0.007, "sage", 256, 3),
):
    size = graphs.SIZES[name].scaled(scale)
    work = graphs.draw(size, 30)
    model = build(kind, size.channels, hidden, size.classes, layers)
    inc = to_incremental(model, check=False)
    inc(work.x, work.edge_index)
    store = inc.memory_report().total
    del inc
    gc.collect()
    resource.setrlimit(resource.RLIMIT_DATA, (data() + 2 * store + 2**29, of_all[1]))
    inc = to_incremental(model, strict=True)
    inc(work.x, work.edge_index)
    print(name, kind, inc.mode, inc.explain().checked)
    resource.setrlimit(resource.RLIMIT_DATA, of_all)
    del inc
"""


def test_a_first_call_needs_twice_the_store_and_half_a_gigabyte(tmp_path):
    out, err = run_script(LIMITED, ROOT, tmp_path)
    assert len(out.splitlines()) == 2
    for line in out.splitlines():
        assert " incremental " in line
        assert line.endswith("edges of the graph")
    assert "not held against the model" not in err


LARGE = 60
"""More nodes than the probes have on which a program is first held against its model."""


class FailsOnLargeGraphs(MessagePassing):
    """A conv whose program is right, and which itself cannot be run on a large graph."""

    error = RuntimeError

    def forward(self, x, edge_index):
        if x.size(0) > LARGE:
            raise self.error("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")
        return self.propagate(edge_index, x=x)


class Doubles(FailsOnLargeGraphs):
    """A conv whose program is that of small graphs."""

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=x)
        return out * 2 if out.size(0) > LARGE else out


@register(FailsOnLargeGraphs)
@register(Doubles)
def _sum(call):
    call.only("x")
    return call.reduce(call.node())


def a_call(conv, seed):
    torch.manual_seed(seed)
    x = torch.randn(1000, CHANNELS, dtype=torch.float64)
    return conv().double().eval(), (x, torch.randint(1000, (2, 30_000)))


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, ValueError])
def test_a_reference_that_fails_does_not_discredit_the_program(error, seed, monkeypatch):
    monkeypatch.setattr(FailsOnLargeGraphs, "error", error)
    model, arguments = a_call(FailsOnLargeGraphs, seed)
    inc = to_incremental(model, strict=True)
    with pytest.warns(IncrementalWarning, match=f"not held against the model: .*{error.__name__}"):
        inc(*arguments)
    assert inc.mode == "incremental"
    assert inc.explain().checked == ""
    x, edges = arguments
    assert torch.equal(inc.out, torch.zeros_like(x).index_add(0, edges[1], x[edges[0]]))


def test_a_wrong_program_is_found_where_only_a_part_fits(seed, monkeypatch):
    monkeypatch.setattr(first_check, "ROOM", 200_000)
    model, arguments = a_call(Doubles, seed)
    inc = to_incremental(model)
    with pytest.warns(IncrementalWarning, match="differs from the model by .* on this graph"):
        inc(*arguments)
    assert inc.mode == "full pass"


CASES = {str(case): case for case in (*PLAIN, *GRAPH_CASES)}


@pytest.mark.filterwarnings("ignore::pyg_incremental.IncrementalWarning")
@pytest.mark.parametrize("name", ["gcn-plain", "gat-dropout", "sage-median", "dict-output",
                                  "global-aggregation", "in-place-input", "Dir-GCN",
                                  "Signed-std"])  # fmt: skip
def test_right_programs_are_right_on_a_part(name, monkeypatch):
    monkeypatch.setattr(
        first_check, "rows_in", lambda _, nbytes: 25 if nbytes == first_check.ROOM else 50
    )
    case, rng = CASES[name], generator(0)
    if isinstance(case, HeteroCase):
        sides = HeteroSides(case)
    else:
        data = case.data_for("coo")
        world = make_world(rng, nodes=60, edges=400, data=data, signed=case.signed)
        sides = SideBySide(case, world=world)
    assert sides.inc.mode in case.mode
    assert sides.inc.explain().checked.endswith("edges of the graph")

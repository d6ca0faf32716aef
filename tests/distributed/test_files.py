"""Saves of a distributed model, loaded on any number of ranks."""

import copy

import pytest
import torch
from torch_geometric.nn import GAT

from pyg_incremental import StateFileError
from pyg_incremental.distributed import DistributedIncrementalModel
from tests.distributed.runs import ADD, ARGS, MODEL, SECOND, expected, on_ranks
from tests.distributed.threads import all_well, run_ranks
from tests.distributed.worlds import travel
from tests.side_by_side import clone
from tests.strategies import EVERY


@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 2), (2, 4), (1, 3), (3, 1)])
def test_a_save_is_loaded_on_any_number_of_ranks(tmp_path, before, after):
    def save(inc):
        inc.apply_delta(ADD if inc.rank == 0 else None)
        inc.save(tmp_path)
        inc.apply_delta(SECOND if inc.rank == 0 else None)
        inc.save(tmp_path)

    on_ranks(before, save)
    assert len(list(tmp_path.iterdir())) == before + 1

    def load(comm):
        inc = DistributedIncrementalModel.load(tmp_path, copy.deepcopy(MODEL), comm)
        assert inc.version == 2
        out = inc.gather_out()
        inc.apply_delta(ADD if inc.rank == 0 else None)
        assert inc.version == 3
        assert inc.verify() < 1e-9
        inc.save(tmp_path)
        return out

    for out in all_well(run_ranks(after, load)):
        assert torch.allclose(out, expected(ADD, SECOND), atol=1e-12)
    assert len(list(tmp_path.iterdir())) == after + 1


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        ("gcn-plain", "csr"), ("data-object", "coo"), ("weights-and-attributes", ""), ("HGT", ""),
        ("SAGE-max", ""), ("attention-node", ""), ("linkx-deep", "coo"), ("embeddings", "coo"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 2)])
def test_saves_of_all_kinds_of_calls(name, fmt, before, after, tmp_path, seed):
    def save(comm):
        journey = travel(comm, name, fmt, seed=seed, single=False)
        journey.walk(["mixed" if "mixed" in journey.plan(EVERY) else "add_edges"])
        journey.inc.save(tmp_path)
        return journey

    journeys = all_well(run_ranks(before, save))

    def load(comm):
        journey = journeys[comm.rank]
        journey.rank, journey.size, journey.single = comm.rank, comm.size, None
        model = journey.inc.model
        journey.inc = DistributedIncrementalModel.load(tmp_path, model, comm)
        journey.out = clone(journey.inc.gather_out())  # sums made afresh round differently
        journey.check_all()
        journey.walk(["remove_node" if "remove_node" in journey.deltas else "remove_nodes"])

    all_well(run_ranks(after, load))


def test_a_save_of_a_graph_with_weights_in_a_data_object(tmp_path):
    torch.manual_seed(2)
    model = GAT(6, 8, 2, 3, edge_dim=1).double().eval()
    attr = torch.rand(ARGS[1].shape[1], 1, dtype=torch.float64)

    def save(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(*ARGS, edge_attr=attr).save(tmp_path)
        return inc.gather_out()

    def load(comm):
        return DistributedIncrementalModel.load(tmp_path, copy.deepcopy(model), comm).gather_out()

    for a, b in zip(all_well(run_ranks(2, save)), all_well(run_ranks(2, load)), strict=True):
        assert torch.allclose(a, b, atol=1e-12)


def test_a_save_that_does_not_fit_is_refused(tmp_path):
    on_ranks(2, lambda inc: inc.save(tmp_path / "a"))
    other = copy.deepcopy(MODEL)
    next(other.parameters()).data += 1

    def errors(folder, model=MODEL):
        def work(comm):
            return DistributedIncrementalModel.load(folder, copy.deepcopy(model), comm)

        got = run_ranks(2, work)
        assert all(isinstance(e, StateFileError) for e in got), got
        assert len({str(e) for e in got}) == 1
        return str(got[0])

    assert "another model" in errors(tmp_path / "a", other)
    assert "holds no save" in errors(tmp_path / "b")
    (file,) = (tmp_path / "a").glob("rank-0001-*")
    file.write_bytes(file.read_bytes()[:-1])
    assert "cannot be read" in errors(tmp_path / "a")
    (tmp_path / "a" / "manifest.json").write_text("{}")
    assert "is not a manifest" in errors(tmp_path / "a")


def test_ranks_that_do_not_see_one_folder_save_nothing(tmp_path):
    """As on two machines without a shared disk, or with a relative path."""
    last = tmp_path / "0"

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(MODEL), comm)
        inc(*ARGS)
        inc.save(last)
        inc.apply_delta(ADD if inc.rank == 0 else None)
        with pytest.raises(FileNotFoundError, match=r"none of ranks \[.*a shared disk"):
            inc.save(tmp_path / str(inc.rank))
        assert inc.verify() < 1e-9
        inc.apply_delta(SECOND if inc.rank == 0 else None)

    all_well(run_ranks(2, run))
    assert not list((tmp_path / "1").iterdir())
    saved = [path.name for path in last.iterdir()]
    assert len(saved) == 3
    assert not [name for name in saved if "version-1" in name]

    def load(comm):
        return DistributedIncrementalModel.load(last, copy.deepcopy(MODEL), comm).gather_out()

    for out in all_well(run_ranks(2, load)):
        assert torch.allclose(out, expected(), atol=1e-12)

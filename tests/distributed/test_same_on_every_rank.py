"""What differs on one rank is told on all: parameters past PyTorch's counts, features, edges."""

import copy

import pytest

from pyg_incremental import StaleStateError
from pyg_incremental.distributed import DistributedIncrementalModel, PartitionError
from tests.distributed.threads import run_ranks
from tests.trust.small import drawn, sage


@pytest.mark.parametrize("what", ["verify", "save"])
def test_a_number_of_a_parameter_on_one_rank(tmp_path, what):
    model, (x, edge_index) = sage(), drawn()

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        inc(x, edge_index)
        if inc.rank == 1:
            inc.model.convs[0].lin_l.weight.data.view(-1)[5] += 1.0
        inc.verify() if what == "verify" else inc.save(tmp_path / "saved")

    for raised in run_ranks(2, run):
        assert isinstance(raised, StaleStateError)
        assert "changed in place" in str(raised)
    assert not (tmp_path / "saved" / "manifest.json").exists()


@pytest.mark.parametrize("other", ["features", "edges", "order"])
def test_other_inputs_on_one_rank(other):
    model, (x, edge_index) = sage(), drawn()

    def run(comm):
        inc = DistributedIncrementalModel(copy.deepcopy(model), comm)
        given = {"features": (x + 1, edge_index), "edges": (x, edge_index.flip(0))}
        given["order"] = x, edge_index.flip(1)
        inc(*(given[other] if inc.rank == 1 else (x, edge_index)))

    for raised in run_ranks(2, run):
        assert isinstance(raised, PartitionError)
        assert "on rank 1 than on rank 0" in str(raised)

"""Whole models: PyG's own, hand-written, and some that only a full pass can follow."""

import warnings

import pytest
import torch

from pyg_incremental import IncrementalWarning, UnsupportedModelError, to_incremental
from pyg_incremental.ops import maps as executors
from tests.side_by_side import SideBySide
from tests.strategies import generator, make_world
from tests.zoo import FULL, INCREMENTAL, MIXED
from tests.zoo_edges import EDGE_CASES, EDGE_MIXING_CASES
from tests.zoo_models import MIXING_CASES
from tests.zoo_models import MODEL_CASES as HARMLESS
from tests.zoo_traps import TRAP_CASES

MODEL_CASES = [*HARMLESS, *EDGE_CASES, *TRAP_CASES]

# PyG says so whenever it is given a CSC adjacency.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

STRICT_OK = [case for case in MODEL_CASES if case.mode == INCREMENTAL]
RUNS = [
    pytest.param(case, fmt, id=f"{case}-{fmt}")
    for case in MODEL_CASES
    for fmt in case.formats
    if fmt != "sparse_tensor"
]


def wrap(case, fmt, **options):
    """Models of which something runs on all rows say so, once; the others stay silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Converting sparse tensor to CSR")
        warnings.simplefilter("always", IncrementalWarning)
        sides = SideBySide(case, fmt, **options)
    said = [str(w.message) for w in caught]
    assert len(said) == (sides.inc.mode != "incremental"), said
    return sides


@pytest.mark.matrix
@pytest.mark.parametrize(("case", "fmt"), RUNS)
def test_exact_in_float64(case, fmt, seed):
    sides = wrap(case, fmt, seed=seed, compile_after=case.compiled_from(fmt))
    assert sides.inc.mode in case.mode
    assert sides.inc.mode in repr(sides.inc)
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", MODEL_CASES, ids=str)
def test_exact_on_reference_kernels(case, seed):
    sides = wrap(case, case.formats[0], seed=seed + 1, backend="reference")
    sides.walk(["mixed", "change_features", "nan_comes", "mixed", "not_finite_goes", "mixed",
                "remove_hub", "delete_then_add", "change_edge_data", "all_edges_leave", "refill",
                "undirected_mix", "new_nodes_with_edges"])  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("case", STRICT_OK, ids=str)
def test_many_rows_are_computed_in_parts(case, backend, seed, monkeypatch):
    """These models are incremental, so `strict` refuses none of them."""
    monkeypatch.setattr(executors, "PART", 2)
    strict = backend == "compiled"
    sides = wrap(case, case.formats[0], seed=seed + 3, backend=backend, strict=strict)
    assert sides.inc.mode in case.mode
    sides.walk()


@pytest.mark.matrix
@pytest.mark.parametrize("case", MODEL_CASES, ids=str)
def test_close_in_float32(case, seed):
    sides = wrap(case, case.formats[0], dtype=torch.float32, seed=seed + 2)
    sides.walk(["mixed", "change_features", "mixed", "infinity_comes", "mixed", "not_finite_goes",
                "grow_hub", "change_hub", "delete_edges", "zero_degree", "mixed"])  # fmt: skip


def test_the_zoo_is_large():
    assert len({case.name for case in MODEL_CASES}) == len(MODEL_CASES) >= 40
    modes = [case.mode for case in MODEL_CASES]
    assert modes.count(INCREMENTAL) >= 40
    assert MIXED in modes
    assert FULL in modes


@pytest.mark.parametrize("case", [*MIXING_CASES, *EDGE_MIXING_CASES], ids=str)
def test_strict_refuses_what_mixes_rows(case, seed):
    model, _ = case.build(seed)
    world = make_world(generator(seed), data=case.data)
    with pytest.raises(UnsupportedModelError):
        case.call(to_incremental(model, strict=True), world.inputs())

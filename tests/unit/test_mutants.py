"""The list of mistakes belongs to the package as it is; `make mutants` makes them."""

import ast
from pathlib import Path

import pytest

from tests.mutants.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mistake_can_be_made(mutation):
    text = (ROOT / "pyg_incremental" / mutation.file).read_text()
    assert text.count(mutation.old) == 1, "the source has changed: say what the mistake is now"
    ast.parse(text.replace(mutation.old, mutation.new))
    assert all((ROOT / name).exists() for name in mutation.first)


def test_mistakes_are_told_apart():
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS)

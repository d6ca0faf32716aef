"""The configurations that are drawn for the walks: any two settings meet."""

import itertools

import pytest

from tests.contract import test_all_cases as walks
from tests.pairwise import Drawn, pairs, rows
from tests.signatures import representatives
from tests.zoo_all import PLAIN, SEVERAL

FACTORS = {"a": (1, 2), "b": ("x", "y", "z"), "c": (None, True), "d": (1, 2, 3, 4)}


def test_any_two_settings_meet():
    chosen = rows(FACTORS)
    met = {pair for row in chosen for pair in pairs(row)}
    for (one, few), (other, more) in itertools.combinations(FACTORS.items(), 2):
        for x, y in itertools.product(few, more):
            assert ((one, x), (other, y)) in met
    assert 12 <= len(chosen) <= 18  # of 48; the two largest factors alone need 12
    assert rows(FACTORS) == chosen


def test_what_is_drawn_does_not_depend_on_other_cases():
    one, other = Drawn(FACTORS), Drawn(FACTORS)
    other("another", ("coo", "csr"))
    assert one("case", ("coo",)) == other("case", ("coo",))


@pytest.mark.parametrize(
    ("drawn", "factors"),
    [
        (
            walks.WALKS,
            {"fmt": ("coo", "edge_index_by_col", "csr", "csc"), **walks.FACTORS, **walks.PART},
        ),
        (walks.WALKS_OF_SEVERAL, walks.FACTORS),
    ],
    ids=["plain", "several"],
)
def test_the_walks_of_the_zoo_cover_all_pairs(drawn, factors):
    met = {pair for _, row in drawn for pair in pairs(row)}
    every = [dict(zip(factors, row, strict=True)) for row in itertools.product(*factors.values())]
    missing = {pair for row in every for pair in pairs(row)} - met
    assert not missing


def test_every_case_walks_and_some_stand_for_all():
    assert [case for case, _ in walks.WALKS] == PLAIN
    assert [case for case, _ in walks.WALKS_OF_SEVERAL] == SEVERAL
    names = {str(case) for case in (*PLAIN, *SEVERAL)}
    assert representatives() <= names, "run `python -m tests.signatures`"
    assert 50 < len(representatives()) < len(names) / 2

"""Saved rows that are right are found so in one look, and those that are not are named."""

import pytest
import torch

from pyg_incremental import StateFileError
from pyg_incremental.call.checked import Checked
from pyg_incremental.files import restoring


def refused(then, now, is_softmax=False):
    try:
        restoring._refuse_other_rows(
            then, now, "x", Checked("the state", StateFileError), is_softmax
        )
    except StateFileError as error:
        return str(error)
    return ""


def spoiled(seed):
    """Rows and the same rows, of which some are not what they were, in most cases."""
    rng = torch.Generator().manual_seed(seed)
    now = torch.randn(40, 3, generator=rng)
    then = now + 1e-6 * torch.randn(40, 3, generator=rng)
    at = tuple(torch.randint(n, (2,), generator=rng).tolist() for n in (40, 3))
    kinds = [0.0, 1.0, float("nan"), float("inf")]
    for k, of in enumerate((then, now)):
        what = kinds[int(torch.randint(4, (1,), generator=rng))]
        of[at[0][k], at[1][k]] += what
    if seed % 3 == 0:  # at the same place
        then[at[0][0], at[1][0]] = now[at[0][0], at[1][0]] = float("nan")
    return then, now


@pytest.mark.parametrize("is_softmax", [False, True])
def test_the_look_that_is_fast_finds_what_the_slow_one_does(is_softmax, monkeypatch):
    cases = [spoiled(seed) for seed in range(60)]
    monkeypatch.setattr(restoring, "_PART", 16)
    found = [refused(*case, is_softmax) for case in cases]
    monkeypatch.setattr(restoring, "_are_close", lambda then, now: False)
    largest = restoring._largest
    nan = torch.tensor(float("nan"))
    monkeypatch.setattr(restoring, "_largest", lambda t: nan if is_softmax else largest(t))
    assert found == [refused(*case, is_softmax) for case in cases]
    assert 3 < sum(map(bool, found)) < 55


def test_no_rows_and_a_scale_of_what_is_finite():
    assert refused(torch.zeros(0, 3), torch.zeros(0, 3)) == ""
    rows = torch.tensor([[1.0, float("inf")], [-3.0, float("nan")]])
    eps = torch.finfo(torch.float32).eps ** 0.5
    assert restoring._tolerance(rows) == pytest.approx(4.0 * eps)
    assert restoring._tolerance(rows[:1, :1]) == pytest.approx(2.0 * eps)

"""Both sets of kernels are what `Kernels` says, with the same arguments in the same order."""

import inspect

import pytest

from pyg_incremental.kernels import compiled, reference
from pyg_incremental.kernels.protocol import Kernels
from pyg_incremental.kernels.takeover import plain_kernels

NAMES = sorted(name for name in vars(Kernels) if not name.startswith("_"))


def arguments(function):
    return [*inspect.signature(getattr(function, "py_func", function)).parameters]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_takes_the_same_in_both_sets(name):
    wanted = arguments(getattr(Kernels, name))[1:]
    assert arguments(getattr(reference, name)) == wanted
    assert arguments(getattr(compiled, name)) == wanted


def test_there_are_no_others():
    assert sorted(reference.__all__) == NAMES
    assert sorted({*compiled.__all__} - {"REACH"}) == NAMES


def test_the_plain_kernels_of_the_graph_take_the_same_too():
    graphs = {k: plain for k, plain in plain_kernels().items() if not hasattr(plain, "func")}
    assert len(graphs) > 12
    for kernel, plain in graphs.items():
        assert arguments(kernel) == arguments(plain), kernel

"""What is handed out is the caller's, and what is handed in is read as it was meant."""

import numpy as np
import pytest
import torch

from pyg_incremental import InvalidDeltaError
from tests.trust.small import CHANNELS, edge, wrapped


@pytest.mark.parametrize("backend", ["compiled", "reference"])
def test_changed_ids_are_the_callers(backend):
    nodes = 3000  # sets of more than 1,024 ids that ascend already are not sorted anew
    inc = wrapped(nodes=nodes, edges=9000, backend=backend)
    for i in range(3):
        up = inc.apply_delta(x_changes=(torch.arange(nodes), torch.randn(nodes, CHANNELS)))
        assert len(up.changed) == nodes
        up.changed.add_(7_000_000 * (i + 1))
        assert inc.verify() < 1e-3
        assert inc.check() == []


@pytest.mark.parametrize("compile_after", [2, None])
def test_no_result_lies_in_memory_of_the_engine(compile_after):
    nodes = 2000
    inc = wrapped(nodes=nodes, edges=6000, compile_after=compile_after)
    for _ in range(4):
        up = inc.apply_delta(x_changes=(torch.arange(nodes), torch.randn(nodes, CHANNELS)))
        held = [c.ids.array for c in inc._session.engine.cells.values() if c.ids is not None]
        held += [c.rows.numpy() for c in inc._session.engine.cells.values() if c.rows is not None]
        for given in (up.changed, up.out):
            assert not any(np.shares_memory(given.numpy(), array) for array in held)


def test_a_repeated_id_in_refresh():
    inc = wrapped()
    for nodes in ([0] * 1000, torch.zeros(5000, dtype=torch.long), [3, 3, 1]):
        inc.refresh(nodes)
        assert inc.verify() < 1e-5
        assert inc.check() == []


class Frame:
    """As much of a data frame as is needed."""

    def __init__(self, **columns):
        self._columns = columns

    @property
    def columns(self):
        return list(self._columns)

    def __getitem__(self, name):
        return np.array(self._columns[name])

    def __array__(self, dtype=None, copy=None):
        return np.stack(list(map(np.array, self._columns.values())), 1)


@pytest.mark.parametrize("names", [("src", "dst"), ("source", "target")])
@pytest.mark.parametrize("turned", [False, True])
def test_a_table_says_which_column_is_which(names, turned):
    inc = wrapped(edges=0)
    columns = {names[0]: [1, 2], names[1]: [3, 4]}
    table = Frame(**dict(reversed(columns.items())) if turned else columns)
    inc.apply_delta(edge_index_add=table)
    assert inc.graph.to_edge_index().tolist() == [[1, 2], [3, 4]]
    inc.apply_delta(edge_index_del=Frame(**{names[0]: [1], names[1]: [3]}))
    assert inc.graph.to_edge_index().tolist() == [[2], [4]]


def test_a_table_that_does_not_say_is_refused():
    with pytest.raises(InvalidDeltaError, match="'src' and 'dst'"):
        wrapped().apply_delta(edge_index_add=Frame(a=[1, 2], b=[3, 4]))


@pytest.mark.parametrize("given", [[(1, 3), (2, 4)], [[1, 3], [2, 4]], ((1, 2), (3, 4))])
def test_two_lists_of_two_are_refused(given):
    inc = wrapped()
    before = inc.graph.to_edge_index()
    with pytest.raises(InvalidDeltaError, match=r"torch\.tensor"):
        inc.apply_delta(edge_index_add=given)
    assert torch.equal(inc.graph.to_edge_index(), before)
    inc.apply_delta(edge_index_add=np.array(given))
    inc.apply_delta(edge_index_add=[[1, 2, 3], [3, 4, 5]])


def test_read_gives_copies():
    inc = wrapped()
    version, rows = inc.read([3, 1])
    assert version == 0
    assert torch.equal(rows, inc.out[[3, 1]])
    rows += 1
    inc.read().out.zero_()
    assert inc.verify() < 1e-5
    assert inc.apply_delta(edge_index_add=edge(0, 1)).version == inc.read([]).version == 1
    with pytest.raises(InvalidDeltaError, match="node id 40"):
        inc.read([40])

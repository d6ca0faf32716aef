"""A store in files on a disk that is full: an update that finds no room has not happened."""

import errno
import os

import pytest
import torch
from torch_geometric.nn import GraphSAGE

from pyg_incremental import to_incremental
from tests.closeness import assert_close

NODES, CHANNELS = 3000, 8


class Disk:
    """Has room for so many more files."""

    def __init__(self, monkeypatch):
        self.left, self.refused = None, 0
        allocate = os.posix_fallocate

        def takes(handle, offset, size):
            if self.left is not None:
                if self.left <= 0:
                    self.refused += 1
                    raise OSError(errno.ENOSPC, "No space left on device")
                self.left -= 1
            allocate(handle, offset, size)

        monkeypatch.setattr(os, "posix_fallocate", takes)


def stored(folder, aggr, warm):
    torch.manual_seed(0)
    model = GraphSAGE(CHANNELS, 6, 2, 4, aggr=aggr).double().eval()
    inc = to_incremental(model, compile_after=1 if warm else None)
    x = torch.randn(NODES, CHANNELS, dtype=torch.float64)
    edges = torch.randint(NODES, (2, 3 * NODES))
    inc.bootstrap({"x": x, "edge_index": edges}, memory="100kB", directory=folder)
    for _ in range(3):
        inc.apply_delta(edge_index_add=torch.randint(NODES, (2, 4)))
    return inc


def full(inc):
    with torch.no_grad():
        return inc.model(inc.x.clone(), inc.graph.to_edge_index())


def more_nodes(inc):
    return {"x_add": torch.randn(2 * NODES, CHANNELS, dtype=torch.float64)}


def more_edges(inc):
    return {"edge_index_add": torch.randint(NODES, (2, 6 * NODES))}


def fewer_edges(inc):
    edges = inc.graph.to_edge_index()[:, : 2 * NODES]
    return {"edge_index_del": edges, "edge_index_add": torch.randint(NODES, (2, 5 * NODES))}


def both(inc):
    return {**more_nodes(inc), "edge_index_add": torch.randint(3 * NODES, (2, 5 * NODES))}


@pytest.mark.parametrize("warm", [True, False], ids=["compiled", "step by step"])
@pytest.mark.parametrize(
    ("delta", "aggr"),
    [(more_nodes, "mean"), (more_edges, "mean"), (fewer_edges, "mean"), (both, "max")],
)
def test_wherever_there_is_no_room(delta, aggr, warm, tmp_path, monkeypatch):
    """The update is tried with room for 0, 1, 2, ... files more, until it goes through."""
    inc = stored(tmp_path, aggr, warm)
    disk, tries = Disk(monkeypatch), 0
    while True:
        before, version, change = full(inc), inc.version, delta(inc)
        disk.left = tries
        try:
            inc.apply_delta(**change)
            break
        except OSError as error:
            refused = error.errno
        tries += 1
        assert refused == errno.ENOSPC
        assert inc.version == version
        assert not inc.stale
        assert_close(inc.read()[1], before, 1e-9)
        disk.left = 0
        inc.apply_delta(x_changes=([tries], torch.ones(1, CHANNELS, dtype=torch.float64)))
        disk.left = None
        assert_close(inc.out, full(inc), 1e-9)
    assert tries >= 3
    disk.left = None
    assert_close(inc.out, full(inc), 1e-9)
    inc.refresh()
    inc.apply_delta(edge_index_add=torch.randint(NODES, (2, 9)))
    assert_close(inc.out, full(inc), 1e-9)
    assert inc.check() == []

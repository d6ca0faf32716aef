"""What is shown at a prompt, in an editor, in a notebook."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN

import pyg_incremental
from pyg_incremental import DynamicGraph, GraphDelta, to_incremental

ONE, ROW = torch.tensor([[0], [1]]), torch.ones(1, 4)


class Frame:
    columns = ("src", "dst")

    def __len__(self):
        return 3


SHOWN = {
    "edge_index_add=1 edge, undirected=True": GraphDelta(ONE, undirected=True),
    "edge_index_add=2 edges": GraphDelta([[0, 1], [1, 2]]),
    "edge_index_del=1,000 edges": GraphDelta(edge_index_del=np.zeros((2, 1000), int)),
    "edge_index_add=3 edges": GraphDelta(Frame()),
    "x_changes=2 nodes": GraphDelta(x_changes=([0, 1], torch.ones(2, 4))),
    "x_changes=1 node, x_add=1 node": GraphDelta(x_changes=(0, ROW[0]), x_add=ROW[0]),
    "edge_changes=1 edge": GraphDelta(edge_changes=(ONE, {"edge_weight": [1.0]})),
    "nodes_del=1 node, missing='ignore'": GraphDelta(nodes_del=3, missing="ignore"),
    "edge_index_add={('a', 'to', 'b'): 1 edge}": GraphDelta({("a", "to", "b"): ONE}),
    "edge_data_add={'cost': 1 row}": GraphDelta(edge_data_add={"cost": [1.0]}),
    "edge_index_add=...": GraphDelta(5),
}


@pytest.mark.parametrize("words", SHOWN)
def test_a_delta_says_how_much_it_names(words):
    assert repr(SHOWN[words]) == f"GraphDelta({words})"


def test_what_would_be_says_so(seed):
    inc = to_incremental(GCN(4, 6, 2, 3).eval(), backend="reference")
    assert "not called yet" in inc._repr_html_()
    inc(torch.randn(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    tried, done = inc.preview(ONE), inc.apply_delta(ONE)
    (many,) = inc.preview_many([GraphDelta(ONE)])
    assert tried.is_preview
    assert many.is_preview
    assert repr(tried).startswith("Preview(of version=0, would change ")
    assert not done.is_preview
    assert repr(done).startswith("Update(version=1, changed=")
    assert done._repr_html_().count("<tr>") == 1 + len(done.stats.steps)
    assert done.stats._repr_html_().count("<tr>") == 1 + len(done.stats.steps)
    memory = inc.memory_report()
    assert memory._repr_html_().count("<tr>") == 1 + len(memory.parts)
    assert str(memory).splitlines()[-1] in memory._repr_html_()
    assert "<table>" in inc._repr_html_()
    shown = [name for name in dir(inc.graph) if not name.startswith("_")]
    assert len(shown) < 12
    assert all(hasattr(inc.graph, name) for name in shown)


def test_all_names_are_there_and_no_others():
    for name in pyg_incremental.__all__:
        assert getattr(pyg_incremental, name).__name__ == name
        assert name in dir(pyg_incremental)
    assert pyg_incremental.update.Update is pyg_incremental.Update
    assert pyg_incremental.IncrementalTAGConv.__name__ == "IncrementalTAGConv"
    with pytest.raises(AttributeError, match="no_such_name"):
        pyg_incremental.no_such_name  # noqa: B018


def test_the_page_on_the_graph_lists_what_editors_complete():
    page = (Path(__file__).parents[2] / "docs/source/reference/graph.md").read_text()
    listed = page.partition(":members: ")[2].partition("\n")[0].split(", ")
    shown = {name for name in dir(DynamicGraph(ONE, 2)) if not name.startswith("_")}
    assert {*listed} | {"num_nodes", "num_edges", "edge_data"} == shown
    assert all(f"| `{name}` |" in page for name in shown - {*listed})

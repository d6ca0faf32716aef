"""`up.plot()` and `inc.plot_graph(nodes)` draw what they are asked for."""

import matplotlib as mpl
import pytest
import torch
from torch_geometric.nn import GCN, HeteroConv, SAGEConv

from pyg_incremental import InvalidDeltaError, UnsupportedModelError, to_incremental

mpl.use("Agg")
PATH = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])


@pytest.fixture(autouse=True)
def closed():
    yield
    mpl.pyplot.close("all")


def on_a_path(**named):
    inc = to_incremental(GCN(3, 4, 2, 2).eval(), backend="reference")
    inc(torch.ones(6, 3), PATH, **named)
    return inc


def texts(axes):
    return {text.get_text() for text in axes.texts}


def test_an_update_shows_rows_and_changes_of_every_step():
    up = on_a_path().apply_delta(edge_index_add=[[0], [3]])
    axes = up.plot()
    steps = up.stats.steps
    assert [t.get_text() for t in axes.get_yticklabels()] == [f"{s.name} ({s.kind})" for s in steps]
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    assert widths == [[s.rows for s in steps], [s.changed for s in steps]]
    assert axes.get_title(loc="left") == repr(up)
    assert up.plot(axes) is axes


def test_a_graph_is_drawn_with_what_reaches_the_nodes():
    inc = on_a_path()
    assert texts(inc.plot_graph([3])) == {"1", "2", "3"}
    assert texts(inc.plot_graph([3], hops=1)) == {"2", "3"}
    inc.apply_delta(edge_index_add=[[5], [3]])
    assert texts(inc.plot_graph([3], hops=1)) == {"2", "3", "5"}
    named = on_a_path(node_ids=list("abcdef"))
    assert texts(named.plot_graph(["d"], hops=1)) == {"c", "d"}


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(InvalidDeltaError, match="nodes"):
        on_a_path().plot_graph([6])
    star = torch.stack([torch.arange(1, 300), torch.zeros(299, dtype=torch.int64)])
    inc = to_incremental(SAGEConv(3, 2).eval(), backend="reference")
    inc(torch.ones(300, 3), star)
    with pytest.raises(UnsupportedModelError, match="300 nodes reach these in 2 hops"):
        inc.plot_graph([0])
    ways = [("a", "to", "b"), ("b", "to", "a")]
    model = HeteroConv({way: SAGEConv((3, 3), 2) for way in ways})
    inc = to_incremental(model.eval(), backend="reference")
    inc({t: torch.ones(6, 3) for t in "ab"}, dict.fromkeys(ways, PATH))
    with pytest.raises(UnsupportedModelError, match="one type of nodes"):
        inc.plot_graph({"a": [1]})

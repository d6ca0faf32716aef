"""What a user writes: `make types` finds nothing in it, and nothing of ours is `Any`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import assert_type

from pyg_incremental import (
    DynamicGraph,
    GraphDelta,
    IncrementalModel,
    InvalidDeltaError,
    StaleStateError,
    Update,
    UpdateStats,
    evaluate,
    load,
    to_incremental,
)
from pyg_incremental.engine.memory import MemoryReport
from pyg_incremental.session.explain import Explanation
from pyg_incremental.sources import SqliteLog
from pyg_incremental.stream import Schema, Stream
from pyg_incremental.update import Crossed, Flips


class Model(nn.Module):
    """A model of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out.index_add(0, edge_index[1], out[edge_index[0]])


def start(x: Tensor, edge_index: Tensor) -> IncrementalModel:
    inc = to_incremental(Model().eval(), strict=True, backend="auto", store="minimal")
    out = inc(x, edge_index)
    assert_type(inc, IncrementalModel[Tensor])
    assert_type(out, Tensor)
    return inc


def by_type(model: nn.Module) -> IncrementalModel[dict[str, Tensor]]:
    inc: IncrementalModel[dict[str, Tensor]] = to_incremental(model)
    assert_type(inc.out, dict[str, Tensor])
    return inc


def deltas() -> Iterator[GraphDelta]:
    yield GraphDelta(edge_index_add=torch.tensor([[0], [1]]), undirected=True)
    yield GraphDelta(edge_index_del=np.array([[0], [1]]), missing="ignore")
    yield GraphDelta(x_changes=([0], torch.ones(1, 4)), nodes_del=[2])
    yield GraphDelta(edge_changes=([[0], [1]], {"edge_weight": [0.5]}))
    yield GraphDelta(edge_index_add={("a", "to", "b"): torch.tensor([[0], [1]])})
    yield GraphDelta(x_add=torch.ones(2, 4)) + GraphDelta(x_changes=(0, [1.0, 2.0, 3.0, 4.0]))


def told(up: Update) -> str:
    assert_type(up.changed, Tensor)
    assert_type(up.out, Tensor)
    assert_type(up.stats, UpdateStats)
    assert_type(up.version, int)
    assert_type(up.old, Tensor | None)
    assert_type(up.undo, GraphDelta)
    assert_type(up.refused[0].reason, str)
    assert_type(up.flips, Flips | Any)  # by type of nodes or edges: a dict
    assert_type(up.crossed(0.5), Crossed)
    stats: UpdateStats = up.stats
    return f"{up.changed.numel()} rows, {stats.seconds} s, {stats.rows}, {up.out.shape[1]} channels"


def run(inc: IncrementalModel, path: Path) -> None:
    for delta in deltas():
        try:
            up = inc.apply_delta(delta, delta_id="a", old=True)
        except InvalidDeltaError as error:
            print(error.what, error.positions)
            continue
        except StaleStateError:
            up = inc.refresh()
        print(told(up))
    assert_type(
        inc.apply_delta(x_add=torch.ones(1, 4), which="oldest", invalid="skip"), Update[Tensor]
    )
    assert_type(
        inc.apply_delta(torch.tensor([[0], [1]]), None, ([0], np.ones((1, 4)))), Update[Tensor]
    )
    assert_type(inc.preview(nodes_del=[0], undirected=True), Update[Tensor])
    assert_type(inc.preview_many(deltas())[0], Update[Tensor])
    assert_type(by_type(inc.model).preview(nodes_del={"a": [0]}), Update[dict[str, Tensor]])
    inc.preview(add=[0])  # type: ignore[call-arg]
    inc.apply_delta(edges=[[0], [1]])  # type: ignore[call-arg]
    inc.apply_delta(missing="never")  # type: ignore[arg-type]
    inc.apply_delta(x_add="three")  # type: ignore[arg-type]
    assert_type(inc.read([0, 1]).version, int)
    assert_type(inc.read([0, 1]).out, Tensor)
    assert_type(inc.out, Tensor)
    assert_type(inc.x, Tensor | Any)  # by type of nodes or edges: a dict
    assert_type(inc.graph, DynamicGraph | Any)  # by type of nodes or edges: a dict
    assert_type(inc.num_nodes, int)
    assert_type(inc.mode, str)
    assert_type(inc.verify().is_fine, bool)
    graph: DynamicGraph = inc.graph
    assert_type(graph.num_edges, int)
    assert_type(graph.to_edge_index(), Tensor)
    inc.save(path)
    again = load(path, inc.model)
    assert_type(again, IncrementalModel[Tensor])
    assert_type(again.memory_report(), MemoryReport)
    assert_type(inc.explain(), Explanation)
    handle = inc.on_update(lambda up: print(up.changed.shape), old=True)
    handle.remove()
    whole = evaluate(inc.model, {"x": inc.x, "edge_index": graph.to_edge_index()})
    assert_type(whole, Tensor)
    schema = Schema(src="from", dst="to", edge_data={"edge_weight": "amount"})
    with Stream(inc, SqliteLog(path), schema, directory=path) as stream:
        assert_type(stream.drain(), int)
        watch = stream.on(lambda alert: print(alert.node), flipped=True)
        assert_type(watch.given, int)

"""What a saved state holds, without the model that it belongs to."""

import os
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pyg_incremental.call.checked import Checked
from pyg_incremental.delta.names import NameTable
from pyg_incremental.files import earlier, snapshot


@dataclass(frozen=True)
class SavedState:
    """Graph, features, names and what else a file holds of a model's state.

    Attributes:
        format: The number of the format that the file is in; see "Versions and formats".
        version: How many updates had been applied.
        num_nodes: Numbers of nodes by type; `''` where there is one type.
        nodes: Node inputs by the name of the argument, `[num_nodes, ...]`.
        edge_index: Edges by the name of the argument or type, int64 `[2, num_edges]`.
        edge_data: Data of edges, `[num_edges, ...]`, by the same names and their own.
        others: Other tensors that the model was called with, by name, of any shape.
        plain: Arguments that are no tensors.
        node_ids: Names of nodes by type, a list each; empty where they have none.
        removed: Ids of removed nodes by type, int64 `[d]`.
        extra: What `save(extra=)` was given.
    """

    format: int
    version: int
    num_nodes: dict[str, int]
    nodes: dict[str, Tensor]
    edge_index: dict[str, Tensor]
    edge_data: dict[str, dict[str, Tensor]]
    others: dict[str, Any]
    plain: dict[str, Any]
    node_ids: dict[str, list[Any]]
    removed: dict[str, Tensor]
    extra: Any

    def __repr__(self) -> str:
        edges = sum(index.shape[1] for index in self.edge_index.values())
        return (
            f"{type(self).__name__}(format={self.format}, version={self.version}, "
            f"num_nodes={sum(self.num_nodes.values())}, num_edges={edges}, "
            f"nodes={sorted(self.nodes)}, edge_index={sorted(self.edge_index)})"
        )


def read_state(path: str | os.PathLike[str]) -> SavedState:
    """Open a saved state of any format, without its model. No code from it is executed.

    Graph, features, names and `extra` of every format since the first are there, also where `load`
    refuses the file, as it belongs to a model that nobody has.

    Args:
        path: The file.

    Raises:
        StateFileError: If the file is cut off or damaged, or no saved state.
        FileNotFoundError: If there is no such file.
    """
    form, content = snapshot.read_any(path)
    for name in earlier.OBJECTS:
        content.pop(name, None)
    content, checked = earlier.as_today(path, content), Checked(str(path))
    held = {"names", "num_nodes", "nodes", "graphs", "others", "rows", "constants", "node_ids"}
    checked.same(sorted(held - content.keys()), [], "what is missing")
    graphs = {name: dict(state) for name, state in content["graphs"].items()}
    return SavedState(
        form,
        content["version"],
        content["num_nodes"],
        {name: content["rows"][name] for name in content["nodes"]},
        {name: state.pop("edge_index") for name, state in graphs.items()},
        graphs,
        content["others"],
        content["constants"],
        {kind: NameTable.restored(t).names.tolist() for kind, t in content["node_ids"].items()},
        content["removed"],
        content["extra"],
    )

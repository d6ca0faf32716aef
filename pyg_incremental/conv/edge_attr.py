"""The edge attributes of convs with a `lin_edge`, and those of the self-loops they add."""

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from pyg_incremental.conv.call import ConvCall
from pyg_incremental.ops import Neighborhood
from pyg_incremental.program.steps import NotIncremental, Value


def edge_attr(call: ConvCall) -> Value | None:
    """The edge attributes that PyG would use, `[num_edges, edge_dim]`, or None."""
    if call.conv.lin_edge is None:
        return None
    attr = call.coo_edge("edge_attr")
    if call.format == "sparse_tensor" and not getattr(call.conv, "add_self_loops", False):
        attr = call.weights
    elif attr is None or call.example(attr).dim() > 1:
        return attr
    return None if attr is None else call.map("edge_attr", _columns, attr)


def _columns(attr: Tensor) -> Tensor:
    return attr.view(-1, 1) if attr.dim() == 1 else attr


def check_loops(source: Value, target: Value) -> None:
    """Refuse self-loops between two sets of nodes.

    PyG adds one for every id that is there in both.
    """
    if source.kind != target.kind:
        raise NotIncremental("it adds self-loops between two sets of nodes")


def loop_attr(call: ConvCall, attr: Value, x: Value) -> Value:
    """The attributes of a self-loop at every node as `fill_value` says, `[num_nodes, edge_dim]`.

    Args:
        call: The call of a conv with `fill_value`.
        attr: The edge attributes.
        x: Node rows; only their number, dtype and device matter.
    """
    conv, fill = call.conv, call.conv.fill_value
    if isinstance(fill, str):

        def filled(around: Neighborhood) -> Tensor:
            attr, index = around.edge[0], around.index
            rows: Tensor = scatter(attr, index, 0, around.num_rows, reduce=fill)
            return rows

        # PyG always gathers over the second row of `edge_index` here, whatever `flow` says.
        return call.rows("fill", filled, edges=(attr,), loops="drop", reverse=call.turned)

    def constant(x: Tensor) -> Tensor:
        row = torch.as_tensor(fill, dtype=x.dtype, device=x.device)
        return row.reshape(1, -1).expand(x.shape[0], conv.edge_dim)

    return call.map("fill", constant, x)

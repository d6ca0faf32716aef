"""What a model in one process can do and ranks cannot, with the reason."""

from collections.abc import Mapping
from typing import Any, NoReturn

from torch import nn

from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.session.by_name import taken_out
from pyg_incremental.session.edge_ids import ids_taken_out

OLD = (
    "old: the OLD rows are not kept on ranks; keep a copy of `out` (of this rank's nodes), which "
    "`changed` and `out` of each update keep current"
)
WHICH = (
    "which='oldest': ranks look for the edge of a pair that was added last; delete all edges of "
    "the pair and add those again that stay"
)
APART = (
    "edge_data_del, or a table of edges to delete with their data: ranks look for the edge of a "
    "pair that was added last; delete all edges of the pair and add those again that stay"
)
NAMES = (
    "node_ids: ranks call nodes by their rows, 0 to num_nodes - 1; keep which name has which row "
    "beside the model, rows = {name: row for row, name in enumerate(node_ids)}, and give new nodes "
    "the rows that follow"
)
EDGE_NAMES = (
    "edge_ids: ranks know ids of edges that are integers, and no names; keep a number for each "
    "name beside the model, and pass a tensor of these"
)
BY_ID = (
    "edge_ids_del: ranks look for the edge of a pair that was added last; name both ends of the "
    "edge, edge_index_del=[[source], [target]]; of parallel edges delete all and add those again "
    "that stay"
)
INVALID = "invalid='skip': ranks agree on a delta as a whole; leave out what the error says of it"


def without_names(model: nn.Module, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a first call by name, ids of edges as a tensor.

    Raises:
        UnsupportedModelError: If nodes or edges have names, and the model takes no argument of that
            name.
    """
    given = dict(arguments)
    if taken_out(model, given) is not None:
        raise UnsupportedModelError(NAMES)
    if ids_taken_out(model, given):
        raise UnsupportedModelError(EDGE_NAMES)
    return given


class OneProcessOnly:
    """Methods of `IncrementalModel` that ranks refuse. No collectives: each raises by itself."""

    def preview(self, *changes: Any, **fields: Any) -> NoReturn:
        """Refused: a preview is undone from a copy of the whole state, which no rank holds.

        Raises:
            UnsupportedModelError: Always.
        """
        raise UnsupportedModelError(
            "preview: ranks cannot try a delta without keeping it, as each holds a part of the "
            "state and what it has sent cannot be called back; apply it, and hand in what "
            "inverse() has returned before, to undo it"
        )

    def compact(self) -> NoReturn:
        """Refused: other ranks know a node by its id.

        Raises:
            UnsupportedModelError: Always.
        """
        raise UnsupportedModelError(
            "compact: on ranks ids stay as they are, as other ranks know a node by its id; to give "
            "the memory of removed nodes back, start anew from the nodes that are left"
        )

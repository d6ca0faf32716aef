"""What a model in one process can do and ranks cannot, with the reason."""

from typing import Any, NoReturn

from pyg_incremental.errors import UnsupportedModelError

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
INVALID = "invalid='skip': ranks agree on a delta as a whole; leave out what the error says of it"


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

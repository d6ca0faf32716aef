"""One call that a model makes, with its arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyg_incremental.trace.nested import leaves
from pyg_incremental.trace.sizes import may_be_one


@dataclass(frozen=True)
class Call:
    """A call, as a node of a graph has it, and how it is run."""

    op: str
    target: Any
    name: str
    run: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any]

    @property
    def shown(self) -> str:
        """Its name in the words of an error message."""
        return self.name.strip("<>").removeprefix("model.")

    @cached_property
    def leaves(self) -> list[Any]:
        """Its arguments, out of their lists and dicts."""
        return leaves((self.args, self.kwargs))


def depends_on_ones(call: Call, fakes: Any) -> bool:
    """Whether a graph of one node would give another shape: symbols are taken to be more than one.

    Operations on a single row differ in `squeeze` alone.
    """
    if not call.name.startswith("squeeze"):
        return False
    before = call.leaves[0]
    dims = call.kwargs.get("dim", call.args[1] if len(call.args) > 1 else range(before.dim()))
    each = [dims] if isinstance(dims, int) else dims
    return any(may_be_one(before.shape[d]) for d in each)

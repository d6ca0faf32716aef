"""Who is told of updates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from pyg_incremental.errors import IncrementalError
from pyg_incremental.update import Update


class Listeners:
    """Methods that are called with every update.

    Attributes:
        methods: The methods, in the order in which they came, by the ids of their handles.
        asks_old: For those that ask for OLD rows, that they do.
    """

    def __init__(self) -> None:
        self.methods: OrderedDict[int, Callable[[Update[Any]], Any]] = OrderedDict()
        self.asks_old: OrderedDict[int, bool] = OrderedDict()

    def add(self, method: Callable[[Update[Any]], Any], old: bool) -> RemovableHandle:
        """One more, which may ask for OLD rows; a handle that takes it away again."""
        if not callable(method):
            raise IncrementalError(
                f"on_update: expected something to call (got {type(method).__name__}); pass a "
                "function of an Update, as in on_update(print)"
            )
        handle = RemovableHandle(self.methods, extra_dict=self.asks_old)
        self.methods[handle.id] = method
        if old:
            self.asks_old[handle.id] = True
        return handle

    def tell(self, update: Update[Any]) -> None:
        """Call all of them."""
        for method in [*self.methods.values()]:
            method(update)

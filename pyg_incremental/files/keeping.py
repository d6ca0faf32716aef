"""A model saved to a file and taken up from there."""

import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from pyg_incremental.call.method import module_of
from pyg_incremental.delta.journal import Committed
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.files import saving
from pyg_incremental.files.saving import Saved
from pyg_incremental.session import start
from pyg_incremental.session.by_name import NodeNames
from pyg_incremental.session.parameters import refuse_autocast

Model = TypeVar("Model", bound="Keeping")


class Keeping:
    """The part of an incremental model that knows files."""

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Save graph, features and all stored rows, but not the model. See `load`.

        What is saved is one version; updates wait while it is copied, and no longer.

        Raises:
            StaleStateError: If the stored state is stale.
            UnsupportedModelError: If the model was called with arguments that are neither tensors
                nor plain values.
            OSError: If the file cannot be written, or the path leads to a folder, a pipe, a device
                or a socket.
        """

        def look() -> Saved:
            self._refuse_stale(exactly=True)
            session = self._require()
            names, removed = self._settled(session), self._removed.by_kind()
            saved = {} if names is None else names.saved()
            return saving.copied(session, self._scrub.next, removed, saved)

        saving.save(path, self.model, self._settings, self._turns.read(look))

    @classmethod
    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def load(
        cls: type[Model],
        path: str | os.PathLike[str],
        model: nn.Module | Callable[..., Any],
        **settings: Any,
    ) -> Model:
        """Continue from a saved state.

        Args:
            path: The file. No code from it is executed.
            model: The model that the state belongs to, with the parameters it had.
            **settings: As for `to_incremental`; `accumulate_dtype` and `store` are those of the
                saved state by default.

        Raises:
            StateFileError: If the file is cut off or damaged, or belongs to another model: to other
                parameters, or to one that computes other outputs on the saved graph.
        """
        model = module_of(model)
        content = saving.read(path, model)
        settings.setdefault("accumulate_dtype", saving.sums_of(content))
        settings.setdefault("store", content["store"])
        made: Any = cls
        loaded = made(model, **settings)
        loaded._refuse_training()
        refuse_autocast()
        start.begin_kernels(model, loaded._settings)
        session = saving.restored(path, content, model, loaded._settings)
        loaded._take(session, Committed(content["version"], content["deltas"]))
        loaded._scrub.next = content["scrub_next"]
        loaded._names = NodeNames.restored(content["node_ids"]) if content["node_ids"] else None
        loaded._removed.note({kind: ids.numpy() for kind, ids in content["removed"].items()})
        return loaded  # type: ignore[no-any-return]

    def __reduce__(self) -> NoReturn:
        """Neither copies nor pickles: rows and the kernels' views of them would come apart."""
        raise UnsupportedModelError(
            f"{type(self).__name__} cannot be copied or pickled; use save(path) and load(path, "
            "model), or wrap a copy of the model"
        )

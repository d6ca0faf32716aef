"""A model saved to a file and taken up from there."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn
from typing_extensions import Unpack

from pyg_incremental.call.method import module_of
from pyg_incremental.delta.journal import Committed
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.files import saving
from pyg_incremental.files.saving import Saved
from pyg_incremental.session import start
from pyg_incremental.session.by_name import Names
from pyg_incremental.session.compact import Removed
from pyg_incremental.session.parameters import refuse_autocast
from pyg_incremental.session.settings import Options

_log = logging.getLogger(__name__)
Model = TypeVar("Model", bound="Keeping")


class Keeping:
    """The part of an incremental model that knows files."""

    extra: Any = None
    """What `save` was given beside the state, of a state that was loaded; else None."""

    def save(self: Any, path: str | os.PathLike[str], *, extra: Any = None) -> None:
        """Save graph, features and all stored rows, but not the model. See `load`.

        What is saved is one version; updates wait while it is copied, and no longer.

        Args:
            path: The file.
            extra: What belongs to this version and is to be written with it, such as the position
                of a stream: numbers, strings, tensors, lists and dicts. It is there as `extra` of
                what is loaded.

        Raises:
            StaleStateError: If the stored state is stale.
            UnsupportedModelError: If the model was called with arguments that are neither tensors
                nor plain values.
            OSError: If the file cannot be written, or the path leads to a folder, a pipe, a device
                or a socket.
        """
        self.copied(extra=extra)(path)

    def copied(self: Any, *, extra: Any = None) -> Callable[[str | os.PathLike[str]], None]:
        """Copy what `save` would write, now; what is returned writes it to a file, at any time.

        Updates wait for the copy alone. Arguments and errors are those of `save`.
        """

        def look() -> Saved:
            self._refuse_stale(exactly=True)
            session = self._require()
            names, removed = self._settled(session), self._removed.by_kind()
            saved = ({}, {}) if names is None else names.saved(session)
            return saving.copied(session, self._scrub.next, removed, saved, extra)

        saved = self._turns.read(look)

        def write(path: str | os.PathLike[str]) -> None:
            began = time.perf_counter()
            saving.save(path, self.model, self._settings, saved)
            took, size = time.perf_counter() - began, os.path.getsize(path)
            version = saved.content["version"]
            _log.info("saved version %d to '%s': %d bytes, %.3f s", version, path, size, took)

        return write

    @classmethod
    def load(
        cls: type[Model],
        path: str | os.PathLike[str],
        model: nn.Module | Callable[..., Any],
        **options: Unpack[Options],
    ) -> Model:
        """Continue from a saved state.

        Args:
            path: The file. No code from it is executed.
            model: The model that the state belongs to, with the parameters it had.
            **options: As for `to_incremental`; `accumulate_dtype` and `store` are those of the
                saved state by default.

        Raises:
            StateFileError: If the file is cut off or damaged, or belongs to another model: to other
                parameters, or to one that computes other outputs on the saved graph.
        """
        content = saving.read(path, module_of(model))
        options.setdefault("accumulate_dtype", saving.sums_of(content))
        options.setdefault("store", content["store"])
        made: Any = cls
        loaded = made(module_of(model), **options)
        loaded._continue_from(path, content)
        return loaded  # type: ignore[no-any-return]

    def restore(self: Any, path: str | os.PathLike[str]) -> None:
        """Take up a saved state in the place of what is stored, if anything is.

        Args:
            path: The file. No code from it is executed.

        Raises:
            StateFileError: As for `load`.
        """

        def restored() -> None:
            self._continue_from(path, saving.read(path, self.model))

        self._turns.alone("restore", restored)

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _continue_from(self: Any, path: str | os.PathLike[str], content: dict[str, Any]) -> None:
        began = time.perf_counter()
        self._refuse_training()
        refuse_autocast()
        start.begin_kernels(self.model, self._settings)
        session = saving.restored(path, content, self.model, self._settings)
        self._take(session, Committed(content["version"], content["deltas"]))
        self._scrub.next = content["scrub_next"]
        self._names = Names.restored(session, content["node_ids"], content["edge_ids"])
        self._removed = Removed()
        self._removed.note({kind: ids.numpy() for kind, ids in content["removed"].items()})
        self.extra = content["extra"]
        self._say_computed(f"load of version {content['version']} from '{path}'", began)

    def __reduce__(self) -> NoReturn:
        """Neither copies nor pickles: rows and the kernels' views of them would come apart."""
        raise UnsupportedModelError(
            f"{type(self).__name__} cannot be copied or pickled; use save(path) and load(path, "
            "model), or wrap a copy of the model"
        )

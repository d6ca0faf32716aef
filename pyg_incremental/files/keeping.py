"""A model saved to a file and taken up from there."""

import logging
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn
from typing_extensions import Unpack

from pyg_incremental.call.method import module_of
from pyg_incremental.delta.journal import Committed
from pyg_incremental.encoding.whole_file import ASIDE, taken_in
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.files import saving
from pyg_incremental.files.forked import CAN_FORK, forked
from pyg_incremental.files.saving import Saved
from pyg_incremental.session import start
from pyg_incremental.session.by_name import Names
from pyg_incremental.session.compact import Removed
from pyg_incremental.session.parameters import refuse_autocast
from pyg_incremental.session.session import Session
from pyg_incremental.session.settings import Options
from pyg_incremental.session.stored import stored_rows

SMALL = 1 << 24
"""Bytes of rows that are copied sooner than a process forks."""
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
        saved = self._rwlock.read(lambda: self._copied(self._at_rest(), extra, copy=True))
        return lambda path: self._write(path, saved)

    def saved_aside(
        self: Any, path: str | os.PathLike[str], extra: Callable[[], Any]
    ) -> Callable[[], None] | None:
        """Have a forked process write what `save` would, so that updates wait for the fork alone.

        It writes beside the file, and takes its place when it is waited for: if this process dies
        before, nothing has happened.

        Args:
            path: The file.
            extra: Makes what is written with it, in that process.

        Returns:
            What waits for the file and raises `OSError` if it could not be written; what was there
            is as it was then. None where there is little to copy, or a fork would not see one
            state, or not survive: rows lie in files (`bootstrap(directory=)`) or on another device,
            the model itself runs in another thread, or the system is not Linux.

        Raises:
            StaleStateError: If the stored state is stale.
            OSError: If there is no memory or no process for a child.
        """
        turns, aside = self._rwlock, f"{path}.{secrets.token_hex(8)}{ASIDE}"
        if not CAN_FORK or not turns.model.acquire(blocking=False):
            return None

        def look() -> Callable[[], None] | None:
            session = self._at_rest()
            size = sum(rows.numel() * rows.element_size() for rows in stored_rows(session))
            on_another = torch.cuda.is_initialized() or not session.like.is_cpu
            if size < SMALL or session.settings.storage.on_disk or on_another:
                return None
            wait = forked(lambda: self._write(aside, self._copied(session, extra(), copy=False)))
            return lambda: taken_in(aside, path, wait)

        try:
            found: Callable[[], None] | None = turns.read(look)
            return found
        finally:
            turns.model.release()

    def _at_rest(self: Any) -> Session:
        """What is stored, if it is the model's answer."""
        self._refuse_stale(exactly=True)
        session: Session = self._require()
        return session

    def _copied(self: Any, session: Session, extra: Any, copy: bool) -> Saved:
        names, removed = self._settled(session), self._removed.by_kind()
        saved = ({}, {}) if names is None else names.saved(session)
        return saving.copied(session, self._scrub.next, removed, saved, extra, copy)

    def _write(self: Any, path: str | os.PathLike[str], saved: Saved) -> None:
        began = time.perf_counter()
        saving.save(path, self.model, self._settings, saved)
        took, size = time.perf_counter() - began, os.path.getsize(path)
        version = saved.content["version"]
        _log.info("saved version %d to '%s': %d bytes, %.3f s", version, path, size, took)

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

        self._rwlock.alone("restore", restored)

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

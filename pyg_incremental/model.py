"""The face of the package: a model whose output stays exact while its graph changes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from pyg_incremental import saving, snapshot, start
from pyg_incremental.autocast import refuse_autocast as _refuse_autocast
from pyg_incremental.calls.site import bind
from pyg_incremental.delta import GraphDelta
from pyg_incremental.engine import NOTHING
from pyg_incremental.errors import (
    IncrementalWarning,
    StaleStateError,
    UnsupportedModelError,
)
from pyg_incremental.full_pass import difference
from pyg_incremental.memory import MemoryReport, memory_of
from pyg_incremental.parameters import ParameterWatch
from pyg_incremental.program import Program
from pyg_incremental.session import Session
from pyg_incremental.settings import Settings
from pyg_incremental.typing import BackendName, StoreName
from pyg_incremental.update import Update, UpdateStats, Work


class IncrementalModel:
    """A model whose output stays exact while its graph changes.

    Made by `to_incremental`, which documents the arguments.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        strict: bool = False,
        backend: BackendName = "auto",
        accumulate_dtype: torch.dtype | None = None,
        scrub_rows: int = 0,
        compile_after: int | None = 8,
        store: StoreName = "fast",
        check: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UnsupportedModelError(
                f"to_incremental: expected a torch.nn.Module (got {type(model).__name__}); pass "
                "the trained model itself"
            )
        self.model = model
        self._settings = Settings(
            strict, backend, accumulate_dtype, scrub_rows, compile_after, store, check
        )
        self._scrub_next = 0
        self._session: Session | None = None
        self._watch: ParameterWatch | None = None
        self._interrupted = ""
        self._warned = False
        self._lock = threading.RLock()  # threads that share a model take turns
        self.version = 0

    # Full pass -----------------------------------------------------------------------------------

    @torch.no_grad()
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one full pass and fill the store.

        Args:
            *args: What the model takes: node features `[num_nodes, channels]`, a graph
                (`edge_index` int64 `[2, num_edges]`, `EdgeIndex`, torch CSR or CSC, or
                `SparseTensor`), edge data, a `Data` object, ...
            **kwargs: Likewise.

        Returns:
            The model's output, as a copy.

        Raises:
            StaleStateError: If the model is in training mode.
            UnsupportedModelError: If `strict` and some step has to run on all rows; if there is no
                graph among the arguments.
            InvalidDeltaError: If the arguments do not fit together.
        """
        with self._lock:
            self._refuse_training()
            _refuse_autocast()
            self._take(start.from_call(bind(self.model, args, kwargs), self._settings))
            self.version = 0
            return self._require().output(copy=True)

    def forget(self) -> None:
        """Let go of everything that is stored, as if the model had not been called yet."""
        self._session, self._watch, self._interrupted = None, None, ""

    def _take(self, session: Session) -> None:
        """From here on this session is the state. Say once that it runs full passes, if it does."""
        self._session, self._watch, self._interrupted = session, ParameterWatch(self.model), ""
        reason = session.plan.fallback
        if reason and not self._warned:
            self._warned = True
            warnings.warn(
                f"{type(self.model).__name__}: {reason}. Every update runs a full pass: exact, but "
                "not incremental",
                IncrementalWarning,
                stacklevel=4,
            )

    @torch.no_grad()
    def refresh(self, nodes: Any = None) -> None:
        """Recompute from the current graph, features and parameters.

        Args:
            nodes: Ids of the nodes whose accumulated rows are made afresh, int64 `[k]`; everything
                by default. Everything is also what mends a stale state: after parameters changed,
                or after an update was interrupted.

        Raises:
            StaleStateError: Before the first pass, or if the model is in training mode.
            InvalidDeltaError: If an id is out of range.
        """
        with self._lock:
            session = self._require()
            _refuse_autocast()
            if nodes is not None:
                self._refuse_stale()
                renew = session.resolver.ids(nodes, "nodes")
                self._interrupted = "a refresh was interrupted"
                session.engine.update(
                    {}, {}, {}, {kind: torch.from_numpy(ids) for kind, ids in renew.items()}
                )
                self._interrupted = ""
                return
            self._refuse_training()
            session.refuse_other_kind()
            broken, self._interrupted = bool(self._interrupted), "a refresh was interrupted"
            self._take(start.from_session(session, self._settings, broken))

    # Updates -------------------------------------------------------------------------------------

    def apply_delta(
        self,
        edge_index_add: Any = None,
        edge_index_del: Any = None,
        x_changes: Any = None,
        *,
        edge_weight_add: Any = None,
        edge_attr_add: Any = None,
        edge_changes: Any = None,
        x_add: Any = None,
        nodes_del: Any = None,
        edge_data_add: Any = None,
        undirected: bool = False,
        missing: str = "error",
    ) -> Update:
        """Apply one group of changes and bring the output up to date.

        Either one `GraphDelta`, as the only argument, or its fields as keywords; `GraphDelta`
        documents their shapes and the order in which they take effect.

        Returns:
            The changed output rows, and what the update cost.

        Raises:
            InvalidDeltaError: If the delta does not fit the graph. Nothing was changed then.
            StaleStateError: Before the first pass, if parameters changed, or after an interrupted
                update; see `refresh`.
            Exception: Whatever the model itself raises on the changed graph. Nothing was changed
                then, if it is said so in a note.
        """
        began = time.perf_counter()
        parts: tuple[Any, Any, Any] | None = (edge_index_add, edge_index_del, x_changes)
        delta = None
        if isinstance(edge_index_add, GraphDelta) or undirected or missing != "error" or not (
            edge_weight_add is edge_attr_add is edge_changes is x_add is nodes_del is edge_data_add
            is None
        ):  # fmt: skip
            delta = GraphDelta(
                edge_index_add, edge_index_del, x_changes, edge_weight_add, edge_attr_add,
                edge_changes, x_add, nodes_del, edge_data_add, undirected,
                missing,  # type: ignore[arg-type]
            ).alone()  # fmt: skip
            parts = delta.plain_parts
        with self._lock:
            update = None if parts is None else self._apply_at_once(parts, began)
            if update is not None:
                return update
            with torch.no_grad():
                return self._apply(
                    delta or GraphDelta(edge_index_add, edge_index_del, x_changes), began
                )

    def _apply_at_once(self, parts: tuple[Any, Any, Any], began: float) -> Update | None:
        """What is common and valid goes through in one look; None if this is not."""
        session = self._session
        if session is None or self._settings.scrub_rows:
            return None
        plain = session.plain(*parts)
        if plain is None:
            return None
        self._refuse_stale()
        _refuse_autocast()
        self._interrupted = "an update was interrupted"
        try:
            done = session.update_at_once(plain)
        except Exception as error:
            with torch.no_grad():
                return self._failed(session, GraphDelta(*parts), error, began)
        self._interrupted = ""
        return None if done is None else self._updated(session, *done, began)

    def _apply(self, delta: GraphDelta, began: float) -> Update:
        session = self._require()
        self._refuse_stale()
        _refuse_autocast()
        self._interrupted = "an update was interrupted"
        try:
            resolved = session.resolver.resolve(delta)
        except Exception:
            self._interrupted = ""  # refused: nothing was changed
            raise
        try:
            events, stats = session.update(resolved, self._next_scrub())
        except Exception as error:
            return self._failed(session, delta, error, began)
        self._interrupted = ""
        added = sum(happened.added.slots.size for happened in events.values())
        removed = sum(happened.removed.slots.size for happened in events.values())
        return self._updated(session, added, removed, stats, began)

    def _updated(
        self, session: Session, added: int, removed: int, stats: Work, began: float
    ) -> Update:
        """What an update that is through has done."""
        changed, out = session.changed()
        self.version += 1
        seconds = time.perf_counter() - began
        return Update(
            changed, out, UpdateStats(session.mode, added, removed, seconds, stats), self.version
        )

    def _failed(
        self, session: Session, delta: GraphDelta, error: Exception, began: float
    ) -> Update:
        """An update has failed: go back to where it had not begun, if possible.

        Where the model itself does not fail on the changed graph its program has missed something,
        and it runs whole from here on.
        """
        refused = session.why_not_whole()
        with contextlib.suppress(Exception):  # else the state is stale
            before = session.taken_back()
            if before is not None:
                self._session, self._interrupted = before, ""
        if self._interrupted:
            raise error
        if refused:
            if hasattr(error, "add_note"):  # since Python 3.11
                error.add_note("The model fails on the changed graph. Nothing was changed.")
            raise error
        self._require().plan.site.whole = (
            f"its program fails after a delta ({type(error).__name__}: {error})"
        )
        self._take(start.from_session(self._require(), self._settings, broken=False))
        return self._apply(delta, began)

    def _next_scrub(self) -> Mapping[str, Tensor]:
        rows = self._settings.scrub_rows
        if not rows:
            return NOTHING
        first, self._scrub_next = self._scrub_next, self._scrub_next + rows
        return {
            kind: torch.arange(first, first + min(rows, count)) % max(count, 1)
            for kind, count in self._require().num_nodes.items()
        }

    def inverse(self, delta: GraphDelta) -> GraphDelta:
        """The delta that undoes `delta`, read off the current state; see `GraphDelta.inverse`."""
        return self._require().inverse(delta)

    # Reading -------------------------------------------------------------------------------------

    @property
    def out(self) -> Any:
        """The current output: a live view, `[num_nodes, out_channels]`.

        Clone it to keep it; do not write to it.
        """
        self._refuse_stale()
        return self._require().output(copy=False)

    @property
    def x(self) -> Any:
        """The current node features: a live view, `[num_nodes, in_channels]`.

        A dict by node type, if there are several.
        """
        return self._require().x

    @property
    def graph(self) -> Any:
        """The current graph, a `DynamicGraph`; a dict by edge type, if there are several."""
        return self._require().graph

    def edge_data(self, name: str) -> Tensor:
        """Current edge data, `[num_edges, ...]`, in the order of `graph.to_edge_index()`."""
        graphs = self._require().graphs.values()
        names = [key for graph in graphs for key in graph.edge_data]
        found = next((graph for graph in graphs if name in graph.edge_data), None)
        if found is None:
            raise KeyError(f"no edge input '{name}' (edge inputs: {sorted(names) or 'none'})")
        return found.state()[name]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, removed ones included."""
        return self._require().count

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return sum(graph.num_edges for graph in self._require().graphs.values())

    @property
    def program(self) -> Program:
        """The program that the model was traced to."""
        return self._require().plan.program

    @property
    def mode(self) -> str:
        """How updates run: `'incremental'`, `'mixed'`, `'full pass'`, or `'not called yet'`.

        In a `'mixed'` program some steps run on all rows.
        """
        return self._session.plan.mode if self._session else "not called yet"

    @property
    def backend(self) -> str:
        """`'compiled'` or `'reference'`; `'auto'` before the first pass."""
        return self._session.backend.name if self._session else self._settings.backend

    @property
    def stale(self) -> str | None:
        """Why updates are refused, or None."""
        if self._watch is None:
            return "the model has not been called yet"
        return self._interrupted or self._watch.reason() or None

    def verify(self, num_nodes: int | None = None, *, seed: int = 0) -> float:
        """Largest absolute difference between `out` and a full pass on the current graph.

        The full pass is that of the original model.

        Args:
            num_nodes: Check that many nodes, drawn at random, on the part of the graph that they
                see; all by default. A model with steps that run on all rows is always checked
                whole.
            seed: Seed of the draw.

        Raises:
            StaleStateError: If the stored state is stale.
        """
        self._refuse_stale()
        return difference(*self._require().against_full_pass(num_nodes, seed))

    def memory_report(self) -> MemoryReport:
        """What is held besides the model: bytes for each value, aggregation and graph.

        `print` shows a table.
        """
        return memory_of(self._require().engine, self.num_nodes)

    def state_digest(self) -> str:
        """SHA-256 over the graph and every stored row.

        Equal digests mean equal states, bit by bit.
        """
        return snapshot.digest_of(self._require().state(exact=True))

    # Files ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save graph, features and all stored rows, but not the model. See `load`.

        Raises:
            StaleStateError: If the stored state is stale.
            UnsupportedModelError: If the model was called with arguments that are neither tensors
                nor plain values.
        """
        self._refuse_stale()
        saving.save(
            path, self.model, self._settings, self._require(), self.version, self._scrub_next
        )

    @classmethod
    @torch.no_grad()
    def load(
        cls, path: str | os.PathLike[str], model: nn.Module, **settings: Any
    ) -> IncrementalModel:
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
        content = saving.read(path, model)
        settings.setdefault("accumulate_dtype", saving.sums_of(content))
        settings.setdefault("store", content["store"])
        loaded = cls(model, **settings)
        loaded._refuse_training()
        _refuse_autocast()
        loaded._take(saving.restored(path, content, model, loaded._settings))
        loaded.version = content["version"]
        loaded._scrub_next = content["scrub_next"]
        return loaded

    # Guards --------------------------------------------------------------------------------------

    def _require(self) -> Session:
        if self._session is None:
            raise StaleStateError(
                f"{type(self.model).__name__} has not been called yet, so nothing is stored; first "
                "call it on the whole graph, as in inc(x, edge_index), and then apply deltas"
            )
        return self._session

    def _refuse_training(self) -> None:
        if any(m.training for m in self.model.modules()):
            raise StaleStateError(
                f"{type(self.model).__name__} is in training mode, where dropout and batch "
                "statistics make outputs depend on chance; call model.eval() first, and refresh() "
                "if it was called before"
            )

    def _refuse_stale(self) -> None:
        self._require()
        reason = self.stale
        if reason:
            raise StaleStateError(
                f"the stored rows of {type(self.model).__name__} are stale: {reason}. Call "
                "refresh() to recompute them from the current graph, features and parameters"
            )

    def __reduce__(self) -> NoReturn:
        """Neither copies nor pickles: rows and the kernels' views of them would come apart."""
        raise UnsupportedModelError(
            f"{type(self).__name__} cannot be copied or pickled; use save(path) and load(path, "
            "model), or wrap a copy of the model"
        )

    def __repr__(self) -> str:
        if self._session is None:
            return f"{type(self).__name__}({type(self.model).__name__}, not called yet)"
        parts = [
            type(self.model).__name__,
            f"mode={self.mode!r}",
            f"backend={self.backend!r}",
            f"num_nodes={self.num_nodes}",
            f"num_edges={self.num_edges}",
            f"version={self.version}",
        ]
        if self._session.plan.why:
            parts.append(f"on all rows: {'; '.join(self._session.plan.why)}")
        if self.stale:
            parts.append(f"stale: {self.stale}")
        return f"{type(self).__name__}({', '.join(parts)})"

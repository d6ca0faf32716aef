"""What a wrapped model says of itself, to any thread at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from torch_geometric.data import Data

from pyg_incremental.blocks.evaluate import evaluate, evaluate_call
from pyg_incremental.call.agreement import Agreement, gap_of
from pyg_incremental.call.bound_call import BoundCall
from pyg_incremental.call.said import Role
from pyg_incremental.delta.read.edges import short_name
from pyg_incremental.engine.drift import drift_of
from pyg_incremental.engine.memory import MemoryReport, memory_of
from pyg_incremental.errors import UnsupportedModelError
from pyg_incremental.files import snapshot
from pyg_incremental.graph.dynamic import DynamicGraph
from pyg_incremental.kernels.takeover import KERNELS
from pyg_incremental.program.steps import Program
from pyg_incremental.session import against_model, integrity
from pyg_incremental.session.explain import Explanation, explained
from pyg_incremental.session.pictured import drawn
from pyg_incremental.session.stored import stored
from pyg_incremental.session.subgraph import subgraph
from pyg_incremental.session.values import understood
from pyg_incremental.session.what_if import WhatIfs
from pyg_incremental.session.worst_node import worst_node
from pyg_incremental.telemetry.metrics import ABOUT, Metrics
from pyg_incremental.typing import Nodes, Out
from pyg_incremental.update import Reading, Update


class Readings(WhatIfs[Out]):
    """The part of an `IncrementalModel` that changes nothing."""

    def on_update(
        self, method: Callable[[Update[Out]], Any], *, old: bool = False
    ) -> RemovableHandle:
        """Call a method after every `apply_delta`, with what that returns.

        It is called by the thread that has applied the delta, when the update is in and others may
        go on; it may read, and apply deltas. What it raises comes out of `apply_delta`, and changes
        nothing of the update.

        Args:
            method: What is called.
            old: Whether the updates report the OLD rows, as for `crossed` and `flips`.

        Returns:
            A handle, whose `remove()` ends it.
        """
        return self._listeners.add(method, old)

    def read(self, nodes: Nodes | Mapping[Any, Nodes] | None = None) -> Reading[Out]:
        """Some rows of the output, and the version that they are of: from any thread, at any time.

        Args:
            nodes: Ids of nodes, int64 `[k]`; all by default. For a model with several kinds of
                nodes a dict by kind.

        Returns:
            The version, and a copy of the rows, `[k, out_channels]` in the order of `nodes`, in the
            structure of the model's output.

        Raises:
            StaleStateError: If the stored state is stale.
            InvalidDeltaError: If an id is out of range.
            UnsupportedModelError: If `nodes` is given, but the output has no row for each node.
        """

        def look() -> Reading[Out]:
            self._refuse_stale()
            if nodes is None:
                session = self._require()
                return Reading(session.committed.version, session.returned(copy=True))
            session = self._held()
            rows = self._in_rows(session, nodes, "nodes", session.outputs.kinds_of_rows)
            ids = session.outputs.ids(rows)
            session.settle(ids)
            return Reading(session.committed.version, session.outputs.at(ids))

        return self._rwlock.read(look)

    @property
    def version(self) -> int:
        """How many updates have been applied since the first pass."""
        return 0 if self._session is None else self._session.committed.version

    @property
    def out(self) -> Out:
        """The current output: a live view, `[num_nodes, out_channels]`.

        Clone it to keep it; do not write to it. Where another thread applies deltas, use `read`: a
        view shows them half done.
        """

        def look() -> Out:
            self._refuse_stale()
            out: Out = self._require().returned(copy=False)
            return out

        return self._rwlock.read(look)

    @property
    def x(self) -> Tensor | Any:
        """The current node features: a live view, `[num_nodes, in_channels]`.

        A dict by node type, if there are several. Do not write to it: that is noticed where it can
        be, and then what is stored is stale.
        """
        return self._rwlock.read(lambda: self._held().x)

    @property
    def graph(self) -> DynamicGraph | Any:
        """The current graph, a `DynamicGraph`; a dict by edge type, if there are several.

        It changes through `apply_delta` alone.
        """
        return self._rwlock.read(lambda: self._held().graph)

    def edge_data(self, name: str, edge_type: Any = None) -> Tensor:
        """Current edge data, `[num_edges, ...]`, in the order of `graph.to_edge_index()`.

        Args:
            name: The edge input.
            edge_type: Of which edges, if several types have such an input.

        Raises:
            KeyError: If there is no such input.
        """

        def look() -> Tensor:
            session = self._held()
            given = session.roles.given
            held = {
                data if edge_type is None else short_name(data): (session.graphs[r.graph], data)
                for r in given
                if edge_type in (None, r.key)
                for data in session.graphs[r.graph].edge_data
            }
            if name not in held:
                about = "" if edge_type is None else f" of {edge_type}"
                raise KeyError(
                    f"no edge input '{name}'{about} (edge inputs: {sorted(held) or 'none'})"
                )
            graph, data = held[name]
            return graph.state()[data]

        return self._rwlock.read(look)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, removed ones included."""
        return self._rwlock.read(lambda: self._held().count)

    @property
    def num_nodes_dict(self) -> dict[str, int]:
        """The same by node type, `''` for nodes without one."""
        held = self._rwlock.read(self._held)
        return {kind: held.num_nodes[kind] for kind in held.roles.kinds}

    @property
    def edge_types(self) -> list[Any]:
        """What a delta calls the graphs: the edge types, or the names of arguments."""
        return [r.key for r in self._rwlock.read(self._held).roles.given]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self._rwlock.read(
            lambda: sum(self._held().graphs[r.graph].num_edges for r in self._held().roles.given)
        )

    @property
    def program(self) -> Program:
        """The program that the model was traced to."""
        return self._held().plan.program

    @property
    def roles(self) -> dict[str, Role]:
        """What the arguments of the first call were taken for, by name; see `Role`."""
        return understood(self._held())

    @property
    def mode(self) -> str:
        """How updates run: `'incremental'`, `'mixed'`, `'full pass'`, or `'not called yet'`.

        In a `'mixed'` program some steps run on all rows.
        """
        return self._session.plan.mode if self._session else "not called yet"

    def explain(self) -> Explanation:
        """How the model is followed, line by line of its `forward`: a table.

        Each line says how it runs, why not incrementally if it does not, what to write instead,
        and how many rows and edges the last update touched there.

        Raises:
            StaleStateError: Before the first pass.
        """
        return self._rwlock.read(lambda: explained(self._held(), self._last))

    @property
    def backend(self) -> str:
        """`'compiled'` or `'reference'`; `'auto'` before the first pass.

        Which kernels run now: on a new machine the plain ones of `'reference'` serve until the
        compiled ones are made, and then this says `'compiled'`.
        """
        return self._session.backend.name if self._session else self._settings.backend

    def verify(self, num_nodes: int | None = None, *, seed: int = 0) -> Agreement:
        """How closely `out` agrees with a full pass on the current graph.

        What is returned is a number, the largest absolute difference, which also says how much that
        is of its row, at which node, and whether it is more than rounding.

        The full pass is that of the original model. Updates wait while the state is copied, and no
        longer, unless they run parts of the model as they are.

        Args:
            num_nodes: Check that many nodes, drawn at random, on the part of the graph that they
                see; all by default. A model with steps that run on all rows is always checked
                whole.
            seed: Seed of the draw.

        Raises:
            StaleStateError: If the stored state is stale; every byte of the parameters is compared.
        """
        gap = gap_of(*self.against_full_pass(num_nodes, seed))
        find = partial(worst_node, gap=gap, num_nodes=num_nodes, seed=seed)
        return Agreement(gap, self._rwlock.read(lambda: find(self._require())))

    def against_full_pass(self, num_nodes: int | None = None, seed: int = 0) -> tuple[Any, Any]:
        """What `verify` compares: copies of the output, and of that of the original model."""
        turns = self._rwlock

        def look() -> Callable[[], tuple[Any, Any]]:
            session = self._require()
            self._refuse_stale(exactly=True)
            both = against_model.against_full_pass(session, num_nodes, seed)
            if session.runs_the_model:
                done = both.ours, both.model()
                return lambda: done
            return lambda: (both.ours, both.model())

        with turns.model:  # its caches stand for one graph at a time
            return turns.read(look)()

    def check(self) -> list[str]:
        """Whether all that is held fits together: graph, table of edges, slots, rows, sums.

        Reads everything, and computes every stored row once more from the features; `verify` is
        about the model, this is about what is held. Updates wait meanwhile.

        Returns:
            What does not fit, a sentence each; nothing if all is well.

        Raises:
            StaleStateError: If the stored state is stale.
        """

        def look() -> list[str]:
            self._refuse_stale(exactly=True)
            return integrity.problems(self._require())

        with self._rwlock.model, torch.inference_mode(mode=False), torch.no_grad():
            return self._rwlock.read(look)

    def changed_parameters(self) -> list[str]:
        """Names of parameters and buffers that are not as they were when rows were computed.

        And of tensors and arrays in attributes, lists and dicts of the model. Every byte is
        compared, however it was written; `refresh()` takes the current ones.

        Raises:
            StaleStateError: Before the first pass.
        """

        def look() -> list[str]:
            watch = self._held().watch
            return [] if watch is None else watch.changed()

        return self._rwlock.read(look)

    def memory_report(self) -> MemoryReport:
        """What is held besides the model: bytes for each value, aggregation and graph.

        `print` shows a table.
        """

        def look() -> MemoryReport:
            session = self._held()
            return memory_of(session.engine, session.count)

        return self._rwlock.read(look)

    def subgraph(self, nodes: Any, *, hops: int | None = None) -> Data:
        """Some nodes, and the part of the current graph that their rows of the output depend on.

        The model itself gives the nodes the same rows on that part as on the whole graph, and the
        same gradients; so does PyG's `Explainer` with algorithms that look at nothing else.

        Args:
            nodes: Ids of the nodes, int64 `[k]`, or their names.
            hops: How many hops; as many as the rows depend on by default.

        Returns:
            The part, as PyG's loaders have it: the inputs of nodes and edges under the names that
            the model has for them (`x`, `edge_index`, ...), `n_id` and `e_id`, which nodes and
            edges of the whole graph these are, and `index`, where the nodes stand in it; as copies.

        Raises:
            InvalidDeltaError: If an id is out of range.
            StaleStateError: Before the first pass.
            UnsupportedModelError: If there are several types of nodes or several graphs; or some
                step runs on all rows, and `hops` is not given.
        """

        def look() -> Data:
            session = self._require()
            rows = session.resolver.ids(self._in_rows(session, nodes, "nodes"), "nodes")
            return subgraph(session, next(iter(rows.values())), hops)

        return self._rwlock.read(look)

    def plot_graph(self, nodes: Any, *, hops: int = 2, axes: Any = None) -> Any:
        """Draw some nodes, and all that reach them in a few hops.

        Args:
            nodes: Ids of the nodes, int64 `[k]`, or their names.
            hops: How many hops; as many as the model has layers is what an output row sees.
            axes: Axes of matplotlib; new ones if None.

        Returns:
            The axes.

        Raises:
            InvalidDeltaError: If an id is out of range.
            StaleStateError: Before the first pass.
            UnsupportedModelError: If there are several types of nodes or several graphs, or more
                than 200 nodes to be drawn.
            ImportError: Without matplotlib.
        """

        def look() -> Any:
            session = self._require()
            rows = session.resolver.ids(self._in_rows(session, nodes, "nodes"), "nodes")
            names = self._settled(session)
            labels = None if names is None else next(iter(names.tables.values())).names
            some = torch.from_numpy(next(iter(rows.values())))
            return drawn(session, some, hops, labels, axes)

        return self._rwlock.read(look)

    def metrics(self) -> Metrics:
        """What this model has done, and holds, as plain numbers by name.

        Numbers of kind "counter" only grow, from when the model was wrapped on; those of kind
        "gauge" are of now. `print(inc.metrics().prometheus())` is the text that Prometheus reads.

        Reading them costs a look at what recent updates did and at every accumulated row; updates
        wait so long. An update itself only notes that it was.

        Returns:
            `version`, `num_nodes`, `num_edges`, `stale`, `updates`, `fallbacks`, `slow_updates`,
            `update_seconds`, `update_seconds_median`, `full_passes`, `full_pass_seconds`,
            `edges_added`, `edges_deleted`, `rows_recomputed`, `rows_changed`, `edges_read`,
            `stored_bytes`, `drift`; `pyg_incremental.telemetry.metrics.ABOUT` says what each is.
        """

        def look() -> Metrics:
            session, sums = self._session, self._tally.sums()
            now = dict.fromkeys(ABOUT, 0.0) | sums
            now["stale"] = int(self._why_stale() is not None)
            if session is not None:
                edges = sum(session.graphs[r.graph].num_edges for r in session.roles.given)
                now |= {
                    "version": session.committed.version,
                    "num_nodes": session.count,
                    "num_edges": edges,
                    "stored_bytes": memory_of(session.engine, session.count).total,
                    "drift": drift_of(session.engine),
                }
            return Metrics(now)

        return self._rwlock.read(look)

    def state_digest(self) -> str:
        """SHA-256 over the graph and every stored row.

        Equal digests mean equal states, bit by bit.
        """
        return snapshot.digest_of(self._rwlock.read(lambda: stored(self._require(), exact=True)))

    def evaluate(self, data: Any = None, **options: Any) -> Any:
        """Compute the output layer by layer within a memory budget; nothing that is stored changes.

        Args:
            data: The graph, as `pyg_incremental.evaluate` takes it; by default the current one.
            **options: The other arguments of `pyg_incremental.evaluate`.

        Returns:
            What the model returns for all nodes, or for those asked for.

        Raises:
            StaleStateError: Without data before the first pass.
        """
        if data is not None:
            return evaluate(self.model, data, **options)

        def look() -> tuple[BoundCall, Callable[[Any], Any]]:
            self._refuse_training()
            session = self._require()
            site = session.plan.site.on(self.model)
            left = against_model.missing(session.roles, session.nodes())
            if left and any(v.kind in left for v in session.program.outputs):
                raise UnsupportedModelError(
                    "evaluate: nodes were removed, which the model, that reads all of them out "
                    "together, must not be given, and rows of others would have other ids; call "
                    "compact() first"
                )
            now = session.graphs, session.num_nodes, session.nodes()
            given = against_model.as_given(session, now)
            copies = [t.clone() if isinstance(t, Tensor) else t for t in given]
            site.tensors = dict(zip(site.names, copies, strict=True))
            graphs = against_model.graphs_with_nodes(session.roles, session.nodes())
            return site, lambda out: session.outputs.chosen(out, graphs)

        with self._rwlock.model:
            site, without_removed = self._rwlock.read(look)
            out = evaluate_call(site, **options)
            return out if "nodes" in options else without_removed(out)

    def __repr__(self) -> str:
        under_way = self._rwlock.under_way
        if under_way:
            return (
                f"{type(self).__name__}({type(self.model).__name__}, in the midst of {under_way})"
            )
        return self._rwlock.read(self._described)

    @property
    def _making(self) -> str:
        """What to say beside plain kernels that stand in for compiled ones."""
        session = self._session
        if session is None or session.backend.is_compiled == session.backend.serves_compiled:
            return ""
        what = "are being made" if KERNELS.is_making else "could not be made"
        return f" (compiled kernels {what})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + (
            "" if self._session is None else self.explain()._repr_html_()
        )

    def _described(self) -> str:
        if self._session is None:
            return f"{type(self).__name__}({type(self.model).__name__}, not called yet)"
        parts = [
            type(self.model).__name__,
            f"mode={self.mode!r}",
            f"backend={self.backend!r}{self._making}",
            f"num_nodes={self.num_nodes}",
            f"num_edges={self.num_edges}",
            f"version={self.version}",
        ]
        if self._session.plan.why:
            why = "; ".join(self._session.plan.why)
            parts.append(f"on all rows: {why}; see explain()")
        stale = self._why_stale()
        if stale:
            parts.append(f"stale: {stale}")
        return f"{type(self).__name__}({', '.join(parts)})"

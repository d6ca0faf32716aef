"""The executor: layer by layer, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.aggregate import Aggregate, PaddedRows
from pyg_incremental.blocks.block import Block, lists_of
from pyg_incremental.blocks.budget import PER_EDGE, Lists, Prices, Ranges, too_large
from pyg_incremental.blocks.fanouts import Drawn
from pyg_incremental.blocks.in_edges import BlockEdges, block_edges
from pyg_incremental.blocks.kept import Kept, taken
from pyg_incremental.blocks.lists import NeighbourLists
from pyg_incremental.blocks.needed import needed
from pyg_incremental.blocks.places import Places
from pyg_incremental.blocks.schedule import Schedule, sources_of
from pyg_incremental.blocks.shelf import Shelf
from pyg_incremental.call import full_pass
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import Output
from pyg_incremental.errors import RowCountError
from pyg_incremental.program.steps import Domain, Learned, Ones, RowMap, Step, Value, Whole
from pyg_incremental.rows import Backend

Ids = NDArray[np.int64]
Told = Callable[[int], None]


class Evaluator:
    """Evaluates one program.

    Args:
        plan: The program of a call.
        roles: What its tensors are, with the edges.
        tensors: The tensors of the call by name, `[num_nodes, ...]` and `[num_edges, ...]`.
        memory: Bytes that it may take beside these.
        shelf: Where rows are kept.
        asked: Ids of the nodes whose output rows are wanted, int64 `[k]`, ascending, by kind; None
            for all.
        device: Where blocks are computed.
        rows_in_block: The number of rows of every block; None to choose it by memory.
        places: In which order blocks take the nodes; None for that of their ids.
        drawn: Graphs of the program that are some edges of one of the call.

    Attributes:
        peak: Bytes that were held at once, so far.
        blocks: The number of blocks that were computed.
        read: The number of nodes, over all blocks, whose rows a block gathers; its own count, too.
        gathered: Bytes of the rows that blocks have read.
    """

    def __init__(
        self,
        plan: CallPlan,
        roles: Roles,
        tensors: Mapping[str, Any],
        memory: int,
        shelf: Shelf,
        asked: Mapping[str, Ids] | None,
        device: torch.device,
        rows_in_block: int | None = None,
        places: Places | None = None,
        drawn: Mapping[str, Drawn] | None = None,
    ) -> None:
        self.plan, self.roles, self.tensors = plan, roles, tensors
        self.memory, self.shelf, self.device = memory, shelf, device
        self.schedule = Schedule(plan.program)
        self.num_nodes = roles.num_nodes
        self._relations = {r.graph: r for r in roles.relations}
        self._edge_data: dict[Value, Tensor] = {}
        for r in roles.relations:
            for name, rows in roles.data_of(r, tensors).items():
                self._edge_data |= {
                    v: rows
                    for v in plan.program.inputs.values()
                    if v.name == name and v.domain is Domain.EDGE
                }
        nodes = (tensors[n] for n in roles.nodes)
        floats = (t for t in nodes if t.dtype.is_floating_point)
        parameters = (p for p in plan.site.model.parameters() if p.dtype.is_floating_point)
        self._like = next(floats, next(parameters, torch.empty(0))).detach()[:0].to(device)
        self.backend = Backend("auto", self._like)
        self._place: dict[str, NDArray[np.int32]] = {}
        self._kept: dict[Value, Kept] = {}
        self._contents: dict[Value, Any] = {}
        self._rows_in_block = rows_in_block
        self._places = places if places is not None else Places()
        self._lists = NeighbourLists(roles, drawn, self._places, shelf)
        if asked is not None:
            asked = {kind: np.sort(self._places.of(kind, ids)) for kind, ids in asked.items()}
        self.targets = needed(self.schedule, asked, self.num_nodes, self._lists.of)
        self.peak = self.blocks = self.read = self.gathered = 0

    # What there is -------------------------------------------------------------------------------

    def rows_at(self, value: Value, ids: Ids | range) -> Tensor:
        """Rows of a value at some places, int64 `[k]`: `[k, ...]`, read or made of what is kept."""
        made = self.schedule.made[value]
        if value in self._kept:
            rows = self._kept[value].at(ids)
        elif isinstance(made, Learned):
            rows = taken(made.read().detach(), self._places.nodes(value.kind, ids))
        elif isinstance(made, Ones):
            return self._like.new_ones(len(ids), 1)
        elif isinstance(made, RowMap):
            args = [
                self.content(v) if v.domain is Domain.WHOLE else self.rows_at(v, ids)
                for v in made.inputs
            ]
            again: Tensor = made.fn(*args)
            return again
        else:
            given = self.tensors[value.name].detach()
            rows = taken(given, self._places.nodes(value.kind, ids))
        self.gathered += rows.nbytes
        return rows.to(self.device)

    def edge_rows(self, value: Value, places: Ids) -> Tensor:
        """Rows of an edge value, `[k, ...]`, at places, integers `[k]`, in the list of edges."""
        made = self.schedule.made[value]
        if value in self._edge_data:
            rows = self._edge_data[value]
            at = torch.from_numpy(np.asarray(places, np.int64))
            return rows.detach()[at.to(rows.device)].to(self.device)
        args = [
            self.content(v) if v.domain is Domain.WHOLE else self.edge_rows(v, places)
            for v in made.inputs
        ]
        made_rows: Tensor = made.fn(*args)  # type: ignore[attr-defined]
        return made_rows

    def content(self, value: Value) -> Any:
        """A value without rows."""
        if value in self._contents:
            return self._contents[value]
        relation = self._relations.get(value.name)
        if relation is None or value not in self.plan.program.graphs:
            return self.tensors[value.name]
        state = {"edge_index": self.roles.edge_index[relation.graph]}
        state |= self.roles.data_of(relation, self.tensors)
        made = full_pass.graph_object(relation, state, self.num_nodes, self.device)
        self._contents[value] = made
        return made

    # Running -------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many rows there are to be computed, over all layers."""
        return sum(
            self._count(i, kind)
            for i, layer in enumerate(self.schedule.layers)
            for kind, steps in layer.blocks.items()
            if steps
        )

    @property
    def finished(self) -> int:
        """How many of them an evaluation before has left on the shelf."""
        return sum(
            self.shelf.done(i, kind) or 0
            for i, layer in enumerate(self.schedule.layers)
            for kind, steps in layer.blocks.items()
            if steps
        )

    def _count(self, layer: int, kind: str) -> int:
        ids = self.targets[layer][kind]
        return self.num_nodes[kind] if ids is None else len(ids)

    def run(self, tell: Told) -> None:
        """Compute everything; `tell` is called with the number of rows after each block."""
        with torch.no_grad():
            for i, layer in enumerate(self.schedule.layers):
                for step in layer.whole:
                    self._run_whole(step)
                for kind, steps in layer.blocks.items():
                    if steps:
                        self._run_blocks(i, kind, steps, tell)
                self._lists.keep(self.schedule.lists_behind(i))
                for value in layer.last_read:
                    kept = self._kept.pop(value, None)
                    if kept is not None:
                        self.shelf.remove(value, kept)
        self.shelf.close()

    def _run_whole(self, step: Step) -> None:
        """A step on all rows."""
        value = step.output
        count = self.num_nodes.get(value.kind, 0)
        if isinstance(step, PaddedRows):
            ids = range(count)
            block = Block(self, ids, self._edges([step], ids))
            result: Any = block.run([step], {value})[value]
        else:
            args = [self._all_rows(v, step) for v in step.inputs]
            result = step.fn(*args)  # type: ignore[attr-defined]
        if value.domain is not Domain.NODE:
            self._contents[value] = result
            return
        if not isinstance(result, Tensor) or not result.dim() or len(result) != count:
            raise RowCountError(f"step '{value}' made not one row for each of {count} nodes")
        kept = self._kept[value] = self._room(value, result, count, None)
        nodes = self._places.nodes(value.kind, range(count))
        kept.write(0, result if isinstance(step, PaddedRows) else taken(result, nodes))

    def _all_rows(self, value: Value, step: Step) -> Any:
        if value.domain is Domain.WHOLE:
            return self.content(value)
        if value.domain is Domain.EDGE:
            return self.edge_rows(value, np.arange(self.roles.edge_index[value.kind].shape[1]))
        rows = self.rows_at(value, self._places.every(value.kind, self.num_nodes[value.kind]))
        return rows if isinstance(step, Whole) and step.pure else rows.clone()

    def _rows_by_ids(self, value: Value, ids: Ids | None) -> Ids | None:
        """Where the rows of an output go, which are in the order of ids; see `Places.rows`."""
        return self._places.rows(value.kind, ids) if value in self.plan.program.outputs else None

    def _room(self, value: Value, like: Tensor, count: int, ids: Ids | None) -> Kept:
        return self.shelf.room(value, like, count, ids, self._rows_by_ids(value, ids))

    def _run_blocks(self, layer: int, kind: str, steps: list[Step], tell: Told) -> None:
        """The steps of one layer on the rows of one kind of nodes."""
        ids, count = self.targets[layer][kind], self._count(layer, kind)
        wanted = {v for v in self.schedule.layers[layer].kept if v.kind == kind}
        keys = dict.fromkeys(lists_of(s) for s in steps if isinstance(s, Aggregate))
        gathered = {lists_of(s) for s in steps if isinstance(s, Aggregate) and self._gathers(s)}
        sources = {key: self.num_nodes[self._lists.ends(key)[0]] for key in keys}
        prices = self._first_prices(steps)
        first, before = self.shelf.done(layer, kind), None
        if first is not None:
            found = {v: self.shelf.found(v, ids, self._rows_by_ids(v, ids)) for v in wanted}
            self._kept |= {v: kept for v, kept in found.items() if kept is not None}
            tell(first)
            if first == count:
                return
        ends = {k: self._lists.of(k).ends_of(ids) for k in keys}
        ranges = Ranges(count, ends, sources, 0, prices)
        first = first or 0
        while first < count or (before is None and not first):
            last = ranges.end(first) if before is not None else first + ranges.start(first)
            if self._rows_in_block is not None:
                last = first + self._rows_in_block
            last = min(last, count)
            some, edges = self._fitting(steps, kind, ids, range(first, last), ranges)
            last = first + len(some)
            self.read += sum(len(edges[k].nodes) for k in gathered)
            resident, block = self.resident, Block(self, some, edges)
            before, made = block, block.run(steps, wanted)
            self.peak = max(self.peak, resident + block.peak)
            for value, rows in made.items():
                if value not in self._kept:
                    self._kept[value] = self._room(value, rows, count, ids)
                self._kept[value].write(first, rows)
            block.learn(prices, sources, steps)
            self.peak = max(self.peak, self.resident + sum(t.nbytes for t in made.values()))
            self.blocks += 1
            self.shelf.finish(layer, kind, last)
            tell(last - first)
            first = last
            if not count:
                break

    def _gathers(self, step: Aggregate) -> bool:
        """Whether rows are read for it; a degree adds up ones."""
        return not all(isinstance(self.schedule.made[v], Ones) for v in sources_of(step))

    def _fitting(
        self, steps: list[Step], kind: str, ids: Ids | None, rows: range, ranges: Ranges
    ) -> tuple[Ids | range, dict[Lists, BlockEdges]]:
        """The first of some rows, as many as fit now that their neighbours are counted."""
        first, last = rows.start, rows.stop
        while True:
            some = range(first, last) if ids is None else ids[first:last]
            edges = self._edges(steps, some)
            ranges.limit = self.memory - self.resident
            took = ranges.prices.of(
                last - first,
                {k: len(e.neighbor) for k, e in edges.items()},
                {k: len(e.nodes) for k, e in edges.items()},
            )
            if took <= ranges.limit:
                return some, edges
            if last - first <= 1:
                node = int(next(iter(self._places.nodes(kind, some)), 0))
                raise too_large(took, ranges.limit, self.memory, kind, node)
            last = (first + last + 1) // 2

    def _first_prices(self, steps: list[Step]) -> Prices:
        """What is known of the prices before a block has run: how wide the rows are that it reads.

        What it makes of them is taken to be four times as wide.
        """
        prices = Prices()
        for s in steps:
            read = [v for v in s.inputs if v.domain is Domain.NODE]
            if not isinstance(s, Aggregate):
                continue
            key, far = lists_of(s), set(sources_of(s))
            width = sum(self._row_bytes(v) for v in read if v in far)
            prices.source[key] = prices.source.get(key, 0) + width
            prices.row += 4 * width
            along = sum(self._row_bytes(v) for v in s.inputs if v.domain is Domain.EDGE)
            prices.edge[key] = prices.edge.get(key, PER_EDGE) + along
        return prices

    def _row_bytes(self, value: Value) -> int:
        """Bytes of one row of a value of an earlier layer; of one that is made again, a guess."""
        rows: Tensor | None = None
        if value in self._kept:
            rows = self._kept[value].rows
        elif value in self._edge_data:
            rows = self._edge_data[value]
        elif value.name in self.tensors and not self.schedule.made[value].inputs:
            rows = self.tensors[value.name]
        if rows is None:
            return sum(map(self._row_bytes, self.schedule.made[value].inputs))
        return rows.element_size() * rows.shape[1:].numel()

    def _edges(self, steps: list[Any], ids: Ids | range) -> dict[Lists, BlockEdges]:
        """The in-edges of a block, for each list over which a step gathers."""
        found: dict[Lists, BlockEdges] = {}
        for s in steps:
            if isinstance(s, Aggregate) and lists_of(s) not in found:
                key = lists_of(s)
                source = self._lists.ends(key)[0]
                count = self.num_nodes[source]
                if source not in self._place:
                    self._place[source] = np.empty(count, np.int32)
                found[key] = block_edges(self._lists.of(key), ids, count, self._place[source])
        return found

    @property
    def resident(self) -> int:
        """Bytes that are held from block to block: rows that are kept, and lists, in memory."""
        held = sum(k.nbytes for k in self._kept.values())
        numbers = sum(p.nbytes for p in self._place.values())
        return held + self._lists.nbytes + numbers + self._places.nbytes

    # What comes out ------------------------------------------------------------------------------

    def result(self, order: Mapping[str, Ids] | None) -> Any:
        """The output, in the structure in which the model returns it.

        Args:
            order: Ids of the nodes whose rows are wanted, int64 `[k]` by kind, in this order; None
                for all.
        """

        def filled(leaf: Any) -> Any:
            if not isinstance(leaf, Output):
                return leaf
            value = self.plan.program.outputs[leaf.index]
            if value.domain is not Domain.NODE:
                return self.content(value)
            if order is not None:
                ids = order.get(value.kind, np.empty(0, np.int64))
                return self.rows_at(value, self._places.of(value.kind, ids))
            if value in self._kept:
                return self._kept[value].rows
            count = self.num_nodes[value.kind]
            return self.rows_at(value, self._places.every(value.kind, count)).clone()

        structure = self.plan.traced.structure
        if isinstance(structure, Output):
            return filled(structure)
        return pytree.tree_map(filled, structure, is_leaf=lambda v: isinstance(v, Output))

"""The executor: layer by layer, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from pyg_incremental.blocks.at_hand import AtHand
from pyg_incremental.blocks.block import Block
from pyg_incremental.blocks.budget import PER_EDGE, Lists, Prices, Ranges, too_large
from pyg_incremental.blocks.edge_maps import rows_of_edges
from pyg_incremental.blocks.fanouts import Drawn
from pyg_incremental.blocks.in_edges import BlockEdges, block_edges
from pyg_incremental.blocks.kept import KeptRows, taken
from pyg_incremental.blocks.layer_store import LayerStore
from pyg_incremental.blocks.lists import NeighbourLists
from pyg_incremental.blocks.needed import needed
from pyg_incremental.blocks.node_order import NodeOrder
from pyg_incremental.blocks.schedule import Schedule
from pyg_incremental.call.plan import CallPlan
from pyg_incremental.call.roles import Roles
from pyg_incremental.call.traced import Output
from pyg_incremental.errors import RowCountError
from pyg_incremental.ops import aggregations
from pyg_incremental.program.steps import Domain, Step, Value

Ids = NDArray[np.int64]
Told = Callable[[int], None]


class Evaluator:
    """Evaluates one program.

    Args:
        plan: The program of a call.
        roles: What its tensors are, with the edges.
        tensors: The tensors of the call by name, `[num_nodes, ...]` and `[num_edges, ...]`.
        memory: Bytes that it may take beside these.
        store: Where rows are kept.
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
    """

    def __init__(
        self,
        plan: CallPlan,
        roles: Roles,
        tensors: Mapping[str, Any],
        memory: int,
        store: LayerStore,
        asked: Mapping[str, Ids] | None,
        device: torch.device,
        rows_in_block: int | None = None,
        places: NodeOrder | None = None,
        drawn: Mapping[str, Drawn] | None = None,
    ) -> None:
        self.plan, self.roles, self.tensors = plan, roles, tensors
        self.memory, self.store, self.device = memory, store, device
        self.schedule = Schedule(plan.program)
        self.num_nodes = roles.num_nodes
        self._place: dict[str, NDArray[np.int32]] = {}
        self._rows_in_block = rows_in_block
        self._places = places if places is not None else NodeOrder()
        self._at_hand = AtHand(
            plan, roles, tensors, self.schedule, self._places, device, store.in_memory
        )
        self._kept = self._at_hand.kept
        self._spare = self._at_hand.backend.spare = store.spare
        self._lists = NeighbourLists(roles, drawn, self._places, store)
        if asked is not None:
            asked = {kind: np.sort(self._places.of(kind, ids)) for kind, ids in asked.items()}
        self.targets = needed(self.schedule, asked, self.num_nodes, self._lists.of)
        self.peak = self.blocks = self.read = 0

    @property
    def gathered(self) -> int:
        """Bytes of the rows that blocks have read."""
        return self._at_hand.gathered

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
        """How many of them an evaluation before has left on the store."""
        return sum(
            self.store.done(i, kind) or 0
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
                left = [*self._spare]  # what this layer does not take, no later one will
                for step in layer.whole:
                    self._run_whole(step)
                for kind, steps in layer.blocks.items():
                    if steps:
                        self._run_blocks(i, kind, steps, tell)
                self._lists.keep(self.schedule.lists_behind(i))
                self._spare[:] = [r for r in self._spare if all(r is not s for s in left)]
                for value in layer.last_read:
                    kept = self._kept.pop(value, None)
                    if kept is not None:
                        self.store.remove(value, kept)
        self._spare.clear()
        self.store.close()

    def _run_whole(self, step: Step) -> None:
        """A step on all rows."""
        value = step.output
        if value.domain is Domain.EDGE:
            relation = next(r for r in self.roles.relations if r.graph == value.kind)
            edges = self.roles.edge_index[value.kind]
            made = rows_of_edges(step, relation, edges, self._at_hand, self._places)
            self._at_hand.keep_edges(value, made)
            self.peak = max(self.peak, self.resident)
            return
        if step.begins is not None:
            self._fetch(step)
            return
        count = self.num_nodes.get(value.kind, 0)
        if step.gathers:
            ids = range(count)
            block = Block(self._at_hand, ids, self._edges([step], ids))
            result: Any = block.run([step], {value})[value]
        else:
            args = [self._all_rows(v, step) for v in step.inputs]
            result = step.compute(*args)
        if value.domain is not Domain.NODE:
            self._at_hand.contents[value] = result
            return
        if not isinstance(result, Tensor) or not result.dim() or len(result) != count:
            raise RowCountError(f"step '{value}' made not one row for each of {count} nodes")
        kept = self._kept[value] = self._room(value, result, count, None)
        nodes = self._places.nodes(value.kind, range(count))
        kept.write(0, result if step.gathers else taken(result, nodes))

    def _fetch(self, step: Step) -> None:
        """Bring the rows of a value that are held elsewhere."""
        value, near = step.output, step.inputs[0]
        like = self._at_hand.rows_at(near, np.zeros(1, np.int64))[:0]
        kept = self._kept[value] = self._room(value, like, step.behind, None)
        left = (self.memory - self.resident) // 2
        for at, rows in step.fetch(lambda ids: self._at_hand.rows_at(near, ids), like, left):
            kept.rows[torch.from_numpy(at)] = rows.to(kept.rows.device)
            self.peak = max(self.peak, self.resident + 2 * rows.nbytes)

    def _all_rows(self, value: Value, step: Step) -> Any:
        if value.domain is Domain.WHOLE:
            return self._at_hand.content(value)
        if value.domain is Domain.EDGE:
            rows = self._at_hand.all_edge_rows(value)
        else:
            every = self._places.every(value.kind, self.num_nodes[value.kind])
            rows = self._at_hand.rows_at(value, every)
        return rows if step.pure else rows.clone()

    def _rows_by_ids(self, value: Value, ids: Ids | None) -> Ids | None:
        """Where the rows of an output go, which are in the order of ids; see `NodeOrder.rows`."""
        return self._places.rows(value.kind, ids) if value in self.plan.program.outputs else None

    def _room(self, value: Value, like: Tensor, count: int, ids: Ids | None) -> KeptRows:
        return self.store.room(value, like, count, ids, self._rows_by_ids(value, ids))

    def _run_blocks(self, layer: int, kind: str, steps: list[Step], tell: Told) -> None:
        """The steps of one layer on the rows of one kind of nodes."""
        ids, count = self.targets[layer][kind], self._count(layer, kind)
        wanted = {v for v in self.schedule.layers[layer].kept if v.kind == kind}
        keys = dict.fromkeys(s.over for s in aggregations(steps))
        gathered = {s.over for s in aggregations(steps) if self._gathers(s)}
        sources = {key: self.num_nodes[self._lists.ends(key)[0]] for key in keys}
        prices = self._first_prices(steps)
        first, before = self.store.done(layer, kind), None
        if first is not None:
            found = {v: self.store.found(v, ids, self._rows_by_ids(v, ids)) for v in wanted}
            self._kept.update({v: kept for v, kept in found.items() if kept is not None})
            tell(first)
            if first == count:
                return
        ends = {k: self._lists.of(k).ends_of(ids) for k in keys}
        lent = {k for k in gathered if self._at_hand.lends_all(_read_over(k, steps))}
        ranges = Ranges(count, ends, sources, 0, prices, lent)
        first = told = first or 0
        tries = at_once = self.store.in_memory and ids is None and self._rows_in_block is None
        if not tries:
            self._spare.clear()
        while first < count or (before is None and not first):
            if before is None:
                last = first + ranges.start(first)
            else:
                last = ranges.end(first) if first else count
            if self._rows_in_block is not None:
                last = first + self._rows_in_block
            last = min(last, count)
            some, edges = self._fitting(steps, kind, ids, range(first, last), ranges)
            last = first + len(some)
            self.read += sum(len(edges[k].nodes) for k in gathered)
            into = self._room_in(wanted, first, last)
            spare = self._spare if at_once and last - first == count else None
            resident, block = self.resident, Block(self._at_hand, some, edges, into, spare)
            before, made = block, block.run(steps, wanted)
            self.peak = max(self.peak, resident + block.peak)
            for value, rows in made.items():
                if value not in self._kept:
                    self._kept[value] = self._room(value, rows, count, ids)
                self._kept[value].write(first, rows)
            block.learn(prices, sources, steps)
            self.peak = max(self.peak, self.resident + sum(t.nbytes for t in made.values()))
            self.blocks += 1
            self.store.finish(layer, kind, last)
            tell(last - told)
            first = told = last
            ranges.limit = self.memory - self.resident
            if tries and ranges.all_fit:
                first = 0  # all at once they read what is there, without a copy
            elif tries:
                self._spare.clear()
            tries = False
            if told == count:
                break

    def _room_in(self, wanted: set[Value], first: int, last: int) -> dict[Value, Tensor]:
        """Where the rows from place `first` to before `last` go, of values that can be written."""
        kept = {v: self._kept[v].part(first, last, self.device) for v in wanted & {*self._kept}}
        return {v: rows for v, rows in kept.items() if rows is not None}

    def _gathers(self, step: Step) -> bool:
        """Whether rows are read for it; a degree adds up ones."""
        return any(self.schedule.made[v].constant is None for v in step.gathered)

    def _fitting(
        self, steps: list[Step], kind: str, ids: Ids | None, rows: range, ranges: Ranges
    ) -> tuple[Ids | range, dict[Lists, BlockEdges]]:
        """The first of some rows, as many as fit now that their neighbours are counted."""
        first, last = rows.start, rows.stop
        while True:
            some = range(first, last) if ids is None else ids[first:last]
            edges = self._edges(steps, some)
            ranges.limit = self.memory - self.resident
            own = ranges.lent if last - first == ranges.count and ids is None else set()
            took = ranges.prices.of(
                last - first,
                {k: len(e.neighbor) for k, e in edges.items()},
                {k: 0 if k in own else len(e.nodes) for k, e in edges.items()},
            )
            if took <= ranges.limit:
                return some, edges
            if self._spare:
                self._spare.clear()
                continue
            if last - first <= 1:
                node = int(next(iter(self._places.nodes(kind, some)), 0))
                in_memory = self.store.in_memory
                raise too_large(took, ranges.limit, self.memory, kind, node, in_memory)
            last = (first + last + 1) // 2

    def _first_prices(self, steps: list[Step]) -> Prices:
        """What is known of the prices before a block has run: how wide the rows are that it reads.

        What it makes of them is taken to be four times as wide.
        """
        prices = Prices()
        for s in aggregations(steps):
            read = [v for v in s.inputs if v.domain is Domain.NODE]
            key, far = s.over, set(s.gathered)
            width = sum(self._at_hand.row_bytes(v) for v in read if v in far)
            prices.source[key] = prices.source.get(key, 0) + width
            prices.row += 4 * width
            along = sum(self._at_hand.row_bytes(v) for v in s.inputs if v.domain is Domain.EDGE)
            prices.edge[key] = prices.edge.get(key, PER_EDGE) + along
        return prices

    def _edges(self, steps: list[Any], ids: Ids | range) -> dict[Lists, BlockEdges]:
        """The in-edges of a block, for each list over which a step gathers."""
        found: dict[Lists, BlockEdges] = {}
        for s in aggregations(steps):
            if s.over not in found:
                key = s.over
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
        spare = sum(rows.nbytes for rows in self._spare)
        held += self._at_hand.edges_kept
        return held + spare + self._lists.nbytes + numbers + self._places.nbytes

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
            if value.domain is Domain.EDGE:
                rows = self._at_hand.all_edge_rows(value)
                return rows.clone() if self.schedule.is_given(value) else rows
            if value.domain is not Domain.NODE:
                return self._at_hand.content(value)
            if order is not None:
                ids = order.get(value.kind, np.empty(0, np.int64))
                return self._at_hand.rows_at(value, self._places.of(value.kind, ids))
            if value in self._kept:
                return self._kept[value].rows
            count = self.num_nodes[value.kind]
            return self._at_hand.rows_at(value, self._places.every(value.kind, count)).clone()

        structure = self.plan.traced.structure
        if isinstance(structure, Output):
            return filled(structure)
        return pytree.tree_map(filled, structure, is_leaf=lambda v: isinstance(v, Output))


def _read_over(key: Lists, steps: list[Step]) -> set[Value]:
    """What some steps read at the other ends of some lists."""
    return {v for s in steps if s.over == key for v in s.gathered}

"""Before a program runs: which of its maps run as one, and which of its values are stored."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pyg_incremental.engine.terms import with_terms
from pyg_incremental.ops import Aggregate, aggregations, plain_sum
from pyg_incremental.ops.maps import merged
from pyg_incremental.ops.recompute import Recomputed
from pyg_incremental.ops.recomputed_sum import RecomputedSum, Remembered
from pyg_incremental.program.steps import Domain, Program, Step, Value
from pyg_incremental.typing import StoreName


def steps_and_stored(
    program: Program, store: StoreName = "fast", has_terms: bool = True
) -> tuple[list[Step], set[Value]]:
    """The steps to run and the values to keep between updates.

    `'fast'`: a value is stored if something reads it at rows where it is not itself dirty; the
    exception is what costs less to compute again than to keep: a chain of maps, each of which is
    read by the next one alone, is one map (see `_merged`), and an activation behind a sum part of
    all that read it (see `_mostly_differ`). If sums may have terms (`has_terms`), what is added to
    them, and what they are multiplied with, are part of them: see `engine.terms`.

    `'minimal'`: rows that maps compute are not stored where only maps and sums read them
    (NeutronRT keeps aggregates and recomputes the rest). Whoever reads such a row computes it from
    what is stored.
    """
    if store == "minimal":
        return _minimal(program)
    steps = with_terms(program) if has_terms else program.steps
    needed = _needed(steps, program.outputs)
    steps = _beside(_merged(steps, needed))
    stored = {v for v in needed if any(v is s.output for s in steps)}
    return steps, _with_origins(steps, stored)


def _minimal(program: Program) -> tuple[list[Step], set[Value]]:
    """The same, storing as little as possible."""
    kept, links = set(program.outputs), _links(program.steps)
    for s in program.steps:
        is_link = s.output.domain is Domain.EDGE and s.output in links
        if not s.computes or not (_is_on_nodes(s) or is_link):
            kept.add(s.output)
        if not s.computes and plain_sum(s) is None:
            kept.update(s.inputs)  # such as what a maximum compares bit by bit
    for s in program.steps:
        # Nobody remembers OLD rows of a step that may give rows of another shape.
        if s.reads_whole:
            kept.update(r.output for r in program.steps if s.output in r.inputs)
    steps = _merged(program.steps, kept)
    recomputed = {s.output for s in steps} - kept
    watched = {v for s in steps if s.output in recomputed for v in s.inputs}
    other = {s.output: _over_recomputed(s, recomputed, watched) for s in aggregations(steps)}
    for s in steps:
        if s.output in recomputed:
            assert s.row_fn is not None
            other[s.output] = Recomputed(s.output, s.inputs, s.row_fn, s.costly)
    return [other.get(s.output, s) for s in steps], {s.output for s in steps if s.output in kept}


def _is_on_nodes(step: Step) -> bool:
    """Whether a step reads and makes node rows only."""
    return all(v.domain is Domain.NODE for v in (step.output, *step.inputs))


def _over_recomputed(step: Aggregate, recomputed: set[Value], watched: set[Value]) -> Step:
    """What runs in place of an aggregation if some values are not stored.

    Args:
        step: The aggregation.
        recomputed: The values that are not stored.
        watched: Those whose OLD rows they are computed from.
    """
    loops, reverse, graph, plain = step.loops, step.reverse, step.graph, plain_sum(step)
    if plain is not None and plain.source in recomputed:
        step = RecomputedSum(
            step.output, step.inputs, loops, reverse, plain.source, plain.weight, graph=graph
        )
    if step.output in watched:
        return Remembered(step.output, step.inputs, loops, reverse, step, graph=graph)
    return step


def _needed(steps: Sequence[Step], outputs: Iterable[Value]) -> set[Value]:
    """What is stored in any case.

    That is: messages (their OLD rows are retracted), edge values, what runs on all rows, what
    leaves, and what a costly map reads (rows that come out equal are then found before it runs),
    unless they hardly ever do, or are a link of a chain of maps.
    """
    needed, different, links = set(outputs), _mostly_differ(steps), _links(steps)
    for s in steps:
        on_nodes = s.output.domain is Domain.NODE or s.output in links
        if not s.computes or not on_nodes:
            needed.add(s.output)
        if not s.computes:
            needed.update(s.inputs)
        elif s.costly:
            needed.update(v for v in s.inputs if v not in different and v not in links)
    return needed


def _links(steps: Sequence[Step]) -> set[Value]:
    """Rows that a map makes for one other map, which reads no other rows.

    Where they changed, that mostly does as well: a row of several channels seldom comes out as it
    was. Before a product they would be stored to be compared, and for each edge twice.
    """
    readers, made = _readers(steps), {s.output for s in steps if s.computes}
    found = set[Value]()
    for s in steps:
        rows = [v for v in s.inputs if v.domain is not Domain.WHOLE]
        if s.computes and len(rows) == 1 and rows[0] in made and readers[rows[0]] == 1:
            found.update(rows)
    return found


def _mostly_differ(steps: Sequence[Step]) -> set[Value]:
    """Activations and the like behind aggregations that add: where a row changed, so do they.

    A message that changed moves all channels of a row. To store what is made of it, and to compare
    that with what it was, would find next to nothing to leave out.
    """
    found = {s.output for s in steps if s.changes_throughout}
    sums, readers, costly = frozenset(found), _readers(steps), set[Value]()
    for s in steps:
        if not s.computes or len(s.inputs) > 1 or found.isdisjoint(s.inputs):
            continue
        if s.costly or not costly.isdisjoint(s.inputs):
            costly.add(s.output)
        if s.output not in costly or readers.get(s.output) == 1:  # no product is computed twice
            found.add(s.output)
    return found - sums


def _with_origins(steps: list[Step], stored: set[Value]) -> set[Value]:
    """Add what is read at rows where it is not itself dirty.

    The dirty rows of a value are described by the set of its *origins*: a stored value is its own
    origin, because what comes out equal leaves its dirty set; any other value has the origins of
    its inputs. A map may read an input that is not stored only if both have the same origins.
    """
    while True:
        origins: dict[Value, frozenset[Value]] = {}
        more: set[Value] = set()
        for s in steps:
            union = frozenset[Value]().union(*(origins[v] for v in s.inputs))
            origins[s.output] = frozenset([s.output]) if s.output in stored else union
            if s.computes:
                more.update(v for v in s.inputs if v not in stored and origins[v] != union)
        if not more:
            return stored
        stored = stored | more


def _readers(steps: Sequence[Step]) -> dict[Value, int]:
    """How often each value is read."""
    return Counter(v for s in steps for v in s.inputs)


def _merged(steps: Sequence[Step], needed: set[Value]) -> list[Step]:
    """The steps, with cheap maps merged into the map that reads them.

    Only a map that need not be stored and is read by maps is merged: by one, or where all its rows
    mostly differ, by each of them. A costly one is merged by one that reads nothing else, or what
    is made of the same.
    """
    readers = _readers(steps)
    alone = _of_the_same(steps, needed)
    in_maps = {v for s in steps if s.computes for v in s.inputs}
    different = _mostly_differ(steps)
    waiting: dict[Value, Step] = {}
    kept: list[Step] = []
    for s in steps:
        if s.computes:
            for v in [v for v in s.inputs if v in waiting]:
                s = merged(waiting[v], s)
            once = readers.get(s.output) == 1
            fits = s.output in different or (once and (not s.costly or s.output in alone))
            if s.output not in needed and fits and s.output in in_maps:
                waiting[s.output] = s
                continue
        kept.append(s)
    return kept


def _of_the_same(steps: Sequence[Step], needed: set[Value]) -> set[Value]:
    """Rows that are made of the same stored ones as all that is read beside them."""
    roots: dict[Value, frozenset[Value]] = {}
    found = set[Value]()
    for s in steps:
        rows = [v for v in s.inputs if v.domain is not Domain.WHOLE]
        union = frozenset[Value]().union(*(roots[v] for v in rows))
        kept = s.output in needed or not s.computes
        roots[s.output] = frozenset([s.output]) if kept else union
        if s.computes:
            found.update(v for v in rows if roots[v] == union)
    return found


def _beside(steps: list[Step]) -> list[Step]:
    """The steps, with maps of the same values behind each other.

    They change at the same rows, which are read once for all of them then.
    """
    found: list[Step] = []
    for s in steps:
        at = len(found)
        if _is_plain(s):
            alike = (i for i in range(at) if _is_plain(found[i]) and found[i].inputs == s.inputs)
            at = max(alike, default=at - 1) + 1
        found.insert(at, s)
    return found


def _is_plain(step: Step) -> bool:
    return step.computes and _is_on_nodes(step)

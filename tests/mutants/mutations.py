"""Small mistakes that somebody could make in the package, each of which a test has to notice."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One mistake.

    Attributes:
        name: What it is called in the table.
        file: The file of the package.
        old: What stands there, once.
        new: What stands there instead.
        why: What goes wrong then.
        first: The tests that are likely to notice; the others are run only if they do not.
    """

    name: str
    file: str
    old: str
    new: str
    why: str
    first: tuple[str, ...]

    @property
    def is_compiled(self) -> bool:
        """Whether Numba compiles it; then the tests run without Numba first."""
        return self.file.startswith("kernels/") and "reference" not in self.file


KERNELS = (
    "tests/contract/test_kernels.py", "tests/unit/test_extremum.py", "tests/unit/test_graph.py",
    "tests/contract/test_fast_path.py", "tests/unit/test_edge_functions.py",
)  # fmt: skip
GRAPH = (
    "tests/unit/test_graph.py", "tests/unit/test_semantics.py", "tests/contract/test_kernels.py",
)  # fmt: skip
WALKS = ("tests/contract/test_convs.py",)
DELTAS = ("tests/unit/test_semantics.py", "tests/test_errors.py", "tests/contract/test_laws.py",
          "tests/contract/test_ways_of_use.py")  # fmt: skip
MAXIMA = ("tests/unit/test_extremum.py", "tests/test_inkstream_work.py")
RANKS = ("tests/distributed/test_deltas.py", "tests/distributed/test_start.py",
         "tests/distributed/test_journeys.py")  # fmt: skip

SUMS, SOFTMAX = "kernels/compiled/sums.py", "kernels/compiled/softmax.py"
ALONG, GROUPED = "kernels/compiled/along.py", "kernels/compiled/grouped.py"
EXTREMUM, ROWS = "kernels/compiled/extremum.py", "kernels/compiled/rows.py"

MUTATIONS = [
    # Kernels: sums
    Mutation("push without weight", GROUPED,
             "            row[f] += w * difference[u, f]", "            row[f] += difference[u, f]",
             "changed messages travel without the weight of their edge", KERNELS),
    Mutation("difference turned around", ALONG,
             "diff[f] = diff.dtype.type(now[f]) - diff.dtype.type(before[f])",
             "diff[f] = diff.dtype.type(before[f]) - diff.dtype.type(now[f])",
             "old messages are added, new ones taken back", KERNELS),
    Mutation("loops are pushed along", ALONG,
             "        end += not (drop and v == u)", "        end += 1",
             "self-loops that do not count take part in a push", KERNELS),
    Mutation("loops are added", SUMS,
             "        if (drop and u == v) or not first <= dst[i] < last:",
             "        if not first <= dst[i] < last:",
             "self-loops that do not count come and go with events", KERNELS),
    Mutation("drift is not noticed", SUMS,
             "return drift <= limit * size and size < np.inf",
             "return size < np.inf",
             "a row that has lost its bits to cancellation stays as it is",
             ("tests/precision/test_drift.py",)),
    Mutation("empty rows keep crumbs", SUMS,
             "        if inn.degree[v] == 0:\n            state[v] = 0",
             "        if inn.degree[v] == 0:\n            state[v] *= 1",
             "a row whose last edge left keeps rounding errors", KERNELS),
    Mutation("a mark without its copy", GROUPED,
             "            place[count - 1] = -1 - at", "            pass",
             "edges that came or left do not count as what a row was, where few are pushed along",
             KERNELS),
    Mutation("a closed sum does not push to itself", ALONG,
             "        if own_at:", "        if own_at and drop and u > last:",
             "a row whose features changed keeps its old message to itself",
             ("tests/unit/test_sum_terms.py",)),
    Mutation("one own row for all", SUMS,
             "                row[f] += own[v if each else 0, f]",
             "                row[f] += own[0, f]",
             "rows that are summed afresh get the root term of the first",
             ("tests/unit/test_sum_terms.py",)),
    Mutation("marks are not settled", GROUPED,
             "        if behind[r] == end and not is_marked:", "        if behind[r] == end:",
             "a row that only an edge that came or left reaches is not named",
             ("tests/unit/test_wide_pushes.py",)),
    Mutation("held against too late", GROUPED,
             "where[first + r] if is_marked and compares else -1", "-1",
             "edges that came or left do not count as what a row was",
             ("tests/unit/test_wide_pushes.py",)),
    # Kernels: attention
    Mutation("reference of the first edge", SOFTMAX,
             "(sign > 0 and row[width + h] == 0 and drift[v, 0] == 0)",
             "(sign > 0 and row[width + h] == 0 and drift[v, 0] < 0)",
             "the first edge of an empty row is measured against no reference",
             ("tests/contract/test_far_logits.py", *KERNELS)),
    Mutation("logits may exceed any reference", SOFTMAX,
             "if not shift <= REACH or", "if",
             "exponentials overflow when a logit grows", ("tests/contract/test_far_logits.py",)),
    Mutation("mass without numerator", SOFTMAX,
             "    w, (first, last) = sign * p, columns(h, channels)",
             "    w, (first, last) = p, columns(h, channels)",
             "values are not taken back", KERNELS),
    Mutation("slope on both sides", SOFTMAX,
             "(a if a > 0 else (a * slope if a <= 0 else a))", "(a * slope)",
             "leaky ReLU is none", KERNELS),
    Mutation("loop does not keep a row", SOFTMAX,
             "        if inn.degree[v] == 0 and not has_loop:", "        if inn.degree[v] == 0:",
             "a node without edges forgets its own loop", KERNELS),
    # Kernels: extrema
    Mutation("ties go to the youngest", EXTREMUM,
             "math.copysign(one, b), slot < owner", "math.copysign(one, b), slot > owner",
             "which edge owns a channel depends on the past", MAXIMA),
    Mutation("NaN does not win", EXTREMUM,
             "    return (a > b) | same | ((a != a) & ((b == b) | tie))",
             "    return (a > b) | same",
             "a NaN among messages is not seen", MAXIMA),
    Mutation("owners stay when they leave", EXTREMUM,
             "                    owner[v, f] = EXPOSED", "                    owner[v, f] = s",
             "a channel keeps the message of an edge that is gone", MAXIMA),
    Mutation("one exposed channel is enough", EXTREMUM,
             "for f in range(owner.shape[1]):\n                if owner[v, f] == EXPOSED:",
             "for f in range(1):\n                if owner[v, f] == EXPOSED:",
             "rows exposed in other channels are not read again", MAXIMA),
    # Kernels: rows and lists
    Mutation("new rows may be equal", ROWS,
             "        differs = v >= first_new\n", "        differs = False\n",
             "a new node whose row is what happens to stand there is not named",
             ("tests/unit/test_semantics.py", *KERNELS)),
    Mutation("old rows are written late", ROWS,
             "                old[n, f] = store[v, f]", "                old[n, f] = new[i, f]",
             "differences are zero", KERNELS),
    Mutation("neighbours drop the wrong place", "kernels/adjacency.py",
             "            positions[adj.edge[first + at]] = at\n", "",
             "the edge that moved up is not found there when it leaves", GRAPH),
    Mutation("a list moves without its slots", "kernels/adjacency.py",
             "                adj.edge[new + k] = adj.edge[old + k]\n", "",
             "edges of a list that grew carry other data", GRAPH),
    Mutation("older edges are forgotten", "kernels/pairs.py",
             "        slots.older[newer] = slots.older[slot]", "        pass",
             "a chain of parallel edges leads through one that left",
             ("tests/contract/test_ways_to_say_it.py", *GRAPH)),
    Mutation("searching stops at a gap", "kernels/pairs.py",
             "        if head == EMPTY:\n", "        if head == EMPTY or head == GONE:\n",
             "pairs behind one that left are not found", GRAPH),
    # The reference kernels
    Mutation("reference: loops are added", "kernels/reference/sums.py",
             "        keep = src != dst", "        keep = src == src",
             "self-loops that do not count come and go with events", WALKS),
    Mutation("reference: equal messages only", "kernels/reference/sums.py",
             "moving = (diff != 0).any(1)", "moving = (diff != 0).all(1)",
             "a message that changed in some channels is not pushed",
             ("tests/contract/test_models.py",)),
    # Aggregations
    Mutation("changed edges are only added", "ops/retracting.py",
             "            self._add(changed, -1, before=True)\n", "",
             "the old data of an edge stay in the sum", WALKS),
    Mutation("changed weights leave as they are", "ops/sum.py",
             "if before and weight.old_changed is not None", "if False",
             "the new weight of an edge is taken back", WALKS),
    Mutation("flow is not turned", "ops/base.py",
             "return (inn, out) if self.step.reverse else (out, inn)", "return out, inn",
             "target_to_source reads the wrong lists", WALKS),
    Mutation("pull forgets events", "ops/base.py",
             "        if context.settle.count:\n            count = kernels.unite(",
             "        if context.settle.count > 99:\n            count = kernels.unite(",
             "rows of new nodes are not settled", WALKS),
    Mutation("renewed rows are not", "ops/retracting.py",
             "(*self._own(), context.renew_ids)", "(*self._own(),)",
             "refresh(nodes) and scrubbing leave sums as they are",
             ("tests/precision/test_drift.py", "tests/contract/test_ways_of_use.py")),
    Mutation("target's own part", "ops/softmax.py",
             "return [self.target.ids, self.loop.ids", "return [None, self.loop.ids",
             "logits follow the source only", ("tests/contract/test_far_logits.py",)),
    Mutation("edges that changed do not leave", "ops/extremum.py",
             "leaving, coming = [gone, *again], [new, *again]",
             "leaving, coming = [gone], [new, *again]",
             "a maximum keeps the old message of an edge", MAXIMA),
    Mutation("function of old target", "ops/edge_function.py",
             "function.old_edge_rows(slots) if before else [", "[",
             "old edge data stay in the sum", ("tests/unit/test_edge_functions.py",)),
    # Deltas and the graph
    Mutation("first of several rows counts", "delta/given.py",
             "np.unique(keys[::-1], return_index=True)\n    return np.sort(keys.size - 1 - at)",
             "np.unique(keys, return_index=True)\n    return np.sort(at)",
             "of a node listed twice the wrong row is taken", DELTAS),
    Mutation("loops are mirrored", "delta/given.py",
             "    again = np.flatnonzero(edges[0] != edges[1])",
             "    again = np.flatnonzero(edges[0] != -1)",
             "undirected=True adds a self-loop twice", DELTAS),
    Mutation("removed nodes keep new edges", "delta/resolve/edges.py",
             "stays = ~(np.isin(added[0], gone[0]) | np.isin(added[1], gone[1]))",
             "stays = ~np.isin(added[0], gone[0])",
             "edges that a delta adds to a node that it removes stay", DELTAS),
    Mutation("missing edges are ignored", "delta/resolve/resolver.py",
             '        if delta.missing == "error":', '        if delta.missing == "ignore":',
             "a delta that names edges that are not there is taken", DELTAS),
    Mutation("repeated ids look plain", "kernels/graph_at.py",
             "        distinct &= ids[order[i]] != ids[order[i - 1]]", "        distinct &= True",
             "a delta in which an id is listed twice takes the short way", DELTAS),
    Mutation("ages are not kept", "graph/edge_store.py",
             "        self.next_order += count\n        self.num_edges += count",
             "        self.num_edges += count",
             "edges are not in order of insertion, nor the youngest found", GRAPH),
    Mutation("slots are used once", "session/session.py",
             "            graphs[name].free(happened.removed.slots)", "            pass",
             "room that edges have left is not used again, and memory grows", GRAPH + DELTAS),
    Mutation("features are not apart", "session/session.py",
             "return rows.clone() if first <= rows.data_ptr() < first + stored.nbytes else rows",
             "return rows",
             "a delta made of rows of inc.x is overwritten while it is read", DELTAS),
    Mutation("interrupts leave no trace", "session/session.py",
             "            self._rows_before(resolved), edge_data_before(resolved, graphs),",
             "            {}, {},",
             "what stood in the rows of an update that is taken back is lost",
             ("tests/contract/test_failing_models.py", "tests/property/test_state_machine.py")),
    # Ranks
    Mutation("ghosts are not told", "distributed/boundary/link.py",
             "            self.newly[rank] = local, there", "            pass",
             "a rank that holds a new ghost never gets its row", RANKS),
    Mutation("ghosts are told for ever", "distributed/boundary/link.py",
             "            self._room(rank)[local] = -1", "            pass",
             "rows go to ranks that need them no more", RANKS),
    Mutation("changed rows of others", "distributed/boundary/exchange.py",
             "            out.old = join([old[: ids.count], out.old[: out.ids.count]])",
             "            out.old = join([out.old[: out.ids.count], old[: ids.count]])",
             "what is taken back belongs to other rows", RANKS),
    Mutation("removed nodes are told to owners", "distributed/delta/route.py",
             "                says = [True] * size", "                pass",
             "edges from a removed node stay on other ranks", RANKS),
    Mutation("ghosts leave with their first edge", "distributed/part/merge.py",
             "            if count == degree[gone[i]]:", "            if count >= 1:",
             "a ghost that edges still need is let go", RANKS),
]  # fmt: skip

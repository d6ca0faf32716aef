"""How a plan is laid out for the machine: which column of which table says what.

Everything is a 64-bit integer; addresses are zero where there is nothing. `fast_path.tables` writes
the tables, `machine` and `machine_steps` read them.
"""

from typing import NamedTuple

import numpy as np

from pyg_incremental.kernels import graph_at
from pyg_incremental.kernels.address import line_at, rows_at
from pyg_incremental.kernels.by_address import call_at
from pyg_incremental.kernels.compiled.row_ops import COLUMNS as OP_COLUMNS
from pyg_incremental.kernels.graph_at import lists_at
from pyg_incremental.kernels.jit import inner
from pyg_incremental.typing import Array

# A cell for every value: where its rows are, how many there are and how wide; room for the ids of
# `ROOM` changed rows, for their OLD rows if somebody retracts these, and for the new rows if these
# are not stored; how many rows have changed; whether rows are compared by value, not bit by bit;
# how many nodes there are of the kind whose rows they are, and the first of them that is new; and
# whether rows are of float64 where most are not.
ROWS, CAPACITY, WIDTH, IDS, OLD, FRESH, ROOM, COUNT, BY_VALUE, NODES, FIRST_NEW, WIDE = range(12)
CELL_COLUMNS = 12

# A step for each executor.
KIND, OUT, SOURCE, DROP, REVERSE, WEIGHT, SLOTS, DRIFT, SCALE, TARGET, LOOP, OWNER = range(12)
LARGEST, FIRST_INPUT, LAST_INPUT, FIRST_OP, LAST_OP, RESULT, HEADS, MESSAGE, WAKES = range(12, 21)
ADDED, FACTOR, BEFORE, BIAS, OF_LOOP, LOW, CODE = range(21, 28)
STEP_COLUMNS = 28
"""Of a sum: the cells of what is added to it, and of what it is multiplied with, or -1; where
somebody is told which rows changed, room for those to which edges lead that leave or come; one row
that is added to all; the weight of every row in its own sum, or zero; and, of a softmax as well,
what its rows lose when they are rounded to float32. Of each that the machine does, the address of
the code for its kind, see `kinds`."""
NOTHING, INPUT, MAP, TOTAL, SOFTMAX, EXTREMUM, EXCHANGE, ONES, EDGE_MAP, OTHER = range(10)
WIDE_MAP, WIDE_TOTAL, FUNCTION_TOTAL, FUNCTION_SOFTMAX, FUNCTION_EXTREMUM = range(10, 15)
"""Kinds of step. `OTHER` is one that its executor carries out; wide ones compute in float64; the
last three are those of messages that are functions of edges, which have `MESSAGE` elements."""
AT_EDGES = EDGE_MAP, SOFTMAX, WIDE_TOTAL, FUNCTION_TOTAL, FUNCTION_SOFTMAX
"""Kinds beside sums that have something to do with edges before anything else is done."""
BY_ANYTHING, BY_ROWS, BY_LOOPS, BY_EDGES = range(4)
"""What `WAKES` a step of kind `OTHER`: whatever happens; changed rows of its inputs and new nodes;
beside these a self-loop that comes or goes, or any edge."""

LIMIT, SLOPE = range(2)
"""Columns of the numbers of a step, which are floats."""
CELL, REGISTER, END, OWN = range(4)
"""Columns of the inputs of maps and of functions of edges. For the latter, at which `END` of an
edge the input is read, and for one on the edge the cell that a self-loop has in its place."""
INPUT_COLUMNS = 4
AT_SOURCE, AT_TARGET, ON_EDGE = range(3)
STAT_COLUMNS = 9

# Where all that is, in one line. Behind that what one update brings: sources, targets and slots of
# the edges that left and came, the graph (see `graph_at`), how many nodes there are, from how many
# elements on a step is one for threads, and the rows that are given. Last the code that runs lists
# of operations, see `row_ops`, and that for large sums, if it is there.
(
    SPACE, SPACE_SIZE, OPS, NUM_OPS, INDEX, INDEX_SIZE, CELLS, NUM_CELLS, STEPS, NUM_STEPS, NUMBERS,
    INPUTS, NUM_INPUTS, STATS, STAMP, TOUCHED, NUM_ROWS, WHERE, WHERE_SIZE, WIDE_SPACE,
    WIDE_SPACE_SIZE, WIDE_INDEX, WIDE_INDEX_SIZE,
) = range(23)  # fmt: skip
GONE_SRC, GONE_DST, GONE_SLOTS, NUM_GONE, CAME_SRC, CAME_DST, CAME_SLOTS, NUM_CAME = range(23, 31)
PLACES, NUM_NODES, MANY_AT, GIVEN_IDS, GIVEN_ROWS, NUM_GIVEN = range(31, 37)
RUN, RUN_WIDE, LARGE_SUM = range(37, 40)
PLAN_SIZE = 40
_LONG = np.int64(0)


class Machine(NamedTuple):
    """A plan, and the dtype of its rows. The functions below give its tables as arrays.

    As arrays of one large tuple they would all be handed from function to function, two hundred
    numbers with each call, which takes long to compile.

    Attributes:
        plan: Where everything is.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.
    """

    plan: Array
    zero: float
    bits: int


@inner()
def machine_at(address, zero, bits):  # type: ignore[no-untyped-def]
    """The plan at an address."""
    return Machine(line_at(address, PLAN_SIZE, _LONG), zero, bits)


@inner()
def tell(plan, places, num_nodes, events, many):  # type: ignore[no-untyped-def]
    """Write down what an update brings; whoever asks for it holds the arrays until it is through.

    Args:
        plan: The plan.
        places: Where the graph is.
        num_nodes: The number of nodes.
        events: Sources, targets and slots of the edges that left, and of those that came.
        many: Elements from more of which on a step is left to threads.
    """
    plan[PLACES], plan[NUM_NODES], plan[MANY_AT] = places.ctypes.data, num_nodes, many
    plan[GONE_SRC], plan[GONE_DST] = events[0].ctypes.data, events[1].ctypes.data
    plan[GONE_SLOTS], plan[NUM_GONE] = events[2].ctypes.data, events[2].size
    plan[CAME_SRC], plan[CAME_DST] = events[3].ctypes.data, events[4].ctypes.data
    plan[CAME_SLOTS], plan[NUM_CAME] = events[5].ctypes.data, events[5].size


@inner()
def tell_given(plan, ids, rows):  # type: ignore[no-untyped-def]
    """The same of rows that are given."""
    plan[GIVEN_IDS], plan[NUM_GIVEN] = ids.ctypes.data, ids.size
    plan[GIVEN_ROWS] = rows.ctypes.data


@inner()
def events_of(m):  # type: ignore[no-untyped-def]
    """Sources, targets and slots of the edges that left, and of those that came."""
    plan = m.plan
    gone, came = plan[NUM_GONE], plan[NUM_CAME]
    return (
        line_at(plan[GONE_SRC], gone, _LONG),
        line_at(plan[GONE_DST], gone, _LONG),
        line_at(plan[GONE_SLOTS], gone, _LONG),
        line_at(plan[CAME_SRC], came, _LONG),
        line_at(plan[CAME_DST], came, _LONG),
        line_at(plan[CAME_SLOTS], came, _LONG),
    )


@inner()
def pushed_of(m, step):  # type: ignore[no-untyped-def]
    """The neighbour lists along which messages are pushed."""
    places = line_at(m.plan[PLACES], graph_at.COLUMNS, _LONG)
    return lists_at(places, graph_at.INN if step[REVERSE] else graph_at.OUT)


@inner()
def read_of(m, step):  # type: ignore[no-untyped-def]
    """Those over which rows are read."""
    places = line_at(m.plan[PLACES], graph_at.COLUMNS, _LONG)
    return lists_at(places, graph_at.OUT if step[REVERSE] else graph_at.INN)


@inner()
def space_of(m):  # type: ignore[no-untyped-def]
    """Registers and constants of the maps (see `row_ops`)."""
    return line_at(m.plan[SPACE], m.plan[SPACE_SIZE], m.zero)


@inner()
def wide_space_of(m):  # type: ignore[no-untyped-def]
    """Those of the maps in float64."""
    return line_at(m.plan[WIDE_SPACE], m.plan[WIDE_SPACE_SIZE], np.float64(0))


@inner()
def run(m, step, rows):  # type: ignore[no-untyped-def]
    """Run the operations of a map, or of a function, on so many rows of the registers."""
    ops = rows_at(m.plan[OPS], m.plan[NUM_OPS], OP_COLUMNS, _LONG)
    index = line_at(m.plan[INDEX], m.plan[INDEX_SIZE], _LONG)
    given = space_of(m), ops, step[FIRST_OP], step[LAST_OP], index, np.int64(rows)
    call_at(m.plan[RUN], given, None)  # type: ignore[no-untyped-call]


@inner()
def run_wide(m, step, rows):  # type: ignore[no-untyped-def]
    """The same of one in float64."""
    ops = rows_at(m.plan[OPS], m.plan[NUM_OPS], OP_COLUMNS, _LONG)
    index = line_at(m.plan[WIDE_INDEX], m.plan[WIDE_INDEX_SIZE], _LONG)
    given = wide_space_of(m), ops, step[FIRST_OP], step[LAST_OP], index, np.int64(rows)
    call_at(m.plan[RUN_WIDE], given, None)  # type: ignore[no-untyped-call]


@inner()
def cells_of(m):  # type: ignore[no-untyped-def]
    """The values."""
    return rows_at(m.plan[CELLS], m.plan[NUM_CELLS], CELL_COLUMNS, _LONG)


@inner()
def steps_of(m):  # type: ignore[no-untyped-def]
    """The executors."""
    return rows_at(m.plan[STEPS], m.plan[NUM_STEPS], STEP_COLUMNS, _LONG)


@inner()
def numbers_of(m):  # type: ignore[no-untyped-def]
    """Floats that go with the steps."""
    return rows_at(m.plan[NUMBERS], m.plan[NUM_STEPS], 2, np.float64(0))


@inner()
def inputs_of(m):  # type: ignore[no-untyped-def]
    """Cells and registers of the inputs of maps and functions."""
    return rows_at(m.plan[INPUTS], m.plan[NUM_INPUTS], INPUT_COLUMNS, _LONG)


@inner()
def stats_of(m):  # type: ignore[no-untyped-def]
    """What was done, step by step."""
    return rows_at(m.plan[STATS], m.plan[NUM_STEPS], STAT_COLUMNS, _LONG)


@inner()
def stamp_of(m):  # type: ignore[no-untyped-def]
    """Marks for rows."""
    return line_at(m.plan[STAMP], m.plan[NUM_ROWS], _LONG)


@inner()
def touched_of(m):  # type: ignore[no-untyped-def]
    """Room for rows."""
    return line_at(m.plan[TOUCHED], m.plan[NUM_ROWS], _LONG)


@inner()
def where_of(m):  # type: ignore[no-untyped-def]
    """Room for positions."""
    return line_at(m.plan[WHERE], m.plan[WHERE_SIZE], _LONG)


@inner()
def stored(cell, like):  # type: ignore[no-untyped-def]
    """The rows of a cell."""
    return rows_at(cell[ROWS], cell[CAPACITY], cell[WIDTH], like)


@inner()
def old_rows(cell, like):  # type: ignore[no-untyped-def]
    """What stood in the rows of a cell that changed; without rows where nobody asks."""
    return rows_at(cell[OLD], cell[ROOM], cell[WIDTH], like)


@inner()
def changed_ids(cell):  # type: ignore[no-untyped-def]
    """The rows of a cell that changed."""
    return line_at(cell[IDS], cell[COUNT], np.int64(0))


@inner()
def id_room(cell):  # type: ignore[no-untyped-def]
    """Room for the rows of a cell that changed."""
    return line_at(cell[IDS], cell[ROOM], np.int64(0))

"""How a plan is laid out for the machine: which column of which table says what.

Everything is a 64-bit integer; addresses are zero where there is nothing. `fast_path.tables` writes
the tables, `machine` and `machine_steps` read them.
"""

from typing import NamedTuple

import numpy as np

from pyg_incremental.kernels.address import borrowed, line_at, rows_at
from pyg_incremental.kernels.adjacency import Adjacency
from pyg_incremental.kernels.graph_at import INN as GRAPH_INN
from pyg_incremental.kernels.graph_at import OUT as GRAPH_OUT
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
ADDED, FACTOR, BEFORE, BIAS, OF_LOOP, LOW = range(21, 27)
STEP_COLUMNS = 27
"""Of a sum: the cells of what is added to it, and of what it is multiplied with, or -1; where
somebody is told which rows changed, room for those to which edges lead that leave or come; one row
that is added to all; the weight of every row in its own sum, or zero; and, of a softmax as well,
what its rows lose when they are rounded to float32."""
NOTHING, INPUT, MAP, TOTAL, SOFTMAX, EXTREMUM, EXCHANGE, ONES, EDGE_MAP, OTHER = range(10)
WIDE_MAP, WIDE_TOTAL, FUNCTION_TOTAL, FUNCTION_SOFTMAX, FUNCTION_EXTREMUM = range(10, 15)
"""Kinds of step. `OTHER` is one that its executor carries out; wide ones compute in float64; the
last three are those of messages that are functions of edges, which have `MESSAGE` elements."""
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

# Where all that is, in one line.
(
    SPACE, SPACE_SIZE, OPS, NUM_OPS, INDEX, INDEX_SIZE, CELLS, NUM_CELLS, STEPS, NUM_STEPS, NUMBERS,
    INPUTS, NUM_INPUTS, STATS, STAMP, TOUCHED, NUM_ROWS, WHERE, WHERE_SIZE, WIDE_SPACE,
    WIDE_SPACE_SIZE, WIDE_INDEX, WIDE_INDEX_SIZE,
) = range(23)  # fmt: skip
PLAN_SIZE = 23


class Machine(NamedTuple):
    """The tables, as arrays, and what one update brings.

    Attributes:
        space: Registers and constants of the maps (see `row_ops`).
        ops: What the maps do.
        index: Positions that `ops` refers to.
        wide_space: Registers and constants of the maps in float64.
        wide_index: Positions that these refer to.
        cells: The values.
        steps: The executors.
        numbers: Floats that go with the steps.
        inputs: Cells and registers of the inputs of maps and functions.
        stats: What was done, step by step.
        stamp: Marks for rows.
        touched: Room for rows.
        where: Room for positions.
        out: Lists along out-edges.
        inn: Lists along in-edges.
        events: Sources, targets and slots of the edges that left, and of those that came.
        num_nodes: Number of nodes.
        zero: A zero of the dtype of rows.
        bits: An integer zero as wide.
    """

    space: Array
    ops: Array
    index: Array
    wide_space: Array
    wide_index: Array
    cells: Array
    steps: Array
    numbers: Array
    inputs: Array
    stats: Array
    stamp: Array
    touched: Array
    where: Array
    out: Adjacency
    inn: Adjacency
    events: tuple[Array, Array, Array, Array, Array, Array]
    num_nodes: int
    zero: float
    bits: int


@inner()
def machine_of(plan, places, events, num_nodes, zero, bits, op_columns):  # type: ignore[no-untyped-def]
    """The tables of a plan as arrays; `places` is the graph, see `graph_at`."""
    long = np.int64(0)
    steps = plan[NUM_STEPS]
    return Machine(
        line_at(plan[SPACE], plan[SPACE_SIZE], zero),
        rows_at(plan[OPS], plan[NUM_OPS], op_columns, long),
        line_at(plan[INDEX], plan[INDEX_SIZE], long),
        line_at(plan[WIDE_SPACE], plan[WIDE_SPACE_SIZE], np.float64(0)),
        line_at(plan[WIDE_INDEX], plan[WIDE_INDEX_SIZE], long),
        rows_at(plan[CELLS], plan[NUM_CELLS], CELL_COLUMNS, long),
        rows_at(plan[STEPS], steps, STEP_COLUMNS, long),
        rows_at(plan[NUMBERS], steps, 2, np.float64(0)),
        rows_at(plan[INPUTS], plan[NUM_INPUTS], INPUT_COLUMNS, long),
        rows_at(plan[STATS], steps, STAT_COLUMNS, long),
        line_at(plan[STAMP], plan[NUM_ROWS], long),
        line_at(plan[TOUCHED], plan[NUM_ROWS], long),
        line_at(plan[WHERE], plan[WHERE_SIZE], long),
        lists_at(places, GRAPH_OUT),
        lists_at(places, GRAPH_INN),
        (
            borrowed(events[0]),
            borrowed(events[1]),
            borrowed(events[2]),
            borrowed(events[3]),
            borrowed(events[4]),
            borrowed(events[5]),
        ),
        num_nodes,
        zero,
        bits,
    )


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

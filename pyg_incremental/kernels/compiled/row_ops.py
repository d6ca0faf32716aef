"""Row maps as lists of small operations, run on a block of rows.

A *register* is a block of rows, `[BLOCK, width]`, at some place of one flat array `space`;
constants lie in the same array, repeated for every row of a block. An operation is one row of
`ops`, with the columns below. The lists are written by `fast_path.row_ops`.
"""

import math
from typing import Any

import numpy as np

from pyg_incremental.kernels.address import fill
from pyg_incremental.kernels.jit import inner, njit

BLOCK = 32
"""Rows that one pass over the operations computes."""
ONE_THREAD = 1 << 18
"""Multiplications of one product up to which BLAS calls no threads of its own: ours are awake
where that pays. A row that needs more by itself may start them."""

# Columns of `ops`: what to do, where the result goes and how wide its rows are; where up to three
# operands stand, and how wide the rows of the first are; the place of an index in `index`, or for a
# product that of a register; the size of what is summed.
OP, TO, WIDTH, A, A_WIDTH, B, C, INDEX, INNER = range(9)
COLUMNS = 9

NAMES = (
    # `a @ b + c`, where `b` and `c` are not repeated; or of a row of several such, see `_linear`.
    "linear",
    # Within a row: `a[index]`; the same, each some times over; elements from `a[index]` on;
    # `out[index] = a` in rows that are `b` wide, and the same from `out[index]` on; sum of groups
    # that each begin at `a[index]`, and of rows that do; sum and maximum of `a[index]` in groups.
    "copy", "repeat", "slice", "place", "insert", "total", "across", "sum", "amax",
    # One operand; `round` is to float32.
    "abs", "relu", "exp", "log", "sqrt", "sigmoid", "tanh", "erf", "log1p", "expm1", "isnan",
    "isinf", "logical_not", "sign", "round",
    # Two operands.
    "add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
    "ge",
    # Three operands.
    "where",
)  # fmt: skip
CODES = {name: code for code, name in enumerate(NAMES)}
(
    LINEAR, COPY, REPEAT, SLICE, PLACE, INSERT, TOTAL, ACROSS, SUM, AMAX, ABS, RELU, EXP, LOG,
    SQRT, SIGMOID, TANH, ERF, LOG1P, EXPM1, ISNAN, ISINF, NOT, SIGN, ROUND, ADD, SUB, MUL, DIV,
    POW, ATAN2, MAXIMUM, MINIMUM, EQ, NE, LT, LE, GT, GE, WHERE,
) = range(len(NAMES))  # fmt: skip


@inner()
def _linear(space, to, width, a, inner, matrix, bias, chosen, rows):  # type: ignore[no-untyped-def]
    """`a @ matrix + bias`, by BLAS, a few rows at a time (see `ONE_THREAD`).

    If `chosen` is no -1, one element of each row stands there: which one of several matrices and
    biases, one behind the other, is meant. Without `a` that is a row of a table.
    """
    each, which = inner * width, 0
    some = 1 if chosen >= 0 else max(1, ONE_THREAD // max(1, each))
    for begin in range(0, rows, some):
        count = min(some, rows - begin)
        first, at = a + begin * inner, to + begin * width
        x = space[first : first + count * inner].reshape(count, inner)
        out = space[at : at + count * width].reshape(count, width)
        if chosen >= 0:
            which = int(space[chosen + begin])
        if each:
            first = matrix + which * each
            np.dot(x, space[first : first + each].reshape(inner, width), out)
        else:
            zero = -0.0 if bias >= 0 else 0.0  # to which any zero may be added
            fill(space[at : at + count * width], zero)
        if bias >= 0:
            first = bias + which * width
            for i in range(count):
                for f in range(width):
                    out[i, f] += space[first + f]


@inner(counted=False, error_model="numpy")
def _rare(op, a, b):  # type: ignore[no-untyped-def]
    """Operations on elements that are not worth a loop of their own; `b` is the second operand."""
    if op == LOG:
        return np.log(a)
    if op == LOG1P:
        return np.log1p(a)
    if op == POW:
        return a**b
    if op == ATAN2:
        return math.atan2(a, b)
    if op == SIGN:
        return 1.0 if a > 0 else (-1.0 if a < 0 else 0.0)
    if op == ROUND:
        return np.float32(a)
    if op == ISNAN:
        return 1.0 if a != a else 0.0
    if op == ISINF:
        return 1.0 if abs(a) == np.inf else 0.0
    return 1.0 if a == 0 else 0.0


@inner(error_model="numpy")
def _reduced(y):  # type: ignore[no-untyped-def]
    """`n` and `exp(r) - 1` in float32, where `y = n ln 2 + r`, of operations that run on vectors.

    Cody and Waite's reduction, |r| <= ln 2 / 2, and the polynomial of the Cephes library.
    """
    single = np.float32
    n = np.floor(y * single(1.44269504) + single(0.5))
    r = y - n * single(0.693359375) + n * single(2.12194440e-4)
    p = single(1.9875691500e-4) * r + single(1.3981999507e-3)
    p = p * r + single(8.3334519073e-3)
    p = p * r + single(4.1665795894e-2)
    p = p * r + single(1.6666665459e-1)
    p = p * r + single(5.0000001201e-1)
    return np.int32(n), p * r * r + r


@inner(error_model="numpy")
def _power_of_two(n):  # type: ignore[no-untyped-def]
    """`2^n` in float32, for n from -126 to 127; zero for -127."""
    return np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


@inner(error_model="numpy")
def _exp_single(x):  # type: ignore[no-untyped-def]
    """`exp(x)` in float32, without a call of C, which takes five times as long.

    Within one unit in the last place. The power of two comes in two factors, so that results below
    the smallest normal number are rounded once.
    """
    n, p = _reduced(min(max(x, np.float32(-104)), np.float32(89)))
    half = np.int32(n >> np.int32(1))
    found = (p + np.float32(1)) * _power_of_two(half) * _power_of_two(np.int32(n - half))
    return x if x != x else found


@inner(error_model="numpy")
def _expm1_single(x):  # type: ignore[no-untyped-def]
    """`exp(x) - 1` in float32; within two units in the last place.

    Of halves, because `2^n` alone may be too large.
    """
    n, p = _reduced(min(max(x, np.float32(-80)), np.float32(89)))
    half = _power_of_two(np.int32(n - np.int32(1)))
    found = (half * p + (half - np.float32(0.5))) * np.float32(2)
    return x if (x != x) | (x == np.float32(0)) else found  # -0.0 stays one


@inner(error_model="numpy")
def _tanh_single(x):  # type: ignore[no-untyped-def]
    """`tanh(x)` in float32, of operations that run on vectors.

    Up to 0.625 the odd polynomial of the Cephes library, as `1 - 2 / (exp(2 |x|) + 1)`, which
    stands for the others, has few digits near zero; within two units in the last place.
    """
    single = np.float32
    z = x * x
    p = single(-5.70498872745e-3) * z + single(2.06390887954e-2)
    p = p * z - single(5.37397155531e-2)
    p = p * z + single(1.33314422036e-1)
    p = p * z - single(3.33332819422e-1)
    size = abs(x)
    far = single(1) - single(2) / (_exp_single(size + size) + single(1))
    far = far if x > single(0) else -far
    near = x if x == single(0) else p * z * x + x  # -0.0 stays one
    return near if size < single(0.625) else far


@inner(error_model="numpy")
def _erf_single(x):  # type: ignore[no-untyped-def]
    """`erf(x)` in float32, on vectors; within two and a half units in the last place.

    The polynomials of the Cephes library: an odd one up to 1, and beyond that `1 - erfc(x)`, of
    `exp(-x^2) / x` and one in `1 / x^2`, from 2 on another one.
    """
    single = np.float32
    z, size = x * x, min(abs(x), single(10))
    p = single(7.853861353153693e-5) * z - single(8.010193625184903e-4)
    p = p * z + single(5.188327685732524e-3)
    p = p * z - single(2.685381193529856e-2)
    p = p * z + single(1.128358514861418e-1)
    p = p * z - single(3.761262582423300e-1)
    near = x * (p * z + single(1.128379165726710))
    q = single(1) / max(size, single(1))
    y = q * q
    p = single(2.326819970068386e-2) * y - single(1.387039388740657e-1)
    p = p * y + single(3.687424674597105e-1)
    p = p * y - single(5.824733027278666e-1)
    p = p * y + single(6.210004621745983e-1)
    p = p * y - single(4.944515323274145e-1)
    p = p * y + single(3.404879937665872e-1)
    p = p * y - single(2.741127028184656e-1)
    p = p * y + single(5.638259427386472e-1)
    r = single(-1.047766399936249e1) * y + single(1.297719955372516e1)
    r = r * y - single(7.495518717768503)
    r = r * y + single(2.921019019210786)
    r = r * y - single(1.015265279202700)
    r = r * y + single(4.218463358204948e-1)
    r = r * y - single(2.820767439740514e-1)
    r = r * y + single(5.641895067754075e-1)
    far = single(1) - _exp_single(-size * size) * q * (p if size < single(2) else r)
    far = far if x > single(0) else -far
    return x if x != x else (near if size < single(1) else far)


@inner(error_model="numpy")
def _sigmoid_single(x):  # type: ignore[no-untyped-def]
    """`sigmoid(x)` in float32, within two and a half units in the last place."""
    return np.float32(1) / (np.float32(1) + _exp_single(-x))


@inner(error_model="numpy")
def _sigmoid_double(x):  # type: ignore[no-untyped-def]
    """`sigmoid(x)` in float64."""
    return 1.0 / (1.0 + math.exp(-x))


def _of_elements(single: Any, double: Any) -> Any:
    """A function of each element of `a`: in float32 one that runs on vectors, and in float64."""

    @inner(counted=False, error_model="numpy")
    def function(out, a):  # type: ignore[no-untyped-def]
        if out.itemsize == 4:
            for f in range(out.size):
                out[f] = single(np.float32(a[f]))
        else:
            for f in range(out.size):
                out[f] = double(a[f])

    return function


_exp, _expm1 = _of_elements(_exp_single, math.exp), _of_elements(_expm1_single, math.expm1)
_erf, _tanh = _of_elements(_erf_single, math.erf), _of_elements(_tanh_single, math.tanh)
_sigmoid = _of_elements(_sigmoid_single, _sigmoid_double)


@inner(counted=False)
def _compared(op, out, a, b):  # type: ignore[no-untyped-def]
    """Whether `a` compares with `b` as `op` says. Only `NE` is true where one of them is NaN."""
    one, none = out.dtype.type(1), out.dtype.type(0)
    less = one if op in (LT, LE, NE) else none
    same = one if op in (LE, GE, EQ) else none
    more = one if op in (GT, GE, NE) else none
    other = one if op == NE else none
    for f in range(out.size):
        x, y = a[f], b[f]
        apart = less if x < y else (more if x > y else other)
        out[f] = same if x == y else apart


@inner(counted=False, error_model="numpy")
def _elements(op, out, a, b):  # type: ignore[no-untyped-def]
    """Operations on elements. The loops of the frequent ones run on vectors."""
    if op == ADD:
        for f in range(out.size):
            out[f] = a[f] + b[f]
    elif op == SUB:
        for f in range(out.size):
            out[f] = a[f] - b[f]
    elif op == MUL:
        for f in range(out.size):
            out[f] = a[f] * b[f]
    elif op == DIV:
        for f in range(out.size):
            out[f] = a[f] / b[f]
    elif op == MAXIMUM:
        for f in range(out.size):
            out[f] = a[f] if (a[f] > b[f]) | (a[f] != a[f]) else b[f]
    elif op == MINIMUM:
        for f in range(out.size):
            out[f] = a[f] if (a[f] < b[f]) | (a[f] != a[f]) else b[f]
    elif op >= EQ:
        _compared(op, out, a, b)
    elif op == ABS:
        for f in range(out.size):
            out[f] = abs(a[f])
    elif op == SQRT:
        for f in range(out.size):
            out[f] = np.sqrt(a[f])
    elif op == RELU:
        zero = out.dtype.type(0)
        for f in range(out.size):
            out[f] = zero if a[f] < zero else a[f]  # -0.0 stays one
    elif op == EXP:
        _exp(out, a)
    elif op == EXPM1:
        _expm1(out, a)
    elif op == ERF:
        _erf(out, a)
    elif op == TANH:
        _tanh(out, a)
    elif op == SIGMOID:
        _sigmoid(out, a)
    else:
        for f in range(out.size):
            out[f] = _rare(op, a[f], b[f])


@inner(counted=False)
def _repeat(out, a, which, times):  # type: ignore[no-untyped-def]
    """The elements `a[which]`, each so many times over."""
    begin, end = np.uint64(0), np.uint64(times)
    for g in range(out.size // times):
        element = a[np.uint64(which[g])]
        for f in range(begin, end):
            out[f] = element
        begin, end = end, end + np.uint64(times)


@inner(counted=False)
def _across(out, a, which, count):  # type: ignore[no-untyped-def]
    """The sum of as many rows, each of them where `which` says that it begins in `a`."""
    fill(out, out.dtype.type(0))
    for k in range(count):
        row = a[which[k] : which[k] + out.size]
        for f in range(out.size):
            out[f] += row[f]


@inner(counted=False, fastmath={"reassoc"})
def _total(a):  # type: ignore[no-untyped-def]
    """The sum of some elements, on vectors."""
    total = a.dtype.type(0)
    for f in range(a.size):
        total += a[f]
    return total


@inner(counted=False)
def _within(space, op, ops, o, index, rows):  # type: ignore[no-untyped-def]
    """Operations that move or reduce elements within a row."""
    width, wide, inner = ops[o, WIDTH], ops[o, A_WIDTH], ops[o, INNER]
    which = index[ops[o, INDEX] :]
    for i in range(rows):
        p = ops[o, A] + i * wide
        a = space[p : p + wide]
        to = ops[o, TO] + i * (ops[o, B] if op in (PLACE, INSERT) else width)
        out = space[to : to + width]
        if op == SLICE:
            first = np.uint64(which[0])
            for f in range(np.uint64(width)):
                out[f] = a[first + f]
        elif op == COPY:
            for f in range(width):
                out[f] = a[np.uint64(which[f])]
        elif op == REPEAT:
            _repeat(out, a, which, inner)
        elif op == PLACE:
            out = space[to:]
            for f in range(width):
                out[np.uint64(which[f])] = a[f]
        elif op == INSERT:
            first = np.uint64(to + which[0])
            for f in range(np.uint64(width)):
                space[first + f] = a[f]
        elif op == TOTAL:
            for f in range(width):
                out[f] = _total(a[which[f] : which[f] + inner])
        elif op == ACROSS:
            _across(out, a, which, inner)
        elif op == SUM:
            for f in range(width):
                total, k = space.dtype.type(0), np.uint64(f * inner)
                for e in range(k, k + np.uint64(inner)):
                    total += a[np.uint64(which[e])]
                out[f] = total
        else:
            for f in range(width):
                k = np.uint64(f * inner)
                top = a[np.uint64(which[k])]
                for e in range(k, k + np.uint64(inner)):
                    m = a[np.uint64(which[e])]
                    top = m if (m > top) | (m != m) else top
                out[f] = top


@inner(counted=False)
def _where(out, condition, a, b):  # type: ignore[no-untyped-def]
    """One or the other. Both are read, so that it runs on vectors."""
    for f in range(out.size):
        chosen, other = a[f], b[f]
        out[f] = chosen if condition[f] != 0 else other


@njit(counted=False)
def run_rows(space, ops, first, last, index, rows):  # type: ignore[no-untyped-def]
    """Run the operations from `first` to `last` on `rows` rows of the registers."""
    for o in range(first, last):
        op, to, width, a = ops[o, OP], ops[o, TO], ops[o, WIDTH], ops[o, A]
        size = rows * width
        if op == LINEAR:
            chosen = ops[o, INDEX]
            _linear(space, to, width, a, ops[o, INNER], ops[o, B], ops[o, C], chosen, rows)
        elif op <= AMAX:
            _within(space, op, ops, o, index, rows)
        elif op < WHERE:
            b = ops[o, B]
            _elements(op, space[to : to + size], space[a : a + size], space[b : b + size])
        else:
            b, c = ops[o, B], ops[o, C]
            _where(
                space[to : to + size], space[a : a + size], space[b : b + size],
                space[c : c + size],
            )  # fmt: skip

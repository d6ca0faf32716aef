"""Which functions of torch compute each row from the same row of their inputs, and when.

This is a table of meanings: what is not in it runs on all rows, which is always exact. Functions
stand in it by name (see `names`), in-place forms under the name without the underscore.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pyg_incremental.trace.nested import leaves


@dataclass(frozen=True)
class RowArgument:
    """An argument that has rows; `dim` is its number of dimensions, the first one the rows."""

    dim: int


@dataclass(frozen=True)
class Fixed:
    """A tensor without rows: `shape` has None where a size is not known."""

    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class RowOperation:
    """A call of a function on rows.

    Attributes:
        name: The function.
        args: Its arguments, with `RowArgument` and `Fixed` in place of tensors.
        kwargs: Likewise.
        dim: The number of dimensions of the result, the first of which is the rows by its size.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dim: int

    def argument(self, name: str, place: int, default: Any = None) -> Any:
        """An argument by name or place."""
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else default)

    @property
    def rows(self) -> list[RowArgument]:
        """The arguments that have rows."""
        return [v for v in leaves((self.args, self.kwargs)) if isinstance(v, RowArgument)]

    @property
    def first(self) -> int:
        """The number of dimensions of the first argument, or zero if it has no rows."""
        return self.args[0].dim if self.args and isinstance(self.args[0], RowArgument) else 0


Rule = Callable[[RowOperation], bool]
"""Whether a call works row by row."""


def why_not_row_function(call: RowOperation) -> str:
    """Why a call may mix rows, or an empty string if it cannot."""
    name = call.name.removesuffix("_") if not call.name.endswith("__") else call.name
    rule = _TABLE.get(name)
    if rule is None or "axis" in call.kwargs:
        return f"'{call.name.strip('<>')}' is not known to be row-wise"
    try:
        fine = rule(call)
    except (TypeError, ValueError, IndexError, AttributeError):  # arguments of another kind
        fine = False
    return "" if fine else f"'{name}' mixes rows in this call"


# Rules ###########################################################################################


def _elementwise(call: RowOperation) -> bool:
    """With broadcasting: rows meet rows, and nothing else is aligned with them."""
    return all(
        v.dim == call.dim if isinstance(v, RowArgument) else _stays_inside(v, call.dim)
        for v in leaves((call.args, call.kwargs))
        if isinstance(v, (RowArgument, Fixed))
    )


def _stays_inside(tensor: Fixed, dim: int) -> bool:
    """Whether a tensor that is broadcast against rows has none of its own."""
    ahead = len(tensor.shape) - dim
    return ahead < 0 or (ahead == 0 and tensor.shape[0] == 1)


def _inside(dim: Any, rank: int) -> bool:
    """Whether dimensions, of which there are `rank`, leave out the first one."""
    dims = dim if isinstance(dim, (tuple, list)) else [dim]
    return bool(dims) and all(
        isinstance(d, int) and not isinstance(d, bool) and -rank < d < rank and d != 0 for d in dims
    )


def _over(place: int = 1, default: Any = None, name: str = "dim") -> Rule:
    """Over dimensions of the first argument, which is the only one with rows."""

    def rule(call: RowOperation) -> bool:
        return len(call.rows) == 1 and _inside(call.argument(name, place, default), call.first)

    return rule


def _every(*dims: tuple[str, int]) -> Rule:
    """Over several dimensions, each an argument of its own."""

    def rule(call: RowOperation) -> bool:
        return len(call.rows) == 1 and all(
            _inside(call.argument(name, place), call.first) for name, place in dims
        )

    return rule


def _over_or_pairs(call: RowOperation) -> bool:
    """The maximum or minimum over a dimension, or of two tensors."""
    if isinstance(call.argument("other", 1), (RowArgument, Fixed)):
        return _elementwise(call)
    return _over()(call)


def _flip(call: RowOperation) -> bool:
    dims = call.kwargs.get("dims", call.args[1:])
    return len(call.rows) == 1 and all(_inside(d, call.first) for d in dims) and len(dims) > 0


def _cast(call: RowOperation) -> bool:
    """To the dtype or device of something else."""
    return call.first > 0


def _unsqueeze(call: RowOperation) -> bool:
    return len(call.rows) == 1 and _inside(call.argument("dim", 1), call.dim)


def _permute(call: RowOperation) -> bool:
    dims = call.argument("dims", 1)
    dims = call.args[1:] if isinstance(dims, int) else dims
    return len(call.rows) == 1 and dims[0] in (0, -call.first)


def _flatten(call: RowOperation) -> bool:
    return len(call.rows) == 1 and _inside(call.argument("start_dim", 1, 0), call.first)


def _join(default: int) -> Rule:
    def rule(call: RowOperation) -> bool:
        parts = call.argument("tensors", 0)
        dim = call.argument("dim", 1, default)
        return all(isinstance(p, RowArgument) for p in parts) and _inside(dim, call.dim)

    return rule


def _join_columns(call: RowOperation) -> bool:
    return all(isinstance(p, RowArgument) and p.dim > 1 for p in call.argument("tensors", 0))


def _reshape(call: RowOperation) -> bool:
    """The number of rows stays, as the symbolic size of the result says."""
    return len(call.rows) == 1 and call.first > 0


def _product(call: RowOperation) -> bool:
    """Of rows with a matrix, or of a matrix for each row with another one."""
    a, b = call.argument("input", 0), call.argument("other", 1, call.kwargs.get("mat2"))
    if isinstance(a, RowArgument) and isinstance(b, Fixed):
        return a.dim >= 2 and len(b.shape) <= 2 and (a.dim > 2 or len(b.shape) > 0)
    return isinstance(a, RowArgument) and isinstance(b, RowArgument) and a.dim == b.dim >= 3


def _product_added(call: RowOperation) -> bool:
    """Rows times a matrix, added to rows or to one row."""
    added, rows, matrix = (call.argument(n, i) for i, n in enumerate(("input", "mat1", "mat2")))
    fits = isinstance(rows, RowArgument) and isinstance(matrix, Fixed)
    return fits and (isinstance(added, RowArgument) or _stays_inside(added, 2))


def _linear(call: RowOperation) -> bool:
    return call.first >= 2 and len(call.rows) == 1


def _einsum(call: RowOperation) -> bool:
    equation, *operands = call.args
    operands = list(operands[0]) if isinstance(operands[0], (tuple, list)) else operands
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or not right or len(terms) != len(operands):
        return False
    row = right[0]
    return right.count(row) == 1 and all(
        term[:1] == row and term.count(row) == 1 if isinstance(v, RowArgument) else row not in term
        for term, v in zip(terms, operands, strict=True)
    )


def _normalized(call: RowOperation) -> bool:
    shape = call.argument("normalized_shape", 1)
    return len(call.rows) == 1 and 0 < len(shape) < call.first


def _batch_norm(call: RowOperation) -> bool:
    """With statistics that were learned."""
    given = isinstance(call.argument("running_mean", 1), Fixed)
    return given and call.argument("training", 5, False) is False and len(call.rows) == 1


def _group_norm(call: RowOperation) -> bool:
    return call.first >= 2 and len(call.rows) == 1


def _dropout(call: RowOperation) -> bool:
    return call.argument("training", 2, True) is False and call.first > 0


def _where(call: RowOperation) -> bool:
    return len(call.args) == 3 and _elementwise(call)


def _expand(call: RowOperation) -> bool:
    sizes = call.args[1] if isinstance(call.args[1], (tuple, list)) else call.args[1:]
    return len(call.rows) == 1 and sizes[0] == -1 and len(sizes) == call.first


def _expand_as(call: RowOperation) -> bool:
    other = call.argument("other", 1)
    return call.first > 0 and isinstance(other, RowArgument) and call.first == other.dim


def _repeat(call: RowOperation) -> bool:
    times = call.args[1] if isinstance(call.args[1], (tuple, list)) else call.args[1:]
    return len(call.rows) == 1 and times[0] == 1 and len(times) == call.first


def _index(call: RowOperation) -> bool:
    """Columns are picked, after a full slice; or a row of a table for each row of ids."""
    table, ids = call.args[:2]
    if isinstance(table, Fixed):
        return None not in table.shape and isinstance(ids, RowArgument)
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    lists = [i for i in index if isinstance(i, (list, Fixed))]
    if len(call.rows) != 1 or len(lists) > 1 or any(isinstance(i, bool) for i in index):
        return False
    if any(isinstance(i, Fixed) and None in i.shape for i in index):
        return False
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    if index[0] is Ellipsis:
        return used < call.first and index.count(Ellipsis) == 1 and not lists
    return isinstance(index[0], slice) and index[0] == slice(None)


def _along(call: RowOperation) -> bool:
    """Picks along a dimension that is not the rows, by ids that have the same rows or none."""
    dim, ids = call.argument("dim", 1), call.argument("index", 2)
    return _inside(dim, call.first) and isinstance(ids, RowArgument) and ids.dim == call.first


def _select_columns(call: RowOperation) -> bool:
    """Columns are picked; or a row of a table for each id."""
    table, ids = call.args[0], call.argument("index", 2)
    if isinstance(table, Fixed):
        plain = None not in table.shape and call.argument("dim", 1) == 0
        return plain and isinstance(ids, RowArgument)
    return (
        len(call.rows) == 1
        and _inside(call.argument("dim", 1), call.first)
        and isinstance(call.argument("index", 2), Fixed)
    )


def _one_hot(call: RowOperation) -> bool:
    classes = call.argument("num_classes", 1, -1)
    return isinstance(classes, int) and classes > 0 and call.first > 0


def _embedding(call: RowOperation) -> bool:
    """A row of a table for each id; without `max_norm`, which writes to the table."""
    plain = call.argument("max_norm", 3) is None
    return plain and call.first > 0 and isinstance(call.argument("weight", 1), Fixed)


def _pairs_of_rows(place: int, default: int) -> Rule:
    """A number for two rows, over a dimension that is not the rows."""

    def rule(call: RowOperation) -> bool:
        dim = call.argument("dim", place, default)
        return _elementwise_ranks(call) and _inside(dim, call.first)

    return rule


def _elementwise_ranks(call: RowOperation) -> bool:
    return call.first > 1 and all(
        v.dim == call.first if isinstance(v, RowArgument) else _stays_inside(v, call.first)
        for v in call.args[:2]
    )


_TABLE: dict[str, Rule] = dict.fromkeys(
    [
        "add", "sub", "subtract", "rsub", "mul", "multiply", "div", "rdiv", "divide", "true_divide",
        "floor_divide", "rfloor_divide", "remainder", "rremainder", "fmod", "neg", "negative",
        "positive", "pow", "rpow", "float_power", "exp", "exp2", "expm1", "log", "log1p", "log2",
        "log10", "sqrt", "rsqrt", "square", "abs", "absolute", "sign", "sgn", "signbit", "sin",
        "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
        "arcsin", "arccos", "arctan", "atan2", "arctan2", "sinc", "erf", "erfc", "erfinv",
        "digamma", "lgamma", "sigmoid", "expit", "logit", "relu", "clamp", "clamp_min",
        "clamp_max", "clip", "maximum", "minimum", "fmax", "fmin", "reciprocal", "floor", "ceil",
        "round", "trunc", "fix", "frac", "lerp", "addcmul", "addcdiv", "hypot", "copysign", "xlogy",
        "logaddexp", "logaddexp2", "heaviside", "deg2rad", "rad2deg", "isnan", "isinf", "isfinite",
        "isclose", "nan_to_num", "eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less",
        "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not",
        "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "zeros_like",
        "ones_like", "full_like", "masked_fill", "fill", "zero", "celu", "selu",
        "gelu", "elu", "leaky_relu", "silu", "mish", "softplus",
        "softsign", "hardtanh", "hardswish", "hardsigmoid", "relu6", "logsigmoid", "tanhshrink",
        "softshrink", "hardshrink", "threshold", "prelu",
    ],
    _elementwise,
) | {
    **dict.fromkeys(
        [
            "softmax", "log_softmax", "softmin", "mean", "sum", "nansum", "nanmean", "prod", "amax",
            "amin", "cumsum", "cumprod", "cummax", "cummin", "logsumexp", "logcumsumexp", "var",
            "std", "var_mean", "std_mean", "squeeze", "unbind", "argmax", "argmin", "any", "all",
            "count_nonzero", "narrow", "select", "median", "nanmedian", "unflatten",
        ],
        _over(),
    ),
    **dict.fromkeys(
        [
            "float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone",
            "detach", "get data", "bool", "int", "long", "short",
        ],
        _cast,
    ),
    "flip": _flip,
    **dict.fromkeys(["chunk", "split", "tensor_split", "split_with_sizes"], _over(2)),
    **dict.fromkeys(["sort", "argsort"], _over(1, -1)),
    "norm": _over(2), "vector_norm": _over(2), "normalize": _over(2, 1), "glu": _over(1, -1),
    "topk": _over(2, -1), "kthvalue": _over(2, -1), "roll": _over(2, name="dims"),
    "max": _over_or_pairs, "min": _over_or_pairs,
    "transpose": _every(("dim0", 1), ("dim1", 2)), "swapaxes": _every(("axis0", 1), ("axis1", 2)),
    "swapdims": _every(("dim0", 1), ("dim1", 2)),
    "movedim": _every(("source", 1), ("destination", 2)),
    "permute": _permute, "unsqueeze": _unsqueeze, "flatten": _flatten,
    **dict.fromkeys(["view", "reshape"], _reshape), "repeat": _repeat,
    "expand": _expand, "expand_as": _expand_as,
    **dict.fromkeys(["cat", "concat", "concatenate", "stack"], _join(0)),
    **dict.fromkeys(["hstack", "column_stack"], _join_columns),
    **dict.fromkeys(["matmul", "mm", "bmm"], _product), "linear": _linear, "einsum": _einsum,
    "addmm": _product_added,
    "layer_norm": _normalized, "rms_norm": _normalized, "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    **dict.fromkeys(["dropout", "alpha_dropout", "feature_alpha_dropout"], _dropout),
    "where": _where, "__getitem__": _index, "gather": _along,
    "index_select": _select_columns, "one_hot": _one_hot, "embedding": _embedding,
    "cosine_similarity": _pairs_of_rows(2, 1),
    **dict.fromkeys(["cross", "linalg_cross"], _pairs_of_rows(2, -1)),
}  # fmt: skip


def is_elementwise(name: str) -> bool:
    """Whether a function of torch works element by element, with broadcasting."""
    return _TABLE.get(name) is _elementwise


PRODUCTS = frozenset(["mul", "multiply"])
QUOTIENTS = frozenset(["div", "divide", "true_divide"])
COSTLY = frozenset(["matmul", "mm", "bmm", "addmm", "linear", "einsum"])
"""Functions that contain a matrix product."""
EMPTY = frozenset(["empty", "new_empty"])
"""What makes rows that are to be written to."""
FILLS = EMPTY | {"zeros", "ones", "full", "new_zeros", "new_ones", "new_full"}
"""What makes rows that are all alike."""
RESHAPES = frozenset(["view", "reshape"])
NOTHING = frozenset(["dropout", "alpha_dropout", "feature_alpha_dropout"])
"""Functions that return what they are given, where they are row-wise."""


def fixed(tensor: Tensor) -> Fixed:
    """A tensor without rows, of any shape, as the rules see it."""
    return Fixed(tuple(d if isinstance(d, int) else None for d in tensor.shape))

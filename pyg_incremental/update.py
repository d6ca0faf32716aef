"""What an update reports: the rows that changed, and what is to be read off them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, overload

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from typing_extensions import NamedTuple as GenericTuple  # before Python 3.11

from pyg_incremental.delta.describe import GraphDelta
from pyg_incremental.delta.intake import Refused
from pyg_incremental.errors import IncrementalError, UnsupportedModelError
from pyg_incremental.telemetry.work import UpdateStats
from pyg_incremental.typing import Identifiers, Out


@dataclass(slots=True)
class Update(Generic[Out]):
    """The result of one `apply_delta` or `refresh`.

    Attributes:
        changed: Ids of the output rows whose value changed, ascending, int64 `[k]`; for a model
            with several outputs, in the structure of its output. Where an output has a row for each
            edge (or pair of nodes) these are the rows, as they stand now, of edges that are new or
            whose value changed; those that only moved up because others left are not named.
        out: The new values of these rows, `[k, out_channels]`, as a copy.
        stats: What the update cost, step by step.
        version: How many updates have been applied since the first pass.
        repeated: Whether a delta of this `delta_id` had been applied before, so that nothing was
            done.
        changed_edges: For outputs with a row for each edge these edges, int64 `[2, k]`; None for
            others.
        old: What stood in the rows `changed` before, `[k, out_channels]`, if that was asked for
            (`old=True`), else None. Rows of new nodes and new edges are NaN, or -1 if the output is
            one of integers.
        refused: What was left out of the delta, as it does not fit (`invalid='skip'`): the field,
            the position, and the reason of each entry.
        rows: The same as `changed` in numbers of rows, where nodes have names (`node_ids`), which
            `changed`, `flips` and `crossed` hold then: int64 `[k]` if these are integers, else an
            array of objects `[k]`. None where they have none.
        may_be_probabilities: Whether an output of one channel has numbers between 0 and 1 only, of
            which it is not known whether they are logits; told if OLD rows were asked for.
        is_preview: Whether it says what would be (`preview`): nothing was applied then.
        changed_edge_ids: The ids of `changed_edges`, where edges have some (`edge_ids`): int64
            `[k]` if these are integers, else an array of objects `[k]`. None where they have none.
    """

    changed: Out
    out: Out
    stats: UpdateStats
    version: int
    repeated: bool = False
    changed_edges: Out | None = None
    old: Out | None = None
    refused: Sequence[Refused] = ()
    _undo: GraphDelta | None = None
    may_be_probabilities: bool = False
    rows: Identifiers | None = None
    is_preview: bool = False
    changed_edge_ids: Identifiers | None = None

    @property
    def undo(self) -> GraphDelta:
        """The `GraphDelta` that undoes this one. Rows of new nodes stay, with zeros and no edges.

        Raises:
            IncrementalError: If it was not asked for, or nothing was applied.
        """
        if self._undo is None:
            raise IncrementalError(
                "undo: the way back was not kept; ask for it with apply_delta(..., undo=True). "
                "There is none where nothing was applied (a preview, a delta_id that is repeated)"
            )
        return self._undo

    @property
    def flips(self) -> "Flips | Any":
        """The rows whose label is another one now: `Flips`, in the structure of the output.

        The label of a row is its largest channel, the first of several; of one channel it is
        whether that is positive, as of a logit; of integers `[n]` it is the number itself. A node
        or edge that is new had the label -1, as has a row of NaN. So `labels[flips.ids] =
        flips.new` keeps a table of labels current.

        Raises:
            IncrementalError: If the old rows were not asked for.
            UnsupportedModelError: If rows of an output are no vectors, or may be probabilities.
        """
        self._require_old("flips")
        if self.may_be_probabilities:
            raise UnsupportedModelError(
                "flips: all numbers of an output lie between 0 and 1 (expected logits, some "
                "of them negative); write crossed(0.5) for probabilities, crossed(0.0) for logits"
            )
        return pytree.tree_map(_flips, self.changed, self.old, self.out)

    @overload
    def crossed(
        self: "Update[Tensor]", threshold: float, channel: int | None = None
    ) -> "Crossed": ...

    @overload
    def crossed(self, threshold: float, channel: int | None = None) -> Any: ...

    def crossed(self, threshold: float, channel: int | None = None) -> Any:
        """The rows that have come to a threshold from below, or fallen below it: `Crossed`.

        They come in the structure of the output. A node or edge that is new was below before, and
        so is a row of NaN.

        Args:
            threshold: The least value that is not below.
            channel: Which channel of a row is looked at; it may be left out if there is only one.

        Raises:
            IncrementalError: If the old rows were not asked for.
            UnsupportedModelError: If rows of an output have several channels, and none was named.
        """
        self._require_old("crossed")
        scores = partial(_crossed, threshold, channel)
        return pytree.tree_map(scores, self.changed, self.old, self.out)

    def _require_old(self, what: str) -> None:
        if self.old is None:
            raise IncrementalError(
                f"{what}: the old rows were not kept; ask for them with apply_delta(..., old=True)"
            )

    def plot(self, axes: Any = None) -> Any:
        """Draw the rows that each step computed, and how many of them changed.

        Args:
            axes: Axes of matplotlib; new ones if None.

        Returns:
            The axes.

        Raises:
            ImportError: Without matplotlib.
        """
        from matplotlib import pyplot as plt

        steps = self.stats.steps
        if axes is None:
            _, axes = plt.subplots(figsize=(6, 1 + 0.3 * len(steps)))
        names = [f"{s.name} ({s.kind})" for s in steps]
        axes.barh(names, [s.rows for s in steps], color="lightsteelblue", label="rows computed")
        axes.barh(
            names, [s.changed for s in steps], color="tab:orange", label="changed", height=0.4
        )
        axes.invert_yaxis()
        axes.set_xlabel("rows")
        axes.set_title(repr(self), loc="left", fontsize=9)
        axes.legend()
        return axes

    def __repr__(self) -> str:
        changed: Any = self.changed
        changed = len(changed) if hasattr(changed, "shape") else "..."
        took = f"{1e3 * self.stats.seconds:.3f} ms"
        again = ", repeated" if self.repeated else ""
        if self.is_preview:
            return f"Preview(of version={self.version}, would change {changed} rows, {took})"
        return f"Update(version={self.version}, changed={changed} rows, {took}{again})"

    def _repr_html_(self) -> str:
        return self.stats._repr_html_(repr(self))


class Flips(NamedTuple):
    """Rows whose label changed.

    Attributes:
        ids: The rows, ascending, int64 `[k]`.
        old: Their labels before, int64 `[k]`; -1 for none.
        new: Their labels now, int64 `[k]`.
    """

    ids: Tensor
    old: Tensor
    new: Tensor


class Crossed(NamedTuple):
    """Rows that have crossed a threshold.

    Attributes:
        ids: The rows, ascending, int64 `[k]`.
        rose: Whether each has come to the threshold from below, bool `[k]`.
        old: Their values before, `[k]`; NaN of what is new.
        new: Their values now, `[k]`.
    """

    ids: Tensor
    rose: Tensor
    old: Tensor
    new: Tensor


def _crossed(threshold: float, channel: int | None, ids: Any, old: Any, new: Any) -> Any:
    """The rows of one output that have crossed a threshold; None for what has no rows."""
    if ids is None or not isinstance(new, Tensor):
        return None
    before, now = (_scores(rows, channel) for rows in (old, new))
    was, rose = before >= threshold, now >= threshold
    at = was != rose
    return Crossed(_chosen(ids, at), rose[at], before[at], now[at])


def _scores(rows: Tensor, channel: int | None) -> Tensor:
    """One channel of rows, `[k]`."""
    flat = rows[:, None] if rows.dim() == 1 else rows
    if flat.dim() != 2 or flat.is_complex() or (channel is None and flat.shape[1] != 1):
        raise UnsupportedModelError(
            f"crossed: expected rows of one channel (got rows of shape {list(rows.shape[1:])}, "
            f"{rows.dtype}); say which one, as in crossed(0.5, channel=1)"
        )
    return flat[:, channel or 0]


def _flips(ids: Any, old: Any, new: Any) -> Any:
    """The flips of one output; None for what has no rows."""
    if ids is None or not isinstance(new, Tensor):
        return None
    before, now = labels_of(old), labels_of(new)
    differ = before != now
    return Flips(_chosen(ids, differ), before[differ], now[differ])


def _chosen(ids: Any, mask: Tensor) -> Any:
    """Some of the rows or names `[k]`, by a mask, bool `[k]`."""
    return ids[mask.to(ids.device) if isinstance(ids, Tensor) else mask.cpu().numpy()]


def is_one_channel(rows: Tensor) -> bool:
    """Whether rows, `[k]` or `[k, 1]`, are one number each."""
    return rows.dtype.is_floating_point and (rows.dim() == 1 or rows.shape[1:] == (1,))


def labels_of(rows: Tensor) -> Tensor:
    """The label of each row, int64 `[k]`; see `Update.flips`.

    Raises:
        UnsupportedModelError: If rows are no vectors.
    """
    if rows.dim() == 1 and not rows.dtype.is_floating_point and not rows.is_complex():
        return rows.long()
    if is_one_channel(rows):
        score = rows.reshape(-1)
        return torch.where(score.isnan(), -1, (score > 0).long())
    if rows.dim() != 2 or rows.shape[1] < 2 or rows.is_complex():
        raise UnsupportedModelError(
            f"flips: expected rows of channels (got rows of shape {list(rows.shape[1:])}, "
            f"{rows.dtype}); compare `old` and `out` with a threshold of your own"
        )
    labels = rows.argmax(1)
    if rows.dtype.is_floating_point:
        labels[rows.isnan().any(1)] = -1
    return labels


class Reading(GenericTuple, Generic[Out]):
    """Rows of the output, and which version they are of.

    Attributes:
        version: How many updates had been applied since the first pass.
        out: A copy of the rows, `[k, out_channels]`, in the structure of the model's output.
    """

    version: int
    out: Out

"""A feature that is made of events: what it is, and its value over the events that are in it."""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

_HALF_LIVES = 64
"""What is older by so many has lost more than a float64 holds."""


class Contribution(NamedTuple):
    """What one edge gives to one node; the later one is the larger.

    Attributes:
        time: The event time.
        number: Which edge it was, in the order in which they came.
        value: The value of the field.
    """

    time: float
    number: int
    value: float


@dataclass(frozen=True)
class Feature:
    """One channel of the features of nodes that is made of events, and kept by the stream.

    It is made of the edges that have come as events and are still there: one that is deleted, falls
    out of the window or loses its node is taken back, and an `edge_change` takes the place of the
    event that brought its edge. Its value is added to what `x` said before the first event, but
    for `'last'`, which takes the place of it.

    Attributes:
        channel: The column of `x`.
        what: `'count'`, how many there are; `'sum'`; `'last'`, the value of the latest by event
            time; `'decayed'`, the sum of values that count half as much after each `half_life`,
            as of the latest of them. Sums are rounded once, whatever came and left.
        of: The field with the value, a number. Not for `'count'`.
        at: The end of the edge that has the feature: `'src'`, `'dst'` or `'both'`.
        within: Only edges of so long before the latest event time count, in steps of a hundredth of
            it (see `Window.begins`); the edges themselves stay.
        half_life: That of `'decayed'`, in units of the event time.

    Raises:
        ValueError: If these do not go together.
    """

    channel: int
    what: Literal["count", "sum", "last", "decayed"]
    of: str | None = None
    at: Literal["src", "dst", "both"] = "dst"
    within: float | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        if self.what not in ("count", "sum", "last", "decayed"):
            raise ValueError(
                f"what: expected 'count', 'sum', 'last' or 'decayed' (got {self.what!r})"
            )
        if self.at not in ("src", "dst", "both"):
            raise ValueError(f"at: expected 'src', 'dst' or 'both' (got {self.at!r})")
        if self.channel < 0:
            raise ValueError(f"channel: expected a column of x, 0 or more (got {self.channel})")
        for name, needed in (("of", self.what != "count"), ("half_life", self.what == "decayed")):
            if (getattr(self, name) is not None) != needed:
                raise ValueError(
                    f"{name}: {self.what!r} {'needs' if needed else 'has'} "
                    f"{'it' if needed else 'none'} (got {getattr(self, name)!r})"
                )
        for name in ("within", "half_life"):
            length = getattr(self, name)
            if length is not None and not 0 < length < math.inf:
                raise ValueError(f"{name}: expected a length of time above 0 (got {length})")

    @property
    def needs_time(self) -> bool:
        """Whether events have to say when they happened."""
        return self.within is not None or self.half_life is not None

    def ends(self, ends: tuple[Any, Any]) -> tuple[Any, ...]:
        """Those of the ends of an edge that have the feature."""
        return {"src": ends[:1], "dst": ends[1:], "both": ends}[self.at]

    def kept(self) -> "FeatureState":
        """The value at a node of which no event is known."""
        return {"count": FeatureState, "sum": ExactSum, "last": Last, "decayed": Decayed}[
            self.what
        ](self)


class FeatureState:
    """A feature of one node: how many parts it has."""

    __slots__ = ("count", "feature")

    def __init__(self, feature: Feature) -> None:
        self.feature, self.count = feature, 0

    def add(self, part: Contribution) -> None:
        """A part comes."""
        self.count += 1

    def take(self, part: Contribution) -> None:
        """A part that is there leaves."""
        self.count -= 1

    def over(self, base: float) -> float:
        """The value, where `x` said something before."""
        return base + self.count


class ExactSum(FeatureState):
    """The sum of the parts, exactly, as floats that do not overlap (Shewchuk 1997, Figure 6)."""

    __slots__ = ("_floats",)

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self._floats: list[float] = []

    def add(self, part: Contribution) -> None:
        """A part comes."""
        super().add(part)
        self._grow(part.value)

    def take(self, part: Contribution) -> None:
        """A part that is there leaves."""
        super().take(part)
        self._grow(-part.value)

    def _grow(self, x: float) -> None:
        kept = []
        for y in self._floats:
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low:
                kept.append(low)
            x = high
        self._floats = [*kept, x] if x else kept

    def over(self, base: float) -> float:
        """The value, where `x` said something before."""
        return math.fsum([base, *self._floats])


class Last(FeatureState):
    """The value of the latest part; parts in their order."""

    __slots__ = ("parts",)

    def __init__(self, feature: Feature) -> None:
        super().__init__(feature)
        self.parts: list[Contribution] = []

    def add(self, part: Contribution) -> None:
        """A part comes."""
        super().add(part)
        insort(self.parts, part)

    def take(self, part: Contribution) -> None:
        """A part that is there leaves."""
        super().take(part)
        del self.parts[bisect_left(self.parts, part)]

    def over(self, base: float) -> float:
        """The value, where `x` said something before."""
        return self.parts[-1].value if self.parts else base


class Decayed(Last):
    """The sum of parts that fade, as of the latest of them."""

    __slots__ = ()

    def over(self, base: float) -> float:
        """The value, where `x` said something before."""
        if not self.parts:
            return base
        now, life = self.parts[-1].time, self.feature.half_life or math.inf
        first: Any = (now - _HALF_LIVES * life,)
        some = self.parts[bisect_left(self.parts, first) :]
        return math.fsum([base, *(p.value * 2.0 ** ((p.time - now) / life) for p in some)])

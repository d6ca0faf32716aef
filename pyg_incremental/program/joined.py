"""The word of a program for rows that are partly held elsewhere, as those of other ranks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from pyg_incremental.program.steps import Step


@dataclass(frozen=True, eq=False)
class Joined(Step, ABC):
    """The rows of a value, and behind them those of nodes that are held elsewhere.

    Where the rows of its input end and others begin, `begins` says, and how many there are,
    `behind`. Executors that keep a store have a class for each kind of it; one that computes all
    rows once asks for the others with `fetch`.
    """

    kind: ClassVar[str] = "joined"
    takes_all: ClassVar[bool] = True

    @property
    @abstractmethod
    def begins(self) -> int:
        """The id of the first row that is not one of the input."""

    @property
    @abstractmethod
    def behind(self) -> int:
        """How many rows come from elsewhere."""

    @abstractmethod
    def fetch(
        self, rows_at: Callable[[Any], Tensor], like: Tensor, memory: int
    ) -> Iterator[tuple[Any, Tensor]]:
        """Bring the rows of the others, some at a time.

        Args:
            rows_at: Returns rows of the input, `[k, ...]`, at ids, int64 `[k]`.
            like: No row of them, `[0, ...]`.
            memory: About how many bytes may be taken meanwhile.

        Yields:
            Which of the others, counted from the first, int64 `[k]`, and their rows, `[k, ...]`.
        """
